"""Statistics with clusters, groups and days: additive, and the same in all sources."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import soc_pymc as soc
from soc_pymc._model.rows import rows_of
from tests.data.cell_references import assert_same, block_of_cluster
from tests.examples import COUNT_ROLES, crossed_frame, thinned
from tests.tables import BACKENDS, KINDS, remote, source_of


def items_of(frame, kind="counts", cluster="c"):
    make, roles = KINDS[kind]
    return make(frame, **roles, cluster=cluster)


def table_of(n=3000, clusters=40, seed=0):
    """Returns items of campaigns, with outcomes of every kind."""
    rng = np.random.default_rng(seed)
    size = rng.integers(2, 30, n)
    return pd.DataFrame(
        {
            "t": rng.uniform(0.1, 0.9, n),
            "N": size,
            "y": rng.binomial(size, rng.beta(1.0, 3.0, n)),
            "v": rng.normal(size=n),
            "s": rng.choice([0.5, 1.0], n),
            "x": rng.gamma(size),
            "c": [f"campaign {k}" for k in rng.integers(0, clusters, n)],
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_without_blocks_statistics_are_those_without_clusters(kind):
    frame = table_of()
    stats = soc.summarize(items_of(frame, kind), bins=10, progress=False)
    plain = soc.summarize(items_of(frame, kind, None), edges=stats.edges, progress=False)
    for name in stats.data:
        if stats.data[name].dims == ("bin",):
            np.testing.assert_allclose(stats.data[name], plain.data[name], rtol=1e-12, atol=1e-11)
    with pytest.raises(soc.StatisticsError, match="roles"):
        _ = stats + plain


def test_a_fold_holds_whole_clusters():
    frame = table_of()
    stats = soc.summarize(items_of(frame), bins=10, folds=7, progress=False)
    block = block_of_cluster(frame["c"])
    assert stats.blocks == len(np.unique(block))
    for fold in range(7):
        assert stats.of_fold(fold).n_items == (block % 7 == fold).sum()
        assert stats.of_fold(fold).n_items + stats.without_fold(fold).n_items == len(frame)
    assert soc.summarize(items_of(frame), folds=0, progress=False).folds == 0


def test_whole_numbers_text_and_categories_are_the_same_clusters(tmp_path):
    frame = table_of().assign(c=lambda table: table["c"].str.removeprefix("campaign ").astype(int))
    frame.to_parquet(tmp_path / "items.parquet")
    typed = [frame.astype({"c": kind}) for kind in (str, "category")]
    options = {"bins": 10, "progress": False}
    stats = soc.summarize(items_of(frame), **options)
    for source in (*typed, tmp_path / "items.parquet"):
        assert_same(stats, soc.summarize(items_of(source), **options))


GROUP = ("country", "device")
OPTIONS = {"on_leakage": "ignore", "progress": False}


@pytest.fixture(scope="module")
def crossed():
    return crossed_frame()


def grouped_statistics(source, group=GROUP, **options):
    items = soc.PoissonItems(source, **COUNT_ROLES, group=group)
    options = options if "edges" in options else {"bins": 12} | options
    return soc.summarize(items, **OPTIONS, **options)


def test_groups_are_the_combinations_that_occur(crossed):
    stats = grouped_statistics(crossed)
    assert stats.groups == tuple(sorted({f"{c} × {d}" for c, d in crossed[list(GROUP)].to_numpy()}))
    assert [(grouping.column, grouping.levels) for grouping in stats.groupings] == [
        ("country", ("c00", "c01", "c02", "c03")),
        ("device", ("d00", "d01")),
    ]
    codes = (grouping.code for grouping in stats.groupings)
    for label, country, device in zip(stats.groups, *codes, strict=True):
        assert label == f"c0{country} × d0{device}"
    part, code = stats.table("part"), stats.groups.index("c01 × d00")
    expected = ((crossed["country"] == "c01") & (crossed["device"] == "d00")).sum()
    assert part["n"][part["group"] == code].sum() == expected


def test_labels_of_every_type(crossed):
    numbers = crossed.assign(
        year=crossed["country"].str[1:].astype(int), new=crossed["device"] == "d01"
    )
    for source in (numbers, remote(numbers)):
        assert grouped_statistics(source, ("year", "new")).groups[:2] == ("0 × false", "0 × true")
    for group in (["country"], ("country",)):
        assert (
            grouped_statistics(crossed, group).groups
            == grouped_statistics(crossed, "country").groups
        )


@pytest.mark.parametrize("column", ["country", "score", "gap", "half", "times", "own"])
def test_columns_that_are_no_groups_are_refused(crossed, column):
    """A column twice, of another role, with gaps, fractions or the mark, or a level an item."""
    crossed = crossed.assign(half=0.5, gap="a", times="a", own=np.arange(len(crossed)))
    crossed.loc[:2, "gap"], crossed.loc[:1, "times"] = None, "a×b"
    for source in (crossed, remote(crossed)):
        with pytest.raises(soc.ItemsError, match=f"'{column}'"):
            grouped_statistics(source, ("country", column))


DAYS, MONDAY = 6, np.datetime64("2024-02-26")


def dated_items(n=900, seed=0):
    """Returns dated items of three countries, with counts, values and successes."""
    rng = np.random.default_rng(seed + 1)
    day = MONDAY + np.sort(rng.integers(0, DAYS, n)).astype("timedelta64[D]")
    further = {"day": day.astype("datetime64[us]"), "c": rng.choice(["FR", "DE", "US"], n)}
    return table_of(n, seed=seed).assign(**further)


def statistics(frame, kind="counts", date="day", group=None, **options):
    make, roles = KINDS[kind]
    options = options if "edges" in options else {"bins": 10} | options
    items = make(frame, **roles, group=group, date=date)
    return soc.summarize(items, progress=False, **options)


@pytest.fixture(scope="module")
def dated():
    return statistics(dated_items(), group="c")


def by_day(stats):
    return [(day, stats.window("1d", day)) for day in stats.days]


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
    frame = dated_items()
    stats = statistics(frame, kind)
    plain = statistics(frame, kind, None, edges=stats.edges)
    assert len(plain.days) == 0
    assert_same_tables(stats, plain)
    for day, of_day in by_day(stats):
        items = frame[frame["day"] == day]
        assert of_day.data.equals(statistics(items, kind, edges=stats.edges).data)


@settings(max_examples=4)
@given(
    st.integers(0, DAYS - 1), st.integers(1, DAYS + 2), st.integers(0, 3),
    st.sampled_from(list(KINDS)),
)  # fmt: skip
def test_a_window_is_the_sum_of_its_days(last, length, seed, kind):
    frame = dated_items(300, seed)
    stats = statistics(frame, kind)
    day = stats.days[last]
    window = stats.window(f"{length}d", day)
    inside = frame[(frame["day"] <= day) & (frame["day"] > day - np.timedelta64(length, "D"))]
    parts = [part for date, part in by_day(stats) if date in inside["day"].to_numpy()]
    assert window.data.equals(sum(parts).data)
    assert_same_tables(window, statistics(inside, kind, edges=stats.edges))
    assert (window.days == np.unique(inside["day"].astype("datetime64[s]"))).all()


def test_days_and_groups_are_kept_apart(dated):
    frame = dated_items()
    assert dated.groups == ("DE", "FR", "US")
    assert [str(day) for day in dated.days[[0, -1]]] == ["2024-02-26", "2024-03-02"]
    part = dated.window("1d", "2024-02-29").table("part")
    french = part["n"][part["group"] == 1].sum()
    assert french == ((frame["c"] == "FR") & (frame["day"] == "2024-02-29")).sum()


@pytest.mark.parametrize("backend", thinned([*BACKENDS, "remote"], ("remote", "csv")))
def test_sources_agree_on_groups_and_days(crossed, dated, backend, tmp_path):
    """Times count for the day they are stored with."""
    frame = dated_items()
    frame["day"] += pd.Timedelta("13h")
    source = source_of(backend, pa.Table.from_pandas(frame), tmp_path)
    assert_same(statistics(source, group="c", edges=dated.edges), dated)
    expected = grouped_statistics(crossed)
    source = source_of(backend, pa.Table.from_pandas(crossed, preserve_index=False), tmp_path)
    assert_same(expected, grouped_statistics(source, edges=expected.edges))


@pytest.mark.parametrize("form", ["date", "text"])
def test_dates_are_the_same_in_every_form(dated, form):
    frame = dated_items()
    days = frame["day"].dt.date if form == "date" else frame["day"].dt.strftime("%Y-%m-%d")
    assert_same(statistics(frame.assign(day=days), group="c", edges=dated.edges), dated)


def weights_of(stats):
    """Returns weights that halve every two days up to the fifth day, and are 0 after it."""
    age = (np.datetime64("2024-03-01") - stats.days).astype(int)
    return np.where(age >= 0, 0.5 ** (age / 2), 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_decay_weighs_every_sum(kind):
    stats = statistics(dated_items(), kind)
    weighted = stats.decay("2d", "2024-03-01")
    pairs = list(zip(weights_of(stats), [part for _, part in by_day(stats)], strict=True))
    for name in ("n", "sum_y", "sum_t"):
        expected = sum(weight * part.data[name] for weight, part in pairs)
        np.testing.assert_allclose(weighted.data[name], expected, rtol=1e-12, atol=1e-12)
    assert len(weighted.days) == 0
    assert weighted.n_items == round(float(weighted.data["n"].sum()))


LEVELS = {
    "counts": ((-1.0, -0.5), (-0.5, 0.5)),
    "values": ((0.2, -1.0), (-0.2, 0.5)),
    "successes": ((-1.0, -0.5), (0.0, 0.5)),
    "amounts": ((-1.0, -0.5), (-0.5, 0.5)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_of_weighted_days_is_the_weighted_sum(kind):
    """Of two levels of the curves, because constants are free; cells of small counts are exact."""
    stats = statistics(dated_items(), kind)
    family = stats.family

    def gain(part):
        sums = rows_of(part, family)[1]
        values = [
            sums.values(*(np.full((1, len(sums.total)), level) for level in levels)).sum()
            for levels in LEVELS[kind]
        ]
        return values[0] - values[1]

    pairs = zip(weights_of(stats), [part for _, part in by_day(stats)], strict=True)
    expected = sum(weight * gain(part) for weight, part in pairs if weight)
    assert gain(stats.decay("2d", "2024-03-01")) == pytest.approx(expected, rel=1e-6)


def test_only_statistics_of_the_same_weights_are_added(dated):
    weighted = dated.decay("3d")
    with pytest.raises(soc.StatisticsError, match="weights"):
        _ = weighted + dated.decay("4d")
    assert (weighted + weighted).n_items == round(2 * float(weighted.data["n"].sum()))
