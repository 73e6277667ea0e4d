"""Item posteriors in SQL: the prior table of `export_prior`, joined by the number of a cell.

The formulas are those of `prior_table`, on columns of an engine. Arithmetic and a small table find
the cell of distinct items; they are joined to its nodes, and sums over the nodes give their
posteriors, pass by pass.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arguments import A, names_of, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError
from ..data.groups import CROSS, arguments_of, group_roles, roles_of, roles_of_groups
from ..data.items import ANY_ITEMS, ITEMS, Items
from ..data.tables import kind_of
from ..data.tables.expressions import exact, lookup_rows, with_bins
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.scales import LINEAR, MIDDLE, RANK, SCALES, Scale
from ..families.validity import LARGEST, Bounds
from ..inference.results import FIT, Fit
from . import prior_table
from .item_columns import posterior_roles
from .items import quantile_name
from .predictive import posterior_of
from .prior_export import checked_table

_ITEMS, _PRIOR, _PLACES, _BINS = "soc_items", "soc_prior", "soc_places", "soc_bins"
_GROUPS, _LEVELS = "soc_groups", "soc_levels"
# engines that inline every use of a column, unless there is a LIMIT
_FENCED = ("postgres",)
_ALL = 2**62
# dialects by their names in Ibis and SQLGlot: Ibis compiles Spark's only for a session
_DIALECTS = {"pyspark": ("databricks", "spark"), "spark": ("databricks", "spark")}
_MOST_TEXT = 1_000_000  # characters of a SELECT
_FAINT, _LEAST_LOG = 1e-30, -300.0  # places and log shares that count as 0: engines fail on 1e-310
_STEPS, _MIXTURE_STEPS = 2, 3  # of Newton's method for quantiles
_LOGISTIC = 1.702  # a normal quantile is nearly the logit over it

_Tables = Mapping[str, Mapping[str, NDArray[Any]]]


def posterior_expression(
    fit: Fit, items: Items, *, quantiles: Sequence[float] = (0.05, 0.95)
) -> Any:
    """Posterior of every item as an Ibis expression, which is not executed.

    Parameters
    ----------
    fit
        The fit, of any prior that `export_prior` can write.
    items
        Items over an Ibis table, on any backend.
    quantiles
        Two levels, from 0.005 to 0.995.

    Returns
    -------
    ibis.Table
        On the same backend: the user's columns and ``theta_mean``, ``theta_sd``, ``theta_var``, in
        the unit of theta, over the curves' uncertainty, quantiles such as ``theta_q05``, and
        ``p_zero`` if theta may be 0. They are NULL
        for items that `item_posteriors` would refuse: a score, outcome or size is missing, not
        finite or negative (a score only if the axis is log), a count not whole, or positive with
        exposure 0, successes more than trials; a group is not one of the fit's. The order of rows
        is not defined. Nothing is read, so there is no warning of scores far outside the fit's.

    Raises
    ------
    ItemsError
        If the items are not over an Ibis table, or a column is missing, has one of the new names or
        starts with ``soc_``.
    FitError
        If the fit's prior cannot be exported, as `export_prior` says.

    Notes
    -----
    Errors are those of the prior table: docs/dev/prior-table.md.

    Examples
    --------
    >>> import ibis, soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> table = ibis.memtable(frame)
    >>> items = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
    >>> scored = soc.posterior_expression(fit, items)
    >>> scored.filter(scored.theta_mean > 0).count().execute()
    2000
    """
    FIT(fit, "fit")
    A(Items, f"{ANY_ITEMS} of an Ibis table")(items, "items", ItemsError)
    if kind_of(items.source) != "ibis":
        raise ItemsError(
            "an expression needs items over an Ibis table: use soc.item_posteriors, or pass "
            'ibis.duckdb.connect().read_parquet("items.parquet")'
        )
    roles = posterior_roles(fit, posterior_of(fit), items)
    prior = _prior_of(fit, quantiles)
    _check_columns(items.source.columns, roles, prior)
    lookups = {name: _memtable(columns) for name, columns in prior.tables.items()}
    return _expression(items.source, roles, prior, lookups, _backend(items.source))


def posterior_sql(
    fit: Fit,
    table: str,
    *,
    score: str | None = None,
    count: str | None = None,
    exposure: str | None = None,
    value: str | None = None,
    noise_sd: str | None = None,
    successes: str | None = None,
    trials: str | None = None,
    group: str | Sequence[str] | None = None,
    columns: Sequence[str] = (),
    quantiles: Sequence[float] = (0.05, 0.95),
    prior: str | None = None,
    dialect: str = "duckdb",
) -> str:
    """Posterior of every item as the text of one SELECT.

    Parameters
    ----------
    fit
        The fit, of any prior that `export_prior` can write.
    table
        Name of the table of items, as the dialect writes it (``'sales."Ads 2024"'``).
    score, count, exposure, value, noise_sd, successes, trials, group
        Names of the columns, of those that the fit's kind of items has; None takes those of the
        fit's items.
    columns
        Other columns to keep, such as the items' key.
    quantiles
        Two levels, from 0.005 to 0.995.
    prior
        Name of a table that holds the file of ``soc.export_prior(fit, "prior.parquet")`` of this
        fit, loaded as it is. None writes its numbers into the text.
    dialect
        ``"duckdb"``, ``"postgres"``, ``"pyspark"``, ``"databricks"``, ``"bigquery"``,
        ``"snowflake"``, ``"trino"`` or another one that Ibis supports.

    Returns
    -------
    str
        A SELECT of the items' columns, `columns` and the new columns of `posterior_expression`, of
        at most a million characters.

    Raises
    ------
    ItemsError
        If a name is taken, a column is not one of the fit's kind of items, `group` is given for a
        fit without groups, or the table's name or the dialect is unknown.
    FitError
        If the fit's prior cannot be exported, as `export_prior` says, or the text would be longer.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
    >>> sql = soc.posterior_sql(fit, "sales.ads", columns=["ad_id"], dialect="trino")
    >>> '"ad_id"' in sql and "FROM sales.ads" in sql
    True
    """
    columns = names_of(columns, "columns", ItemsError)
    FIT(fit, "fit")
    for name, text in (("table", table), ("dialect", dialect), ("prior", prior)):
        left_out = name == "prior" and text is None
        if not left_out and not (isinstance(text, str) and text.strip()):
            raise ItemsError(f"{name}={shown(text)} must be a name, as str")
    outcome = family_of(fit.prior).outcome
    given = {"score": score, "count": count, "exposure": exposure, "value": value}
    given |= {"noise_sd": noise_sd, "successes": successes, "trials": trials}
    own = ("score", outcome.observed, outcome.size)
    other = [role for role, name in given.items() if name is not None and role not in own]
    if other:
        raise ItemsError(
            f"{other[0]}= is not a column of the fit's items, which have {outcome.observed}= and "
            f"{outcome.size}="
        )
    if group is not None and not fit.groups:
        raise ItemsError("group= is of fits with curves for each group: this one has none")
    known = roles_of(fit.data.attrs)
    named: dict[str, Any] = {r: known.get(r, r) if given[r] is None else given[r] for r in own}
    if fit.groups:
        named |= group_roles(known) if group is None else roles_of_groups(group)
    items = ITEMS[outcome.kind](table, **arguments_of(named))
    roles = posterior_roles(fit, posterior_of(fit), items)
    return _scoring_sql(table, roles, columns, _prior_of(fit, quantiles), prior, dialect)


# --- the prior and its small tables --------------------------------------------------------------


@dataclass(frozen=True)
class _Prior:
    """A prior table, and what an expression needs to use it."""

    meta: Mapping[str, Any]
    family: Any  # of `prior_table`
    outcome: Outcome
    scale: Scale  # on which places are straight lines
    uneven: Floats  # scores where an item's place follows another line; none if cells are even
    quantiles: tuple[str, ...]  # their columns
    tables: _Tables

    @property
    def names(self) -> tuple[str, ...]:
        """New columns."""
        zero = ("p_zero",) * self.meta["zero"]
        return ("theta_mean", "theta_sd", "theta_var", *self.quantiles, *zero)

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Columns of the nodes."""
        return self.tables[_PRIOR]

    @property
    def last(self) -> int:
        """Number of the last node of the fullest cell, that of theta = 0 if there is one."""
        return int(self.columns["node"].max())

    @property
    def ways(self) -> range:
        """Numbers of the ways in which weights vary."""
        return range(sum(name.startswith("way_") for name in self.columns))


def _prior_of(fit: Fit, quantiles: Sequence[float]) -> _Prior:
    """The fit's prior table, if it is accurate enough."""
    meta, columns = checked_table(fit, quantiles)
    axis, edges = fit.axis("mean"), np.array(meta["edges"])
    inner = axis.inverse(edges[1:-1])
    if axis.scale == RANK:  # ranks are known at these scores, and straight between them
        inner = np.union1d(inner, axis.score)
    elif np.allclose(np.diff(edges), edges[1] - edges[0], rtol=1e-9, atol=0.0):
        inner = np.empty(0)
    tables = {
        _PRIOR: columns,
        _BINS: lookup_rows(inner, "soc_") if len(inner) else {},
        _PLACES: _places(meta, inner) if len(inner) else {},
        _GROUPS: {
            "soc_label": np.array(meta["groups"], dtype=object),
            "soc_code": np.arange(len(meta["groups"])),
        },
        _LEVELS: {"soc_number": np.arange(2), "soc_level": np.array(meta["levels"])},
    }
    return _Prior(
        meta,
        prior_table._FAMILIES[meta["family"]],
        family_of(fit.prior).outcome,
        SCALES.get(axis.scale, LINEAR),
        inner,
        tuple(map(quantile_name, meta["levels"])),
        {name: own for name, own in tables.items() if len(next(iter(own.values()), ()))},
    )


def _places(meta: Mapping[str, Any], inner: Floats) -> dict[str, NDArray[Any]]:
    """By bin of the inner edges: the cell, and the line that gives the place from 0 to 1 in it."""
    edges, axis = np.array(meta["edges"]), meta["axis"]
    if axis["scale"] == RANK:
        start, end = np.append(inner[0] - 1.0, inner), np.append(inner, inner[-1] + 1.0)
        low, high = (np.interp(t, axis["score"], axis["rank"]) for t in (start, end))
        cell = np.searchsorted(edges, 0.5 * (low + high), side="right") - 1
        cell, slope = cell.clip(0, len(edges) - 2), (high - low) / (end - start)
    else:
        cell = np.arange(len(edges) - 1)
        start, low, slope = edges[:-1], edges[:-1], np.ones(len(cell))
    width = np.diff(edges)[cell]
    return {
        "soc_bin": np.arange(len(cell)),
        "soc_column": cell,
        "soc_from": start,
        "soc_start": (low - edges[cell]) / width,
        "soc_slope": slope / width,
    }


def _check_columns(columns: Sequence[str], roles: Mapping[str, str], prior: _Prior) -> None:
    """Refuse tables that lack a column or already have one of the new ones."""
    absent = [name for name in roles.values() if name not in columns]
    if absent:
        raise ItemsError(f"the table has no column {', '.join(map(repr, absent))}")
    taken = {column.lower() for column in columns}
    clash = [name for name in prior.names if name in taken]
    if clash:
        raise ItemsError(
            f"the table already has the columns {', '.join(map(repr, clash))}: rename or drop them"
        )
    own = [name for name in columns if name.lower().startswith("soc_")]
    if own:
        raise ItemsError(f"columns named soc_... serve the computation: rename {own[0]!r}")


def _backend(table: Any) -> str:
    import ibis

    try:
        return str(table.get_backend().name)
    except ibis.common.exceptions.IbisError:
        return ""


def _memtable(columns: Mapping[str, NDArray[Any]]) -> Any:
    import ibis
    import pyarrow as pa

    return ibis.memtable(pa.table(dict(columns)))


# --- SQL text ------------------------------------------------------------------------------------


def _scoring_sql(
    table: str,
    roles: Mapping[str, str],
    columns: Sequence[str],
    prior: _Prior,
    named: str | None,
    dialect: str,
) -> str:
    """A SELECT that scores a named table, with the small tables in it, or the prior's by name."""
    import ibis
    import sqlglot

    users = list(dict.fromkeys([*roles.values(), *columns]))
    _check_columns(users, roles, prior)
    # decimals, so that the cast to float64 is always written
    kinds = dict.fromkeys(users, "decimal") | dict.fromkeys(group_roles(roles).values(), "string")
    lookups = {name: _unbound(name, own) for name, own in prior.tables.items()}
    compiled, written = _DIALECTS.get(dialect, (dialect, dialect))
    whole = _expression(ibis.table(kinds, name=_ITEMS), roles, prior, lookups, dialect)
    try:
        tree: Any = sqlglot.parse_one(str(ibis.to_sql(whole, dialect=compiled)), read=compiled)
        sources = {_ITEMS: sqlglot.exp.to_table(table, dialect=written)}
        if named is not None:
            sources[_PRIOR] = sqlglot.exp.to_table(named, dialect=written)
    except (ValueError, sqlglot.errors.SqlglotError) as error:  # two classes of SQLGlot's errors
        raise ItemsError(f"table {table!r} in dialect {dialect!r}: {error}") from error
    for found in list(tree.find_all(sqlglot.exp.Table)):
        if found.name in sources:
            source = sources[found.name].copy()
            source.set("alias", found.args.get("alias"))
            found.replace(source)
    for name, values in prior.tables.items():
        if name not in sources:
            tree.with_(name, as_=_values(values), copy=False)
    first: Any = tree.find(sqlglot.exp.With)  # others use the small tables
    ctes = sorted(first.expressions, key=lambda own: own.alias not in prior.tables)
    first.set("expressions", ctes)
    text = str(tree.sql(dialect=written, copy=False))
    if len(text) > _MOST_TEXT:
        raise FitError(
            f"the SELECT would have {len(text):,} characters, more than a million: load the file "
            'of soc.export_prior(fit, "prior.parquet") as a table, and give its name as prior='
        )
    return text


def _unbound(name: str, columns: Mapping[str, NDArray[Any]]) -> Any:
    import ibis

    kinds = {"O": "string", "i": "int64", "f": "float64"}
    return ibis.table({c: kinds[values.dtype.kind] for c, values in columns.items()}, name=name)


def _values(columns: Mapping[str, NDArray[Any]]) -> Any:
    """A SELECT of rows of numbers as text, the only form that all engines read exactly."""
    from sqlglot import exp

    rows = zip(*(map(_text, values) for values in columns.values()), strict=True)
    names: Any = [exp.to_identifier(name, quoted=True) for name in columns]
    values = exp.values(list(rows), alias="soc_values", columns=names)
    kinds = {"O": "TEXT", "i": "BIGINT", "f": "DOUBLE"}
    typed = [
        exp.cast(exp.column(name.copy()), kinds[own.dtype.kind]).as_(name.copy())
        for name, own in zip(names, columns.values(), strict=True)
    ]
    return exp.select(*typed).from_(values)


def _text(value: Any) -> str:
    if isinstance(value, np.floating):  # all digits of a float32
        return f"{value:.14g}" if value.dtype.itemsize == 8 else f"{value:.9g}"
    return str(value)


# --- the expression ------------------------------------------------------------------------------


class _Sheet:
    """Rows of an engine, to which columns are added one after the other.

    `functions` serves the formulas of `prior_table`.
    """

    def __init__(self, rows: Any, fenced: bool) -> None:
        import ibis

        self.rows, self._fenced, self._number = rows, fenced, 0
        self.functions = SimpleNamespace(
            log=lambda v: v.ln(), exp=lambda v: v.exp(), sqrt=lambda v: v.sqrt(), low=ibis.least,
            high=ibis.greatest, where=ibis.ifelse, never=-1e300, keep=self.keep)  # fmt: skip

    def __getitem__(self, name: str) -> Any:
        return self.rows[f"soc_{name}"]

    def add(self, *kept: str, **values: Any) -> "_Sheet":
        """Columns soc_..., computed once each; with `kept` all others are left behind."""
        new = {f"soc_{name}": value for name, value in values.items()}
        made = self.rows.select(*kept, **new) if kept else self.rows.mutate(**new)
        self.rows = made.limit(_ALL) if self._fenced else made
        return self

    def keep(self, value: Any) -> Any:
        """A value as a column, for expressions that use it often."""
        self._number += 1
        return self.add(**{f"v{self._number}": value})[f"v{self._number}"]

    def only(self, *names: str) -> Any:
        """The rows with these columns soc_..."""
        return self.rows.select([f"soc_{name}" for name in names])


@dataclass(frozen=True)
class _Scorer:
    """How distinct items are scored on an engine."""

    prior: _Prior
    lookups: Mapping[str, Any]  # Ibis tables by name
    keys: Sequence[str]  # columns that tell items apart
    fenced: bool  # whether layers must be kept from being inlined

    def sheet(self, rows: Any) -> _Sheet:
        return _Sheet(rows, self.fenced)

    def joined(self, nodes: Any, items: Any) -> _Sheet:
        """Nodes with columns of their items."""
        return self.sheet(nodes.inner_join(items, list(self.keys)))

    def summed(self, nodes: _Sheet, *kept: str, **sums: Any) -> _Sheet:
        """Items, with sums over their nodes."""
        named = {f"soc_{name}": value for name, value in sums.items()}
        return self.sheet(nodes.rows.group_by([*self.keys, *kept]).aggregate(**named))


def _expression(
    table: Any, roles: Mapping[str, str], prior: _Prior, lookups: Mapping[str, Any], engine: str
) -> Any:
    """The user's columns and the new ones."""
    import ibis

    keys = [f"soc_{key}" for key in ("t", "y", "n", *(["code"] if prior.meta["groups"] else []))]
    scorer = _Scorer(prior, lookups, keys, engine in _FENCED)
    rows = _inputs(table, roles, scorer)
    nodes = _nodes(_with_cells(rows.rows.select(keys).distinct(), scorer), scorer)
    joined = rows.rows.left_join(_with_quantiles(nodes, scorer), keys)
    null = ibis.null("float64")
    new = {name: joined.soc_good.ifelse(joined[f"soc_{name}"], null) for name in prior.names}
    return joined.select(*table.columns, **new)


def _inputs(table: Any, roles: Mapping[str, str], scorer: _Scorer) -> _Sheet:
    """Score, outcome and size as floats, replaced by harmless ones if any is bad; the group's code.

    Comparisons detect NaN and infinities: engines order NaN above all numbers or not at all, and
    both fail one of two bounds.
    """
    prior, scale = scorer.prior, scorer.prior.scale
    names = ("score", prior.outcome.observed, prior.outcome.size)
    t, y, n = (table[roles[role]].cast("float64") for role in names)
    rule = prior.outcome.validity
    low = t > scale.low if scale.low > -LARGEST else t >= -LARGEST
    high = t < scale.high if scale.high < LARGEST else t <= LARGEST
    good = low & high & _within(y, rule.outcome) & _within(n, rule.size)
    if rule.conflict is not None:
        good &= ~rule.conflict(y, n)
    rows = table
    if prior.meta["groups"]:
        labels = [table[column].cast("string") for column in group_roles(roles).values()]
        codes = scorer.lookups[_GROUPS]
        label = reduce(lambda left, right: left + CROSS + right, labels)
        rows = table.left_join(codes, label == codes.soc_label)
        good &= rows.soc_code.notnull()
    sheet = scorer.sheet(rows).add(good=good.fill_null(False))
    good = sheet["good"]
    for value, bounds in ((y, rule.outcome), (n, rule.size)):
        good &= bounds.is_whole(sheet["good"].ifelse(value, 0.0))  # floors of NaN differ by engine
    good = sheet.add(good=good)["good"]
    # adding 0 makes one key of 0 and -0
    sheet.add(t=good.ifelse(t, MIDDLE) + 0.0, y=good.ifelse(y, 0.0) + 0.0, n=good.ifelse(n, 1.0))
    return sheet.add(code=sheet["code"].fill_null(0)) if prior.meta["groups"] else sheet


def _within(value: Any, bounds: Bounds) -> Any:
    least = -bounds.largest if bounds.least is None else bounds.least
    return (value >= least) & (value <= bounds.largest)


def _with_cells(items: Any, scorer: _Scorer) -> Any:
    """The number of an item's cell, and its places x and w along score and size there."""
    import ibis

    prior, meta = scorer.prior, scorer.prior.meta
    cells, sizes = len(meta["edges"]) - 1, np.array(meta["sizes"])
    if len(prior.uneven):
        items_in_bins = with_bins(
            items, prior.uneven, "soc_", scorer.lookups.get(_BINS), score="soc_t"
        )
        sheet = scorer.sheet(items_in_bins.inner_join(scorer.lookups[_PLACES], "soc_bin"))
        x = sheet["start"] + (prior.scale.column(sheet["t"]) - sheet["from"]) * sheet["slope"]
    else:
        sheet, start = scorer.sheet(items), meta["edges"][0]
        u = sheet.keep(
            (prior.scale.column(sheet["t"]) - start) * (1.0 / (meta["edges"][1] - start))
        )
        sheet.add(column=sheet.functions.low(sheet.functions.high(u.floor(), 0.0), cells - 1.0))
        x = u - sheet["column"]
    of, (low, high) = sheet.functions, meta["reach"]
    sheet.add(x=of.low(of.high(x, low), high))
    x, at = (sheet["x"].abs() < _FAINT).ifelse(0.0, sheet["x"]), sheet["column"].cast("int64")
    for k, atom in enumerate(meta["atoms"]):
        own = sheet["t"] == exact(atom)
        at, x = own.ifelse(ibis.literal(cells + k, type="int64"), at), own.ifelse(0.0, x)
    if meta["groups"]:
        at = at + sheet["code"] * (cells + len(meta["atoms"]))
    sheet.add(at=at, x=x)
    kept = [name.removeprefix("soc_") for name in items.columns] + ["at", "x"]
    if not len(sizes):
        return sheet.only(*kept)
    v = (of.log(of.high(sheet["n"], 1e-300)) - float(sizes[0])) * float(1 / (sizes[1] - sizes[0]))
    v = sheet.keep(of.low(of.high(v, 0.0), len(sizes) - 1.0))
    row = sheet.keep(of.low(v.floor(), len(sizes) - 2.0))
    sheet.add(w=v - row, at=sheet["at"] * (len(sizes) - 1) + row.cast("int64"))
    return sheet.only(*kept, "w")


def _nodes(items: Any, scorer: _Scorer) -> Any:
    """Nodes of items given their outcomes: weights u, up to a factor of an item, and a and b.

    The weight `zero` is that of theta = 0.
    """
    prior, long = scorer.prior, scorer.lookups[_PRIOR]
    family, keys = prior.family, scorer.keys
    typed = {f"soc_{c}": long[c].cast("float64") for c in prior.columns if c != "cell"}
    long = long.select(soc_cell=long.cell.cast("int64"), **typed)
    sheet = scorer.sheet(items.inner_join(long, items.soc_at == long.soc_cell))
    names = {"u": "weight", "first": "first", "second": "second"}
    ways = [f"soc_way_{k}" for k in prior.ways]
    kept = [*keys, "soc_node", *ways]
    sheet.add(
        *kept, **{new: _polynomial(sheet, old, prior.meta["terms"]) for new, old in names.items()}
    )
    a, b = family.parameters(sheet["first"], sheet["second"], sheet.functions)
    sheet.add(*kept, "soc_u", a=a, b=b)
    if prior.meta["mixture"]:
        sheet = _weighted(sheet, scorer)
    a, b = family.update(sheet["a"], sheet["b"], sheet["y"], sheet["n"])
    zero = ["soc_zero"] if prior.meta["zero"] else []
    return sheet.add(*keys, "soc_u", *zero, a=a, b=b).rows


def _polynomial(sheet: _Sheet, name: str, powers: Sequence[Sequence[int]]) -> Any:
    terms = []
    for i, j in powers:
        power = [sheet["x"]] * i + ([sheet["w"]] * j if j else [])
        terms.append(reduce(mul, power, sheet[f"{name}_{i}{j}"]))
    return _total(terms)


def _weighted(nodes: _Sheet, scorer: _Scorer) -> _Sheet:
    """Nodes with weights given the outcome, as in `prior_table`."""
    import ibis

    prior, of, ways = scorer.prior, nodes.functions, scorer.prior.ways
    y, n = nodes["y"], nodes["n"]
    log_p = prior.family.log_density(nodes["a"], nodes["b"], y, n, of)
    last = nodes["node"] == prior.last
    if prior.meta["zero"]:
        log_p = ibis.ifelse(last, prior.family.at_zero(y, n, of), log_p)
    nodes.add(log_p=log_p)
    tops = scorer.summed(nodes, top=nodes["log_p"].max()).rows
    nodes = scorer.joined(nodes.rows, tops)
    # an exponential of less is 0, which some engines refuse
    nodes.add(p=of.exp(of.high(nodes["log_p"] - nodes["top"], _LEAST_LOG)))
    moves = {f"move_{k}": (nodes["p"] * nodes[f"way_{k}"]).sum() for k in ways}
    items = scorer.summed(nodes, total=(nodes["u"] * nodes["p"]).sum(), **moves)
    items.add(**{f"move_{k}": items[f"move_{k}"] / items["total"] for k in ways})
    items.add(more=1.0 + _total(items[f"move_{k}"] * items[f"move_{k}"] for k in ways))
    nodes = scorer.joined(nodes.rows, items.rows)
    near = _total(nodes[f"way_{k}"] * nodes[f"move_{k}"] for k in ways)
    near = of.high(1.0 + near / of.high(nodes["u"], 1e-100), 0.1)
    u = nodes.add(u=nodes["u"] * nodes["p"] * nodes["more"] / near)["u"]
    if prior.meta["zero"]:
        last = nodes["node"] == prior.last
        nodes.add(zero=last.ifelse(u, 0.0), u=last.ifelse(0.0, u))
    return nodes


def _with_moments(nodes: Any, scorer: _Scorer) -> Any:
    """Mean and variance over the nodes given the outcome, where theta is not 0; p_zero."""
    family, zero = scorer.prior.family, scorer.prior.meta["zero"]
    sheet = scorer.sheet(nodes)
    sums = {"mean": _average(sheet, family.pearson(sheet["a"], sheet["b"])[0])}
    if zero:
        none = sheet["zero"].sum()
        sums["p_zero"] = none / (none + sheet["u"].sum())
    items = scorer.summed(sheet, **sums).rows
    kept = [name for name in items.columns if name not in scorer.keys]
    sheet = scorer.joined(nodes, items)
    mean, own, _, bend = family.pearson(sheet["a"], sheet["b"])
    away = sheet.keep(mean - sheet["mean"])
    sums = {"middle": _average(sheet, own / (1.0 - bend) + away * away)}
    if zero:  # the share of theta below 0, of which quantiles are functions
        sums["below"] = _average(sheet, _law(sheet, family, 0.0)[0]) if not family.positive else 0.0
    return scorer.summed(sheet, *kept, **sums).rows


def _average(nodes: _Sheet, value: Any) -> Any:
    """Mean over an item's nodes where theta is not 0."""
    return (nodes["u"] * value).sum() / nodes.functions.high(nodes["u"].sum(), 1e-290)


def _law(nodes: _Sheet, family: Any, at: Any) -> tuple[Any, Any]:
    norm = nodes.keep(family.norm(nodes["a"], nodes["b"], nodes.functions))
    return family.law(nodes["a"], nodes["b"], norm, at, nodes.functions)


def _with_quantiles(nodes: Any, scorer: _Scorer) -> Any:
    """Moments and quantiles of items, by steps of Newton's method on the nodes' distribution."""
    import ibis

    prior, family, items = scorer.prior, scorer.prior.family, _with_moments(nodes, scorer)
    sheet = scorer.sheet(items.cross_join(scorer.lookups[_LEVELS]))
    of = sheet.functions
    known = [name for name in items.columns if name not in scorer.keys]
    known += ["soc_number", "soc_share", "soc_covered", "soc_unit"]
    share, covered = sheet["level"], ibis.literal(False)
    if prior.meta["zero"]:
        share, covered = prior_table._share(share, sheet["p_zero"], sheet["below"], of)
    sheet.add(share=share, covered=covered)
    a, b = map(sheet.keep, family.matched(sheet["mean"], sheet["middle"]))
    start, unit = _start(family.depends, a, b, sheet["share"], sheet)
    sheet.add(q=start, unit=unit, low=-1e300, high=1e300)
    placed = [*known, "soc_q", "soc_low", "soc_high"]
    for _ in range(_MIXTURE_STEPS if prior.meta["mixture"] else _STEPS):
        both = scorer.joined(nodes, sheet.rows.select(*scorer.keys, *placed))
        p, density = _law(both, family, both["q"])
        sums = {"p": _average(both, p), "density": _average(both, density)}
        sheet = scorer.summed(both, *placed, **sums)
        names = ("share", "p", "density", "q", "low", "high", "unit")
        given = *(sheet[name] for name in names), sheet.functions
        q, low, high = prior_table._step(*given)
        sheet.add(q=q, low=low, high=high)
    close = prior_table._is_close(sheet["p"], sheet["share"], sheet.functions)
    theta = close.ifelse(family.theta(sheet["q"], sheet.functions), ibis.null("float64"))
    sheet.add(theta=sheet["covered"].ifelse(0.0, theta))
    quantiles = {
        name: sheet["theta"].max(where=sheet["number"] == k)
        for k, name in enumerate(prior.quantiles)
    }
    moments = ["soc_mean", "soc_middle", *(["soc_p_zero"] if prior.meta["zero"] else [])]
    found = scorer.summed(sheet, *moments, **quantiles)
    mean, middle = found["mean"], found["middle"]
    if prior.meta["zero"]:
        rest = 1.0 - found["p_zero"]
        mean, middle = rest * mean, rest * (middle + found["p_zero"] * mean * mean)
    return found.add(theta_mean=mean, theta_var=middle, theta_sd=middle.sqrt()).rows


def _start(depends: int, a: Any, b: Any, share: Any, sheet: _Sheet) -> tuple[Any, Any]:
    """A place near a member's quantile on the line, and the member's sd there.

    By the first cumulants of logarithms of Gammas, and Cornish and Fisher (1938).
    """
    of = sheet.functions
    z = sheet.keep((of.log(share) - of.log(1.0 - share)) / _LOGISTIC)
    if depends == 0:
        return a + z * of.sqrt(b), of.sqrt(b)
    one, two, three = _log_cumulants(a, of)
    if depends == 1:
        one = one - of.log(b)
    else:
        other = _log_cumulants(b, of)
        one, two, three = one - other[0], two + other[1], three - other[2]
    one, two, three = map(sheet.keep, (one, two, three))
    sd = sheet.keep(of.sqrt(two))
    return one + sd * (z + three / (two * sd) * (z * z - 1.0) / 6.0), sd


def _log_cumulants(a: Any, of: Any) -> tuple[Any, Any, Any]:
    """Mean, variance and third central moment, nearly, of the log of a Gamma of this shape."""
    return (
        of.log(a + 0.5) - 1.0 / a,
        1.0 / (a * a) + 1.0 / (a + 0.5),
        -2.0 / (a * a * a) - 1.0 / ((a + 0.5) * (a + 0.5)),
    )


def _total(terms: Iterable[Any]) -> Any:
    """Sum as a tree, for engines that limit an expression's depth."""
    left = list(terms)
    while len(left) > 1:
        left = [sum(left[i + 1 : i + 2], left[i]) for i in range(0, len(left), 2)]
    return left[0]
