"""Conjugate families by name, and shares of theta that are exactly 0."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._lib.arrays import Floats
from .binomial_beta import BinomialBeta
from .components import BETAS, GAMMAS, NORMALS
from .conjugate import Family as Family
from .normal_normal import NormalNormal
from .poisson_gamma import PoissonGamma

GAMMA = PoissonGamma(GAMMAS)
NORMAL = NormalNormal(NORMALS)
BETA = BinomialBeta(BETAS)
FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (GAMMA, NORMAL, BETA)
}
"""Families by the name of their prior."""


def family_of(prior: Any) -> Family:
    """The family of a prior, or of a mixture's components."""
    return FAMILIES[prior.family]


def family_of_kind(kind: str) -> Family:
    """The family that is conjugate to outcomes of a kind."""
    return next(family for family in FAMILIES.values() if family.outcome.kind == kind)


def reads_joint(prior: Any) -> bool:
    """Return True if a fit of the prior reads joint cells of outcome and size."""
    return bool(prior.gridded) or prior.exposure is not None


# --- shares of zeros -----------------------------------------------------------------------------
# Theta = 0 is the last of the components: a member of the family so close to 0 that no outcome can
# tell the two apart. Quantiles and moments take it as exactly 0.

ZERO = "zero"
"""Name of the logit of the share of theta that is 0, among the functions of the log weights."""
NEAR_ZERO = 1e-90
"""Size of theta below which it is a draw of the component that stands for 0."""


def with_zero(family: Family, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Conjugate parameters, (n, 1) or (n, R), and those that stand for 0 as the last component."""
    a, b = np.broadcast_arrays(a, b)
    a_of_zero, b_of_zero = family.components.zero(a[:, 0])
    return np.column_stack([a, a_of_zero]), np.column_stack([b, b_of_zero])
