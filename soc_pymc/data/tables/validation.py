"""What columns must hold, and every way in which a row may be bad, as Ibis expressions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...families.validity import LARGEST, LARGEST_COUNT, LARGEST_VALUE, LEAST_SD
from ..folds import FOLD_PRIME
from .reading import MOST_FOLDS

__all__ = ["Problem", "needs", "numbers", "problems_of", "typed", "wrong_type"]

_LABELS = {
    "group": "groups must be labels: text, whole numbers or true/false",
    "id": "ids must be whole numbers (or give fold= a column of fold numbers)",
}


@dataclass(frozen=True)
class _Rule:
    """What numbers of one role must be.

    Attributes
    ----------
    needs
        The rule in words.
    largest, beyond
        Largest size, and what to call those that are beyond.
    least
        The least number; None for numbers of any sign.
    whole
        Whether they must be whole.
    """

    needs: str
    largest: float = LARGEST
    beyond: str = f"beyond {LARGEST:g} in size"
    least: float | None = None
    whole: bool = False


_BEYOND = f"beyond {LARGEST_VALUE:g} in size"
_NUMBERS = {
    "score": _Rule("scores must be finite numbers"),
    "count": _Rule(
        "counts must be whole numbers >= 0", LARGEST_COUNT, "2^53 or more", 0.0, whole=True
    ),
    "exposure": _Rule("exposures must be finite numbers >= 0", least=0.0),
    "value": _Rule("values must be finite numbers", LARGEST_VALUE, _BEYOND),
    "noise_sd": _Rule("noise sds must be finite numbers > 0", LARGEST_VALUE, _BEYOND, LEAST_SD),
    "fold": _Rule(
        f"folds must be whole numbers from 0 to {MOST_FOLDS - 1}",
        MOST_FOLDS - 1.0,
        f"larger than {MOST_FOLDS - 1}",
        0.0,
        whole=True,
    ),
}


def needs(role: str) -> str:
    """What the column of a role must hold, in words."""
    return _LABELS[role] if role in _LABELS else _NUMBERS[role].needs


def wrong_type(role: str, dtype: Any) -> str | None:
    """What a column holds if it does not hold what its role needs."""
    if role == "group":
        right = dtype.is_string() or dtype.is_integer() or dtype.is_boolean() or dtype.is_null()
    elif role == "id":
        right = dtype.is_integer() or dtype.is_null()
    else:
        right = (dtype.is_numeric() and not dtype.is_boolean()) or dtype.is_null()
    if right:
        return None
    if dtype.is_boolean():
        return "true/false values"
    if dtype.is_string():
        return "text"
    if dtype.is_temporal() or dtype.is_interval() or _is_polars_time(dtype):
        return "dates or times"
    if dtype.is_numeric():
        return "numbers with fractions"
    return f"values of type {dtype}"


def _is_polars_time(dtype: Any) -> bool:
    """Whether Ibis met a time of day in nanoseconds, for which it has no type."""
    return "TIME_NS" in str(dtype)


def numbers(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as they are read: numbers as float64, ids as int64, groups as text."""
    read = {}
    for role, column in columns.items():
        if role in _NUMBERS:
            read[role] = column.cast("float64")
        elif role == "id":
            # of folds only the remainder matters, and no id is too large for it
            large = column.type().is_unsigned_integer()
            read[role] = (column % FOLD_PRIME if large else column).cast("int64")
        elif column.type().is_boolean():
            read[role] = column.ifelse("true", "false")  # engines write these words differently
        else:
            read[role] = column.cast("string")
    return read


def typed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Valid items: counts and folds as int64 (by float64, as decimals may not fit)."""
    found = numbers(columns)
    for role in {"count", "fold"} & found.keys():
        is_whole = columns[role].type().is_int64()
        found[role] = columns[role] if is_whole else found[role].cast("int64")
    return found


@dataclass(frozen=True)
class Problem:
    """One way in which rows may be bad.

    Attributes
    ----------
    condition
        Ibis expression, true on bad rows.
    role, column
        Whose values are bad.
    what
        What they are, such as "negative".
    show
        Whether the bad values say anything.
    """

    condition: Any
    role: str
    column: str
    what: str
    show: bool


def problems_of(raw: Any, roles: Mapping[str, str]) -> list[Problem]:
    """Every way in which a row may be bad; a row's value is judged by the first that applies.

    Parameters
    ----------
    raw
        Table of the columns by role, as `numbers` reads them.
    roles
        Names of the user's columns by role.
    """
    problems: list[Problem] = []
    clean: dict[str, Any] = {}
    usable: dict[str, Any] = {}
    for role, name in roles.items():
        value = raw[role]
        if role not in _NUMBERS:
            problems.append(Problem(value.isnull(), role, name, "missing (null)", show=False))
            continue
        rule = _NUMBERS[role]
        missing = value.fill_null(float("nan")).isnan()
        known = missing.ifelse(0.0, value)
        infinite = known.abs() == float("inf")  # not every engine's isinf is right
        clean[role] = infinite.ifelse(0.0, known)
        usable[role] = ~(missing | infinite)
        size = clean[role].abs() if rule.least is None else clean[role]
        beyond = size > rule.largest
        problems += [
            Problem(missing, role, name, "missing (null or NaN)", show=False),
            Problem(infinite, role, name, "infinite", show=True),
            Problem(beyond, role, name, rule.beyond, show=True),
        ]
        if rule.least is not None:
            problems.append(Problem(clean[role] < 0, role, name, "negative", show=True))
        if rule.least:
            small = (clean[role] >= 0) & (clean[role] < rule.least) & usable[role]
            what = f"0 or below {rule.least:g}"
            problems.append(Problem(small, role, name, what, show=True))
    for role in roles:
        if role in _NUMBERS and _NUMBERS[role].whole:
            safe = (clean[role].abs() > LARGEST_COUNT).ifelse(0.0, clean[role])
            fraction = safe != safe.floor()
            problems.append(Problem(fraction, role, roles[role], "not whole", show=True))
    if "count" in roles:
        unseen = (clean["count"] > 0) & (clean["exposure"] == 0) & usable["exposure"]
        what = f"positive where column {roles['exposure']!r} is 0"
        problems.append(Problem(unseen, "count", roles["count"], what, show=True))
    return problems
