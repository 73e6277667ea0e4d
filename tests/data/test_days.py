"""Statistics with days: one slice a day, the same from every source, windows and weights."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import soc_pymc as soc
from soc_pymc._model.rows import rows_of
from soc_pymc.families.family import family_of_kind
from tests.data.cell_references import assert_same
from tests.data.test_clusters import table_of as clustered_items
from tests.tables import BACKENDS, KINDS, source_of
from tests.thinning import thinned

DAYS, MONDAY = 6, np.datetime64("2024-02-26")


def table_of(n=900, seed=0):
    """Returns dated items of three countries, with counts, values and successes."""
    rng = np.random.default_rng(seed + 1)
    day = MONDAY + np.sort(rng.integers(0, DAYS, n)).astype("timedelta64[D]")
    further = {"day": day.astype("datetime64[us]"), "c": rng.choice(["FR", "DE", "US"], n)}
    return clustered_items(n, seed=seed).assign(**further)


def statistics(frame, kind="counts", date="day", group=None, **options):
    make, roles = KINDS[kind]
    options = options if "edges" in options else {"bins": 10} | options
    return soc.summarize(make(frame, **roles, group=group), date=date, progress=False, **options)


@pytest.fixture(scope="module")
def dated():
    return statistics(table_of(), group="c")


def assert_same_tables(one, other):
    """Checks tables of all days together, whatever days they have."""
    for name in ("part", "joint", list(one.data.sizes)[2]):
        for column, values in one.table(name).items():
            others = other.table(name)[column]
            np.testing.assert_allclose(values, others, rtol=1e-12, atol=1e-12)
            if values.dtype.kind == "i":
                np.testing.assert_array_equal(values, others)


@pytest.mark.parametrize("kind", KINDS)
def test_days_are_those_of_their_items(kind):
    """A day's rows are summed in the same order: equal bit for bit."""
    frame = table_of()
    stats = statistics(frame, kind)
    plain = statistics(frame, kind, None, edges=stats.edges)
    assert len(plain.days) == 0
    assert_same_tables(stats, plain)
    for day, of_day in stats.by_day():
        items = frame[frame["day"] == day]
        assert of_day.data.equals(statistics(items, kind, edges=stats.edges).data)


@settings(max_examples=4)
@given(
    st.integers(0, DAYS - 1), st.integers(1, DAYS + 2), st.integers(0, 3),
    st.sampled_from(list(KINDS)),
)  # fmt: skip
def test_a_window_is_the_sum_of_its_days(last, length, seed, kind):
    frame = table_of(300, seed)
    stats = statistics(frame, kind)
    day = stats.days[last]
    window = stats.window(f"{length}d", day)
    inside = frame[(frame["day"] <= day) & (frame["day"] > day - np.timedelta64(length, "D"))]
    parts = [part for date, part in stats.by_day() if date in inside["day"].to_numpy()]
    assert window.data.equals(sum(parts).data)
    assert_same_tables(window, statistics(inside, kind, edges=stats.edges))
    assert (window.days == np.unique(inside["day"].astype("datetime64[s]"))).all()


def test_days_and_groups_are_kept_apart(dated):
    frame = table_of()
    assert dated.groups == ("DE", "FR", "US")
    assert [str(day) for day in dated.days[[0, -1]]] == ["2024-02-26", "2024-03-02"]
    part = dated.window("1d", "2024-02-29").table("part")
    french = part["n"][part["group"] == 1].sum()
    assert french == ((frame["c"] == "FR") & (frame["day"] == "2024-02-29")).sum()


@pytest.mark.parametrize("backend", thinned(BACKENDS, ("duckdb", "parquet")))
def test_sources_agree_on_days(dated, backend, tmp_path):
    """Times count for the day they are stored with."""
    frame = table_of()
    frame["day"] += pd.Timedelta("13h")
    source = source_of(backend, pa.Table.from_pandas(frame), tmp_path)
    assert_same(statistics(source, group="c", edges=dated.edges), dated)


@pytest.mark.parametrize("form", ["date", "text"])
def test_dates_are_the_same_in_every_form(dated, form):
    frame = table_of()
    days = frame["day"].dt.date if form == "date" else frame["day"].dt.strftime("%Y-%m-%d")
    assert_same(statistics(frame.assign(day=days), group="c", edges=dated.edges), dated)


def test_days_and_weights_are_saved(tmp_path):
    stats = statistics(table_of(300), edges=[0.5], joint=False)
    for each in (stats, stats.decay("2d")):
        each.save(tmp_path / "stats.nc")
        again = soc.load_statistics(tmp_path / "stats.nc")
        assert again.data.equals(each.data)
        assert (again.days == each.days).all()
        assert again.weights == each.weights


def weights_of(stats):
    """Returns weights that halve every two days up to the fifth day, and are 0 after it."""
    age = (np.datetime64("2024-03-01") - stats.days).astype(int)
    return np.where(age >= 0, 0.5 ** (age / 2), 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_decay_weighs_every_sum(kind):
    stats = statistics(table_of(), kind)
    weighted = stats.decay("2d", "2024-03-01")
    pairs = list(zip(weights_of(stats), [part for _, part in stats.by_day()], strict=True))
    for name in ("n", "sum_y", "sum_t"):
        expected = sum(weight * part.data[name] for weight, part in pairs)
        np.testing.assert_allclose(weighted.data[name], expected, rtol=1e-12, atol=1e-12)
    assert len(weighted.days) == 0
    assert weighted.n_items == round(float(weighted.data["n"].sum()))


LEVELS = {
    "counts": ((-1.0, -0.5), (-0.5, 0.5)),
    "values": ((0.2, -1.0), (-0.2, 0.5)),
    "successes": ((-1.0, -0.5), (0.0, 0.5)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_of_weighted_days_is_the_weighted_sum(kind):
    """Of two levels of the curves, because constants are free; cells of small counts are exact."""
    stats = statistics(table_of(), kind)
    family = family_of_kind(stats.kind)

    def gain(part):
        sums = rows_of(part, family)[1]
        values = [
            sums.values(*(np.full((1, len(sums.total)), level) for level in levels)).sum()
            for levels in LEVELS[kind]
        ]
        return values[0] - values[1]

    pairs = zip(weights_of(stats), [part for _, part in stats.by_day()], strict=True)
    expected = sum(weight * gain(part) for weight, part in pairs if weight)
    assert gain(stats.decay("2d", "2024-03-01")) == pytest.approx(expected, rel=1e-6)


def test_only_statistics_of_the_same_weights_are_added(dated):
    weighted = dated.decay("3d")
    with pytest.raises(soc.StatisticsError, match="weights"):
        _ = weighted + dated.decay("4d")
    assert (weighted + weighted).n_items == round(2 * float(weighted.data["n"].sum()))
