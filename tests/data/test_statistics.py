"""Statistics: exact totals, additivity, agreement of sources, and leakage."""

import os
import warnings
from dataclasses import replace

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from soc_pymc._lib.errors import ItemsError, ItemsWarning, StatisticsError
from soc_pymc._lib.files import save_netcdf
from soc_pymc.data import tables
from soc_pymc.data.binning import fold_of_id
from soc_pymc.data.items import PoissonItems
from soc_pymc.data.statistics import Statistics, load_statistics
from soc_pymc.data.summaries import summarize
from soc_pymc.families import poisson_gamma
from soc_pymc.families.family import family_of_kind
from soc_pymc.model.rows import rows_of
from tests.data.cell_references import count_cell, exposure_cell
from tests.thinning import thinned

ROLES = {"score": "t", "count": "y", "exposure": "N"}


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
        assert x.dtype == y.dtype
        if x.dtype.kind != "f":
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
        "above": y > n,
        "sum_y_log_N": y * np.log(n),
    }.items():
        expected = np.bincount(bin_of, weights=values)
        np.testing.assert_allclose(stats.data[name], expected, rtol=1e-11, err_msg=name)
    by_bin = FRAME.groupby(bin_of)["t"]
    np.testing.assert_array_equal(stats.data["score_min"], by_bin.min())
    np.testing.assert_array_equal(stats.data["score_max"], by_bin.max())
    powers = {f"y{k}": y**k for k in (2, 3)} | {f"N{k}": n**k for k in (2, 3)}
    powers |= {"yN": y * n, "yN2": y * n**2, "yN3": y * n**3}
    cells = FRAME.assign(**powers, n=1)
    for name, cell in (("exposure", exposure_cell(n)), ("count", count_cell(y))):
        expected = cells.groupby([bin_of, cell])[["n", "y", "N", *powers]].sum()
        found = stats.cells(name)
        np.testing.assert_array_equal(found["bin"], expected.index.get_level_values(0))
        np.testing.assert_array_equal(found["cell"], expected.index.get_level_values(1))
        for column in found.keys() - {"bin", "cell"}:
            of = expected[column.removeprefix("sum_")]
            np.testing.assert_allclose(found[column], of, rtol=1e-11, err_msg=column)


def test_joint_cells_are_those_of_a_direct_groupby():
    stats = stats_of(FRAME, bins=30, joint=True)
    t, y, n = (FRAME[c].to_numpy() for c in "tyN")
    keys = [np.searchsorted(stats.edges, t, side="right"), exposure_cell(n), count_cell(y)]
    expected = FRAME.assign(yN3=y * n**3, y3=y**3, n=1).groupby(keys)[["n", "y", "yN3", "y3"]].sum()
    found = stats.cells("joint")
    for i, name in enumerate(("bin", "exposure_cell", "count_cell")):
        np.testing.assert_array_equal(found[name], expected.index.get_level_values(i))
    for name, column in (("n", "n"), ("y", "sum_y"), ("yN3", "sum_yN3"), ("y3", "sum_y3")):
        np.testing.assert_allclose(found[column], expected[name], rtol=1e-11, err_msg=name)
    with pytest.raises(StatisticsError, match="joint=True"):
        stats_of(FRAME, bins=30, joint=False).cells("joint")


@pytest.mark.parametrize("source", ["pandas", "ibis"])
def test_joint_cells_are_kept_by_default_while_they_fit(source, monkeypatch):
    table = FRAME if source == "pandas" else ibis.memtable(FRAME)
    whole, none = (stats_of(table, bins=30, joint=joint) for joint in (True, False))
    auto = stats_of(table, bins=30)
    assert auto.data.sizes == whole.data.sizes
    for name, values in whole.data.items():  # an engine's threads add up in any order
        np.testing.assert_allclose(auto.data[name], values, rtol=1e-12, err_msg=name)
    room = 8 * sum(values.size for name, values in whole.data.items() if name.startswith("joint_"))
    for more, coarse in ((0, 1), (-1, 0)):
        monkeypatch.setattr("soc_pymc.data.summaries._AUTO_BYTES", room + more)
        assert stats_of(table, bins=30).coarse == coarse
    found = stats_of(table, bins=30)
    for name, values in none.data.items():
        np.testing.assert_allclose(found.data[name], values, rtol=1e-12, err_msg=name)
    with pytest.raises(StatisticsError, match="keeps them up to 64 MB"):
        found.cells("joint")


def test_a_sum_has_joint_cells_if_all_of_it_has():
    one, two = (stats_of(FRAME[k::2], edges=[0.1, 0.2], joint=not k) for k in range(2))
    for whole in (one + two, two + one):
        assert whole.coarse == 0
        assert whole.data.sizes["joint"] == 0
        assert whole.n_items == len(FRAME)
    assert (one + one).coarse == 1


@pytest.mark.parametrize("source", ["frame", "ibis"])
def test_joint_cells_keep_their_budget(source):
    table = FRAME if source == "frame" else tables.open_table(FRAME)
    whole = stats_of(table, bins=30, joint=True)
    few = stats_of(table, bins=30, joint=5000)
    assert whole.coarse == 1
    assert few.coarse in (2, 4, 8, 16)
    assert len(few.cells("joint")["n"]) <= 5000
    assert_same(whole + few, few + whole)
    merged = (whole + few).cells("joint")
    np.testing.assert_array_equal(merged["n"], 2 * few.cells("joint")["n"])
    np.testing.assert_allclose(merged["sum_yN3"], 2 * few.cells("joint")["sum_yN3"], rtol=1e-12)


@pytest.mark.parametrize("equal", ["items", "count", "exposure"])
def test_bins_have_equal_weights(equal):
    stats = stats_of(FRAME, bins=20, equal=equal)
    name = {"items": "n", "count": "sum_y", "exposure": "sum_N"}[equal]
    weight = stats.data[name].to_numpy()
    assert stats.bins == 20
    np.testing.assert_allclose(weight, weight.mean(), rtol=0.15 if equal != "items" else 0.01)


def test_default_bins_grow_with_the_items():
    """Ten items per bin, and ends that are halved down to single items."""
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


ITEMS = FRAME[:3000].assign(
    country=np.where(np.arange(3000) % 7 < 2, "no", "se"), ad=np.arange(3000) * 17 - 900
)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.booleans(), st.sampled_from(["", "ad"]))
@pytest.mark.slow
def test_parts_add_up_to_the_whole(seed, parts, joint, identity):
    """Bit for bit on whole numbers, in any partition, order and grouping of the sum."""
    rng = np.random.default_rng(seed)
    roles = {**ROLES, "group": "country"} | ({"id": "ad"} if identity else {})
    edges = [0.05, 0.1, 0.13, 0.3]

    def of(frame):
        items = PoissonItems(frame, **roles)
        return summarize(items, edges=edges, joint=joint, progress=False, on_leakage="ignore")

    part_of = rng.integers(0, parts, len(ITEMS))
    sums = [of(part) for _, part in ITEMS.groupby(part_of)]
    rng.shuffle(sums)
    left, right = sums[0], sums[-1]
    for one in sums[1:]:
        left = left + one
    for one in sums[-2::-1]:
        right = one + right
    assert_same(of(ITEMS), left)
    assert_same(left, right)


@pytest.mark.parametrize("source", ["frame", "ibis"])
def test_groups_and_folds_add_up_to_the_whole(source):
    table = ITEMS if source == "frame" else tables.open_table(ITEMS)
    items = PoissonItems(table, **ROLES, group="country", id="ad")
    stats = summarize(items, bins=8, folds=5, joint=True, progress=False)
    assert (stats.groups, stats.folds) == (("no", "se"), 5)
    assert_same(stats, stats.of_group("no") + stats.of_group("se"))
    folds = [stats.of_fold(k) for k in range(5)]
    assert_same(stats.without_fold(4), folds[0] + folds[1] + folds[2] + folds[3])
    mine = ITEMS[fold_of_id(ITEMS["ad"], 5) == 3]
    direct = stats_of(mine[mine["country"] == "se"], edges=stats.edges, on_leakage="ignore")
    kept = stats.of_group("se").of_fold(3)
    for name in ("n", "sum_y", "sum_N", "sum_log_t", "score_max"):
        np.testing.assert_allclose(kept.data[name], direct.data[name], rtol=1e-12)
    for over in ("exposure", "count"):
        for column, values in direct.cells(over).items():
            np.testing.assert_allclose(kept.cells(over)[column], values, rtol=1e-12)
    for wrong in (lambda: stats.of_group("dk"), lambda: stats.of_fold(5)):
        with pytest.raises(StatisticsError, match="there is no"):
            wrong()


def test_folds_of_a_column_and_of_the_item_itself():
    frame = ITEMS.assign(part=np.arange(3000) % 4)
    stats = summarize(PoissonItems(frame, **ROLES, fold="part"), edges=[0.1], progress=False)
    assert stats.folds == 4
    assert stats.of_fold(1).n_items == 750
    both = stats + summarize(
        PoissonItems(frame[:100].assign(part=6), **ROLES, fold="part"), edges=[0.1], progress=False
    )
    assert both.folds == 7
    one = summarize(
        PoissonItems(frame.assign(part=0), **ROLES, fold="part"), edges=[0.1], progress=False
    )
    assert one.folds == 1
    for fold in (-1, 1, True, "0"):
        with pytest.raises(StatisticsError, match=r"there is no fold .*; the folds are 0 to 0"):
            one.of_fold(fold)
    own = stats_of(frame, edges=[0.1], folds=3)
    again = stats_of(frame.assign(y=frame["y"][::-1].to_numpy()), edges=[0.1], folds=3)
    counts = [[s.of_fold(k).n_items for k in range(3)] for s in (own, again)]
    assert counts[0] == counts[1]  # folds never look at the outcome
    assert min(counts[0]) > 900
    for options in ({"folds": 1}, {"folds": True}, {"folds": 1001}, {"joint": 0.5}):
        with pytest.raises(StatisticsError, match="must be"):
            stats_of(frame, edges=[0.1], **options)
    with pytest.raises(StatisticsError, match="leave out folds="):
        summarize(PoissonItems(frame, **ROLES, fold="part"), folds=3, progress=False)


def test_only_similar_statistics_can_be_added():
    a = stats_of(FRAME[:500], edges=[0.1])
    with pytest.raises(
        StatisticsError, match=r"different edges cannot be added \(edge 0 is 0.1 and 0.2"
    ):
        a + stats_of(FRAME[:500], edges=[0.2])
    with pytest.raises(StatisticsError, match=r"different edges cannot be added \(2 and 3 bins"):
        a + stats_of(FRAME[:500], edges=[0.1, 0.2])
    other = PoissonItems(FRAME.rename(columns={"y": "z"}), score="t", count="z", exposure="N")
    with pytest.raises(StatisticsError, match="different roles"):
        a + summarize(other, edges=[0.1], progress=False)
    with pytest.raises(StatisticsError, match="different folds_by"):
        a + stats_of(FRAME[:500], edges=[0.1], folds=3)
    with pytest.raises(StatisticsError, match="of 4 and of 3 folds cannot be added"):
        stats_of(FRAME, edges=[0.1], folds=4) + stats_of(FRAME, edges=[0.1], folds=3)
    cells = Statistics(a.data.assign_attrs(cells="others"))
    with pytest.raises(StatisticsError, match="different cells"):
        a + cells
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


def test_a_single_score_cannot_be_calibrated():
    with pytest.raises(ItemsError, match=r"every score is 0\.25"):
        stats_of(FRAME.assign(t=0.25))
    assert stats_of(FRAME.assign(t=0.25), edges=[0.3]).bins == 2


def test_few_scores_give_fewer_bins_and_a_warning():
    frame = FRAME.assign(t=FRAME["t"].round(1).clip(0.1, 0.4))
    with pytest.warns(ItemsWarning, match="4 bins instead of 50"):
        stats = stats_of(frame, bins=50)
    assert stats.bins == 4
    np.testing.assert_array_equal(stats.data["n"], frame.groupby("t").size())


def test_bins_of_equal_count_need_counts():
    with pytest.raises(ItemsError, match="equal count"):
        stats_of(FRAME.assign(y=0), equal="count")
    assert stats_of(FRAME.assign(y=0)).total_count == 0


# ---------------------------------------------------------------- files


def test_saved_statistics_come_back(tmp_path):
    items = PoissonItems(ITEMS, **ROLES, group="country", id="ad")
    stats = summarize(items, bins=12, joint=True, progress=False)
    stats.save(tmp_path / "s.nc")
    assert os.listdir(tmp_path) == ["s.nc"]
    again = load_statistics(tmp_path / "s.nc")
    assert again.data.identical(stats.data)
    assert_same(again + again, stats + stats)
    edgeless = stats_of(FRAME, edges=[])
    edgeless.save(tmp_path / "s.nc")
    assert load_statistics(tmp_path / "s.nc").data.identical(edgeless.data)


def test_the_format_of_files_is_unchanged():
    """Files have exactly these, so that files of earlier versions can be read."""
    data = stats_of(FRAME[:500], bins=5, joint=True).data
    scores = "score_min score_max sum_t sum_t2 sum_log_t sum_log_t2"
    powers = "sum_N sum_N2 sum_N3 sum_y2 sum_yN sum_yN2 sum_yN3"
    part = f"n sum_y sum_N {scores} sum_y_log_N above"
    tables = {
        "part": f"group fold bin {part}",
        "exposure": f"group fold bin cell n sum_y {powers}",
        "count": "group fold bin cell n sum_y sum_y2 sum_y3",
        "joint": f"group bin exposure_cell count_cell n sum_y {powers} sum_y3",
    }
    names = {f"{name}_{column}" for name, columns in tables.items() for column in columns.split()}
    assert set(data.variables) == {"edges", "label", *part.split(), *names}
    assert data.attrs == {
        "format": "soc_pymc-statistics-2",
        "kind": "poisson",
        "roles": '{"score": "t", "count": "y", "exposure": "N"}',
        "cells": "counts exact below 32, 16 cells an octave",
        "folds_by": "none",
        "folds": 0,
        "coarse": 1,
    }


@pytest.mark.slow
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
    other = xr.Dataset({"a": ("x", [1.0])})
    other.to_netcdf(path, engine="h5netcdf")
    with pytest.raises(StatisticsError, match="does not end with the checksum"):
        load_statistics(path)
    save_netcdf(other, path, StatisticsError)
    with pytest.raises(StatisticsError, match="has format None"):
        load_statistics(path)
    for changed in (
        stats.data.assign(part_n=-stats.data["part_n"]),
        stats.data.assign(edges=-stats.data["edges"]),
        stats.data.drop_vars("exposure_sum_yN"),
        stats.data.assign(exposure_bin=stats.data["exposure_bin"] + 1),
        stats.data.assign(exposure_fold=stats.data["exposure_fold"] - 1),
    ):
        _refused_both_ways(changed.assign_attrs(stats.data.attrs), path)
    _refused_both_ways(stats.data.assign_attrs(folds="many"), path)


def _refused_both_ways(data, path):
    """A file with these statistics cannot be loaded, and they cannot be saved."""
    save_netcdf(data, path, StatisticsError)
    with pytest.raises(StatisticsError, match="damaged"):
        load_statistics(path)
    with pytest.raises(StatisticsError, match="not written"):
        Statistics(data).save(path)


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
    assert repr(stats).startswith("<soc_pymc.Statistics: 20,000 items in 3 bins, ")


def test_a_changing_table_is_detected(monkeypatch):
    reader = tables.Streamed
    whole = reader.tables

    def fewer(self, edges, most_joint):
        found = whole(self, edges, most_joint)
        part = dict(found.sums["part"])
        part["n"] = part["n"] - (np.arange(len(part["n"])) == 0)
        return replace(found, sums={**found.sums, "part": part})

    monkeypatch.setattr(reader, "tables", fewer)
    with pytest.raises(StatisticsError, match="the items came to 19999 in bins but to 20000"):
        stats_of(FRAME)


def test_new_or_missing_rows_between_passes_are_detected(monkeypatch):
    whole = tables.Streamed._pieces

    def fewer(self, roles):
        pieces = list(whole(self, roles))
        return iter(pieces[: 1 if len(roles) > 1 else None])

    for name in ("_READ", "_BLOCK"):
        monkeypatch.setattr(f"soc_pymc.data.tables.streaming.{name}", 5000)
    monkeypatch.setattr(tables.Streamed, "_pieces", fewer)
    with pytest.raises(ItemsError, match="changed while they were read"):
        stats_of(FRAME)


# ---------------------------------------------------------------- leakage


@pytest.mark.parametrize("seed", thinned(range(20), range(4)))
def test_honest_scores_do_not_leak(seed):
    frame = simulate(5000, seed=seed, cv2=0, exposure=None if seed % 2 else 20.0)
    for bins in (20, 1000, 2500):
        assert abs(stats_of(frame, bins=bins).leakage_z) < 4


def test_yes_or_no_outcomes_do_not_leak():
    rng = np.random.default_rng(0)
    t = rng.uniform(0.05, 0.6, 20_000)
    frame = pd.DataFrame({"t": t, "y": rng.binomial(1, t), "N": 1})
    assert abs(stats_of(frame).leakage_z) < 3


@pytest.mark.filterwarnings("ignore::soc_pymc._lib.errors.ItemsWarning")  # equal exposures: ties
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


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_error_bound_holds_and_is_small(scale):
    """Log marginals of statistics against those of the items, up to terms free of parameters.

    Shapes from near 0 to Poisson; within 1e-7 nats per event.
    """
    frame = simulate(20_000, seed=2)
    rng = np.random.default_rng(2)
    big = rng.lognormal(3, 1, len(frame)) * scale
    frame = frame.assign(N=big, y=rng.poisson(0.3 * rng.gamma(2, 0.5, len(frame)) * big))
    stats = stats_of(frame, edges=[])
    bound = float(stats.error_bound[0])
    y, x = frame["y"].to_numpy(), frame["N"].to_numpy()
    mu = y.sum() / x.sum()
    histograms = rows_of(stats, family_of_kind(stats.kind))[1]
    points = gammaln(frame["y"].to_numpy() + 1.0).sum()
    free = (y * np.log(x)).sum() - points - histograms.constant[0]
    worst = 0.0
    for alpha in np.geomspace(0.05, 1e6, 15):
        at = [np.array([[np.log(v)]]) for v in (mu, 1 / alpha)]
        short = histograms.value_and_gradient(*at, np.arange(1))[0, 0, 0]
        worst = max(worst, abs(poisson_gamma.log_pmf(y, x, at[0], at[1]).sum() - short - free))
    assert worst <= bound + 1e-11 * abs(points)
    assert worst > 1e-12  # there is an error to bound
    assert bound < 1e-7 * y.sum()


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
    assert stats.error_bound.max() < 1e-3


def test_error_bound_of_two_million_real_items(real_data):
    """46 copies of the keywords, their scores moved apart: below 1e-3 nats in every bin."""
    frame = pd.read_parquet(real_data / "adwords_items.parquet")
    rng = np.random.default_rng(0)
    many = pd.concat([frame] * 46, ignore_index=True)
    many["score"] *= np.exp(rng.normal(0, 0.01, len(many)))
    roles = {"score": "score", "count": "clicks", "exposure": "impressions"}
    stats = summarize(PoissonItems(many, **roles), bins=1000, progress=False)
    assert 1.99e6 < stats.n_items < 2e6
    assert stats.error_bound.max() < 1e-3
