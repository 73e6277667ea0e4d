"""Roles of the columns of items: their names, what their values must be, and how they are read."""

import json
from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..families import OUTCOMES
from ..families.scales import Bounds
from .formulas import FOLD_PRIME, MOST_FOLDS, near_whole

if TYPE_CHECKING:
    import pyarrow as pa

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
    "id": "ids must be whole numbers or text (folds may also be a column, fold=)",
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


class Roles(dict[str, str]):
    """Names of columns by role; several columns of groups have the roles group_1, group_2, ..."""

    @classmethod
    def of(cls, attrs: Mapping[Any, Any]) -> "Roles":
        """Roles in the attributes of a fit or of statistics."""
        return cls(json.loads(attrs.get("roles", "{}")))

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
    def heading(self) -> str:
        """Columns of groups as one name, for messages and headings."""
        return CROSS.join(self.groups.values())

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of items with these roles."""
        arguments: dict[str, Any] = {
            role: name for role, name in self.items() if not is_group(role)
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
        # as Arrow's arrays are, for one compilation
        numbers.flags.writeable = False
        return numbers
    if role == "id" and not values.null_count:
        # only the remainder matters for folds, so no id is too large
        remainder = pa.types.is_unsigned_integer(dtype)
        ids: NDArray[Any] = np.asarray(values)
        return (ids % FOLD_PRIME if remainder else ids).astype(np.int64)
    if pa.types.is_temporal(dtype):
        values = values.cast(pa.date32(), safe=False)
    return values.cast(pa.string())
