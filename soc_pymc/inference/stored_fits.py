"""Fits as files: configurations as JSON, and checks of the variables in a fit's tree.

All variables that curves, posteriors, checks and plots need are checked here, so that a file
without them is refused when it is loaded. The file's digest covers its numbers; values are checked
only as far as later code relies on them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple, get_args

import numpy as np
import xarray as xr

from .._model.splines import POSITION
from ..data.groups import grouping_dims, is_group
from ..data.stored_statistics import json_object, read_roles
from ..families.family import FAMILIES
from ..families.priors import (
    COMPONENTS,
    CURVES_BY_BIN,
    Prior,
    Spline,
)
from ..families.scales import RANK
from .methods import NUTS, VI, FiveSteps, Method

METHODS = (VI, NUTS, FiveSteps)
PRIORS = get_args(Prior)
# fields that older files lack
_LATER: dict[str, dict[str, Any]] = {
    "Status": {"mc_error": None},
    "NUTS": {"target_accept": 0.8},
    **{prior.__name__: {"zero": False, "atoms": True} for prior in PRIORS},
}


# --- configurations ------------------------------------------------------------------------------


def as_json(record: Any) -> str:
    """A frozen configuration as JSON, with the name of its class."""
    whole = {"name": type(record).__name__, **asdict(record)}
    return json.dumps(whole, default=_plain_number)


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} has no form in a file")


def read_record(text: Any, *kinds: type[Any]) -> Any:
    """A configuration of one of the classes from the output of `as_json`.

    It must have exactly the fields of its class, except for those that older files lack. The class
    checks their values; ValueError, TypeError or KeyError names the problem.
    """
    given = json_object(text)
    name, known = given.pop("name", None), {kind.__name__: kind for kind in kinds}
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(known)}")
    return _made(known[name], given)


def _made(kind: type[Any], given: Mapping[str, Any]) -> Any:
    given = _LATER.get(kind.__name__, {}) | dict(given)
    names = {field.name for field in fields(kind)}
    if odd := sorted(names ^ given.keys()):
        what = "lacks" if odd[0] in names else "has an unknown"
        raise ValueError(f"{kind.__name__} {what} {odd[0]!r}")
    parts = {k: _made(Spline, v) if isinstance(v, dict) else v for k, v in given.items()}
    return kind(**parts)


# --- variables -----------------------------------------------------------------------------------


class _Needed(NamedTuple):
    """A required variable of a fit, with its dims and a rule for its values."""

    group: str
    name: str
    dims: tuple[str, ...]
    rule: str = ""


_RULES: dict[str, Callable[[Any], Any]] = {
    "": lambda x: True,
    "does not rise": lambda x: (np.diff(x) > 0).all(),
    # of knots, whose cubes overflow
    "is too far from 0": lambda x: np.abs(x).max() < 1e100,
    # parts of the items may share a position, equal up to rounding
    "falls": lambda x: (np.diff(x) >= -1e-9 * (1.0 + np.abs(x[1:]))).all(),
    "is not positive": lambda x: (x > 0).all(),
    "is below 0": lambda x: (x >= 0).all(),
    "is no distribution": lambda x: (x >= 0).all() and np.allclose(x.sum(axis=-1), 1.0, atol=1e-6),
}
"""Rules for values, and the message if a rule is violated."""

_KNOTS = "does not rise or is too far from 0"


def check_tree(tree: xr.DataTree, prior: Prior, method: Method) -> None:
    """Refuse a fit's `DataTree` with missing or inconsistent variables.

    ValueError, KeyError or TypeError names the first bad variable.
    """
    outcome = FAMILIES[prior.family].outcome
    if tree.attrs["kind"] != outcome.kind:
        raise ValueError(f"a {type(prior).__name__} prior of {tree.attrs['kind']!r} items")
    read_roles(tree.attrs, outcome)
    groups = {}
    for group in ("posterior", "constant_data", "observed_data"):
        if group not in tree.children:
            raise KeyError(f"there is no group {group!r}")
        groups[group] = tree[group].to_dataset()
    if 0 in groups["posterior"].sizes.values():
        raise ValueError("posterior has no draws")
    for need in _needed(prior, method, groups["posterior"], groups["constant_data"]):
        _check(groups[need.group], need)
    for name in map(str, groups["constant_data"].data_vars):
        if name.endswith(f"_knot{POSITION}"):
            dims = (name.removesuffix(POSITION),)
            _check(groups["constant_data"], _Needed("constant_data", name, dims, _KNOTS))
    # shared dims have one size and equal coordinates
    drawn = [tree["sample_stats"].to_dataset()] if "sample_stats" in tree.children else []
    xr.align(*groups.values(), *drawn, join="exact", copy=False)
    _check_bins(groups["posterior"], groups["constant_data"])


def _check(data: xr.Dataset, need: _Needed) -> None:
    if need.name not in data.variables:
        raise KeyError(f"{need.group} has no {need.name!r}")
    found = data[need.name]
    if found.dims != need.dims:
        raise ValueError(f"{need.name} has dims {found.dims}, not {need.dims}")
    if found.dtype.kind not in "iuf":
        raise TypeError(f"{need.name} has type {found.dtype}")
    values = found.to_numpy()
    if not np.isfinite(values).all():
        raise ValueError(f"{need.name} has values that are not finite")
    for rule in need.rule.split(" or "):
        if not _RULES[rule](values):
            raise ValueError(f"{need.name} {rule}")


def _check_bins(posterior: xr.Dataset, constant: xr.Dataset) -> None:
    """Check bins by number, and labels of groups."""
    if "edge" in constant.sizes and "bin" in posterior.sizes:
        bins, edges = posterior.sizes["bin"], constant.sizes["edge"]
        if bins != edges + 1:
            raise ValueError(f"{bins} bins with {edges} edges")
    if "effect_bin" in posterior.coords:
        at = posterior["effect_bin"].to_numpy()
        if at.dtype.kind not in "iu" or at[0] < 0 or at[-1] > constant.sizes["edge"]:
            raise ValueError("effect_bin is out of range")
    for name in filter(is_group, map(str, posterior.coords)):
        labels = posterior[name].to_numpy().tolist()
        if not all(isinstance(label, str) for label in labels) or labels != sorted(set(labels)):
            raise ValueError("labels of groups are not text that rises")


# --- required variables, term by term -------------------------------------------------------------


def _needed(
    prior: Prior, method: Method, posterior: xr.Dataset, constant: xr.Dataset
) -> Iterator[_Needed]:
    outcome = FAMILIES[prior.family].outcome
    five = isinstance(method, FiveSteps)
    steps = isinstance(method, FiveSteps) and not method.smooth
    for dim in ("chain", "draw"):
        yield _Needed("posterior", dim, (dim,), "does not rise")
    yield from _curves(prior, steps)
    for name in ("score", "score_min", "score_max"):
        yield _Needed("constant_data", name, ("bin",))
    yield _Needed("constant_data", "n_items", ("bin",), "is not positive")
    yield _Needed("constant_data", outcome.size, ("bin",), "is below 0")
    least = "is below 0" if outcome.positive else ""
    yield _Needed("observed_data", outcome.observed, ("bin",), least)
    if RANK in (prior.mean.scale, prior.variance.scale):
        for name in ("rank_score", "rank_fraction"):
            yield _Needed("constant_data", name, ("rank",), "falls")
    if steps or (five and prior.mixture) or prior.bin_effects:
        yield _Needed("constant_data", "edge", ("edge",), "does not rise")
    if prior.gridded:
        yield from _components() if five else _weights(prior, grouping_dims(posterior.coords))
    if prior.bin_effects:
        first = prior.curve_names[0]
        yield _drawn("effect_bin", "effect_bin", rule="does not rise")
        yield _drawn(f"{first}_of_bin", "effect_bin")
        yield _drawn(f"{first}_bin_effect_sd", rule="is below 0")
    if prior.exposure is not None:
        yield from _sizes(prior)
    yield from _atoms(prior) if "atom" in posterior.coords else ()
    for grouping in grouping_dims(posterior.coords):
        yield from _groups(prior, grouping, constant)


def _drawn(name: str, *dims: str, rule: str = "") -> _Needed:
    """A variable of the posterior; one named like its only dim is a coordinate."""
    own = dims if dims == (name,) else ("chain", "draw", *dims)
    return _Needed("posterior", name, own, rule)


def _curves(prior: Prior, steps: bool) -> Iterator[_Needed]:
    if steps:
        first, second = CURVES_BY_BIN[prior.family]
        positive = FAMILIES[prior.family].outcome.positive
        yield _drawn(first, "bin", rule="is not positive" if positive else "")
        yield _drawn(second, "bin", rule="is not positive")
        return
    for name, knot in zip(prior.curve_names, ("mean_knot", "variance_knot"), strict=True):
        yield _drawn(knot, knot, rule=_KNOTS)
        yield _drawn(name, knot)


def _components() -> Iterator[_Needed]:
    """Components of each bin."""
    rules = ("is no distribution", "", "is not positive")
    for name, rule in zip(COMPONENTS, rules, strict=True):
        yield _drawn(name, "bin", "component", rule=rule)


def _weights(prior: Prior, groupings: Sequence[str]) -> Iterator[_Needed]:
    """Mixture weights on a grid of components, and the curves that place the grid."""
    yield _drawn("weight_knot", "weight_knot", rule=_KNOTS)
    yield _drawn("weight_coefficient", "weight_knot", "weight_function")
    yield _Needed("constant_data", "component_z", ("component",), "does not rise")
    yield _Needed("constant_data", "component_function", ("component", "weight_function"))
    yield _Needed("constant_data", "grid_raise", ("variance_knot",), "is below 0")
    for curve, name in zip(("mean", "variance"), prior.curve_names, strict=True):
        knot = f"{curve}_knot"
        yield _Needed("constant_data", knot, (knot,))
        yield _Needed("constant_data", f"pilot_{name}", (knot,))
        for grouping in groupings:
            yield _Needed("constant_data", f"pilot_{name}_of_{grouping}", (grouping, knot))
        if prior.exposure is not None:
            exposure = f"{curve}_exposure_knot"
            yield _Needed("constant_data", f"pilot_{name}_by_exposure", (exposure,))


def _atoms(prior: Prior) -> Iterator[_Needed]:
    """Shifts of the curves at scores that many items share."""
    yield _drawn("atom", "atom", rule="does not rise")
    for curve, name in zip(("mean", "variance"), prior.curve_names, strict=True):
        yield _Needed("constant_data", f"{curve}_atom_position", ("atom",))
        yield _drawn(f"{name}_of_atom", "atom")
        if prior.gridded:
            yield _Needed("constant_data", f"pilot_{name}_of_atom", ("atom",))
    if prior.exposure is not None:
        yield _Needed("constant_data", "atom_share", ("atom", "size_class"), "is no distribution")


def _sizes(prior: Prior) -> Iterator[_Needed]:
    """The term in exposure, and the exposures over which it is averaged."""
    for curve, name in zip(("mean", "variance"), prior.curve_names, strict=True):
        knot = f"{curve}_exposure_knot"
        yield _drawn(knot, knot, rule=_KNOTS)
        yield _drawn(f"{name}_by_exposure", knot)
    yield _Needed("constant_data", "share", ("part", "size_class"), "is no distribution")
    yield _Needed("constant_data", "share_position", ("part",), "falls")
    yield _Needed("constant_data", "share_log_size", ("size_class",))


def _groups(prior: Prior, grouping: str, constant: xr.Dataset) -> Iterator[_Needed]:
    """Curves of a grouping's levels, and the scales of their deviations."""
    for curve, name in zip(("mean", "variance"), prior.curve_names, strict=True):
        knot, function = f"{curve}_knot", f"{curve}_group_function"
        yield _drawn(f"{name}_of_{grouping}", grouping, knot)
        if f"{function}s" not in constant:  # five steps have no prior of groups
            continue
        yield _Needed("constant_data", f"{function}s", (knot, function))
        if function not in constant.coords:
            raise KeyError(f"constant_data has no {function!r}")
        for kind in sorted(set(map(str, constant[function].to_numpy()))):
            yield _drawn(f"{name}_{kind}_sd")
