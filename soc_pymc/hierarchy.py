"""From a prior and statistics to the `pymc.Model` that ties the bins together.

For bin b with centre u_b on a curve's axis, log mean_b = f(u_b) and log cv2_b = g(u_b); each
curve is a straight line with a weak proper prior plus a wiggly part with coefficients
N(0, tau^2), tau half-normal. The bin's items enter through their log marginal alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from .coordinates import (
    LineTransform,
    ScaleTransform,
    WiggleTransform,
    pilot_point,
    scale_shape,
)
from .designs import (
    CV2_LEVEL,
    Curve,
    bin_histograms,
    make_curve,
    position_variances,
    positions,
)
from .errors import FitError
from .families import histograms as hist
from .likelihood import log_marginal, shared
from .pilot import (
    CurvePilot,
    CurveState,
    best_start,
    curve_state,
    flat_state,
    run_pilot,
)
from .priors import Gamma
from .results import Fit
from .splines import spline_matrix
from .statistics import Statistics

__all__ = ["VARIABLES", "Hierarchy", "begun_at", "build", "extended", "model"]

Floats = NDArray[np.float64]

_MOST_SPREAD = 1.0  # within a bin: its second-order terms mean nothing beyond


@dataclass(frozen=True)
class Hierarchy:
    """A model with what inference needs beside it.

    Attributes
    ----------
    model
        The `pymc.Model`.
    curves, pilots
        Of log mean and log cv2.
    histograms
        The likelihood's data, occupied bins only.
    occupied
        Indices of the bins that hold items.
    score
        Centre of each occupied bin.
    """

    model: pm.Model
    curves: tuple[Curve, Curve]
    pilots: tuple[CurvePilot, CurvePilot]
    histograms: hist.Histograms
    occupied: NDArray[np.intp]
    score: Floats


def model(stats: Statistics, prior: Gamma | None = None) -> pm.Model:
    """The model itself, to read, draw, sample or extend.

    Parameters
    ----------
    stats
        Sufficient statistics of the items.
    prior
        The prior's configuration; None is ``soc.Gamma()``.

    Returns
    -------
    pymc.Model
        With dims bin, mean_line, mean_basis, variance_line and variance_basis. ``bin_log_mean`` and
        ``bin_log_cv2`` are the curves at the bins' centres, ``log_mean`` and ``log_cv2`` at the
        knots; ``count`` is the sum of counts in a bin, whose log probability is that of all the
        bin's items.

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
    return build(stats, prior or Gamma()).model


def build(stats: Statistics, prior: Gamma, start: Fit | None = None) -> Hierarchy:
    """Model, pilot and data for inference; the pilot may begin at an earlier fit's curves."""
    data = stats.data
    occupied = np.flatnonzero(data["n"].to_numpy() > 0)
    histograms = bin_histograms(stats, occupied)
    curves = (
        make_curve("mean", prior.mean, stats, occupied),
        make_curve("variance", prior.variance, stats, occupied),
    )
    exposure = float(data["sum_N"].sum())
    if not exposure > 0:
        raise FitError("every exposure is 0: nothing was observed, so nothing can be fitted")
    level = float(np.log((histograms.total.sum() + 0.5) / exposure))
    starts = [(flat_state(curves[0].design, level), flat_state(curves[1].design, CV2_LEVEL[0]))]
    if start is not None:
        mean, cv2 = (_state_of(start, c, v) for c, v in zip(curves, VARIABLES, strict=True))
        starts.append((mean, cv2))
    pilots = _pilots(curves, histograms, starts)
    # items of a bin differ by their scores: by how much, the pilot's slope says
    position = positions(curves[0].axis, stats, occupied)
    slope = _slopes(curves[0], pilots[0], position)
    spread = slope**2 * position_variances(curves[0].axis, stats, occupied)
    histograms = replace(histograms, spread=np.minimum(spread, _MOST_SPREAD))
    pilots = _pilots(curves, histograms, [(pilots[0].state, pilots[1].state)])
    score = curves[0].axis.inverse(position)
    return Hierarchy(
        _model(curves, pilots, histograms, score), curves, pilots, histograms, occupied, score
    )


def _pilots(
    curves: tuple[Curve, Curve],
    histograms: hist.Histograms,
    starts: Sequence[tuple[CurveState, CurveState]],
) -> tuple[CurvePilot, CurvePilot]:
    bins, arrays = np.arange(len(histograms.total)), histograms.arrays
    designs = (curves[0].design, curves[1].design)

    def likelihood(m: Floats, c: Floats) -> Floats:
        return hist.value_and_gradient(m[None], c[None], bins, *arrays)[:, 0]

    return run_pilot(
        designs,
        likelihood,
        lambda m, c: hist.information(m, c, histograms),
        best_start(designs, likelihood, starts),
    )


def _state_of(start: Fit, curve: Curve, variable: str) -> CurveState:
    """An earlier fit's mean curve, whatever its knots and axis, as a state of this one."""
    values = start.data["posterior"][variable]
    try:
        position = start.axis(curve.name)(curve.axis.inverse(curve.basis.knots))
    except FitError as error:
        raise FitError(f"start= does not reach these scores ({error}): leave start= out") from error
    at_knots = spline_matrix(position, values[f"{curve.name}_knot"].to_numpy())
    mean = at_knots @ values.mean(("chain", "draw")).to_numpy()
    return curve_state(curve.design, curve.basis.line, curve.basis.wiggle, mean)


def _slopes(curve: Curve, pilot: CurvePilot, position: Floats) -> Floats:
    """Slopes of the pilot's curve at positions on its axis."""
    at_knots = curve.basis.line @ pilot.state.line + curve.basis.wiggle @ pilot.state.wiggle
    step = 1e-4 * max(float(np.ptp(curve.basis.knots)), 1e-300)
    ahead, behind = (spline_matrix(position + d, curve.basis.knots) for d in (step, -step))
    return np.asarray((ahead - behind) @ at_knots / (2.0 * step))


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
    observed = (m.rvs_to_values[m["count"]].eval() for m in (built.model, model))
    if not (same and np.array_equal(*observed)):
        raise FitError("model= is of other statistics or knots than stats and prior: build it anew")
    if model.discrete_value_vars:
        names = ", ".join(v.name for v in model.discrete_value_vars)
        raise FitError(f"model= has discrete unknowns ({names}): sum them out")
    return replace(built, model=model)


@contextmanager
def begun_at(built: Hierarchy, start: Fit | None) -> Iterator[None]:
    """Let unknowns that the user added begin at an earlier fit's means; the model stays as it was.

    The curves' own coordinates are already centred by the pilot. A fit that did not converge says
    nothing better than PyMC's initial point.
    """
    initial = built.model.rvs_to_initial_values
    before = dict(initial)
    if start is not None and start.status.converged:
        means = start.data["posterior"].to_dataset().mean(("chain", "draw"))
        dims, coords = built.model.named_vars_to_dims, built.model.coords
        own = {f"{v}_{part}" for v in VARIABLES for part in ("line", "wiggle", "wiggle_sd")}
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


VARIABLES = ("log_mean", "log_cv2")
"""Names of the model's two curves."""


# dimensions of the arrays of `Histograms`
_HISTOGRAMS = "(b,c),(s),(w),(w),(s),(e),(e),(e),(b),(b),(b)"


def _model(
    curves: tuple[Curve, Curve],
    pilots: tuple[CurvePilot, CurvePilot],
    histograms: hist.Histograms,
    score: Floats,
) -> pm.Model:
    coords: dict[str, Any] = {"bin": score}
    for curve in curves:
        names = ["level", "slope"][: curve.basis.line.shape[1]]
        coords[f"{curve.name}_line"] = names
        coords[f"{curve.name}_basis"] = np.arange(curve.basis.wiggle.shape[1])
        coords[f"{curve.name}_knot"] = curve.basis.knots
    arrays = shared(histograms)
    with pm.Model(coords=coords) as built:
        log_mean, log_cv2 = (
            _add_curve(curve, pilot, variable)
            for curve, pilot, variable in zip(curves, pilots, VARIABLES, strict=True)
        )
        # histograms are inputs, as PyMC keeps the functions of every distribution for ever
        pm.CustomDist(
            "count",
            log_mean,
            log_cv2,
            pm.Data("bin_index", np.arange(len(score)), dims="bin"),
            *arrays,
            logp=_count_logp,
            random=_draw_totals,
            signature=f"(),(),(),{_HISTOGRAMS}->()",
            observed=histograms.total,
            dims="bin",
        )
    return built


def _add_curve(curve: Curve, pilot: CurvePilot, variable: str) -> Any:
    """Variables of one curve; returns its values at the bins."""
    name = curve.name
    dims = {"l": f"{name}_line", "k": f"{name}_basis", "knot": f"{name}_knot", "bin": "bin"}

    def data(label: str, value: Floats, *of: str) -> Any:
        return pm.Data(f"{name}_{label}", value, dims=tuple(dims[d] for d in of))

    wiggle = _add_wiggle(curve, pilot, variable, data)
    line = pm.CustomDist(
        f"{variable}_line",
        data("line_prior_mean", curve.design.line_mean, "l"),
        data("line_prior_sd", curve.design.line_sd, "l"),
        data("line_centre", pilot.line_centre, "l"),
        data("line_shift", pilot.line_shift, "l", "k"),
        pm.Data(f"{name}_line_root", pilot.line_root),
        wiggle,
        logp=_line_logp,
        random=_draw_line,
        support_point=partial(pilot_point, LineTransform()),
        signature="(l),(l),(l),(l,k),(l,l),(k)->(l)",
        dims=dims["l"],
        transform=LineTransform(),
    )
    # a rotation of independent, equal normals leaves the prior as it is
    pm.Deterministic(
        variable,
        pt.dot(data("line_at_knots", curve.basis.line, "knot", "l"), line)
        + pt.dot(data("basis_at_knots", curve.basis.wiggle @ pilot.rotation, "knot", "k"), wiggle),
        dims=dims["knot"],
    )
    return pm.Deterministic(
        f"bin_{variable}",
        pt.dot(data("line_at_bins", curve.design.line, "bin", "l"), line)
        + pt.dot(data("basis_at_bins", curve.design.wiggle @ pilot.rotation, "bin", "k"), wiggle),
        dims="bin",
    )


def _add_wiggle(curve: Curve, pilot: CurvePilot, variable: str, data: Any) -> Any:
    """Smoothing scale and wiggly coefficients; a curve of too few bins has none."""
    if not len(pilot.precision):
        return pt.zeros((0,))
    wiggle_scale = curve.design.wiggle_scale
    shape = scale_shape(wiggle_scale, pilot.precision, pilot.pull)
    scale = pm.CustomDist(
        f"{variable}_wiggle_sd",
        data("wiggle_prior_scale", np.asarray(wiggle_scale)),
        pm.Data(f"{curve.name}_wiggle_sd_shape", shape),
        logp=_scale_logp,
        random=_draw_scale,
        support_point=partial(pilot_point, ScaleTransform()),
        signature="(),(s)->()",
        transform=ScaleTransform(),
    )
    return pm.CustomDist(
        f"{variable}_wiggle",
        scale,
        data("wiggle_precision", pilot.precision, "k"),
        data("wiggle_pull", pilot.pull, "k"),
        logp=_wiggle_logp,
        random=_draw_wiggle,
        support_point=partial(pilot_point, WiggleTransform()),
        signature="(),(k),(k)->(k)",
        dims=f"{curve.name}_basis",
        transform=WiggleTransform(),
    )


# The plain statement of the prior: what follows the first one or two parameters of each variable
# serves its coordinates alone.


def _scale_logp(value: Any, scale: Any, shape: Any) -> Any:
    return pm.logp(pm.HalfNormal.dist(scale), value)


def _wiggle_logp(value: Any, scale: Any, precision: Any, pull: Any) -> Any:
    return pm.logp(pm.Normal.dist(0.0, scale), value).sum(axis=-1)


def _line_logp(value: Any, mean: Any, sd: Any, *coordinates: Any) -> Any:
    return pm.logp(pm.Normal.dist(mean, sd), value).sum(axis=-1)


def _draw_scale(scale: Any, shape: Any, rng: Any = None, size: Any = None) -> Any:
    return np.abs(rng.normal(0.0, scale, size=size))


def _draw_wiggle(scale: Any, precision: Any, pull: Any, rng: Any = None, size: Any = None) -> Any:
    shape = np.broadcast_shapes(np.shape(scale)[:1] and (*np.shape(scale), 1), precision.shape)
    return rng.normal(size=(*(size or ()), *shape)) * np.asarray(scale)[..., None]


def _draw_line(mean: Any, sd: Any, *coordinates: Any, rng: Any = None, size: Any = None) -> Any:
    return rng.normal(mean, sd, size=None if size is None else (*size, mean.shape[-1]))


def _count_logp(value: Any, log_mean: Any, log_cv2: Any, bins: Any, *arrays: Any) -> Any:
    return log_marginal(log_mean, log_cv2, bins, tuple(_unbatched(arrays)))


def _unbatched(arrays: tuple[Any, ...]) -> list[Any]:
    """Histograms without the dimensions of length 1 that PyMC puts before them."""
    core = [len(part.split(",")) for part in _HISTOGRAMS[1:-1].split("),(")]
    return [a[(0,) * (a.ndim - n)] for a, n in zip(arrays, core, strict=True)]


def _draw_totals(
    log_mean: Any, log_cv2: Any, bins: Any, *arrays: Any, rng: Any = None, size: Any = None
) -> Any:
    """Total count of each bin: a sum of equal negative binomials is negative binomial."""
    h = hist.Histograms(*_unbatched(arrays))
    own = np.exp(log_cv2)
    cv2 = own + h.spread * (1.0 + own)
    mean, cv2 = np.broadcast_arrays(np.exp(log_mean + 0.5 * h.spread), cv2)
    bin_of = np.repeat(np.arange(mean.shape[-1]), np.diff(h.start))
    theta = rng.gamma(h.items / cv2[..., bin_of], h.exposure * (mean * cv2)[..., bin_of])
    counts = rng.poisson(theta).astype(float)
    return np.add.reduceat(counts, h.start[:-1], axis=-1)
