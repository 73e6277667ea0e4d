"""Every bad input is one clear error that says what is wrong and what to do; odd ones are read.

Each case names what the error must mention: the column or argument, the number of bad rows, the
offending value, and a few words of the remedy.
"""

import dataclasses
import datetime
import inspect
import io
import types
import warnings
from functools import partial

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import soc_pymc as soc
from soc_pymc.families.priors import PRIORS
from tests.examples import QUIET, thinned
from tests.tables import COLUMNS, KINDS, ROLES, source_of
from tests.whole.test_public_names import PUBLIC, value_of

NAN, INF = float("nan"), float("inf")
FIX, CONVERT = "fix or drop", "convert it first"
EDGES = {"edges": [0.25]}
DAY = datetime.date(2024, 2, 29)
CSV = "t,y,N\n0.1,0,1\n0.2,1,2\n0.3,2,3\n"


def refused(call, error, *mentioned):
    """Asserts that a call raises exactly this error, and that its text mentions all words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error) as raised:
            call()
    assert type(raised.value) is error
    for words in mentioned:
        assert words in str(raised.value), str(raised.value)


def summarize(kind, columns, roles=None, **options):
    """Summarizes the tame table with some columns replaced."""
    make, usual = KINDS[kind]
    items = make(pd.DataFrame(COLUMNS | columns), **usual, **(roles or {}))
    return soc.summarize(items, progress=False, **(options or EDGES))


# column, the value in its second row, what the error mentions; of every kind that has the column
VALUES = [
    ("t", None, "'t': 1 of 4 rows is missing"),
    ("t", NAN, "'t': 1 of 4 rows is missing"),
    ("t", INF, "infinite (inf)"),
    ("t", -INF, "infinite (-inf)"),
    ("t", 1e91, "beyond 1e+90"),
    ("y", None, "'y': 1 of 4 rows is missing"),
    ("y", -1.0, "negative (-1)"),
    ("y", 0.5, "not whole (0.5)"),
    ("y", 1.000000012345679, "not whole (1.000000012345679)"),
    ("N", None, "'N': 1 of 4 rows is missing"),
    ("N", -2.0, "negative (-2)"),
    ("v", None, "'v': 1 of 4 rows is missing"),
    ("v", 1e36, "beyond 1e+35"),
    ("s", 0.0, "'s': 1 of 4 rows is 0 or below 1e-35"),
    ("s", -1.0, "negative"),
]
ONLY_COUNTS = [("N", INF, "infinite"), ("N", 0.0, "where column 'N' is 0"), ("y", 2.0**53, "2^53")]
ONLY_TRIALS = [
    ("y", 3.0, "'y': 1 of 4 rows is above the trials of column 'N' (3)"),
    ("N", 2.5, "'N': 1 of 4 rows is not whole (2.5)"),
    ("N", 0.0, "above the trials"),
]
ONLY_AMOUNTS = [
    ("x", -1.0, "'x': 1 of 4 rows is negative"),
    ("x", INF, "infinite"),
    ("x", 0.0, "positive without events (column 'N'), or 0 with some (0)"),
    ("N", 0.0, "'x': 1 of 4 rows is positive without events (column 'N')"),
    ("N", 2.5, "'N': 1 of 4 rows is not whole (2.5)"),
]
BY_KIND = [
    *((kind, *case) for kind, (_, roles) in KINDS.items() for case in VALUES
      if case[0] in roles.values()),
    *(("counts", *case) for case in ONLY_COUNTS),
    *(("successes", *case) for case in ONLY_TRIALS),
    *(("amounts", *case) for case in ONLY_AMOUNTS),
]  # fmt: skip


# scores are read alike for every kind
@pytest.mark.parametrize(
    ("kind", "column", "value", "mentioned"),
    thinned(BY_KIND, lambda case: case[0] == "counts" or case[1] != "t"),
)
def test_bad_values(kind, column, value, mentioned):
    values = [float(x) for x in COLUMNS[column]]
    values[1] = value
    refused(lambda: summarize(kind, {column: values}), soc.ItemsError, mentioned, FIX)


@pytest.mark.parametrize("kind", ["counts", "successes", "amounts"])
def test_items_without_anything_observed_make_statistics_and_no_fit(kind):
    nothing = {"y": [0] * 4, "x": [0.0] * 4, "N": [0] * 4}
    refused(lambda: soc.fit(summarize(kind, nothing)), soc.FitError, "nothing was observed")


# columns in the place of tame ones, further roles, what the error mentions
TABLES = {
    "text": (
        {"t": ["lo", "0.1", "lo", "hi"]}, {},
        ("'t' holds text ('hi', 'lo' in 3 of 4 rows)", CONVERT)),
    "true or false": ({"y": [True, False] * 2}, {}, ("'y' holds true/false", CONVERT)),
    "dates": ({"N": [DAY] * 4}, {}, ("'N' holds dates or times", CONVERT)),
    "mixed": (
        {"t": [0.1, "x", 0.2, 0.3]}, {},
        ("cannot be read: Conversion failed for column t with type object: Could not",)),
    "lists": ({"t": [[0.1]] * 4}, {}, ("'t' holds values of type list", CONVERT)),
    "no such column": (
        {"Score": [1.0] * 4}, {"id": "score"}, ("'score' is missing", "did you mean")),
    "missing group": (
        {"g": ["a", None, "b", "c"]}, {"group": "g"}, ("'g': 1 of 4 rows is missing",)),
    "fractions as groups": (
        {"g": [0.5, 1.5, 2.5, 3.5]}, {"group": "g"}, ("numbers with fractions", CONVERT)),
    "group of whole floats": (
        {"g": [1.0, None, 2.0, 1.0]}, {"group": "g"}, ("'Int64'", CONVERT)),
    "joining sign in a label": (
        {"g": list("aabb"), "h": ["c", "c×d", "d", "c"]}, {"group": ("g", "h")},
        ("'h': 1 of 4 rows",)),
    "NUL in a label": (
        {"g": ["a", "b\0c", "a", "b\0d"]}, {"group": "g"},
        ("'g': some labels have a NUL",)),
    "not a day": (
        {"g": ["2024-02-29", "2023-02-29", "2024-03-01", "3/1/2024"]}, {"date": "g"},
        ("'g': 2 of 4 rows are not a day YYYY-MM-DD", FIX)),
    "numbers as dates": ({"g": [20240229] * 4}, {"date": "g"}, ("'g' holds numbers", CONVERT)),
    "fold of 1000": ({"f": [0, 1000, 1, 2]}, {"fold": "f"}, ("larger than 999", "from 0 to 999")),
    "no rows": ({c: [] for c in COLUMNS}, {}, ("no rows",)),
}  # fmt: skip


# of every kind that has the column; labels are true or false by right
BAD_TABLES = [
    (name, kind)
    for name, (columns, roles, _) in TABLES.items()
    for kind, (_, usual) in KINDS.items()
    if (roles or set(columns) & set(usual.values()))
    and (name, kind) != ("true or false", "successes")
]


def read_by_kind(case):
    """Returns whether a table is to be tested of this kind: others are read alike for all."""
    columns, roles, _ = TABLES[case[0]]
    return case[1] == "counts" or not (roles or "t" in columns)


@pytest.mark.parametrize(("name", "kind"), thinned(BAD_TABLES, read_by_kind))
def test_bad_tables(name, kind):
    columns, roles, mentioned = TABLES[name]
    refused(lambda: summarize(kind, columns, roles), soc.ItemsError, *mentioned)


def test_scores_that_differ_by_rounding_are_refused():
    single = 0.25, float(np.nextafter(np.float32(0.25), np.float32(1.0)))
    for t in (0.3, 0.1 + 0.2), (-0.3, -0.1 - 0.2), single:
        columns = {name: values * 20 for name, values in COLUMNS.items()} | {"t": t * 40}
        mentioned = "'t': scores differ by rounding alone"
        refused(lambda c=columns: summarize("counts", c, bins=5), soc.ItemsError, mentioned)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")
def test_units_near_the_smallest_end_in_a_fit_or_one_sentence():
    """Values and noise of 1e-34 beside scores of 1: never an error of linear algebra."""
    rng = np.random.default_rng(0)
    t, s = rng.normal(size=400), np.full(400, 1e-34)
    items = soc.NormalItems(
        pd.DataFrame({"t": t, "v": 1e-34 * rng.normal(t), "s": s}), **KINDS["values"][1]
    )
    stats = soc.summarize(items, progress=False)
    message = ""
    try:
        fit = soc.fit(stats, progress=False)
    except soc.FitError as error:
        message = str(error)
    if message:
        assert "numbers of this size" in message
    else:
        curve = soc.calibration_curves(fit, [0.0, 1.0])["mean"].mean(("chain", "draw"))
        np.testing.assert_allclose(curve / 1e-34, [0.0, 1.0], atol=0.4)


def test_every_item_a_group_of_its_own():
    columns = {name: values * 20 for name, values in COLUMNS.items()} | {"g": range(80)}
    mentioned = ("'g': every item is a group", "(80 groups of 80 items)", "leave it out of group=")
    refused(lambda: summarize("counts", columns, {"group": "g"}), soc.ItemsError, *mentioned)


def test_values_far_from_zero():
    columns = {"v": [1e9, 1e9 + 1, 1e9 + 2, 1e9]}
    call = lambda: summarize("values", columns, edges=[0.25], joint=True)  # noqa: E731
    refused(call, soc.ItemsError, "column 'v'", "subtract a constant")


def _parquet(**columns):
    buffer = io.BytesIO()
    pd.DataFrame(COLUMNS | columns).to_parquet(buffer)
    return buffer.getvalue()


FILES = {
    "none.csv": (None, ("no such file",)),
    "none*.parquet": (None, ("no file matches",)),
    "s3://a/b.parquet": (None, ("through an Ibis table",)),
    "items.json": (b"{}", ("*.parquet", "*.csv")),
    "cut.parquet": (_parquet()[:-20], ("cut.parquet cannot be read",)),
    "text.parquet": (CSV.encode(), ("text.parquet cannot be read",)),
    "empty.csv": (b"", ("column 't' is missing",)),
    "head.csv": (b"t,y,N\n", ("no rows",)),
    "bare.csv": (b"0.1,0,1\n0.2,1,2\n", ("column 't' is missing", "the table has")),
    "latin.csv": ("t,y,N,g\n0.1,0,1,\xe9\n".encode("latin-1"), ("Line: 2", "not utf-8 encoded")),
    "ragged.csv": (
        b"t,y,N\n0.1,0,1\n0.2,1\n",
        ("ragged.csv: line 3 has 2 values", "first line", "has 3"),
    ),
    # lines before those of another number of values are not dropped
    "joined.csv": (
        b"t,y,N\n" + 50 * b"0.1,0,1\n" + b"t,y,N,g\n" + 9 * b"0.2,1,2,a\n",
        ("joined.csv: line 52 has 4 values", "has 3"),
    ),
    "title.csv": (b"Of May\n" + CSV.encode(), ("line 2 has 3 values", "has 1")),
    "commas.csv": (
        b"t;y;N\n0,1;0;1\n0,2;1;2\n",
        ("'t' holds text ('0,1', '0,2' in 2 of 2 rows)", CONVERT),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, mentioned = FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    items = soc.PoissonItems(name, **ROLES)
    refused(lambda: soc.summarize(items, **EDGES, progress=False), soc.ItemsError, *mentioned)


def test_files_that_disagree(tmp_path):
    """Types are united, so that nothing is rounded; a column that one file lacks is missing."""
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    paths[0].write_bytes(_parquet())
    paths[1].write_bytes(_parquet(N=[0.5, 1.5, 2.5, 3.5]))
    items = soc.PoissonItems(paths, **ROLES)
    stats = soc.summarize(items, **EDGES, progress=False)
    assert float(stats.data["sum_N"].sum()) == sum(COLUMNS["N"]) + 8.0
    pd.DataFrame(COLUMNS)[["t", "N"]].to_parquet(paths[1])
    refused(
        lambda: soc.summarize(items, **EDGES, progress=False), soc.ItemsError,
        "column 'y': 4 of 8 rows are missing",
    )  # fmt: skip


@pytest.fixture(scope="module")
def given(example):
    """Items, statistics and fits that calls are made with."""
    gamma, normal = example("gamma"), example("normal")
    grouped = example("groups").statistics
    labels = {"y": [0, 1, 0, 0], "N": [1, 1, 1, 0]}
    return types.SimpleNamespace(
        items=gamma.items, stats=gamma.statistics, fit=gamma.fit, frame=gamma.frame,
        few_items=gamma.case.items(gamma.frame.head(20)),
        values=normal.items, value_stats=normal.statistics,
        labels=summarize("successes", labels, joint=True, **EDGES),
        labels_without_cells=summarize("successes", labels, joint=False, **EDGES),
        grouped_stats=grouped, grouped_fit=example("groups").fit,
        grouped_items=example("groups").items,
    )  # fmt: skip


ITEMS, STATISTICS, FIT = soc.ItemsError, soc.StatisticsError, soc.FitError


def without_labels(given, number):
    """Returns four items with groups, of which some have none."""
    frame = given.grouped_items.source.head(4)
    labels = frame["kind"].where(np.arange(4) >= number)
    return dataclasses.replace(given.grouped_items, source=frame.assign(kind=labels))


CALLS = [
    (lambda g: soc.PoissonItems(g.frame, score="t", count=3, exposure="N"), ITEMS, "count=3"),
    (lambda g: soc.PoissonItems(g.frame, score="t\0", count="y", exposure="N"), ITEMS,
     "score='t\\x00'"),
    (lambda g: soc.PoissonItems(g.frame, score="t", count="t", exposure="N"), ITEMS,
     "score and count both name the column 't'"),
    (lambda g: soc.PoissonItems(g.frame, score="t", count="y"), ITEMS, "count= needs exposure="),
    (lambda g: soc.PoissonItems(g.frame, **ROLES, id="i", fold="f"), ITEMS, "not both"),
    (lambda g: soc.summarize(soc.PoissonItems({}, **ROLES), **QUIET), ITEMS, "builtins.dict"),
    (lambda g: soc.summarize(soc.PoissonItems("a\0.csv", **ROLES), **QUIET), ITEMS, "a\\x00.csv"),
    (lambda g: soc.summarize(g.frame, **QUIET), ITEMS, "not DataFrame"),
    (lambda g: soc.summarize(g.items, bins="ten", **QUIET), STATISTICS, "bins='ten'"),
    (lambda g: soc.summarize(g.items, bins=2, edges=[1], **QUIET), STATISTICS, "not both"),
    (lambda g: soc.summarize(g.items, edges=[2, 1], **QUIET), STATISTICS, "increase strictly"),
    (lambda g: soc.summarize(g.items, edges=[INF], **QUIET), STATISTICS, "must be finite"),
    (lambda g: soc.summarize(g.items, folds=1, **QUIET), STATISTICS, "folds=1"),
    (lambda g: soc.summarize(g.items, joint="x", **QUIET), STATISTICS, "joint='x'"),
    (lambda g: g.stats.of_fold(300), STATISTICS, "no fold 300"),
    (lambda g: g.stats.window("7d"), STATISTICS, "date= a column of dates"),
    (lambda g: g.stats.window("7d", "2026-03-31\n"), STATISTICS, "must be a day"),
    (lambda g: g.stats + g.value_stats, STATISTICS, "different kind"),
    (lambda g: soc.fit(g.items, **QUIET), FIT, "call soc.summarize(items) first"),
    (lambda g: soc.fit(g.stats, method="vi", **QUIET), FIT, "soc.VI(...)"),
    (lambda g: soc.VI(draws=-1), FIT, "draws=-1"),
    (lambda g: soc.VI(draws=True), FIT, "draws=True"),
    (lambda g: soc.Spline(knots=2.5), FIT, "knots=2.5"),
    (lambda g: soc.Spline(scale="square"), FIT, "'log', 'logit', 'linear'"),
    (lambda g: soc.Spline(level=(NAN, 1)), FIT, "finite number"),
    (lambda g: soc.Gamma(mean="log"), FIT, "soc.Spline(...)"),
    (lambda g: soc.fit(g.labels, soc.Beta(exposure=soc.Spline()), **QUIET), FIT,
     "=Spline()) needs items of two trials or more"),
    (lambda g: soc.model(g.labels, soc.Beta(zero=True)), FIT,
     "soc.Beta(zero=True) needs items of two trials or more"),
    (lambda g: soc.prior_predictive(soc.BetaMixture(), g.labels_without_cells), FIT,
     "soc.BetaMixture() needs items of two trials or more"),
    (lambda g: soc.calibration_curves("fit.nc"), FIT, "soc.load_fit"),
    (lambda g: soc.calibration_curves(g.fit, [NAN]), FIT, "finite numbers"),
    (lambda g: soc.calibration_curves(g.fit, [-1.0]), FIT, "scale"),
    (lambda g: soc.calibration_curves(g.fit, group="a"), FIT, "leave out group="),
    (lambda g: soc.bands(soc.calibration_curves(g.fit), prob=2), FIT, "prob=2"),
    (lambda g: soc.item_posteriors(g.fit, g.values, **QUIET), ITEMS, "value="),
    (lambda g: soc.item_posteriors(g.grouped_fit, g.items, **QUIET), ITEMS, "give them group="),
    (lambda g: soc.item_posteriors(g.grouped_fit, without_labels(g, 1), **QUIET), ITEMS,
     "'kind': 1 of 4 rows is missing"),
    (lambda g: soc.check(g.grouped_fit, without_labels(g, 4), **QUIET), ITEMS,
     "'kind': 4 of 4 rows are missing"),
    (lambda g: soc.item_posteriors(g.fit, g.items, quantiles=[1.0], **QUIET), FIT, "quantiles=1.0"),
    (lambda g: soc.item_posteriors(g.fit, g.items, out="a.csv", **QUIET), ITEMS, "*.parquet"),
    (lambda g: soc.item_posteriors(g.fit, g.items, out="no/a.parquet", **QUIET), ITEMS,
     "make it first"),
    (lambda g: soc.check(g.fit, g.items, by="nope", **QUIET), ITEMS, "'nope' is missing"),
    (lambda g: soc.evaluate.split_items(g.items, 1.0), FIT, "fraction=1.0"),
    (lambda g: soc.decisions.probability_above(g.fit, g.items, NAN, **QUIET), FIT, "threshold"),
    (lambda g: soc.decisions.probability_best(g.fit, g.items, 0, **QUIET), FIT, "k=0"),
    (lambda g: soc.decisions.total(g.fit, g.items, weights=[1.0, 2.0], **QUIET), FIT, "shape (2,)"),
    (lambda g: soc.export_prior(g.fit, "prior.csv"), FIT, "*.parquet or *.json"),
    (lambda g: soc.load_statistics(""), STATISTICS, "='' must be"),
    (lambda g: soc.SecondOrderCalibrator().fit([0.1, 0.2], [1, 2], [1, 2, 3]), ITEMS, "shape (3,)"),
    (lambda g: soc.plots.plot_calibration([2, 1], [0.1, 0.2]), ITEMS, "neither 0 nor 1"),
    (lambda g: soc.plots.plot_shrinkage(g.frame, score="t", count="y"), ITEMS, "name both columns"),
    (lambda g: soc.simulation.s1("ten"), FIT, "n_items='ten'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "mentioned"), CALLS, ids=[case[2] for case in CALLS])
def test_bad_arguments(call, error, mentioned, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(lambda: call(given), error, mentioned)
    assert not list(tmp_path.iterdir())  # nothing half-written


SWITCHES = {
    ("soc.bands", "simultaneous"): lambda g: (soc.calibration_curves(g.fit),),
    ("soc.plots.plot_curves", "simultaneous"): lambda g: (g.fit,),
    ("soc.decisions.total", "mean"): lambda g: (g.fit, g.few_items),
    ("soc.summarize", "joint"): lambda g: (g.items,),
    ("soc.PoissonItems", "truncated"): lambda _: (pd.DataFrame(COLUMNS),),
    ("soc.BinomialItems", "truncated"): lambda _: (pd.DataFrame(COLUMNS),),
}
SWITCHES |= {
    (f"soc.{kind.__name__}", field.name): lambda _: ()
    for kind in PRIORS
    for field in dataclasses.fields(kind)
    if field.type is bool
}


@pytest.mark.parametrize(("path", "name"), SWITCHES)
def test_switches_are_booleans_of_python_or_numpy(path, name, given):
    named = {"score": "t"} if name == "truncated" else {}
    call = partial(value_of(path), *SWITCHES[path, name](given), **named)
    for value in (True, False):
        assert repr(call(**{name: np.bool_(value)})) == repr(call(**{name: value}))
    for value in (0.5, "yes", None):
        with pytest.raises(soc.SocError, match=rf"^{name}={value!r} must be"):
            call(**{name: value})


@pytest.mark.parametrize("path", PUBLIC)
def test_every_switch_is_tested(path):
    """Except ``progress=``, which has tests of its own, and what `soc.fit` says of itself."""
    value = value_of(path)
    if callable(value) and not (isinstance(value, type) and issubclass(value, Exception)):
        for name, parameter in inspect.signature(value).parameters.items():
            if "bool" in str(parameter.annotation) and "progress" not in f"{path} {name}":
                assert (path, name) in SWITCHES or value is soc.Status


ODD_NAMES = ['a"b', "a'b", "t; DROP TABLE items; --", "señal スコア", "a\nb", "a.b[0]{c}", "select"]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize(
    "backend", thinned(["pandas", "polars", "duckdb", "parquet", "csv"], ["pandas", "duckdb"])
)
def test_odd_names_of_columns(name, backend, tmp_path):
    roles = {role: f"{name}{column}" for role, column in ROLES.items()}
    names = {column: f"{name}{column}" for column in COLUMNS}
    table = pa.Table.from_pandas(pd.DataFrame(COLUMNS).rename(columns=names))
    odd = soc.PoissonItems(source_of(backend, table, tmp_path), **roles)
    plain = soc.PoissonItems(pd.DataFrame(COLUMNS), **ROLES)
    stats = [soc.summarize(items, **EDGES, **QUIET) for items in (odd, plain)]
    np.testing.assert_array_equal(stats[0].data["n"], stats[1].data["n"])
    assert int(stats[0].data["sum_y"].sum()) == int(stats[1].data["sum_y"].sum()) == 4


@pytest.mark.parametrize(
    "columns",
    [
        {"y": [0.0, 1.0, 2.0, 1.0]},
        {"y": [-0.0, 1.0, 2.0, 1.0]},
        {"y": pa.array([0, 1, 2, 1], pa.uint8())},
        {"t": pa.array([0.1, 0.2, 0.3, 0.4]).dictionary_encode()},
    ],
)
def test_odd_types_of_numbers(columns):
    items = soc.PoissonItems(pa.table(COLUMNS | columns), **ROLES)
    stats = soc.summarize(items, **EDGES, **QUIET)
    assert (int(stats.data["sum_y"].sum()), float(stats.data["sum_N"].sum())) == (4, 10.0)


def test_names_of_columns_may_be_numbers():
    names = dict(zip(COLUMNS, range(len(COLUMNS)), strict=True))
    roles = {role: str(names[column]) for role, column in ROLES.items()}
    items = soc.PoissonItems(pd.DataFrame(COLUMNS).rename(columns=names), **roles)
    assert soc.summarize(items, **EDGES, **QUIET).n_items == 4


def test_a_csv_file_without_rows_among_others(tmp_path):
    (tmp_path / "a.csv").write_text("t,y,N\n")
    (tmp_path / "b.csv").write_text(CSV)
    (tmp_path / "c.csv").write_text(CSV.replace("1,2\n", "1,2.5\n"))
    items = soc.PoissonItems(tmp_path / "*.csv", **ROLES)
    stats = soc.summarize(items, **EDGES, **QUIET)
    assert (stats.n_items, float(stats.data["sum_N"].sum())) == (6, 12.5)
    (tmp_path / "c.csv").write_text(CSV.replace("0.1", "low"))
    refused(lambda: soc.summarize(items, **EDGES, **QUIET), soc.ItemsError, "'t' holds text")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("head", ["\n\n", "  \n", "# of May\n"])
def test_blank_lines_and_comments_before_a_csv_table(head, newline, tmp_path):
    (tmp_path / "items.csv").write_text(head + CSV, newline=newline)
    stats = soc.summarize(soc.PoissonItems(tmp_path / "items.csv", **ROLES), **EDGES, **QUIET)
    assert (stats.n_items, int(stats.data["sum_y"].sum())) == (3, 3)


def test_byte_order_marks_are_read(tmp_path):
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbf" + CSV.encode())
    stats = soc.summarize(soc.PoissonItems(tmp_path / "marked.csv", **ROLES), **EDGES, **QUIET)
    assert (stats.n_items, int(stats.data["sum_y"].sum())) == (3, 3)


SOURCES = {"pandas": lambda frame: frame, "duckdb": ibis.memtable}


@pytest.mark.parametrize("source", SOURCES)
def test_values_of_infinite_noise_say_nothing(source):
    """They get theta given the score, and the others what they get without these."""
    rng = np.random.default_rng(31)
    frame = pd.DataFrame({"t": rng.uniform(-1.0, 1.0, 400)})
    frame["y"] = frame["t"] + rng.normal(0.0, 0.6, 400)
    frame["s"] = rng.uniform(0.3, 0.6, 400)
    frame.loc[::20, "s"] = np.inf
    roles = {"score": "t", "value": "y", "noise_sd": "s"}
    items = soc.NormalItems(SOURCES[source](frame), **roles)
    fit = soc.fit(soc.summarize(items, **QUIET), **QUIET)
    scored = soc.item_posteriors(fit, items, **QUIET)
    scored = scored if isinstance(scored, pd.DataFrame) else scored.to_pandas()
    silent = np.isinf(frame["s"])
    before = soc.item_posteriors(fit, soc.NormalItems(frame[silent], score="t"), **QUIET)
    np.testing.assert_allclose(
        scored.loc[silent.to_numpy(), "theta_mean"], before["theta_mean"], atol=2e-3
    )
    told = soc.NormalItems(frame[~silent], **roles)
    other = soc.item_posteriors(soc.fit(soc.summarize(told, **QUIET), **QUIET), told, **QUIET)
    gap = scored.loc[~silent.to_numpy(), "theta_mean"].to_numpy() - other["theta_mean"].to_numpy()
    assert np.abs(gap).max() < 0.1 * other["theta_sd"].min()


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (lambda f: soc.NormalItems(f, score="t", value="share", noise_sd="se"), "BinomialItems"),
        (lambda f: soc.PoissonItems(f, score="t", count="part", exposure="n"), "shared out"),
        (
            lambda f: soc.BinomialItems(f, score="t", successes="part", trials="n"),
            "successes shared out",
        ),
    ],
)
def test_refusals_name_the_right_class(items, words):
    rng = np.random.default_rng(32)
    n = rng.integers(2, 9, 60)
    share = rng.binomial(n, 0.3) / n
    frame = pd.DataFrame({"t": 0.1 + 0.5 * share, "n": n, "share": share, "part": n / 3.3})
    frame["se"] = np.sqrt(share * (1.0 - share) / n)
    with pytest.raises(soc.ItemsError, match=words):
        soc.summarize(items(frame), **QUIET)
