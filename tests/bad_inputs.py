"""Bad inputs as data: what is wrong, how it is given, and what the one error says of it.

`tests.whole.test_bad_inputs` runs every case, and ``python -m tests.bad_inputs`` writes
`docs/dev/errors.md` from the same table, with the messages as they are produced.
"""

import contextlib
import gzip
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr

import soc_pymc as soc
from soc_pymc._lib.errors import FitError, ItemsError, SocError, StatisticsError
from soc_pymc._lib.files import save_netcdf
from soc_pymc.front.cli import main

BACKENDS = ("pandas", "polars", "arrow", "duckdb", "parquet", "csv")
FILES = ("parquet", "csv")
TYPED = BACKENDS[:-1]  # what a CSV file cannot say
ROLES = {"score": "t", "count": "y", "exposure": "N"}
VALUES = {"score": "t", "value": "v", "noise_sd": "s"}
SUCCESSES = {"score": "t", "successes": "y", "trials": "N"}
KINDS = {
    "counts": (soc.PoissonItems, ROLES),
    "values": (soc.NormalItems, VALUES),
    "successes": (soc.BinomialItems, SUCCESSES),
}
TAME: dict[str, Any] = {
    "t": [0.1, 0.2, 0.3, 0.4],
    "y": [0, 1, 2, 1],
    "N": [1.0, 2.0, 3.0, 4.0],
    "v": [0.1, -0.3, 0.2, 0.6],
    "s": [0.5, 0.5, 0.25, 1.0],
}
PAGE = Path(__file__).parent.parent / "docs" / "dev" / "errors.md"


# --- the kinds of cases --------------------------------------------------------------------------


@dataclass(frozen=True)
class BadTable:
    """A table of items that cannot be used, from any source.

    Attributes
    ----------
    what
        What is wrong, in words.
    thing, remedy
        What the error must name, and what it must say to do.
    columns
        Columns in the place of the tame ones, or beside them.
    roles
        Columns by role beside score, count and exposure.
    options
        Of `soc.summarize`.
    backends
        Those that can hold such a table.
    engines
        Whether Spark and PostgreSQL are asked too.
    kind
        Whether the items are counts, values or successes.
    """

    what: str
    thing: str
    remedy: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=lambda: {"edges": [0.25]})
    backends: tuple[str, ...] = BACKENDS
    engines: bool = False
    kind: str = "counts"
    error: type[SocError] = ItemsError

    def table(self) -> pa.Table:
        """The table, bad columns and all."""
        return pa.table({**TAME, **self.columns})

    def items(self, source: Any) -> Any:
        """Items over a source of the table."""
        items, roles = KINDS[self.kind]
        return items(source, **{**roles, **self.roles})


@dataclass(frozen=True)
class BadFile:
    """A file, or a name of files, that cannot be read; `make` writes it to the working folder."""

    what: str
    thing: str
    remedy: str
    make: Callable[[], Any]
    error: type[SocError] = ItemsError


@dataclass(frozen=True)
class BadArgument:
    """A call that must be refused; `call` gets the objects of `given`."""

    what: str
    thing: str
    remedy: str
    call: Callable[[Any], Any]
    error: type[SocError] = FitError


@dataclass(frozen=True)
class BadCommand:
    """Words of the command line that must be refused, in a folder as `folder_of_commands` makes."""

    what: str
    thing: str
    remedy: str
    words: str


@dataclass(frozen=True)
class Fine:
    """An odd table with the right answer: that of the tame one, on every source."""

    what: str
    names: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    backends: tuple[str, ...] = BACKENDS

    def table(self) -> pa.Table:
        """The tame table under odd names, with odd columns."""
        table = pa.table({**TAME, **self.columns})
        return table.rename_columns([self.names.get(c, c) for c in table.column_names])

    def items(self, source: Any) -> Any:
        """Items over a source of the table."""
        named = {role: self.names.get(c, c) for role, c in {**ROLES, **self.roles}.items()}
        return soc.PoissonItems(source, **named)


# --- bad tables ----------------------------------------------------------------------------------


def _with(column: str, value: Any) -> dict[str, Any]:
    """The tame column, as real numbers, with one odd value."""
    values: list[Any] = [float(x) for x in TAME[column]]
    values[1] = value
    return {column: values}


_DAYS = [date(2020, 1, day) for day in range(1, 5)]
_PARIS = pa.array(
    [datetime(2020, 1, day) for day in range(1, 5)], pa.timestamp("us", "Europe/Paris")
)
_SPANS = pa.array([timedelta(seconds=s) for s in range(1, 5)], pa.duration("us"))
_CENTS = pa.array([Decimal("0.25"), Decimal("1"), Decimal("2"), Decimal("3")], pa.decimal128(9, 2))
_FIX, _CONVERT = "fix or drop", "convert it first"
_NAN = float("nan")

# fmt: off
TABLES = (
    BadTable("a score is missing", "'t': 1 of 4 rows", _FIX, _with("t", None), engines=True),
    BadTable("a score is NaN", "'t': 1 of 4 rows is missing", _FIX, _with("t", float("nan"))),
    BadTable("a score is infinite", "infinite (inf)", _FIX, _with("t", float("inf")), engines=True),
    BadTable("a score is beyond 1e90", "beyond 1e+90", _FIX, _with("t", 1e91), engines=True),
    BadTable("a count is missing", "'y': 1 of 4 rows", _FIX, _with("y", None)),
    BadTable("a count is negative", "negative (-1)", _FIX, _with("y", -1.0), engines=True),
    BadTable("a count is not whole", "not whole (0.5)", _FIX, _with("y", 0.5), engines=True),
    BadTable("a count overflows", "2^53 or more", _FIX, {"y": [2**63 - 1, 0, 1, 2]}),
    BadTable("a count of 2^53 + 1, which is read as 2^53", "2^53 or more", _FIX,
        {"y": [2**53 + 1, 0, 1, 2]}, engines=True),
    BadTable("a count beyond 64 bits with sign", "2^53 or more", _FIX,
        {"y": pa.array([2**64 - 1, 0, 1, 2], pa.uint64())}),
    BadTable("a count of 2^53 + 1 among decimals", "2^53 or more", _FIX,
        {"y": pa.array([Decimal(y) for y in (2**53 + 1, 0, 1, 2)], pa.decimal128(20, 0))},
        engines=True),
    BadTable("a count of 38 digits", "2^53 or more", _FIX,
        {"y": pa.array([Decimal(y) for y in (10**37, 0, 1, 2)], pa.decimal128(38, 0))}),
    BadTable("a count below -2^53", "negative (-9.00719925474e+15)", _FIX,
        {"y": [-(2**53) - 1, 0, 1, 2]}),
    BadTable("counts that add up to 2^62", "more than can be counted exactly",
        "summarize parts of the items",
        {c: values * 150 for c, values in TAME.items()} | {"y": [2**53 - 1] * 600}),
    BadTable("an exposure is missing", "'N': 1 of 4 rows", _FIX, _with("N", None)),
    BadTable("an exposure is negative", "negative (-2)", _FIX, _with("N", -2.0), engines=True),
    BadTable("an exposure is infinite", "infinite", _FIX, _with("N", float("inf"))),
    BadTable("a count without exposure", "where column 'N' is 0", _FIX, _with("N", 0.0)),
    BadTable("a noise sd is 0", "0 or below 1e-35", _FIX, _with("s", 0.0), kind="values"),
    BadTable("a noise sd is negative", "negative", _FIX, _with("s", -1.0), kind="values"),
    BadTable("a value is missing", "'v': 1 of 4", _FIX, _with("v", None), kind="values"),
    BadTable("a value is beyond 1e35", "beyond 1e+35", _FIX, _with("v", 1e36), kind="values"),
    BadTable("values lie far from 0", "column 'v'", "subtract a constant",
        {"v": [1e9, 1e9 + 1, 1e9 + 2, 1e9]}, options={"edges": [0.25], "joint": True},
        kind="values"),
    BadTable("successes above trials", "'y': 1 of 4 rows is above the trials of column 'N' (3)",
        _FIX, _with("y", 3.0), engines=True, kind="successes"),
    BadTable("successes without trials", "'y': 1 of 4 rows is above the trials", _FIX,
        _with("N", 0.0), kind="successes"),
    BadTable("successes are negative", "negative (-1)", _FIX, _with("y", -1.0), kind="successes"),
    BadTable("successes are not whole", "not whole (0.5)", _FIX, _with("y", 0.5), engines=True,
        kind="successes"),
    BadTable("successes are missing", "'y': 1 of 4 rows", _FIX, _with("y", None),
        kind="successes"),
    BadTable("successes are text", "'y' holds text; successes must be whole numbers", _CONVERT,
        {"y": ["lost", "won", "lost", "won"]}, engines=True, kind="successes"),
    BadTable("trials are not whole", "'N': 1 of 4 rows is not whole (2.5)", _FIX,
        _with("N", 2.5), engines=True, kind="successes"),
    BadTable("trials are negative", "'N': 1 of 4 rows is negative (-2)", _FIX,
        _with("N", -2.0), kind="successes"),
    BadTable("trials are missing", "'N': 1 of 4 rows is missing", _FIX, _with("N", None),
        kind="successes"),
    BadTable("trials are true or false", "'N' holds true/false", _CONVERT,
        {"N": [True, False] * 2}, kind="successes"),
    BadTable("scores are text", "'t' holds text", _CONVERT, {"t": ["lo", "hi", "x", "y"]}),
    BadTable("counts are true or false", "true/false", _CONVERT, {"y": [True, False] * 2}),
    BadTable("exposures are dates", "dates or times", _CONVERT, {"N": _DAYS}, engines=True),
    BadTable("scores are times with a zone", "dates or times", _CONVERT, {"t": _PARIS}),
    BadTable("scores are times of day", "dates or times", _CONVERT, {"t": [time(1, 2)] * 4}),
    BadTable("scores are spans of time", "column 't' holds", "convert it", {"t": _SPANS},
        backends=TYPED),
    BadTable("ids are spans of time", "column 'i' holds", "convert it", {"i": _SPANS}, {"id": "i"},
        {"edges": [0.25], "folds": 2}, TYPED),
    BadTable("scores are lists", "values of type array", _CONVERT, {"t": [[0.1]] * 4},
        backends=TYPED),
    BadTable("counts are bytes", "values of type binary", _CONVERT, {"y": [b"1"] * 4},
        backends=TYPED),
    BadTable("counts are decimals with cents", "not whole (0.25)", _FIX, {"y": _CENTS}),
    BadTable("decimals of more than 38 digits", "more than 38 digits", "convert it to float64",
        {"t": pa.array([Decimal("0.1")] * 4, pa.decimal256(50, 2))}, backends=("arrow", "parquet")),
    BadTable("categories of text as scores", "'t' holds text", _CONVERT,
        {"t": pa.array(["a", "b", "a", "b"]).dictionary_encode()}),
    BadTable("groups are numbers with fractions", "numbers with fractions", _CONVERT,
        {"g": [0.5, 1.5, 2.5, 3.5]}, {"group": "g"}),
    BadTable("a group is missing", "'g': 1 of 4 rows is missing", _FIX,
        {"g": ["a", None, "b", "c"]}, {"group": "g"}, engines=True),
    BadTable("a second column of groups has a gap", "'h': 1 of 4 rows is missing", _FIX,
        {"g": ["a", "a", "b", "b"], "h": ["c", None, "d", "c"]}, {"group": ("g", "h")},
        engines=True),
    BadTable("a label of crossed groups holds the sign that joins them", "'h': 1 of 4 rows", _FIX,
        {"g": ["a", "a", "b", "b"], "h": ["c", "c×d", "d", "c"]}, {"group": ("g", "h")},
        engines=True),
    BadTable("a group is missing, so that whole numbers are floats",
        "'g': 1 of 4 rows is missing (null or NaN); groups must be labels",
        "whole numbers stored as floats; groups must be labels: text, whole numbers or true/false: "
        "convert it to whole numbers (in pandas by .astype('Int64')) or to text first",
        {"g": [1.0, None, 2.0, 1.0]}, {"group": "g"}, engines=True),
    BadTable("a cluster is NaN among floats", "'g': 1 of 4 rows is missing (null or NaN); clusters",
        "whole numbers stored as floats", {"g": [1.0, _NAN, 2.0, 1.0]}, {"cluster": "g"}),
    BadTable("a group is missing among numbers with fractions", "'g': 2 of 4 rows are missing",
        "'g' holds numbers with fractions; groups", {"g": [0.5, None, None, 1.5]}, {"group": "g"}),
    BadTable("groups of values are floats, and some are missing", "'g': 1 of 4 rows is missing",
        "whole numbers stored as floats", {"g": [1.0, None, 2.0, 1.0]}, {"group": "g"},
        kind="values"),
    BadTable("all groups are missing among floats", "'g': 4 of 4 rows are missing", _FIX,
        {"g": pa.array([None] * 4, pa.float64())}, {"group": "g"}),
    BadTable("groups are decimals", "'g' holds whole numbers stored as decimals; groups",
        "convert it to whole numbers", {"g": pa.array([Decimal(g) for g in (1, 2, 2, 1)],
            pa.decimal128(9, 0))}, {"group": "g"}, backends=("pandas", "polars", "arrow", "duckdb",
            "parquet")),
    BadTable("every item is a group of its own",
        "'g': every item is a group of its own (80 groups of 80 items)", "leave it out of group=",
        {**{c: values * 20 for c, values in TAME.items()}, "g": range(80)}, {"group": "g"},
        engines=True),
    BadTable("every item is a level of its own of crossed groups",
        "'h': every item is a group of its own (80 groups of 80 items)", "leave it out of group=",
        {**{c: values * 20 for c, values in TAME.items()}, "g": ["a", "b"] * 40, "h": range(80)},
        {"group": ("g", "h")}),
    BadTable("clusters are numbers with fractions", "'g' holds numbers with fractions; clusters",
        _CONVERT, {"g": [0.5, 1.5, 2.5, 0.5]}, {"cluster": "g"}, engines=True),
    BadTable("a cluster is missing", "'g': 1 of 4 rows is missing", _FIX,
        {"g": ["a", None, "b", "a"]}, {"cluster": "g"}, engines=True),
    BadTable("every item is a cluster of its own", "'g': there are as many clusters as items (4)",
        "leave cluster= out", {"g": [4, 3, 2, 1]}, {"cluster": "g"}, engines=True),
    BadTable("dates are text that is no day", "'g': 2 of 4 rows are not a day YYYY-MM-DD", _FIX,
        {"g": ["2024-02-29", "2023-02-29", "2024-03-01", "3/1/2024"]}, {"date": "g"},
        backends=TYPED, engines=True),
    BadTable("a date is missing", "'g': 1 of 4 rows is missing", _FIX,
        {"g": ["2024-02-29", None, "2024-03-01", "2024-03-02"]}, {"date": "g"}, engines=True),
    BadTable("dates are numbers", "'g' holds numbers; dates must be dates", _CONVERT,
        {"g": [20240229, 20240301, 20240302, 20240303]}, {"date": "g"}, engines=True),
    BadTable("dates are times with a zone", "'g' holds times with a time zone", _CONVERT,
        {"g": _PARIS}, {"date": "g"}, backends=TYPED),
    BadTable("groups are times with a zone", "dates or times", _CONVERT, {"g": _PARIS},
        {"group": "g"}),
    BadTable("folds are made from ids that are days", "'i' holds dates", "give fold= a column",
        {"i": _DAYS}, {"id": "i"},
        {"edges": [0.25], "folds": 2}, TYPED, engines=True),
    BadTable("an id is missing", "column 'i'", "folds need ids", {"i": [1, None, 2, 3]},
        {"id": "i"}, {"edges": [0.25], "folds": 2}),
    BadTable("a fold is 1000", "larger than 999", "from 0 to 999", {"f": [0, 1000, 1, 2]},
        {"fold": "f"}),
    BadTable("a fold is negative", "negative", "from 0 to 999", {"f": [0, -1, 1, 2]},
        {"fold": "f"}),
    BadTable("folds are text", "'f' holds text", _CONVERT, {"f": ["a", "b", "c", "d"]},
        {"fold": "f"}),
    BadTable("a column is missing", "'Score' is missing; the table has", "did you mean",
        roles={"score": "Score"}, columns={"score": [1] * 4}),
    BadTable("names that differ in case alone", "'t' and 'T' differ in letter case", "rename",
        {"T": [1.0] * 4}, backends=FILES),
    BadTable("no rows", "the table of items has no rows", "no rows",
        {c: pa.array([], pa.float64()) for c in TAME}, engines=True),
    BadTable("one row, and bins to be chosen", "every score is 0.1", "give scores that differ",
        {c: values[:1] for c, values in TAME.items()}, options={}),
    BadTable("all scores equal, and bins to be chosen", "every score is 0.1",
        "give scores that differ", {"t": [0.1] * 4}, options={}, engines=True),
    BadTable("bins of equal counts, which are all 0", "bins of equal count", "all of it is 0",
        {"y": [0] * 4}, options={"bins": 2, "equal": "count"}),
    BadTable("more cells than the budget", "joint cells", "allow more by joint=",
        options={"edges": [], "joint": 1}, kind="values", error=StatisticsError),
)
# fmt: on


# --- bad files -----------------------------------------------------------------------------------

_LINES = "t,y,N\n0.1,0,1\n0.2,1,2\n0.3,2,3\n"


def _written(name: str, content: str | bytes) -> Callable[[], str]:
    def make() -> str:
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return make


def _parquet(**columns: Any) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.table({**TAME, **columns}), made)
    return made.getvalue()


def _twice() -> str:
    arrays = [pa.array(TAME[c]) for c in ("t", "y", "N", "t")]
    pq.write_table(pa.Table.from_arrays(arrays, names=["t", "y", "N", "t"]), "twice.parquet")
    return "twice.parquet"


def _damaged() -> str:
    made = io.BytesIO()
    columns = {"t": np.random.default_rng(0).uniform(size=5000), "y": np.ones(5000)}
    table = pa.table({**columns, "N": np.ones(5000)})
    pq.write_table(table, made, compression="gzip", use_dictionary=False)
    data = bytearray(made.getvalue())
    data[200:900] = b"\xff" * 700
    Path("damaged.parquet").write_bytes(bytes(data))
    return "damaged.parquet"


def _folder() -> str:
    Path("folder").mkdir(exist_ok=True)
    return "folder"


def _two(first: tuple[str, Any], second: tuple[str, Any]) -> Callable[[], list[str]]:
    return lambda: [_written(*first)(), _written(*second)()]


# fmt: off
SOURCES = (
    BadFile("a file that is not there", "none.csv", "no such file", lambda: "none.csv"),
    BadFile("a glob that matches nothing", "none*.parquet", "no file matches",
        lambda: "none*.parquet"),
    BadFile("a folder", "folder is a directory", "name its files", _folder),
    BadFile("a remote file", "s3://a/b.parquet", "through an Ibis table",
        lambda: "s3://a/b.parquet"),
    BadFile("a name that is too long", "aaa...", "the name is too long for a file",
        lambda: "a" * 300 + ".csv"),
    BadFile("another format", "items.json", "*.parquet, *.csv", _written("items.json", "{}")),
    BadFile("Parquet whose end is cut off", "cut.parquet cannot be read as Parquet",
        "write it again", _written("cut.parquet", _parquet()[:-20])),
    BadFile("an empty Parquet file", "empty.parquet cannot be read as Parquet", "write it again",
        _written("empty.parquet", b"")),
    BadFile("text named Parquet", "text.parquet cannot be read as Parquet", "write it again",
        _written("text.parquet", _LINES)),
    BadFile("a damaged page of Parquet", "damaged.parquet cannot be read", "read", _damaged),
    BadFile("a column that is there twice (Parquet)", "'t' occurs 2 times", "rename or drop",
        _twice),
    BadFile("a column that is there twice (CSV)", "'t' occurs 2 times", "rename or drop",
        _written("twice.csv", "t,y,N,t\n0.1,0,1,9\n0.2,1,2,9\n")),
    BadFile("an empty CSV file", "empty.csv is empty", "must name the columns",
        _written("empty.csv", "")),
    BadFile("a CSV file with a header alone", "head.csv", "no rows",
        _written("head.csv", "t,y,N\n")),
    BadFile("a CSV file without a header", "column 't' is missing", "the table has",
        _written("bare.csv", "0.1,0,1\n0.2,1,2\n")),
    BadFile("a CSV file in Latin-1", "line 2 is not in UTF-8 (byte 0xe9)", "save it as UTF-8",
        _written("latin.csv", "t,y,N,g\n0.1,0,1,\xe9\n0.2,1,2,x\n".encode("latin-1"))),
    BadFile("a CSV file in UTF-16", "line 1 is not in UTF-8", "save it as UTF-8",
        _written("wide.csv", _LINES.encode("utf-16"))),
    BadFile("Parquet named CSV", "foreign.csv cannot be read as CSV", "UTF-8",
        _written("foreign.csv", _parquet())),
    BadFile("a line with too few fields", "ragged.csv: line 3 has 2 fields", "correct the line",
        _written("ragged.csv", "t,y,N\n0.1,0,1\n0.2,1\n0.3,2,3\n")),
    BadFile("a line with too many fields", "ragged.csv: line 3 has 4 fields", "correct the line",
        _written("ragged.csv", "t,y,N\n0.1,0,1\n0.2,1,2,5\n0.3,2,3\n")),
    BadFile("a compressed file that is cut off", "cut.csv.gz", "write it again",
        _written("cut.csv.gz", gzip.compress(_LINES.encode(), mtime=0)[:-6])),
    BadFile("text named as compressed", "plain.csv.gz", "write it again",
        _written("plain.csv.gz", _LINES)),
    BadFile("words where numbers should be", "'t' holds text", "convert it first",
        _written("words.csv", "t,y,N\n0.1,0,1\nNA,1,2\n")),
    BadFile("numbers with decimal commas", "'t' holds text", "convert it first",
        _written("commas.csv", "t;y;N\n0,1;0;1\n0,2;1;2\n")),
    BadFile("files of two formats", "b.parquet is Parquet, but a.csv is CSV", "use one format",
        _two(("a.csv", _LINES), ("b.parquet", _parquet()))),
    BadFile("files that disagree in a type", "b.parquet holds column 'y' as double", "one type",
        _two(("a.parquet", _parquet()), ("b.parquet", _parquet(y=[0.0, 1.0, 1.0, 2.0])))),
    BadFile("files that disagree in their columns", "b.csv has the columns 't', 'N', 'y'",
        "but a.csv has", _two(("a.csv", _LINES), ("b.csv", "t,N,y\n0.1,1,0\n"))),
)
# fmt: on


# --- bad arguments -------------------------------------------------------------------------------


@cache
def given() -> SimpleNamespace:
    """Small items of every kind, their statistics and fits."""
    frame = soc.simulation.s1(600, seed=0)[["score", "count", "exposure"]]
    frame["g"] = np.where(np.arange(len(frame)) % 3, "a", "b")
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    rng = np.random.default_rng(0)
    values = pd.DataFrame({"t": rng.normal(size=400), "s": 0.5})
    values["v"] = values["t"] + rng.normal(0, 0.6, 400)
    labels = pd.DataFrame({"t": rng.uniform(0.1, 0.9, 300), "N": 1})
    labels["y"] = rng.random(300) < labels["t"]
    made = SimpleNamespace(
        frame=frame,
        items=soc.PoissonItems(frame, **roles),
        grouped=soc.PoissonItems(frame, **roles, group="g"),
        values=soc.NormalItems(values, **VALUES),
        labels=soc.BinomialItems(labels, **SUCCESSES),
        quiet={"progress": False},
    )
    vi = soc.VI(draws=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.stats = soc.summarize(made.items, bins=20, joint=True, folds=3, progress=False)
        made.grouped_stats = soc.summarize(made.grouped, bins=20, joint=False, progress=False)
        made.value_stats = soc.summarize(made.values, bins=20, progress=False)
        made.fit = soc.fit(made.stats, method=vi, progress=False)
        label_stats = soc.summarize(made.labels, bins=20, progress=False)
        made.label_fit = soc.fit(label_stats, method=vi, progress=False)
        # of these no draws are read: the quickest method will do
        steps = soc.FiveSteps()
        made.grouped_fit = soc.fit(made.grouped_stats, method=steps, progress=False)
        made.value_fit = soc.fit(made.value_stats, method=steps, progress=False)
    made.curves = soc.calibration_curves(made.fit)
    made.calibrator = soc.SecondOrderCalibrator(method=vi)
    made.classifier = soc.SecondOrderCalibrator(soc.Beta(), vi)
    return made


def _merged_atoms() -> soc.Statistics:
    """Statistics with so few joint cells that a score shared by many items is among others."""
    frame = soc.simulation.s1(1000, seed=0)
    frame.loc[::5, "score"] = 0.05
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)
        return soc.summarize(items, joint=400, progress=False)


def _dated(days: int = 3) -> soc.Statistics:
    """Statistics of some days, an item each and a few more."""
    frame = soc.simulation.s1(days + 60, seed=0)
    day = np.minimum(np.arange(len(frame)), days - 1).astype("timedelta64[D]")
    frame["day"] = (np.datetime64("2024-01-01") + day).astype("datetime64[us]")
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    items = soc.PoissonItems(frame, **roles, date="day")
    return soc.summarize(items, bins=3, joint=True, progress=False)


def _summarize(**options: Any) -> Callable[[Any], Any]:
    return lambda g: soc.summarize(g.items, **{**g.quiet, **options})


def _fit(**options: Any) -> Callable[[Any], Any]:
    return lambda g: soc.fit(g.stats, **{**g.quiet, **options})


def _score(**options: Any) -> Callable[[Any], Any]:
    return lambda g: soc.item_posteriors(g.fit, g.items, **{**g.quiet, **options})


def _total(**options: Any) -> Callable[[Any], Any]:
    return lambda g: soc.decisions.total(g.fit, g.items, **options, **g.quiet)


def _check(**options: Any) -> Callable[[Any], Any]:
    return lambda g: soc.check(g.fit, g.items, **{**g.quiet, **options})


def _of_version(step: int, is_fit: bool) -> Callable[[Any], Any]:
    """Load a file that differs in its format's number alone, with every digest right."""

    def load(g: Any) -> Any:
        path = Path("other.nc")
        path.write_bytes(of_version(step, is_fit))
        try:
            return (soc.load_fit if is_fit else soc.load_statistics)(path)
        finally:
            path.unlink()

    return load


@cache
def of_version(step: int, is_fit: bool) -> bytes:
    """A file of a fit or of statistics, sealed under an older or a newer format."""
    saved = given().fit if is_fit else given().stats
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.nc"
        saved.save(path)
        with (xr.open_datatree if is_fit else xr.open_dataset)(path, engine="h5netcdf") as opened:
            data = opened.load()
        name, _, number = data.attrs["format"].rpartition("-")
        data.attrs = {**data.attrs, "format": f"{name}-{int(number) + step}"}
        del data.attrs["digest"]
        save_netcdf(data, path, SocError)
        return path.read_bytes()


# fmt: off
ARGUMENTS = (
    BadArgument("a role that is no name", "count=3", "the name of a column",
        lambda g: soc.PoissonItems(g.frame, **{**ROLES, "count": 3}), ItemsError),
    BadArgument("two roles of one column", "score and count both name the column 't'",
        "each needs its own", lambda g: soc.PoissonItems(g.frame, **{**ROLES, "count": "t"}),
        ItemsError),
    BadArgument("clusters and folds", "cluster=", "not both",
        lambda g: soc.PoissonItems(g.frame, **ROLES, cluster="i", fold="f"), ItemsError),
    BadArgument("other clusters than the items have", "clusters in column 'i'", "leave out cluster",
        lambda g: soc.summarize(
            soc.PoissonItems(g.frame, **ROLES, cluster="i"), cluster="f"), ItemsError),
    BadArgument("clusters that are no column's name", "cluster must be", "the name of a column",
        _summarize(cluster=7), ItemsError),
    BadArgument("drift of statistics without dates", "keep none", "date= a column of dates",
        lambda g: soc.drift(g.stats), StatisticsError),
    BadArgument("drift of one day", "keep 1", "several days",
        lambda g: soc.drift(_dated(1)), StatisticsError),
    BadArgument("a window without dates", "keep no days", "date= a column of dates",
        lambda g: g.stats.window("7d"), StatisticsError),
    BadArgument("a window that is no number of days", "length='28'", 'such as "28d"',
        lambda g: _dated().window("28"), StatisticsError),
    BadArgument("a window of other days", "to 2020-01-01", "days are 2024-01-01",
        lambda g: _dated().window("7d", "2020-01-01"), StatisticsError),
    BadArgument("a half-life of 0", "half_life='0d'", 'such as "28d"',
        lambda g: _dated().decay("0d"), StatisticsError),
    BadArgument("an end that is no day", "end='soon'", 'such as "2026-03-31"',
        lambda g: _dated().decay("7d", "soon"), StatisticsError),
    BadArgument("weighted statistics in a check", "needs whole items", "a window of days",
        lambda g: soc.check(g.fit, _dated().decay("7d")), StatisticsError),
    BadArgument("more days than are kept", "4,001 days", "the first day of each week",
        lambda g: _dated(4001), ItemsError),
    BadArgument("more folds of clusters than blocks", "at most 240", "give fewer",
        _summarize(cluster="f", folds=300), StatisticsError),
    BadArgument("counts without exposures", "count= needs exposure=", "name both",
        lambda g: soc.PoissonItems(g.frame, score="t", count="y"), ItemsError),
    BadArgument("a summary of scores alone", "no column of counts", "give them count=",
        lambda g: soc.summarize(soc.PoissonItems(g.frame, score="t"), **g.quiet), ItemsError),
    BadArgument("ids and folds", "id=", "not both",
        lambda g: soc.PoissonItems(g.frame, **ROLES, id="i", fold="f"), ItemsError),
    BadArgument("a dict in place of a table", "builtins.dict",
        "give a pandas, Polars or Arrow table",
        lambda g: soc.summarize(soc.PoissonItems({}, **ROLES), **g.quiet), ItemsError),
    BadArgument("a lazy frame", "LazyFrame", "collect() it first",
        lambda g: soc.summarize(soc.PoissonItems(pl.LazyFrame(), **ROLES), **g.quiet), ItemsError),
    BadArgument("a path of bytes", "cannot be read from a builtins.bytes", "a path",
        lambda g: soc.summarize(soc.PoissonItems(b"a.csv", **ROLES), **g.quiet), ItemsError),
    BadArgument("a path with a NUL character", "source='a\\x00b.csv'", "leave it out",
        lambda g: soc.summarize(soc.PoissonItems("a\0b.csv", **ROLES), **g.quiet), ItemsError),
    BadArgument("an empty path", "source=''", "the name of a file",
        lambda g: soc.summarize(soc.PoissonItems("", **ROLES), **g.quiet), ItemsError),
    BadArgument("a column of mixed values", "'t' holds mixed values", "convert it first",
        lambda g: soc.summarize(soc.PoissonItems(pd.DataFrame({"t": [0.1, "x"], "y": 1, "N": 1}),
            **ROLES), **g.quiet), ItemsError),
    BadArgument("a table in place of items", "items must be soc.PoissonItems", "not DataFrame",
        lambda g: soc.summarize(g.frame, **g.quiet), ItemsError),
    BadArgument("bins that are text", "bins='ten'", "from 1 to", _summarize(bins="ten"),
        StatisticsError),
    BadArgument("bins that are NaN", "bins=nan", "from 1 to", _summarize(bins=_NAN),
        StatisticsError),
    BadArgument("no bins", "bins=0", "from 1 to", _summarize(bins=0), StatisticsError),
    BadArgument("bins and edges", "edges=", "not both", _summarize(bins=2, edges=[1]),
        StatisticsError),
    BadArgument("edges that fall", "edge 1", "increase strictly", _summarize(edges=[2, 1]),
        StatisticsError),
    BadArgument("edges that are infinite", "edges", "must be finite", _summarize(edges=[np.inf]),
        StatisticsError),
    BadArgument("edges that are text", "edges=['0.1']", "must be numbers",
        _summarize(edges=["0.1"]), StatisticsError),
    BadArgument("edges that are dates", "edges=array(['2020-01-01']", "must be numbers",
        _summarize(edges=np.array(["2020-01-01"], "M8[D]")), StatisticsError),
    BadArgument("equal in what there is not", "equal='x'", "'items', 'count', 'exposure'",
        _summarize(equal="x"), StatisticsError),
    BadArgument("values in bins of equal counts", "no count", "leave out equal=",
        lambda g: soc.summarize(g.values, equal="count", **g.quiet), ItemsError),
    BadArgument("one fold", "folds=1", "0 or a whole number", _summarize(folds=1), StatisticsError),
    BadArgument("joint that is text", "joint='x'", "True, False", _summarize(joint="x"),
        StatisticsError),
    BadArgument("on_leakage that is no word", "on_leakage=1", "'raise', 'warn' or 'ignore'",
        _summarize(on_leakage=1), StatisticsError),
    BadArgument("progress that is no switch", "progress='no'", "True or False",
        _summarize(progress="no"), StatisticsError),
    BadArgument("scores that saw their counts", "z = ", "trained without it",
        lambda g: soc.summarize(soc.PoissonItems(pd.DataFrame({"t": np.arange(1, 501) / 10, "y":
            np.arange(1, 501), "N": 10.0}), **ROLES), **g.quiet), ItemsError),
    BadArgument("a fold that is not there", "no fold 3", "0 to 2", lambda g: g.stats.of_fold(3),
        StatisticsError),
    BadArgument("half a fold", "no fold 1.5", "0 to 2", lambda g: g.stats.without_fold(1.5),
        StatisticsError),
    BadArgument("a group that is not there", "no group 'c'", "the groups are",
        lambda g: g.grouped_stats.of_group("c"), StatisticsError),
    BadArgument("a table that is not there", "no table ['part']", "but 'part'",
        lambda g: g.stats.table(["part"]), StatisticsError),
    BadArgument("cells that were not kept", "no joint cells", "joint=True",
        lambda g: g.grouped_stats.cells("joint"), StatisticsError),
    BadArgument("counts of values", "no total_count", ".data", lambda g: g.value_stats.total_count,
        StatisticsError),
    BadArgument("statistics of counts and values added", "different kind", "other kinds of items",
        lambda g: g.stats + g.value_stats, StatisticsError),
    BadArgument("items in place of statistics", "not PoissonItems",
        "call soc.summarize(items) first", lambda g: soc.fit(g.items, **g.quiet)),
    BadArgument("a prior that is a word", "not str", "soc.Gamma(...)", _fit(prior="gamma")),
    BadArgument("a prior that is a class", "not Gamma itself", "soc.Gamma(...)",
        _fit(prior=soc.Gamma)),
    BadArgument("a prior that is 0", "prior must be", "soc.Gamma(...)", _fit(prior=0)),
    BadArgument("a method that is a word", "not str", "soc.VI(...)", _fit(method="vi")),
    BadArgument("a model that is none", "model must be", "soc.model(stats, prior)", _fit(model=3)),
    BadArgument("a start that is a path", "start must be a fit", "not str", _fit(start="fit.nc")),
    BadArgument("a start of other items", "other kind than stats", "poisson",
        lambda g: soc.fit(g.stats, start=g.value_fit, **g.quiet)),
    BadArgument("a mixture without joint cells", "joint cells", "joint=True",
        lambda g: soc.fit(g.grouped_stats, soc.GammaMixture(), **g.quiet)),
    BadArgument("five steps with a start", "start=", "leave start= and model= out",
        lambda g: soc.fit(g.stats, method=soc.FiveSteps(), start=g.fit, **g.quiet)),
    BadArgument("a seed that is text", "seed='x'", "whole number", lambda g: soc.VI(seed="x")),
    BadArgument("no seed", "seed=None", "whole number", lambda g: soc.VI(seed=None)),
    BadArgument("draws below 1", "draws=-1", "from 1 to", lambda g: soc.VI(draws=-1)),
    BadArgument("draws that are NaN", "draws=nan", "from 1 to", lambda g: soc.NUTS(draws=_NAN)),
    BadArgument("moments that are none", "moments='x'", "'log' or 'plain'",
        lambda g: soc.FiveSteps(moments="x")),
    BadArgument("knots that are not whole", "knots=2.5", "whole number",
        lambda g: soc.Spline(knots=2.5)),
    BadArgument("a scale that is none", "scale='square'", "'log', 'logit', 'linear'",
        lambda g: soc.Spline(scale="square")),
    BadArgument("a wiggle that is infinite", "wiggle=inf", "finite number > 0",
        lambda g: soc.Spline(wiggle=np.inf)),
    BadArgument("a level without sd", "level=3", "(mean, standard deviation > 0)",
        lambda g: soc.Spline(level=3)),
    BadArgument("a level that is NaN", "mean of level=nan", "finite number",
        lambda g: soc.Spline(level=(_NAN, 1))),
    BadArgument("a prior's curve that is a word", "Gamma(mean=)", "soc.Spline(...)",
        lambda g: soc.Gamma(mean="log")),
    BadArgument("a switch that is a word", "Gamma(monotone=)", "True or False",
        lambda g: soc.Gamma(monotone="yes")),
    BadArgument("zeros that are no switch", "Gamma(zero=)", "True or False",
        lambda g: soc.Gamma(zero="some")),
    BadArgument("atoms that are no switch", "Gamma(atoms=)", "True or False",
        lambda g: soc.Gamma(atoms=0.05)),
    BadArgument("atoms in joint cells of several bins", "with others", "atoms=False",
        lambda g: soc.fit(_merged_atoms(), soc.Gamma(exposure=soc.Spline()), **g.quiet)),
    BadArgument("zeros without joint cells", "soc.Gamma(zero=True)", "joint=True",
        lambda g: soc.fit(g.grouped_stats, soc.Gamma(zero=True), **g.quiet)),
    BadArgument("zeros by five steps", "soc.Gamma(zero)", "use soc.VI()",
        lambda g: soc.fit(g.stats, soc.Gamma(zero=True), soc.FiveSteps(), **g.quiet)),
    BadArgument("a mixture of few functions", "functions=2", "from 4 to",
        lambda g: soc.GammaMixture(functions=2)),
    BadArgument("a mixture's scale of 0", "shape=0", "number > 0",
        lambda g: soc.GammaMixture(shape=0)),
    BadArgument("curves of no fit", "fit must be a fit", "soc.load_fit",
        lambda g: soc.calibration_curves("fit.nc")),
    BadArgument("curves at words", "score='ten'", "must be numbers",
        lambda g: soc.calibration_curves(g.fit, "ten")),
    BadArgument("curves at NaN", "score must be", "finite numbers",
        lambda g: soc.calibration_curves(g.fit, [_NAN])),
    BadArgument("curves below 0 on a log scale", "score", "scale",
        lambda g: soc.calibration_curves(g.fit, [-1.0])),
    BadArgument("curves of a group, without groups", "no groups", "leave out group=",
        lambda g: soc.calibration_curves(g.fit, group="a")),
    BadArgument("curves at an exposure, without a term", "no term in exposure",
        "leave out exposure=", lambda g: soc.calibration_curves(g.fit, exposure=3)),
    BadArgument("bands of a fit", "curves must be curves", "soc.calibration_curves(fit)",
        lambda g: soc.bands(g.fit)),
    BadArgument("a probability of 2", "prob=2", "between 0 and 1",
        lambda g: soc.bands(g.curves, prob=2)),
    BadArgument("a probability that is text", "prob='.9'", "between 0 and 1",
        lambda g: soc.bands(g.curves, prob=".9")),
    BadArgument("posteriors by no fit", "fit must be a fit", "soc.load_fit",
        lambda g: soc.item_posteriors(g.stats, g.items, **g.quiet)),
    BadArgument("posteriors of a table", "items must be soc.PoissonItems", "not DataFrame",
        lambda g: soc.item_posteriors(g.fit, g.frame, **g.quiet), ItemsError),
    BadArgument("posteriors of values by a fit of counts", "these items have value=",
        "items of the kind", lambda g: soc.item_posteriors(g.fit, g.values, **g.quiet), ItemsError),
    BadArgument("posteriors without the fit's groups", "2 groups", "give them group=",
        lambda g: soc.item_posteriors(g.grouped_fit, g.items, **g.quiet), ItemsError),
    BadArgument("a table that has the new columns", "'theta_mean'", "rename or drop",
        lambda g: soc.item_posteriors(g.fit, soc.PoissonItems(g.frame.assign(theta_mean=0.0),
            score="score", count="count", exposure="exposure"), **g.quiet), ItemsError),
    BadArgument("a score below 0 on a log scale", "score", "scale",
        lambda g: soc.item_posteriors(g.fit,
            soc.PoissonItems(g.frame.assign(score=-g.frame["score"]), score="score", count="count",
            exposure="exposure"), **g.quiet)),
    BadArgument("quantiles that are a number", "quantiles=0.5", "a list of numbers",
        _score(quantiles=0.5)),
    BadArgument("a quantile of 1", "quantiles=1.0", "between 0 and 1", _score(quantiles=[1.0])),
    BadArgument("a quantile that is text", "quantiles='a'", "between 0 and 1",
        _score(quantiles=["a"])),
    BadArgument("quantiles that are the same", "quantiles=", "leave one out",
        _score(quantiles=[0.5, 0.5 + 1e-14])),
    BadArgument("draws that are no word", "draws='few'", "'auto'",
        _score(draws="few")),
    BadArgument("no name to write to", "out=''", "the name of a file", _score(out=""), ItemsError),
    BadArgument("a name to write to with NUL", "out='a\\x00.parquet'", "leave it out",
        _score(out="a\0.parquet"), ItemsError),
    BadArgument("bytes to write to", "out=b'a.parquet'", "as str or pathlib.Path",
        _score(out=b"a.parquet"), ItemsError),
    BadArgument("a folder that is not there", "'nowhere'", "make it first",
        _score(out="nowhere/a.parquet"), ItemsError),
    BadArgument("another format to write", "out='a.csv'", "*.parquet", _score(out="a.csv"),
        ItemsError),
    BadArgument("slices by a number", "by=3", "the name of a column", _check(by=3)),
    BadArgument("slices by a column that is missing", "'nope' is missing", "the table has",
        _check(by="nope"), ItemsError),
    BadArgument("slices of statistics", "by=", "give the items",
        lambda g: soc.check(g.fit, g.stats, by="g", **g.quiet)),
    BadArgument("a check with a seed of text", "seed='x'", "whole number", _check(seed="x")),
    BadArgument("a check of no items", "subset=0", "at least 1", _check(subset=0)),
    BadArgument("a check of a table", "items must be", "not DataFrame",
        lambda g: soc.check(g.fit, g.frame, **g.quiet), ItemsError),
    BadArgument("one fit compared", "two fits or more", "not 1",
        lambda g: soc.compare({"a": g.fit}, g.stats, **g.quiet)),
    BadArgument("a list of fits compared", "fits must be fits by name", "not list",
        lambda g: soc.compare([g.fit, g.fit], g.stats, **g.quiet)),
    BadArgument("fits compared on a path", "data must be", "soc.PoissonItems",
        lambda g: soc.compare({"a": g.fit, "b": g.fit}, "x.csv", **g.quiet)),
    BadArgument("quantities by no weight", "weight='x'", "'items' or 'exposure'",
        lambda g: soc.quantities.r_squared(g.fit, weight="x")),
    BadArgument("quantities of a path", "items must be", "their statistics",
        lambda g: soc.quantities.shrinkage(g.fit, "x.csv", **g.quiet)),
    BadArgument("scores compared without items", "scores['a']", "a pair (fit, items)",
        lambda g: soc.quantities.compare_scores({"a": g.fit, "b": g.fit}, **g.quiet)),
    BadArgument("bands of R-squared", "not the array 'r_squared'", "quantile([0.05, 0.95]",
        lambda g: soc.bands(soc.quantities.r_squared(g.fit))),
    BadArgument("cross-validation without folds", "no folds", "folds=10",
        lambda g: soc.evaluate.cross_validate(g.grouped_stats, **g.quiet), StatisticsError),
    BadArgument("cross-validation of items", "stats must be statistics", "soc.summarize",
        lambda g: soc.evaluate.cross_validate(g.items, **g.quiet)),
    BadArgument("a split of all", "fraction=1.0", "between 0 and 1",
        lambda g: soc.evaluate.split_items(g.items, 1.0)),
    BadArgument("a split that is none", "split must be", "split_items(items)",
        lambda g: soc.evaluate.held_out(g.fit, g.items, **g.quiet)),
    BadArgument("numbers of bins that are one number", "bins=20", "a list of numbers of bins",
        lambda g: soc.evaluate.compare_bins(g.items, 20, **g.quiet)),
    BadArgument("a baseline that is none", "no baseline 'x'", "choose from",
        lambda g: soc.evaluate.baseline("x", g.items)),
    BadArgument("cells that are none", "cells=0", "at least 1",
        lambda g: soc.evaluate.pit_histograms(g.fit, g.items, cells=0, **g.quiet)),
    BadArgument("a threshold of NaN", "threshold must be finite", "not nan",
        lambda g: soc.decisions.probability_above(g.fit, g.items, _NAN, **g.quiet)),
    BadArgument("more exposure below 0", "more", "finite and >",
        lambda g: soc.decisions.value_of_exposure(g.fit, g.items, -1, **g.quiet)),
    BadArgument("the best of none", "k=0", "at least 1",
        lambda g: soc.decisions.probability_best(g.fit, g.items, 0, **g.quiet)),
    BadArgument("a quantile of risk of 0", "quantile=0", "between 0 and 1",
        lambda g: soc.decisions.risk_adjusted(g.fit, g.items, 0, **g.quiet)),
    BadArgument("weights of a total of which some are missing", "weights: 1 of", "fill them in",
        _total(weights=[_NAN] + [1.0] * 599)),
    BadArgument("weights of a total that are too few", "weights has the shape (2,)", "give one",
        _total(weights=[1.0, 2.0])),
    BadArgument("weights of a total from no such column", "column 'x' is missing", "the table has",
        _total(weights="x"), ItemsError),
    BadArgument("labels of totals that are too few", "by=[1, 2]", "one label for each",
        _total(by=[1, 2])),
    BadArgument("a mean with weights below 0", "a mean needs weights >= 0", "are below 0",
        _total(weights=[-1.0] + [1.0] * 599, mean=True)),
    BadArgument("a mean with weights of 0", "a mean needs a weight > 0", "'all items' are 0",
        _total(weights=[0.0] * 600, mean=True)),
    BadArgument("a total's threshold of NaN", "threshold=nan", "finite number",
        _total(threshold=_NAN)),
    BadArgument("a report that is no page", "out='a.txt'", "*.html",
        lambda g: soc.report(g.fit, g.items, out="a.txt", **g.quiet)),
    BadArgument("a report's threshold of NaN", "threshold=nan", "finite number",
        lambda g: soc.report(g.fit, g.items, threshold=_NAN, out="a.html", **g.quiet)),
    BadArgument("a report of statistics", "not Statistics", "must be soc.PoissonItems",
        lambda g: soc.report(g.fit, g.stats, out="a.html", **g.quiet)),
    BadArgument("a prior in a file of another kind", "path='prior.csv'", "*.parquet or *.json",
        lambda g: soc.export_prior(g.fit, "prior.csv")),
    BadArgument("a prior with three levels of quantiles", "(0.05, 0.5, 0.95)", "must be two levels",
        lambda g: soc.export_prior(g.fit, "prior.json", quantiles=(0.05, 0.5, 0.95))),
    BadArgument("SQL of a prior without a name", "prior=''", "must be a name",
        lambda g: soc.posterior_sql(g.value_fit, "ads", prior=""), ItemsError),
    BadArgument("SQL of groups that a fit does not have", "group=", "this one has none",
        lambda g: soc.posterior_sql(g.fit, "ads", group="country"), ItemsError),
    BadArgument("SQL of no table", "table=''", "must be a name",
        lambda g: soc.posterior_sql(g.fit, ""), ItemsError),
    BadArgument("SQL of no such dialect", "dialect 'x'", "Unknown",
        lambda g: soc.posterior_sql(g.fit, "ads", dialect="x"), ItemsError),
    BadArgument("an expression of a table in memory", "Ibis table", "use soc.item_posteriors",
        lambda g: soc.posterior_expression(g.fit, g.items), ItemsError),
    BadArgument("an estimator's scores that are text", "t and y must be numbers",
        "convert them first", lambda g: g.calibrator.fit(["a", "b"], [1, 2]), ItemsError),
    BadArgument("an estimator's exposures of another length", "exposure has the shape (3,)",
        "as t has", lambda g: g.calibrator.fit([0.1, 0.2], [1, 2], [1, 2, 3]), ItemsError),
    BadArgument("an estimator of exposures and noise", "exposure=", "give one of them",
        lambda g: g.calibrator.fit([0.1, 0.2], [1, 2], [1, 2], [1, 2]), ItemsError),
    BadArgument("an estimator's labels that are text", "could not convert string to float",
        "labels to 0 and 1", lambda g: g.classifier.fit([0.1, 0.2], ["no", "yes"]), ItemsError),
    BadArgument("an estimator's labels that are 2", "'y': 1 of 2 rows is above the trials",
        _FIX, lambda g: g.classifier.fit([0.1, 0.2], [2, 1]), ItemsError),
    BadArgument("an estimator's successes above trials", "'y': 1 of 2 rows is above the trials",
        _FIX, lambda g: g.classifier.fit([0.1, 0.2], [2, 1], trials=[1, 3]), ItemsError),
    BadArgument("an estimator's trials that are not whole", "'trials': 1 of 2 rows is not whole",
        _FIX, lambda g: g.classifier.fit([0.1, 0.2], [2, 1], trials=[3.5, 3]), ItemsError),
    BadArgument("an estimator's trials of another length", "trials has the shape (3,)",
        "as t has", lambda g: g.classifier.fit([0.1, 0.2], [1, 2], trials=[1, 2, 3]), ItemsError),
    BadArgument("an estimator of trials and exposures", "trials=", "give one of them",
        lambda g: g.calibrator.fit([0.1, 0.2], [1, 2], [1, 2], trials=[1, 2]), ItemsError),
    BadArgument("posteriors of items with one trial each", "posteriors of items are not known",
        "fit soc.Beta()", lambda g: soc.item_posteriors(g.label_fit, g.labels, **g.quiet)),
    BadArgument("a check of a fit to labels", "soc.check needs the variance", "fit soc.Beta()",
        lambda g: soc.check(g.label_fit, g.labels, **g.quiet)),
    BadArgument("a report on a fit to labels", "are not known", "fit soc.Beta()",
        lambda g: soc.report(g.label_fit, g.labels, out="labels.html", **g.quiet)),
    BadArgument("a picture of the variance of labels", "no curve of the variance",
        "fit soc.Beta()", lambda g: soc.plots.plot_curves(g.label_fit)),
    BadArgument("a calibration curve of labels that are text", "labels y are text ('no')",
        "give 0 and 1", lambda g: soc.plots.plot_calibration(["no", "yes"], [0.1, 0.2]),
        ItemsError),
    BadArgument("a calibration curve of counts", "1 of 2 labels y are neither 0 nor 1",
        "use soc.BinomialItems", lambda g: soc.plots.plot_calibration([2, 1], [0.1, 0.2]),
        ItemsError),
    BadArgument("a calibration curve of log odds", "1 of 2 probabilities p are not between 0 and 1",
        "clip them", lambda g: soc.plots.plot_calibration([0, 1], [-1.2, 0.2]), ItemsError),
    BadArgument("a calibration curve of two lengths", "of one length", "not (2,) and (3,)",
        lambda g: soc.plots.plot_calibration([0, 1], [0.1, 0.2, 0.3]), ItemsError),
    BadArgument("statistics that are not there", "none.nc", "no such file",
        lambda g: soc.load_statistics("none.nc"), StatisticsError),
    BadArgument("a fit that is not there", "none.nc", "no such file",
        lambda g: soc.load_fit("none.nc")),
    BadArgument("statistics of an older format",
        "'soc_pymc-statistics-1', this version reads 'soc_pymc-statistics-2'", "write it again",
        _of_version(-1, is_fit=False), StatisticsError),
    BadArgument("statistics of a newer format",
        "'soc_pymc-statistics-3' of a newer version, this version reads 'soc_pymc-statistics-2'",
        "upgrade soc_pymc", _of_version(1, is_fit=False), StatisticsError),
    BadArgument("a fit of an older format", "'soc_pymc-fit-0', this version reads 'soc_pymc-fit-1'",
        "write it again", _of_version(-1, is_fit=True)),
    BadArgument("a fit of a newer format",
        "'soc_pymc-fit-2' of a newer version, this version reads 'soc_pymc-fit-1'",
        "upgrade soc_pymc", _of_version(1, is_fit=True)),
    *(
        BadArgument(f"{what} {case}", thing, remedy, partial(call, path), error)
        for what, call, error in (
            ("statistics saved to", lambda path, g: g.stats.save(path), StatisticsError),
            ("statistics read from", lambda path, g: soc.load_statistics(path), StatisticsError),
            ("a fit saved to", lambda path, g: g.fit.save(path), FitError),
            ("a fit read from", lambda path, g: soc.load_fit(path), FitError),
            (
                "a report to",
                lambda path, g: soc.report(g.fit, g.items, out=path, **g.quiet),
                FitError,
            ),
        )
        for case, path, thing, remedy in (
            ("nothing", None, "=None must be", "as str or pathlib.Path"),
            ("the number of an open file", 1, "=1 must be", "as str or pathlib.Path"),
            ("an empty name", "", "='' must be", "as str or pathlib.Path"),
            ("a name with NUL", "a\0.html", "='a\\x00.html' holds", "leave it out"),
            ("a name that is no text", "a\ud800.html", "holds '\\ud800'", "give another name"),
        )
    ),
    BadArgument("a folder to score to with NUL", "out='a\\x00/'", "leave it out",
        _score(out="a\0/"), ItemsError),
    BadArgument("an axis that is none", "curve='x'", "'mean' or 'variance'",
        lambda g: g.fit.axis("x")),
    BadArgument("draws beyond all memory", "draws=10000000000000000000", "from 1 to 10,000,000",
        lambda g: soc.decisions.thompson_draws(g.fit, g.items, 10**30, **g.quiet)),
    BadArgument("races beyond all memory", "draws=10000000000000000000", "from 2 to 10,000,000",
        lambda g: soc.decisions.probability_best(g.fit, g.items, draws=10**30, **g.quiet)),
    BadArgument("progress of a decision that is no switch", "progress='no'", "True or False",
        lambda g: soc.decisions.risk_adjusted(g.fit, g.items, progress="no")),
    BadArgument("a report's title that is a number", "title must be text", "not int",
        lambda g: soc.report(g.fit, g.items, out="a.html", title=3, **g.quiet)),
    BadArgument("a report by a number", "by=3", "the name of a column",
        lambda g: soc.report(g.fit, g.items, out="a.html", by=3, **g.quiet)),
    BadArgument("simulated items that are text", "n_items='ten'", "whole number",
        lambda g: soc.simulation.s1("ten")),
    BadArgument("a simulation's sd of 0", "sigma=0", "> 0",
        lambda g: soc.simulation.click_rates(10, sigma=0)),
    BadArgument("a data set's seed that is text", "seed='x'", "whole number",
        lambda g: soc.datasets.keywords(seed="x")),
    BadArgument("counts to be thinned that are text", "count='x'", "must be numbers",
        lambda g: soc.evaluate.thin("x", [1.0]), ItemsError),
    BadArgument("counts and exposures of two lengths", "(2,) and (3,)",
        "one of each for every item", lambda g: soc.evaluate.thin([1, 2], [1, 2, 3]), ItemsError),
    BadArgument("a moment's marginal that is text", "log_pmf='x'", "a function of counts",
        lambda g: soc.theory.poisson_moment([1], [1.0], "x")),
    BadArgument("a moment of order 10^30", "order=10000000000000000000", "from 1 to 100",
        lambda g: soc.theory.poisson_moment([1], [1.0], lambda y: -y, 10**30)),
    BadArgument("a probability of 400 digits", "prob=1000000000", "between 0 and 1",
        lambda g: soc.bands(g.curves, prob=10**400)),
    BadArgument("a picture of no fit", "fit must be a fit", "soc.load_fit",
        lambda g: soc.plots.plot_curves("fit.nc")),
    BadArgument("axes that are none", "ax must be matplotlib axes", "or None",
        lambda g: soc.plots.plot_prior_ribbon(g.fit, ax="left")),
    BadArgument("no axes for a picture of two panels", "axes holds 0 axes", "the picture needs 2",
        lambda g: soc.plots.plot_smoothing(g.grouped_fit, axes=[])),
    BadArgument("a picture's probability that is text", "prob='90%'", "between 0 and 1",
        lambda g: soc.plots.plot_adjusted_prior(g.fit, prob="90%")),
    BadArgument("quantiles of a picture that fall", "probs=(0.9, 0.1)", "must increase",
        lambda g: soc.plots.plot_prior_ribbon(g.fit, probs=(0.9, 0.1))),
    BadArgument("a picture of another table", "misses 5 columns", "soc.evaluate.compare_bins",
        lambda g: soc.plots.plot_bin_choice(g.frame)),
    BadArgument("a picture of items without posteriors", "0 columns of quantiles",
        "ask soc.item_posteriors", lambda g: soc.plots.plot_forest(g.frame), ItemsError),
    BadArgument("a picture's column that is none", "score=3", "the name of a column",
        lambda g: soc.plots.plot_shrinkage(g.frame, score=3, count="count", exposure="exposure"),
        ItemsError),
)
# fmt: on


# --- bad commands --------------------------------------------------------------------------------

_NAMED = "--score t --count y --exposure N"

# fmt: off
COMMANDS = (
    BadCommand("no command", "required: command", "--help", ""),
    BadCommand("a command that is none", "'frobnicate'", "choose from", "frobnicate"),
    BadCommand("a word that is none", "--colour", "--help",
        "summarize a.csv --colour red --out s.nc"),
    BadCommand("bins that are text", "--bins", "--help",
        f"summarize a.csv {_NAMED} --bins ten --out s.nc"),
    BadCommand("no columns", "say which columns", "--score", "summarize a.csv --out s.nc"),
    BadCommand("a column left out", "say which columns", "--exposure",
        "summarize a.csv --score t --count y --out s.nc"),
    BadCommand("successes without trials", "say which columns", "--trials",
        "summarize a.csv --score t --successes y --out s.nc"),
    BadCommand("counts and values", "--count", "items are of one kind",
        "summarize a.csv --score t --count y --exposure N --value v --out s.nc"),
    BadCommand("drift without days", "keep none", "date=", "drift stats.nc --out d.csv"),
    BadCommand("no bins", "bins=0", "from 1 to", f"summarize a.csv {_NAMED} --bins 0 --out s.nc"),
    BadCommand("no file", "none.csv", "no such file", f"summarize none.csv {_NAMED} --out s.nc"),
    BadCommand("edges of no statistics", "none.nc", "no such file",
        f"summarize a.csv {_NAMED} --edges none.nc --out s.nc"),
    BadCommand("a fit of no statistics", "none.nc", "no such file", "fit none.nc --out f.nc"),
    BadCommand("a fit of a CSV file", "a.csv", "soc-pymc summarize", "fit a.csv --out f.nc"),
    BadCommand("a fit of a fit", "fit.nc", "soc-pymc summarize", "fit fit.nc --out f.nc"),
    BadCommand("a prior that is none", "--prior", "choose from",
        "fit stats.nc --prior cauchy --out f.nc"),
    BadCommand("a prior of values for counts", "--prior normal", "use --prior gamma",
        "fit stats.nc --prior normal --out f.nc"),
    BadCommand("a prior of successes for counts", "--prior beta", "use --prior gamma",
        "fit stats.nc --prior beta --out f.nc"),
    BadCommand("a mixture without joint cells", "stats.nc lacks", "--joint",
        "fit stats.nc --prior gamma-mixture --out f.nc"),
    BadCommand("groups pooled where there are none", "--pool-groups", "leave it out",
        "fit stats.nc --pool-groups --out f.nc"),
    BadCommand("a word of another method", "--every", "leave it out",
        "fit stats.nc --every 2 --out f.nc"),
    BadCommand("draws below 1", "draws=-1", "from 1 to", "fit stats.nc --draws -1 --out f.nc"),
    BadCommand("knots below 1", "knots=0", "from 1 to", "fit stats.nc --knots 0 --out f.nc"),
    BadCommand("curves of no fit", "stats.nc", "soc-pymc fit", "curves stats.nc --out c.csv"),
    BadCommand("curves of a group, without groups", "no groups", "leave out group=",
        "curves fit.nc --group DE --out c.csv"),
    BadCommand("a probability of 2", "prob=2.0", "between 0 and 1",
        "curves fit.nc --prob 2 --out c.csv"),
    BadCommand("posteriors of a column that is missing", "'exposure' is missing", "the table has",
        "posteriors fit.nc a.csv --out p.parquet"),
    BadCommand("posteriors as CSV", "out='p.csv'", "*.parquet",
        "posteriors fit.nc ads.parquet --out p.csv"),
    BadCommand("scores alone with counts", "--score-only", "leave out --count",
        "posteriors fit.nc ads.parquet --score-only --count count --out p.parquet"),
    BadCommand("a quantile of 2", "quantiles=2.0", "between 0 and 1",
        "posteriors fit.nc ads.parquet --quantiles 2 --out p.parquet"),
    BadCommand("posteriors over the items", "ads.parquet holds the items", "another name",
        "posteriors fit.nc ads.parquet --out ads.parquet"),
    BadCommand("groups of a fit without", "--group g", "leave it out",
        "posteriors fit.nc ads.parquet --group g --out p.parquet"),
    BadCommand("a check by a column that is missing", "'nope' is missing", "the table has",
        "check fit.nc ads.parquet --by nope"),
    BadCommand("a check of two statistics", "one file of statistics", "or files of items",
        "check fit.nc stats.nc stats.nc"),
    BadCommand("a report that is no page", "out='r.txt'", "*.html",
        "report fit.nc ads.parquet --out r.txt"),
    BadCommand("one fit compared", "two fits or more", "not 1", "compare stats.nc a=fit.nc"),
    BadCommand("a fit without a name", "'fit.nc'", "NAME=fit.nc",
        "compare stats.nc fit.nc b=fit.nc"),
    BadCommand("two fits of one name", "two fits are named 'a'", "its own name",
        "compare stats.nc a=fit.nc a=fit.nc"),
    BadCommand("SQL of no such dialect", "dialect 'x'", "Unknown",
        "sql fit.nc --table ads --dialect x"),
    BadCommand("statistics of an older format",
        "'soc_pymc-statistics-1', this version reads 'soc_pymc-statistics-2'", "soc-pymc summarize",
        "fit old-stats.nc --out f.nc"),
    BadCommand("statistics of a newer format", "'soc_pymc-statistics-3' of a newer version",
        "upgrade soc_pymc", "fit new-stats.nc --out f.nc"),
    BadCommand("a fit of an older format", "'soc_pymc-fit-0', this version reads 'soc_pymc-fit-1'",
        "soc-pymc fit", "curves old-fit.nc --out c.csv"),
    BadCommand("a fit of a newer format", "'soc_pymc-fit-2' of a newer version", "upgrade soc_pymc",
        "curves new-fit.nc --out c.csv"),
    BadCommand("a demo of few items", "--items 5", "at least 1000", "demo --items 5 --out d"),
)
# fmt: on


# --- odd but fine --------------------------------------------------------------------------------


def _named(name: str) -> dict[str, str]:
    """Every role's column under an odd name, each with its own ending."""
    return {column: f"{name}{k}" for k, column in enumerate(("t", "y", "N"))}


_GROUPS = {"g": ["a", "b", "a", "b"]}

# fmt: off
FINE = (
    Fine("names with double quotes", _named('a"b')),
    Fine("names with single quotes", _named("a'b")),
    Fine("names with semicolons, as of SQL", _named("t; DROP TABLE items; --")),
    Fine("names as of HTML", _named("<script>alert(1)</script>")),
    Fine("names that are not ASCII", _named("se\xf1al \u30b9\u30b3\u30a2 \U0001f600")),
    Fine("names with spaces", _named("a b ")),
    Fine("names with commas", _named("a,b")),
    Fine("names with line breaks", _named("a\nb")),
    Fine("names with dots and brackets", _named("a.b[0]{c}")),
    Fine("names of parameters", _named("%s $1 ? :x")),
    Fine("names of 300 letters", _named("a" * 300)),
    Fine("words of SQL as names", {"t": "select", "y": "from", "N": "order"}),
    Fine("names of this package's own", {"t": "bin", "y": "cell", "N": "fold"}),
    Fine("names of other roles", {"t": "exposure", "y": "score", "N": "count"}),
    Fine("index, row and value as names", {"t": "index", "y": "row", "N": "value"}),
    Fine("columns of role names beside", columns={"score": ["x"] * 4, "count": ["y"] * 4}),
    Fine("a column of times with a zone beside", columns={"when": _PARIS}),
    Fine("scores and exposures as decimals",
        columns={"t": pa.array([Decimal(str(x)) for x in TAME["t"]], pa.decimal128(9, 2)), "N":
            pa.array([Decimal(int(x)) for x in TAME["N"]], pa.decimal128(9, 2))}),
    Fine("counts as real numbers", columns={"y": [float(y) for y in TAME["y"]]}),
    Fine("counts in 8 bits without sign", columns={"y": pa.array(TAME["y"], pa.uint8())}),
    Fine("scores as categories of numbers", columns={"t": pa.array(TAME["t"]).dictionary_encode()}),
    Fine("ids of text, of which no folds are made", columns={"i": list("abcd")}, roles={"id": "i"}),
    Fine("ids beyond 64 bits with sign", columns={"i": pa.array([1, 2, 3, 2**64 - 1], pa.uint64())},
        roles={"id": "i"}, options={"folds": 0}),
    Fine("a minus before 0", columns={"y": [-0.0, 1.0, 2.0, 1.0]}),
)
# fmt: on


# --- running them --------------------------------------------------------------------------------


def source_of(backend: str, table: pa.Table, folder: str = ".") -> Any:
    """An Arrow table as a source of items."""
    if backend == "pandas":
        return table.to_pandas()
    if backend == "polars":
        return pl.from_arrow(table)
    if backend == "arrow":
        return table
    if backend == "duckdb":
        connection = ibis.duckdb.connect()
        connection.con.register("mine", table)
        return connection.table("mine")
    path = os.path.join(folder, f"items.{backend}")
    if backend == "parquet":
        pq.write_table(table, path)
    else:
        pl.from_arrow(table).write_csv(path)
    return path


def run_command(words: list[str]) -> tuple[int, str]:
    """Exit status and standard error of a command in this process."""
    out, shown = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(shown):
            status = main(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    return status, shown.getvalue()


def folder_of_commands() -> None:
    """Files that commands name, written to the working folder."""
    g = given()
    Path("a.csv").write_text(_LINES)
    g.frame.to_parquet("ads.parquet")
    plain = soc.summarize(g.items, bins=20, joint=False, progress=False)
    plain.save("stats.nc")
    g.fit.save("fit.nc")
    for word, step in (("old", -1), ("new", 1)):
        Path(f"{word}-stats.nc").write_bytes(of_version(step, is_fit=False))
        Path(f"{word}-fit.nc").write_bytes(of_version(step, is_fit=True))


def message(call: Callable[[], Any], error: type[SocError]) -> str:
    """What a call's error says; any other outcome is an error of the case."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call()
    except SocError as raised:
        if type(raised) is not error:
            raise AssertionError(
                f"{type(raised).__name__} in place of {error.__name__}"
            ) from raised
        return str(raised)
    raise AssertionError(f"accepted: {found!r}")


# --- the page ------------------------------------------------------------------------------------

_HEAD = """\
# Errors

Every input gives either a right answer or one error that names the thing and what to do. Errors are
`soc.ItemsError` (the items cannot be used as they are), `soc.StatisticsError` (statistics cannot be
made, combined, saved or loaded as asked) and `soc.FitError` (a model cannot be built, fitted or
evaluated as asked); all are `soc.SocError` and `ValueError`. The command line prints the same text
as one line, without a traceback, and exits with status 2.

This page is made by `python -m tests.bad_inputs` from the table that the tests run: {number} bad
inputs with the messages as they are produced, and {fine} odd ones that are fine. Bad tables are
tried as pandas, Polars and Arrow tables, as tables of DuckDB, as Parquet and as CSV files, where
these can hold them, and some on Spark and PostgreSQL; the text is the same from each, except for
types that a source does not have. Files and tables in files are tried on the command line too. What
follows a colon or stands in brackets may come from a library and change with it; this page was made
with {made_with}.

"""


def _cell(text: str) -> str:
    """Text as a table's cell, whatever it holds."""
    safe = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "; ")
    for mark in "`*_<>[]$":
        safe = safe.replace(mark, f"\\{mark}" if mark != "<" else "&lt;")
    return safe.replace("\\>", "&gt;")


def _rows(title: str, rows: list[tuple[str, ...]], heads: tuple[str, ...]) -> str:
    lines = [f"## {title}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n\n"


def made_with() -> str:
    """Versions of what words a part of the messages."""
    names = ("pandas", "polars", "pyarrow", "duckdb", "h5netcdf", "scikit-learn", "sqlglot")
    python = ".".join(map(str, sys.version_info[:2]))
    return ", ".join([f"Python {python}", *(f"{name} {version(name)}" for name in names)])


def page() -> str:
    """The page of errors, from the cases as they run now."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        folder_of_commands()
        heads = ("what is wrong", "error", "what it says")
        tables = [(c.what, c.error.__name__, table_message(c, c.backends[0])) for c in TABLES]
        files = [(c.what, c.error.__name__, file_message(c)) for c in SOURCES]
        calls = [
            (c.what, c.error.__name__, message(lambda c=c: c.call(given()), c.error))
            for c in ARGUMENTS
        ]
        commands = [
            (c.what, f"soc-pymc {c.words}".strip(), run_command(words_of(c))[1].strip())
            for c in COMMANDS
        ]
        here = os.path.realpath(folder) + os.sep
    number = len(tables) + len(files) + len(calls) + len(commands)
    whole = (
        _HEAD.format(number=number, fine=len(FINE), made_with=made_with())
        + _rows("Tables", tables, heads)
        + _rows("Files", files, heads)
        + _rows("Arguments", calls, heads)
        + _rows("The command line", commands, ("what is wrong", "command", "what it prints"))
        + _rows("Odd but fine", [(c.what,) for c in FINE], ("what is odd",))
    )
    return whole.replace(here, "").rstrip() + "\n"


def words_of(case: BadCommand) -> list[str]:
    words = case.words.split()
    quiet = bool(words) and words[0] not in ("frobnicate",)
    return [words[0], "--quiet", *words[1:]] if quiet else words


def table_message(case: BadTable, backend: str) -> str:
    """What `soc.summarize` says of a bad table."""
    source = source_of(backend, case.table())
    items = case.items(source)
    return message(lambda: soc.summarize(items, progress=False, **case.options), case.error)


def file_message(case: BadFile) -> str:
    """What `soc.summarize` says of a bad file."""
    items = soc.PoissonItems(case.make(), **ROLES)
    return message(lambda: soc.summarize(items, edges=[0.25], progress=False), case.error)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE} written", file=sys.stderr)
