"""Laws of statistics: additive, independent of order and source, read back exactly."""

import warnings
from dataclasses import replace

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import soc_pymc as soc
from soc_pymc.data import local
from tests.data.cell_references import assert_same, fold_of_id
from tests.examples import CASES, SINGLE_FAMILIES, thinned
from tests.tables import KINDS, VALUE_ROLES, hard_table, remote

QUIET = {"on_leakage": "ignore", "progress": False}


def statistics(family, source, roles=(), **options):
    """Returns statistics of a family's items over any source with its columns."""
    items = replace(CASES[family].items(source), **{"group": None} | dict(roles))
    return soc.summarize(items, **QUIET, **options)


FURTHER = {"group": "country", "id": "ad"}
ROLES = [{}, {"group": "country"}, FURTHER, {"group": ("country", "phase"), "date": "day"}]
ROLES += [{"cluster": "campaign"}]


def frame_of(family, example, n=1500):
    """Returns a family's items with two groups, of which one comes late, ids, days, clusters."""
    k = np.arange(n)
    days = np.datetime64("2024-02-28") + (k % 4).astype("timedelta64[D]")
    return (
        example(family)
        .frame[:n]
        .assign(
            country=np.where(k % 7 < 2, "no", "se"),
            ad=k * 17 - 900,
            phase=k % 3,
            campaign=k % 40,
            day=days.astype("datetime64[us]"),
        )
    )


@pytest.mark.parametrize("column", ["one", "other"])
def test_a_forgotten_exposure_is_warned_of(column, example):
    """Exposures of 1, or in another unit; the right column raises no warning."""
    frame = example("gamma").frame.assign(one=1.0)
    frame["other"] = frame["exposure"] * 1000.0
    items = soc.PoissonItems(frame, score="score", count="count", exposure=column)
    with pytest.warns(soc.ItemsWarning, match="times the scores throughout"):
        soc.summarize(items, bins=20, **QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "exposures are whole numbers")
        soc.summarize(replace(items, exposure="exposure"), bins=20, **QUIET)


FORMS = [(kind, form) for kind in KINDS for form in ("double", "decimal")]
FORMS.append(("values", "extreme"))  # a form of values alone


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_compiled_loops_give_the_same_bits(kind, form, monkeypatch):
    """In several blocks, also where loops are compiled between two of them."""
    items_of, roles = KINDS[kind]
    items = items_of(hard_table(kind, form), **roles, group="label", fold="fold")
    monkeypatch.setattr(local, "_BLOCK", 700)
    results = []
    for enough in (10**9, 1000, 0):
        for loop in (local._add, local.in_order):
            monkeypatch.setattr(loop, "_left", enough)
        results.append(soc.summarize(items, bins=30, joint="auto", **QUIET))
    for other in results[1:]:
        xr.testing.assert_identical(results[0].data, other.data)


@pytest.mark.parametrize("roles", ROLES, ids=["-".join(roles) for roles in ROLES])
@settings(max_examples=2)
@given(
    st.sampled_from(SINGLE_FAMILIES), st.integers(0, 2**32 - 1), st.integers(2, 5), st.booleans()
)
def test_parts_add_up_to_the_whole(example, roles, family, seed, parts, joint):
    """Bit for bit in whole numbers, in any partition, order and grouping of the sum."""
    rng = np.random.default_rng(seed)
    frame = frame_of(family, example)
    edges = np.quantile(frame["score"], [0.1, 0.4, 0.5, 0.9])
    options = {"roles": roles, "edges": edges, "joint": joint}
    part_of = rng.integers(0, parts, len(frame))
    pieces = [statistics(family, part, **options) for _, part in frame.groupby(part_of)]
    rng.shuffle(pieces)
    from_left, from_right = sum(pieces), pieces[-1]
    for piece in pieces[-2::-1]:
        from_right = piece + from_right
    assert_same(statistics(family, frame, **options), from_left)
    assert_same(from_left, from_right)


@pytest.mark.parametrize("family", SINGLE_FAMILIES)
def test_groups_and_folds_are_parts_of_the_whole(family, example):
    frame = frame_of(family, example)
    stats = statistics(family, frame, FURTHER, bins=8, folds=5, joint=True)
    assert (stats.groups, stats.folds) == (("no", "se"), 5)
    assert_same(stats.without_fold(4), sum(stats.of_fold(k) for k in range(4)))
    mine = frame[fold_of_id(frame["ad"], 5) == 3]
    expected = statistics(family, mine, edges=stats.edges, joint=False)
    for name in ("part", list(stats.data.sizes)[2]):
        for column, values in expected.cells(name).items():
            scale = np.nanmax(np.abs(values), initial=0.0)
            found = stats.of_fold(3).cells(name)[column]
            np.testing.assert_allclose(found, values, rtol=1e-12, atol=1e-12 * scale)


def test_only_similar_statistics_are_added(example):
    frame = frame_of("gamma", example, 500)
    stats = statistics("gamma", frame, edges=[0.1])
    roles = {"score": "score", "count": "clicks", "exposure": "exposure"}
    renamed = soc.PoissonItems(frame.rename(columns={"count": "clicks"}), **roles)
    for other in (
        statistics("gamma", frame, edges=[0.2]),
        statistics("gamma", frame, edges=[0.1, 0.2]),
        statistics("gamma", frame, edges=[0.1], folds=3),
        statistics("normal", example("normal").frame, edges=[0.1]),
        soc.summarize(renamed, edges=[0.1], **QUIET),
    ):
        with pytest.raises(soc.StatisticsError, match="cannot be added"):
            _ = stats + other
    with pytest.raises(TypeError):
        _ = stats + 1


@pytest.mark.parametrize("source", [pd.DataFrame, remote])
@pytest.mark.parametrize("family", thinned(SINGLE_FAMILIES, ["gamma"]))
def test_joint_cells_keep_their_budget(family, source, example):
    table = source(example(family).frame[:1500])
    stats = statistics(family, table, bins=32, joint=True)
    n = len(stats.cells("joint")["n"])
    assert_same(stats, statistics(family, table, bins=32, joint=n))
    with pytest.raises(soc.StatisticsError, match=f"more than {n - 1:,} joint cells.* fewer bins"):
        statistics(family, table, bins=32, joint=n - 1)


@pytest.mark.parametrize(
    ("labels", "bins", "has_joint"), [(100, 1000, True), (1700, 10_000, False)]
)
def test_many_groups_and_blocks_of_clusters(labels, bins, has_joint):
    """Keys number groups and bins, not blocks; joint cells of too many groups are left out."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"t": rng.uniform(size=2000), "s": 1.0, "label": np.arange(2000) % labels})
    frame = frame.assign(v=frame["t"] + rng.normal(size=2000), campaign=np.arange(2000) % 300)
    roles = VALUE_ROLES | {"group": "label", "cluster": "campaign"}
    options = {"edges": np.arange(1, bins) / bins, **QUIET}
    stats = soc.summarize(soc.NormalItems(frame, **roles), **options)
    assert (stats.n_items, stats.has_joint) == (2000, has_joint)
    if has_joint:
        assert_same(stats, soc.summarize(soc.NormalItems(remote(frame), **roles), **options))
    else:
        with pytest.raises(soc.StatisticsError, match=r"too many groups .* fewer bins"):
            soc.summarize(soc.NormalItems(frame, **roles), joint=True, **options)


def test_a_sum_has_joint_cells_if_all_of_it_has(example):
    frame = example("gamma").frame
    one, other = (statistics("gamma", frame[k::2], edges=[0.1, 0.2], joint=not k) for k in range(2))
    for both in (one + other, other + one):
        assert (both.has_joint, both.n_items) == (False, len(frame))
    assert (one + one).has_joint
    with pytest.raises(soc.StatisticsError, match="joint=True"):
        other.cells("joint")


def test_values_too_far_apart_for_joint_cells_are_refused(example):
    frame = example("normal").frame[:500]
    spread = frame.assign(value=np.linspace(-9e5, 9e5, 500) * frame["noise_sd"])
    assert len(statistics("normal", spread, bins=4, joint=True).cells("joint")["n"]) == 500
    with pytest.raises(soc.StatisticsError, match="more than 100 joint cells"):
        statistics("normal", spread, bins=4, joint=100)
    beyond = spread.assign(value=5 * spread["value"])
    with pytest.raises(soc.ItemsError, match=r"'value': .*noise sds.* from 0"):
        statistics("normal", beyond, bins=4, joint=True)
    assert statistics("normal", beyond, bins=4).n_items == 500  # without joint cells


def test_empty_bins_are_kept_and_no_item_is_dropped(example):
    frame = example("gamma").frame
    stats = statistics("gamma", frame, edges=[-5.0, -4.0, 0.1, 50.0, 60.0])
    assert (stats.data["n"].to_numpy() > 0).tolist() == [False, False, True, True, False, False]
    assert stats.n_items == len(frame)
    assert int(stats.data["sum_y"].sum()) == frame["count"].sum()
    np.testing.assert_allclose(stats.data["sum_N"].sum(), frame["exposure"].sum(), rtol=1e-12)
    assert np.isnan(stats.data["score_min"][0])


@pytest.mark.parametrize("family", thinned(SINGLE_FAMILIES, ["gamma"]))
def test_statistics_read_back_are_those_that_were_saved(family, example, tmp_path):
    dated = statistics(family, frame_of(family, example), FURTHER | {"date": "day"}, bins=12)
    for stats in (dated, dated.decay("2d")):
        stats.save(tmp_path / "stats.nc")
        again = soc.load_statistics(tmp_path / "stats.nc")
        assert again.data.identical(stats.data)
        assert_same(again + again, stats + stats)


def test_statistics_are_immutable(small_statistics):
    with pytest.raises(ValueError, match="read-only"):
        small_statistics.data["n"].to_numpy()[0] = 5
    with pytest.raises(AttributeError):
        small_statistics.data = None


def test_a_table_that_changes_while_it_is_read_is_an_error(example):
    """A view that gives other rows to every query."""
    connection = ibis.duckdb.connect()
    connection.con.register("all_items", pa.Table.from_pandas(example("gamma").frame))
    # from a fifth to four fifths of the rows: two numbers are the same once in 2,400
    query = "SELECT all_items.* FROM all_items, (SELECT 200 + 600 * random() AS mark)"
    connection.raw_sql(f"CREATE VIEW changing AS {query} WHERE hash(score) % 1000 < mark")
    with pytest.raises((soc.ItemsError, soc.StatisticsError), match="changed while"):
        statistics("gamma", connection.table("changing"), bins=10)
