"""Records of families: SciPy's laws of theta and outcomes. A new family is one more entry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from soc_pymc.families import FAMILIES
from soc_pymc.families.family import Family


@dataclass(frozen=True)
class Record:
    """A family, with SciPy's distributions by its conjugate parameters a and b."""

    family: Family
    theta: Callable[[Any, Any], Any]  # (a, b) -> law of theta
    outcome: Callable[[Any, Any], Any]  # (theta, size) -> law of the outcome
    marginal: Callable[[Any, Any, Any], Any]  # (a, b, size) -> law of the outcome, theta averaged
    priors: tuple[tuple[float, float], ...]
    extreme_priors: tuple[tuple[float, float], ...]
    sizes: tuple[float, ...]
    extreme_sizes: tuple[float, ...]
    certain: Callable[[float], tuple[float, float]]  # theta -> outcome and size that determine it
    # (a, b, outcome, size) -> the same item in other units or sides
    moved: Callable[..., tuple[Any, Any, Any, Any]]
    factor: float  # theta of the moved item is shift + factor theta
    shift: float
    unit: float  # width of an outcome's unit after the move, by which its density falls
    least: float = 0.0  # that the first parameter exceeds

    def outcomes(self, a: float, b: float, size: float) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes that have all probability but 1e-13, and weights for sums over them."""
        low, high = self.marginal(a, b, size).ppf([1e-14, 1.0 - 1e-14])
        if self.family.outcome.whole:
            return np.arange(high + 1.0), np.ones(int(high) + 1)
        if self.family.outcome.positive:
            grid = np.geomspace(low, high, 4001)
            return grid, grid * np.log(grid[1] / grid[0])
        grid = np.linspace(low, high, 4001)
        return grid, np.full(len(grid), grid[1] - grid[0])


SHAPE = 2.5  # of amounts


def prior_parameters(name: str, mean: Any, variance: Any) -> tuple[Any, Any]:
    """Returns the conjugate parameters of the prior with this mean and variance of theta."""
    if name == "Gamma":
        return mean**2 / variance, mean / variance
    if name == "Normal":
        return mean, variance
    if name == "InverseGamma":
        return 2.0 + mean**2 / variance, mean * (1.0 + mean**2 / variance)
    total = mean * (1.0 - mean) / variance - 1.0
    return mean * total, (1.0 - mean) * total


def updated_parameters(name: str, a: Any, b: Any, outcome: Any, size: Any) -> tuple[Any, Any]:
    """Returns the conjugate parameters of theta's posterior."""
    if name == "Gamma":
        return a + outcome, b + size
    if name == "Normal":
        precision = 1.0 / b + 1.0 / size**2
        return (a / b + outcome / size**2) / precision, 1.0 / precision
    if name == "InverseGamma":
        return a + SHAPE * size, b + SHAPE * outcome
    return a + outcome, b + size - outcome


RECORDS = {
    "Gamma": Record(
        FAMILIES["Gamma"],
        theta=lambda a, b: stats.gamma(a, scale=1.0 / np.asarray(b)),
        outcome=lambda theta, size: stats.poisson(theta * size),
        marginal=lambda a, b, size: stats.nbinom(a, b / (b + size)),
        priors=((0.5, 2.0), (3.0, 60.0), (400.0, 1000.0)),
        extreme_priors=tuple((a, a / 0.2) for a in (1e-3, 0.1, 3.0, 1e3, 1e6, 1e12)),
        sizes=(0.3, 5.0, 200.0),
        extreme_sizes=(1e-3, 1.0, 300.0, 1e9),
        certain=lambda theta: (theta * 1e13, 1e13),
        # exposures in another unit
        moved=lambda a, b, y, size: (a, 7.0 * b, y, 7.0 * size),
        factor=1.0 / 7.0,
        shift=0.0,
        unit=1.0,
    ),
    "Normal": Record(
        FAMILIES["Normal"],
        theta=lambda a, b: stats.norm(a, np.sqrt(b)),
        outcome=stats.norm,
        marginal=lambda a, b, size: stats.norm(a, np.sqrt(b + np.square(size))),
        priors=((0.0, 1.0), (-3.0, 0.01), (100.0, 25.0)),
        extreme_priors=((0.0, 1e-300), (-2.0, 1e-12), (1e5, 0.3), (0.0, 1e12)),
        sizes=(0.1, 1.0, 30.0),
        extreme_sizes=(1e-35, 1e-6, 1.0, 1e6, 1e35),
        certain=lambda theta: (theta, 1e-8),
        # another unit, from another origin, mirrored
        moved=lambda a, b, y, size: (2.0 - 5.0 * a, 25.0 * b, 2.0 - 5.0 * y, 5.0 * size),
        factor=-5.0,
        shift=2.0,
        unit=5.0,
    ),
    "Beta": Record(
        FAMILIES["Beta"],
        theta=stats.beta,
        outcome=lambda theta, size: stats.binom(size, theta),
        marginal=lambda a, b, size: stats.betabinom(size, a, b),
        priors=((0.7, 2.0), (5.0, 5.0), (400.0, 30.0)),
        extreme_priors=(
            *((1e-3, 2e-3), (0.5, 3.0), (700.0, 20.0), (3.0, 4e4)),
            *((1e-3, 1e12), (1e8, 0.3), (1e9, 5.0), (1e12, 1e12)),
        ),
        sizes=(1.0, 8.0, 700.0),
        extreme_sizes=(1.0, 40.0, 5000.0, 1_000_000.0),
        certain=lambda theta: (theta * 1e13, 1e13),
        # failures for successes
        moved=lambda a, b, y, size: (b, a, size - y, size),
        factor=-1.0,
        shift=1.0,
        unit=1.0,
    ),
    "InverseGamma": Record(
        FAMILIES["InverseGamma"].given({"shape": SHAPE}),
        theta=lambda a, b: stats.invgamma(a, scale=b),
        outcome=lambda theta, size: stats.gamma(SHAPE * size, scale=(theta + 1e-300) / SHAPE),
        marginal=lambda a, b, size: stats.betaprime(SHAPE * np.asarray(size), a, scale=b / SHAPE),
        priors=((5.0, 8.0), (14.0, 60.0), (402.0, 1000.0)),
        extreme_priors=((2.001, 0.3), *((a, 0.2 * a) for a in (3.5, 1e3, 1e6, 1e12))),
        sizes=(1.0, 4.0, 200.0),
        extreme_sizes=(1.0, 3.0, 300.0, 1_000_000.0),
        certain=lambda theta: (theta * 1e13, 1e13),
        # amounts in another unit
        moved=lambda a, b, y, size: (a, 7.0 * b, 7.0 * y, size),
        factor=7.0,
        shift=0.0,
        unit=7.0,
        least=2.0,
    ),
}
