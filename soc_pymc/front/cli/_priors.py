"""The prior that the words describe, and whether it suits the statistics."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from ..._lib.errors import FitError
from ...families.priors import Gamma, GammaMixture, Normal, NormalMixture, Spline

if TYPE_CHECKING:
    from ...data.statistics import Statistics

__all__ = ["PRIORS", "check_statistics", "needs_joint", "prior_of"]

Prior = Gamma | Normal | GammaMixture | NormalMixture

PRIORS: dict[str, type[Prior]] = {
    "gamma": Gamma,
    "normal": Normal,
    "gamma-mixture": GammaMixture,
    "normal-mixture": NormalMixture,
}
"""Priors by their words, the default of each kind of items first."""

_OF_KIND = {"poisson": ("gamma", "gamma-mixture"), "normal": ("normal", "normal-mixture")}
_ITEMS = {"poisson": "counts in exposures", "normal": "values with known noise"}
_TERMS = ("exposure_term", "monotone", "bin_effects", "pool_groups")  # of single families


def prior_of(chosen: argparse.Namespace, kind: str, grouped: bool) -> Prior:
    """The prior that the words describe.

    Parameters
    ----------
    chosen
        The words.
    kind
        Kind of the statistics, "poisson" or "normal".
    grouped
        Whether the items have groups.

    Raises
    ------
    FitError
        If the prior is not of this kind of items, or an option does not apply to it.
    """
    fits = _OF_KIND[kind]
    name = chosen.prior or fits[0]
    if name not in fits:
        raise FitError(
            f"--prior {name} is not for {_ITEMS[kind]}: use --prior {' or --prior '.join(fits)}"
        )
    given = ["--" + term.replace("_", "-") for term in _TERMS if getattr(chosen, term)]
    prior = PRIORS[name]()
    if isinstance(prior, Gamma | Normal):
        if chosen.pool_groups and not grouped:
            raise FitError("--pool-groups: these items have no groups, leave it out")
        prior = replace(
            prior,
            exposure=Spline() if chosen.exposure_term else None,
            monotone=chosen.monotone,
            bin_effects=chosen.bin_effects,
            groups=not chosen.pool_groups,
        )
    elif given:
        raise FitError(
            f"--prior {name} has no {', '.join(given)}: leave out what it has not, or use "
            f"--prior {fits[0]}"
        )
    return replace(
        prior, mean=_spline(chosen, prior.mean), variance=_spline(chosen, prior.variance)
    )


def needs_joint(prior: Prior) -> bool:
    """Whether a fit of the prior reads joint cells."""
    return isinstance(prior, GammaMixture | NormalMixture) or prior.exposure is not None


def check_statistics(prior: Prior, stats: "Statistics", path: str) -> None:
    """Refuse statistics without the joint cells that the prior reads."""
    if needs_joint(prior) and not stats.coarse:
        raise FitError(
            f"mixtures and --exposure-term read joint cells, which {path} lacks: make it with "
            "'soc-pymc summarize ... --joint'"
        )


def _spline(chosen: argparse.Namespace, own: Spline) -> Spline:
    """A curve with the words' knots and scale, where they are given."""
    given = {"knots": chosen.knots, "scale": chosen.scale}
    return replace(own, **{name: value for name, value in given.items() if value is not None})
