"""Bands for items in clusters: noise in the draws, as large as blocks of clusters show.

The likelihood takes items as independent given their scores. Where they are not, its slope in the
coefficients varies between blocks of clusters by more than its information says. With H the
information of data and prior, H_b that of block b's data and s_b its slope at the mode, leaving the
block out moves the mode by -(H - H_b)^-1 s_b, in one Newton step. The sum of squares of these moves
is the jackknife estimate of the mode's covariance (CR3; MacKinnon, Nielsen and Webb 2023). What it
exceeds that of independent items by, where it does, is the covariance of normal noise that is added
to the curves of every draw. It is computed for curves of the score and of groups alone, and serves
mixtures and models with further terms too.

Few blocks determine a covariance badly. In each direction the excess is multiplied by the squared
ratio of a t quantile to a normal one, with Satterthwaite's degrees of freedom from the fourth
powers of the blocks' moves: few, if a few blocks make most of it.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import linalg, special

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..data.statistics import Statistics, make_statistics, undated
from ..families.family import FAMILIES
from ..families.priors import Prior
from ..model.laplace import row_curvature
from ..model.problem import Problem, build
from ..model.rows import rows_of
from ..model.splines import knots_in, spline_matrix
from .results import Fit

_MOST_SHARE = 0.75  # of the information that is left out with one block
_TAIL = 0.95  # the bands' upper end, where t and normal quantiles are compared
_FEWEST = 2.0  # degrees of freedom


@dataclass(frozen=True)
class Blocks:
    """The data of every block at the mode, in the coefficients of both curves together."""

    slope: Floats  # (blocks, p)
    information: Floats  # (blocks, p, p)
    whole: Floats  # (p, p): of all data
    precision: Floats  # (p,): of the prior, given the smoothing scales


def make_blocks(built: Problem, stats: Statistics) -> Blocks:
    """The blocks' parts of the log marginal, from the statistics' tables by block."""
    apart, group, block = _by_block(stats, bool(built.labels))
    rows, data = rows_of(apart, built.family, grouped=True)
    code, bins = rows.group, stats.bins
    at = np.searchsorted(built.rows.group * bins + built.rows.bin, group[code] * bins + rows.bin)
    designs = [of.design for of in built.coefficients]
    states = [of.laplace.state for of in built.coefficients]
    m, c = (state.at(design) for state, design in zip(states, designs, strict=True))
    wholes = [design.whole for design in designs]
    of_rows = row_curvature(data.with_spread(built.data.spread[at]), m[at], c[at])
    slope, information = [], []
    for own in np.unique(block):
        rows_here = block[code] == own
        found = of_rows.of_coefficients([whole[at] for whole in wholes], rows_here)
        slope.append(np.concatenate(found.slopes))
        information.append(linalg.block_diag(*found.information))
    of_all = row_curvature(built.data, m, c).of_coefficients(wholes)
    precision = [state.prior(design)[1] for state, design in zip(states, designs, strict=True)]
    return Blocks(
        np.array(slope),
        np.array(information),
        linalg.block_diag(*of_all.information),
        np.concatenate(precision),
    )


def _by_block(stats: Statistics, grouped: bool) -> tuple[Statistics, Ints, Ints]:
    """Statistics with a group for each block of each group, and the group and block of each."""
    part = stats.table("part")
    number = int(part["fold"].max()) + 1

    def key(table: dict[str, NDArray[Any]]) -> Ints:
        return np.asarray((table["group"] if grouped else 0) * number + table["fold"])

    keys = np.unique(key(part))
    tables = {
        name: {**table, "group": np.searchsorted(keys, key(table))} if "fold" in table else {}
        for name in stats._outcome.tables
        for table in [stats.table(name)]
    }
    attrs = undated(stats.data.attrs) | {"coarse": 0}
    apart = make_statistics(tables, keys.astype(str), stats.edges, attrs)
    group, block = np.divmod(keys, number)
    return apart, group, block


def excess(blocks: Blocks) -> Floats:
    """Factor F, (p, k), of the covariance F F' of coefficients that clusters add to the model's."""
    root = linalg.cholesky(blocks.whole + np.diag(blocks.precision), lower=True)
    inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True)
    moves = np.empty_like(blocks.slope)
    for k, (slope, information) in enumerate(zip(blocks.slope, blocks.information, strict=True)):
        share, vector = linalg.eigh(inverse @ information @ inverse.T)
        left = 1.0 - np.clip(share, 0.0, _MOST_SHARE)
        moves[k] = vector @ ((vector.T @ (inverse @ slope)) / left)
    moves -= moves.mean(axis=0)
    number = len(moves)
    jackknife = moves.T @ moves * (number - 1) / number
    more, direction = linalg.eigh(jackknife - inverse @ blocks.whole @ inverse.T)
    more, direction = more[more > 0], direction[:, more > 0]
    more *= np.square(_t_ratio(np.square(moves @ direction)))
    return np.asarray(inverse.T @ (direction * np.sqrt(more)))


def _t_ratio(squares: Floats) -> Floats:
    """Quantiles of t over normal ones, for sums of squares over blocks (blocks, directions)."""
    number = len(squares)
    spread = np.square(squares / squares.sum(axis=0)).sum(axis=0) - 1.0 / number
    freedom = np.clip(2.0 / np.maximum(spread, 1e-12), _FEWEST, max(number - 1.0, _FEWEST))
    return np.asarray(special.stdtrit(freedom, _TAIL) / special.ndtri(_TAIL))


def plain_of(prior: Any) -> Any:
    """The prior without components and without terms whose sums are not kept by block."""
    names = ("mean", "variance", "monotone", "groups", "atoms")
    return FAMILIES[prior.family].prior(**{name: getattr(prior, name) for name in names})


def added_to_curves(built: Problem, stats: Statistics, posterior: xr.Dataset) -> dict[str, Floats]:
    """Factors, (k, *shape), of what clusters add to the covariance of curves, by their names.

    `built` has curves of the score and of groups alone. The posterior's are at its own knots.
    """
    if stats.blocks < 2:
        raise FitError(
            "all clusters are in one block, so nothing shows how they differ: give cluster= a "
            "column with more labels, or leave it out"
        )
    factor = excess(make_blocks(built, stats))
    found: dict[str, Floats] = {}
    start = 0
    for of, curve in zip(built.coefficients, built.curves, strict=True):
        turn = linalg.block_diag(*of.turns.values())
        values = of.to_outputs @ turn.T @ factor[start : start + len(turn)]
        start += len(turn)
        at = 0
        for output in of.outputs:
            size = len(next(iter(output.parts.values())))
            added = values[at : at + size].T
            at += size
            if output.name not in posterior:  # an atom of these statistics alone
                continue
            own = posterior[output.name]
            if "atom" not in own.dims:  # shifts of atoms are no curves
                knots = spline_matrix(own[own.dims[-1]].to_numpy(), curve.basis.knots)
                added = added.reshape(-1, *own.shape[2:-1], len(curve.basis.knots)) @ knots.T
            found[output.name] = added
    return found


def cluster_factor(fit: Fit, items: Any) -> float:
    """By which factor clusters widen a fit's bands: the larger of both curves' medians.

    Of a fit that was not widened it is that of `items`: statistics with clusters, of any bins.
    """
    if fit.widened:
        factors = fit.data["clusters"].to_dataset()
        return max(float(values.median()) for values in factors.values())
    exact = {dim: knots_in(fit.data, dim) for dim in ("mean_knot", "variance_knot")}
    posterior = fit.data["posterior"].to_dataset().assign_coords(exact)
    built = build(items, replace(plain_of(fit.prior), groups=False))
    found = []
    of_curves = added_to_curves(built, items, posterior)
    for name, added in ((name, of_curves[name]) for name in built.family.curves):
        variance = posterior[name].var(("chain", "draw")).to_numpy()
        found.append(np.median(np.sqrt(1.0 + np.square(added).sum(axis=0) / variance)))
    return float(max(found))


def for_clusters(
    built: Problem, stats: Statistics, prior: Prior, posterior: xr.Dataset
) -> tuple[dict[str, xr.Dataset], str]:
    """The posterior with wider curves and by which factor, and words for the fit's status."""
    plain = plain_of(prior)
    if built.levels:  # too many for their own noise: they get that of the shared curve
        plain = replace(plain, groups=False)
    added = added_to_curves(built if prior == plain else build(stats, plain), stats, posterior)
    for curve in built.family.curves if built.levels else ():
        for grouping in built.groupings:
            added[f"{curve}_of_{grouping.name}"] = added[curve][:, None]
    rng = np.random.default_rng(0)
    number = posterior.sizes["chain"], posterior.sizes["draw"]
    noise = rng.normal(size=(*number, len(next(iter(added.values())))))
    noise -= noise.mean(axis=(0, 1))  # clusters do not move the curves
    wider = posterior.assign(
        {name: posterior[name] + np.tensordot(noise, own, 1) for name, own in added.items()}
    )
    over, names = ("chain", "draw"), built.family.curves
    factors = xr.Dataset(
        {name: wider[name].std(over) / posterior[name].std(over) for name in names}
    )
    first, second = (float(factors[name].median()) for name in names)
    words = (
        f"; bands widened for {stats.blocks} blocks of clusters, at the median knot by "
        f"{first:.2f} (mean) and {second:.2f} (variance)"
    )
    return {"posterior": wider, "clusters": factors}, words
