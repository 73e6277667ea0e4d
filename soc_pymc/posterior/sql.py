"""Item posteriors as an Ibis expression and as SQL text."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._lib.arguments import A, names_of, shown
from .._lib.errors import FitError, ItemsError
from ..data.groups import NO_SCORE, arguments_of, group_roles, roles_of, roles_of_groups
from ..data.items import ANY_ITEMS, ITEMS, Items
from ..data.sources import kind_of
from ..families.family import family_of
from ..inference.results import FIT, Fit
from .item_columns import posterior_roles
from .sql_expression import Prior, expression, prior_of, small_table

# dialects by their names in Ibis and SQLGlot: Ibis compiles Spark's only for a session
_DIALECTS = {"pyspark": ("databricks", "spark"), "spark": ("databricks", "spark")}
_MOST_TEXT = 1_000_000  # characters of a SELECT
_PART = r'(?:[^\W\d]\w*|"(?:[^"\x00-\x1f]|"")+")'
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")


def posterior_expression(
    fit: Fit, items: Items, *, quantiles: Sequence[float] = (0.05, 0.95)
) -> Any:
    """Build the posterior of every item as an Ibis expression, which is not executed.

    Parameters
    ----------
    fit
        The fit, of any prior that `export_prior` can write.
    items
        Items over an Ibis table, on any backend.
    quantiles
        Levels, from 0.005 to 0.995.

    Returns
    -------
    ibis.Table
        The user's columns, in any order of rows, and ``theta_mean``, ``theta_sd``, ``theta_var``,
        in the unit of theta, quantiles such as ``theta_q05``, ``p_zero`` if theta may be 0, and
        ``flagged``. `item_posteriors` gives the same numbers, except for flagged items, which it
        scores over all draws. They are NULL for items that `item_posteriors` would refuse, and for
        groups that the fit does not know. There is no warning of scores far outside the fit's.

    Raises
    ------
    ItemsError
        If the items are not over an Ibis table, or a column is missing, has one of the new names or
        starts with ``soc_``.
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
    FIT(fit, "fit")
    A(Items, f"{ANY_ITEMS} of an Ibis table")(items, "items", ItemsError)
    if kind_of(items.source) != "ibis":
        raise ItemsError(
            "an expression needs items over an Ibis table: use soc.item_posteriors, or pass "
            'ibis.duckdb.connect().read_parquet("items.parquet")'
        )
    roles = posterior_roles(fit, items)
    prior = prior_of(fit, quantiles)
    _check_columns(items.source.columns, roles, prior)
    engine = items.source.get_backend().name
    return expression(items.source, roles, prior, small_table(**prior.columns), engine)


def posterior_sql(
    fit: Fit, table: str, *, score: str | None = None, count: str | None = None,
    exposure: str | None = None, value: str | None = None, noise_sd: str | None = None,
    successes: str | None = None, trials: str | None = None,
    group: str | Sequence[str] | None = None, columns: Sequence[str] = (),
    quantiles: Sequence[float] = (0.05, 0.95), prior: str | None = None, dialect: str = "duckdb",
) -> str:  # fmt: skip
    """Write the posterior of every item as the text of one SELECT.

    Parameters
    ----------
    fit
        The fit, of any prior that `export_prior` can write.
    table
        Name of the table of items: parts of letters, digits and underscores, or in double quotes,
        with dots between them (``'sales."Ads 2024"'``).
    score, count, exposure, value, noise_sd, successes, trials, group
        Names of the columns, of those that the fit's kind of items has; None takes those of the
        fit's items.
    columns
        Other columns to keep, such as the items' key.
    quantiles
        Levels, from 0.005 to 0.995.
    prior
        Name of a table that holds the file of ``soc.export_prior(fit, "prior.parquet")`` of this
        fit, loaded unchanged; the text gives no row if the table is another fit's. None writes its
        numbers into the text.
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
    >>> sql = soc.posterior_sql(fit, "sales.ads", columns=["ad_id"], dialect="trino")
    >>> '"ad_id"' in sql and "FROM sales.ads" in sql
    True
    """
    columns = names_of(columns, "columns", ItemsError)
    FIT(fit, "fit")
    tables = {"table": table} | ({} if prior is None else {"prior": prior})
    for argument, name in tables.items():
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise ItemsError(
                f"{argument}={shown(name)} must be the name of a table: parts of letters, digits "
                "and underscores, or in double quotes, with dots between them"
            )
    if not (isinstance(dialect, str) and dialect.strip()):
        raise ItemsError(f"dialect={shown(dialect)} must be a name, as str")
    outcome, known = family_of(fit.prior).outcome, roles_of(fit.data.attrs)
    arguments = {"score": score, "count": count, "exposure": exposure, "value": value}
    arguments |= {"noise_sd": noise_sd, "successes": successes, "trials": trials}
    named = {role: column for role, column in arguments.items() if column is not None}
    roles_of_fit = ("score", outcome.observed, outcome.size)
    if unknown := [role for role in named if role not in roles_of_fit]:
        raise ItemsError(
            f"{unknown[0]}= is not a column of the fit's items, which have {outcome.observed}= and "
            f"{outcome.size}="
        )
    by_role: dict[str, Any] = {role: known.get(role, role) for role in roles_of_fit} | named
    if group is not None and not fit.groups:
        raise ItemsError("group= is for fits with curves for each group: this one has none")
    if fit.groups:
        by_role |= group_roles(known) if group is None else roles_of_groups(group)
    items = ITEMS[outcome.kind](table, **arguments_of(by_role))
    roles = posterior_roles(fit, items)
    users = [c for c in dict.fromkeys([*roles.values(), *columns]) if c != NO_SCORE]
    return _scoring_sql(users, roles, prior_of(fit, quantiles), tables, dialect)


def _check_columns(columns: Sequence[str], roles: Mapping[str, str], prior: Prior) -> None:
    """Refuse tables that lack a column or already have one of the new ones."""
    if absent := [name for name in roles.values() if name not in (*columns, NO_SCORE)]:
        raise ItemsError(f"the table has no column {', '.join(map(repr, absent))}")
    taken = {column.lower() for column in columns}
    if clash := [name for name in prior.names if name in taken]:
        raise ItemsError(
            f"the table already has the columns {', '.join(map(repr, clash))}: rename or drop them"
        )
    if reserved := [name for name in columns if name.lower().startswith("soc_")]:
        raise ItemsError(f"columns named soc_... are reserved: rename {reserved[0]!r}")


# --- SQL text ------------------------------------------------------------------------------------


def _scoring_sql(
    users: Sequence[str],
    roles: Mapping[str, str],
    prior: Prior,
    tables: Mapping[str, str],
    dialect: str,
) -> str:
    """A SELECT over named tables: the items', and the prior's, whose numbers it has otherwise."""
    import ibis
    import sqlglot
    from ibis.expr.operations import InMemoryTable

    _check_columns(users, roles, prior)
    # decimals, so that the cast to float64 is always written
    kinds = dict.fromkeys(users, "decimal") | dict.fromkeys(group_roles(roles).values(), "string")
    nodes = small_table(**prior.columns)
    if "prior" in tables:
        nodes = ibis.table(dict(nodes.schema()) | {"fit": "string"}, name="soc_prior")
    compiled, written = _DIALECTS.get(dialect, (dialect, dialect))
    scored = expression(ibis.table(kinds, name="soc_table"), roles, prior, nodes, dialect)
    try:
        tree: Any = sqlglot.parse_one(str(ibis.to_sql(scored, dialect=compiled)), read=compiled)
        sources = {f"soc_{argument}": _named(name) for argument, name in tables.items()}
    except (ValueError, sqlglot.errors.SqlglotError) as error:  # two classes of SQLGlot's errors
        text = f"table {tables['table']!r} in dialect {dialect!r}: {error}"
        raise ItemsError(text) from error
    small = {f"soc_table_{k}": v for k, v in enumerate(scored.op().find(InMemoryTable))}
    sources |= {table.name: _named(name) for name, table in small.items()}
    for node in list(tree.find_all(sqlglot.exp.Table)):
        if node.name in sources:
            source = sources[node.name].copy()
            source.set("alias", node.args.get("alias"))
            node.replace(source)
    definitions = tree.find(sqlglot.exp.With)
    values = [_values(name, v.data.to_pyarrow(v.schema)) for name, v in small.items()]
    definitions.set("expressions", [*values, *definitions.expressions])
    text = str(tree.sql(dialect=written, copy=False))
    if len(text) > _MOST_TEXT:
        raise FitError(
            f"the SELECT would have {len(text):,} characters, more than a million: load the file "
            'of soc.export_prior(fit, "prior.parquet") as a table, and give its name as prior='
        )
    return text


def _named(name: str) -> Any:
    """A table's name, whose quotes are written as the dialect has them."""
    from sqlglot import exp

    names = [
        exp.to_identifier(part.strip('"').replace('""', '"'), quoted=part[0] == '"')
        for part in re.findall(_PART, name)
    ]
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(names), strict=False)))


def _values(name: str, table: Any) -> Any:
    """A named SELECT of rows of numbers as text, the only form that all engines read exactly."""
    from sqlglot import exp

    columns = {column: table[column].to_pylist() for column in table.column_names}
    texts = [[str(value) for value in values] for values in columns.values()]
    names: Any = [exp.to_identifier(column, quoted=True) for column in columns]
    kinds = {str: "TEXT", int: "BIGINT", float: "DOUBLE"}
    typed = [
        exp.cast(exp.column(column.copy()), kinds[type(values[0])]).as_(column.copy())
        for column, values in zip(names, columns.values(), strict=True)
    ]
    rows = exp.values(list(zip(*texts, strict=True)), alias="soc_values", columns=names)
    return exp.CTE(
        this=exp.select(*typed).from_(rows), alias=exp.TableAlias(this=exp.to_identifier(name))
    )
