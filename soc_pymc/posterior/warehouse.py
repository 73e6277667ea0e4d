"""Item posteriors in a warehouse, as one expression or one SELECT.

The curves' means, covariances and quadrature points over the draws are tabulated in a few hundred
cells of the axis, as polynomials of low degree, which are exact beyond the knots, where curves are
straight lines.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

from .._lib.arguments import A, names_of, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError
from ..data.binning import Grid, choose_grid
from ..data.groups import roles_of
from ..data.items import ANY_ITEMS, ITEMS, Items
from ..data.tables import kind_of
from ..families.family import FAMILIES, family_of
from ..families.row_sums import MEAN_ONLY
from ..families.rules import gauss_rule
from ..families.scales import LINEAR, RANK, SCALES
from ..inference.results import FIT, Fit
from ..model.splines import knots_in
from .curves import curve_draws, without_atoms
from .expressions import Curves, Ladder, scored, scoring_sql
from .item_columns import posterior_roles
from .predictive import posterior_of
from .quadrature import moments_of

# numbers of nodes of log mean and of log cv2, and the spread of the curves up to which they suffice
_NODES = ((0.5, (3, 3)), (math.inf, (4, 5)))
_FEW = 250  # scores whose draws are in memory at once
_CELLS, _MOST_CELLS = 64, 1024
_BEYOND = 0.25  # how far cells extend beyond the knots, as a share of the range
_STEPS = (1 << 11, 1 << 13, 1 << 15, 1 << 17)  # rows of a ladder
_CLOSE_RANK, _FAR_RANK = 3e-5, 1e-3  # error of a rank: target, and largest accepted
_POINTS = 5  # points per cell for fitting polynomials
_CLOSE = 1e-4  # largest error between these, in prior sd and for a variance
_LARGEST, _MOST_VARIANCE = 200.0, 100.0  # limits of log mean and log cv2
_SCORED = " or ".join(f"soc.{name}" for name, of in FAMILIES.items() if of.expressed)
# spread of the curves (sd of log cv2; sd of log mean counts 2.5 times) above which
# negative weights could make a variance negative
_WIDE, _MEAN_SPREAD = 0.8, 2.5


def posterior_expression(fit: Fit, items: Items) -> Any:
    """Posterior mean and variance of every item as an Ibis expression, which is not executed.

    Parameters
    ----------
    fit
        The fit.
    items
        Items over an Ibis table, on any backend.

    Returns
    -------
    ibis.Table
        On the same backend: the user's columns and ``theta_mean``, ``theta_sd``, ``theta_var``, in
        the unit of theta, over the curves' uncertainty; ``theta_shape`` and ``theta_rate`` of the
        Gamma (``theta_a`` and ``theta_b`` of the Beta) with this mean and variance, for a warehouse
        with its quantile function. They are NULL for items that `item_posteriors` would refuse: a
        score, outcome or size is missing, not finite or negative (a score only if the axis is log),
        a count not whole, or positive with exposure 0, successes more than trials. The order of
        rows is not defined. Nothing is read, so there is no warning of scores far outside the
        fit's.

    Raises
    ------
    ItemsError
        If the items are not over an Ibis table, or a column is missing, has one of the new names or
        starts with ``soc_``.
    FitError
        If the fit is not of a Gamma or Beta prior of the score alone (it has groups, a term in
        exposure, bin effects, or another family), or the curves are on different scales.

    Notes
    -----
    Against ``soc.item_posteriors(draws="all")`` on 20,000 items of S1, error of the mean in
    posterior sd, and relative error of the sd; median / 99% / largest over items:

    ==========  ==========================  ==========================
    fit to      mean                        sd
    ==========  ==========================  ==========================
    300         1e-5 / 5e-3 / 4e-2          4e-5 / 2e-2 / 1e-1
    3,000       4e-7 / 3e-5 / 6e-4          1e-6 / 3e-4 / 1e-2
    20,000      2e-7 / 3e-6 / 7e-4          6e-7 / 2e-5 / 1e-2
    200,000     2e-8 / 1e-6 / 4e-6          7e-8 / 7e-7 / 9e-6
    ==========  ==========================  ==========================

    The largest errors are at outer scores, where the curves are poorly known (sd of log cv2 above
    0.8: 1 item in 140 at 3,000, 1 in 500 at 20,000); elsewhere in fits to 3,000 items and more they
    are 4e-4 and 2e-3. On a linear scale errors at outer scores are larger, up to 9e-3 and 7e-2 at
    3,000. DuckDB takes about 1 microsecond of processor time per item.

    Examples
    --------
    >>> import ibis, soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> table = ibis.memtable(frame)
    >>> items = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
    >>> scored = soc.posterior_expression(fit, items)
    >>> scored.filter(scored.theta_mean > 0).count().execute()
    2000
    """
    FIT(fit, "fit")
    wanted = f"{ANY_ITEMS} of an Ibis table"
    A(Items, wanted)(items, "items", ItemsError)
    if kind_of(items.source) != "ibis":
        raise ItemsError(
            "an expression needs items over an Ibis table: use soc.item_posteriors, or pass "
            'ibis.duckdb.connect().read_parquet("items.parquet")'
        )
    curves = _curves(fit)
    return scored(items.source, posterior_roles(fit, posterior_of(fit), items), curves)


def posterior_sql(
    fit: Fit,
    table: str,
    *,
    score: str | None = None,
    count: str | None = None,
    exposure: str | None = None,
    successes: str | None = None,
    trials: str | None = None,
    columns: Sequence[str] = (),
    dialect: str = "duckdb",
) -> str:
    """Posterior mean and variance of every item as the text of one self-contained SELECT.

    Parameters
    ----------
    fit
        The fit.
    table
        Name of the table of items, as the dialect writes it (``'sales."Ads 2024"'``).
    score, count, exposure, successes, trials
        Names of the columns, of those that the fit's kind of items has; None takes those of the
        fit's items.
    columns
        Other columns to keep, such as the items' key.
    dialect
        ``"duckdb"``, ``"postgres"``, ``"pyspark"``, ``"databricks"``, ``"bigquery"``,
        ``"snowflake"``, ``"trino"`` or another one that Ibis supports.

    Returns
    -------
    str
        A SELECT of the columns of score, outcome and size, `columns` and the new columns of
        `posterior_expression`.

    Raises
    ------
    ItemsError
        If a name is taken, a column is not one of the fit's kind of items, or the table's name or
        the dialect is unknown.
    FitError
        If the fit is not of a Gamma or Beta prior of the score alone (it has groups, a term in
        exposure, bin effects, or another family), or the curves are on different scales.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
    >>> sql = soc.posterior_sql(fit, "sales.ads", columns=["ad_id"], dialect="trino")
    >>> '"ad_id"' in sql and "FROM sales.ads" in sql
    True
    """
    columns = names_of(columns, "columns", ItemsError)
    FIT(fit, "fit")
    for name, value in (("table", table), ("dialect", dialect)):
        if not isinstance(value, str) or not value.strip():
            raise ItemsError(f"{name}={shown(value)} must be a name, as str")
    _refuse_others(fit)
    outcome = family_of(fit.prior).outcome
    given = {"score": score, "count": count, "exposure": exposure}
    given |= {"successes": successes, "trials": trials}
    own = ("score", outcome.observed, outcome.size)
    other = [role for role, name in given.items() if name is not None and role not in own]
    if other:
        raise ItemsError(
            f"{other[0]}= is not a column of the fit's items, which have {outcome.observed}= and "
            f"{outcome.size}="
        )
    known = roles_of(fit.data.attrs)
    roles: dict[str, Any] = {r: known.get(r, r) if given[r] is None else given[r] for r in own}
    checked = ITEMS[outcome.kind](table, **roles)
    return scoring_sql(table, checked.roles, columns, _curves(fit), dialect)


def _refuse_others(fit: Fit) -> None:
    """Refuse fits that a table of both curves over scores cannot represent."""
    if fit.mean_only:
        raise FitError(f"posteriors of items are not known: {MEAN_ONLY}")
    prior = fit.prior
    others = {
        f"priors of the family {type(prior).__name__}": (
            prior.mixture or family_of(prior).expressed is None
        ),
        "a share of zeros": prior.zero,
        "curves of groups": fit.groups,
        "terms in exposure": prior.exposure is not None,
        "effects of bins": prior.bin_effects,
        "curves that are steps": fit.by_bin,
    }
    for what, found in others.items():
        if found:
            raise FitError(
                f"a warehouse cannot score fits with {what}, only {_SCORED} of the score alone: "
                "use soc.item_posteriors, which also reads and writes files batch by batch"
            )


# --- tables --------------------------------------------------------------------------------------


def _curves(fit: Fit) -> Curves:
    """The fit's curves in the smallest number of cells that is accurate enough."""
    _refuse_others(fit)
    scale = fit.prior.mean.scale
    if fit.prior.variance.scale != scale:
        raise FitError(
            f"the mean is on the {scale} scale and the variance on the {fit.prior.variance.scale} "
            "scale: a warehouse scores curves on one scale; use soc.item_posteriors"
        )
    knots = np.concatenate([knots_in(fit.data, k) for k in ("mean_knot", "variance_knot")])
    span = float(np.ptp(knots)) or 1.0
    exponent = math.floor(math.log2(span / _CELLS))
    while True:
        made, error = _tabulated(fit, knots, span, exponent)
        if error < _CLOSE:
            return made
        exponent -= 1
        if len(made.mean) >= _MOST_CELLS:
            other = ' or soc.Spline(scale="rank") for both curves' if scale != RANK else ""
            raise FitError(
                f"the scores lie too unevenly on the {scale} scale for a table of {_MOST_CELLS} "
                f"cells: use soc.item_posteriors{other}"
            )


def _tabulated(fit: Fit, knots: Floats, span: float, exponent: int) -> tuple[Curves, float]:
    """Curves in cells of width 2^exponent, and the largest error between the fitted points."""
    scale = fit.prior.mean.scale
    width = 2.0**exponent
    if scale == RANK:
        first, last = 0, round(1 / width) - 1
    else:  # a little beyond the knots, so that the outer cells contain only straight lines
        first = math.floor((knots.min() - _BEYOND * span) / width)
        last = math.floor((knots.max() + _BEYOND * span) / width)
    centre: Floats = np.arange(first, last + 1).astype(float) + 0.5
    x = 0.5 * np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
    score_of, beside = fit.axis("mean").inverse, without_atoms(fit) if fit.atoms else fit
    mean, spread = _moments(beside, score_of((centre[:, None] + x) * width))
    lines, squares = np.vander(x, 4, increasing=True), np.vander(x, 3, increasing=True)
    curves = np.linalg.lstsq(lines, mean.reshape(-1, _POINTS).T)[0].T.reshape(2, -1, 4)
    if scale != RANK:  # exact straight lines far outside
        for end in (0, -1):
            curves[:, end] = 0.0
            curves[:, end, :2] = np.linalg.lstsq(lines[:, :2], mean[:, end].T)[0].T
    covariance = np.linalg.lstsq(squares, spread.reshape(-1, _POINTS).T)[0].T.reshape(3, -1, 3)
    between = np.array([-0.5, -0.2, 0.2, 0.5])
    error = _error(
        _moments(beside, score_of((centre[:, None] + between) * width)),
        curves @ np.vander(between, 4, increasing=True).T,
        covariance @ np.vander(between, 3, increasing=True).T,
    )
    reach = (0, 0) if scale == RANK else _safe_cells(curves, covariance)
    atoms = np.array(fit.atoms)
    if len(atoms):  # curves of an atom are constants
        own = _moments(fit, atoms)
        curves, covariance = (
            np.concatenate([values, np.pad(of[:, :, None], ((0, 0), (0, 0), (0, powers)))], axis=1)
            for values, of, powers in zip((curves, covariance), own, (3, 2), strict=True)
        )
    nodes = _nodes(fit, np.concatenate([score_of(centre * width), atoms]), len(centre))
    made = Curves(
        family_of(fit.prior), SCALES.get(scale, LINEAR),
        _ladder(fit) if scale == RANK else None, exponent, first, len(centre), fit.atoms, reach,
        curves[0], curves[1], covariance.transpose(1, 0, 2), *nodes,
    )  # fmt: skip
    return made, error


def _safe_cells(curves: Floats, covariance: Floats) -> tuple[int, int]:
    """Numbers of cells below the first and above the last that are safe from overflow."""
    far = 2.0 ** np.arange(0, 40, 0.125)
    found = []
    for end, x in ((0, -far), (-1, far)):
        lines = curves[:, end] @ np.vander(x, 4, increasing=True).T
        squares = covariance[:, end] @ np.vander(x, 3, increasing=True).T
        small = (np.abs(lines).max(axis=0) < _LARGEST) & (squares.max(axis=0) < _MOST_VARIANCE)
        found.append(int(far[small].max(initial=0.0)))
    return found[0], found[1]


def _error(exact: tuple[Floats, Floats], mean: Floats, spread: Floats) -> float:
    """Largest error of log mean in prior sd, of log cv2, and of their variances."""
    prior = np.exp(exact[0][1]) + exact[1][0]
    # variances of log mean count relative to the prior's, those of log cv2 as they are
    unit = np.sqrt(np.array([prior, np.ones_like(prior)]))
    both = np.array([prior, np.sqrt(prior), np.ones_like(prior)])
    off = np.abs(mean - exact[0]) / unit
    return float(max(off.max(), (np.abs(spread - exact[1]) / both).max()))


def _draws(fit: Fit, score: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
    """Draws of both curves at scores (n,), in parts."""
    for start in range(0, len(score), _FEW):
        part = slice(start, start + _FEW)
        yield part, *curve_draws(fit, score[part])


def _moments(fit: Fit, score: Floats) -> tuple[Floats, Floats]:
    """Means (2, ...) of log mean and log cv2, and (3, ...) their variance, covariance, variance."""
    found = np.empty((5, score.size))
    for part, m, c in _draws(fit, score.ravel()):
        found[:, part] = moments_of(m, c)
    return found[:2].reshape(2, *score.shape), found[2:].reshape(3, *score.shape)


def _nodes(fit: Fit, score: Floats, cells: int) -> tuple[Floats, Floats, Floats]:
    """Nodes (n, k), (n, j) and weights (n, k, j) of the standardised curves at scores.

    The first are those of the cells.
    """
    _, spread = _moments(fit, score)
    wide = np.sqrt(np.maximum(_MEAN_SPREAD**2 * spread[0], spread[2]))
    numbers = next(numbers for bound, numbers in _NODES if wide.max() < bound)
    parts = []
    for _, m, c in _draws(fit, score):
        x, z = _standard(m), c - c.mean(axis=0)
        z = _standard(z - (x * z).mean(axis=0) * x)
        at_x, at_z = (_gauss(v, number) for v, number in zip((x, z), numbers, strict=True))
        basis_x, basis_z = _lagrange(at_x, x), _lagrange(at_z, z)
        weight = np.einsum("ksn,jsn->nkj", basis_x, basis_z) / len(m)
        alone = basis_x.mean(axis=1).T[:, :, None] * basis_z.mean(axis=1).T[:, None, :]
        parts.append((at_x.T, at_z.T, weight, alone))
    at_x, at_z, weight, alone = map(np.concatenate, zip(*parts, strict=True))
    wide[[0, cells - 1]] = np.inf  # for positions at any distance
    # weights of independent curves are positive: move from them as long as all stay positive
    off = weight - alone
    room = np.where(off < 0, alone / np.where(off < 0, -off, 1.0), np.inf).min(axis=(1, 2))
    share = np.where(wide > _WIDE, np.clip(room, 0.0, 1.0), 1.0)
    return at_x, at_z, alone + share[:, None, None] * off


def _standard(draws: Floats) -> Floats:
    """Draws minus their mean, over their sd; 0 if the sd is only rounding."""
    centre, sd = draws.mean(axis=0), draws.std(axis=0)
    spread = sd > 1e-12 * (1.0 + np.abs(centre))
    return np.where(spread, (draws - centre) / np.where(spread, sd, 1.0), 0.0)


def _gauss(draws: Floats, number: int) -> Floats:
    """Nodes (number, n) of the draws' Gauss rule, or of a normal's if there are too few draws."""
    _, first, _ = gauss_rule(draws, np.zeros_like(draws), number)
    nodes = first.reshape(number, number, -1)[:, 0]
    few = (np.diff(nodes, axis=0) < 1e-3).any(axis=0)
    return np.where(few, hermegauss(number)[0][:, None], nodes)


def _lagrange(nodes: Floats, draws: Floats) -> Floats:
    """Polynomials (number, draws, n) that are 1 at one node and 0 at the others."""
    made = np.ones((len(nodes), *draws.shape))
    for i, j in itertools.permutations(range(len(nodes)), 2):
        made[i] *= (draws - nodes[j]) / (nodes[i] - nodes[j])
    return made


def _ladder(fit: Fit) -> Ladder:
    """Fractions of items below a score, in the smallest number of cells that is accurate enough."""
    axis = fit.axis("mean")
    score, rank = np.array(axis.score), np.array(axis.fraction)
    size = np.abs(score[score != 0])
    octaves = np.unique(np.floor(np.log2(size))) if len(size) else np.zeros(1)
    for most in _STEPS:
        # with scores of both signs, cells near 0 are too few
        grids = [choose_grid(score[0], score[-1], 2.0**o, most) for o in octaves]
        grid = max(grids, key=lambda g: len(np.unique(g.cell(score))))
        made, error = _climbed(grid, score, rank)
        if error < _CLOSE_RANK:
            return made
    if error > _FAR_RANK:
        raise FitError(
            f"scores lie so close that ranks in a table of {most:,} cells are off by {error:.2g}: "
            "use soc.item_posteriors, or a fit with fewer bins or on another scale"
        )
    return made


def _climbed(grid: Grid, score: Floats, rank: Floats) -> tuple[Ladder, float]:
    """Two lines in every cell of the grid, and their largest error at the edges."""
    at = grid.cell(score)
    cell = np.arange(at[0], at[-1] + 1)
    start, end = grid.boundary(cell), grid.boundary(cell + 1)
    low, high = (np.interp(t, score, rank) for t in (start, end))
    slope = (high - low) / (end - start)
    bend, position, slopes = start.copy(), np.array([low, low]), np.array([slope, slope])
    error = 0.0
    for c, edges in zip(*_grouped(at), strict=True):
        c = int(c - at[0])
        t = np.concatenate([[start[c]], score[edges], [end[c]]])
        u = np.concatenate([[low[c]], rank[edges], [high[c]]])
        found, worst = _two_lines(t, u)
        bend[c], position[:, c], slopes[:, c] = found
        error = max(error, worst)
    return Ladder(grid, float(score[0]), float(score[-1]), cell, bend, position, slopes), error


def _grouped(cell: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[slice]]:
    """Cells of increasing edges, and the edges in them."""
    found, first = np.unique(cell, return_index=True)
    ends = [*first[1:], len(cell)]
    return found, [slice(a, b) for a, b in zip(first, ends, strict=True)]


def _two_lines(t: Floats, u: Floats) -> tuple[tuple[float, Floats, Floats], float]:
    """Lines from the first point and to the last, with the least error at the points between.

    Returns the boundary between the two lines, their values there and slopes, and the error.
    """
    best: tuple[tuple[float, Floats, Floats], float] | None = None
    for i in range(1, len(t) - 1):
        # the first line goes through the point before, which is its start if there is one edge
        through = i if i == 1 else i - 1
        run = t[through] - t[0]
        left = (u[through] - u[0]) / run if run > 0 else 0.0
        right = (u[-1] - u[i]) / (t[-1] - t[i])
        line = np.where(t < t[i], u[0] + left * (t - t[0]), u[i] + right * (t - t[i]))
        error = float(np.abs(line - u).max())
        if best is None or error < best[1]:
            values = np.array([u[0] + left * (t[i] - t[0]), u[i]])
            best = (float(t[i]), values, np.array([left, right])), error
    assert best is not None
    return best
