"""Nothing is pickled, evaluated or followed: the syntax trees are searched, and files try."""

import ast
import json
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc._lib.errors import SocError
from soc_pymc._lib.files import seal

PACKAGE = Path(soc.__file__).parent

# ---------------------------------------------------------------- what the modules say

_MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "dbm",
    "subprocess", "pty", "ctypes", "cffi", "code", "codeop", "runpy", "imp", "socket", "urllib",
    "http", "ftplib", "requests", "xmlrpc", "yaml", "telnetlib", "webbrowser", "antigravity",
}  # fmt: skip
_CALLS = {"eval", "exec", "compile", "__import__", "execfile", "breakpoint", "input"}
_METHODS = {
    "system", "popen", "spawnl", "spawnv", "execv", "execve", "execvp", "fork", "posix_spawn",
    "startfile", "read_pickle", "to_pickle", "memmap", "fromfile", "full_load", "unsafe_load",
    "create_function", "install_extension", "load_extension",
}  # fmt: skip


def faults(tree):
    """Line and text of what a module must not do."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in _MODULES:
                    yield node.lineno, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            if not node.level and (node.module or "").split(".")[0] in _MODULES:
                yield node.lineno, f"from {node.module}"
        elif isinstance(node, ast.Call):
            yield from faults_of_call(node)


def faults_of_call(node):
    name = node.func.id if isinstance(node.func, ast.Name) else None
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else None
    keywords = {k.arg: k.value for k in node.keywords}
    if name in _CALLS:
        yield node.lineno, f"{name}()"
    if attribute in _METHODS:
        yield node.lineno, f".{attribute}()"
    if attribute == "load" and ast.unparse(node.func.value) in ("np", "numpy", "yaml"):
        yield node.lineno, ast.unparse(node)
    for danger in ("allow_pickle", "shell"):
        value = keywords.get(danger)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
            yield node.lineno, f"{danger}={ast.unparse(value)}"
    if "import_module" in (name, attribute) and not isinstance(node.args[0], ast.Constant):
        yield node.lineno, f"import_module({ast.unparse(node.args[0])})"


# a name of the package itself, looked up in its own table of names
ALLOWED = {
    ("__init__.py", "import_module(f'.{_DOORS[name]}')"),
    ("__init__.py", "import_module(f'.{_DOORS[spec.name.rpartition('.')[2]]}')"),
    ("__init__.py", "import_module(f'.{_HOME[name]}')"),
    # loops of the package's own rules of validity and sums, whose text is no one else's
    ("families/validity.py", "compile()"),
    ("families/validity.py", "exec()"),
}


def test_no_module_unpickles_evaluates_or_starts_anything():
    found, seen = set(), 0
    for path in sorted(PACKAGE.rglob("*.py")):
        seen += 1
        for line, text in faults(ast.parse(path.read_text())):
            where = str(path.relative_to(PACKAGE))
            if (where, text) not in ALLOWED:
                found.add(f"{where}:{line}: {text}")
    assert seen > 100
    assert not found


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from dill import loads", "eval('1')", "exec(x)", "compile(a, b, c)",
     "os.system('ls')", "np.load(f)", "np.load(f, allow_pickle=True)", "pd.read_pickle(f)",
     "f(shell=True)", "importlib.import_module(name)", "__import__(x)", "yaml.load(f)",
     "import subprocess as s"],
)  # fmt: skip
def test_the_search_finds(code):
    assert list(faults(ast.parse(code)))


# ---------------------------------------------------------------- files that try


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return Path.touch, (Path(self.target),)


@pytest.fixture(scope="module")
def frame():
    return soc.simulation.s1(1500, seed=7)


@pytest.fixture(scope="module")
def stats(frame):
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    return soc.summarize(items, bins=5, progress=False)


@pytest.fixture(scope="module")
def five(stats):
    return soc.fit(stats, method=soc.FiveSteps(), progress=False)


def tampered(saved, path, change):
    """A saved file changed by h5py and sealed again."""
    saved.save(path)
    with h5py.File(path, "r+") as file:
        change(file)
    content = path.read_bytes()
    path.write_bytes(content + seal(content))


def put_pickle(file):
    del file["part_sum_t"]
    kind = h5py.vlen_dtype(np.uint8)
    file.create_dataset("part_sum_t", (1,), dtype=kind)
    file["part_sum_t"][0] = np.frombuffer(pickle.dumps(Bomb("touched")), dtype=np.uint8)


def put_reference(file):
    del file["part_sum_t"]
    file.create_dataset("part_sum_t", data=[file["part_n"].ref], dtype=h5py.ref_dtype)


def put_external_link(file):
    del file["part_sum_t"]
    file["part_sum_t"] = h5py.ExternalLink("/etc/passwd", "/part_sum_t")


def put_soft_link(file):
    del file["part_sum_t"]
    file["part_sum_t"] = h5py.SoftLink("/part_n")


def put_virtual(file):
    n = file["part_sum_t"].shape
    del file["part_sum_t"]
    layout = h5py.VirtualLayout(shape=n, dtype="f8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "part_sum_t", shape=n)
    file.create_virtual_dataset("part_sum_t", layout)


def put_external_storage(file):
    n = file["part_sum_t"].shape
    del file["part_sum_t"]
    file.create_dataset("part_sum_t", n, dtype="f8", external=[("/etc/passwd", 0, 8 * n[0])])


def put_filter(file):
    values = file["part_sum_t"][:]
    del file["part_sum_t"]
    file.create_dataset("part_sum_t", data=values, compression="gzip")


def put_giant(file):
    """Eight terabytes that take no room in the file."""
    del file["part_sum_t"]
    file.create_dataset("part_sum_t", (1 << 40,), dtype="f8", chunks=(1 << 20,))


def put_compound(file):
    del file["part_sum_t"]
    file.create_dataset("part_sum_t", (3,), dtype=[("a", "f8"), ("b", "i4")])


def put_cycle(file):
    file.create_group("a")
    file["a/b"] = file["a"]


HOSTILE = {
    put_pickle: "objects", put_reference: "objects", put_external_link: "is a link",
    put_soft_link: "is a link", put_virtual: "another file", put_external_storage: "another file",
    put_filter: "compressed", put_giant: "bytes in a file", put_compound: "neither numbers",
    put_cycle: "too deeply",
}  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
@pytest.mark.slow
def test_a_file_cannot_reach_beyond_itself(change, stats, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tampered(stats, tmp_path / "s.nc", change)
    with pytest.raises(soc.StatisticsError, match=HOSTILE[change]):
        soc.load_statistics(tmp_path / "s.nc")
    assert not (tmp_path / "touched").exists()


def test_contents_changed_by_another_program_are_refused(stats, tmp_path):
    """One number changed within reason, and sealed again: the digest inside differs."""

    def change(file):
        file["part_score_min"][0] *= 1 - 1e-9

    tampered(stats, tmp_path / "s.nc", change)
    with pytest.raises(soc.StatisticsError, match="contents are not those that were saved"):
        soc.load_statistics(tmp_path / "s.nc")


TEXTS = (
    "__import__('os').system('touch touched')",
    "{0.__class__.__mro__} %s %(x)n {x!r:>999999999}",
    "../../../../etc/passwd",
    "\x1b[2J\x1b]0;title\x07",
    "<script>alert(1)</script>",
    "a" * 100_000,
    '"; DROP TABLE ads; --',
    json.dumps({"__reduce__": ["os.system", ["touch touched"]]}),
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("format", "prior", "method", "status", "roles", "kind")[k % 6], t)
        for k, t in enumerate(TEXTS)
    ],
    ids=range(len(TEXTS)),
)
def test_hostile_attributes_are_data(name, text, five, tmp_path, monkeypatch):
    """They are refused, in one printable line, whatever they hold."""
    monkeypatch.chdir(tmp_path)

    def change(file):
        file.attrs[name] = text

    tampered(five, tmp_path / "f.nc", change)
    with pytest.raises(soc.FitError) as caught:
        soc.load_fit(tmp_path / "f.nc")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    assert not (tmp_path / "touched").exists()


HOSTILE_NAME = '<img src=x onerror=alert(1)>";DROP TABLE items;--\x1b[2J{0.__class__}'


@pytest.fixture(scope="module")
def hostile_fit(frame):
    """Groups and columns with names that mean something to a terminal, a browser, SQL, a format."""
    named = frame.rename(columns={"score": HOSTILE_NAME, "count": "y" + HOSTILE_NAME})
    named["c" + HOSTILE_NAME] = np.where(np.arange(len(named)) % 2, HOSTILE_NAME, "../../b")
    items = soc.PoissonItems(
        named, score=HOSTILE_NAME, count="y" + HOSTILE_NAME, exposure="exposure",
        group="c" + HOSTILE_NAME,
    )  # fmt: skip
    stats = soc.summarize(items, bins=5, progress=False)
    return items, stats, soc.fit(stats, method=soc.FiveSteps(), progress=False)


def test_hostile_names_come_back_and_are_shown_as_text(hostile_fit, tmp_path):
    items, stats, fit = hostile_fit
    stats.save(tmp_path / "s.nc")
    fit.save(tmp_path / "f.nc")
    again = soc.load_statistics(tmp_path / "s.nc"), soc.load_fit(tmp_path / "f.nc")
    assert again[0].groups == stats.groups == ("../../b", HOSTILE_NAME)
    assert again[1].groups == fit.groups
    for shown in (*again, items):
        page = shown._repr_html_()
        assert "<img" not in page
        assert "\x1b" not in repr(shown)
        assert "\x1b" not in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.nc", "s.nc"]


def test_hostile_names_do_not_reach_the_report_as_markup(hostile_fit, tmp_path):
    items, _, fit = hostile_fit
    soc.report(fit, items, out=tmp_path / "report.html", progress=False)
    page = (tmp_path / "report.html").read_text()
    assert "<img src=x" not in page
    assert "onerror=alert(1)>" not in page
    assert "\x1b" not in page


def test_hostile_names_are_quoted_in_sql(hostile_fit):
    """The statement is one, parses, and its only table is the one that was given."""
    import sqlglot

    source, roles = hostile_fit[0].source, dict(hostile_fit[0].roles)
    roles.pop("group")  # a warehouse takes no groups
    stats = soc.summarize(soc.PoissonItems(source, **roles), bins=5, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    for dialect in ("duckdb", "postgres"):
        text = soc.posterior_sql(fit, "ads", columns=['x"; DROP TABLE ads; --'], dialect=dialect)
        (statement,) = sqlglot.parse(text, dialect=dialect)
        assert isinstance(statement, sqlglot.exp.Query)
        tables = {t.name for t in statement.find_all(sqlglot.exp.Table)}
        tables -= {cte.alias for cte in statement.find_all(sqlglot.exp.CTE)}
        assert tables == {"ads"}
        assert not list(statement.find_all(sqlglot.exp.Drop))


def test_a_hostile_table_name_is_a_name(five):
    """Only parts of a dotted name, quoted: the statement has no second one."""
    import sqlglot

    with pytest.raises(SocError, match="table"):
        soc.posterior_sql(five, 'ads"; DROP TABLE ads; --', dialect="duckdb")
    text = soc.posterior_sql(five, '"ads""; DROP TABLE ads; --"', dialect="duckdb")
    (statement,) = sqlglot.parse(text, dialect="duckdb")
    assert not list(statement.find_all(sqlglot.exp.Drop))


def test_hostile_names_pass_through_an_engine(hostile_fit, frame):
    """DuckDB takes the same columns as names: the same numbers, and its other table stays."""
    import ibis

    items, stats, fit = hostile_fit
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE items AS SELECT 1 AS kept")
    connection.con.register("source", items.source)
    connection.con.execute("CREATE TABLE ads AS SELECT * FROM source")
    table = connection.table("ads")
    own = soc.PoissonItems(table, **items.roles)
    again = soc.summarize(own, edges=stats.edges, progress=False)
    assert again.n_items == stats.n_items
    assert again.groups == stats.groups
    scored = soc.item_posteriors(fit, own, progress=False).execute()
    assert len(scored) == len(frame)
    assert connection.table("items").count().execute() == 1


def test_pickles_in_columns_stay_bytes(frame, tmp_path, monkeypatch):
    """Python objects in a file's metadata or columns are not made."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    bomb = pickle.dumps(Bomb(tmp_path / "touched"))
    table = pa.Table.from_pandas(frame[:300], preserve_index=False)
    table = table.append_column("extra", pa.array([bomb] * 300))
    kept = {b"pandas": b'{"columns": [{"metadata": {"__reduce__": 1}}]}', b"pickle": bomb}
    pq.write_table(table.replace_schema_metadata(kept), "items.parquet")
    items = soc.PoissonItems("items.parquet", score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=3, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    scored = soc.item_posteriors(fit, items, progress=False)
    assert scored.column("extra")[0].as_py() == bomb
    hostile = soc.PoissonItems("items.parquet", score="extra", count="count", exposure="exposure")
    with pytest.raises(SocError, match="extra"):
        soc.summarize(hostile, progress=False)
    assert not Path("touched").exists()


def test_formulas_and_commands_in_csv_are_refused(tmp_path):
    """No number is made of text that a spreadsheet or a shell would run."""
    path = tmp_path / "items.csv"
    path.write_text("t,y,N\n0.1,1,10\n=cmd|'/c calc'!A0,2,$(touch touched)\n")
    items = soc.PoissonItems(str(path), score="t", count="y", exposure="N")
    with pytest.raises(SocError, match=r"t|N"):
        soc.summarize(items, progress=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["items.csv"]


def test_objects_are_not_saved(stats, tmp_path):
    """What has no plain form in netCDF is refused, and an older file stays."""
    stats.save(tmp_path / "s.nc")
    before = (tmp_path / "s.nc").read_bytes()
    odd = np.array([Bomb(tmp_path / "touched")] * stats.bins, dtype=object)
    for data in (stats.data.assign(sum_t=("bin", odd)), stats.data.assign_attrs(kind=odd)):
        with pytest.raises(soc.StatisticsError, match="not written"):
            soc.Statistics(data).save(tmp_path / "s.nc")
    labelled = stats.data.assign_coords(label=("label", np.array(["a\0b"], dtype=object)))
    with pytest.raises(soc.StatisticsError, match="not written"):
        soc.Statistics(labelled).save(tmp_path / "s.nc")
    assert (tmp_path / "s.nc").read_bytes() == before
    assert not (tmp_path / "touched").exists()


def test_saved_arrays_are_plain(five, tmp_path):
    """No array of a saved fit is of objects, and all of its text is text."""
    five.save(tmp_path / "f.nc")
    with h5py.File(tmp_path / "f.nc") as file:
        arrays = []
        file.visititems(
            lambda _, entry: arrays.append(entry) if isinstance(entry, h5py.Dataset) else None
        )
    assert isinstance(xr.open_datatree(tmp_path / "f.nc", engine="h5netcdf"), xr.DataTree)
    assert arrays
