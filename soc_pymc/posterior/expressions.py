"""Item posteriors as one Ibis expression, and as its SQL text.

The curves are two small tables of numbers: a `Ladder` from scores to positions, if that is no
elementary function, and `Curves`, in equal cells of positions. Both are joined by whole numbers
computed by arithmetic, so every engine runs the same plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats
from .._lib.errors import ItemsError
from ..data.binning import Grid
from ..data.tables.expressions import exact, score_cell
from ..families.family import Family
from ..families.outcomes import Outcome
from ..families.scales import MIDDLE, Scale
from ..families.validity import LARGEST, Bounds

_TINY = 1e-12  # negligible sd of the first curve
_ITEMS, _LADDER, _CURVES = "soc_items", "soc_ladder", "soc_curves"
# engines that inline every use of a column, unless there is a LIMIT
_FENCED = ("postgres",)
_ALL = 2**62
# dialects by their names in Ibis and SQLGlot: Ibis compiles Spark's only for a session
_DIALECTS = {"pyspark": ("databricks", "spark"), "spark": ("databricks", "spark")}


@dataclass(frozen=True)
class Ladder:
    """Map of scores to ranks from 0 to 1: two straight lines in each cell of a grid."""

    grid: Grid
    low: float  # scores are clipped to these bounds
    high: float
    cell: NDArray[np.int64]  # all cells from that of `low` to that of `high`
    score: Floats  # by cell: boundary of the two lines
    position: Floats  # (2, cells): their values there
    slope: Floats  # (2, cells)


@dataclass(frozen=True)
class Curves:
    """Moments and nodes of draws of a family's curves, by cell of width 2^exponent of the position.

    A position u is in cell floor(v), v = u / 2^exponent, or in the first or last cell if it is
    beyond. Polynomials are in x = v - cell - 1/2, from 1 upwards.
    """

    family: Family
    scale: Scale  # of positions if there is no ladder
    ladder: Ladder | None
    exponent: int
    first: int  # the first cell
    cells: int  # their number; below, these are followed by the atoms
    atoms: tuple[float, ...]  # scores with curves of their own
    reach: tuple[int, int]  # cells beyond the outer ones where numbers stay finite
    mean: Floats  # (cells, 4): means of the first curve
    cv2: Floats  # (cells, 4): means of the second, log cv2
    spread: Floats  # (cells, 3, 3): variance of the first, covariance, variance of the second
    nodes_mean: Floats  # (cells, k): nodes of the first, in sd
    nodes_cv2: Floats  # (cells, j): of the residual of the second on the first, in sd
    weight: Floats  # (cells, k, j): weights of their pairs


def scored(table: Any, roles: Mapping[str, str], curves: Curves) -> Any:
    """An Ibis table with the posterior moments of every item, on the items' backend.

    `roles` are the columns of score, outcome and size.
    """
    _check_columns(table.columns, roles, curves)
    columns = {name: _memtable(values) for name, values in _lookups(curves).items()}
    fence = _backend(table) in _FENCED
    return _expression(table, roles, curves, columns, fence)


def _new_columns(family: Family) -> tuple[str, ...]:
    """Columns that scoring adds."""
    return "theta_mean", "theta_sd", "theta_var", *(f"theta_{name}" for name in family.parameters)


def _check_columns(columns: Sequence[str], roles: Mapping[str, str], curves: Curves) -> None:
    """Refuse tables that lack a column or already have one of the new ones."""
    absent = [name for name in roles.values() if name not in columns]
    if absent:
        raise ItemsError(f"the table has no column {', '.join(map(repr, absent))}")
    taken = {column.lower() for column in columns}
    clash = [name for name in _new_columns(curves.family) if name in taken]
    if clash:
        raise ItemsError(
            f"the table already has the columns {', '.join(map(repr, clash))}: rename or drop them"
        )


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


def _lookups(curves: Curves) -> dict[str, dict[str, NDArray[Any]]]:
    """Columns of the small tables, by the tables' names."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    if curves.ladder is not None:
        ladder = curves.ladder
        found[_LADDER] = {
            "soc_step": ladder.cell,
            "soc_bend": ladder.score,
            "soc_u_0": ladder.position[0],
            "soc_u_1": ladder.position[1],
            "soc_slope_0": ladder.slope[0],
            "soc_slope_1": ladder.slope[1],
        }
    columns: dict[str, NDArray[Any]] = {
        "soc_cell": np.arange(curves.first, curves.first + len(curves.mean))
    }
    for name, values in (
        ("a", curves.mean),
        ("b", curves.cv2),
        ("v", curves.spread),
        ("x", curves.nodes_mean),
        ("z", curves.nodes_cv2),
        ("w", curves.weight),
    ):
        for place in np.ndindex(values.shape[1:]):
            columns["_".join(["soc", name, *map(str, place)])] = values[:, *place]
    found[_CURVES] = columns
    return found


# --- SQL text ------------------------------------------------------------------------------------


def scoring_sql(
    table: str, roles: Mapping[str, str], columns: Sequence[str], curves: Curves, dialect: str
) -> str:
    """A SELECT that scores a named table and contains the small tables.

    `table` is written as in the dialect; `roles` are its columns of score, outcome and size,
    `columns` others to keep. The dialect is one of Ibis's, or "spark".
    """
    import ibis
    import sqlglot

    users = list(dict.fromkeys([*roles.values(), *columns]))
    _check_columns(users, roles, curves)
    # decimals, so that the cast to float64 is always written
    items = ibis.table(dict.fromkeys(users, "decimal"), name=_ITEMS)
    lookups = _lookups(curves)
    unbound = {name: _unbound(name, values) for name, values in lookups.items()}
    whole = _expression(items, roles, curves, unbound, dialect in _FENCED)
    compiled, written = _DIALECTS.get(dialect, (dialect, dialect))
    try:
        tree: Any = sqlglot.parse_one(str(ibis.to_sql(whole, dialect=compiled)), read=compiled)
        source = sqlglot.exp.to_table(table, dialect=written)
    except (ValueError, sqlglot.errors.SqlglotError) as error:  # two classes of SQLGlot's errors
        raise ItemsError(f"table {table!r} in dialect {dialect!r}: {error}") from error
    for found in list(tree.find_all(sqlglot.exp.Table)):
        if found.name == _ITEMS:
            named = source.copy()
            named.set("alias", found.args.get("alias"))
            found.replace(named)
    for name, values in lookups.items():
        tree = tree.with_(name, as_=_values(values))
    return str(tree.sql(dialect=written, pretty=False))


def _unbound(name: str, columns: Mapping[str, NDArray[Any]]) -> Any:
    import ibis

    kinds = {column: str(values.dtype) for column, values in columns.items()}
    return ibis.table(kinds, name=name)


def _values(columns: Mapping[str, NDArray[Any]]) -> Any:
    """A SELECT of rows of numbers as text, the only form that all engines read exactly."""
    from sqlglot import exp

    rows = zip(*(map(_text, values) for values in columns.values()), strict=True)
    names: Any = [exp.to_identifier(name, quoted=True) for name in columns]
    values = exp.values(list(rows), alias="soc_values", columns=names)
    typed = [
        exp.cast(exp.column(name.copy()), "BIGINT" if numbers.dtype.kind == "i" else "DOUBLE").as_(
            name.copy()
        )
        for name, numbers in zip(names, columns.values(), strict=True)
    ]
    return exp.select(*typed).from_(values)


def _text(number: Any) -> str:
    return str(number) if isinstance(number, np.integer) else f"{number:.14g}"


# --- the expression ------------------------------------------------------------------------------


def _expression(
    table: Any, roles: Mapping[str, str], curves: Curves, lookups: Mapping[str, Any], fence: bool
) -> Any:
    """The user's columns and the new ones; `fence` keeps an engine from inlining layers."""
    import ibis

    users = list(table.columns)
    taken = [name for name in users if name.lower().startswith("soc_")]
    if taken:
        raise ItemsError(f"columns named soc_... serve the computation: rename {taken[0]!r}")

    def layer(rows: Any, **new: Any) -> Any:
        made = rows.mutate(**{f"soc_{name}": value for name, value in new.items()})
        return made.limit(_ALL) if fence else made

    family = curves.family
    rows = layer(table, **_inputs(table, roles, family.outcome, curves.scale))
    rows = _with_position(rows, curves, lookups, layer)
    unit = exact(2.0**-curves.exponent)
    last = curves.first + curves.cells - 1
    low, high = curves.first - curves.reach[0], last + 1 + curves.reach[1]
    rows = layer(rows, v=_between(rows.soc_u * unit, low, high))
    rows = layer(rows, whole=_between(rows.soc_v.floor(), curves.first, last))
    cell = rows.soc_whole.cast("int64")
    for k, atom in enumerate(curves.atoms, start=1):
        cell = (rows.soc_t == exact(atom)).ifelse(ibis.literal(last + k, type="int64"), cell)
    rows = layer(rows, at=cell, x=rows.soc_v - rows.soc_whole - 0.5)
    rows = rows.left_join(lookups[_CURVES], rows.soc_at == lookups[_CURVES].soc_cell)
    rows = _with_prior(rows, layer)
    rows = _with_posterior(rows, family, curves.weight.shape[1:], layer)
    mean, variance = rows.soc_mean, rows.soc_var
    assert family.expressed is not None
    values = (mean, variance.sqrt(), variance, *family.expressed.matched(mean, variance))
    known = {
        name: rows.soc_good.ifelse(value, ibis.null("float64"))
        for name, value in zip(_new_columns(family), values, strict=True)
    }
    return rows.select(*users, **known)


def _inputs(table: Any, roles: Mapping[str, str], outcome: Outcome, scale: Scale) -> dict[str, Any]:
    """Score, outcome and size as floats, replaced by harmless ones if any is bad.

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
    safe = {"t": good.ifelse(t, MIDDLE), "y": good.ifelse(y, 0.0), "n": good.ifelse(n, 0.0)}
    return {"good": good, **safe}


def _within(value: Any, bounds: Bounds) -> Any:
    least = -bounds.largest if bounds.least is None else bounds.least
    return (value >= least) & (value <= bounds.largest)


def _with_position(rows: Any, curves: Curves, lookups: Mapping[str, Any], layer: Any) -> Any:
    """Position of the score on the curves' axis."""
    if curves.ladder is None:
        return layer(rows, u=curves.scale.column(rows.soc_t))
    ladder, steps = curves.ladder, lookups[_LADDER]
    rows = layer(rows, row=score_cell(rows.soc_t, ladder.grid, ladder.low, ladder.high))
    rows = rows.left_join(steps, rows.soc_row == steps.soc_step)
    off = rows.soc_t - rows.soc_bend
    sides = [rows[f"soc_u_{i}"] + off * rows[f"soc_slope_{i}"] for i in (0, 1)]
    return layer(rows, u=_between((off < 0).ifelse(*sides), 0, 1))


def _between(value: Any, low: int, high: int) -> Any:
    import ibis

    least, most = (ibis.literal(bound, type="int64").cast("float64") for bound in (low, high))
    return ibis.least(ibis.greatest(value, least), most)


def _polynomial(rows: Any, name: str, degree: int) -> Any:
    value = rows[f"soc_{name}_{degree}"]
    for power in range(degree - 1, -1, -1):
        value = value * rows.soc_x + rows[f"soc_{name}_{power}"]
    return value


def _with_prior(rows: Any, layer: Any) -> Any:
    """Moments of the two curves at the item's score."""
    # rounding may make a variance of 0 negative
    rows = layer(
        rows,
        m=_polynomial(rows, "a", 3),
        c=_polynomial(rows, "b", 3),
        sd=_polynomial(rows, "v_0", 2).abs().sqrt(),
        both=_polynomial(rows, "v_1", 2),
        cc=_polynomial(rows, "v_2", 2),
    )
    rows = layer(rows, slope=rows.soc_both / (rows.soc_sd + _TINY))
    return layer(rows, left=(rows.soc_cc - rows.soc_slope * rows.soc_slope).abs().sqrt())


def _with_posterior(rows: Any, family: Family, shape: tuple[int, ...], layer: Any) -> Any:
    """Mean and total variance over the nodes, from the closed forms."""
    assert family.expressed is not None
    pairs = list(np.ndindex(shape))
    prior: dict[str, Any] = {}
    for k in range(shape[0]):
        x = rows[f"soc_x_{k}"]
        prior[f"first_{k}"], prior[f"second_{k}"] = family.expressed.parameters(
            rows.soc_m + rows.soc_sd * x, rows.soc_c + rows.soc_slope * x, _exp
        )
    for j in range(shape[1]):  # the residual of the second curve scales both parameters
        prior[f"scale_{j}"] = _exp(-rows.soc_left * rows[f"soc_z_{j}"])
    rows = layer(rows, **prior)
    nodes: dict[str, Any] = {}
    for k, j in pairs:
        scale = rows[f"soc_scale_{j}"]
        both = rows[f"soc_first_{k}"] * scale, rows[f"soc_second_{k}"] * scale
        nodes[f"first_{k}_{j}"], nodes[f"second_{k}_{j}"] = family.update(
            *both, rows.soc_y, rows.soc_n
        )

    def after(k: int, j: int) -> tuple[Any, Any]:
        return rows[f"soc_first_{k}_{j}"], rows[f"soc_second_{k}_{j}"]

    rows = layer(rows, **nodes)
    rows = layer(rows, **{f"mean_{k}_{j}": family.mean(*after(k, j)) for k, j in pairs})
    means = (rows[f"soc_w_{k}_{j}"] * rows[f"soc_mean_{k}_{j}"] for k, j in pairs)
    rows = layer(rows, mean=_total(means))
    terms = []
    for k, j in pairs:
        off = rows[f"soc_mean_{k}_{j}"] - rows.soc_mean
        terms.append(rows[f"soc_w_{k}_{j}"] * (family.variance(*after(k, j)) + off * off))
    return layer(rows, var=_total(terms))


def _exp(value: Any) -> Any:
    return value.exp()


def _total(terms: Any) -> Any:
    """Sum as a tree, for engines that limit an expression's depth."""
    left = list(terms)
    while len(left) > 1:
        left = [sum(left[i + 1 : i + 2], left[i]) for i in range(0, len(left), 2)]
    return left[0]
