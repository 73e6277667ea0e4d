"""Bins are those of searchsorted, hold equal weights, and cells hold their numbers."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import soc_pymc as soc
from soc_pymc._model.rows import rows_of
from tests.checks import hand_made
from tests.data.cell_references import count_cell, size_cell
from tests.examples import thinned
from tests.posterior.references import log_probability
from tests.tables import KINDS, ROLES, VALUE_ROLES, remote, simulated

RNG = np.random.default_rng(5)
QUIET = {"on_leakage": "ignore", "progress": False}


def statistics(scores, source=pd.DataFrame, **options):
    """Returns statistics of items with these scores and nothing else of interest."""
    frame = pd.DataFrame({"t": scores, "y": 0, "N": 1.0})
    items = soc.PoissonItems(source(frame), **ROLES)
    return soc.summarize(items, **{"joint": False, **QUIET, **options})


def assert_bins(edges, scores, sources=(pd.DataFrame, remote)):
    """Checks each bin's number of items and range of scores, in memory and on an engine."""
    bin_of = np.searchsorted(edges, scores, side="right")
    expected = pd.Series(scores).groupby(bin_of).agg(["size", "min", "max"])
    expected = expected.reindex(range(len(edges) + 1))
    for source in sources:
        data = statistics(scores, source, edges=edges).data
        np.testing.assert_array_equal(data["n"], expected["size"].fillna(0))
        np.testing.assert_array_equal(data["score_min"], expected["min"])
        np.testing.assert_array_equal(data["score_max"], expected["max"])


def near(edges):
    """Returns scores at the edges, and next to them."""
    around = [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    return np.concatenate([*around, [0.0, -0.0, -1e89, 1e89]])


FINITE = st.floats(-1e30, 1e30, allow_subnormal=False)


@pytest.mark.parametrize("source", thinned([pd.DataFrame, remote], [pd.DataFrame]))
@settings(max_examples=12)
@given(st.lists(FINITE, min_size=1, max_size=12, unique=True), st.lists(FINITE, max_size=20))
def test_bins_are_those_of_searchsorted(source, edges, scores):
    cuts = np.unique(edges)
    assert_bins(cuts, np.concatenate([near(cuts), scores]), [source])


SIZES = np.concatenate([RNG.uniform(size=40), 10.0 ** RNG.uniform(-40, 40, 40)])
EDGES = {
    "zero": [0.0],
    "two neighbours": [0.5, np.nextafter(0.5, 1), 0.7],
    "too close for a grid": 0.5 + np.arange(12) * np.spacing(0.5),
    "negative": [-3.0, -2.0, -1.9999999],
    "narrow": 1e6 + np.linspace(0, 1e-3, 50),
    "wide": np.geomspace(1e-80, 1e80, 100),
    # decimal literals are rounded by some engines
    "no short decimals": np.unique(np.concatenate([SIZES, -np.nextafter(SIZES, np.inf)])),
    "many": np.linspace(-1, 1, 999),
}


@pytest.mark.parametrize("name", thinned(EDGES, lambda name: name != "many"))
def test_bins_at_chosen_edges(name):
    edges = np.asarray(EDGES[name])
    inside = RNG.uniform(edges[0] - 0.1, edges[-1] + 0.1, 2000)
    assert_bins(edges, np.concatenate([near(edges), inside]))


CONTINUOUS = {
    "lognormal": RNG.lognormal(-3, 1, 50_000),
    "narrow": RNG.uniform(0.5, 0.5001, 50_000),
    "far from 0": RNG.uniform(1e6, 1e6 + 10, 50_000),
    "signed": RNG.normal(size=50_000),
    "negative": -RNG.lognormal(0, 2, 50_000),
    "outliers": np.append(RNG.uniform(0.1, 0.2, 50_000), [1e80, 1e-80]),
    "dust at 0": np.append(RNG.normal(size=50_000), [1e-300, -1e-300, 0.0]),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_bins_of_continuous_scores_have_equal_numbers_of_items(name):
    """To 4%, as cells of the grid that edges come from hold at most a 16th of a bin."""
    n = statistics(CONTINUOUS[name], bins=200).data["n"].to_numpy()
    assert len(n) == 200
    assert np.abs(n / n.mean() - 1).max() < 0.04


@pytest.mark.parametrize(("name", "equal"), [("gamma", "count"), ("beta", "successes")])
def test_bins_have_equal_amounts(name, equal, example):
    """An edge misses its place by at most half an item on either side."""
    frame = example(name).frame
    edges = soc.summarize(example(name).items, bins=10, equal=equal, **QUIET).edges
    assert len(edges) == 9
    amount = np.bincount(np.searchsorted(edges, frame["score"], side="right"), frame[equal])
    assert np.abs(amount - amount.mean()).max() <= frame[equal].max()


def test_default_bins_grow_with_the_items_and_are_halved_towards_the_ends():
    scores = CONTINUOUS["lognormal"]
    assert 1000 < statistics(scores).bins <= 1015
    n = statistics(scores[:2000]).data["n"].to_numpy()
    assert 200 < len(n) <= 210
    assert n[0] == n[-1] == 1
    assert (np.abs(n[5:-5] - 10) <= 3).all()
    assert (np.diff(n[:5]) >= 0).all()
    assert 100 < statistics(scores[:150]).bins <= 110
    assert statistics(scores[:60]).bins == 60


def test_equal_scores_stay_together():
    """A score with a third of the items counts as one bin, and few scores have a bin each."""
    others = RNG.uniform(1e-4, 1.0, size=70_000)  # a score of 0 would have a bin to itself
    scores = np.concatenate([np.full(30_000, 0.3), others]).round(4)
    with pytest.warns(soc.ItemsWarning, match="shared by many"):
        n = statistics(scores, bins=50).data["n"].to_numpy()
    assert len(n) in (50, 51, 52)
    assert np.sort(n)[-2] < 1.6 * 70_000 / 49
    scores = np.repeat([0.1, 0.2, 0.5, 0.9], [1000, 10, 1, 500])
    with pytest.warns(soc.ItemsWarning, match="4 bins instead of 20"):
        assert statistics(scores, bins=20).data["n"].to_numpy().tolist() == [1000, 10, 1, 500]
    assert statistics(scores).bins == 4  # which nobody asked to be more


@settings(max_examples=50)
@given(st.floats(1e-250, 1e250), st.integers(0, 2**53))
def test_cells_hold_their_numbers(size, count):
    """Sizes within a 16th; counts below 32 exactly, others within a 16th."""

    def end(cell):
        return np.ldexp(1.0 + cell % 16 / 16, cell // 16)

    cell = int(size_cell(size))
    assert end(cell) <= size < end(cell + 1) <= end(cell) * (1 + 1 / 16)
    cell = int(count_cell(count))
    octaves = cell + 16 * 5 - 32  # cells from 32 = 2^5 on
    assert cell == count if count < 32 else end(octaves) <= count <= end(octaves + 1)


@pytest.mark.filterwarnings("ignore:columns .* loses digits")
@pytest.mark.parametrize("source", [pd.DataFrame, remote])
def test_counts_are_totalled_exactly(source):
    frame = pd.DataFrame({"t": [0.5, 0.5, 0.5], "y": [2**53 - 1, 2**53 - 1, 1], "N": 1.0})
    stats = soc.summarize(soc.PoissonItems(source(frame), **ROLES), edges=[0.6], **QUIET)
    assert int(stats.data["sum_y"].sum()) == 2**54 - 1
    many = pd.DataFrame({"t": 0.5, "y": np.full(600, 2**53 - 1), "N": 1.0})
    with pytest.raises(soc.ItemsError, match="counted exactly"):
        soc.summarize(soc.PoissonItems(source(many), **ROLES), edges=[0.6], **QUIET)


@pytest.mark.parametrize(("size", "warns"), [(1e9, False), (3e11, True)])
def test_counts_whose_likelihood_loses_digits_are_named(size, warns):
    """Beyond, a fit of 1,000 items took 40 s in place of 0.7 s, or failed."""
    frame = simulated("counts", 1, 0.5, size, 1000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        soc.summarize(soc.PoissonItems(frame, **ROLES), **QUIET)
    texts = [str(x.message) for x in caught if "loses digits" in str(x.message)]
    assert len(texts) == warns
    assert not warns or ("'y' and 'N'" in texts[0] and "divide both by 100 and" in texts[0])


def shifted(frame, shift):
    return frame.assign(t=frame["t"] + shift, v=frame["v"] + shift)


def of_values(frame, source=pd.DataFrame, edges=(-1.0, 0.0, 1.0), **roles):
    items = soc.NormalItems(source(frame), **VALUE_ROLES, **roles)
    return soc.summarize(items, edges=edges, joint=False, **QUIET)


@pytest.mark.parametrize("source", [pd.DataFrame, remote])
def test_sums_that_lose_precision_are_refused(source):
    """Where they are accepted, the variation about a bin's mean is right to 1e-4."""
    frame = simulated("values", 1, 0.5, n=20_000)
    for shift in (0.0, 3e4):
        moved, edges = shifted(frame, shift), np.array([-1.0, 0.0, 1.0]) + shift
        data = of_values(moved, source, edges).data
        n, total, squares = (data[name].to_numpy() for name in ("n", "sum_y", "sum_y2"))
        variance = moved.groupby(np.searchsorted(edges, moved["t"], side="right"))["v"].var(ddof=0)
        np.testing.assert_allclose(squares / n - (total / n) ** 2, variance, rtol=1e-4)
    with pytest.raises(soc.ItemsError, match=r"'v': .*subtract a constant"):
        of_values(shifted(frame, 1e7), source, [1e7])


def test_precision_is_checked_by_group():
    """Distant groups vary much together, but each must keep its precision."""
    frame = simulated("values", 1, 0.5).assign(g=lambda table: table.index % 2)
    frame["v"] += 1e9 * frame["g"]
    assert of_values(frame).n_items == len(frame)
    with pytest.raises(soc.ItemsError, match="subtract a constant"):
        of_values(frame, group="g")


def log_marginals(kind, outcome, size, *curves):
    """Returns the items' log marginals at one pair of the curves' levels, by SciPy."""
    case = hand_made.KINDS["trials" if kind == "successes" else kind]
    law = case.marginal(*case.moments(*curves), size)
    return log_probability(law, outcome)


@pytest.mark.parametrize("kind", KINDS)
def test_wide_cells_cost_little_of_the_likelihood(kind):
    """Likelihood of statistics against that of the items, up to a constant.

    Dispersions from almost none to large at the bin's mean: within 0.01 nats of 5,000 items.
    """
    make, roles = KINDS[kind]
    trials = RNG.integers(0, 5000, 5000) if kind == "successes" else None
    frame = simulated(kind, 2, 0.5, trials)
    stats = soc.summarize(make(frame, **roles), edges=[], **QUIET)
    outcome, size = (frame[name].to_numpy(float) for name in list(roles.values())[1:])
    first = {
        "counts": lambda: np.log(outcome.sum() / size.sum()),
        "amounts": lambda: np.log(outcome.sum() / size.sum()),
        "values": outcome.mean,
        "successes": lambda: np.log(outcome.sum() / (size - outcome).sum()),
    }[kind]()
    data = rows_of(stats, stats.family)[1]
    gaps = []
    for second in (-9.0, -4.0, -1.0, 0.0, 1.0):
        exact = log_marginals(kind, outcome, size, first, second)
        of_cells = data.values(np.full((1, 1), first), np.full((1, 1), second)).sum()
        gaps.append(of_cells - exact.sum())
    assert np.ptp(gaps) < 0.01
