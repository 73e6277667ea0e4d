"""Errors and warnings of the package, and checks of arguments.

An error names the argument, its value, and what it must be. A rule is a function of a value, its
name, and the class of errors: it returns the value, perhaps converted (NumPy's 3 becomes Python's),
or raises.
"""

import math
import numbers
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PACKAGE = str(Path(__file__).parents[1])

_LONGEST = 60  # characters of a value that an error shows
# draws, iterations or sums in one call; more exceed any memory
MOST_DRAWS = 10_000_000

BOOLEAN = bool | np.bool_


class SocError(Exception):
    """Base class of all errors that soc_pymc raises on purpose."""


class ItemsError(SocError, ValueError):
    """A table of items cannot be used."""


class StatisticsError(SocError, ValueError):
    """Statistics cannot be combined, saved or loaded."""


class FitError(SocError, ValueError):
    """A model cannot be built, fitted or evaluated."""


class ItemsWarning(UserWarning):
    """The items can be used, but need attention."""


class ConvergenceWarning(UserWarning):
    """A fit has not converged, or its approximation cannot be trusted; the text says why."""


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn with the location of the user's call, the first line outside this package."""
    warnings.warn(text, category, skip_file_prefixes=(_PACKAGE,))


for _class in (
    SocError,
    ItemsError,
    StatisticsError,
    FitError,
    ItemsWarning,
    ConvergenceWarning,
):
    _class.__module__ = "soc_pymc"  # in tracebacks


Refusal = type[SocError]
Rule = Callable[..., Any]


def shown(value: object) -> str:
    """A value as errors show it: on one line, shortened if it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def convert_fields(record: Any, **rules: Rule) -> None:
    """Check fields of a frozen dataclass by rules, and put the converted values in their places."""
    for name, rule in rules.items():
        object.__setattr__(record, name, rule(getattr(record, name), name))


def Whole(least: int, most: float = math.inf) -> Rule:
    """A whole number, of Python or NumPy, from `least` to `most`, but not a bool."""

    def rule(value: Any, name: str, error: Refusal = FitError) -> int:
        is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if is_whole and least <= value <= most:
            return int(value)
        limits = f"from {least:,} to {most:,}"
        if most == math.inf:
            limits = f"of at least {least:,}"
        raise error(f"{name}={shown(value)} must be a whole number {limits}")

    return rule


def Real(above: float = -math.inf, below: float = math.inf) -> Rule:
    """A finite number, strictly between two others, but not a bool."""

    def rule(value: Any, name: str, error: Refusal = FitError) -> float:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if is_number and math.isfinite(value) and above < value < below:
            return float(value)
        limits = "finite number" + (f" > {above:g}" if math.isfinite(above) else "")
        if math.isfinite(below):
            limits = f"number between {above:g} and {below:g}"
        raise error(f"{name}={shown(value)} must be a {limits}")

    return rule


def A(types: Any, expected: str, refusal: Refusal | None = None) -> Rule:
    """An instance of one or several types; `expected` describes it in the error."""

    def rule(value: object, name: str, error: Refusal = FitError) -> Any:
        if isinstance(value, types):
            return value
        what = (
            f"{value.__name__} itself"
            if isinstance(value, type)
            else type(value).__name__
        )
        raise (refusal or error)(f"{name} must be {expected}, not {what}")

    return rule


def OneOf(*options: str) -> Rule:
    """One of some words."""

    def rule(value: object, name: str, error: Refusal = FitError) -> str:
        if isinstance(value, str) and value in options:
            return value
        *others, final = map(repr, options)
        raise error(f"{name}={shown(value)} must be {', '.join(others)} or {final}")

    return rule


def OrNone(rule: Rule) -> Rule:
    """None, or a value that satisfies a rule."""
    return lambda value, *context: None if value is None else rule(value, *context)


def switch(value: object, name: str, error: Refusal = FitError) -> bool:
    """True or False, of Python or NumPy."""
    if isinstance(value, BOOLEAN):
        return bool(value)
    raise error(f"{name}={shown(value)} must be True or False")


SEED = Whole(0)
DRAWS = Whole(1, MOST_DRAWS)
POSITIVE = Real(above=0)
PROBABILITY = Real(above=0, below=1)


def path_of(value: object, name: str, error: Refusal = FitError) -> str:
    """The name of a file or folder as text, from str or `pathlib.Path`."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if isinstance(text, str) and text and "\0" not in text:
        return text
    raise error(
        f"{name}={shown(value)} must be the name of a file, as str or pathlib.Path"
    )


def names_of(value: object, name: str, error: Refusal = FitError) -> list[str]:
    """Names of columns: one, or several in a list."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple) and all(
        isinstance(text, str) and text for text in names
    ):
        return list(names)
    raise error(
        f"{name}={shown(value)} must be the name of a column, or a list of names"
    )


def numbers_of(
    value: Any, name: str, error: Refusal = FitError, expected: str = "numbers"
) -> NDArray[np.float64]:
    """A number or an array of numbers as float64, but not text, dates or bools."""
    try:
        array = np.asarray(value)
        # NumPy would also convert text, dates, bools and None to numbers
        if value is None or (array.size and array.dtype.kind not in "iufO"):
            raise TypeError
        return np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise error(f"{name}={shown(value)} must be {expected}") from None


def per_item(
    value: Any, name: str, n: int, error: Refusal = FitError
) -> NDArray[np.float64]:
    """Numbers, (n,), from one number for all items, or one for each."""
    expected = "a number, or one for each"
    array = numbers_of(value, name, error, expected)
    if array.shape not in ((), (n,)):
        raise error(f"{name} has the shape {array.shape}: give {expected} of {n:,}")
    return np.array(np.broadcast_to(array, n))


def refuse_beyond_memory(size: float, what: str, remedy: str) -> None:
    """Refuse `size` bytes beyond this machine's memory; the error names cause and remedy."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return
    if size > memory:
        needs = f"{what} take {size / 1e9:,.0f} GB"
        raise FitError(
            f"{needs}, and this machine has {memory / 1e9:,.0f} GB of memory: {remedy}"
        )
