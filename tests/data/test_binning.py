"""Cells are exact and equal in NumPy and in the engine; bins are those of searchsorted."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from soc_pymc.data import binning, kernels
from soc_pymc.data.binning import Folds, fold_of_id
from soc_pymc.data.kernels import KERNELS, score_cell
from soc_pymc.data.sums import Sums, fold_of_items
from soc_pymc.data.tables import expressions, open_table
from soc_pymc.families.cells import ZERO_EXPOSURE, count_cell_range, exposure_cell_range
from tests.data.cell_references import bins_of, count_cell, exposure_cell, fold_of_item

POWERS = np.ldexp(1.0, np.arange(-996, 997))
BORDERS = np.concatenate([POWERS, np.nextafter(POWERS, 0), np.nextafter(POWERS, np.inf)])
SIZES = np.concatenate(
    [
        BORDERS,
        10.0 ** np.random.default_rng(0).uniform(-300, 300, 20_000),
        [1e-300, 1e300, 0.1, 31.0, 31.999, 32.0],
    ]
)

RNG = np.random.default_rng(5)


def engine(expression, **columns):
    """Values of an expression of the columns by the default engine."""
    table = open_table(pa.table(columns))
    return table.select(out=expression(table)).to_pyarrow()["out"].to_numpy()


def test_exposure_cells_agree_bit_for_bit():
    x = np.concatenate([SIZES, [0.0]])
    expected = exposure_cell(x)
    np.testing.assert_array_equal(engine(lambda t: expressions.exposure_cell(t.x), x=x), expected)


def test_count_cells_agree_bit_for_bit():
    rng = np.random.default_rng(1)
    near = np.add.outer(2 ** np.arange(5, 53), [-1, 0, 1]).ravel()
    y = np.concatenate([np.arange(3000), near, (2 ** rng.uniform(5, 53, 9999)).astype(int)])
    np.testing.assert_array_equal(engine(lambda t: expressions.count_cell(t.y), y=y), count_cell(y))


@pytest.mark.parametrize("steps", [0, 1, 9, 20, 36])
@pytest.mark.parametrize("floor", [-1000, -20, 0, 17])
def test_score_cells_agree_bit_for_bit(steps, floor):
    grid = binning.Grid(floor, steps)
    t = np.concatenate([SIZES, -SIZES, [0.0, -0.0]])
    low, high = -1e6, 1e6
    found = engine(lambda table: expressions.score_cell(table.t, grid, low, high), t=t)
    np.testing.assert_array_equal(found, grid.cell(np.clip(t, low, high)))
    low = 2.0**floor
    found = engine(lambda table: expressions.score_cell(table.t, grid, low, 2 * low), t=t)
    np.testing.assert_array_equal(found, grid.cell(np.clip(t, low, 2 * low)))


@given(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100), st.integers(-30, 5), st.integers(0, 36))
def test_score_cells_increase_and_begin_at_their_boundary(a, b, floor, steps):
    grid = binning.Grid(floor, steps)
    low, high = sorted([a, b])
    assert grid.cell(low) <= grid.cell(high)
    for t in (low, high):
        cell = grid.cell(t)
        # boundaries of cells up to 0 belong to the cell before
        assert grid.boundary(cell) <= t <= grid.boundary(cell + 1)
        assert grid.cell(grid.boundary(cell)) == (cell if cell > 0 else cell - 1)


@given(st.floats(1e-250, 1e250))
def test_exposure_ranges_hold_their_numbers(x):
    low, width = exposure_cell_range(exposure_cell(x))
    assert low <= x < low + width
    assert width <= low / 16


@given(st.integers(0, 2**53))
def test_count_ranges_hold_their_numbers(y):
    low, width = count_cell_range(count_cell(y))
    assert low <= y <= low + width
    assert (width == 0) == (y < 32)
    assert width <= low / 16


def test_small_whole_exposures_have_their_own_cells():
    assert len(np.unique(exposure_cell(np.arange(33)))) == 33
    assert len(np.unique(count_cell(np.arange(33)))) == 33
    assert list(exposure_cell_range(ZERO_EXPOSURE)) == [0.0, 0.0]


# ---------------------------------------------------------------- bins by edges


def kernel_bins(edges, scores):
    """Bins that the compiled kernel finds, each score in a group of its own."""
    sums = Sums(KERNELS["poisson"], edges)
    each = np.arange(len(scores))
    sums.add(sums.sort(scores, np.zeros(len(scores)), np.ones(len(scores)), each))
    part = sums.tables()["part"]
    return part["bin"][np.argsort(part["group"])]


def check_bins(edges, scores):
    expected = np.searchsorted(edges, scores, side="right")
    np.testing.assert_array_equal(bins_of(binning.make_lookup(edges), scores), expected)
    np.testing.assert_array_equal(kernel_bins(edges, scores), expected)
    table = open_table(pd.DataFrame({"score": scores, "i": np.arange(len(scores))}))
    found = expressions.with_bins(table, edges).select("i", "bin").to_pyarrow().to_pandas()
    np.testing.assert_array_equal(found.sort_values("i")["bin"], expected)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(-1e30, 1e30, allow_subnormal=False), min_size=1, max_size=12, unique=True),
    st.lists(st.floats(-1e30, 1e30, allow_subnormal=False), max_size=20),
)
def test_bins_are_those_of_searchsorted(edges, scores):
    cuts = np.unique(edges)
    near = [cuts, np.nextafter(cuts, -np.inf), np.nextafter(cuts, np.inf), [0.0, -0.0, 1e99]]
    check_bins(cuts, np.concatenate([*near, scores]))


@pytest.mark.parametrize(
    "edges",
    [
        [0.0],
        [-0.2, 0.0, 0.2],
        [0.5, np.nextafter(0.5, 1), 0.7],
        [-3.0, -2.0, -1.9999999],
        pytest.param(np.linspace(0.1, 0.9, 999), marks=pytest.mark.slow),
        pytest.param(np.linspace(-1, 1, 400), marks=pytest.mark.slow),
        1e6 + np.linspace(0, 1e-3, 50),
        np.geomspace(1e-80, 1e80, 100),
    ],
)
def test_bins_at_chosen_edges(edges):
    edges = np.asarray(edges)
    rng = np.random.default_rng(3)
    inside = rng.uniform(edges[0] - 0.1, edges[-1] + 0.1, 2000)
    near = [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf), inside, [-1e99, 1e99]]
    check_bins(edges, np.concatenate(near))


def test_edges_are_not_rounded_by_the_engine():
    # decimal literals are rounded by some engines: scores at an edge would change bin
    rng = np.random.default_rng(4)
    sizes = np.concatenate([rng.uniform(size=40), 10.0 ** rng.uniform(-40, 40, 40)])
    sizes = np.concatenate([sizes, np.nextafter(sizes, np.inf)])
    edges = np.unique(np.concatenate([sizes, -sizes]))
    check_bins(edges, edges)
    table = open_table(pd.DataFrame({"x": [0.0]}))
    found = table.select(**{f"e{i}": expressions.exact(e) for i, e in enumerate(edges)})
    np.testing.assert_array_equal(found.to_pyarrow().to_pandas().iloc[0], edges)


def test_edges_too_close_for_a_grid_are_all_compared():
    edges = 0.5 + np.arange(12) * np.spacing(0.5)
    assert binning.make_lookup(edges).most == 12
    check_bins(edges, np.concatenate([edges, [0.4, 0.6, np.nextafter(0.5, 0)]]))


@given(st.lists(st.tuples(st.floats(1e-80, 1e80), st.integers(0, 2**53)), min_size=1, max_size=9))
def test_kernel_cells_agree_bit_for_bit(pairs):
    x, y = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    for one_x, one_y in zip(x, y, strict=True):
        found = kernels.exposure_cell(one_x), kernels.count_cell(one_y)
        assert found == (exposure_cell(one_x), count_cell(int(one_y)))
        for grid in (binning.FIRST_GRID, binning.Grid(-20, 4)):
            cells = [score_cell(t, grid.floor, grid.steps) for t in (one_x, -one_x)]
            assert cells == list(grid.cell([one_x, -one_x]))


def test_kernel_cells_agree_at_powers_of_two():
    for x in np.concatenate([BORDERS[np.abs(np.log2(BORDERS)) < 290], [0.0]]):
        found = kernels.exposure_cell(x), kernels.count_cell(0.0)
        assert found == (exposure_cell(x), 0)
        assert score_cell(x, -1022, 14) == binning.FIRST_GRID.cell(x)


# ---------------------------------------------------------------- folds


@pytest.mark.parametrize("folds", [2, 7, 10])
def test_folds_are_even_and_those_of_neighbours_unrelated(folds):
    """Chi-squared tests on ids in a row, far apart, and at random: none below .001 of 24."""
    for ids in (
        np.arange(60_000),
        1000 * np.arange(60_000) + 7,
        10**15 - np.arange(60_000),
        RNG.integers(0, 2**62, 60_000),
    ):
        fold = fold_of_id(ids, folds)
        pairs = np.zeros((folds, folds))
        np.add.at(pairs, (fold[:-1], fold[1:]), 1)
        assert stats.chisquare(np.bincount(fold, minlength=folds)).pvalue > 1e-3
        assert stats.chi2_contingency(pairs)[1] > 1e-3


def test_folds_agree_bit_for_bit():
    ids = np.concatenate([RNG.integers(-(2**63), 2**63 - 1, 5000), [-(2**63), 2**63 - 1, 0, -1]])
    t, x = RNG.normal(size=len(ids)), RNG.gamma(1.0, size=len(ids))
    rule = Folds("id", 7)
    found = engine(lambda table: expressions.fold_of(table, rule), id=ids)
    np.testing.assert_array_equal(found, fold_of_id(ids, 7))
    rule = Folds("item", 7)
    found = engine(lambda table: expressions.fold_of(table, rule), score=t, exposure=x)
    np.testing.assert_array_equal(found, fold_of_item(t, x, 7))
    np.testing.assert_array_equal(found, fold_of_items(t, x, 7))
    assert stats.chisquare(np.bincount(found)).pvalue > 1e-3


# ---------------------------------------------------------------- edges of equal weight


def edges_of(scores, bins, weight=None):
    """Edges chosen in NumPy, by the same steps as in summarize."""
    weight = np.ones(len(scores)) if weight is None else weight
    grid, low, high = binning.FIRST_GRID, -np.inf, np.inf

    def weights(grid, low, high):
        cells, row = np.unique(grid.cell(np.clip(scores, low, high)), return_inverse=True)
        return cells, np.bincount(row, weights=weight)

    cells, of_cell = weights(grid, low, high)
    finer = binning.finer_grid(grid, cells, of_cell, bins)
    if finer is not None:
        grid, low, high = finer
        cells, of_cell = weights(grid, low, high)
    edges = binning.choose_edges(grid, cells, of_cell, bins)
    assert (np.diff(edges) > 0).all()
    return edges


CONTINUOUS = {
    "lognormal": RNG.lognormal(-3, 1, 50_000),
    "uniform": RNG.uniform(size=50_000),
    "narrow": RNG.uniform(0.5, 0.5001, 50_000),
    "narrower": RNG.uniform(1e6, 1e6 + 10, 50_000),
    "signed": RNG.normal(size=50_000),
    "negative": -RNG.lognormal(0, 2, 50_000),
    "outlier": np.append(RNG.uniform(0.1, 0.2, 50_000), [1e90, 1e-90]),
    "dust at zero": np.append(RNG.normal(size=50_000), [1e-300, -1e-300, 0.0]),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_bins_of_continuous_scores_are_equal(name):
    scores = CONTINUOUS[name]
    edges = edges_of(scores, 200)
    sizes = np.bincount(np.searchsorted(edges, scores, side="right"), minlength=200)
    assert len(edges) == 199
    assert sizes.max() <= 1.04 * len(scores) / 200
    assert sizes.min() >= 0.96 * len(scores) / 200


def test_bins_are_equal_in_their_weight():
    scores = CONTINUOUS["lognormal"]
    weight = scores * RNG.gamma(2.0, size=len(scores))
    edges = edges_of(scores, 100, weight)
    sums = np.bincount(np.searchsorted(edges, scores, side="right"), weights=weight)
    np.testing.assert_allclose(sums, sums.mean(), rtol=0.07)


def test_ties_stay_together_and_a_heavy_score_counts_as_one_bin():
    scores = np.concatenate([np.full(30_000, 0.3), RNG.uniform(size=70_000)])
    edges = edges_of(scores, 50)
    sizes = np.bincount(np.searchsorted(edges, scores, side="right"))
    assert 49 <= len(sizes) <= 50
    others = np.sort(sizes)[:-1]
    assert others.max() < 1.6 * 70_000 / 49


def test_few_scores_have_a_bin_each():
    scores = np.repeat([0.1, 0.2, 0.5, 0.9], [1000, 10, 1, 500])
    edges = edges_of(scores, 4)
    np.testing.assert_array_equal(np.searchsorted(edges, [0.1, 0.2, 0.5, 0.9], "right"), range(4))
