"""Item posteriors in SQL: the prior table of `export_prior`, joined by the number of a cell.

The formulas are those of `prior_table`, on columns of an engine. Arithmetic and a small table find
an item's cell; a row of the prior table, turned so that a cell has one row, gives its nodes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_GROUPS, _QUANTILES = "soc_groups", "soc_quantiles"
# engines that inline every use of a column, unless there is a LIMIT
_FENCED = ("postgres",)
_ALL = 2**62
# dialects by their names in Ibis and SQLGlot: Ibis compiles Spark's only for a session
_DIALECTS = {"pyspark": ("databricks", "spark"), "spark": ("databricks", "spark")}
_MOST_TEXT = 1_000_000  # characters of a SELECT
_LARGEST = 100.0  # curves beyond the outermost cells stop there, as powers must stay finite
_MOST_MOVED = 0.2  # posterior sd: quantiles that are moved by more are not known
_FAINT, _LEAST_LOG = 1e-30, -300.0  # places and log shares that count as 0: engines fail on 1e-310

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
        the unit of theta, over the curves' uncertainty, and quantiles such as ``theta_q05`` (of
        mixtures and of priors with a share of zeros not: their ``p_zero`` instead). They are NULL
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
    edges: Floats  # scores where an item's place follows another line
    names: tuple[str, ...]  # new columns
    tables: _Tables

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Columns of the nodes."""
        return self.tables[_PRIOR]

    @property
    def nodes(self) -> range:
        """Numbers of the nodes of the fullest cell."""
        return range(int(self.columns["node"].max()) + 1)

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
    named = ("p_zero",) * meta["zero"] if meta["mixture"] else map(quantile_name, meta["levels"])
    tables = {
        _PRIOR: columns,
        _BINS: lookup_rows(inner, "soc_"),
        _PLACES: _places(meta, inner),
        _GROUPS: {
            "soc_label": np.array(meta["groups"], dtype=object),
            "soc_code": np.arange(len(meta["groups"])),
        },
        _QUANTILES: _quantile_rows(meta),
    }
    return _Prior(
        meta,
        prior_table._FAMILIES[meta["family"]],
        family_of(fit.prior).outcome,
        SCALES.get(axis.scale, LINEAR),
        inner,
        ("theta_mean", "theta_sd", "theta_var", *named),
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


def _quantile_rows(meta: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Polynomials of quantiles, by cell of the family's parameters."""
    if meta["mixture"]:
        return {}
    table = np.array(meta["quantiles"]).reshape(meta["shape"])
    rows = {"soc_row": np.arange(table[0, 0, 0].size)}
    for place in np.ndindex(table.shape[:3]):
        rows["_".join(["soc_q", *map(str, place)])] = table[place].ravel()
    return rows


def _reach(prior: _Prior) -> tuple[float, float]:
    """How far below 0 and above 1 places may lie in the outermost cells, whose curves are lines."""
    meta, columns = prior.meta, prior.columns
    cells, sizes = len(meta["edges"]) - 1, max(len(meta["sizes"]) - 1, 1)
    along = columns["cell"] // sizes % (cells + len(meta["atoms"]))
    # the first curve is a log where theta has an end
    logs = ("first", "second") if math.isfinite(prior.family.ends[0]) else ("second",)
    found = []
    for end in (0, cells - 1):
        own, room = along == end, math.inf
        for name in logs:
            parts = [np.zeros(own.sum()), np.zeros(own.sum())]
            for i, j in meta["terms"]:
                parts[min(i, 1)] += np.abs(columns[f"{name}_{i}{j}"][own])
            room = min(room, float(((_LARGEST - parts[0]) / np.maximum(parts[1], 1e-30)).min()))
        found.append(max(room, 1.0))
    return -found[0], found[1]


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


@dataclass(frozen=True)
class _Scorer:
    """How rows are scored on an engine."""

    prior: _Prior
    lookups: Mapping[str, Any]  # Ibis tables by name
    of: Any  # functions of columns, for the formulas of `prior_table`
    users: Sequence[str]
    fenced: bool  # whether layers must be kept from being inlined

    def layer(self, rows: Any, *kept: str, **new: Any) -> Any:
        """Rows with new columns soc_...; with `kept`, others of the computation are left behind."""
        named = {f"soc_{name}": value for name, value in new.items()}
        made = rows.select(*self.users, *kept, **named) if kept else rows.mutate(**named)
        return made.limit(_ALL) if self.fenced else made

    def nodes(self, rows: Any, *names: str) -> Iterator[tuple[Any, ...]]:
        """For each node its columns of these names."""
        for k in self.prior.nodes:
            yield tuple(rows[f"soc_{name}_{k}"] for name in names)


def _expression(
    table: Any, roles: Mapping[str, str], prior: _Prior, lookups: Mapping[str, Any], engine: str
) -> Any:
    """The user's columns and the new ones."""
    import ibis

    of = SimpleNamespace(
        log=lambda v: v.ln(), exp=lambda v: v.exp(), sqrt=lambda v: v.sqrt(), low=ibis.least,
        high=ibis.greatest, where=ibis.ifelse, never=-1e300)  # fmt: skip
    scorer = _Scorer(prior, lookups, of, list(table.columns), engine in _FENCED)
    rows = scorer.layer(table, **_inputs(table, roles, prior.outcome, prior.scale))
    rows = _with_cell(rows, scorer)
    rows = _with_nodes(rows, scorer)
    if prior.meta["mixture"]:
        rows = _with_weights(rows, scorer)
    rows = _with_moments(rows, scorer)
    rows = (_with_zeros if prior.meta["mixture"] else _with_quantiles)(rows, scorer)
    null = ibis.null("float64")
    new = {name: rows.soc_good.ifelse(rows[f"soc_{name}"], null) for name in prior.names}
    return rows.select(*scorer.users, **new)


def _inputs(table: Any, roles: Mapping[str, str], outcome: Outcome, scale: Scale) -> dict[str, Any]:
    """Score, outcome and size as floats, replaced by harmless ones if any is bad; the group.

    Comparisons detect NaN and infinities: engines order NaN above all numbers or not at all, and
    both fail one of two bounds.
    """
    names = ("score", outcome.observed, outcome.size)
    t, y, n = (table[roles[role]].cast("float64") for role in names)
    rule = outcome.validity
    low = t > scale.low if scale.low > -LARGEST else t >= -LARGEST
    high = t < scale.high if scale.high < LARGEST else t <= LARGEST
    good = low & high & _within(y, rule.outcome) & _within(n, rule.size)
    if rule.conflict is not None:
        good &= ~rule.conflict(y, n)
    for value, bounds in ((y, rule.outcome), (n, rule.size)):
        good &= bounds.is_whole(good.ifelse(value, 0.0))  # floors of NaN differ by engine
    found = {"good": good, "t": good.ifelse(t, MIDDLE), "y": good.ifelse(y, 0.0)}
    labels = [table[column].cast("string") for column in group_roles(roles).values()]
    if labels:
        found["group"] = reduce(lambda left, right: left + CROSS + right, labels)
    return found | {"n": good.ifelse(n, 1.0)}


def _within(value: Any, bounds: Bounds) -> Any:
    least = -bounds.largest if bounds.least is None else bounds.least
    return (value >= least) & (value <= bounds.largest)


def _with_cell(rows: Any, scorer: _Scorer) -> Any:
    """The number of an item's cell, and its places x and w along score and size there."""
    import ibis

    prior, of, layer, meta = scorer.prior, scorer.of, scorer.layer, scorer.prior.meta
    cells, sizes = len(meta["edges"]) - 1, np.array(meta["sizes"])
    rows = with_bins(rows, prior.edges, "soc_", scorer.lookups.get(_BINS), score="soc_t")
    rows = rows.left_join(scorer.lookups[_PLACES], "soc_bin")
    low, high = _reach(prior)
    x = rows.soc_start + (prior.scale.column(rows.soc_t) - rows.soc_from) * rows.soc_slope
    x, at = of.low(of.high(x, low), high), rows.soc_column
    x = (x.abs() < _FAINT).ifelse(0.0, x)
    for k, atom in enumerate(meta["atoms"]):
        own = rows.soc_t == exact(atom)
        at = own.ifelse(ibis.literal(cells + k, type="int64"), at)
        x = own.ifelse(0.0, x)
    rows = layer(rows, at=at, x=x)
    if meta["groups"]:
        labels = scorer.lookups[_GROUPS]
        rows = rows.left_join(labels, rows.soc_group == labels.soc_label)
        first = rows.soc_code.fill_null(0) * (cells + len(meta["atoms"]))
        rows = layer(rows, at=rows.soc_at + first, good=rows.soc_good & rows.soc_code.notnull())
    if not len(sizes):
        return rows
    v = (of.log(of.high(rows.soc_n, 1e-300)) - float(sizes[0])) * float(1.0 / (sizes[1] - sizes[0]))
    rows = layer(rows, v=of.low(of.high(v, 0.0), len(sizes) - 1.0))
    rows = layer(rows, row=of.low(rows.soc_v.floor(), len(sizes) - 2.0))
    at = rows.soc_at * (len(sizes) - 1) + rows.soc_row.cast("int64")
    return layer(rows, w=rows.soc_v - rows.soc_row, at=at)


def _with_nodes(rows: Any, scorer: _Scorer) -> Any:
    """Weights and conjugate parameters, w, a and b, of the nodes of an item's cell."""
    prior, long, nodes = scorer.prior, scorer.lookups[_PRIOR], scorer.prior.nodes
    terms = [(f"_{i}{j}", i, j) for i, j in prior.meta["terms"]]
    shorts = {"weight": "w", "first": "f", "second": "s"}
    ways = [f"way_{j}" for j in prior.ways]
    names = [name + term for name in shorts for term, *_ in terms] + ways
    turned = {
        f"soc_{name}_{k}": long[name].cast("float64").max(where=long.node == k)
        for name in names
        for k in nodes
    }
    wide = long.group_by(soc_cell_of=long.cell.cast("int64")).aggregate(**turned)
    rows = rows.left_join(wide, rows.soc_at == wide.soc_cell_of)
    powers = {"power" + term: _power(rows, i, j) for term, i, j in terms[1:]}
    rows = scorer.layer(rows, **powers)
    curves = {
        f"{short}_{k}": _total(
            [
                rows[f"soc_{name}{term}_{k}"] * (rows[f"soc_power{term}"] if i + j else 1.0)
                for term, i, j in terms
            ]
        ).fill_null(0.0)  # a cell with fewer nodes
        for name, short in shorts.items()
        for k in nodes
    }
    kept = ["soc_good", "soc_y", "soc_n", *(f"soc_{way}_{k}" for way in ways for k in nodes)]
    rows = scorer.layer(rows, *kept, **curves)
    parameters = [prior.family.parameters(f, s, scorer.of) for f, s in scorer.nodes(rows, "f", "s")]
    return scorer.layer(rows, **_named("ab", parameters))


def _power(rows: Any, i: int, j: int) -> Any:
    return reduce(mul, [rows.soc_x] * i + ([rows.soc_w] * j if j else []))


def _named(names: str, values: Iterable[Any]) -> dict[str, Any]:
    """New columns of all nodes, from one value of each or as many as there are names."""
    each = [value if len(names) > 1 else (value,) for value in values]
    return {
        f"{name}_{k}": own
        for k, values in enumerate(each)
        for name, own in zip(names, values, strict=True)
    }


def _with_weights(rows: Any, scorer: _Scorer) -> Any:
    """Weights given the outcome, as in `prior_table`."""
    of, family, layer, ways = scorer.of, scorer.prior.family, scorer.layer, scorer.prior.ways
    y, n = rows.soc_y, rows.soc_n
    log_p = [family.log_density(a, b, y, n, of) for a, b in scorer.nodes(rows, "a", "b")]
    if scorer.prior.meta["zero"]:
        log_p[-1] = family.at_zero(y, n, of)
    rows = layer(rows, **_named("l", log_p))
    rows = layer(rows, top=of.high(*(own for (own,) in scorer.nodes(rows, "l"))))
    # an exponential of less is 0, which some engines refuse
    p = [of.exp(of.high(own - rows.soc_top, _LEAST_LOG)) for (own,) in scorer.nodes(rows, "l")]
    rows = layer(rows, **_named("p", p))
    rows = layer(rows, **_named("c", [w * p for w, p in scorer.nodes(rows, "w", "p")]))
    rows = layer(rows, total=_total(c for (c,) in scorer.nodes(rows, "c")))

    def along(way: int) -> Any:
        pairs = scorer.nodes(rows, "p", f"way_{way}")
        return _total(p * v for p, v in pairs) / rows.soc_total

    rows = layer(rows, **{f"move_{j}": along(j) for j in ways})
    moves = [rows[f"soc_move_{j}"] for j in ways]
    rows = layer(rows, more=1.0 + _total(move * move for move in moves))
    near = [
        of.high(1.0 + _total(map(mul, own, moves)) / of.high(w, 1e-100), 0.1)
        for w, *own in scorer.nodes(rows, "w", *(f"way_{j}" for j in ways))
    ]
    rows = layer(rows, **_named("d", near))
    changed = [c * rows.soc_more / d for c, d in scorer.nodes(rows, "c", "d")]
    rows = layer(rows, **_named("c", changed))
    rows = layer(rows, sum=_total(c for (c,) in scorer.nodes(rows, "c")))
    weights = [c / rows.soc_sum for (c,) in scorer.nodes(rows, "c")]
    if scorer.prior.meta["zero"]:  # the others' weights are those where theta is not 0
        rows = layer(rows, p_zero=weights[-1])
        rest = of.high(1.0 - rows.soc_p_zero, 1e-290)
        weights = [weight / rest for weight in weights[:-1]] + [0.0 * rows.soc_p_zero]
    return layer(rows, **_named("w", weights))


def _with_moments(rows: Any, scorer: _Scorer) -> Any:
    """Mean and variance over the nodes given the outcome.

    For quantiles also third and fourth moment over the variance.
    """
    family, layer, y, n = scorer.prior.family, scorer.layer, rows.soc_y, rows.soc_n
    after = [family.update(a, b, y, n) for a, b in scorer.nodes(rows, "a", "b")]
    rows = layer(rows, **_named("ab", after))
    moments = [family.moments(a, b)[:2] for a, b in scorer.nodes(rows, "a", "b")]
    rows = layer(rows, **_named("mv", moments))
    rows = layer(rows, mean=_total(w * m for w, m in scorer.nodes(rows, "w", "m")))
    rows = layer(rows, **_named("d", [m - rows.soc_mean for (m,) in scorer.nodes(rows, "m")]))
    rows = layer(
        rows, middle=_total(w * (v + d * d) for w, v, d in scorer.nodes(rows, "w", "v", "d"))
    )
    theta = {
        "theta_mean": rows.soc_mean,
        "theta_var": rows.soc_middle,
        "theta_sd": rows.soc_middle.sqrt(),
    }
    kept = ["soc_good", "soc_mean", "soc_middle"]
    if scorer.prior.meta["mixture"]:
        return layer(rows, *kept, *["soc_p_zero"] * scorer.prior.meta["zero"], **theta)
    third, fourth = [], []
    for w, a, b, v, d in scorer.nodes(rows, "w", "a", "b", "v", "d"):
        inner, outer = w * (v / rows.soc_middle), w * (d * d / rows.soc_middle)
        _, _, skew, tall = family.moments(a, b)
        third.append(inner * (skew + 3.0 * d) + outer * d)
        fourth.append(inner * (tall + d * (4.0 * skew + 6.0 * d)) + outer * d * d)
    return layer(rows, *kept, third=_total(third), fourth=_total(fourth), **theta)


def _with_zeros(rows: Any, scorer: _Scorer) -> Any:
    """Moments with the share of zeros, if there is one."""
    if not scorer.prior.meta["zero"]:
        return rows
    zero, mean, rest = rows.soc_p_zero, rows.soc_mean, 1.0 - rows.soc_p_zero
    variance = rest * (rows.soc_middle + zero * mean * mean)
    return scorer.layer(rows, theta_mean=rest * mean, theta_var=variance, theta_sd=variance.sqrt())


def _with_quantiles(rows: Any, scorer: _Scorer) -> Any:
    """Quantiles, as in `prior_table`: of the family's member with the mean and variance, moved."""
    import ibis

    prior, of, layer, mean = scorer.prior, scorer.of, scorer.layer, rows.soc_mean
    family, meta = prior.family, prior.meta
    rows = layer(rows, **_named("ab", [family.matched(mean, rows.soc_middle)]))
    a, b = rows.soc_a_0, rows.soc_b_0
    numbers, place, row = meta["shape"][3:], {}, 0
    for name, value, number in zip("ij", family.place(a, b), numbers, strict=True):
        if number > 1:
            v = (of.log(value) - meta["low"]) * (1.0 / meta["step"])
            place[name] = of.low(of.high(v, 0.0), number - 1e-6)
    rows = layer(rows, **place)
    for name, number in zip("ij", numbers, strict=True):
        row = row * number + (rows[f"soc_{name}"].floor().cast("int64") if name in place else 0)
    rows = layer(rows, row=row)
    table = scorer.lookups[_QUANTILES]
    rows = rows.left_join(table, rows.soc_row == table.soc_row)
    p, q = (
        rows[f"soc_{name}"] - rows[f"soc_{name}"].floor() if name in place else 0.0 for name in "ij"
    )
    rows = layer(rows, p=p, q=q)
    start, unit = family.line(mean, of), family.unit(a, b, of)
    levels, first, second = meta["shape"][:3]
    _, _, skew, tall = family.moments(a, b)
    null = ibis.null("float64")
    for name, level in zip(prior.names[3:], range(levels), strict=True):
        lines = [
            prior_table._horner([rows[f"soc_q_{level}_{k}_{i}"] for i in range(second)], rows.soc_q)
            for k in range(first)
        ]
        end = family.theta(start + unit * prior_table._horner(lines, rows.soc_p), of)
        rows = layer(rows, end=end)
        moved = family.moved(rows.soc_end, a, b, rows.soc_third - skew, rows.soc_fourth - tall)
        rows = layer(rows, moved=moved)
        near = rows.soc_moved.abs() < _MOST_MOVED * rows.soc_theta_sd
        rows = layer(rows, **{name: near.ifelse(rows.soc_end + rows.soc_moved, null)})
    return rows


def _total(terms: Iterable[Any]) -> Any:
    """Sum as a tree, for engines that limit an expression's depth."""
    left = list(terms)
    while len(left) > 1:
        left = [sum(left[i + 1 : i + 2], left[i]) for i in range(0, len(left), 2)]
    return left[0]
