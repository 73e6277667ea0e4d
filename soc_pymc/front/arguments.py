"""Arguments of the package's functions, from the options of the command line."""

import os
from argparse import Namespace as Chosen
from collections.abc import Mapping
from dataclasses import replace
from glob import glob
from typing import Any, Literal

import soc_pymc as soc

from .._lib.errors import FitError, StatisticsError
from .._lib.files import check_target
from ..data.items import ITEMS, Items
from ..data.roles import NO_SCORE, Roles
from ..families import FAMILIES, OUTCOMES
from ..families.outcome import Outcome
from ..families.priors import Prior, Spline
from ..fits.fit import Fit
from ..fits.methods import Method
from .options import flag_of

_OUTCOME_ROLES = [r for kind in OUTCOMES.values() for r in (kind.observed, kind.size)]
_OTHERS = ("id", "fold", "cluster", "date")
METHODS = {"vi": "VI", "nuts": "NUTS", "five-steps": "FiveSteps"}
PRIORS: dict[str, type[Prior]] = {
    f"{name.lower()}{ending}": getattr(family, field)
    for field, ending in (("prior", ""), ("mixture", "-mixture"))
    for name, family in FAMILIES.items()
}
"""Priors by name, the default of each kind of items first."""
AUTO: Literal["auto"] = "auto"
_SWITCHES = ("monotone", "bin_effects", "zero", "atoms", "groups")
_WHICH = "say which columns to use"


def _flags(names: Any) -> str:
    """Options of the command line, in words."""
    return ", ".join(f"--{flag_of(name)}" for name in names)


def statistics_of(chosen: Chosen) -> Any:
    """The statistics that were given in place of items; None for items."""
    if not chosen.items[0].endswith(".nc"):
        return None
    if len(chosen.items) > 1:
        raise StatisticsError("give one file of statistics, or files of items")
    of_items = (*_OUTCOME_ROLES, "score", "no_score", "group", *_OTHERS, "by")
    if given := [name for name in of_items if getattr(chosen, name)]:
        raise StatisticsError(
            f"{_flags(given)}: statistics have no columns, leave these out or give the items"
        )
    return soc.load_statistics(chosen.items[0])


def items_of(chosen: Chosen, fitted: Fit | None = None) -> Items:
    """The items that the options describe; missing columns are those of a fit."""
    known = fitted.curves.roles if fitted else Roles()
    groups = known.groups if fitted and fitted.groups else {}
    kind = _kind_of(chosen, known)
    roles = ["score", kind.observed, kind.size]
    if getattr(chosen, "score_only", False):
        if getattr(chosen, kind.observed):
            raise StatisticsError(
                f"--score-only reads no outcomes: leave out {_flags(roles[1:2])}"
            )
        sized = getattr(chosen, kind.size) or (fitted and fitted.prior.exposure)
        roles = ["score", kind.size] if sized else ["score"]
    names = Roles(
        {role: getattr(chosen, role) or known.get(role, "") for role in roles}
    )
    if chosen.no_score:
        if chosen.score:
            raise StatisticsError(
                "--no-score: the items have no score, leave out --score"
            )
        names["score"] = NO_SCORE
    if missing := [role for role, name in names.items() if not name]:
        flags = _flags(missing).replace("--score", "--score (or --no-score)")
        raise StatisticsError(f"{_WHICH}: {flags}")
    names |= groups_of(chosen) or groups
    names |= {role: getattr(chosen, role) for role in _OTHERS if getattr(chosen, role)}
    source = chosen.items[0] if len(chosen.items) == 1 else chosen.items
    return ITEMS[kind.kind](source, **names.arguments)


def groups_of(chosen: Chosen) -> dict[str, str]:
    """Columns of groups by role."""
    return Roles.of_groups(chosen.group or None)


def _kind_of(chosen: Chosen, known: Mapping[str, str]) -> Outcome:
    """The kind of items that the options describe, or else that of known roles."""
    all_kinds = OUTCOMES.values()
    kinds = [
        k for k in all_kinds if getattr(chosen, k.observed) or getattr(chosen, k.size)
    ]
    kinds = kinds or [kind for kind in all_kinds if kind.observed in known]
    if len(kinds) == 1:
        return kinds[0]
    pairs = [
        f"--{flag_of(kind.observed)}, --{flag_of(kind.size)}" for kind in all_kinds
    ]
    if kinds:
        words = ", or ".join(pairs).replace(", --", " and --")
        raise StatisticsError(f"items are of one kind: give {words}")
    words = ", or ".join(f"--score, {pair}" for pair in pairs)
    raise StatisticsError(f"{_WHICH}: {words}")


def check_out(chosen: Chosen) -> None:
    """Refuse an output that cannot be written or is an input, before the work starts."""
    inputs = [
        getattr(chosen, name, None) or [] for name in ("items", "statistics", "fit")
    ]
    names = [x for part in inputs for x in ([part] if isinstance(part, str) else part)]
    paths = {os.path.realpath(path) for name in names for path in (name, *glob(name))}
    if os.path.realpath(chosen.out) in paths:
        raise StatisticsError(
            f"--out {chosen.out} is a file that is read: give another name"
        )
    check_target(chosen.out)


def method_of(chosen: Chosen) -> Method:
    """The chosen method; five steps have no draws."""
    options = {name: getattr(chosen, name) for name in ("seed", "draws")}
    options = {name: value for name, value in options.items() if value is not None}
    if chosen.method == "five-steps" and options:
        raise FitError(
            f"--method five-steps does not take {_flags(options)}: leave it out"
        )
    method: Method = getattr(soc, METHODS[chosen.method])(**options)
    return method


def prior_of(
    chosen: Chosen, kind: str, grouped: bool, default: str | None = None
) -> Prior | Literal["auto"]:
    """The prior that the options describe, for a kind of items with groups or without."""
    outcome = OUTCOMES[kind]
    suited = [
        name for name, p in PRIORS.items() if FAMILIES[p.family].outcome is outcome
    ]
    name = suited[0] if chosen.prior in (None, AUTO) else chosen.prior
    if name not in suited:
        raise FitError(
            f"--prior {name} is not for {outcome.words.items}: use --prior "
            f"{' or --prior '.join(suited)}"
        )
    if not (chosen.groups or grouped):
        raise FitError("--pool-groups: these items have no groups, leave it out")
    prior = PRIORS[name]()
    curve = {field: getattr(chosen, field) for field in ("knots", "scale")}
    curve = {field: value for field, value in curve.items() if value is not None}
    made = replace(
        prior,
        mean=replace(prior.mean, **curve),
        variance=replace(prior.variance, **curve),
        exposure=Spline() if chosen.term else None,
        **{field: getattr(chosen, field) for field in _SWITCHES},
    )
    if chosen.prior == AUTO and made != prior:
        raise FitError(
            "--prior auto chooses among priors: leave out the options of one prior"
        )
    return AUTO if (chosen.prior or default) == AUTO and made == prior else made
