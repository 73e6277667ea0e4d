"""A user's own fit: a negative binomial with two penalised splines, by scipy and Laplace.

    python -m tests.bench.laplace_baseline [--seeds 20]

prints how often its 90% bands hold the true curves of S1, next to those of `soc.fit`.
"""

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, special
from scipy.interpolate import BSpline

import soc_pymc as soc
from soc_pymc.posterior.curves import curve_draws

__all__ = ["PENALTIES", "PROBABILITIES", "covered", "laplace_bands", "our_bands", "true_curves"]

Floats = NDArray[np.float64]

PENALTIES = (0.1, 1.0, 10.0, 100.0)
_FUNCTIONS = 10  # of each curve
PROBABILITIES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
_WIDTH = 1.6448536269514722  # of a 90% band, in standard deviations


def _scores(frame: pd.DataFrame) -> Floats:
    return np.quantile(frame["score"], PROBABILITIES)


def true_curves(frame: pd.DataFrame) -> Floats:
    """True log mean and log cv2 at seven quantiles of the score, shape (2, 7)."""
    return np.array(soc.simulation.s1_curves(_scores(frame)))


def covered(frame: pd.DataFrame, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Whether bands of shape (2, 7) hold the true curves."""
    true = true_curves(frame)
    return np.asarray((low < true) & (true < high))


def our_bands(frame: pd.DataFrame, fit: soc.Fit) -> tuple[Floats, Floats]:
    """The 90% pointwise bands of a fit of soc_pymc, two arrays of shape (2, 7)."""
    draws = np.array(curve_draws(fit, _scores(frame)))
    low, high = np.quantile(draws, [0.05, 0.95], axis=1)
    return low, high


def _basis(log_score: Floats, low: float, high: float) -> Floats:
    inner = np.linspace(low, high, _FUNCTIONS - 2)
    knots = np.concatenate([[low] * 3, inner, [high] * 3])
    return np.asarray(BSpline.design_matrix(log_score, knots, 3).toarray())


class _Posterior:
    """Minus the log posterior of the coefficients of log mean and log shape, with its gradient."""

    def __init__(self, frame: pd.DataFrame, penalty: float) -> None:
        u = np.log(frame["score"].to_numpy())
        self.range = u.min(), u.max()
        self.basis = _basis(u, *self.range)
        self.y = frame["count"].to_numpy(dtype=float)
        self.exposure = frame["exposure"].to_numpy(dtype=float)
        bends = np.diff(np.eye(_FUNCTIONS), n=2, axis=0)
        self.penalty = penalty * bends.T @ bends
        self.log_prior_scale = len(bends) * np.log(penalty)  # of both curves' bends together
        self.constant = float(special.gammaln(self.y + 1.0).sum())

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        y, coefficients = self.y, x.reshape(2, -1)
        log_mean, log_shape = self.basis @ coefficients[0], self.basis @ coefficients[1]
        mu, a = self.exposure * np.exp(log_mean), np.exp(log_shape)
        log_share = -np.log1p(mu / a)  # a/(a + mu)
        gammas = special.gammaln(y + a) - special.gammaln(a)
        value = (gammas + a * log_share + y * (np.log(mu / a) + log_share)).sum() - self.constant
        by_mean = (y - mu) / (1.0 + mu / a)
        digammas = special.digamma(y + a) - special.digamma(a)
        by_shape = a * (digammas + log_share + (mu - y) / (a + mu))
        bent = coefficients @ self.penalty
        gradient = np.array([by_mean @ self.basis, by_shape @ self.basis]) - bent
        return 0.5 * float((bent * coefficients).sum()) - value, -gradient.ravel()

    def hessian(self, x: Floats, step: float = 1e-4) -> Floats:
        """Central differences of the gradient."""
        moves = step * np.eye(len(x))
        rows = np.array([self(x + m)[1] - self(x - m)[1] for m in moves]) / (2.0 * step)
        return 0.5 * (rows + rows.T)


def laplace_bands(frame: pd.DataFrame, penalties: Sequence[float]) -> tuple[Floats, Floats, float]:
    """Bands as of `our_bands`, and the penalty whose Laplace evidence is largest."""
    best, kept = -np.inf, None
    level = np.log((frame["count"].sum() + 0.5) / frame["exposure"].sum())
    for penalty in penalties:
        posterior = _Posterior(frame, penalty)
        start = np.repeat([level, 0.0], _FUNCTIONS)
        options = {"maxiter": 2000, "maxfun": 4000, "gtol": 1e-3, "ftol": 1e-12, "maxcor": 30}
        found = optimize.minimize(posterior, start, jac=True, method="L-BFGS-B", options=options)
        hessian = posterior.hessian(found.x)
        evidence = -found.fun + posterior.log_prior_scale - 0.5 * np.linalg.slogdet(hessian)[1]
        if evidence > best:
            best, kept = evidence, (posterior, found.x, np.linalg.inv(hessian), penalty)
    posterior, x, covariance, penalty = kept
    at = _basis(np.log(_scores(frame)), *posterior.range)
    sign = np.array([[1.0], [-1.0]])  # log cv2 is minus log shape
    centre = sign * (x.reshape(2, -1) @ at.T)
    blocks = [covariance[k : k + _FUNCTIONS, k : k + _FUNCTIONS] for k in (0, _FUNCTIONS)]
    half = _WIDTH * np.sqrt([np.einsum("ij,jk,ik->i", at, b, at) for b in blocks])
    return centre - half, centre + half, penalty


def main() -> None:
    """Print the coverage of both over several data sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--items", type=int, default=20_000)
    chosen = parser.parse_args()
    inside: dict[str, list[NDArray[np.bool_]]] = {}
    width: dict[str, list[Floats]] = {}
    for seed in range(chosen.seeds):
        frame = soc.simulation.s1(chosen.items, seed=seed)
        items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        fit = soc.fit(soc.summarize(items, progress=False), progress=False)
        bands = {"soc_pymc": our_bands(frame, fit)}
        for name, penalties in (("Laplace, penalty 1", (1.0,)), ("Laplace, chosen", PENALTIES)):
            bands[name] = laplace_bands(frame, penalties)[:2]
        for name, (low, high) in bands.items():
            inside.setdefault(name, []).append(covered(frame, low, high))
            width.setdefault(name, []).append(high - low)
    for name, flags in inside.items():
        mean, cv2 = np.mean(flags, axis=(0, 2))
        wide = np.mean(width[name], axis=(0, 2))
        print(
            f"{name:20s} covers log mean {mean:.3f}, log cv2 {cv2:.3f}; "
            f"average width {wide[0]:.3f}, {wide[1]:.3f}"
        )


if __name__ == "__main__":
    main()
