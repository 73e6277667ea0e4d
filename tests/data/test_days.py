"""Statistics with days: one slice a day, the same from every source, windows and weights."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import soc_pymc as soc
from soc_pymc.data.days import DAY, is_day
from soc_pymc.data.statistics import make_statistics
from tests.tables import BACKENDS, KINDS, source_of

QUIET = {"progress": False}
DAYS, FIRST = 6, np.datetime64("2024-02-26")


def table_of(n=1200, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.integers(2, 30, n)
    day = FIRST + np.sort(rng.integers(0, DAYS, n)).astype("timedelta64[D]")
    return pd.DataFrame(
        {
            "t": rng.uniform(0.1, 0.9, n),
            "N": size.astype(float),
            "y": rng.binomial(size, rng.beta(1.0, 3.0, n)),
            "v": rng.normal(size=n),
            "s": rng.choice([0.5, 1.0], n),
            "c": rng.choice(["FR", "DE", "US"], n),
            "day": day.astype("datetime64[us]"),
        }
    )


def statistics(frame, kind="counts", date="day", group=None, **options):
    make, roles = KINDS[kind]
    options = {"bins": 10, "joint": True, **QUIET, **options}
    if "edges" in options:
        del options["bins"]
    return soc.summarize(make(frame, **roles, group=group), date=date, **options)


@pytest.fixture(scope="module")
def dated():
    return statistics(table_of(), group="c")


@pytest.mark.parametrize("kind", KINDS)
def test_days_are_those_of_their_items(kind):
    """The day's rows are summed by the same kernel in the same order: equal bit for bit."""
    frame = table_of()
    whole = statistics(frame, kind, "day")
    plain = statistics(frame, kind, None, edges=whole.edges)
    assert not len(plain.days)
    assert_same_sums(whole, plain)
    for day, own in whole.by_day():
        items = frame[frame["day"] == day]
        assert own.data.equals(statistics(items, kind, "day", edges=whole.edges).data)
        assert own.n_items == len(items)


@given(
    last=st.integers(0, DAYS - 1),
    length=st.integers(1, DAYS + 2),
    seed=st.integers(0, 3),
    kind=st.sampled_from(list(KINDS)),
)
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_window_is_the_sum_of_its_days(last, length, seed, kind):
    """Bit for bit, and of those items together in all whole numbers."""
    frame = table_of(300, seed)
    whole = statistics(frame, kind)
    day = whole.days[last]
    found = whole.window(f"{length}d", day)
    inside = frame[(frame["day"] <= day) & (frame["day"] > day - np.timedelta64(length, "D"))]
    parts = [own for date, own in whole.by_day() if date in inside["day"].to_numpy()]
    assert found.data.equals(sum(parts).data)
    assert_same_sums(found, statistics(inside, kind, edges=whole.edges))
    assert (found.days == np.unique(inside["day"].astype("datetime64[s]"))).all()


def assert_same_sums(one, other):
    """Whole numbers equal, real sums to rounding; other orders of addition round differently."""
    for name in one._outcome.tables:
        both = one.table(name), other.table(name)
        assert both[0].keys() == both[1].keys()
        for column, values in both[0].items():
            np.testing.assert_allclose(values, both[1][column], rtol=1e-13, atol=1e-13)
            if values.dtype.kind == "i":
                assert (values == both[1][column]).all()


def test_days_and_groups_are_kept_apart(dated):
    frame = table_of()
    assert dated.groups == ("DE", "FR", "US")
    assert [str(day) for day in dated.days[[0, -1]]] == ["2024-02-26", "2024-03-02"]
    own = dated.of_group("FR").window("1d", "2024-02-29")
    assert own.n_items == ((frame["c"] == "FR") & (frame["day"] == "2024-02-29")).sum()
    assert [g.levels for g in dated.groupings] == [("DE", "FR", "US")]


def test_dates_are_the_same_in_every_form(dated):
    """Dates, times and text; in files, in memory and on engines, with days as they are stored."""
    frame = table_of()
    frame["date"] = frame["day"].dt.date
    frame["text"] = frame["day"].dt.strftime("%Y-%m-%d")
    frame["time"] = frame["day"] + pd.Timedelta("23h59min")
    for form in ("date", "text", "time"):
        assert_days(statistics(frame, date=form, group="c", edges=dated.edges), dated)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sources_agree_on_days(dated, backend, tmp_path, monkeypatch):
    import pyarrow as pa

    monkeypatch.chdir(tmp_path)
    frame = table_of()
    frame["day"] += pd.Timedelta("13h")
    source = source_of(backend, pa.Table.from_pandas(frame))
    assert_days(statistics(source, group="c", edges=dated.edges), dated)


def assert_days(one, other):
    assert one.data["label"].to_numpy().tolist() == other.data["label"].to_numpy().tolist()
    assert_same_sums(one, other)
    for name in one._outcome.tables:
        assert (one._stored(name)["n"] == other._stored(name)["n"]).all()


@given(st.dates() | st.from_regex(r"\A\d{4}-\d\d-\d\d\Z"))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_the_pattern_of_days_is_the_calendar(text):
    text = str(text)
    try:
        right = bool(pd.notna(np.datetime64(text, "D"))) and text.isascii()
    except ValueError:
        right = False
    assert is_day(text) == right, DAY


def test_days_are_saved(dated, tmp_path):
    for stats in (dated, dated.decay("2d")):
        stats.save(tmp_path / "s.nc")
        again = soc.load_statistics(tmp_path / "s.nc")
        assert again.data.equals(stats.data)
        assert (again.days == stats.days).all()
        assert again.weights == stats.weights


def test_damaged_days_are_refused(dated, tmp_path):
    labels = ["a × FR", *dated.data["label"].to_numpy()[1:]]
    broken = dated.data.assign_coords(label=("label", np.array(sorted(labels), object)))
    with pytest.raises((soc.StatisticsError, ValueError), match="do not begin with days"):
        soc.Statistics(broken).save(tmp_path / "s.nc")


@pytest.mark.parametrize("kind", KINDS)
def test_decay_weighs_every_sum(kind):
    stats = statistics(table_of(), kind, "day")
    found = stats.decay("2d", "2024-03-01")
    age = (np.datetime64("2024-03-01") - stats.days).astype(int)
    weight = np.where(age >= 0, 0.5 ** (age / 2), 0.0)
    parts = [own for _, own in stats.by_day()]
    for name in ("n", *stats._outcome.reals(("part",))):
        if name.startswith("score") or "t" in name.split("_")[1:]:
            continue
        expected = sum(
            w * own.data[name].fillna(0).to_numpy() for w, own in zip(weight, parts, strict=True)
        )
        np.testing.assert_allclose(found.data[name].to_numpy(), expected, rtol=1e-12)
    assert found.n_items == round(
        sum(w * own.n_items for w, own in zip(weight, parts, strict=True))
    )
    assert not len(found.days)
    assert "half-life of 2 days" in repr(found)


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_and_likelihoods_are_linear_in_weights(kind):
    """Every item with a weight of a quarter has a quarter of the bound and of the likelihood."""
    from soc_pymc.families.family import family_of_kind
    from soc_pymc.model.rows import rows_of

    stats = statistics(table_of(), kind, "day")
    quarter = stats._weighted(np.full(DAYS, 0.25), {**stats.data.attrs, "weights": "a quarter"})
    np.testing.assert_allclose(quarter.error_bound, stats.error_bound / 4, rtol=1e-9, atol=1e-18)
    family = family_of_kind(stats.kind)
    both = [rows_of(own, family)[1] for own in (stats, quarter)]
    first, second = (np.full(len(both[0].total), level) for level in both[0].level())
    whole, part = (sums.likelihood(first + 0.3, second - 0.2) for sums in both)
    np.testing.assert_allclose(part, whole / 4, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_weighted_statistics_refuse_what_needs_whole_items(dated, tmp_path):
    old = dated.decay("3d")
    assert make_statistics(
        {name: old.table(name) for name in old._outcome.tables},
        old.data["label"].to_numpy(), old.edges, old.data.attrs,
    ).data.equals(old.data)  # fmt: skip
    with pytest.raises(soc.StatisticsError, match="different weights"):
        _ = old + dated.decay("4d")
    assert (old + old).n_items == round(2 * float(old.data["n"].sum()))
    fit = soc.fit(old, soc.Gamma(groups=False), progress=False)
    with pytest.raises(soc.StatisticsError, match="a check needs whole items"):
        soc.check(fit, old, progress=False)


@pytest.mark.slow
def test_a_fit_of_weights_lies_between_old_and_new():
    """The mean is 50% higher on the last two days; a short half-life follows, a long one does not.

    Level by the totals: weighted counts over weighted exposures, to a tenth of their distance.
    """
    frame = table_of(6000)
    late = frame["day"] >= "2024-03-01"
    frame["y"] = np.random.default_rng(0).poisson(frame["t"] * np.where(late, 0.75, 0.5) * 10)
    frame["N"] = 10.0
    stats = statistics(frame, joint=False)
    found = {}
    for half_life in ("1d", "30d"):
        own = stats.decay(half_life)
        fit = soc.fit(own, progress=False)
        ratio = soc.calibration_curves(fit, [0.5])["mean"].mean().item() / 0.5
        found[half_life] = ratio
        expected = own.total_count / float(own.data["sum_t"].sum() * 10)
        assert ratio == pytest.approx(expected, abs=0.025)
    assert found["1d"] > found["30d"] + 0.08
