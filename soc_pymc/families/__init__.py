"""Conjugate families, one likelihood a file, by name and by kind of outcome."""

from collections.abc import Mapping
from typing import Any

from .binomial import BinomialBeta
from .family import Family
from .normal import NormalNormal
from .outcome import Outcome
from .poisson import PoissonGamma

GAMMA = PoissonGamma()
NORMAL = NormalNormal()
BETA = BinomialBeta()
FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (GAMMA, NORMAL, BETA)
}
"""Families by the name of their prior."""
OUTCOMES: Mapping[str, Outcome] = {
    family.outcome.kind: family.outcome for family in FAMILIES.values()
}
"""Outcomes by kind of items."""


def family_of(prior: Any) -> Family:
    """Return the family of a prior, or of a mixture's components."""
    return FAMILIES[prior.family]


def family_of_kind(kind: str) -> Family:
    """Return the family that is conjugate to outcomes of a kind."""
    return next(family for family in FAMILIES.values() if family.outcome.kind == kind)
