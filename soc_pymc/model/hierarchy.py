"""From a prior and statistics to the `pymc.Model` that ties the bins together.

For row b (a bin, or a group's or an exposure class's part of one) with centre u_b on a curve's axis
the model has f(u_b) and g(u_b): log mean and log cv2 of Gamma priors, mean and log variance of
Normal ones. Each curve is a straight line with a weak proper prior plus penalised terms with
coefficients N(0, tau^2), tau half-normal: the wiggle, groups' deviations, a smooth term in log
exposure. The row's items enter through their log marginal alone; with effects of bins, f(u_b) + e_b
with e_b ~ t(0, tau^2), it is averaged over e_b, so that tau is the only further unknown.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from .._lib.errors import FitError
from ..data.statistics import Statistics
from ..families.bin_effects import draw_prior
from ..families.priors import CURVES, FRAME, Gamma, Normal
from .coordinates import density_shape
from .curve_terms import CurvePilot, CurveState, curve_state, flat_state
from .designs import Curve, Term, make_curve, slopes
from .effects import SCALE, EffectPilot, run_effects_pilot
from .likelihood import log_marginal, shared
from .outcomes import Outcome, outcome_of
from .pilot import best_start, run_pilot
from .rows import Rows, position_variances
from .splines import Axis, spline_matrix
from .unknowns import add_block, add_line, add_scale

__all__ = ["Hierarchy", "Start", "begun_at", "build", "extended", "model"]

Floats = NDArray[np.float64]

_MOST_SPREAD = 1.0  # within a bin: its second-order terms mean nothing beyond


class Start(Protocol):
    """What the model takes from an earlier fit."""

    @property
    def data(self) -> Any:
        """Its draws, an `xarray.DataTree`."""

    @property
    def prior(self) -> Any:
        """Its prior's configuration."""

    @property
    def status(self) -> Any:
        """How it ended."""

    def axis(self, curve: str) -> Axis:
        """The axis of one of its curves."""


@dataclass(frozen=True)
class Hierarchy:
    """A model with what inference needs beside it.

    Attributes
    ----------
    model
        The `pymc.Model`.
    outcome
        The kind of items.
    curves, pilots
        Of both curves.
    rows, data
        The likelihood's rows and their sums.
    score
        Centre of each row.
    labels
        Groups that have deviations of their own, by code.
    effects
        What the pilot knows of the scale of effects of bins; None where there are none.
    """

    model: pm.Model
    outcome: Outcome
    curves: tuple[Curve, Curve]
    pilots: tuple[CurvePilot, CurvePilot]
    rows: Rows
    data: Any
    score: Floats
    labels: tuple[str, ...]
    effects: EffectPilot | None = None

    @property
    def kernel(self) -> str:
        """Of the likelihood, which averages over effects of bins where there are such."""
        return self.outcome.kernel + ("_effects" if self.effects else "")


def model(stats: Statistics, prior: Gamma | Normal | None = None) -> pm.Model:
    """The model itself, to read, draw, sample or extend.

    Parameters
    ----------
    stats
        Sufficient statistics of the items.
    prior
        The prior's configuration; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for values.

    Returns
    -------
    pymc.Model
        With dims bin, mean_line_term, mean_basis, variance_line_term and variance_basis.
        ``bin_log_mean`` and ``bin_log_cv2`` are the curves at the centres of the occupied bins (of
        each group, of each half-octave of exposures, where the prior has such terms; without
        effects of bins, which are averaged over), ``log_mean`` and ``log_cv2`` at the knots;
        ``count`` is the sum of counts of a bin, whose log probability is that of all its items. For
        values the curves are ``mean`` and ``log_variance``, and ``value`` is the mean of
        the bin's values.

    Raises
    ------
    FitError
        If the score's axis cannot hold the scores (log of scores at or below 0).

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> sorted(soc.model(soc.summarize(items)).coords)[:2]
    ['bin', 'mean_basis']
    """
    return build(stats, prior or outcome_of(stats).prior()).model


def build(stats: Statistics, prior: Gamma | Normal, start: Start | None = None) -> Hierarchy:
    """Model, pilot and data for inference; the pilot may begin at an earlier fit's curves."""
    outcome = outcome_of(stats)
    _check_terms(outcome, stats, prior)
    labels = stats.groups if prior.groups else ()
    rows, data = outcome.rows(stats, bool(labels), prior.exposure is not None)
    curves = (
        make_curve(
            "mean",
            prior.mean,
            outcome.weak("mean", stats),
            stats,
            rows,
            size=prior.exposure,
            groups=len(labels),
        ),
        make_curve(
            "variance",
            prior.variance,
            outcome.weak("variance", stats),
            stats,
            rows,
            size=prior.exposure,
            groups=len(labels),
        ),
    )
    designs = (curves[0].design, curves[1].design)
    levels = outcome.start(data)
    starts = [(flat_state(designs[0], levels[0]), flat_state(designs[1], levels[1]))]
    if start is not None:
        starts.append((_state_of(start, curves[0]), _state_of(start, curves[1])))
    begin = best_start(designs, outcome.target(data), starts)
    effects = None
    pilots = run_pilot(designs, outcome.target(data), begin)
    if prior.bin_effects:  # far from the curve every bin would pass for an exception to it
        begin = (pilots[0].state, pilots[1].state)
        scale = SCALE * outcome.weak("mean", stats)(curves[0].axis, curves[0].basis).unit
        pilots, effects = run_effects_pilot(designs, outcome, data, begin, scale)
    # items of a bin differ by their scores: by how much, the pilot's slope says
    spread = slopes(curves[0], pilots[0].state.coefficients, rows.group) ** 2
    spread = spread * position_variances(curves[0].axis, rows)
    if outcome.observed == "count":
        spread = np.minimum(spread, _MOST_SPREAD)
    data = replace(data, spread=spread)
    begin = (pilots[0].state, pilots[1].state)
    if effects:
        pilots, effects = run_effects_pilot(
            designs, outcome, data, begin, effects.scale, effects.tau
        )
    else:
        pilots = run_pilot(designs, outcome.target(data), begin)
    score = curves[0].axis.inverse(curves[0].position)
    built = _model(outcome, curves, pilots, data, score, labels, effects)
    return Hierarchy(built, outcome, curves, pilots, rows, data, score, labels, effects)


def _check_terms(outcome: Outcome, stats: Statistics, prior: Gamma | Normal) -> None:
    if not isinstance(prior, outcome.prior):
        raise FitError(
            f"prior=soc.{type(prior).__name__}(...) is not for these statistics, which are of "
            f"{stats.data.attrs['kind']} items: use soc.{outcome.prior.__name__}(...)"
        )
    if prior.exposure is not None and not stats.coarse:
        raise FitError(
            "a term in exposure reads joint cells, which these statistics have not: summarize the "
            "items with joint=True"
        )
    if prior.bin_effects and (prior.exposure is not None or (prior.groups and stats.groups)):
        raise FitError(
            "bin_effects=True is for curves of the score alone, as one effect cannot be shared by "
            "groups or classes of exposure: leave exposure= out and set groups=False"
        )


def _state_of(start: Start, curve: Curve) -> CurveState:
    """An earlier fit's mean curve, whatever its knots and axis, as a state of this one."""
    names = CURVES.get(type(start.prior).__name__, FRAME)
    values = start.data["posterior"][names[("mean", "variance").index(curve.name)]]
    try:
        position = start.axis(curve.name)(curve.axis.inverse(curve.basis.knots))
    except FitError as error:
        raise FitError(f"start= does not reach these scores ({error}): leave start= out") from error
    at_knots = spline_matrix(position, values[f"{curve.name}_knot"].to_numpy())
    mean = at_knots @ values.mean(("chain", "draw")).to_numpy()
    return curve_state(curve.design, curve.basis.line, curve.basis.wiggle, mean)


def extended[B: Any](built: B, model: pm.Model) -> B:
    """The same with a model to which its user has added terms.

    Raises
    ------
    FitError
        If the model is not an extension of the built one, or has discrete unknowns.
    """
    lacking = sorted(v.name for v in built.model.basic_RVs if v.name not in model.named_vars)
    if lacking:
        raise FitError(
            f"model= lacks {', '.join(lacking)}: extend soc.model(stats, prior) of the same prior"
        )
    same = all(
        np.array_equal(np.asarray(model.coords.get(name, ())), np.asarray(values))
        for name, values in built.model.coords.items()
    )
    name = built.outcome.observed
    observed = (m.rvs_to_values[m[name]].eval() for m in (built.model, model))
    if not (same and np.array_equal(*observed)):
        raise FitError("model= is of other statistics or knots than stats and prior: build it anew")
    if model.discrete_value_vars:
        names = ", ".join(v.name for v in model.discrete_value_vars)
        raise FitError(f"model= has discrete unknowns ({names}): sum them out")
    return replace(built, model=model)


@contextmanager
def begun_at(built: Hierarchy, start: Start | None) -> Iterator[None]:
    """Let unknowns that the user added begin at an earlier fit's means; the model stays as it was.

    The curves' own coordinates are already centred by the pilot. A fit that did not converge says
    nothing better than PyMC's initial point.
    """
    initial = built.model.rvs_to_initial_values
    before = dict(initial)
    if start is not None and start.status.converged:
        means = start.data["posterior"].to_dataset().mean(("chain", "draw"))
        dims, coords = built.model.named_vars_to_dims, built.model.coords
        curves = zip(built.outcome.variables, built.curves, strict=True)
        parts = [(v, ["line", *(b.name for b in c.design.blocks)]) for v, c in curves]
        own = {f"{v}_{part}{of}" for v, names in parts for part in names for of in ("", "_sd")}
        own.add(f"{built.outcome.variables[0]}_bin_effect_sd")
        for variable in built.model.free_RVs:
            name, shape = variable.name, variable.type.shape
            if name in dims:
                shape = tuple(len(coords.get(d) or ()) for d in dims[name])
            if name in means and name not in own and means[name].shape == shape:
                initial[variable] = means[name].to_numpy()
    try:
        yield
    finally:
        initial.clear()
        initial.update(before)


def _model(
    outcome: Outcome,
    curves: tuple[Curve, Curve],
    pilots: tuple[CurvePilot, CurvePilot],
    data: Any,
    score: Floats,
    labels: tuple[str, ...],
    effects: EffectPilot | None,
) -> pm.Model:
    coords: dict[str, Any] = {"bin": score}
    if labels:
        coords["group"] = list(labels)
    for curve in curves:
        coords |= _coords(curve)
    arrays = shared(data)
    with pm.Model(coords=coords) as built:
        first, second = (
            _add_curve(curve, pilot, variable)
            for curve, pilot, variable in zip(curves, pilots, outcome.variables, strict=True)
        )
        scale = [] if effects is None else [_add_effect_scale(outcome.variables[0], effects)]
        kernel = outcome.kernel + ("_effects" if scale else "")
        # sums are inputs, as PyMC keeps the functions of every distribution for ever
        pm.CustomDist(
            outcome.observed,
            first,
            second,
            *scale,
            pm.Data("bin_index", np.arange(len(score)), dims="bin"),
            *arrays,
            logp=partial(_row_logp, kernel, outcome.signature, len(scale)),
            random=partial(_draw_totals, outcome, len(scale)),
            signature="(),(),()," + "()," * len(scale) + f"{outcome.signature}->()",
            observed=data.total,
            dims="bin",
        )
    return built


def _coords(curve: Curve) -> dict[str, Any]:
    name = curve.name
    coords: dict[str, Any] = {
        f"{name}_line_term": ["level", "slope"][: curve.basis.line.shape[1]],
        f"{name}_knot": curve.basis.knots,
    }
    for term in curve.terms:
        coords[_basis_dim(name, term)] = np.arange(term.values.shape[1])
        if term.target == "exposure":
            coords[f"{name}_exposure_knot"] = curve.size_knots
    return coords


def _basis_dim(curve: str, term: Term) -> str:
    own = "" if term.block.name == "wiggle" else f"{term.block.name}_"
    return f"{curve}_{own}basis"


def _add_curve(curve: Curve, pilot: CurvePilot, variable: str) -> Any:
    """Variables of one curve; returns its values at the rows."""
    name = curve.name
    terms = list(zip(curve.terms, pilot.blocks, strict=True))
    found: list[Any] = []
    for term, block in terms:
        of = term.block
        labels = f"{variable}_{of.name}", f"{name}_{of.name}"
        found.append(add_block(*labels, of, block, found, _basis_dim(name, term)))
    before = pt.concatenate(found) if found else pt.zeros((0,))
    line = add_line(f"{variable}_line", name, curve.design, pilot, before, f"{name}_line_term")

    def data(label: str, value: Floats) -> Any:
        return pm.Data(f"{name}_{label}", value)

    at_rows = pt.dot(data("line_at_rows", curve.design.line), line)
    at_knots = pt.dot(data("line_at_knots", curve.basis.line), line)
    made: dict[str, Any] = {}
    for (term, block), z in zip(terms, found, strict=True):
        # a rotation of independent, equal normals leaves the prior as it is
        label = term.block.name
        at_rows += pt.dot(data(f"{label}_at_rows", term.block.design @ block.rotation), z)
        values = pt.dot(data(f"{label}_values", term.values @ block.rotation), z)
        made[term.target] = made[term.target] + values if term.target in made else values
    if "curve" in made:
        at_knots += made.pop("curve")
    pm.Deterministic(variable, at_knots, dims=f"{name}_knot")
    _add_targets(name, variable, at_knots, made, len(curve.basis.knots))
    return pm.Deterministic(f"bin_{variable}", at_rows, dims="bin")


def _add_targets(
    curve: str, variable: str, at_knots: Any, made: dict[str, Any], knots: int
) -> None:
    """What further terms make: groups' curves, the term in exposure."""
    if "group" in made:
        groups = at_knots[None] + made["group"].reshape((-1, knots))
        pm.Deterministic(f"{variable}_of_group", groups, dims=("group", f"{curve}_knot"))
    if "exposure" in made:
        dim = f"{curve}_exposure_knot"
        pm.Deterministic(f"{variable}_by_exposure", made["exposure"], dims=dim)


def _add_effect_scale(variable: str, pilot: EffectPilot) -> Any:
    """Log of the scale of effects of bins."""
    shape = density_shape(pilot.position, pilot.log_density)
    return pt.log(add_scale(f"{variable}_bin_effect_sd", "bin_effect", pilot.scale, shape))


def _row_logp(
    kernel: str, signature: str, scales: int, value: Any, first: Any, second: Any, *inputs: Any
) -> Any:
    """Log marginal of rows; `inputs` are the log scale of effects, if any, rows and arrays."""
    log_tau = [t + pt.zeros_like(first) for t in inputs[:scales]]
    rows, *arrays = inputs[scales:]
    return log_marginal(
        kernel, first, second, rows, tuple(_unbatched(signature, tuple(arrays))), *log_tau
    )[0]


def _unbatched(signature: str, arrays: tuple[Any, ...]) -> list[Any]:
    """Arrays without the dimensions of length 1 that PyMC puts before them."""
    core = [len(part.split(",")) for part in signature[1:-1].split("),(")]
    return [a[(0,) * (a.ndim - n)] for a, n in zip(arrays, core, strict=True)]


def _draw_totals(
    outcome: Outcome,
    scales: int,
    first: Any,
    second: Any,
    *inputs: Any,
    rng: Any = None,
    size: Any = None,
) -> Any:
    """What is observed of every row, drawn anew."""
    arrays = inputs[scales + 1 :]
    if scales:
        first = first + draw_prior(np.broadcast_to(np.exp(inputs[0]), np.shape(first)), rng)
    return outcome.draw(first, second, _unbatched(outcome.signature, arrays), rng)
