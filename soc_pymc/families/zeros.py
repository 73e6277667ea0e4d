"""Theta that is exactly 0 with some probability, and has a mixture's distribution otherwise.

Wherever components are listed, the share that is 0 is the last of them: a member of the family so
close to 0 that no outcome can tell the two apart. Quantiles and moments take it as exactly 0.
"""

from collections.abc import Sequence

import numpy as np

from .._lib.arrays import Floats
from .family import Family

ZERO = "zero"
"""Name of the logit of the share of theta that is 0, among the functions of the log weights."""
NEAR_ZERO = 1e-90
"""Size of theta below which it is a draw of the component that stands for 0."""
_LEAST = 1e-300  # share of theta that is not 0


def with_zero(family: Family, first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Conjugate parameters, (n, 1) or (n, R), and those that stand for 0 as the last component."""
    first, second = np.broadcast_arrays(first, second)
    one, other = family.mixtures.at_zero(first[:, 0])
    return np.column_stack([first, one]), np.column_stack([second, other])


def whole_moments(zero: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of theta, of which a share is 0, from those of the rest."""
    rest = 1.0 - zero
    return rest * mean, rest * (variance + zero * mean**2)


def summaries(
    family: Family, weight: Floats, first: Floats, second: Floats, probs: Sequence[float]
) -> Floats:
    """Mean, sd, variance and quantiles of theta, (3 + probabilities, n).

    `weight` (n, R + 1) ends with the share that is 0 and adds up to 1; the parameters are (n, 1)
    or (n, R).
    """
    rest, zero = weight[:, :-1], weight[:, -1]
    total = np.maximum(rest.sum(axis=1), _LEAST)
    rest = rest / total[:, None]
    found = family.mixtures.summaries(rest, first, second, ())
    mean, variance = whole_moments(zero, found[0], found[2])
    below = np.zeros(len(zero))  # P(theta < 0)
    if not family.outcome.positive:
        below = total * np.einsum("nr,nr->n", rest, 1.0 - family.above(0.0, first, second))
    rows = [mean, np.sqrt(variance), variance]
    for prob in probs:
        own = np.where(prob < below, prob, prob - zero) / total
        own = np.where((prob >= below) & (prob <= below + zero), np.nan, own)
        own = np.clip(own, np.finfo(float).tiny, 1.0 - 1e-16)
        moments = found[0], found[2]
        rows.append(family.mixtures.quantiles(rest, first, second, own, *moments))
    return np.vstack(rows)
