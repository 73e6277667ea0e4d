"""Finite mixtures of a family's members: over draws of the curves, or over a mixture's components.

Moments are closed sums, and quantiles are found by the search of `soc_pymc.prior_table`, at last on
SciPy's distribution functions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from .._lib.arrays import Floats
from ..prior_table import ARRAYS, FAMILIES, mixture_rows, moments

_AT_ONCE = 1 << 16  # numbers in one array of members x items
_LARGEST = 690.0  # largest logarithm or logit of theta


def _gamma_law(shape: Floats, rate: Floats, norm: Floats, t: Floats, _: Any) -> tuple[Any, Any]:
    log_x = np.minimum(t, _LARGEST) + np.log(rate)
    x = np.exp(np.minimum(log_x, _LARGEST))
    return special.gammainc(shape, x), np.exp(norm + shape * t - x)


def _beta_law(a: Floats, b: Floats, norm: Floats, t: Floats, _: Any) -> tuple[Any, Any]:
    t = np.clip(t, -_LARGEST, _LARGEST)
    theta, complement = special.expit(t), special.expit(-t)
    below = np.where(t < 0.0, special.betainc(a, b, theta), 1.0 - special.betainc(b, a, complement))
    return below, np.exp(norm + a * special.log_expit(t) + b * special.log_expit(-t))


def _normal_law(mean: Floats, variance: Floats, norm: Floats, t: Floats, _: Any) -> tuple[Any, Any]:
    z = (t - mean) / np.sqrt(variance)
    return special.ndtr(z), np.exp(norm - 0.5 * z * z)


_LAWS: Mapping[str, Callable[..., tuple[Any, Any]]] = {
    "Gamma": _gamma_law,
    "Beta": _beta_law,
    "Normal": _normal_law,
}


def summaries(
    name: str,
    weight: Floats,
    a: Floats,
    b: Floats,
    probs: Sequence[float] = (),
    zero: Floats | None = None,
) -> Floats:
    """Mean, sd, variance and quantiles of mixtures of members of a family, (3 + probabilities, n).

    Conjugate parameters are (members, n), weights (members, n) or (members, 1) and add up to 1.
    `zero` (n,) is the share of theta that is 0 and none of the members; it is the last row then.

    Examples
    --------
    >>> mean = np.array([[-1.0], [1.0]])
    >>> summaries("Normal", np.full((2, 1), 0.5), mean, np.ones((2, 1)), (0.9,))[:, 0].round(6)
    array([0.      , 1.414214, 2.      , 1.849468])
    """
    a, b = np.broadcast_arrays(a, b)
    out = np.empty((3 + len(probs) + (zero is not None), a.shape[1]))
    step = max(1, _AT_ONCE // len(a))
    with np.errstate(all="ignore"):
        for begin in range(0, a.shape[1], step):
            part = slice(begin, begin + step)
            share = weight if weight.shape[1] == 1 else weight[:, part]
            at_zero = None if zero is None else zero[part]
            mixture = FAMILIES[name], share, a[:, part], b[:, part]
            averages, *_ = moments(*mixture, ARRAYS)
            out[:, part] = mixture_rows(*mixture, averages, probs, at_zero, _LAWS[name])
    return out


def over_draws(name: str, a: Floats, b: Floats, probs: Sequence[float] = ()) -> Floats:
    """`summaries` of equal mixtures over draws: conjugate parameters (draws, n)."""
    return summaries(name, np.full((len(a), 1), 1 / len(a)), a, b, probs)
