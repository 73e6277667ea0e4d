"""The text of a SELECT in a dialect, from an Ibis expression over tables of other names."""

import re
from collections.abc import Mapping
from typing import Any

from .._lib.arguments import shown
from .._lib.errors import FitError, ItemsError

# dialects by their names in Ibis and SQLGlot: Ibis compiles Spark's only for a session
_DIALECTS = {"pyspark": ("databricks", "spark"), "spark": ("databricks", "spark")}
_MOST_TEXT = 1_000_000  # characters of a SELECT
_PART = r'(?:[^\W\d]\w*|"(?:[^"\x00-\x1f]|"")+")'
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")


def check_names(tables: Mapping[str, Any]) -> None:
    """Refuse what is not the name of a table, by argument."""
    for argument, name in tables.items():
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            rule = "parts of letters, digits and underscores, or in double quotes, joined by dots"
            raise ItemsError(
                f"{argument}={shown(name)} must be the name of a table: {rule}"
            )


def text_of(scored: Any, tables: Mapping[str, str], dialect: str) -> str:
    """An expression over soc_table and soc_prior as a SELECT over `tables` of other names."""
    import ibis
    import sqlglot
    from ibis.expr.operations import InMemoryTable

    compiled, written = _DIALECTS.get(dialect, (dialect, dialect))
    try:
        tree: Any = sqlglot.parse_one(
            str(ibis.to_sql(scored, dialect=compiled)), read=compiled
        )
        sources = {f"soc_{argument}": _named(name) for argument, name in tables.items()}
    except (
        ValueError,
        sqlglot.errors.SqlglotError,
    ) as error:  # two classes of SQLGlot's errors
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
        remedy = 'load soc.export_prior(fit, "prior.parquet") as a table, and name it as prior='
        raise FitError(
            f"the SELECT would have {len(text):,} characters, over a million: {remedy}"
        )
    return text


def _named(name: str) -> Any:
    """A table's name, whose quotes are written as the dialect has them."""
    from sqlglot import exp

    names = [
        exp.to_identifier(part.strip('"').replace('""', '"'), quoted=part[0] == '"')
        for part in re.findall(_PART, name)
    ]
    return exp.Table(
        **dict(zip(("this", "db", "catalog"), reversed(names), strict=False))
    )


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
        this=exp.select(*typed).from_(rows),
        alias=exp.TableAlias(this=exp.to_identifier(name)),
    )
