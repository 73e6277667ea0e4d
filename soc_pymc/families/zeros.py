"""Theta that is exactly 0 with some probability, and has a mixture's distribution otherwise.

Wherever components are listed, the share that is 0 is the last of them: a member of the family so
close to 0 that no outcome can tell the two apart. Quantiles and moments take it as exactly 0.
"""

import numpy as np

from .._lib.arrays import Floats
from .family import Family

ZERO = "zero"
"""Name of the logit of the share of theta that is 0, among the functions of the log weights."""
NEAR_ZERO = 1e-90
"""Size of theta below which it is a draw of the component that stands for 0."""


def with_zero(family: Family, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Conjugate parameters, (n, 1) or (n, R), and those that stand for 0 as the last component."""
    a, b = np.broadcast_arrays(a, b)
    a_of_zero, b_of_zero = family.mixtures.at_zero(a[:, 0])
    return np.column_stack([a, a_of_zero]), np.column_stack([b, b_of_zero])


def whole_moments(zero: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of theta with a share of zeros, from those of the rest."""
    positive = 1.0 - zero
    return positive * mean, positive * (variance + zero * mean**2)
