"""Conjugate families, one likelihood a file, by name and by kind of outcome."""

from collections.abc import Mapping
from typing import Any

from .amounts import GammaInverseGamma
from .binomial import BinomialBeta
from .family import Family, Outcome
from .normal import NormalNormal
from .poisson import PoissonGamma
from .truncated import TruncatedBinomialBeta, TruncatedPoissonGamma

GAMMA = PoissonGamma()
NORMAL = NormalNormal()
BETA = BinomialBeta()
INVERSE_GAMMA = GammaInverseGamma()
# families by the name of their prior
FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (GAMMA, NORMAL, BETA, INVERSE_GAMMA)
}
# outcomes by kind of items
OUTCOMES: Mapping[str, Outcome] = {
    family.outcome.kind: family.outcome for family in FAMILIES.values()
}
# families of items of 1 or more, by kind of items
TRUNCATED: Mapping[str, Family] = {
    family.outcome.kind: family
    for family in (TruncatedPoissonGamma(), TruncatedBinomialBeta())
}


def family_of(prior: Any, attrs: Mapping[Any, Any] | None = None) -> Family:
    """Return the family of a prior, or of a mixture's components, in a fit with attributes."""
    return FAMILIES[prior.family].given(attrs or {})


def family_of_kind(kind: str, attrs: Mapping[Any, Any] | None = None) -> Family:
    """Return the family that is conjugate to outcomes of a kind, with these attributes."""
    families = FAMILIES.values()
    family = next(family for family in families if family.outcome.kind == kind)
    return family.given(attrs or {})
