"""Every bad input is one clear error on every way in; odd ones that are fine give right answers."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from soc_pymc._lib.arguments import PROBABILITY, SEED, OneOf, Real, Whole, switch
from soc_pymc._lib.errors import FitError, ItemsError, StatisticsError
from tests import bad_inputs
from tests.bad_inputs import (
    ARGUMENTS,
    BACKENDS,
    COMMANDS,
    FILES,
    FINE,
    PAGE,
    ROLES,
    SOURCES,
    TABLES,
    TAME,
    file_message,
    folder_of_commands,
    given,
    message,
    run_command,
    source_of,
    table_message,
    words_of,
)
from tests.data.test_engines import put_on  # noqa: F401  # a fixture: a table on an engine
from tests.thinning import thinned


def by_what(case):
    return case.what.replace(" ", "-") if hasattr(case, "what") else str(case)


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """A folder with the files that commands name."""
    folder = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        folder_of_commands()
    return folder


def judged(case, text):
    assert case.thing in text, text
    assert case.remedy in text, text


def in_one_line(status, shown, case):
    """The command ended with an error of one line."""
    assert status == 2
    assert shown.startswith("soc-pymc: error: ")
    assert shown.endswith("\n")
    assert shown.count("\n") == 1, shown
    assert case.thing in shown, shown


def test_the_table_is_as_large_as_it_says():
    assert len(TABLES) + len(SOURCES) >= 60
    for cases in (TABLES, SOURCES, ARGUMENTS, FINE):
        names = [case.what for case in cases]
        assert len(set(names)) == len(names)


# by default each table is tried on one source, and all sources come round
TURN = {(c.what, c.backends[i % len(c.backends)]) for i, c in enumerate(TABLES)}


@pytest.mark.parametrize(
    ("case", "backend"),
    thinned(
        [(c, b) for c in TABLES for b in c.backends], lambda pair: (pair[0].what, pair[1]) in TURN
    ),
    ids=by_what,
)
def test_bad_tables_are_one_error_from_every_source(case, backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    judged(case, table_message(case, backend))


def summarize_words(case, path):
    items = case.items(path)
    words = ["summarize", "--quiet", path, "--out", "stats.nc"]
    for role, column in items.roles.items():
        # further columns of groups are group_1, group_2
        words += ["--" + role.rstrip("_0123456789").replace("_", "-"), column]
    for name, value in case.options.items():
        if name == "joint":
            words += ["--joint"]
        elif name == "edges":  # the command line takes them from statistics
            words += ["--bins", "2"]
        else:
            words += [f"--{name}", str(value)]
    return words


@pytest.mark.parametrize("form", FILES)
@pytest.mark.slow
def test_bad_tables_in_files_are_one_line_on_the_command_line(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = 0
    for case in TABLES:
        # the command line has no number for --joint
        if form not in case.backends or case.options.get("joint") == 1:
            continue
        path = source_of(form, case.table())
        in_one_line(*run_command(summarize_words(case, path)), case)
        assert not (tmp_path / "stats.nc").exists()
        tried += 1
    assert tried >= 35


@pytest.mark.parametrize("case", SOURCES, ids=by_what)
def test_bad_files_are_one_error(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    judged(case, file_message(case))
    made = case.make()
    paths = [made] if isinstance(made, str) else made
    columns = ["--score", "t", "--count", "y", "--exposure", "N"]
    in_one_line(*run_command(["summarize", "--quiet", *paths, *columns, "--out", "s.nc"]), case)
    assert not (tmp_path / "s.nc").exists()


SCORED = [case for case in SOURCES if case.what not in ("files of two formats",)]


@pytest.mark.parametrize("case", SCORED, ids=by_what)
@pytest.mark.slow
def test_bad_files_are_one_error_of_scoring_too(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit, items = given().fit, soc.PoissonItems(case.make(), **ROLES)
    for out in (None, tmp_path / "scored.parquet"):
        text = message(
            lambda o=out: soc.item_posteriors(fit, items, out=o, progress=False), case.error
        )
        assert case.thing in text or "cannot be read" in text, text
    assert not (tmp_path / "scored.parquet").exists()


@pytest.mark.parametrize("case", ARGUMENTS, ids=by_what)
def test_bad_arguments_are_one_error(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    judged(case, message(lambda: case.call(given()), case.error))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", COMMANDS, ids=by_what)
def test_bad_commands_are_one_line(case, commands, monkeypatch):
    monkeypatch.chdir(commands)
    before = sorted(p.name for p in commands.iterdir())
    status, shown = run_command(words_of(case))
    in_one_line(status, shown, case)
    assert case.remedy in shown, shown
    assert sorted(p.name for p in commands.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("summarize --quiet none.csv --score t --count y --exposure N --out s",
         "none.csv: there is no such file"),
        ("fit a.csv --out f.nc", "a.csv"),
        ("frobnicate", "frobnicate"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_true_processes_end_in_one_line(words, text, commands):
    run = [sys.executable, "-m", "soc_pymc", *words.split()]
    ended = subprocess.run(run, cwd=commands, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stderr.startswith("soc-pymc: error: ")
    assert text in ended.stderr


@pytest.mark.parametrize("engine", ["polars"])
def test_bad_tables_are_one_line_by_other_engines(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for case in TABLES:
        if case.engines:
            path = source_of("parquet", case.table())
            words = [*summarize_words(case, path), "--engine", engine]
            in_one_line(*run_command(words), case)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["postgres", "spark"])
def test_bad_tables_are_the_same_error_on_servers(engine, put_on):  # noqa: F811
    for case in TABLES:
        if case.engines:
            items = case.items(put_on(engine, case.table()))
            judged(
                case,
                message(
                    lambda i=items, c=case: soc.summarize(i, progress=False, **c.options),
                    case.error,
                ),
            )


# ---------------------------------------------------------------- odd but fine


def numbers(stats):
    """All sums of statistics, exactly."""
    return {name: stats.data[name].to_numpy() for name in sorted(map(str, stats.data.data_vars))}


def tame(options):
    items = soc.PoissonItems(pd.DataFrame(TAME), **ROLES)
    return soc.summarize(items, edges=[0.25], progress=False, **options)


@pytest.mark.parametrize(
    ("case", "backend"), [(c, b) for c in FINE for b in c.backends], ids=by_what
)
@pytest.mark.slow
def test_odd_tables_give_the_answer_of_the_tame_one(case, backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = source_of(backend, case.table())
    items = case.items(source)
    found = soc.summarize(items, edges=[0.25], progress=False, **case.options)
    expected = numbers(tame(case.options))
    for name, values in numbers(found).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.slow
def test_odd_tables_are_scored_as_the_tame_one(backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit = given().fit
    plain = soc.item_posteriors(fit, soc.PoissonItems(pd.DataFrame(TAME), **ROLES), progress=False)
    for case in FINE:
        scored = soc.item_posteriors(
            fit, case.items(source_of(backend, case.table())), progress=False
        )
        mean = scored.to_pyarrow()["theta_mean"] if backend == "duckdb" else scored["theta_mean"]
        # a power of the library's may differ in its last digit by how the array is aligned
        np.testing.assert_allclose(
            np.asarray(mean), plain["theta_mean"], rtol=1e-13, err_msg=case.what
        )


def test_byte_order_marks_and_pathlib_are_read(tmp_path):
    path = tmp_path / "marked.csv"
    path.write_bytes(b"\xef\xbb\xbft,y,N\n0.1,0,1\n0.2,1,2\n0.3,2,3\n0.4,1,4\n")
    found = soc.summarize(soc.PoissonItems(path, **ROLES), edges=[0.25], progress=False)
    assert numbers(found)["n"].tolist() == [2, 2]
    assert found.total_count == 4


# ---------------------------------------------------------------- defects that were silent


def test_ids_are_read_where_folds_are_made_of_them_alone(tmp_path):
    """Large ids without sign once wrapped around in Parquet files, and failed elsewhere."""
    ids = np.array([1, 2**63 + 5, 2**64 - 1, 7], dtype=np.uint64)
    table = pa.table({**TAME, "i": ids})
    prime = 2**31 - 1
    small = pa.table({**TAME, "i": pa.array([int(i) % prime for i in ids], pa.int64())})
    roles = {**ROLES, "id": "i"}
    expected = soc.summarize(soc.PoissonItems(small, **roles), edges=[0.25], progress=False)
    for backend in ("pandas", "polars", "arrow", "duckdb", "parquet"):
        source = source_of(backend, table, tmp_path)
        found = soc.summarize(soc.PoissonItems(source, **roles), edges=[0.25], progress=False)
        np.testing.assert_array_equal(found.table("part")["fold"], expected.table("part")["fold"])


def test_ids_that_make_no_folds_must_be_there_all_the_same():
    items = soc.PoissonItems(pd.DataFrame(TAME), **ROLES, id="i")
    with pytest.raises(ItemsError, match="'i' is missing"):
        soc.summarize(items, edges=[0.25], folds=0, progress=False)


def test_checks_read_items_whose_ids_are_text():
    g = given()
    frame = g.frame.assign(i=[f"ad {k}" for k in range(len(g.frame))])
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure", id="i")
    named = soc.check(g.fit, items, subset=50, **g.quiet).table
    plain = soc.check(g.fit, g.items, subset=50, **g.quiet).table
    pd.testing.assert_frame_equal(named, plain)


def test_wide_decimals_are_not_misread_when_scored(tmp_path):
    """DuckDB reads 0.1 of 50 digits in Parquet as 1677721.6; it was scored so."""
    wide = next(case for case in TABLES if "more than 38 digits" in case.what)
    pq.write_table(wide.table(), tmp_path / "wide.parquet")
    with pytest.raises(ItemsError, match="more than 38 digits"):
        soc.item_posteriors(
            given().fit, soc.PoissonItems(tmp_path / "wide.parquet", **ROLES), progress=False
        )


def test_half_precision_is_read(tmp_path):
    half = pa.array(np.array(TAME["N"], dtype=np.float16))
    for backend in ("pandas", "arrow", "parquet"):
        source = source_of(backend, pa.table({**TAME, "N": half}), tmp_path)
        found = soc.summarize(soc.PoissonItems(source, **ROLES), edges=[0.25], progress=False)
        assert found.total_exposure == 10.0


def test_statistics_of_days_add_by_sum():
    day = tame({})
    assert sum([day, day, day]).n_items == 12
    with pytest.raises(TypeError):
        1 + day


def test_methods_and_priors_keep_plain_numbers_that_saved_fits_can_hold(tmp_path):
    assert type(soc.VI(seed=np.int64(3), draws=np.int32(20)).seed) is int
    spline = soc.Spline(knots=np.int64(4), wiggle=np.float32(0.5), level=[0, 1])
    assert (type(spline.knots), type(spline.wiggle), spline.level) == (int, float, (0.0, 1.0))
    prior = soc.Gamma(mean=soc.Spline(knots=np.int64(20), wiggle=np.float32(0.5), level=[0, 1]))
    made = replace(given().fit, prior=prior, method=soc.VI(seed=np.int64(3), draws=np.int32(50)))
    made.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert (again.method, again.prior) == (made.method, made.prior)


def test_argument_checks_take_numpy_and_refuse_what_only_looks_like_a_number():
    assert Whole(1)(np.int8(3), "n") == 3
    assert PROBABILITY(np.float32(0.5), "p") == 0.5
    assert switch(np.bool_(True), "s") is True
    odd = [
        None,
        "3",
        "",
        [],
        {},
        object(),
        np.array([1, 2]),
        pd.NA,
        1 + 2j,
        b"3",
        True,
        float("nan"),
    ]
    for value in odd:
        with pytest.raises(FitError, match=r"^n="):
            SEED(value, "n")
        with pytest.raises(StatisticsError, match=r"^x="):
            Real()(value, "x", StatisticsError)
        with pytest.raises(FitError, match=r"^c="):
            OneOf("a", "b")(value, "c")


# ---------------------------------------------------------------- the file system


def refuse(*_args, **_options):
    raise PermissionError(13, "Permission denied", "secret")


@pytest.mark.parametrize("form", FILES)
def test_files_that_may_not_be_read_are_named(form, tmp_path, monkeypatch):
    """As if by another user: whoever runs the tests may be one who may read everything."""
    monkeypatch.chdir(tmp_path)
    path = source_of(form, pa.table(TAME))
    reader = {
        "parquet": "pyarrow.parquet.read_schema",
        "csv": "soc_pymc.data.tables.item_files._header_of",
    }
    monkeypatch.setattr(reader[form], refuse)
    words = ["--score", "t", "--count", "y", "--exposure", "N", "--out", "s.nc"]
    status, shown = run_command(["summarize", "--quiet", path, *words])
    assert status == 2
    assert shown.count("\n") == 1
    assert f"{path} cannot be read as" in shown
    assert "Permission denied" in shown


@pytest.mark.parametrize("out", ["nowhere/stats.nc", "a.csv/stats.nc", "folder"])
def test_files_that_cannot_be_written_are_one_line(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.csv").write_text("t,y,N\n0.1,0,1\n0.2,1,2\n0.3,1,2\n0.4,1,2\n")
    words = ["--score", "t", "--count", "y", "--exposure", "N", "--bins", "2", "--out", out]
    status, shown = run_command(["summarize", "--quiet", "a.csv", *words])
    assert status == 2
    assert shown.count("\n") == 1, shown
    assert out.split("/")[0] in shown
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "folder"]


# ---------------------------------------------------------------- the page


def without_messages(page):
    """The page without the last cell of its rows, and what it was made with."""
    rows = (line.rsplit(" | ", 1)[0] for line in page.splitlines() if line.startswith("|"))
    return list(rows)


@pytest.mark.slow
def test_the_page_of_errors_is_what_the_table_gives():
    """Regenerate it with ``python -m tests.bad_inputs`` where messages have changed."""
    kept, now = PAGE.read_text(encoding="utf-8"), bad_inputs.page()
    assert without_messages(kept) == without_messages(now)
    if bad_inputs.made_with() in kept:  # other versions of libraries have other words for things
        assert kept == now
