"""Bands for items in clusters: noise in the draws, as large as blocks of clusters show.

With H the information of data and prior, H_b that of block b's data and s_b its slope at the mode,
leaving the block out moves the mode by -(H - H_b)^-1 s_b, in one Newton step. The sum of squares of
these moves is the jackknife estimate of the mode's covariance (CR3; MacKinnon, Nielsen and Webb
2023). Its excess over that of independent items is the covariance of normal noise that is added to
the curves of every draw. Levels that are integrated out have noise from their own blocks, given the
shared curves. As few blocks determine a covariance badly, in each direction the excess is
multiplied by the squared ratio of a t quantile to a normal one (Satterthwaite).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import linalg, special

from .._lib.arguments import FitError
from .._lib.arrays import Bools, Floats, Ints, Pair
from .._model.laplace import RowCurvature, coefficient_curvature, row_curvature
from .._model.levels import Levels
from .._model.problem import Problem, build
from .._model.rows import rows_of
from .._model.splines import spline_matrix
from ..data.statistics import Statistics, from_tables, undated
from ..families import FAMILIES
from ..families.priors import Prior
from ..families.scales import Scale
from ..fits import Fit
from .density import SAMPLED

# most share of the information that leaving out one block removes
_MOST_SHARE = 0.75
# the bands' upper end, where t and normal quantiles are compared
_UPPER_END = 0.95
_FEWEST_DEGREES = 2.0  # degrees of freedom


class _BlockRows(NamedTuple):
    """Rows of every block of clusters."""

    curvature: RowCurvature
    row: Ints  # numbers among the rows of the problem
    block: Ints

    def part(self, members: Bools) -> "_BlockRows":
        """Rows that are members."""
        curvature = RowCurvature(*(values[..., members] for values in self.curvature))
        return _BlockRows(curvature, self.row[members], self.block[members])

    def sums(self, designs: Sequence[Floats]) -> Pair:
        """Slope and information of the coefficients of both curves' designs."""
        slopes, information = coefficient_curvature(
            [x[self.row] for x in designs], self.curvature
        )
        return np.concatenate(slopes), linalg.block_diag(*information)

    def excess_root(self, designs: Sequence[Floats], precision: Floats) -> Floats:
        """Factor of `excess_root` for the coefficients of both curves' designs."""
        parts = (self.part(self.block == number) for number in np.unique(self.block))
        slopes, informations = zip(*(part.sums(designs) for part in parts), strict=True)
        total = self.sums(designs)[1]
        return excess_root(np.array(slopes), np.array(informations), total, precision)


def _block_rows(built: Problem, stats: Statistics) -> _BlockRows:
    """Every block's rows with their curvature at both curves of the mode."""
    number = int(stats.table("part")["fold"].max()) + 1
    tables = {name: dict(stats.table(name)) for name in stats.outcome.tables}
    tables = {name: table for name, table in tables.items() if "fold" in table}
    for table in tables.values():  # blocks within groups become groups
        group = table["group"] if built.pilot.labels else 0
        table["group"] = group * number + table["fold"]
    keys = np.unique(tables["part"]["group"])
    for table in tables.values():
        table["group"] = np.searchsorted(keys, table["group"])
    labels = keys.astype(str)
    attrs = undated(stats.data.attrs)
    apart = from_tables(tables, labels, stats.edges, attrs)
    rows, data = rows_of(apart, built.family, grouped=True)
    group, block = np.divmod(keys[rows.group], number)
    place = built.pilot.rows.group * stats.bins + built.pilot.rows.bin
    row = np.searchsorted(place, group * stats.bins + rows.bin)
    data = data.with_spread(built.pilot.data.spread[row])
    curves = built.pilot.curves_at(built.pilot.coefficients)
    curvature = row_curvature(data, *(curve[row] for curve in curves))
    return _BlockRows(curvature, row, block)


def _added_to_levels(
    built: Problem, levels: Levels, stats: Statistics, posterior: xr.Dataset
) -> dict[str, Floats]:
    """Factors (levels, k, knots) that clusters add to levels' curves, given the shared ones."""
    terms = levels.rows.terms
    split = [len(terms[0].kind)]
    level = terms[0].grouping.code[built.pilot.rows.group]
    rows = _block_rows(built, stats)
    tau = np.array([scale.tau for scale in levels.scales])[levels.rows.kind]
    factors = np.zeros(levels.information.shape)
    for k, factor in enumerate(factors):
        of_level = rows.part(level[rows.row] == k)
        if len(np.unique(of_level.block)) > 1:
            added = of_level.excess_root([term.design for term in terms], tau**-2.0).T
            factor[: len(added)] = added
    curves_added = {}
    parts = np.split(factors, split, axis=2)
    for curve, term, part in zip(built.pilot.curves, terms, parts, strict=True):
        name = f"{curve.variable}_of_{term.grouping.name}"
        knots = posterior[name][posterior[name].dims[-1]].to_numpy()
        at_knots = spline_matrix(knots, curve.basis.knots) @ term.values
        curves_added[name] = part @ at_knots.T
    return curves_added


def excess_root(
    slopes: Floats, informations: Floats, total: Floats, precision: Floats
) -> Floats:
    """Factor F (p, k) of the covariance that clusters add, from slopes (blocks, p) at the mode."""
    root = linalg.cholesky(total + np.diag(precision), lower=True)
    inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True)
    moves = np.empty_like(slopes)
    for k, (slope, information) in enumerate(zip(slopes, informations, strict=True)):
        share, vector = linalg.eigh(inverse @ information @ inverse.T)
        complement = 1.0 - np.clip(share, 0.0, _MOST_SHARE)
        moves[k] = vector @ ((vector.T @ (inverse @ slope)) / complement)
    moves -= moves.mean(axis=0)
    number = len(moves)
    jackknife = moves.T @ moves * (number - 1) / number
    gain, direction = linalg.eigh(jackknife - inverse @ total @ inverse.T)
    direction = direction[:, gain > 0]
    gain = gain[gain > 0]
    squares = np.square(moves @ direction)
    spread = np.square(squares / squares.sum(axis=0)).sum(axis=0) - 1.0 / number
    freedom = np.clip(
        2.0 / np.maximum(spread, 1e-12),
        _FEWEST_DEGREES,
        max(number - 1.0, _FEWEST_DEGREES),
    )
    gain *= np.square(special.stdtrit(freedom, _UPPER_END) / special.ndtri(_UPPER_END))
    return inverse.T @ (direction * np.sqrt(gain))


def _plain(prior: Prior) -> Prior:
    """The prior without components and without terms whose sums are not kept by block."""
    names = ("mean", "variance", "monotone", "groups", "atoms")
    options = {name: getattr(prior, name) for name in names}
    return FAMILIES[prior.family].prior(**options)


def _added_to_curves(
    built: Problem, stats: Statistics, posterior: xr.Dataset
) -> dict[str, Floats]:
    """Factors, (k, *shape), of what clusters add to the covariance of curves, by their names."""
    if stats.blocks < 2:
        raise FitError(
            "all clusters are in one block, so nothing shows how they differ: give cluster= a "
            "column with more labels, or leave it out"
        )
    parts = built.coordinates.parts
    designs = [part.design.matrix for part in parts]
    precision = [part.laplace.state.prior(part.design)[1] for part in parts]
    rows = _block_rows(built, stats)
    factor = rows.excess_root(designs, np.concatenate(precision))
    split = np.split(factor, [designs[0].shape[1]])
    factors: dict[str, Floats] = {}
    for part, curve, coefficients in zip(parts, built.pilot.curves, split, strict=True):
        for output in part.outputs:
            if output.name not in posterior:  # an atom of these statistics alone
                continue
            added = output.values(coefficients.T)
            curve_draws = posterior[output.name]
            if "atom" not in curve_draws.dims:  # atoms shift a curve at one score
                knots = curve_draws[curve_draws.dims[-1]].to_numpy()
                added = added @ spline_matrix(knots, curve.basis.knots).T
            factors[output.name] = added
    return factors


class _ClusterNoise(NamedTuple):
    """Factors of the normal noise that clusters add to curves, by the curves' names."""

    # (k, *shape): of noise that all curves share
    shared: dict[str, Floats]
    # (levels, k, knots): of each level's own noise
    by_level: dict[str, Floats]

    def widening(self, posterior: xr.Dataset) -> xr.Dataset:
        """Factors by which the noise widens the curves' sds."""
        factors = {}
        for name, added in self.shared.items():
            if "atom" not in posterior[name].dims:
                variance = np.square(added).sum(axis=0)
                if name in self.by_level:
                    variance = variance + np.square(self.by_level[name]).sum(axis=1)
                factors[name] = np.sqrt(1.0 + variance / posterior[name].var(SAMPLED))
        return xr.Dataset(factors)

    def added_to(self, posterior: xr.Dataset, rng: np.random.Generator) -> xr.Dataset:
        """The posterior with noise of mean 0: clusters do not move the curves."""

        def noise(*shape: int) -> Floats:
            draws = rng.normal(
                size=(*(posterior.sizes[dim] for dim in SAMPLED), *shape)
            )
            return draws - draws.mean(axis=(0, 1))

        wider = posterior.copy()
        shared = noise(len(next(iter(self.shared.values()))))
        for name, added in self.shared.items():
            wider[name] = posterior[name] + np.tensordot(shared, added, 1)
        if self.by_level:
            levels = noise(*next(iter(self.by_level.values())).shape[:2])
            for name, added in self.by_level.items():
                wider[name] += np.einsum("cdgk,gkj->cdgj", levels, added, optimize=True)
        return wider


def _cluster_noise(
    plain: Prior, built: Problem, stats: Statistics, posterior: xr.Dataset
) -> _ClusterNoise:
    """The noise under a plain prior, whose problem is built."""
    if not built.pilot.levels:
        return _ClusterNoise(_added_to_curves(built, stats, posterior), {})
    pooled = build(stats, replace(plain, groups=False))
    shared = _added_to_curves(pooled, stats, posterior)
    for curve in built.family.curve_names:
        for grouping in built.pilot.groupings:
            shared[f"{curve}_of_{grouping.name}"] = shared[curve][:, None]
    by_level = _added_to_levels(built, built.pilot.levels, stats, posterior)
    return _ClusterNoise(shared, by_level)


def cluster_factor(fit: Fit, stats: object) -> float:
    """Factor by which clusters widen a fit's bands: the largest of all curves' medians.

    Only fits that were not widened need `stats`, the statistics of items with clusters.
    """
    if fit.widened:
        factors = fit.data["clusters"].to_dataset()
    else:
        assert isinstance(stats, Statistics)
        posterior = fit.data["posterior"].to_dataset()
        plain = _plain(fit.prior)
        if stats.groups != fit.groups:
            plain = replace(plain, groups=False)
        noise = _cluster_noise(plain, build(stats, plain), stats, posterior)
        factors = noise.widening(posterior)
    return max(float(values.median()) for values in factors.values())


def for_clusters(
    built: Problem, stats: Statistics, prior: Prior, posterior: xr.Dataset, seed: int
) -> tuple[dict[str, xr.Dataset], str]:
    """The posterior with wider curves, their factors, and words for the fit's status."""
    plain = _plain(prior)
    plain_problem = built if prior == plain else build(stats, plain)
    noise = _cluster_noise(plain, plain_problem, stats, posterior)
    wider = noise.added_to(posterior, np.random.default_rng(seed))
    factors = noise.widening(posterior)
    curve = built.family.curve_names[0]
    scale = built.family.outcome.theta
    mean_factor, variance_factor = (
        float(factors[name].median()) for name in built.family.curve_names
    )
    for name in map(str, factors):
        if name.startswith(curve):
            wider[name] = _with_mean_of(posterior[name], wider[name], scale)
    if f"{curve}_of_bin" in posterior:
        effects = posterior[f"{curve}_of_bin"]
        centre = effects.mean(SAMPLED)
        wider[effects.name] = mean_factor * (effects - centre) + centre
    words = (
        f"; bands widened for {stats.blocks} blocks of clusters, at the median knot by "
        f"{mean_factor:.2f} (mean) and {variance_factor:.2f} (variance)"
    )
    return {"posterior": wider, "clusters": factors}, words


def _with_mean_of(
    narrow: xr.DataArray, wide: xr.DataArray, scale: Scale
) -> xr.DataArray:
    """Draws of a curve moved so that theta's mean is that of the narrow draws."""
    # noise on a curved scale moves the mean of theta; least squares at and between the knots
    knots = narrow[narrow.dims[-1]].to_numpy()
    number = np.arange(len(knots))
    weights = spline_matrix(
        np.interp(np.linspace(0, number[-1], 60), number, knots), knots
    )
    shifted = wide.to_numpy()
    sd = np.array([(shifted @ weight).std(axis=(0, 1)).mean() for weight in weights])
    to_knots = (np.linalg.pinv(weights / sd[:, None]) / sd).T

    def level(values: Floats) -> Floats:
        means = [scale.score(values @ weight).mean(axis=(0, 1)) for weight in weights]
        return scale.position(np.stack(means, axis=-1))

    target = level(narrow.to_numpy())
    for _ in range(3):  # the logit needs several, the other scales one
        shifted = shifted + (target - level(shifted)) @ to_knots
    return wide.copy(data=shifted)
