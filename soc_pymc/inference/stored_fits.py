"""Fits read back from a file: configurations of the right types, variables that fit together.

What curves, posteriors, checks and plots take from a fit is asked for here, once, so that a file
without it is refused when it is loaded and not in the middle of something else.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import xarray as xr

from ..data.stored_statistics import json_object, read_roles
from ..families.outcomes import OUTCOMES
from ..families.priors import (
    COMPONENTS,
    CURVES,
    CURVES_BY_BIN,
    FRAME,
    Gamma,
    GammaMixture,
    Normal,
    NormalMixture,
    Spline,
)
from .methods import NUTS, VI, FiveSteps

__all__ = [
    "Method",
    "Prior",
    "as_json",
    "check_tree",
    "read_method",
    "read_prior",
    "read_record",
]

Method = VI | NUTS | FiveSteps
Prior = Gamma | Normal | GammaMixture | NormalMixture
_METHODS: dict[str, type[Method]] = {m.__name__: m for m in (VI, NUTS, FiveSteps)}
_PRIORS: dict[str, type[Prior]] = {
    p.__name__: p for p in (Gamma, Normal, GammaMixture, NormalMixture)
}
_DRAWS = ("chain", "draw")
Needs = Mapping[str, tuple[str, ...]]


# --- configurations ------------------------------------------------------------------------------


def as_json(record: Any) -> str:
    """A frozen configuration as JSON, with the name of its class.

    Examples
    --------
    >>> as_json(NUTS(draws=np.int64(5)))
    '{"name": "NUTS", "draws": 5, "tune": 1000, "chains": 4, "seed": 0}'
    """
    whole = {"name": type(record).__name__, **asdict(record)}
    return json.dumps(whole, default=_plain_number)


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} has no form in a file")


def read_prior(text: Any) -> Prior:
    """A prior's configuration from what `as_json` made of it.

    Parameters
    ----------
    text
        The JSON.

    Raises
    ------
    ValueError, TypeError, KeyError
        If it is no prior, or a field is missing, unknown or of another type.

    Examples
    --------
    >>> read_prior(as_json(Gamma(monotone=True))) == Gamma(monotone=True)
    True
    """
    found: Prior = _read_named(text, _PRIORS)
    return found


def read_method(text: Any) -> Method:
    """A method's configuration, as `read_prior`.

    Examples
    --------
    >>> read_method(as_json(VI(seed=2)))
    VI(seed=2, draws=1000, rotations=1, batch=None, max_iterations=200)
    """
    found: Method = _read_named(text, _METHODS)
    return found


def _read_named(text: Any, kinds: Mapping[str, type[Any]]) -> Any:
    given = json_object(text)
    name = given.pop("name", None)
    if name not in kinds:
        raise ValueError(f"{name!r} is not one of {', '.join(kinds)}")
    return _read_fields(kinds[name], given)


def read_record(text: Any, kind: type[Any]) -> Any:
    """A frozen dataclass from JSON that has its fields, no more and no less, in their types.

    Parameters
    ----------
    text
        The JSON.
    kind
        The class.

    Raises
    ------
    ValueError, TypeError
        If a field is missing, unknown or of another type.
    """
    return _read_named(text, {kind.__name__: kind})


def _read_fields(kind: type[Any], given: Mapping[str, Any]) -> Any:
    names = [field.name for field in fields(kind)]
    if set(names) != set(given):
        odd = sorted(set(names) ^ set(given))[0]
        what = "lacks" if odd in names else "has an unknown"
        raise ValueError(f"{kind.__name__} {what} {odd!r}")
    hints = get_type_hints(kind)
    return kind(**{name: _read_value(name, given[name], hints[name]) for name in names})


def _read_value(name: str, value: Any, hint: Any) -> Any:
    """A value of a field, if it is of the field's type."""
    choices = get_args(hint) if get_origin(hint) in (UnionType,) else (hint,)
    for choice in choices:
        if choice is NoneType and value is None:
            return None
        if choice is Spline and isinstance(value, dict):
            return _read_fields(Spline, value)
        if get_origin(choice) is tuple and isinstance(value, list):
            parts = get_args(choice)
            if len(value) == len(parts):
                return tuple(map(_read_value, [name] * len(parts), value, parts))
        if choice in (bool, str) and isinstance(value, choice):
            return value
        if choice in (int, float) and _is_number(value, choice):
            return value
    raise TypeError(f"{name} is {value!r}")


def _is_number(value: Any, kind: type[Any]) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return kind is float or value == math.floor(value) if math.isfinite(value) else kind is float


# --- variables -----------------------------------------------------------------------------------


def check_tree(tree: xr.DataTree, prior: Prior, method: Method) -> None:
    """Refuse a fit's `DataTree` that lacks what others take from it, or where it does not fit.

    Parameters
    ----------
    tree
        The tree.
    prior, method
        Its configurations.

    Raises
    ------
    ValueError, KeyError, TypeError
        Names the first variable at fault.
    """
    own = "poisson" if isinstance(prior, Gamma | GammaMixture) else "normal"
    if tree.attrs["kind"] != own:
        raise ValueError(f"a {type(prior).__name__} prior of {tree.attrs['kind']!r} items")
    read_roles(tree.attrs, OUTCOMES[own])
    for group in ("posterior", "constant_data", "observed_data"):
        if group not in tree.children:
            raise KeyError(f"there is no group {group!r}")
    posterior = tree["posterior"].to_dataset()
    constant = tree["constant_data"].to_dataset()
    _check_posterior(posterior, prior, method)
    _check_bins(constant, tree["observed_data"].to_dataset(), own)
    _check_axes(constant, prior)
    _check_by_bin(posterior, constant, prior, method)
    if prior.exposure is not None:
        _check_exposure(posterior, constant, type(prior).__name__)
    if "tilt" in posterior:
        _check_tilt(posterior, constant)
    if "group" in posterior.coords:
        _check_groups(posterior, constant, type(prior).__name__)
    if "sample_stats" in tree.children:
        sizes = tree["sample_stats"].sizes
        for dim in set(_DRAWS) & set(sizes):
            if sizes[dim] != posterior.sizes[dim]:
                raise ValueError(
                    f"sample_stats has {sizes[dim]} of {dim}, posterior another number"
                )


def _check_posterior(posterior: xr.Dataset, prior: Prior, method: Method) -> None:
    need = _kept(type(prior).__name__, method)
    _check_variables(posterior, {name: (*_DRAWS, *own) for name, own in need.items()}, "posterior")
    if 0 in posterior.sizes.values():
        raise ValueError("posterior has no draws")
    for dim in _DRAWS:
        _check_rises(posterior, dim)
    for own in need.values():
        for dim in own:
            if dim.endswith("_knot"):
                _check_rises(posterior, dim)


def _kept(prior: str, method: Method) -> Needs:
    """Variables without which nothing can be scored, with their own dims."""
    first, second = CURVES.get(prior, FRAME)
    kept: dict[str, tuple[str, ...]] = {first: ("mean_knot",), second: ("variance_knot",)}
    if isinstance(method, FiveSteps):
        if not method.smooth:
            kept = dict.fromkeys(CURVES_BY_BIN[prior.removesuffix("Mixture")], ("bin",))
        if prior not in CURVES:
            kept |= dict.fromkeys(COMPONENTS, ("bin", "component"))
    elif prior not in CURVES:
        kept["tilt"] = ("tilt_knot", "tilt_function")
    return kept


def _check_variables(data: xr.Dataset, need: Needs, where: str) -> None:
    """Variables are there, of these dims, and finite numbers."""
    for name, dims in need.items():
        if name not in data.variables:
            raise KeyError(f"{where} has no {name!r}")
        found = data[name]
        if found.dims != dims:
            raise ValueError(f"{name} has dims {found.dims}, not {dims}")
        if found.dtype.kind not in "iuf":
            raise TypeError(f"{name} has type {found.dtype}")
        if not np.isfinite(found.to_numpy()).all():
            raise ValueError(f"{name} has values that are not finite")


def _check_rises(data: xr.Dataset, dim: str) -> None:
    """A dim has a coordinate that rises."""
    _check_variables(data, {dim: (dim,)}, "the fit")
    if not (np.diff(data[dim].to_numpy()) > 0).all():
        raise ValueError(f"{dim} does not rise")


def _check_bins(constant: xr.Dataset, observed: xr.Dataset, kind: str) -> None:
    """The bins that the fit was made from, and what was observed in them."""
    size, outcome = ("exposure", "count") if kind == "poisson" else ("noise_sd", "value")
    names = ("score", "score_min", "score_max", "n_items", size)
    _check_variables(constant, dict.fromkeys(names, ("bin",)), "constant_data")
    _check_variables(observed, {outcome: ("bin",)}, "observed_data")
    score, low, high, n, sizes = (constant[name].to_numpy() for name in names)
    slack = 1e-9 * np.maximum(abs(low), abs(high))
    if not ((low <= score + slack) & (score <= high + slack)).all():
        raise ValueError("score is not between score_min and score_max")
    if not ((n > 0).all() and (sizes >= 0).all()):
        raise ValueError(f"n_items or {size} is out of range")
    if constant.sizes["bin"] != observed.sizes["bin"]:
        raise ValueError(f"{outcome} is of another number of bins")
    if kind == "poisson" and (observed[outcome].to_numpy() < 0).any():
        raise ValueError("count is below 0")
    for name in {"score_sd", "log_score_sd"} & set(constant.variables):
        values = constant[name]
        if values.dims != ("bin",) or values.dtype.kind != "f" or (values.to_numpy() < 0).any():
            raise ValueError(f"{name} is out of range")


def _check_axes(constant: xr.Dataset, prior: Prior) -> None:
    if "rank" not in (prior.mean.scale, prior.variance.scale):
        return
    names = ("rank_score", "rank_fraction")
    _check_variables(constant, dict.fromkeys(names, ("rank",)), "constant_data")
    for name in names:
        if not (np.diff(constant[name].to_numpy()) >= 0).all():
            raise ValueError(f"{name} does not rise")


def _check_by_bin(
    posterior: xr.Dataset, constant: xr.Dataset, prior: Prior, method: Method
) -> None:
    """What bins have of their own: steps, components, effects."""
    own = "bin" in posterior.dims
    if own or prior.bin_effects:
        _check_variables(constant, {"edge": ("edge",)}, "constant_data")
        if not (np.diff(constant["edge"].to_numpy()) > 0).all():
            raise ValueError("edge does not rise")
    if own and posterior.sizes["bin"] != constant.sizes["edge"] + 1:
        raise ValueError(f"{posterior.sizes['bin']} bins with {constant.sizes['edge']} edges")
    if isinstance(method, FiveSteps) and not method.smooth:
        names = CURVES_BY_BIN[type(prior).__name__.removesuffix("Mixture")]
        for name in names if names[0] == "shape" else names[1:]:
            if not (posterior[name].to_numpy() > 0).all():
                raise ValueError(f"{name} is not positive")
    if COMPONENTS[0] in posterior:
        _check_components(*(posterior[name].to_numpy() for name in COMPONENTS))
    if prior.bin_effects:
        _check_effects(posterior, constant.sizes["edge"], CURVES[type(prior).__name__][0])


def _check_components(weight: Any, _: Any, sd: Any) -> None:
    if (weight < 0).any() or not np.allclose(weight.sum(axis=-1), 1.0, atol=1e-6):
        raise ValueError("weight is no distribution over components")
    if not (sd > 0).all():
        raise ValueError("component_sd is not positive")


def _check_effects(posterior: xr.Dataset, edges: int, name: str) -> None:
    """Effects of bins, and their scale."""
    need = {f"{name}_of_bin": (*_DRAWS, "effect_bin"), f"{name}_bin_effect_sd": _DRAWS}
    _check_variables(posterior, need, "posterior")
    _check_rises(posterior, "effect_bin")
    bins = posterior["effect_bin"].to_numpy()
    if bins.dtype.kind not in "iu" or bins[0] < 0 or bins[-1] > edges:
        raise ValueError("effect_bin is out of range")
    if (posterior[f"{name}_bin_effect_sd"].to_numpy() < 0).any():
        raise ValueError(f"{name}_bin_effect_sd is below 0")


def _check_exposure(posterior: xr.Dataset, constant: xr.Dataset, prior: str) -> None:
    """The term in exposure, and the exposures by which it is averaged."""
    for curve, name in zip(("mean", "variance"), CURVES[prior], strict=True):
        need = {f"{name}_by_exposure": (*_DRAWS, f"{curve}_exposure_knot")}
        _check_variables(posterior, need, "posterior")
        _check_rises(posterior, f"{curve}_exposure_knot")
    shares: Needs = {
        "share": ("part", "size_class"),
        "share_position": ("part",),
        "share_log_size": ("size_class",),
    }
    _check_variables(constant, shares, "constant_data")
    share = constant["share"].to_numpy()
    if (share < 0).any() or not np.allclose(share.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError("share is no distribution over exposures")
    # parts of the items may share a bin, whose position is then the same up to rounding
    position = constant["share_position"].to_numpy()
    if not (np.diff(position) >= -1e-9 * (1.0 + np.abs(position[1:]))).all():
        raise ValueError("share_position does not rise")


def _check_tilt(posterior: xr.Dataset, constant: xr.Dataset) -> None:
    """The grid of a mixture's components and the frame that it moves with."""
    need: Needs = {
        "component_z": ("component",),
        "component_function": ("component", "tilt_function"),
        "pilot_first": ("mean_knot",),
        "pilot_second": ("variance_knot",),
    }
    _check_variables(constant, need, "constant_data")
    if not (np.diff(constant["component_z"].to_numpy()) > 0).all():
        raise ValueError("component_z does not rise")
    for dim in ("mean_knot", "variance_knot", "tilt_function"):
        if dim not in constant.coords or not constant[dim].equals(posterior[dim]):
            raise ValueError(f"{dim} differs between posterior and constant_data")


def _check_groups(posterior: xr.Dataset, constant: xr.Dataset, prior: str) -> None:
    """Curves of groups, and the scales of their deviations."""
    labels = posterior["group"].to_numpy().tolist()
    if not all(isinstance(label, str) for label in labels) or labels != sorted(set(labels)):
        raise ValueError("labels of groups are not text that rises")
    for curve, name in zip(("mean", "variance"), CURVES[prior], strict=True):
        knot, functions = f"{curve}_knot", f"{curve}_group_function"
        need = {f"{name}_of_group": (*_DRAWS, "group", knot)}
        _check_variables(posterior, need, "posterior")
        if f"{functions}s" not in constant:  # five steps know no prior of groups
            continue
        _check_variables(constant, {f"{functions}s": (knot, functions)}, "constant_data")
        if constant.sizes[knot] != posterior.sizes[knot] or functions not in constant.coords:
            raise ValueError(f"{functions}s is of other knots")
        kinds = set(map(str, constant[functions].to_numpy()))
        scales: Needs = dict.fromkeys((f"{name}_{kind}_sd" for kind in kinds), _DRAWS)
        _check_variables(posterior, scales, "posterior")
