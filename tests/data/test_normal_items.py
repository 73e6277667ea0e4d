"""Items with values and known noise: sources, additivity, validity and saving."""

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import soc_pymc as soc
from soc_pymc._lib.errors import ItemsError, ItemsWarning, StatisticsError
from soc_pymc._lib.files import save_netcdf
from soc_pymc.data import kernels, tables
from soc_pymc.data.binning import fold_of_id
from soc_pymc.data.statistics import Statistics, load_statistics
from soc_pymc.data.tables import expressions, scan
from soc_pymc.families.cells import MOST_VALUE_CELL, exposure_cell_range
from soc_pymc.front.cli import main
from tests.data.cell_references import exposure_cell, fold_of_item, value_cell, value_cell_range
from tests.data.test_engines import (  # noqa: F401
    ENGINES,
    as_decimal,
    assert_close,
    neighbours,
    plain_sums,
    put_on,
)
from tests.thinning import thinned

ROLES = {"score": "t", "value": "y", "noise_sd": "s"}
RNG = np.random.default_rng(0)


def simulate(n, seed, sd=0.5, noise=None):
    """Values about their scores: theta ~ Normal(t, sd^2), noise sds vary unless given."""
    rng = np.random.default_rng(seed)
    t = rng.normal(0, 1, n)
    s = rng.lognormal(0, 0.6, n) if noise is None else np.full(n, noise)
    return pd.DataFrame({"t": t, "y": t + sd * rng.normal(size=n) + s * rng.normal(size=n), "s": s})


def stats_of(source, columns=None, **options):
    items = soc.NormalItems(source, **ROLES, **(columns or {}))
    return soc.summarize(items, **{"joint": False, "progress": False} | options)


FRAME = simulate(20_000, seed=1)


def assert_same(a, b):
    """Integers, edges and extremes bit for bit, sums to 1e-12 of a column's largest."""
    assert set(a.data.variables) == set(b.data.variables)
    assert a.data.sizes == b.data.sizes
    for name in a.data.variables:
        x, y = a.data[name].to_numpy(), b.data[name].to_numpy()
        assert x.dtype == y.dtype
        if x.dtype.kind != "f" or name == "edges" or "score" in name:
            np.testing.assert_array_equal(x, y, err_msg=name)
        else:
            scale = np.nanmax(np.abs(x), initial=0)
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12 * scale, err_msg=name)


# ---------------------------------------------------------------- the record


def test_construction_reads_nothing_and_knows_its_roles():
    items = soc.NormalItems("not there.parquet", **ROLES)
    assert items.kind == "normal"
    assert items.roles == ROLES
    assert repr(items) == "NormalItems('not there.parquet', score='t', value='y', noise_sd='s')"
    assert dict(soc.NormalItems(None, **ROLES, group="g", id="i").roles) == {
        **ROLES, "group": "g", "id": "i",
    }  # fmt: skip
    with pytest.raises(AttributeError):
        items.value = "other"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"score": "y"}, "score and value both name the column 'y'"),
        ({"noise_sd": ""}, "noise_sd='' must be the name of a column"),
        ({"noise_sd": None}, "value= needs noise_sd=, the column of the noise sds"),
        ({"id": "i", "fold": "f"}, "id=, from which folds are made, or fold=, not both"),
    ],
)
def test_roles_must_be_distinct_names(bad, text):
    with pytest.raises(ItemsError, match=text):
        soc.NormalItems("x.csv", **{**ROLES, **bad})


# ---------------------------------------------------------------- cells


def borders(n=400):
    """Noise sds and values at the borders of cells, and next to them."""
    s = neighbours(2.0 ** RNG.integers(-30, 30, n) * (1 + RNG.integers(0, 16, n) / 16))
    low, width = value_cell_range(RNG.integers(-3000, 3000, len(s)), exposure_cell(s))
    step = RNG.integers(-1, 2, len(s)) * np.spacing(np.abs(low))
    return np.where(RNG.random(len(s)) < 0.5, low, low + step), s, width


def test_value_cells_hold_their_values():
    y, s, width = borders()
    noise_cell = exposure_cell(s)
    cell = value_cell(y, noise_cell)
    low, of_range = value_cell_range(cell, noise_cell)
    np.testing.assert_array_equal(of_range, width)
    assert ((low <= y) & (y < low + width)).all()
    assert (np.frexp(width)[0] == 0.5).all()  # powers of two
    least, _ = exposure_cell_range(noise_cell)
    assert ((width > least / 17) & (width <= least / 8)).all()
    far = value_cell([-1e35, 1e35, -5e-324, 5e-324], exposure_cell(1.0))
    most = MOST_VALUE_CELL
    assert list(far) == [-most, most, 0, 0]


def test_cells_of_kernels_and_engines_agree_bit_for_bit():
    y, s, _ = borders()
    y, s = np.concatenate([y, [1e35, -1e35, 3.0]]), np.concatenate([s, [1e-35, 1e-35, 1e35]])
    expected = value_cell(y, exposure_cell(s))
    noise = [kernels.exposure_cell(sd) for sd in s]
    kernel = [(n, kernels.value_cell(v, n)) for v, n in zip(y, noise, strict=True)]
    np.testing.assert_array_equal(kernel, np.stack([exposure_cell(s), expected], axis=1))
    table = tables.open_table(pd.DataFrame({"y": y, "s": s, "i": np.arange(len(y))}))
    table = table.mutate(noise=expressions._log_linear(table.s, expressions.STEPS))
    found = table.mutate(value=expressions.value_cell(table.y, table.noise)).order_by("i").execute()
    np.testing.assert_array_equal(found["noise"], exposure_cell(s))
    np.testing.assert_array_equal(found["value"], expected)


# ---------------------------------------------------------------- one table, every engine


def difficult(n=6000, seed=0):
    """Items at the edges of cells, with ties, values of any size, and noise of many octaves."""
    rng = np.random.default_rng(seed)
    y, s, _ = borders(n // 6)
    y = np.concatenate([y, rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n), np.zeros(50)])
    s = np.concatenate([s, rng.lognormal(0, 2, n + 50)])
    t = np.concatenate([neighbours(2.0 ** np.arange(-20, 9)), np.full(500, 0.125)])
    t = np.concatenate([t, rng.normal(0, 2, len(y) - len(t))])
    frame = pd.DataFrame({"t": t, "y": y, "s": s})
    n = len(frame)
    frame["label"] = np.array(["Zürich", "a", "b", "", "A b"])[rng.integers(0, 5, n)]
    frame["id"] = rng.integers(-(2**40), 2**40, n)
    frame["fold"] = rng.integers(0, 4, n).astype(np.int32)
    return frame.sample(frac=1, random_state=0)


def extreme(n=3000):
    """Values and noise sds up to the limits, and values so small that their powers vanish."""
    rng = np.random.default_rng(1)
    frame = difficult(n)
    n = len(frame)
    y = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-300, 35, n)
    y[:9] = [1e35, -1e35, 5e-324, -5e-324, 1e-35, -1e-35, np.nextafter(1e-35, 0), 0.0, -0.0]
    s = 10.0 ** rng.uniform(-35, 35, n)
    s[:2] = s[-2:] = [1e-35, 1e35]
    return frame.assign(y=y, s=np.clip(s, 1e-35, 1e35))


def typed(frame, kind):
    """The items as an Arrow table with columns of another type."""
    if kind == "small":
        s = np.ceil(frame["s"].clip(upper=2e9)).astype(np.int32)
        frame = frame.assign(t=frame["t"].astype(np.float32), y=frame["y"].round().clip(-9e8, 9e8))
        frame = frame.assign(y=frame["y"].astype(np.int32), s=s)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    at = table.column_names.index("label")
    table = table.set_column(at, "label", table["label"].cast(pa.string()))
    if kind == "decimal":
        for name, places, least in (("t", 6, -1e9), ("y", 3, -1e9), ("s", 4, 1e-3)):
            values = as_decimal(frame[name].clip(least, 1e9), places)
            table = table.set_column(table.column_names.index(name), name, values)
    return table


HARD, EXTREME = difficult(), extreme()
CLOSE = np.unique(np.concatenate([neighbours([0.125, 1.0]), [-0.7, 0.01, 0.3]]))
TASKS = {
    "bins": ({"group": "label", "id": "id"}, {"bins": 12}),
    "fold": ({"group": "label", "fold": "fold"}, {"bins": 9}),
    "default": ({}, {}),
    "close": ({}, {"edges": CLOSE, "folds": 7}),
    "none": ({}, {"edges": []}),
    "joint": ({"group": "label", "id": "id"}, {"bins": 20, "joint": True}),
    "coarse": ({}, {"bins": 64, "joint": 7500}),
}
CASES = [("double", task) for task in TASKS]
CASES += [("extreme", "bins"), ("small", "bins"), ("decimal", "bins")]


def case(kind, task):
    frame = HARD
    if kind == "extreme":
        frame = EXTREME
    elif "joint" in TASKS[task][1]:  # within a million noise sds
        frame = HARD.assign(y=np.clip(HARD["y"], -1e5 * HARD["s"], 1e5 * HARD["s"]))
    return typed(frame, kind), *TASKS[task]


def plain_terms(t, y, s):
    """Terms of all sums, by name, for every item."""
    log_t = np.log(np.where(t > 0, t, 1.0))
    small, w = np.where(np.abs(y) < 1e-35, 0.0, y), s * s
    powers = {"w": w, "w2": w**2, "w3": w**3}
    return {
        "n": np.ones(len(t), dtype=np.int64),
        "sum_y": y,
        "sum_y2": small**2,
        "sum_y3": small**3,
        "sum_s2": w,
        "sum_t": t,
        "sum_t2": t * t,
        "sum_log_t": log_t,
        "sum_log_t2": log_t**2,
        **{f"sum_{name}": power for name, power in powers.items()},
        **{f"sum_y{name}": small * power for name, power in powers.items()},
        **{f"sum_y2{name}": small**2 * power for name, power in powers.items()},
    }


def plain_keys(table, columns, options, stats):
    """Rows' keys by table."""
    t, y, s = (table[name].to_pandas().astype(float).to_numpy() for name in "tys")
    group = np.zeros(len(t), dtype=np.int64)
    if "group" in columns:
        names, group = np.unique(table["label"].to_pandas(), return_inverse=True)
        assert stats.groups == tuple(names)
    fold = np.zeros(len(t), dtype=np.int64)
    if "fold" in columns:
        fold = table["fold"].to_numpy()
    elif "id" in columns:
        fold = fold_of_id(table["id"].to_numpy(), 10)
    elif "folds" in options:
        fold = fold_of_item(t, s, options["folds"])
    bin_of, noise = np.searchsorted(stats.edges, t, side="right"), exposure_cell(s)
    part = {"group": group, "fold": fold, "bin": bin_of}
    keys = {"bin": {"bin": bin_of}, "part": part, "noise": part | {"cell": noise}}
    if "joint" in options:
        keys["joint"] = {
            "group": group,
            "bin": bin_of // stats.coarse,
            "noise_cell": noise,
            "value_cell": value_cell(y, noise),
        }
    return plain_terms(t, y, s), keys, t


def assert_plain(stats, table, columns, options):
    """Every variable: keys and integers exactly, sums to 1e-12 of their absolute terms."""
    terms, keys, t = plain_keys(table, columns, options, stats)
    assert (stats.data.sizes.get("joint", 0) > 0) == ("joint" in keys)
    for dim, its in keys.items():
        expected = plain_sums(terms, its, t)
        if dim == "bin":
            expected = expected.set_index("bin").reindex(range(stats.bins)).reset_index()
            sums = [name for name in expected if not name.startswith("score")]
            expected[sums] = expected[sums].fillna(0)
        names = [name for name in stats.data.data_vars if stats.data[name].dims == (dim,)]
        assert len(names) >= 10
        for name in names:
            wanted = name if dim == "bin" else name.removeprefix(f"{dim}_")
            assert_close(stats.data[name].to_numpy(), expected, wanted)


@pytest.mark.parametrize(("kind", "task"), CASES)
def test_statistics_are_those_of_plain_pandas(kind, task):
    table, columns, options = case(kind, task)
    stats = stats_of(table.to_pandas(), columns, on_leakage="ignore", **options)
    assert_plain(stats, table, columns, options)
    assert (stats.coarse > 1) == (task == "coarse")


@pytest.mark.parametrize(
    ("engine", "kind", "task"),
    thinned(
        [(engine, *case) for engine in ENGINES for case in CASES],
        lambda case: case[0] == "duckdb" or (case[1:] == ("double", "bins") and case[0] != "spark"),
    ),
)
def test_every_engine_gives_the_same_statistics(engine, kind, task, put_on):  # noqa: F811
    table, columns, options = case(kind, task)
    there = stats_of(put_on(engine, table), columns, on_leakage="ignore", **options)
    here = stats_of(table, columns, on_leakage="ignore", **options)
    np.testing.assert_array_equal(here.edges, there.edges)
    assert here.data.attrs == there.data.attrs
    assert_plain(there, table, columns, options)


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


# ---------------------------------------------------------------- additive, and in parts

ITEMS = FRAME[:3000].assign(
    country=np.where(np.arange(3000) % 7 < 2, "no", "se"), ad=np.arange(3000) * 17 - 900
)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.booleans(), st.sampled_from(["", "ad"]))
def test_parts_add_up_to_the_whole(seed, parts, joint, identity):
    """Bit for bit on whole numbers, in any partition, order and grouping of the sum."""
    rng = np.random.default_rng(seed)
    columns = {"group": "country"} | ({"id": "ad"} if identity else {})

    def of(frame):
        return stats_of(frame, columns, edges=[-1.0, -0.2, 0.0, 0.9], joint=joint)

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
    stats = stats_of(table, {"group": "country", "id": "ad"}, bins=8, folds=5, joint=True)
    assert (stats.kind, stats.groups, stats.folds) == ("normal", ("no", "se"), 5)
    assert_same(stats, stats.of_group("no") + stats.of_group("se"))
    folds = [stats.of_fold(k) for k in range(5)]
    assert_same(stats.without_fold(4), folds[0] + folds[1] + folds[2] + folds[3])
    mine = ITEMS[fold_of_id(ITEMS["ad"], 5) == 3]
    direct = stats_of(mine[mine["country"] == "se"], edges=stats.edges)
    kept = stats.of_group("se").of_fold(3)
    np.testing.assert_array_equal(kept.data["n"], direct.data["n"])
    for column, values in direct.cells("noise").items():
        found = kept.cells("noise")[column]
        np.testing.assert_allclose(found, values, rtol=1e-11, atol=1e-11 * np.abs(values).max())


def test_folds_never_look_at_the_value():
    own = stats_of(FRAME, edges=[0.1], folds=3)
    again = stats_of(FRAME.assign(y=FRAME["y"][::-1].to_numpy()), edges=[0.1], folds=3)
    counts = [[s.of_fold(k).n_items for k in range(3)] for s in (own, again)]
    assert counts[0] == counts[1]
    assert min(counts[0]) > 6000


@pytest.mark.parametrize("source", ["frame", "ibis"])
def test_joint_cells_keep_their_budget_or_raise(source):
    table = FRAME if source == "frame" else tables.open_table(FRAME)
    whole = stats_of(table, bins=64, joint=True)
    few = stats_of(table, bins=64, joint=13_000)
    assert (whole.coarse, few.coarse > 1) == (1, True)
    assert len(few.cells("joint")["n"]) <= 13_000 < len(whole.cells("joint")["n"])
    merged = (whole + few).cells("joint")
    np.testing.assert_array_equal(merged["n"], 2 * few.cells("joint")["n"])
    np.testing.assert_allclose(merged["sum_w2"], 2 * few.cells("joint")["sum_w2"], rtol=1e-12)
    with pytest.raises(StatisticsError, match=r"more than 300 joint cells even in a single bin"):
        stats_of(table, bins=64, joint=300)
    # spread over 1e6 noise sds every item has a cell of its own, and beyond them none
    spread = FRAME.assign(y=np.linspace(-9e5, 9e5, len(FRAME)) * FRAME["s"])
    wide = spread if source == "frame" else tables.open_table(spread)
    assert len(stats_of(wide, bins=4, joint=True).cells("joint")["n"]) > 19_900
    far = spread.assign(y=2 * spread["y"])
    beyond = far if source == "frame" else tables.open_table(far)
    with pytest.raises(ItemsError, match=r"'y': values are up to 1.8e\+06 noise sds from 0"):
        stats_of(beyond, bins=4, joint=True)
    assert stats_of(beyond, bins=4).n_items == len(far)


# ---------------------------------------------------------------- options


def test_bins_are_equal_only_in_items():
    for equal in ("count", "exposure"):
        with pytest.raises(ItemsError, match=f"items with values have no {equal}"):
            stats_of(FRAME, equal=equal)
    with pytest.raises(StatisticsError, match="equal='value' must be"):
        stats_of(FRAME, equal="value")
    n = stats_of(FRAME, bins=20, equal="items").data["n"].to_numpy()
    np.testing.assert_allclose(n, 1000, rtol=0.01)
    assert 1000 < stats_of(FRAME).bins <= 1012


def test_only_statistics_of_one_kind_can_be_added():
    counts = soc.PoissonItems(
        pd.DataFrame({"t": [0.1, 0.2], "y": [1, 0], "N": [2, 2]}),
        score="t", count="y", exposure="N",
    )  # fmt: skip
    poisson = soc.summarize(counts, edges=[0.1], progress=False)
    normal = stats_of(FRAME[:500], edges=[0.1])
    with pytest.raises(StatisticsError, match="different kind cannot be added"):
        normal + poisson
    for wrong, text in (
        (lambda: normal.total_count, "normal items have no total_count"),
        (lambda: normal.total_exposure, "normal items have no total_exposure"),
        (lambda: normal.cells("count"), r"no table 'count', but 'part', 'noise', 'joint'"),
        (lambda: poisson.table("noise"), r"poisson items have no table 'noise'"),
        (lambda: normal.cells("joint"), "joint=True"),
    ):
        with pytest.raises(StatisticsError, match=text):
            wrong()
    assert repr(normal).startswith("<soc_pymc.Statistics: 500 items in 2 bins, ")
    assert "values of mean" in repr(normal)


# ---------------------------------------------------------------- bad items

INF, NAN = float("inf"), float("nan")
GOOD = {
    "t": [0.1, -0.2, 0.3, 0.4, 0.5],
    "y": [0.0, -1.5, 2.0, 3.0, 4.0],
    "s": [1.0, 2.0, 3.0, 4.0, 5.0],
}
BAD = {
    "null score": {"t": [0.1, None, None, 0.4, 0.5]},
    "null value": {"y": [0.0, None, NAN, 3.0, 4.0]},
    "infinite value": {"y": [0.0, INF, 2.0, -INF, 4.0]},
    "huge value": {"y": [0.0, 1e36, 2.0, -1e200, 4.0]},
    "null noise": {"s": [1.0, None, NAN, 4.0, 5.0]},
    "no noise": {"s": [0.0, -0.0, 3.0, 4.0, 5.0]},
    "tiny noise": {"s": [1e-36, 1e-300, 3.0, 4.0, 0.0]},
    "negative noise": {"s": [-1.0, -0.5, 3.0, 4.0, 5.0]},
    "infinite noise": {"s": [INF, NAN, 3.0, -INF, 5.0]},
    "huge noise": {"s": [1e36, 1e200, 3.0, 4.0, 5.0]},
    "everything": {
        "t": [0.1, None, INF, 0.2, 1e101],
        "y": [-1.0, NAN, 1e300, 2.0, INF],
        "s": [1.0, -2.0, NAN, 0.0, 1e99],
    },
    "wrong types": {"y": ["low"] * 5, "s": [True, False, True, True, False]},
    "missing columns": {"s": None},
    "one score": {"t": [0.25] * 5},
    "no rows": {"t": [], "y": [], "s": []},
    "far from 0": {"y": [1e9, 1e9 + 1, 1e9, 1e9 + 2, 1e9]},
}
TEXTS = {
    "no noise": "column 's': 2 of 5 rows are 0 or below 1e-35 (0); noise sds must be finite "
    "numbers > 0: fix or drop these rows",
    "tiny noise": "column 's': 3 of 5 rows are 0 or below 1e-35 (0, 1e-300, 1e-36, ...); "
    "noise sds must be finite numbers > 0: fix or drop these rows",
    "negative noise": "column 's': 2 of 5 rows are negative (-1, -0.5); noise sds must be finite "
    "numbers > 0: fix or drop these rows",
    "huge value": "column 'y': 2 of 5 rows are beyond 1e+35 in size (-1e+200, 1e+36); values "
    "must be finite numbers: fix or drop these rows",
    "wrong types": "column 'y' holds text; values must be finite numbers: convert it first\n"
    "column 's' holds true/false values; noise sds must be finite numbers > 0: convert it first",
    "far from 0": "column 'y': values are so far from 0, compared with their variation and noise, "
    "that sums of their squares lose the digits that matter: subtract a constant, such as their "
    "mean 1e+09, from values and scores alike",
}


def bad_table(name):
    columns = {k: v for k, v in {**GOOD, **BAD[name]}.items() if v is not None}
    return pa.table({k: pa.array(v, None if v else pa.float64()) for k, v in columns.items()})


def error_of(source):
    with pytest.raises(ItemsError) as caught:
        stats_of(source)
    return str(caught.value)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.slow
def test_tables_and_files_have_the_same_errors(name, tmp_path):
    table = bad_table(name)
    text = error_of(table)
    assert text == TEXTS.get(name, text)
    assert error_of(table.to_pandas(types_mapper=pd.ArrowDtype)) == text
    assert error_of(pl.from_arrow(table)) == text
    pq.write_table(table, tmp_path / "items.parquet")
    in_file = error_of(tmp_path / "items.parquet")
    assert in_file.removeprefix(f"{tmp_path}/items.parquet: ") == text


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_the_same_errors(engine, put_on):  # noqa: F811
    different = {}
    for name in BAD:
        table = bad_table(name)
        found, expected = error_of(put_on(engine, table)), error_of(table)
        if found != expected:
            different[name] = (found, expected)
    assert different == {}


def test_totals_of_a_scan():
    totals = scan(soc.NormalItems(FRAME, **ROLES), progress=False).totals
    y, s = FRAME["y"], FRAME["s"]
    found = [totals.n, totals.outcome, totals.absolute, totals.sizes, totals.farthest]
    expected = [len(y), y.sum(), y.abs().sum(), (s**2).sum(), (y.abs() / s).max()]
    np.testing.assert_allclose(found, expected, rtol=1e-11)


# ---------------------------------------------------------------- values far from 0


@pytest.mark.parametrize("source", ["frame", "ibis"])
def test_sums_that_lose_precision_are_refused(source):
    """If accepted, the variation about a bin's mean is right to 1e-4."""
    for shift, accepted in ((0.0, True), (3e4, True), (1e7, False), (1e12, False)):
        frame = FRAME.assign(t=FRAME["t"] + shift, y=FRAME["y"] + shift)
        table = frame if source == "frame" else tables.open_table(frame)
        edges = np.array([-1.0, 0.0, 1.0]) + shift
        if not accepted:
            with pytest.raises(ItemsError, match="subtract a constant, such as their mean 1e"):
                stats_of(table, edges=edges)
            continue
        stats = stats_of(table, edges=edges)
        n, y1, y2 = (stats.data[c].to_numpy() for c in ("n", "sum_y", "sum_y2"))
        bins = np.searchsorted(edges, frame["t"], side="right")
        variance = frame.groupby(bins)["y"].var(ddof=0)
        np.testing.assert_allclose(y2 / n - (y1 / n) ** 2, variance, rtol=1e-4)


def test_precision_is_checked_by_group():
    """Distant groups vary much together, but each must keep its precision."""
    far = FRAME.assign(g=np.arange(len(FRAME)) % 2)
    far["y"] += 1e9 * far["g"]
    assert stats_of(far, edges=[0.0]).n_items == len(far)
    with pytest.raises(ItemsError, match="subtract a constant"):
        stats_of(far, {"group": "g"}, edges=[0.0])


def test_exact_values_do_not_count_as_lost_precision():
    """Constant values, single items and noise far below the variation of theta are all fine."""
    few = FRAME[:40]
    assert stats_of(few.assign(y=3.0, s=1.0), edges=[0.0], on_leakage="ignore").n_items == 40
    assert stats_of(few.assign(s=1e-9, y=few["y"] + 5), on_leakage="ignore").n_items == 40
    assert stats_of(FRAME.assign(s=1e-9), on_leakage="ignore").n_items == len(FRAME)


# ---------------------------------------------------------------- leakage


@pytest.mark.parametrize("seed", thinned(range(8), range(2)))
def test_honest_scores_do_not_leak(seed):
    frame = simulate(5000, seed=seed, sd=0.0, noise=None if seed % 2 else 1.3)
    for bins in (20, 1000, 2500):
        assert abs(stats_of(frame, bins=bins).leakage_z) < 4.5


@pytest.mark.parametrize("noise", [None, 1.0])
def test_scores_that_saw_their_values_are_refused(noise):
    frame = simulate(5000, seed=0, noise=noise)
    shrunken = frame["t"] + (frame["y"] - frame["t"]) * 0.25 / (0.25 + frame["s"] ** 2)
    leaky = frame.assign(t=shrunken)
    assert stats_of(frame, bins=50).leakage_z > 3
    with pytest.raises(ItemsError, match=r"values vary far less .* trained on the others"):
        stats_of(frame.assign(t=frame["y"]))
    with pytest.warns(ItemsWarning, match="than their noise sds allow"):
        stats_of(frame.assign(t=frame["y"]), on_leakage="warn")
    # scores that use their own value with its right weight, not more, are found too
    for bins in (None, 20, 200):
        with pytest.raises(ItemsError, match="trained on the others"):
            stats_of(leaky, bins=bins)


# ---------------------------------------------------------------- error bound


def test_error_bound_holds_and_is_small():
    """Log marginals of cells, to third order, against those of the items: 1e-5 nats per item."""
    frame = simulate(4000, seed=3, sd=0.7)
    stats = stats_of(frame, edges=[])
    cells, bound = stats.cells("noise"), stats.error_bound[0]
    y, w = frame["y"].to_numpy(), frame["s"].to_numpy() ** 2
    mean = y.mean()
    cell = exposure_cell(frame["s"])
    worst = 0.0
    for variance in (0.0, 0.01, 0.5, 30.0):
        exact = -0.5 * (np.log(variance + w) + (y - mean) ** 2 / (variance + w)).sum()
        short = 0.0
        for k in np.unique(cell):
            of = cell == k
            v, u = variance + w[of].mean(), w[of] - w[of].mean()
            square = (y[of] - mean) ** 2
            short -= 0.5 * (np.log(v) + u / v - u**2 / (2 * v**2) + u**3 / (3 * v**3)).sum()
            short -= 0.5 * (square * (1 / v - u / v**2 + u**2 / v**3 - u**3 / v**4)).sum()
        worst = max(worst, abs(exact - short))
    assert len(cells["n"]) == len(np.unique(cell))
    assert 1e-9 < worst <= bound
    assert bound < 1e-5 * len(y)
    same = stats_of(simulate(500, seed=1, noise=1.5), edges=[])
    np.testing.assert_array_equal(same.error_bound, 0.0)


# ---------------------------------------------------------------- files and the command line


def test_saved_and_loaded(tmp_path):
    path = tmp_path / "s.nc"
    stats = stats_of(ITEMS, {"group": "country", "id": "ad"}, bins=7, joint=True)
    stats.save(path)
    again = load_statistics(path)
    assert again.data.identical(stats.data)
    assert_same(again + again, stats + stats)
    for changed in (
        stats.data.assign(noise_n=-stats.data["noise_n"]),
        stats.data.assign_attrs(kind="poisson"),
        stats.data.assign_attrs(kind="other"),
    ):
        changed = changed.assign_attrs({**stats.data.attrs, **changed.attrs})
        with pytest.raises(StatisticsError, match="not written"):
            Statistics(changed).save(path)
        save_netcdf(changed, path, StatisticsError)
        with pytest.raises(StatisticsError, match="damaged"):
            load_statistics(path)


def test_command_line(tmp_path, capsys):
    items, out = tmp_path / "items.parquet", tmp_path / "stats.nc"
    FRAME.to_parquet(items)
    words = ["summarize", str(items), "--score", "t", "--bins", "30", "--quiet", "--out", str(out)]
    values = ["--value", "y", "--noise-sd", "s"]
    for engine in ("duckdb", "polars"):
        assert main([*words, *values, "--engine", engine]) == 0
        assert "20,000 items in 30 bins" in capsys.readouterr().out
        assert_same(load_statistics(out), stats_of(FRAME, bins=30, joint="auto"))
    both = "give --count and --exposure, or --value and --noise-sd, or --successes and --trials"
    for more, text in (
        ([], "to use: --score, --count, --exposure, or --score, --value, --noise-sd"),
        (["--value", "y"], "say which columns to use: --noise-sd"),
        (["--noise-sd", "s"], "say which columns to use: --value"),
        ([*values, "--count", "y"], both),
        (["--count", "y", "--noise-sd", "s"], both),
        ([*values, "--equal", "count"], "items with values have no count"),
    ):
        assert main([*words, *more]) == 2
        assert text in capsys.readouterr().err


def test_spark_or_other_backends_need_no_kernels():
    """An Ibis table on the user's connection, grouped there."""
    connection = ibis.duckdb.connect()
    connection.con.register("mine", FRAME)
    assert_same(stats_of(connection.table("mine"), bins=9), stats_of(FRAME, bins=9))
