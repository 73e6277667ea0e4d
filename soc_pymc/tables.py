"""The room that knows Ibis: every kind of table opened, validated and grouped by one engine.

DuckDB, embedded and private to each table, is the engine of everything but Ibis tables, which stay
on their own backend.
"""

import difflib
import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .binning import EXACT_COUNTS, STEPS, ZERO_EXPOSURE, Grid, make_lookup
from .errors import ItemsError
from .items import PoissonItems
from .progress import phase

__all__ = [
    "Scan",
    "batches",
    "cell_sums",
    "count_cell",
    "exposure_cell",
    "grid_weights",
    "kind_of",
    "open_table",
    "scan",
    "score_cell",
    "to_ibis",
    "with_bins",
]

Kind = Literal["pandas", "polars", "arrow", "files", "ibis"]

_LARGEST_COUNT = 2.0**53  # whole numbers are exact in float64 up to here
_LARGEST = 1e100  # squares of scores and exposures must stay finite
_WIDE_COUNTS = 48  # 16 * 5 - 32: cells of counts >= 32 go on where the exact ones end
_SHOWN = 3  # bad rows shown in an error
_NEEDS = {
    "score": "scores must be finite numbers",
    "count": "counts must be whole numbers >= 0",
    "exposure": "exposures must be finite numbers >= 0",
}
_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


# ---------------------------------------------------------------- opening


def kind_of(source: Any) -> Kind:
    """Kind of a source of items.

    Parameters
    ----------
    source
        Whatever `PoissonItems` accepts.

    Raises
    ------
    ItemsError
        If it is none of the kinds.

    Examples
    --------
    >>> kind_of("items/*.parquet")
    'files'
    """
    if isinstance(source, pd.DataFrame):
        return "pandas"
    if isinstance(source, str | os.PathLike) or (
        isinstance(source, list | tuple)
        and source
        and all(isinstance(s, str | os.PathLike) for s in source)
    ):
        return "files"
    library, name = type(source).__module__.partition(".")[0], type(source).__name__
    kinds: dict[tuple[str, str], Kind] = {
        ("polars", "DataFrame"): "polars",
        ("pyarrow", "Table"): "arrow",
        ("ibis", "Table"): "ibis",
    }
    if (library, name) in kinds:
        return kinds[library, name]
    hint = ": collect() it first" if name == "LazyFrame" else ""
    raise ItemsError(
        f"items cannot be read from a {library}.{name}{hint}; give a pandas, Polars or Arrow "
        "table, a path, glob or list of Parquet or CSV files, or an Ibis table"
    )


def open_table(source: Any, columns: Sequence[str] | None = None) -> Any:
    """Ibis table of a source; the rows keep their order.

    Parameters
    ----------
    source
        Whatever `PoissonItems` accepts.
    columns
        Columns to keep; None keeps all.

    Returns
    -------
    ibis.Table
        On a DuckDB connection of its own, or, for an Ibis table, on the table's backend.

    Raises
    ------
    ItemsError
        If a file is missing or unreadable, files disagree in their columns, or a column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> open_table(pd.DataFrame({"a": [1, 2]})).columns
    ('a',)
    """
    kind = kind_of(source)
    if kind == "ibis":
        return source.select(*_chosen(source.columns, columns)) if columns else source
    if kind == "files":
        return _open_files(_paths(source), columns)
    table = _arrow(source, kind, columns)
    _refuse_case_twins(table.column_names, table.column_names)
    connection = _connection()
    connection.con.register("items", table)
    return connection.table("items")


def _connection() -> Any:
    import ibis

    return ibis.duckdb.connect()


def _chosen(available: Sequence[Any], columns: Sequence[str] | None) -> list[str]:
    """The wanted columns, each there exactly once."""
    names = [str(name) for name in available]
    wanted = names if columns is None else list(columns)
    absent = [_absent(column, names) for column in wanted if column not in names]
    if absent:
        raise ItemsError("\n".join(absent))
    for column in wanted:
        if names.count(column) > 1:
            raise ItemsError(
                f"column {column!r} is there {names.count(column)} times: rename or drop the others"
            )
    return wanted


def _absent(column: str, names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(column.lower(), list(lower), n=1)
    hint = f": did you mean {lower[close[0]]!r}?" if close else ""
    return f"column {column!r} is missing; the table has {shown or 'no columns'}{more}{hint}"


def _refuse_case_twins(available: Sequence[str], wanted: Sequence[str]) -> None:
    lower = [name.lower() for name in available]
    for column in wanted:
        if lower.count(column.lower()) > 1:
            twins = [name for name in available if name.lower() == column.lower()]
            raise ItemsError(
                f"columns {' and '.join(map(repr, twins))} differ in letter case only, which the "
                "engine cannot tell apart: rename one of them"
            )


def _arrow(source: Any, kind: Kind, columns: Sequence[str] | None) -> Any:
    """Arrow table of the wanted columns of a table in memory."""
    import pyarrow as pa

    if kind == "arrow":
        return source.select(_chosen(source.column_names, columns))
    if kind == "polars":
        return source.select(_chosen(source.columns, columns)).to_arrow()
    wanted = _chosen(source.columns, columns)
    names = [str(name) for name in source.columns]
    arrays = []
    for column in wanted:
        try:
            arrays.append(pa.Array.from_pandas(source.iloc[:, names.index(column)]))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ItemsError(
                f"column {column!r} holds mixed values, not one type ({error}): convert it first"
            ) from error
    return pa.table(arrays, names=wanted)


def _paths(source: Any) -> list[str]:
    """Existing files that a path, glob or list stands for, globs in sorted order."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths: list[str] = []
    for name in (os.path.expanduser(os.fspath(g)) for g in given):
        if os.path.exists(name):
            paths.append(name)
        elif glob.has_magic(name):
            found = sorted(glob.glob(name, recursive=True))
            if not found:
                raise ItemsError(f"{name}: no file matches")
            paths.extend(found)
        elif "://" in name:
            raise ItemsError(f"{name}: remote files are read through an Ibis table; pass one")
        else:
            raise ItemsError(f"{name}: there is no such file")
    for name in paths:
        if os.path.isdir(name):
            raise ItemsError(f"{name} is a directory: name its files, for example {name}/*.parquet")
    return paths


def _open_files(paths: list[str], columns: Sequence[str] | None) -> Any:
    formats = [_format(path) for path in paths]
    for path, form in zip(paths, formats, strict=True):
        if form != formats[0]:
            raise ItemsError(f"{path} is {form}, but {paths[0]} is {formats[0]}: use one format")
    connection = _connection()
    schemas = [_schema(connection, path, formats[0]) for path in paths]
    wanted = _chosen(list(schemas[0]), columns)
    _refuse_case_twins(list(schemas[0]), wanted)
    for path, schema in zip(paths[1:], schemas[1:], strict=True):
        _same_schema(paths[0], schemas[0], path, schema, wanted, exact=formats[0] == "Parquet")
    # a name that is there is a name, whatever wildcards it contains
    names = [glob.escape(path) for path in paths]
    if formats[0] == "Parquet":
        table = connection.read_parquet(names, table_name="items", hive_partitioning=False)
    else:
        widest = {
            c: "DOUBLE" if any(s[c] != schemas[0][c] for s in schemas) else schemas[0][c]
            for c in schemas[0]
            if all(c in s for s in schemas)
        }
        table = connection.read_csv(
            names, table_name="items", header=True, types=widest, hive_partitioning=False
        )
    return table.select(*wanted)


def _format(path: str) -> str:
    name = path.lower()
    if name.endswith(_PARQUET):
        return "Parquet"
    if name.endswith(_CSV):
        return "CSV"
    raise ItemsError(f"{path}: items are read from files named *.parquet, *.csv or *.csv.gz")


def _schema(connection: Any, path: str, form: str) -> dict[str, str]:
    """Column types by name; a file that cannot be read is an error that names it."""
    try:
        if form == "Parquet":
            import pyarrow.parquet as pq

            schema = pq.read_schema(path)
            return {name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)}
        # the whole file decides the types: a fraction may come late
        rows = connection.con.execute(
            "DESCRIBE SELECT * FROM read_csv(?, header=true, sample_size=-1, "
            "hive_partitioning=false)",
            [glob.escape(path)],
        ).fetchall()
        return {str(row[0]): str(row[1]) for row in rows}
    except Exception as error:
        raise ItemsError(f"{path} cannot be read as {form}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_CSV_NUMBERS = ("BIGINT", "DOUBLE", "INTEGER", "HUGEINT")


def _same_schema(
    first_path: str,
    first: Mapping[str, str],
    path: str,
    schema: Mapping[str, str],
    wanted: Sequence[str],
    *,
    exact: bool,
) -> None:
    """Refuse files that differ in the wanted columns; numbers of CSV files may be of any kind."""
    if not exact and list(schema) != list(first):
        raise ItemsError(
            f"{path} has the columns {', '.join(map(repr, schema))}, but {first_path} has "
            f"{', '.join(map(repr, first))}"
        )
    for column in wanted:
        if column not in schema:
            raise ItemsError(f"{path} has no column {column!r}, but {first_path} has one")
        both = first[column], schema[column]
        if both[0] != both[1] and (exact or not set(both) <= set(_CSV_NUMBERS)):
            raise ItemsError(
                f"{path} holds column {column!r} as {both[1]}, but {first_path} as {both[0]}: "
                "write the files with one type"
            )


def batches(
    table: Any, columns: Sequence[str] | None = None, size: int = 1_000_000
) -> Iterator[Any]:
    """Arrow record batches of an Ibis table, in the order of its rows.

    Parameters
    ----------
    table
        What `open_table` returned.
    columns
        Columns to read; None reads all.
    size
        Most rows in a batch.

    Yields
    ------
    pyarrow.RecordBatch
        The next rows.

    Examples
    --------
    >>> import pandas as pd
    >>> table = open_table(pd.DataFrame({"a": range(5)}))
    >>> [batch.num_rows for batch in batches(table, size=3)]
    [3, 2]
    """
    chosen = table.select(*_chosen(table.columns, columns))
    with _readable():
        for batch in chosen.to_pyarrow_batches(chunk_size=size):
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)


@contextmanager
def _readable() -> Iterator[None]:
    """Engine errors while reading become an ItemsError."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("_duckdb", "duckdb", "pyarrow"):
            raise ItemsError(f"the items cannot be read: {_first_line(error)}") from error
        raise


# ---------------------------------------------------------------- validating


@dataclass(frozen=True)
class Scan:
    """Totals of valid items, from one pass.

    Attributes
    ----------
    n
        Number of items.
    total_count, total_exposure
        Sums of counts and exposures.
    score_min, score_max
        Range of the scores.
    score_least
        Least size of a score that is not 0; NaN if all are.
    nonpositive_scores
        Number of scores at or below 0.
    table
        Ibis table of the items with the columns ``score`` and ``exposure`` (float64) and ``count``
        (int64).
    """

    n: int
    total_count: int
    total_exposure: float
    score_min: float
    score_max: float
    score_least: float
    nonpositive_scores: int
    table: Any = field(repr=False)


def scan(items: PoissonItems, progress: bool = True) -> Scan:
    """Validate items and total them in one pass.

    Parameters
    ----------
    items
        The items.
    progress
        Whether long scans show their progress.

    Raises
    ------
    ItemsError
        Every problem of the items, one a line: the column, the number of bad rows, the first of
        them, and what is needed.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"t": [0.1, 0.2], "clicks": [0, 1], "views": [9, 8]})
    >>> scan(PoissonItems(frame, score="t", count="clicks", exposure="views")).total_count
    1
    """
    table = open_table(items.source, list(items.roles.values()))
    columns = {role: table[name] for role, name in items.roles.items()}
    wrong_types = [
        f"column {items.roles[role]!r} holds {word}; {_NEEDS[role]}: convert it first"
        for role, column in columns.items()
        if (word := _wrong_type(column.type()))
    ]
    raw = table.select(**{role: column.cast("float64") for role, column in columns.items()})
    with phase("checking items", enabled=progress), _readable():
        if wrong_types:
            if table.count().to_pyarrow().as_py() == 0:
                raise ItemsError(_no_rows(items))
            raise ItemsError("\n".join(wrong_types))
        problems = _problems(raw, items.roles)
        found = _row(raw.aggregate(**_totals(raw), **_problem_counts(problems)))
        n = found["n"]
        if n == 0:
            raise ItemsError(_no_rows(items))
        texts = [
            _describe(raw, problem, found[f"bad{i}"], n, kind_of(items.source) != "ibis")
            for i, problem in enumerate(problems)
            if found[f"bad{i}"]
        ]
    if texts:
        raise ItemsError("\n".join(texts))
    if found["float_count"] > 2.0**62:
        raise ItemsError(
            f"column {items.count!r} sums to {found['float_count']:.3g}, more than can be counted "
            "exactly: summarize parts of the items"
        )
    typed = table.select(
        score=columns["score"].cast("float64"),
        count=_whole(columns["count"]),
        exposure=columns["exposure"].cast("float64"),
    )
    least = found["score_least"]
    return Scan(
        n,
        int(found["total_count"]),
        found["total_exposure"],
        found["score_min"],
        found["score_max"],
        float("nan") if least is None else least,
        found["nonpositive"],
        typed,
    )


def _no_rows(items: PoissonItems) -> str:
    shown = f"{items.source}: " if kind_of(items.source) == "files" else ""
    return f"{shown}the table of items has no rows"


def _wrong_type(dtype: Any) -> str | None:
    """What a column holds if it does not hold numbers."""
    if dtype.is_boolean():
        return "true/false values"
    if dtype.is_numeric() or dtype.is_null():
        return None
    if dtype.is_string():
        return "text"
    if dtype.is_temporal() or dtype.is_interval():
        return "dates or times"
    return f"values of type {dtype}"


def _whole(column: Any) -> Any:
    """Valid counts as int64 (through float64 unless integers, as decimals may not fit)."""
    return column if column.type().is_int64() else column.cast("float64").cast("int64")


@dataclass(frozen=True)
class _Problem:
    condition: Any  # Ibis expression, true on bad rows
    role: str
    column: str
    what: str  # "are negative"
    show: bool  # whether the bad values say anything


def _problems(raw: Any, roles: Mapping[str, str]) -> list[_Problem]:
    """Every way in which a row may be bad; a row's value is judged by the first that applies."""
    problems: list[_Problem] = []
    clean: dict[str, Any] = {}
    usable: dict[str, Any] = {}
    for role, name in roles.items():
        value = raw[role]
        missing = value.fill_null(float("nan")).isnan()
        known = missing.ifelse(0.0, value)
        infinite = known.isinf()
        clean[role] = infinite.ifelse(0.0, known)
        usable[role] = ~(missing | infinite)
        problems += [
            _Problem(missing, role, name, "missing (null or NaN)", show=False),
            _Problem(infinite, role, name, "infinite", show=True),
        ]
        large = _LARGEST_COUNT if role == "count" else _LARGEST
        text = "larger than 2^53" if role == "count" else f"beyond {_LARGEST:g} in size"
        problems.append(_Problem(clean[role].abs() > large, role, name, text, show=True))
        if role != "score":
            problems.append(_Problem(clean[role] < 0, role, name, "negative", show=True))
    count = (clean["count"].abs() > _LARGEST_COUNT).ifelse(0.0, clean["count"])
    fraction = count != count.floor()
    problems.append(_Problem(fraction, "count", roles["count"], "not whole", show=True))
    unseen = (clean["count"] > 0) & (clean["exposure"] == 0) & usable["exposure"]
    text = f"positive where column {roles['exposure']!r} is 0"
    problems.append(_Problem(unseen, "count", roles["count"], text, show=True))
    return problems


def _problem_counts(problems: list[_Problem]) -> dict[str, Any]:
    return {f"bad{i}": problem.condition.sum().fill_null(0) for i, problem in enumerate(problems)}


def _totals(raw: Any) -> dict[str, Any]:
    """Totals; sums of whole numbers are guarded, as they are taken before the verdict."""
    score, count, exposure = raw.score, raw["count"], raw.exposure
    safe = (count.abs() <= _LARGEST_COUNT).ifelse(count, 0.0)  # null and NaN are not either
    return {
        "n": raw.count(),
        "total_count": safe.cast("int64").sum(),
        "float_count": safe.sum(),
        "total_exposure": exposure.sum(),
        "score_min": score.min(),
        "score_max": score.max(),
        "score_least": (score != 0).ifelse(score.abs(), None).min(),
        "nonpositive": (score <= 0).sum().fill_null(0),
    }


def _row(expression: Any) -> dict[str, Any]:
    """The only row of an aggregate."""
    rows: list[dict[str, Any]] = expression.to_pyarrow().to_pylist()
    return rows[0]


def _describe(raw: Any, problem: _Problem, bad: int, n: int, ordered: bool) -> str:
    """One line on one problem, with the first few bad rows."""
    import ibis

    numbered = raw.mutate(bad=problem.condition)
    if ordered:
        numbered = numbered.mutate(row=ibis.row_number())
    rows = numbered.filter(numbered.bad).limit(_SHOWN).to_pyarrow().to_pylist()
    rows.sort(key=lambda r: r.get("row", 0))
    seen = []
    if problem.show:
        seen.append("first values: " + ", ".join(f"{r[problem.role]:.12g}" for r in rows))
    if ordered:
        seen.append("rows counted from 0: " + ", ".join(f"{r['row']}" for r in rows))
    shown = f" ({'; '.join(seen)})" if seen else ""
    return (
        f"column {problem.column!r}: {bad:,} of {n:,} {'row' if n == 1 else 'rows'} "
        f"{'is' if bad == 1 else 'are'} {problem.what}{shown}; {_NEEDS[problem.role]}: "
        f"fix or drop {'this row' if bad == 1 else 'these rows'}"
    )


# ---------------------------------------------------------------- cells


def _log_linear(size: Any, steps: int) -> Any:
    """2^steps times the octave of positive numbers, plus the whole step inside it.

    A logarithm that rounds to the wrong side of a power of two does no harm: the last step of one
    octave meets the first of the next, as long as a step is wider than the logarithm's error.
    """
    import ibis

    octave = size.log2().floor().cast("int64")
    unit = 1 << steps
    step = ((size / (ibis.literal(2.0) ** octave) - 1.0) * float(unit)).floor().cast("int64")
    return octave * unit + step


def _exact(number: float) -> Any:
    """A literal that no engine rounds, as it may when it reads decimals: odd integer times 2^e."""
    import ibis

    whole, below = float(number).as_integer_ratio()
    shift = (whole & -whole).bit_length() - 1 if whole else 0
    exponent = shift - (below.bit_length() - 1)
    odd = ibis.literal(whole >> shift, type="int64").cast("float64")
    return odd * ibis.literal(2.0) ** ibis.literal(exponent, type="int64")


def score_cell(score: Any, grid: Grid, low: float, high: float) -> Any:
    """`Grid.cell` of scores clipped to [low, high], as an Ibis expression."""
    import ibis

    clipped = ibis.least(ibis.greatest(score, _exact(low)), _exact(high))
    least, first = _exact(2.0**grid.floor), (grid.floor << grid.steps) - 1
    if low >= 2.0**grid.floor:
        return _log_linear(clipped, grid.steps) - first
    size = clipped.abs()
    cell = _log_linear(ibis.greatest(size, least), grid.steps) - first
    return (size >= least).ifelse((clipped > 0).ifelse(1, -1) * cell, 0)


def exposure_cell(exposure: Any) -> Any:
    """`binning.exposure_cell` as an Ibis expression."""
    positive = exposure > 0
    return positive.ifelse(_log_linear(positive.ifelse(exposure, 1.0), STEPS), ZERO_EXPOSURE)


def count_cell(count: Any) -> Any:
    """`binning.count_cell` as an Ibis expression."""
    import ibis

    wide = _log_linear(ibis.greatest(count, EXACT_COUNTS).cast("float64"), STEPS)
    return (count < EXACT_COUNTS).ifelse(count, wide - _WIDE_COUNTS)


# ---------------------------------------------------------------- grouped passes


def grid_weights(
    table: Any, grid: Grid, low: float, high: float, weight: str | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Occupied cells of scores clipped to [low, high], rising, and their weights.

    Parameters
    ----------
    table
        `Scan.table`.
    grid, low, high
        The cells.
    weight
        Column whose sum weighs; None counts the items.
    """
    cell = score_cell(table.score, grid, low, high)
    total = table.count() if weight is None else table[weight].sum().cast("float64")
    found = table.group_by(cell=cell).aggregate(weight=total)
    with _readable():
        arrow = found.to_pyarrow()
    cells = arrow["cell"].to_numpy().astype(np.int64)
    order = np.argsort(cells)
    return cells[order], arrow["weight"].to_numpy().astype(float)[order]


def with_bins(table: Any, edges: NDArray[np.float64]) -> Any:
    """The table with the column ``bin``: [e_k, e_k+1) is bin k + 1, outer bins are open.

    Parameters
    ----------
    table
        `Scan.table`.
    edges
        Interior edges, strictly rising.
    """
    import ibis

    if len(edges) == 0:
        return table.mutate(bin=ibis.literal(0, type="int64"))
    lookup = make_lookup(edges)
    if lookup is None:  # edges too close for a grid: compare with every one
        passed = [(table.score >= _exact(edge)).cast("int64") for edge in edges]
        while len(passed) > 1:  # as a tree, for engines that limit an expression's depth
            passed = [sum(passed[i + 1 : i + 2], passed[i]) for i in range(0, len(passed), 2)]
        return table.mutate(bin=passed[0])
    import pyarrow as pa

    rows = ibis.memtable(pa.table({"cell": lookup.cell, "below": lookup.below, "cut": lookup.cut}))
    cell = score_cell(table.score, lookup.grid, lookup.low, lookup.high)
    joined = table.mutate(cell=cell).inner_join(rows, "cell")
    return joined.mutate(bin=joined.below + (joined.score >= joined.cut).cast("int64"))


def cell_sums(table: Any, edges: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Sums over joint cells of bin, exposure and count: columns by name, in no set order.

    Parameters
    ----------
    table
        `Scan.table`.
    edges
        Interior edges, strictly rising.
    """
    binned = with_bins(table, edges)
    keyed = binned.mutate(
        exposure_cell=exposure_cell(binned.exposure), count_cell=count_cell(binned["count"])
    )
    t, y, x = keyed.score, keyed["count"], keyed.exposure
    real = y.cast("float64")
    log_t = (t > 0).ifelse(t, 1.0).ln()
    log_x = (y > 0).ifelse(x, 1.0).ln()
    sums = {
        "sum_N": x,
        "sum_N2": x * x,
        "sum_y": y,
        "sum_y2": real * real,
        "sum_yN": real * x,
        "sum_yN2": real * x * x,
        "sum_t": t,
        "sum_t2": t * t,
        "sum_log_t": log_t,
        "sum_log_t2": log_t * log_t,
        "sum_N_t": x * t,
        "sum_N_log_t": x * log_t,
        "sum_y_log_N": real * log_x,
    }
    grouped = keyed.group_by("bin", "exposure_cell", "count_cell").aggregate(
        n=keyed.count(),
        score_min=t.min(),
        score_max=t.max(),
        **{name: value.sum() for name, value in sums.items()},
    )
    with _readable():
        arrow = grouped.to_pyarrow()
    whole = {"bin", "exposure_cell", "count_cell", "n", "sum_y"}
    return {
        name: arrow[name].to_numpy().astype(np.int64 if name in whole else np.float64)
        for name in arrow.column_names
    }


def to_ibis(table: Any) -> Any:
    """Ibis table of an Arrow table."""
    import ibis

    return ibis.memtable(table)
