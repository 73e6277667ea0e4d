"""A fit elsewhere: files of its prior, item posteriors as an Ibis expression and as SQL text.

The formulas are those of `soc_pymc.prior_table`, on columns of an engine. Comparisons find the cell
of distinct items; they are joined to its nodes, and sums over the nodes give their posteriors.
"""

import difflib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from itertools import count as numbered
from operator import and_, methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import prior_table
from .._lib.arguments import A, FitError, ItemsError, names_of, path_of, shown
from .._lib.files import replacing
from .._lib.work import one_blas_thread
from ..data.engines import read_columns, with_bins
from ..data.formulas import exact
from ..data.items import ANY_ITEMS, CROSS, ITEMS, Items, Roles
from ..data.sources import chosen, kind_of, small_table
from ..families.scales import MIDDLE
from ..fits import FIT, Curves, Fit
from ..prior_table import PriorTable, by_group, checksum
from .averages import scorer, table_items
from .item_columns import posterior_roles, refuse_taken
from .predictive import posterior_under
from .prior_build import Nodes, digest_of, table_of

# the table's description, as its file has it
type Meta = dict[str, Any]

_MOST_BYTES = 10_000_000
# quantiles whose errors are stated
_LEVELS = 0.05, 0.95
# simulated items, and an error in posterior sd that is too large
_PROBES = 500
_FAR = 0.1
# share of the simulated items whose errors must be smaller
_MOST_ITEMS = 0.99
# sizes of simulated items, as multiples of the mean sizes of their bins
_TIMES = (0.25, 1.0, 4.0, 16.0)
# without a LIMIT, Postgres computes a column again at every use
_ALL = 2**62
# engines on which joins are faster than windows, or for which Ibis compiles no windows
_JOINING = ("duckdb", "polars")
# Halley's steps for quantiles on the nodes
_STEPS = 3
# PostgreSQL fails where an exponential or product underflows or overflows
_LEAST_EXPONENT = -690.0
_MOST_EXPONENT = 138.0
# dialects by their names in Ibis and SQLGlot: Ibis compiles Spark's only for a session
_DIALECTS = {"pyspark": ("databricks", "spark"), "spark": ("databricks", "spark")}
_NESTING = ("spark", "databricks")
_TESTED = (
    *("duckdb", "postgres", "pyspark", "clickhouse", "datafusion", "snowflake"),
    *("bigquery", "trino", "databricks"),
)
# types of Arrow in SQLGlot and ClickHouse
_KINDS = {
    "string": ("TEXT", "String"), "int32": ("BIGINT", "Int64"), "int64": ("BIGINT", "Int64"),
    "float": ("FLOAT", "Float32"), "double": ("DOUBLE", "Float64"),
}  # fmt: skip
# dialects that unnest several lists together
_LISTS = ("duckdb", "postgres", "datafusion")
_MOST_TEXT = 1_000_000  # characters of a SELECT
_PART = r'(?:[^\W\d]\w*|"(?:[^"\x00-\x1f]|"")+")'
_READ = re.compile(r"_\['(\w+)'\]")  # a column, as Ibis shows it
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")


@one_blas_thread
def export_prior(fit: Fit, path: str | os.PathLike[str]) -> Path:
    """Write a fit's prior to a small file, for scoring items without this package.

    Parameters
    ----------
    fit : Fit
        The fit.
    path : str or Path
        File to write, ``*.parquet`` or ``*.json``, which appears when it is complete.

    Returns
    -------
    pathlib.Path
        The file, of at most 10 MB, for `soc_pymc.prior_table.load`, with the day, digest of the fit
        and checksum, and the largest ``errors`` in posterior sd, of simulated items.

    Raises
    ------
    FitError
        If the name has another suffix, the fit has no such table, as the error says, the file would
        be larger, or errors of more than 1% of the simulated items were above 0.1 posterior sd.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = soc.export_prior(fit, pathlib.Path(folder) / "prior.parquet")
    ...     soc.prior_table.load(path).meta["family"]
    'Gamma'
    """
    FIT(fit, "fit")
    target = Path(path_of(path, "path", FitError))
    if target.suffix not in (".parquet", ".json"):
        raise FitError(f"path={str(target)!r} must be named *.parquet or *.json")
    meta, columns = described(fit.curves)
    writer = _write_json if target.suffix == ".json" else _write_parquet
    with replacing(target) as temporary:
        writer(meta, columns, temporary)
        size = temporary.stat().st_size
        if size > _MOST_BYTES:
            what = f"{size / 1e6:.1f} MB in {meta['cells']:,} cells, more than 10 MB"
            remedy = "pool groups or leave out the term in exposure"
            if writer is _write_json:
                remedy += ", or write *.parquet, which is smaller"
            raise FitError(f"the table would be of {what}: {remedy}")
    return target


def _write_json(meta: Meta, columns: Nodes, path: Path) -> None:
    # the shortest digits from which a number is read back exactly
    nodes = {
        name: [json.loads(str(v)) for v in values] for name, values in columns.items()
    }
    content = {"meta": meta, "nodes": nodes}
    path.write_text(json.dumps(content, separators=(",", ":"), allow_nan=False))


def _write_parquet(meta: Meta, columns: Nodes, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # the digest in every row shows SQL whether a text and a table belong to one fit
    digest = pa.array([meta["fit"]] * len(columns["cell"]))
    table = pa.table({**columns, "fit": digest})
    table = table.replace_schema_metadata({"soc_pymc_prior": json.dumps(meta)})
    split = [name for name, values in columns.items() if values.dtype.kind == "f"]
    options = {"use_dictionary": ["cell", "node", "wide", "fit"], "compression": "zstd"}
    pq.write_table(table, path, use_byte_stream_split=split, **options)


def described(curves: Curves) -> tuple[Meta, Nodes]:
    """Description and columns of the prior table, made once; FitError if it is not accurate."""
    return curves.once(_described)


def _described(curves: Curves) -> tuple[Meta, Nodes]:
    if curves.noise_law:
        raise FitError(
            "exported tables and SQL take noise sds as known, and those of this fit are estimates "
            "(noise_df=): use soc.item_posteriors"
        )
    table = table_of(curves)
    parts = [table.nodes(label) for label in curves.groups or [""]]
    columns = {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0]
    }
    columns = {k: x for k, x in columns.items() if not k.startswith("way_") or x.any()}
    is_first = columns["node"] == 0
    columns["cell"] = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    meta = dict(table.meta) | {
        "fit": digest_of(curves),
        "made": datetime.now(UTC).date().isoformat(),
        "cells": int(is_first.sum()),
        "columns": [[name, values.dtype.str] for name, values in columns.items()],
    }
    meta["errors"] = _errors(curves, by_group(meta, columns))
    meta["checksum"] = checksum(meta, columns)
    return meta, columns


def _errors(curves: Curves, table: PriorTable) -> dict[str, float]:
    """Largest errors in posterior sd, of simulated items that are not flagged."""
    posterior = posterior_under(curves)
    rng = np.random.default_rng(0)
    outcome = posterior.outcome
    bins = curves.bins
    n = bins["n_items"].to_numpy()
    probes = rng.choice(len(n), _PROBES, p=n / n.sum())
    size = bins[outcome.size].to_numpy() / (n if outcome.sizes_add else 1.0)
    size = size[probes] * rng.choice(_TIMES, _PROBES)
    # trials are whole
    size = np.where(size < 1.0, size, np.round(size))
    columns = {"score": bins["score"].to_numpy()[probes], outcome.size: size}
    if curves.groups:
        columns["group"] = rng.choice(np.array(curves.groups, dtype=object), _PROBES)
    draw = rng.integers(curves.number, size=_PROBES)
    columns[outcome.observed] = posterior.simulate(columns, rng, drawn_by=draw)
    exact = scorer(posterior, _LEVELS, "all")(columns)
    nodes = prior_table.posterior_nodes(table, table_items(curves, columns))
    rows, flagged = prior_table.summaries_of(table, nodes, _PROBES, _LEVELS)
    gaps = np.abs(rows - exact)[:, ~flagged] / exact[1, ~flagged]
    mean, sd, _, lower, upper = gaps[:5]
    errors = {"mean": mean, "sd": sd, "lower": lower, "upper": upper}
    for name, error in errors.items():
        known = np.append(np.nan_to_num(error, nan=np.inf), 0.0)
        bound = float(np.quantile(known, _MOST_ITEMS))
        if bound > _FAR:
            distance = f"its {name} is {bound:.2g} posterior sd from that of every draw"
            items = f"at the {_MOST_ITEMS:.0%} point of {_PROBES:,} simulated items"
            reason = f"{distance} {items}, and may be {_FAR}. Score items by soc.item_posteriors"
            raise FitError(f"a table cannot follow this prior: {reason}")
    return {name: float(error.max(initial=0.0)) for name, error in errors.items()}


# --- item posteriors as an expression and as SQL -------------------------------------------------


def posterior_expression(
    fit: Fit, items: Items, *, quantiles: Sequence[float] = (0.05, 0.95)
) -> Any:
    """Build the posterior of every item as an Ibis expression, which is not executed.

    Parameters
    ----------
    fit : Fit
        The fit, of any prior that `export_prior` can write.
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        Items over an Ibis table, on any backend.
    quantiles : Sequence[float]
        Levels, from 0.005 to 0.995.

    Returns
    -------
    ibis.Table
        The user's columns, in any order of rows, those of `item_posteriors` and ``flagged``. The
        numbers are the same, except for flagged items, which `item_posteriors` scores over all
        draws. They are NULL for items that it would refuse, and for groups that the fit does not
        know. There is no warning of scores far outside the fit's.

    Raises
    ------
    ItemsError
        If the items are not over an Ibis table, or a column is missing or has a name that is taken.
    FitError
        If the fit's prior cannot be exported, as `export_prior` says.

    Examples
    --------
    >>> import ibis, soc_pymc as soc
    >>> table = ibis.memtable(items.source)
    >>> ads = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
    >>> "theta_q95" in soc.posterior_expression(fit, ads).columns
    True
    """
    import ibis
    from ibis.expr.operations import SQLStringView

    curves = FIT(fit, "fit").curves
    A(Items, f"{ANY_ITEMS} of an Ibis table")(items, "items", ItemsError)
    if kind_of(items.source) != "ibis":
        remedy = 'soc.item_posteriors, or pass ibis.duckdb.connect().read_parquet("items.parquet")'
        raise ItemsError(f"an expression needs items over an Ibis table: use {remedy}")
    roles = posterior_roles(curves, items)
    table = items.source
    _refuse_columns(table.columns, roles, _new_columns(curves, quantiles))
    engine = table.get_backend().name
    _, columns = described(curves)
    nodes = small_table(table, **columns)
    if engine == "polars":
        sheet = _sheet_of(curves, table, engine)
        return _expression(curves, sheet, roles, quantiles, nodes)
    # engines plan the text of `posterior_sql` faster than what Ibis would write
    source = ibis.table(table.schema(), name="soc_table")
    tables = {"table": table}
    # Ibis sends PostgreSQL tables in memory row by row
    if engine != "postgres":
        tables["prior"] = nodes
        nodes = ibis.table(nodes.schema(), name="soc_prior")
    sheet = _sheet_of(curves, source, engine)
    scored = _expression(curves, sheet, roles, quantiles, nodes)
    names = {argument: ibis.util.gen_name(argument) for argument in tables}
    quoted = {argument: f'"{name}"' for argument, name in names.items()}
    text = _text_of(scored, sheet, quoted, engine)
    parents = [tables[argument].alias(name) for argument, name in names.items()]
    parent = reduce(lambda x, y: x.cross_join(y, rname="soc_{name}"), parents)
    view = SQLStringView(parent=parent, query=text, schema=scored.schema()).to_expr()
    return view.select(*scored.columns)


def posterior_sql(
    fit: Fit, table: str, *, score: str | None = None, group: str | Sequence[str] | None = None,
    columns: Sequence[str] = (), quantiles: Sequence[float] = (0.05, 0.95),
    prior: str | None = None, dialect: str = "duckdb", **outcome: str | None,
) -> str:  # fmt: skip
    """Write the posterior of every item as the text of one SELECT.

    Parameters
    ----------
    fit : Fit
        The fit, of any prior that `export_prior` can write.
    table : str
        Name of the table of items, such as ``'sales."Ads 2024"'``.
    score : str or None
        Column of the scores; None takes that of the fit's items, here and below.
    group : str, Sequence[str] or None
        Columns of groups.
    columns : Sequence[str]
        Other columns to keep, such as the items' key.
    quantiles : Sequence[float]
        Two levels, from 0.005 to 0.995.
    prior : str or None
        Table that holds the file of ``soc.export_prior(fit, "prior.parquet")``, loaded unchanged;
        there is no row if it is another fit's. None writes its numbers into the text.
    dialect : str
        SQL dialect: texts were run as ``"duckdb"`` 1.5, ``"postgres"`` 15, ``"pyspark"`` 4.3,
        ``"clickhouse"`` 26.9, ``"datafusion"`` 51 and 55, ``"snowflake"`` (an emulator, fakesnow
        0.12); those of ``"bigquery"``, ``"trino"`` and ``"databricks"`` were parsed. On these and
        others that Ibis supports compare a few rows first.
    **outcome : str or None
        Columns of outcome and size, such as ``count=`` and ``exposure=``.

    Returns
    -------
    str
        A SELECT of these columns and the new ones of `posterior_expression`, of at most a million
        characters.

    Raises
    ------
    ItemsError
        If a name is taken, columns are not those of the fit's kind of items, or the table's name or
        the dialect is unknown.
    FitError
        If the fit's prior cannot be exported, as `export_prior` says, or the text would be longer.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> sql = soc.posterior_sql(fit, "sales.ads", columns=["ad_id"], dialect="trino")
    >>> '"ad_id"' in sql and "FROM sales.ads" in sql
    True
    """
    import ibis

    columns = names_of(columns, "columns", ItemsError)
    curves = FIT(fit, "fit").curves
    tables = {"table": table} | ({} if prior is None else {"prior": prior})
    _check_names(tables)
    if not (isinstance(dialect, str) and dialect.strip()):
        raise ItemsError(f"dialect={shown(dialect)} must be a name, as str")
    kind = curves.outcome
    known = curves.roles
    arguments = {"score": score} | outcome
    named = {role: column for role, column in arguments.items() if column is not None}
    roles_of_fit = ("score", kind.observed, kind.size)
    if unknown := [role for role in named if role not in roles_of_fit]:
        reason = f"the fit's items, which have {kind.observed}= and {kind.size}="
        raise ItemsError(f"{unknown[0]}= is not a column of {reason}")
    by_role = {role: known.get(role, role) for role in roles_of_fit} | named
    if group is not None and not curves.groups:
        raise ItemsError(
            "group= is for fits with curves for each group: this one has none"
        )
    if curves.groups:
        by_role |= known.groups if group is None else Roles.of_groups(group)
    new = _new_columns(curves, quantiles)
    options = curves.item_options
    items = ITEMS[kind.kind](table, **Roles(by_role).arguments, **options)
    roles = posterior_roles(curves, items)
    users = list(dict.fromkeys([*roles.columns, *columns]))
    _refuse_columns(users, roles, new)
    # decimals, so that the cast to float64 is always written
    kinds = dict.fromkeys(users, "decimal")
    kinds |= dict.fromkeys(roles.groups.values(), "string")
    source = ibis.table(kinds, name="soc_table")
    _, node_columns = described(curves)
    nodes = small_table(source, **node_columns)
    if prior is not None:
        nodes = ibis.table(dict(nodes.schema()) | {"fit": "string"}, name="soc_prior")
    sheet = _sheet_of(curves, source, dialect)
    scored = _expression(curves, sheet, roles, quantiles, nodes)
    text = _text_of(scored, sheet, tables, dialect)
    if len(text) > _MOST_TEXT:
        remedy = 'load soc.export_prior(fit, "prior.parquet") as a table, and name it as prior='
        raise FitError(
            f"the SELECT would have {len(text):,} characters, over a million: {remedy}"
        )
    return text


# --- the expression ------------------------------------------------------------------------------


def _new_columns(curves: Curves, levels: Sequence[float]) -> list[str]:
    """Names of the new columns, if the fit has an accurate prior table."""
    meta, _ = described(curves)
    return [*prior_table.summary_names(levels, meta["zero"]), "flagged"]


def _refuse_columns(columns: Sequence[str], roles: Roles, names: Sequence[str]) -> None:
    """Refuse tables that lack a column or already have one of the new `names`."""
    chosen(columns, roles.columns)
    refuse_taken(names, [column.lower() for column in columns])
    if reserved := [name for name in columns if name.lower().startswith("soc_")]:
        raise ItemsError(f"columns named soc_... are reserved: rename {reserved[0]!r}")


class _Sheet:
    """Rows of items with `keys`, and functions `xp` of `prior_table` that add columns to them.

    Columns are deferred until rows are needed: those that do not read each other are computed
    together, and none is carried further than it is read. `definitions` are the named SELECTs
    that rows read; Polars has no names, and reads nested ones.
    """

    def __init__(
        self, rows: Any, keys: Sequence[str], engine: str, definitions: dict[str, Any]
    ) -> None:
        import ibis

        self._rows = rows
        self._pending = dict[str, Any]()
        self.keys = list(keys)
        self.engine = engine
        self.definitions = definitions
        self.low = ibis.least
        self.high = ibis.greatest
        self.where = ibis.ifelse
        self.exact = exact
        self.log = methodcaller("ln")
        self.sqrt = methodcaller("sqrt")
        self._columns = ibis._
        self._names = (f"v{k}" for k in numbered())

    def __getitem__(self, name: str) -> Any:
        return self._columns[f"soc_{name}"]

    @property
    def rows(self) -> Any:
        """The rows with all columns."""
        return self._computed(None)

    @rows.setter
    def rows(self, rows: Any) -> None:
        self._rows = rows
        self._pending = {}

    def _computed(self, names: Iterable[str] | None) -> Any:
        """The rows with the columns of these names alone, or with all of them."""
        rows = self._rows
        reads = {name: _reads(value) for name, value in self._pending.items()}
        # the layer of SELECTs that computes a column, and the last one that reads it
        layers = dict.fromkeys(rows.columns, 0)
        for name, columns in reads.items():
            layers[name] = 1 + max((layers[column] for column in columns), default=0)
        last = dict.fromkeys(names or layers, math.inf)
        for name in reversed(reads):
            for column in reads[name] if name in last else ():
                last[column] = max(last.get(column, 0), layers[name])
        for layer in range(1, max(layers.values()) + 1):
            kept = [name for name in rows.columns if last.get(name, 0) > layer]
            new = [name for name in last if layers[name] == layer]
            rows = rows.select(*kept, **{name: self._pending[name] for name in new})
            rows = self.apart(rows)
        self.rows = rows if names is None else rows.select(*names)
        return self._rows

    def apart(self, rows: Any) -> Any:
        """Rows that can be read several times: a definition."""
        import ibis
        from ibis.expr.operations import UnboundTable

        if self.engine == "polars" or isinstance(rows.op(), UnboundTable):
            return rows
        name = f"soc_{len(self.definitions)}"
        self.definitions[name] = rows.limit(_ALL) if self.engine == "postgres" else rows
        return ibis.table(rows.schema(), name=name)

    def add(self, **values: Any) -> None:
        """Add columns, computed once each."""
        new = {f"soc_{name}": value for name, value in values.items()}
        if new.keys().isdisjoint([*self._rows.columns, *self._pending]):
            self._pending |= new
        else:
            self.rows = self.apart(self.rows.mutate(**new))

    def joined(self, left: Any, right: Any, keys: Sequence[str]) -> Any:
        """Pairs of rows with equal keys.

        PostgreSQL compares all with all where it expects few, but not for an outer join. Where it
        expects many, it compiles the text, for longer than that runs: of a range it expects few.
        """
        if self.engine != "postgres":
            return left.inner_join(right, keys)
        (key,) = keys
        right = right.rename(soc_key=key)
        rows = self.apart(left.outer_join(right, left[key] == right.soc_key))
        return rows.filter(rows[key] >= 0, rows[key] <= _ALL, rows.soc_key.notnull())

    def on(self, rows: Any) -> "_Sheet":
        """Other rows of these items."""
        return _Sheet(rows, self.keys, self.engine, self.definitions)

    def grouped(self, *names: str, **aggregates: Any) -> Any:
        """Aggregates of the rows of each item, and of equal values of columns."""
        by = [*self.keys, *(f"soc_{name}" for name in names)]
        columns = {f"soc_{name}": value for name, value in aggregates.items()}
        read = set().union(*map(_reads, columns.values())) - {*by}
        rows = self._computed([*by, *read])
        return self.apart(rows.group_by(by).aggregate(**columns))

    def only(self, *names: str) -> Any:
        """The rows with the keys and these columns alone."""
        columns = [*self.keys, *(f"soc_{name}" for name in names)]
        return self._computed(dict.fromkeys(columns))

    def _named(self, value: Any) -> str:
        self.add(**{(name := next(self._names)): value})
        return name

    def keep(self, value: Any) -> Any:
        return self[self._named(value)]

    def exp(self, value: Any) -> Any:
        return self.high(value, _LEAST_EXPONENT).exp()

    def clip(self, value: Any, low: Any, high: Any) -> Any:
        return self.low(self.high(value, low), high)

    def scaled(self, b: Any, t: Any) -> Any:
        return self.clip(b.ln() + t, _LEAST_EXPONENT, _MOST_EXPONENT).exp()

    def interp(
        self, value: Any, places: Sequence[float], values: Sequence[float]
    ) -> Any:
        """Straight lines between known places, level beyond them."""
        cuts = np.array(places)
        reach = np.abs(places).max() + 1.0
        start = np.append(cuts[0] - reach, cuts)
        height = np.pad(values, 1, "edge")
        slope = np.diff(height) / np.diff(start, append=cuts[-1] + reach)
        start, height, slope = self.take(
            self.bin(cuts, value), start, height[:-1], slope
        )
        return height + (value - start) * slope

    def total(self, *values: Any) -> list[Any]:
        return self._shared([value.sum() for value in values])

    def most(self, value: Any) -> Any:
        return self._shared([value.max()])[0]

    def _shared(self, aggregates: Sequence[Any]) -> list[Any]:
        """Aggregates of the rows of each item, as columns of these rows.

        A window reads the rows once, where engines compute them twice for a join.
        """
        named = {next(self._names): value for value in aggregates}
        if self.engine in _JOINING:
            rows = self.apart(self.rows)
            self.rows = rows.inner_join(self.on(rows).grouped(**named), self.keys)
        else:
            keys = [self._columns[key] for key in self.keys]
            if self.engine == "datafusion":
                # DataFusion tries all orders of windows and of the columns that partition them
                keys = [key + 0.0 for key in keys]
            self.add(**{k: value.over(group_by=keys) for k, value in named.items()})
        return [self[name] for name in named]

    def bin(self, cuts: NDArray[Any], value: Any) -> Any:
        name = self._named(value)
        self.rows = with_bins(self.rows, cuts, f"soc_{name}_", f"soc_{name}")
        return self[f"{name}_bin"]

    def take(self, index: Any, *arrays: NDArray[Any]) -> list[Any]:
        name = self._named(index.cast("int64"))
        columns = {next(self._names): values for values in arrays}
        places = {f"soc_{name}": np.arange(len(arrays[0]))}
        places |= {f"soc_{column}": values for column, values in columns.items()}
        table = small_table(self.rows, **places)
        self.rows = self.rows.inner_join(table, f"soc_{name}")
        return [self[column] for column in columns]


def _reads(value: Any) -> set[str]:
    """Names of the columns that a deferred value reads."""
    from ibis.common.deferred import Deferred

    return set(_READ.findall(repr(value))) if isinstance(value, Deferred) else set()


def _sheet_of(curves: Curves, table: Any, engine: str) -> _Sheet:
    """The user's table, whose items have score, outcome, size and group as keys."""
    keys = ["soc_t", "soc_y", "soc_n"]
    if curves.groups:
        keys.append("soc_code")
    return _Sheet(table, keys, engine, {})


def _expression(
    curves: Curves, sheet: _Sheet, roles: Roles, levels: Sequence[float], nodes: Any
) -> Any:
    """The user's columns and the new ones, given a table of the prior's `nodes`."""
    import ibis

    table = sheet.rows
    keys = sheet.keys
    rows = sheet.apart(_with_keys(sheet, curves, roles))
    items = sheet.on(rows.select(*dict.fromkeys([*sheet.keys, *keys])).distinct())
    nodes = _with_averages(items, curves, nodes)
    if len(levels):
        _add_quantiles(items, nodes, curves, levels)
    averages = items["mean"], items["variance"], items["p_zero"]
    mean, variance = prior_table.with_zeros(*averages)
    items.add(theta_mean=mean, theta_var=variance, theta_sd=variance.sqrt())
    *names, _ = _new_columns(curves, levels)
    scored = items.only(*names, "flagged")
    # bad items have harmless keys; no item is left if the prior's table belongs to another fit
    joined = sheet.joined(rows, scored, sheet.keys)
    null = ibis.null("float64")
    good = joined.soc_good
    new = {name: good.ifelse(joined[f"soc_{name}"], null) for name in names}
    new["flagged"] = good.ifelse(joined.soc_flagged > 0, ibis.null("boolean"))
    return joined.select(*table.columns, **new)


def _with_keys(sheet: _Sheet, curves: Curves, roles: Roles) -> Any:
    """Score, outcome and size as floats, harmless ones if any is bad; the group's code."""
    import ibis

    # engines order NaN above all numbers or not at all: both fail one of two bounds
    outcome = curves.outcome
    meta = described(curves)[0]
    axis = meta["axis"]
    rule = outcome.complete.validity
    table = sheet.rows
    numbers = roles.only("score", outcome.observed, outcome.size)
    values = [*map(sheet.keep, read_columns(table, numbers).values())]
    t, y, n = values
    good = (t > axis["low"]) & (t < axis["high"])
    # an atom needs no position
    for atom in meta["atoms"]:
        good |= t == exact(atom)
    bounds = rule.score, rule.outcome, rule.size
    for value, bound in zip(values, bounds, strict=True):
        good &= value >= (-bound.largest if bound.least is None else bound.least)
        good &= value <= bound.largest
    if rule.conflict is not None:
        good &= ~rule.conflict(y, n)
    if curves.groups:
        labels = [table[column].cast("string") for column in roles.groups.values()]
        sheet.add(label=reduce(lambda left, right: left + CROSS + right, labels))
        known = np.array(curves.groups, dtype=object)
        codes = small_table(table, soc_known=known, soc_code=np.arange(len(known)))
        sheet.rows = sheet.rows.left_join(codes, sheet["label"] == codes.soc_known)
        sheet.add(good=good & sheet["code"].notnull(), code=sheet["code"].fill_null(0))
        good = sheet["good"]
    sheet.add(good=good.fill_null(False))
    defaults = zip(("t", "y", "n"), values, (MIDDLE, 0.0, 1.0), strict=True)
    # adding 0 makes one key of 0 and -0
    sheet.add(**{key: ibis.ifelse(sheet["good"], v, x) + 0.0 for key, v, x in defaults})
    keys = zip(("t", "y", "n"), bounds, strict=True)
    whole = [sheet[key] == sheet[key].floor() for key, bound in keys if bound.whole]
    sheet.add(good=reduce(and_, whole, sheet["good"]))
    rows = sheet.rows
    if sheet.engine != "postgres":
        return rows
    # it compares one number faster than several keys
    number = ibis.dense_rank().over(order_by=sheet.keys)
    sheet.keys = ["soc_item"]
    return rows.mutate(soc_item=number)


def _with_averages(xp: _Sheet, curves: Curves, nodes: Any) -> Any:
    """Join items to their nodes given the outcomes; leave averages of items, and return nodes."""
    meta, columns = described(curves)
    family = prior_table.formulas_of(meta)
    cell, x, w = prior_table.places(meta, xp["t"], xp["n"], xp["n"], xp)
    if curves.groups:
        cell = cell + xp["code"] * (meta["cells"] // len(curves.groups))
    # engines fail on powers of smaller numbers
    xp.add(cell=cell.cast("int64"), x=xp.where(xp.high(x, -x) < 1e-30, 0.0, x), w=w)
    if "fit" in nodes.columns:
        nodes = nodes.filter(nodes.fit == meta["fit"])
    kinds = {name: "int64" if name == "cell" else "float64" for name in columns}
    nodes = nodes.select(
        **{f"soc_{name}": nodes[name].cast(kind) for name, kind in kinds.items()}
    )
    xp.rows = xp.joined(xp.only("cell", "x", "w", "y", "n"), nodes, ["soc_cell"])
    node = {name: xp[name] for name in columns}
    node["is_zero"] = xp["node"] == int(columns["node"].max())
    place = prior_table.Place(*(xp[name] for name in ("x", "w", "y", "n")))
    theta = prior_table.nodes_given(meta, node, place, xp)
    mean, within, between = theta.averages
    # PostgreSQL fails where a product underflows
    size = xp.high(theta.weight, -theta.weight)
    weight = xp.where(size < prior_table.FAINT, 0.0, theta.weight)
    xp.add(weight=weight, a=theta.a, b=theta.b)
    xp.add(scale=family.scale(xp["a"], xp["b"], xp))
    items = {
        "mean": mean,
        "variance": within + between,
        "flagged": theta.flagged.ifelse(1.0, 0.0),
        "p_zero": theta.zero if meta["zero"] else xp.exact(0.0),
        "below": xp.exact(0.0),
    }
    if meta["zero"] and not family.positive:
        below, *_ = family.law((xp["a"], xp["b"], xp["scale"]), 0.0, xp)
        (items["below"],) = xp.total(xp["weight"] * below)
    xp.add(**items)
    rows = xp.apart(xp.only("node", "weight", "a", "b", "scale", *items))
    xp.rows = xp.grouped(**{name: xp[name].max() for name in items})
    # every item keeps a node
    counted = rows.filter((rows.soc_weight != 0.0) | (rows.soc_node == 0))
    return xp.on(counted).only("weight", "a", "b", "scale")


def _add_quantiles(
    xp: _Sheet, nodes: Any, curves: Curves, levels: Sequence[float]
) -> None:
    """Add quantiles to items, by steps of Halley's method on the distribution of their nodes."""
    import ibis

    meta = described(curves)[0]
    family = prior_table.formulas_of(meta)
    numbers = np.arange(len(levels))
    choices = small_table(xp.rows, soc_number=numbers, soc_level=np.array(levels))
    xp.rows = xp.rows.cross_join(choices)
    shares = xp["level"], xp["p_zero"], xp["below"]
    goal, q, unit, at_zero = prior_table.start(
        family, xp["mean"], xp["variance"], shares, xp
    )
    xp.add(goal=goal, q=q, unit=unit, at_zero=at_zero.ifelse(1.0, 0.0))
    averages = ["mean", "variance", "p_zero"]
    state = [*averages, "flagged", "at_zero", "goal", "unit", "q"]
    for _ in range(_STEPS):
        pairs = xp.on(xp.joined(nodes, xp.only(*state, "number"), xp.keys))
        members = [pairs[name] for name in ("a", "b", "scale")]
        law = family.law(members, pairs["q"], pairs)
        sums = [pairs.keep(pairs["weight"] * part).sum() for part in law]
        parts = dict(zip(("p", "density", "slope"), sums, strict=True))
        same = {name: pairs[name].max() for name in state}
        xp.rows = pairs.grouped("number", **parts, **same)
        gap, step = prior_table.halley(
            xp["goal"], [xp[name] for name in parts], xp["unit"], xp
        )
        xp.add(gap=gap, q=xp.clip(xp["q"] + step, -family.end, family.end))
    is_zero = xp["at_zero"] > 0
    close = is_zero | (xp.high(xp["gap"], -xp["gap"]) < prior_table.CLOSE)
    theta = xp.where(close, family.theta(xp["q"], xp), ibis.null("float64"))
    theta = xp.where(is_zero, 0.0, theta)
    flagged = xp.where(close, xp["flagged"], 1.0)
    xp.add(theta=theta, flagged=flagged)
    columns = {name: xp[name].max() for name in (*averages, "flagged")}
    for k, level in enumerate(levels):
        name = prior_table.quantile_name(level)
        columns[name] = xp["theta"].max(where=xp["number"] == k)
    xp.rows = xp.grouped(**columns)


# --- the text ------------------------------------------------------------------------------------


def _check_names(tables: Mapping[str, Any]) -> None:
    """Refuse what is not the name of a table, by argument."""
    for argument, name in tables.items():
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            rule = "parts of letters, digits and underscores, or in double quotes, joined by dots"
            raise ItemsError(
                f"{argument}={shown(name)} must be the name of a table: {rule}"
            )


def _text_of(
    scored: Any, sheet: _Sheet, tables: Mapping[str, str], dialect: str
) -> str:
    """An expression over soc_table and soc_prior as a SELECT over `tables` of other names."""
    from ibis.backends.sql import compilers
    from ibis.common.exceptions import IbisError
    from ibis.expr.operations import InMemoryTable
    from sqlglot import ErrorLevel
    from sqlglot.errors import SqlglotError

    compiled, written = _DIALECTS.get(dialect, (dialect, dialect))
    if not (compiler := getattr(getattr(compilers, compiled, None), "compiler", None)):
        close = difflib.get_close_matches(dialect.strip().lower(), _TESTED, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"use {', '.join(_TESTED)}"
        raise ItemsError(
            f"dialect={shown(dialect)} is not one of those that Ibis writes: {remedy}"
        )
    queries = {**sheet.definitions, "": scored}
    small = {
        table.name: table.data.to_pyarrow(table.schema)
        for query in queries.values()
        for table in query.op().find(InMemoryTable)
    }
    names = {name: f"soc_table_{k}" for k, name in enumerate(small)}
    values = {names[name]: _values(table, dialect) for name, table in small.items()}
    names |= {f"soc_{argument}": name for argument, name in tables.items()}
    names |= {name: name for name in sheet.definitions}
    sources = {name: _named(table) for name, table in names.items()}
    try:
        selects = {name: compiler.to_sqlglot(query) for name, query in queries.items()}
        _connect(selects, sources, written)
        *definitions, (_, tree) = (values | selects).items()
        for name, query in definitions:
            # PostgreSQL then plans these separately, in less time
            is_planned_apart = name in values or bool(query.args.get("group"))
            materialized = (is_planned_apart and written == "postgres") or None
            tree.with_(name, query, materialized=materialized, copy=False)
        options = {"unsupported_level": ErrorLevel.RAISE, "copy": False}
        return str(tree.sql(dialect=written, **options))
    except (IbisError, SqlglotError, NotImplementedError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ItemsError(
            f"posteriors cannot be written in dialect {dialect!r}: {reason}"
        ) from error


def _connect(selects: dict[str, Any], sources: Mapping[str, Any], dialect: str) -> None:
    """Replace names of tables in SELECTs, and for Spark tables that are read once by SELECTs.

    Spark takes long to plan definitions, and numbers that it reads as decimals.
    """
    from sqlglot import exp

    reads = {name: [*query.find_all(exp.Table)] for name, query in selects.items()}
    times = Counter(table.name for tables in reads.values() for table in tables)
    for table in chain.from_iterable(reads.values()):
        source = sources[table.name].copy()
        if dialect in _NESTING and table.name in selects and times[table.name] == 1:
            source = exp.Subquery(this=selects.pop(table.name))
        source.set("alias", table.args.get("alias"))
        table.replace(source)
    for query in selects.values() if dialect in _NESTING else ():
        for literal in query.find_all(exp.Literal):
            if not literal.is_string and "." in literal.name:
                # one literal may be in several places
                literal.set("this", literal.name.rstrip("D") + "D")


def _named(name: str) -> Any:
    """A table's name, whose quotes are written as the dialect has them."""
    from sqlglot import exp

    names = [
        exp.to_identifier(part.strip('"').replace('""', '"'), quoted=part[0] == '"')
        for part in re.findall(_PART, name)
    ]
    levels = "this", "db", "catalog"
    return exp.Table(**dict(zip(levels, reversed(names), strict=False)))


def _values(table: Any, dialect: str) -> Any:
    """A SELECT of rows of numbers, as text that an engine reads exactly and fast."""
    from sqlglot import exp

    columns = {field.name: table[field.name].to_pylist() for field in table.schema}
    kinds = {field.name: _KINDS[str(field.type)] for field in table.schema}
    for name, (kind, _) in kinds.items():
        # nine digits tell all of them apart
        if kind == "FLOAT":
            columns[name] = [float(f"{v:.9g}") for v in columns[name]]
    names: list[Any] = [exp.to_identifier(column, quoted=True) for column in columns]
    # ClickHouse takes long to analyse many literals
    if dialect == "clickhouse":
        schema = ", ".join(f"{name} {kind}" for name, (_, kind) in kinds.items())
        lines = " ".join(map(json.dumps, zip(*columns.values(), strict=True)))
        arguments = map(exp.Literal.string, (schema, lines))
        call = exp.func("format", exp.var("JSONCompactEachRow"), *arguments)
        return exp.select("*").from_(call)
    if dialect in _LISTS and ("TEXT", "String") not in kinds.values():
        lists = []
        for name in names:
            text = exp.Literal.string(",".join(map(str, columns[name.name])))
            split = exp.func("string_to_array", text, exp.Literal.string(","))
            numbers = exp.cast(split, f"{kinds[name.name][0]}[]")
            unnested = exp.Anonymous(this="UNNEST", expressions=[numbers])
            lists.append(unnested.as_(name, copy=False))
        return exp.select(*lists, copy=False)
    texts = [[str(value) for value in values] for values in columns.values()]
    typed = [
        exp.cast(exp.column(name.copy()), kinds[name.name][0]).as_(name.copy())
        for name in names
    ]
    rows = exp.values(list(zip(*texts, strict=True)), alias="soc_values", columns=names)
    return exp.select(*typed).from_(rows)
