"""Arguments of the package's functions, from the options of the command line."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from glob import glob
from typing import TYPE_CHECKING, Any, Literal

import soc_pymc as soc

from .._lib.errors import FitError, StatisticsError
from ..data.items import (
    NO_SCORE,
    arguments_of,
    group_roles,
    is_group,
    roles_of,
    roles_of_groups,
)
from ..families import FAMILIES, OUTCOMES
from ..families.outcome import Outcome
from ..families.priors import Prior, Spline

if TYPE_CHECKING:
    from ..data.items import Items
    from ..fits.methods import Method

Chosen = argparse.Namespace

KINDS = tuple(OUTCOMES.values())
ROLES = ("score", *(role for kind in KINDS for role in (kind.observed, kind.size)))
PRIORS: dict[str, type[Prior]] = {
    f"{name.lower()}{ending}": getattr(family, field)
    for field, ending in (("prior", ""), ("mixture", "-mixture"))
    for name, family in FAMILIES.items()
}
"""Priors by name, the default of each kind of items first."""
AUTO: Literal["auto"] = "auto"
_WHICH = "say which columns to use"


def flag_of(role: str) -> str:
    """A role as an option of the command line."""
    return "--" + role.replace("_", "-")


def statistics_of(chosen: Chosen) -> Any:
    """The statistics that were given in place of items; None for items."""
    if not chosen.items[0].endswith(".nc"):
        return None
    if len(chosen.items) > 1:
        raise StatisticsError("give one file of statistics, or files of items")
    of_items = (*ROLES, "no_score", "group", "cluster", "by")
    flags = [flag_of(name) for name in of_items if getattr(chosen, name)]
    if flags:
        raise StatisticsError(
            f"{', '.join(flags)}: statistics have no columns, leave these out or give the items"
        )
    return soc.load_statistics(chosen.items[0])


def items_of(chosen: Chosen, fitted: "soc.Fit | None" = None) -> "Items":
    """The items that the options describe; missing columns are those of a fit."""
    from ..data.items import ITEMS

    known = roles_of(fitted.data.attrs) if fitted is not None else {}
    if fitted is None or not fitted.groups:
        known = {role: column for role, column in known.items() if not is_group(role)}
    kind = _kind_of(chosen, known)
    roles = ["score", kind.observed, kind.size]
    if getattr(chosen, "score_only", False):
        if getattr(chosen, kind.observed):
            raise StatisticsError(
                f"--score-only reads no outcomes: leave out {flag_of(roles[1])}"
            )
        sized = getattr(chosen, kind.size) or (fitted and fitted.prior.exposure)
        roles = ["score", kind.size] if sized else ["score"]
    names = {role: getattr(chosen, role) or known.get(role, "") for role in roles}
    if chosen.no_score:
        if chosen.score:
            raise StatisticsError(
                "--no-score: the items have no score, leave out --score"
            )
        names["score"] = NO_SCORE
    missing = [flag_of(role) for role, name in names.items() if not name]
    missing = [
        f"{flag} (or --no-score)" if flag == "--score" else flag for flag in missing
    ]
    if missing:
        raise StatisticsError(f"{_WHICH}: {', '.join(missing)}")
    names |= groups_of(chosen) or group_roles(known)
    others = {
        role: getattr(chosen, role, None) for role in ("id", "fold", "cluster", "date")
    }
    names |= {role: name for role, name in others.items() if name}
    source = chosen.items[0] if len(chosen.items) == 1 else chosen.items
    items: Items = ITEMS[kind.kind](source, **arguments_of(names))
    return items


def groups_of(chosen: Chosen) -> dict[str, str]:
    """Columns of groups by role."""
    return roles_of_groups(getattr(chosen, "group", None) or None)


def _kind_of(chosen: Chosen, known: dict[str, str]) -> Outcome:
    """The kind of items that the options describe."""
    pairs = [(flag_of(kind.observed), flag_of(kind.size)) for kind in KINDS]
    kinds = [k for k in KINDS if getattr(chosen, k.observed) or getattr(chosen, k.size)]
    kinds = kinds or [kind for kind in KINDS if kind.observed in known]
    if not kinds:
        words = ", or ".join("--score, " + ", ".join(pair) for pair in pairs)
        raise StatisticsError(f"{_WHICH}: {words}")
    if len(kinds) > 1:
        words = ", or ".join(" and ".join(pair) for pair in pairs)
        raise StatisticsError(f"items are of one kind: give {words}")
    return kinds[0]


def check_out(out: str, read: Sequence[str]) -> None:
    """Refuse an output that cannot be written or is an input, before the work starts."""
    from .._lib.files import check_target

    inputs = {os.path.realpath(path) for name in read for path in (name, *glob(name))}
    if os.path.realpath(out) in inputs:
        raise StatisticsError(f"--out {out} is a file that is read: give another name")
    check_target(out)


def method_of(chosen: Chosen) -> "Method":
    """The chosen method; five steps have no draws."""
    options = {name: getattr(chosen, name) for name in ("seed", "draws")}
    options = {name: value for name, value in options.items() if value is not None}
    if chosen.method == "five-steps" and options:
        flags = ", ".join(map(flag_of, options))
        raise FitError(f"--method five-steps does not take {flags}: leave it out")
    return {"five-steps": soc.FiveSteps, "nuts": soc.NUTS, "vi": soc.VI}[chosen.method](
        **options
    )


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
    prior = PRIORS[name]()
    if not (chosen.groups or grouped):
        raise FitError("--pool-groups: these items have no groups, leave it out")
    curve = {"knots": chosen.knots, "scale": chosen.scale}
    curve = {field: value for field, value in curve.items() if value is not None}
    fields = ("monotone", "bin_effects", "zero", "atoms", "groups")
    options: dict[str, Any] = {field: getattr(chosen, field) for field in fields}
    for field in ("mean", "variance"):
        options[field] = replace(getattr(prior, field), **curve)
    made = replace(
        prior, **options, exposure=Spline() if chosen.exposure_term else None
    )
    if chosen.prior == AUTO and made != prior:
        raise FitError(
            "--prior auto chooses among priors: leave out the options of one prior"
        )
    return AUTO if (chosen.prior or default) == AUTO and made == prior else made
