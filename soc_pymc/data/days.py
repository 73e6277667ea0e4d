"""Days of dated statistics: their labels, windows of them, and weights that fall with age.

The date is one more column of groups, the first: the label of a group begins with its day. So
neither kernels nor engines know of days.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arguments import Refusal, shown
from .._lib.errors import StatisticsError
from .groups import CROSS

Days = NDArray[np.datetime64]

MOST_DAYS = 4000

_LEAP = r"(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
_SHORT, _LONG = r"02-(0[1-9]|1\d|2[0-8])", r"(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])"
_MONTH = r"(0[469]|11)-(0[1-9]|[12]\d|30)"
DAY = rf"^(\d{{4}}-({_SHORT}|{_MONTH}|{_LONG})|{_LEAP})$"
"""Pattern of a calendar day YYYY-MM-DD, as engines read it."""

_LENGTH = re.compile(r"([1-9]\d*)d")
_IS_DAY = re.compile(DAY)


def is_day(text: str) -> bool:
    """True if a text is a calendar day."""
    return bool(_IS_DAY.match(text)) and not text.endswith("\n")


def days_of(labels: Sequence[str]) -> Days:
    """The day of each label of dated statistics."""
    return np.array([label.partition(CROSS)[0] for label in labels], dtype="datetime64[D]")


def without_day(label: str) -> str:
    """The part of such a label after its day: the group's label, or nothing."""
    return label.partition(CROSS)[2]


def days_in(length: Any, name: str, error: Refusal = StatisticsError) -> int:
    """Number of days of a length such as "28d" (as a rule of arguments)."""
    matched = _LENGTH.fullmatch(length) if isinstance(length, str) else None
    if not matched:
        raise error(f'{name}={shown(length)} must be a number of days, such as "28d"')
    return int(matched[1])


def day(value: Any, name: str, error: Refusal = StatisticsError) -> np.datetime64:
    """A day from a date, or from text (as a rule of arguments)."""
    text = str(value)
    if isinstance(value, np.datetime64) and value == value.astype("datetime64[D]"):
        text = str(value.astype("datetime64[D]"))
    if not is_day(text):
        raise error(f'{name}={shown(value)} must be a day, such as "2026-03-31"')
    return np.datetime64(text, "D")
