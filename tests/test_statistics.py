"""Statistics: exact totals, additivity, one answer for every source, and leakage."""

import os
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from soc_pymc import tables
from soc_pymc.binning import count_cell, exposure_cell
from soc_pymc.errors import ItemsError, ItemsWarning, StatisticsError
from soc_pymc.items import PoissonItems
from soc_pymc.statistics import Statistics, load_statistics, summarize

ROLES = {"score": "t", "count": "y", "exposure": "N"}
WHOLE = ("n", "sum_y", "cell_bin", "cell_exposure", "cell_count", "cell_n", "cell_sum_y")


def simulate(n, seed, cv2=0.5, exposure=None):
    rng = np.random.default_rng(seed)
    t = rng.lognormal(-2, 0.7, n)
    theta = t * rng.gamma(1 / cv2, cv2, n) if cv2 else t
    big = rng.lognormal(3, 1.2, n) if exposure is None else np.full(n, exposure)
    return pd.DataFrame({"t": t, "y": rng.poisson(theta * big), "N": big})


def stats_of(source, **options):
    return summarize(PoissonItems(source, **ROLES), progress=False, **options)


def assert_same(a, b):
    assert set(a.data.variables) == set(b.data.variables)
    for name in a.data.variables:
        x, y = a.data[name].to_numpy(), b.data[name].to_numpy()
        if name in WHOLE:
            assert x.dtype == np.int64
            np.testing.assert_array_equal(x, y, err_msg=name)
        else:
            scale = np.nanmax(np.abs(x), initial=0)
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13 * scale, err_msg=name)


FRAME = simulate(20_000, seed=1)


def test_sums_are_those_of_a_direct_groupby():
    stats = stats_of(FRAME, bins=30)
    t, y, n = (FRAME[c].to_numpy() for c in "tyN")
    bin_of = np.searchsorted(stats.edges, t, side="right")
    for name, values in {
        "n": np.ones(len(t)),
        "sum_y": y,
        "sum_N": n,
        "sum_t": t,
        "sum_t2": t * t,
        "sum_log_t": np.log(t),
        "sum_log_t2": np.log(t) ** 2,
        "sum_N_t": n * t,
        "sum_N_log_t": n * np.log(t),
        "sum_y_log_N": y * np.log(n),
    }.items():
        expected = np.bincount(bin_of, weights=values)
        np.testing.assert_allclose(stats.data[name], expected, rtol=1e-11, err_msg=name)
    by_bin = FRAME.groupby(bin_of)["t"]
    np.testing.assert_array_equal(stats.data["score_min"], by_bin.min())
    np.testing.assert_array_equal(stats.data["score_max"], by_bin.max())
    cells = FRAME.assign(y2=y * y, N2=n * n, yN=y * n, yN2=y * n * n, n=1)
    keys = [bin_of, exposure_cell(n), count_cell(y)]
    expected = cells.groupby(keys)[["n", "y", "y2", "N", "N2", "yN", "yN2"]].sum()
    for i, name in enumerate(("cell_bin", "cell_exposure", "cell_count")):
        np.testing.assert_array_equal(stats.data[name], expected.index.get_level_values(i))
    for name in expected.columns:
        found = stats.data["cell_n" if name == "n" else f"cell_sum_{name}"]
        np.testing.assert_allclose(found, expected[name], rtol=1e-12, err_msg=name)


def test_marginal_cells():
    stats = stats_of(FRAME, bins=10)
    bin_of, cell, n, y, y2 = stats.count_cells()
    assert (np.diff(bin_of * 10_000 + cell) > 0).all()
    expected = FRAME.groupby(
        [np.searchsorted(stats.edges, FRAME["t"], "right"), count_cell(FRAME["y"])]
    )
    np.testing.assert_array_equal(n, expected["y"].count())
    np.testing.assert_array_equal(y, expected["y"].sum())
    assert y2.sum() == (FRAME["y"] ** 2).sum()
    bin_of, n, x, x2, y, yx, yx2 = stats.exposure_cells()
    assert (np.diff(bin_of) >= 0).all()
    assert (n.sum(), y.sum()) == (len(FRAME), FRAME["y"].sum())
    total = [FRAME["N"], FRAME["N"] ** 2, FRAME["y"] * FRAME["N"], FRAME["y"] * FRAME["N"] ** 2]
    np.testing.assert_allclose([v.sum() for v in (x, x2, yx, yx2)], [v.sum() for v in total])


@pytest.mark.parametrize("equal", ["items", "count", "exposure"])
def test_bins_have_equal_weights(equal):
    stats = stats_of(FRAME, bins=20, equal=equal)
    name = {"items": "n", "count": "sum_y", "exposure": "sum_N"}[equal]
    weight = stats.data[name].to_numpy()
    assert stats.bins == 20
    np.testing.assert_allclose(weight, weight.mean(), rtol=0.15 if equal != "items" else 0.01)


def test_default_bins_grow_with_the_items():
    """Ten items a bin, and ends that are halved down to single items."""
    assert 1000 < stats_of(FRAME).bins <= 1010
    few = stats_of(FRAME[:2000])
    assert 200 < few.bins <= 210
    n = few.data["n"].to_numpy()
    assert n[0] == n[-1] == 1
    assert (np.abs(n[5:-5] - 10) <= 3).all()
    assert (np.diff(n[:5]) >= 0).all()
    assert 20 < stats_of(FRAME[:150]).bins <= 30


# ---------------------------------------------------------------- one answer for all


def test_every_source_and_every_order_gives_the_same_statistics(tmp_path):
    whole = stats_of(FRAME, bins=25)
    FRAME.to_parquet(tmp_path / "all.parquet")
    shuffled = FRAME.sample(frac=1, random_state=0)
    shuffled[:7000].to_parquet(tmp_path / "part1.parquet")
    shuffled[7000:].to_parquet(tmp_path / "part2.parquet")
    FRAME.to_csv(tmp_path / "all.csv", index=False)
    for source in (
        pl.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME),
        tables.open_table(FRAME),
        shuffled,
        tmp_path / "all.parquet",
        str(tmp_path / "part*.parquet"),
        [tmp_path / "part2.parquet", tmp_path / "part1.parquet"],
        tmp_path / "all.csv",
    ):
        assert_same(whole, stats_of(source, bins=25))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_parts_add_up_to_the_whole(seed, parts):
    frame = FRAME[:2000]
    edges = [0.05, 0.1, 0.13, 0.3]
    part_of = np.random.default_rng(seed).integers(0, parts, len(frame))
    parts = [stats_of(part, edges=edges) for _, part in frame.groupby(part_of)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert_same(stats_of(frame, edges=edges), total)


def test_only_like_statistics_add():
    a = stats_of(FRAME[:500], edges=[0.1])
    with pytest.raises(StatisticsError, match="different edges"):
        a + stats_of(FRAME[:500], edges=[0.2])
    other = PoissonItems(FRAME.rename(columns={"y": "z"}), score="t", count="z", exposure="N")
    with pytest.raises(StatisticsError, match="different roles"):
        a + summarize(other, edges=[0.1], progress=False)
    with pytest.raises(TypeError):
        a + 1


def test_empty_bins_are_kept_and_nothing_is_dropped():
    stats = stats_of(FRAME, edges=[-5.0, -4.0, 0.1, 50.0, 60.0])
    np.testing.assert_array_equal(stats.data["n"] > 0, [False, False, True, True, False, False])
    assert stats.n_items == len(FRAME)
    assert stats.total_count == FRAME["y"].sum()
    assert np.isnan(stats.data["score_min"][0])
    assert stats_of(FRAME, edges=[]).bins == 1


def test_scores_of_any_sign():
    frame = FRAME.assign(t=np.log(FRAME["t"]) + 2)
    stats = stats_of(frame, bins=10)
    signed = stats.data["score_min"] <= 0
    np.testing.assert_array_equal(np.isnan(stats.data["sum_log_t"]), signed)
    np.testing.assert_allclose(stats.data["sum_t"].sum(), frame["t"].sum())
    assert stats.data["n"].max() < 1.02 * 2000


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"edges": [0.1], "bins": 3}, "not both"),
        ({"edges": [0.1], "equal": "items"}, "not both"),
        ({"edges": [0.2, 0.1]}, r"edge 1 \(0.1\) follows edge 0 \(0.2\)"),
        ({"edges": [0.1, np.inf]}, "must be finite"),
        ({"edges": [[0.1]]}, "one row"),
        ({"edges": "a"}, "must be numbers"),
        ({"bins": 0}, "bins=0 must be"),
        ({"bins": 2.5}, "bins=2.5 must be"),
        ({"bins": True}, "bins=True must be"),
        ({"equal": "value"}, "equal='value' must be"),
        ({"on_leakage": "cry"}, "on_leakage='cry' must be"),
    ],
)
def test_bad_options_are_named(options, text):
    with pytest.raises(StatisticsError, match=text):
        stats_of(FRAME, **options)


def test_one_score_is_nothing_to_calibrate_along():
    with pytest.raises(ItemsError, match=r"every score is 0\.25"):
        stats_of(FRAME.assign(t=0.25))
    assert stats_of(FRAME.assign(t=0.25), edges=[0.3]).bins == 2


def test_few_scores_give_fewer_bins_and_a_warning():
    frame = FRAME.assign(t=FRAME["t"].round(1).clip(0.1, 0.4))
    with pytest.warns(ItemsWarning, match="4 bins instead of 50"):
        stats = stats_of(frame, bins=50)
    assert stats.bins == 4
    np.testing.assert_array_equal(stats.data["n"], frame.groupby("t").size())


def test_no_counts_cannot_weigh():
    with pytest.raises(ItemsError, match="equal count"):
        stats_of(FRAME.assign(y=0), equal="count")
    assert stats_of(FRAME.assign(y=0)).total_count == 0


# ---------------------------------------------------------------- files


def test_saved_statistics_come_back(tmp_path):
    stats = stats_of(FRAME, bins=12)
    stats.save(tmp_path / "s.nc")
    assert os.listdir(tmp_path) == ["s.nc"]
    again = load_statistics(tmp_path / "s.nc")
    assert again.data.identical(stats.data)
    assert_same(again + again, stats + stats)
    edgeless = stats_of(FRAME, edges=[])
    edgeless.save(tmp_path / "s.nc")
    assert load_statistics(tmp_path / "s.nc").data.identical(edgeless.data)


def test_bad_files_are_refused(tmp_path):
    path = tmp_path / "s.nc"
    with pytest.raises(StatisticsError, match="there is no such file"):
        load_statistics(path)
    path.write_text("score,count\n")
    with pytest.raises(StatisticsError, match="does not hold statistics"):
        load_statistics(path)
    stats = stats_of(FRAME, bins=12)
    stats.save(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(StatisticsError):
        load_statistics(path)
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(StatisticsError, match="has format None"):
        load_statistics(path)
    for changed in (
        stats.data.assign(n=stats.data["n"] + 1),
        stats.data.assign(edges=-stats.data["edges"]),
        stats.data.drop_vars("cell_sum_yN"),
        stats.data.assign(cell_bin=stats.data["cell_bin"] + 1),
    ):
        Statistics(changed.assign_attrs(stats.data.attrs)).save(path)
        with pytest.raises(StatisticsError, match="damaged"):
            load_statistics(path)


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    stats = stats_of(FRAME, bins=3)
    (tmp_path / "s.nc").write_text("old")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        stats.save(tmp_path / "s.nc")
    assert os.listdir(tmp_path) == ["s.nc"]
    assert (tmp_path / "s.nc").read_text() == "old"


def test_statistics_are_immutable_and_print_in_a_line():
    stats = stats_of(FRAME, bins=3)
    with pytest.raises(ValueError, match="read-only"):
        stats.data["n"].to_numpy()[0] = 5
    with pytest.raises(AttributeError):
        stats.data = None
    assert repr(stats).startswith("<soc_pymc.Statistics: 20,000 items in 3 bins (")


def test_a_table_that_changes_underneath_is_noticed(monkeypatch):
    whole = tables.cell_sums
    monkeypatch.setattr(tables, "cell_sums", lambda t, e: whole(t.filter(t.score > 0.02), e))
    with pytest.raises(StatisticsError, match="the items came to"):
        stats_of(FRAME)


# ---------------------------------------------------------------- leakage


@pytest.mark.parametrize("seed", range(20))
def test_honest_scores_do_not_leak(seed):
    frame = simulate(5000, seed=seed, cv2=0, exposure=None if seed % 2 else 20.0)
    for bins in (20, 1000, 2500):
        assert abs(stats_of(frame, bins=bins).leakage_z) < 4


def test_yes_or_no_outcomes_do_not_leak():
    rng = np.random.default_rng(0)
    t = rng.uniform(0.05, 0.6, 20_000)
    frame = pd.DataFrame({"t": t, "y": rng.binomial(1, t), "N": 1})
    assert abs(stats_of(frame).leakage_z) < 3


@pytest.mark.filterwarnings("ignore::soc_pymc.errors.ItemsWarning")  # equal exposures: ties
@pytest.mark.parametrize("exposure", [None, 20.0])
def test_scores_that_saw_their_counts_are_refused(exposure):
    frame = simulate(5000, seed=0, cv2=0.5, exposure=exposure)
    leaky = frame.assign(t=(frame["y"] + 1) / (frame["N"] + 20))
    for bins in (None, 10, 200):
        with pytest.raises(ItemsError, match="trained on the others"):
            stats_of(leaky, bins=bins)
    with pytest.warns(ItemsWarning, match="Poisson noise"):
        stats_of(leaky, on_leakage="warn")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ItemsWarning)
        assert stats_of(leaky, on_leakage="ignore", bins=20).leakage_z < -6


def test_overdispersion_is_positive():
    assert stats_of(FRAME).leakage_z > 6


# ---------------------------------------------------------------- error bound


def likelihood(alpha, mu, y, x, n_y, n_x):
    """Log marginal from weighted counts and exposures (terms that wide cells touch)."""
    y_x, x_x, s_x = x
    return (
        np.sum(n_y * (gammaln(alpha + y) - y * np.log(alpha)))
        - np.sum(alpha * n_x * np.log1p(x_x * mu / alpha))
        - np.sum(s_x * np.log1p(y_x * mu / alpha))
    )


def two_points(n, first, second):
    mean = first / n
    sd = np.sqrt(np.maximum(second / n - mean**2, 0))
    return np.concatenate([mean - sd, mean + sd]), np.concatenate([n, n]) / 2


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_error_bound_holds_and_is_small(scale):
    frame = simulate(20_000, seed=2)
    rng = np.random.default_rng(2)
    big = rng.lognormal(3, 1, len(frame)) * scale
    frame = frame.assign(N=big, y=rng.poisson(0.3 * rng.gamma(2, 0.5, len(frame)) * big))
    stats = stats_of(frame, edges=[])
    bound = float(stats.error_bound[0])
    y, x = frame["y"].to_numpy(), frame["N"].to_numpy()
    mu = y.sum() / x.sum()
    _, _, n_y, y1, y2 = stats.count_cells()
    _, n_x, x1, x2, s, s1, s2 = stats.exposure_cells()
    y_at, y_n = two_points(n_y, y1, y2)
    x_at, x_n = two_points(n_x, x1, x2)
    seen = s > 0
    s_at, s_n = two_points(s[seen], s1[seen], s2[seen])
    worst = 0.0
    for alpha in np.geomspace(0.05, 1e4, 15):
        exact = likelihood(alpha, mu, y, (x, x, y), 1.0, 1.0)
        short = likelihood(alpha, mu, y_at, (s_at, x_at, s_n), y_n, x_n)
        worst = max(worst, abs(exact - short))
    assert worst <= bound + 1e-7 * len(y)
    assert bound < 2.5e-3 * len(y)


def test_exact_cells_have_no_error():
    frame = FRAME.assign(N=np.arange(len(FRAME)) % 32 + 0.0, y=1).query("N > 0")
    np.testing.assert_array_equal(stats_of(frame, on_leakage="ignore").error_bound, 0.0)
    tenths = frame.assign(N=0.1)
    np.testing.assert_array_equal(stats_of(tenths, on_leakage="ignore").error_bound, 0.0)


# ---------------------------------------------------------------- real data


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("adwords_items", {"score": "score", "count": "clicks", "exposure": "impressions"}),
        ("fremtpl2_items", {"score": "score", "count": "claims", "exposure": "exposure_years"}),
    ],
)
def test_real_items_keep_their_totals(name, roles, real_data):
    path = real_data / f"{name}.parquet"
    frame = pd.read_parquet(path)
    stats = summarize(PoissonItems(path, **roles), progress=False)
    assert stats.n_items == len(frame)
    assert stats.total_count == frame[roles["count"]].sum()
    np.testing.assert_allclose(stats.total_exposure, frame[roles["exposure"]].sum(), rtol=1e-10)
    assert stats.leakage_z > 0
    assert stats.error_bound.max() < 1.0
