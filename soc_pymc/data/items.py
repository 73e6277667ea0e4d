"""Items: a table with columns by role, what these must be, and how they are read.

Groups may be crossed, and dates come first.
Statistics have one group for each combination of levels that occurs, labelled by the levels.
"""

import json
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .._lib.arguments import (
    POSITIVE,
    A,
    ItemsError,
    Real,
    StatisticsError,
    shown,
    switch,
)
from .._lib.arrays import Ints
from ..families import OUTCOMES, family_of_kind
from ..families.family import Family, Outcome
from ..families.scales import Bounds
from .formulas import FOLD_PRIME, MOST_FOLDS, near_whole
from .shapes import LEAST_SHAPE, MOST_SHAPE, shape_of
from .sources import chosen, kind_of

if TYPE_CHECKING:
    import pyarrow as pa

_LEAP = r"(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
_SHORT = r"02-(0[1-9]|1\d|2[0-8])"
_LONG = r"(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])"
_MONTH = r"(0[469]|11)-(0[1-9]|[12]\d|30)"
# pattern of a calendar day YYYY-MM-DD, as engines read it
DAY = rf"^(\d{{4}}-({_SHORT}|{_MONTH}|{_LONG})|{_LEAP})$"
# in place of the column of scores of items without one
NO_SCORE = "(no score)"
ONE_SCORE = 0.5  # their score, which has a position on every scale
# in no label of crossed groups; in place of a level it means none of them
MARK = "×"
CROSS = f" {MARK} "  # between the levels in the label of a combination

_LABELS = "must be labels: text, whole numbers or true/false"
_NEEDS = {
    "group": f"groups {_LABELS}",
    "cluster": f"clusters {_LABELS}",
    "date": "dates must be dates, times without a time zone (their day is taken as stored), or "
    "text YYYY-MM-DD",
    "id": "ids must be whole numbers or text",
}
FOLDS = Bounds(
    f"folds must be whole numbers from 0 to {MOST_FOLDS - 1}", MOST_FOLDS - 1.0, 0.0, True
)  # fmt: skip
WEIGHTS = Bounds(
    "weights must be whole numbers >= 1, as a row stands for so many equal items (survey weights "
    "do not: fit without them, with group= for what they adjust for, and weight the predictions)",
    1e9, 1.0, True,
)  # fmt: skip
NOISE_DF = Bounds(
    "degrees of freedom of noise sds must be numbers from 0.01 to 1e9", 1e9, 0.01
)
_FURTHER = {"fold": FOLDS, "weight": WEIGHTS, "noise_df": NOISE_DF}

# types of columns, in the words of errors
_TEXT = "text"
_WHOLE = "numbers"
# pandas has floats where whole numbers are missing
_REAL = "numbers with fractions (pandas: .astype('Int64') makes whole numbers)"
_TRUTH = "true/false values"
_DAY = "dates or times"
_HOUR = "times"
_ZONED = "times with a time zone"
_EMPTY = "no values"


class Average(str):
    """Name of a column of averages of amounts, whose sums are these times the events."""

    __slots__ = ()


class Roles(dict[str, str]):
    """Names of columns by role; several columns of groups have the roles group_1, group_2, ..."""

    @classmethod
    def of(cls, attrs: Mapping[Any, Any]) -> "Roles":
        """Roles in the attributes of a fit or of statistics."""
        roles = json.loads(attrs.get("roles", "{}")).items()
        arguments = {"average": ("amount", Average)}
        pairs = ((*arguments.get(role, (role, str)), name) for role, name in roles)
        return cls({role: kind(name) for role, kind, name in pairs})

    @property
    def named(self) -> dict[str, str]:
        """Names of columns by argument of items, except those of groups."""
        return {
            "average" if isinstance(name, Average) else role: name
            for role, name in self.items()
        }

    def with_sums(self, columns: dict[str, Any], where: Any) -> dict[str, Any]:
        """Columns by role with sums in place of averages; `where` is NumPy's or an engine's."""
        if isinstance(self.get("amount"), Average):
            average = columns["amount"]
            events = columns["events"]
            # without events an average is left to be refused
            total = where(events > 0, average * events, average)
            return columns | {"amount": total}
        return columns

    @classmethod
    def of_groups(cls, group: Any) -> "Roles":
        """Roles of what items have as ``group=``: a column, several, or None."""
        columns = list(group) if isinstance(group, list | tuple) else [group]
        if len(columns) == 1:
            return cls({} if columns[0] is None else {"group": columns[0]})
        return cls({f"group_{k}": column for k, column in enumerate(columns, 1)})

    @property
    def groups(self) -> "Roles":
        """Columns of groups, in order."""
        return Roles({role: name for role, name in self.items() if is_group(role)})

    @property
    def joined(self) -> "Roles":
        """The columns that are joined to one of labels: dates, degrees of freedom, and groups."""
        roles = ("date", "noise_df")
        return Roles({role: self[role] for role in roles if role in self} | self.groups)

    @property
    def outcomes(self) -> "Roles":
        """Columns of score and outcome."""
        return Roles(
            {r: c for r, c in self.items() if bounds_of(r) and r not in _FURTHER}
        )

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the table of items has."""
        return [name for name in self.values() if name != NO_SCORE]

    @property
    def has_score(self) -> bool:
        """True unless the items have no score."""
        return self.get("score") != NO_SCORE

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of items with these roles."""
        arguments: dict[str, Any] = {
            role: name for role, name in self.named.items() if not is_group(role)
        }
        if not self.has_score:
            arguments["score"] = None
        if columns := tuple(self.groups.values()):
            arguments["group"] = columns if len(columns) > 1 else columns[0]
        return arguments

    def only(self, *roles: str) -> "Roles":
        """Some of the roles, in this order."""
        return Roles({role: self[role] for role in roles})


def is_group(role: str) -> bool:
    """True for the role of a column of groups."""
    return role == "group" or role.startswith("group_")


def bounds_of(role: str) -> Bounds | None:
    """Bounds of a role's numbers; None for roles of ids and labels."""
    bounds = (outcome.bounds for outcome in OUTCOMES.values())
    return ChainMap(_FURTHER, *bounds).get(role)


def needs_of(role: str) -> str:
    """The required contents of a role's column, in words."""
    bounds = bounds_of(role)
    return bounds.needs if bounds else _NEEDS["group" if is_group(role) else role]


def wrong_type(role: str, dtype: "pa.DataType") -> str:
    """The type of a column in words, if it does not suit its role; else nothing."""
    import pyarrow as pa

    words = _words_of(dtype)
    if bounds := bounds_of(role):
        right = {_WHOLE, _REAL} | ({_TRUTH} if bounds.labels else set())
    elif role == "date":
        right = {_TEXT, _DAY}
        words = _ZONED if pa.types.is_timestamp(dtype) and dtype.tz else words
    else:
        right = {_TEXT, _WHOLE} | (set() if role == "id" else {_TRUTH})
    return "" if words in right or words == _EMPTY else words


def _words_of(dtype: "pa.DataType") -> str:
    """The type of a column's values in words."""
    from pyarrow import types

    if types.is_dictionary(dtype):
        return _words_of(dtype.value_type)
    tests = {
        _EMPTY: (types.is_null,),
        _TRUTH: (types.is_boolean,),
        _WHOLE: (types.is_integer,),
        _REAL: (types.is_floating, types.is_decimal),
        _TEXT: (types.is_string, types.is_large_string, types.is_string_view),
        _DAY: (types.is_date, types.is_timestamp),
        _HOUR: (types.is_temporal,),
    }
    for words, conditions in tests.items():
        if any(condition(dtype) for condition in conditions):
            return words
    return f"values of type {dtype}"


def columns_of(
    batch: "pa.RecordBatch | pa.Table", roles: Roles, joined: Roles | None = None
) -> dict[str, Any]:
    """Columns by role: numbers, whole ids, and Arrow arrays of text; null numbers are NaN.

    The role ``group`` has the labels of those that are `joined`, by default of all that can be.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    joined = roles.joined if joined is None else joined
    columns = {
        role: np.full(batch.num_rows, ONE_SCORE)
        if name == NO_SCORE
        else _read_from_arrow(role, batch[name])
        for role, name in roles.items()
        if role not in joined or bounds_of(role)
    }
    columns = roles.with_sums(columns, np.where)
    if joined:
        levels = [
            pa.array(columns[role]).cast(pa.string())
            if role in columns
            else _read_from_arrow(role, batch[name])
            for role, name in joined.items()
        ]
        columns["group"] = pc.binary_join_element_wise(*levels, CROSS)
    return columns


def _read_from_arrow(role: str, values: "pa.Array | pa.ChunkedArray") -> Any:
    import pyarrow as pa

    dtype = values.type
    if bounds := bounds_of(role):
        if pa.types.is_decimal(dtype):  # Arrow rounds twice
            values = values.cast(pa.string())
        numbers = np.asarray(values.cast(pa.float64(), safe=False))
        if bounds.whole and not pa.types.is_integer(dtype):
            numbers = near_whole(numbers)
        if bounds.infinite:
            numbers = np.where(numbers == np.inf, bounds.largest, numbers)
        # as Arrow's arrays are, for one compilation
        numbers.flags.writeable = False
        return numbers
    if role == "id" and not values.null_count:
        # only the remainder matters for folds, so no id is too large
        remainder = pa.types.is_unsigned_integer(dtype)
        ids = np.asarray(values)
        return (ids % FOLD_PRIME if remainder else ids).astype(np.int64)
    if pa.types.is_temporal(dtype):
        values = values.cast(pa.date32(), safe=False)
    return values.cast(pa.string())


# of amounts, with room for the limits of Exponential and of equal amounts
_SHAPE = Real(above=LEAST_SHAPE, below=MOST_SHAPE)


@dataclass(frozen=True, eq=False, repr=False)
class AnyItems:
    """Columns by role, for items of every kind."""

    source: Any
    _: KW_ONLY
    score: str | None
    group: str | Sequence[str] | None = None
    id: str | None = None
    fold: str | None = None
    cluster: str | None = None
    date: str | None = None
    weight: str | None = None

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if isinstance(self.group, list):
            object.__setattr__(self, "group", tuple(self.group))
        if self.is_truncated is not False:
            mark = switch(self.is_truncated, "truncated", ItemsError)
            object.__setattr__(self, "truncated", mark)
        roles = self.roles
        outcome = self.outcome
        role_of = dict[str, str]()
        y = outcome.observed
        size = outcome.size
        by_argument = roles.named
        if y in roles and size not in roles:
            option = next(name for name in ("average", y) if name in by_argument)
            raise ItemsError(
                f"{option}= needs {size}=, the column of the {outcome.words.sizes}: name both, or "
                "for items without outcomes neither"
            )
        for role, column in by_argument.items():
            name = "group" if is_group(role) else role
            # engines end a name at a null character
            if not isinstance(column, str) or not column or "\0" in column:
                raise ItemsError(f"{name}={shown(column)} must be the name of a column")
            if column in role_of:
                names = f"{role_of[column]} and {name}"
                raise ItemsError(
                    f"{names} both name the column {column!r}: each needs its own"
                )
            role_of[column] = name
        for role in ("id", "cluster"):
            if {role, "fold"} <= roles.keys():
                raise ItemsError(
                    f"give {role}=, from which folds are made, or fold=, not both"
                )
        # files may be written later, and the schema of a server takes a query
        kind = kind_of(self.source)
        if kind in ("pandas", "polars", "arrow"):
            name = "column_names" if kind == "arrow" else "columns"
            chosen(getattr(self.source, name), roles.columns)

    @property
    def roles(self) -> Roles:
        """Names of columns by role."""
        columns = {role: getattr(self, role) for role in self.outcome.bounds}
        columns |= Roles.of_groups(self.group)
        columns |= {
            role: getattr(self, role)
            for role in ("id", "fold", "cluster", "date", "weight")
        }
        columns["score"] = NO_SCORE if self.score is None else self.score
        return Roles({role: name for role, name in columns.items() if name is not None})

    @property
    def family(self) -> Family:
        """The conjugate family of their outcomes."""
        return family_of_kind(self.kind, self.options)

    @property
    def outcome(self) -> Outcome:
        """The kind of their outcomes."""
        return self.family.outcome

    @property
    def is_truncated(self) -> bool:
        """True if items with an outcome of 0 are absent."""
        return getattr(self, "truncated", False)

    @property
    def options(self) -> dict[str, float]:
        """Arguments besides the columns by role."""
        return {"truncated": True} if self.is_truncated else {}

    @property
    def has_outcomes(self) -> bool:
        """True if the items name a column of outcomes."""
        return self.outcome.observed in self.roles

    def __repr__(self) -> str:
        source = self.source if isinstance(self.source, str) else type(self.source)
        text = f"<{source.__name__}>" if isinstance(source, type) else repr(source)
        arguments = self.roles.arguments | self.options
        names = (f", {name}={value!r}" for name, value in arguments.items())
        return f"{type(self).__name__}({text}{''.join(names)})"


@dataclass(frozen=True, eq=False, repr=False)
class PoissonItems(AnyItems):
    """Items with a score and a count y ~ Poisson(theta N) in a known exposure N.

    Values, and columns of files, are read and validated when they are first used.

    Parameters
    ----------
    source : table, str or list[str]
        A pandas, Polars or Arrow table, or another object with ``__arrow_c_stream__``; a path, a
        glob (read in sorted order) or a list of Parquet or CSV files; or an Ibis table.
    score : str or None
        Column of the scores: finite numbers of any sign, from a model that never saw the item's own
        count (out of fold, or trained on earlier data). None fits one level and one spread to all
        items, or to each group.
    count : str or None
        Column of the counts: whole numbers >= 0. Items without `count` can only be scored, by
        `soc.item_posteriors`: theta given the score alone.
    exposure : str or None
        Column of the exposures: finite numbers >= 0, 0 only where the count is 0 too. Needed with
        `count`; without it only a prior with a term in exposure reads them.
    group : str or Sequence[str] or None
        Column of labels (text, whole numbers or true/false) of groups with separate statistics.
        Several such columns, ``("country", "device")``, have effects that add up.
    id : str or None
        Column of whole numbers or text that identify the items; whole numbers make folds, the same
        on every engine. An id of several rows (with `date`, of one day) is refused.
    fold : str or None
        Column of fold numbers, whole from 0 to 999, instead of folds made from ids.
    cluster : str or None
        Column of labels of clusters, such as campaigns, whose items depend on each other beyond
        their scores: `fit` then widens its bands. Folds never divide a cluster.
    date : str or None
        Column of dates, times or text YYYY-MM-DD, for separate statistics of every day: the
        calendar day as stored, without conversion of time zones.
    truncated : bool
        Whether items with a count of 0 are absent, as in tables that list what happened. Counts are
        then taken as conditional on being 1 or more, and theta is that of all items.
    weight : str or None
        Column of whole numbers >= 1: how many items, equal in every column, a row stands for.

    Raises
    ------
    ItemsError
        If roles are missing or contradict each other, or two of them name one column.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.PoissonItems("ads/*.parquet", score="t", count="clicks", exposure="views")
    PoissonItems('ads/*.parquet', score='t', count='clicks', exposure='views')

    Reports of side effects, of pairs of a drug and an effect that were reported:

    >>> reports = {"count": "reports", "exposure": "expected", "truncated": True}
    >>> soc.PoissonItems("pairs.parquet", score=None, **reports)
    PoissonItems('pairs.parquet', score=None, count='reports', exposure='expected', truncated=True)
    """

    _: KW_ONLY
    count: str | None = None
    exposure: str | None = None
    truncated: bool = False

    kind = "poisson"


@dataclass(frozen=True, eq=False, repr=False)
class NormalItems(AnyItems):
    """Items with a score and a value y ~ Normal(theta, s^2) with a known noise sd s.

    Parameters
    ----------
    source : table, str or list[str]
        As for `PoissonItems`.
    score : str or None
        As for `PoissonItems`.
    value : str or None
        Column of the values: finite numbers, up to 1e35 in size. Optional as `count` of
        `PoissonItems`.
    noise_sd : str or None
        Column of the noise sds: the standard deviations of the values about their theta, from 1e-35
        to 1e35, in the unit of the values. Needed with `value`.
    noise_df : float, str or None
        Degrees of freedom of noise sds that are themselves estimates, such as 3 for those from 4
        values, or a column of at most 200 different ones. Then the law of the true variances is
        estimated from all noise sds, and values have t distributions about their theta (Smyth
        2004). None takes noise sds as known.
    group : str or Sequence[str] or None
        As for `PoissonItems`.
    id : str or None
        As for `PoissonItems`.
    fold : str or None
        As for `PoissonItems`.
    cluster : str or None
        As for `PoissonItems`.
    date : str or None
        As for `PoissonItems`.
    weight : str or None
        As for `PoissonItems`.

    Raises
    ------
    ItemsError
        As for `PoissonItems`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.NormalItems("studies.csv", score="t", value="effect", noise_sd="se")
    NormalItems('studies.csv', score='t', value='effect', noise_sd='se')
    """

    _: KW_ONLY
    value: str | None = None
    noise_sd: str | None = None
    noise_df: float | str | None = None

    kind = "normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_df is None:
            return
        if not isinstance(self.noise_df, str):
            df = POSITIVE(self.noise_df, "noise_df", ItemsError)
            if not NOISE_DF.hold(np.array([df])):
                raise ItemsError(f"noise_df={df:g}: {NOISE_DF.needs}")
            object.__setattr__(self, "noise_df", df)
        if self.cluster is not None:
            raise ItemsError(
                "noise_df= and cluster= cannot be combined: leave one of them out"
            )

    @property
    def roles(self) -> Roles:
        """Names of columns by role."""
        df = self.noise_df
        return Roles(super().roles | ({"noise_df": df} if isinstance(df, str) else {}))

    @property
    def options(self) -> dict[str, float]:
        """Arguments besides the columns by role."""
        return {"noise_df": self.noise_df} if isinstance(self.noise_df, float) else {}


@dataclass(frozen=True, eq=False, repr=False)
class BinomialItems(AnyItems):
    """Items with a score and successes y ~ Binomial(n, theta) in a known number of trials n.

    Parameters
    ----------
    source : table, str or list[str]
        As for `PoissonItems`.
    score : str or None
        As for `PoissonItems`.
    successes : str or None
        Column of the numbers of successes: whole numbers from 0 to the item's trials, or labels
        (true and false are 1 and 0). Optional as `count` of `PoissonItems`.
    trials : str or None
        Column of the numbers of trials: whole numbers >= 0. Needed with `successes`.
    group : str or Sequence[str] or None
        As for `PoissonItems`.
    id : str or None
        As for `PoissonItems`.
    fold : str or None
        As for `PoissonItems`.
    cluster : str or None
        As for `PoissonItems`.
    date : str or None
        As for `PoissonItems`.
    truncated : bool
        As for `PoissonItems`, where items without a success are absent.
    weight : str or None
        As for `PoissonItems`.

    Raises
    ------
    ItemsError
        As for `PoissonItems`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.BinomialItems("players.csv", score="p", successes="hits", trials="at_bats")
    BinomialItems('players.csv', score='p', successes='hits', trials='at_bats')
    """

    _: KW_ONLY
    successes: str | None = None
    trials: str | None = None
    truncated: bool = False

    kind = "binomial"


@dataclass(frozen=True, eq=False, repr=False)
class AmountItems(AnyItems):
    """Items with a score and the sum of the amounts of n events, y ~ Gamma(k n, k / theta).

    Each amount has mean theta and the known shape k, whose square root is 1 over its cv.

    Parameters
    ----------
    source : table, str or list[str]
        As for `PoissonItems`.
    score : str or None
        As for `PoissonItems`.
    amount : str or None
        Column of the sums of the items' amounts: numbers > 0, and 0 for items without events.
        Optional as `count` of `PoissonItems`.
    average : str or None
        Column of the averages of the items' amounts, in place of their sums.
    events : str or None
        Column of the numbers of events: whole numbers >= 0. Needed with `amount` or `average`.
        Items of 0 events say nothing and are kept.
    shape : float or "estimate"
        Shape k of each amount, between 0.001 and 1e6, or "estimate". 1 is an Exponential. To
        estimate it the table is read at once; other rows need the number that was found.
    squares : str or None
        Column of the sums of the items' squared single amounts, for ``shape="estimate"`` alone.
    group : str or Sequence[str] or None
        As for `PoissonItems`.
    id : str or None
        As for `PoissonItems`.
    fold : str or None
        As for `PoissonItems`.
    cluster : str or None
        As for `PoissonItems`.
    date : str or None
        As for `PoissonItems`.
    weight : str or None
        As for `PoissonItems`.

    Raises
    ------
    ItemsError
        As for `PoissonItems`, if the shape is not such a number, or if squares cannot be those of
        the items' amounts.

    References
    ----------
    .. [1] Godambe (1960), An optimum property of regular maximum likelihood estimation: the
       estimate of the shape solves the optimal equation for sums of squared shares.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.AmountItems("claims.csv", score="t", amount="paid", events="claims", shape=0.8)
    AmountItems('claims.csv', score='t', amount='paid', events='claims', shape=0.8)
    >>> import pandas as pd
    >>> claims = pd.DataFrame({"t": [1, 2], "paid": [3, 9], "claims": [2, 3], "paid2": [5, 33]})
    >>> names = {"score": "t", "amount": "paid", "events": "claims", "squares": "paid2"}
    >>> print(f"{soc.AmountItems(claims, **names, shape='estimate').shape:.2f}")
    3.04
    """

    _: KW_ONLY
    amount: str | None = None
    average: str | None = None
    events: str | None = None
    shape: float | str = 1.0
    squares: str | None = None

    kind = "amount"

    def __post_init__(self) -> None:
        if None not in (self.amount, self.average):
            raise ItemsError(
                "give amount=, the sums of the events' amounts, or average=, not both"
            )
        estimated = self.shape == "estimate"
        if not estimated and self.squares is not None:
            raise ItemsError('squares= is for shape="estimate": leave it out')
        shape = 1.0 if estimated else _SHAPE(self.shape, "shape", ItemsError)
        object.__setattr__(self, "shape", shape)
        super().__post_init__()
        if estimated:
            object.__setattr__(self, "shape", self._estimated_shape())
            # other rows of the table have the same shape
            object.__setattr__(self, "squares", None)

    def _estimated_shape(self) -> float:
        amount = self.amount or self.average
        if not (self.squares and amount and self.events):
            raise ItemsError(
                'shape="estimate" needs squares=, the column of the sums of single amounts\' '
                "squares, and those of amounts and events: or give a number, 1 over the squared "
                "coefficient of variation of amounts with one mean"
            )
        averaged = self.average is not None
        return shape_of(
            self.source, amount, self.events, self.squares, averaged=averaged
        )

    @property
    def roles(self) -> Roles:
        """Names of columns by role."""
        name = self.average
        roles = super().roles
        if name is not None:
            roles["amount"] = Average(name) if isinstance(name, str) else name
        order = [role for role in self.outcome.bounds if role in roles]
        return Roles(roles.only(*order) | roles)

    @property
    def options(self) -> dict[str, float]:
        """Arguments besides the columns by role."""
        return {"shape": float(self.shape)}


Items = PoissonItems | NormalItems | BinomialItems | AmountItems

ITEMS: Mapping[str, type[Items]] = {
    items.kind: items
    for items in (PoissonItems, NormalItems, BinomialItems, AmountItems)
}
ANY_ITEMS = " or ".join(f"soc.{items.__name__}(...)" for items in ITEMS.values())


def check_items(value: object, name: str = "items") -> Items:
    """Refuse arguments that are not items."""
    return A(Items, f"{ANY_ITEMS} of a table", ItemsError)(value, name)


def check_outcomes(value: object, name: str = "items") -> Items:
    """Refuse arguments that are not items with outcomes."""
    items = check_items(value, name)
    if not items.has_outcomes:
        outcome = items.outcome
        raise ItemsError(
            f"{name} name no column of {outcome.words.outcomes}: give them {outcome.observed}= and "
            f"{outcome.size}= (without these they can only be scored, by soc.item_posteriors)"
        )
    return items


@dataclass(frozen=True, eq=False)
class Grouping:
    """One column of groups, with the level of every group of the statistics."""

    # its role, which names variables and dims: "group", or "group_1", "group_2"
    name: str
    column: str
    levels: tuple[str, ...]  # sorted
    code: Ints  # of the level of each group


def grouping_dims(names: Iterable[Any]) -> list[str]:
    """Dims of the levels of groups among names; besides several, group has their combinations."""
    dims = sorted(filter(is_group, map(str, names)), key=lambda name: (len(name), name))
    return [name for name in dims if name != "group"] or dims


def label_of(levels: object) -> str:
    """A group's label from its levels, or from the label itself; None is not a level."""
    if isinstance(levels, list | tuple):
        return CROSS.join(MARK if level is None else str(level) for level in levels)
    return str(levels)


def groupings_of(
    attrs: Mapping[Any, Any], labels: Sequence[str]
) -> tuple[Grouping, ...]:
    """Groupings of labels of groups, from the roles in the attributes of a fit or of statistics."""
    roles = Roles.of(attrs).groups
    if not labels or not roles:
        return ()
    parts = [[label] if len(roles) == 1 else label.split(CROSS) for label in labels]
    groupings = []
    for (name, column), part in zip(
        roles.items(), zip(*parts, strict=True), strict=True
    ):
        levels, codes = np.unique(np.array(part, dtype=object), return_inverse=True)
        groupings.append(
            Grouping(name, column, tuple(map(str, levels)), codes.astype(np.int64))
        )
    return tuple(groupings)


def is_day(text: str) -> bool:
    """True if a text is a calendar day."""
    return bool(re.match(DAY, text)) and not text.endswith("\n")


def days_in(length: object, name: str) -> int:
    """Number of days of a length such as "28d" (as a rule of arguments)."""
    if isinstance(length, str) and (matched := re.fullmatch(r"([1-9]\d*)d", length)):
        return int(matched[1])
    raise StatisticsError(
        f'{name}={shown(length)} must be a number of days, such as "28d"'
    )


def day(value: object, name: str) -> np.datetime64:
    """A day from a date, or from text (as a rule of arguments)."""
    text = str(value)
    if isinstance(value, np.datetime64) and value == value.astype("datetime64[D]"):
        text = str(value.astype("datetime64[D]"))
    if not is_day(text):
        raise StatisticsError(
            f'{name}={shown(value)} must be a day, such as "2026-03-31"'
        )
    return np.datetime64(text, "D")
