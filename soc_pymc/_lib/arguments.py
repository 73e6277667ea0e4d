"""Rules that check arguments; an error names the argument, its value, and what it must be.

A rule takes a value, the user's name for it, and the error class. It returns the value, possibly
converted (NumPy's 3 becomes Python's), or raises the error. Rules are objects (``Whole(1)``,
``Real(above=0, below=1)``, ``OneOf("log", "rank")``, ``A(Fit, "a fit, from soc.fit")``,
``OrNone(Whole(0))``) or functions (`switch`, `path_of`, `names_of`, `numbers_of`). A function, or a
frozen dataclass, has one table of rules::

    @checked(fit=FIT, bins=OrNone(Whole(1)), seed=SEED, progress=switch)
    def check(fit, bins=None, *, seed=0, progress=True): ...

    @checked(StatisticsError, draws=DRAWS, seed=SEED)
    @dataclass(frozen=True)
    class Method: ...

Rules run in the order of the arguments, before the body (or before ``__post_init__``), which gets
the returned values. Defaults are trusted. The error is FitError, or the class given first; ``A(...,
error=ItemsError)`` overrides it. Signatures, docstrings and static types are unchanged. The body
checks conditions on two arguments, and may call a rule: ``SEED(seed, "seed")``.
"""

import functools
import inspect
import math
import numbers
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from .errors import FitError, SocError

_LARGEST_WHOLE = 2**128  # the largest seed
_LONGEST = 60  # characters of a value that an error shows
MOST_DRAWS = 10_000_000
"""Largest number of draws, iterations or sums in one call; more exceed any memory."""

Refusal = type[SocError]


def shown(value: object) -> str:
    """A value as errors show it: on one line, shortened if it is long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an object's own repr may fail, and Python refuses 5,000 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def digits(value: float) -> str:
    """A number with as many digits as tell it apart from every other one."""
    return repr(float(value)).removesuffix(".0")


# --- rules ---------------------------------------------------------------------------------------


class Rule(Protocol):
    """A check of one value."""

    def __call__(self, value: Any, name: str, error: Refusal = ..., /) -> Any:
        """Return the value, perhaps converted, or raise the error with the name in its text."""


@dataclass(frozen=True)
class Whole:
    """A whole number, of Python or NumPy, from `least` to `most`, but not a bool."""

    least: int
    most: int | None = None

    def __call__(self, value: Any, name: str, error: Refusal = FitError, /) -> int:
        good = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        most = _LARGEST_WHOLE if self.most is None else self.most
        if good and self.least <= value <= most:
            return int(value)
        if self.most is not None:
            wanted = f"from {self.least:,} to {self.most:,}"
        else:
            wanted = f"of at least {self.least:,}"
            if good and value > self.least:
                wanted += " and at most 2^128"
        raise error(f"{name}={shown(value)} must be a whole number {wanted}")


@dataclass(frozen=True)
class Real:
    """A finite number, strictly between two others, but not a bool."""

    above: float = -math.inf
    below: float = math.inf

    def __call__(self, value: Any, name: str, error: Refusal = FitError, /) -> float:
        good = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if good and _is_finite(value) and self.above < value < self.below:
            return float(value)
        if math.isfinite(self.above) and math.isfinite(self.below):
            wanted = f"number between {self.above:g} and {self.below:g}"
        else:
            wanted = "finite number" + (f" > {self.above:g}" if math.isfinite(self.above) else "")
        raise error(f"{name}={shown(value)} must be a {wanted}")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of more than 308 digits
        return False


@dataclass(frozen=True, init=False)
class OneOf:
    """One of some words."""

    options: tuple[str, ...]

    def __init__(self, *options: str) -> None:
        object.__setattr__(self, "options", options)

    def __call__(self, value: Any, name: str, error: Refusal = FitError, /) -> str:
        if isinstance(value, str) and value in self.options:
            return value
        *others, last = map(repr, self.options)
        raise error(f"{name}={shown(value)} must be {', '.join(others)} or {last}")


@dataclass(frozen=True)
class A:
    """An instance of one or several types; `wanted` describes it in the error."""

    types: Any
    wanted: str
    error: Refusal | None = None

    def __call__(self, value: Any, name: str, error: Refusal = FitError, /) -> Any:
        if isinstance(value, self.types):
            return value
        what = f"{value.__name__} itself" if isinstance(value, type) else type(value).__name__
        raise (self.error or error)(f"{name} must be {self.wanted}, not {what}")


@dataclass(frozen=True)
class OrNone:
    """None, or a value that satisfies a rule."""

    rule: Rule

    def __call__(self, value: Any, name: str, error: Refusal = FitError, /) -> Any:
        return None if value is None else self.rule(value, name, error)


SEED = Whole(0)
DRAWS = Whole(1, MOST_DRAWS)
POSITIVE = Real(above=0)
PROBABILITY = Real(above=0, below=1)


def switch(value: Any, name: str, error: Refusal = FitError) -> bool:
    """True or False, of Python or NumPy."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise error(f"{name}={shown(value)} must be True or False")


def path_of(value: Any, name: str = "path", error: Refusal = FitError) -> str:
    """The name of a file or folder as text, from str or `pathlib.Path`, not empty, without NUL."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise error(f"{name}={shown(value)} must be the name of a file, as str or pathlib.Path")
    if "\0" in text:
        raise error(f"{name}={shown(value)} holds a NUL character: leave it out")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as fault:
        letter = text[fault.start]
        raise error(
            f"{name}={shown(value)} holds {letter!a}, which file names cannot contain here: "
            "give another name"
        ) from None
    return text


def names_of(value: Any, name: str, error: Refusal = FitError) -> list[str]:
    """Names of columns: one, or several in a list."""
    given = [value] if isinstance(value, str) else value
    if isinstance(given, list | tuple) and all(isinstance(each, str) and each for each in given):
        return list(given)
    raise error(f"{name}={shown(value)} must be the name of a column, or a list of names")


def numbers_of(
    value: Any, name: str, error: Refusal = FitError, wanted: str = "numbers"
) -> NDArray[np.float64]:
    """A number or an array of numbers as float64, but not text, dates or bools."""
    try:
        array = np.asarray(value)
        # NumPy would also convert text, dates, bools and None to numbers
        if value is None or (array.size and array.dtype.kind not in "iufO"):
            raise TypeError
        return np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise error(f"{name}={shown(value)} must be {wanted}") from None


# --- tables of rules -----------------------------------------------------------------------------


def checked[T: Callable[..., Any]](error: Refusal = FitError, /, **rules: Rule) -> Callable[[T], T]:
    """Decorate a function or a frozen dataclass with the rules of its arguments, by name.

    Examples
    --------
    >>> @checked(n=Whole(1), axis=OrNone(OneOf("log", "rank")))
    ... def knots(n, *, axis=None):
    ...     return n, axis
    >>> knots(np.int64(3))
    (3, None)
    >>> knots(3, axis="sqrt")
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: axis='sqrt' must be 'log' or 'rank'
    """

    def decorate(made: T) -> T:
        if isinstance(made, type):
            made.__init__ = _checking(made.__init__, rules, error)  # type: ignore[misc]
            return made
        return cast(T, _checking(made, rules, error))

    return decorate


def _checking(function: Any, rules: Mapping[str, Rule], error: Refusal) -> Any:
    """The function, called with the values that the rules return."""
    code = inspect.unwrap(function).__code__  # faster than inspect.signature
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if unknown := rules.keys() - set(names):
        raise TypeError(f"{function.__qualname__} has no argument {min(unknown)!r}")
    ordered = [(at, name, rules[name]) for at, name in enumerate(names) if name in rules]

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        values = list(args)
        for at, name, rule in ordered:
            if at < len(values):
                values[at] = rule(values[at], name, error)
            elif name in given:
                given[name] = rule(given[name], name, error)
        return function(*values, **given)

    return call


# --- several arguments, and memory ---------------------------------------------------------------


def many(given: Mapping[str, Any], error: Refusal = FitError) -> tuple[NDArray[np.float64], ...]:
    """Arrays of numbers by name, whose shapes broadcast."""
    arrays = tuple(numbers_of(value, name, error) for name, value in given.items())
    try:
        np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise error(
            f"{' and '.join(given)} have the shapes {shapes}: give one of each for every item"
        ) from None
    return arrays


def refuse_beyond_memory(size: float, what: str, remedy: str, error: Refusal = FitError) -> None:
    """Refuse `size` bytes beyond this machine's memory; the error names cause and remedy."""
    have = _memory()
    if size > have:
        raise error(
            f"{what} take {size / 1e9:,.0f} GB, and this machine has {have / 1e9:,.0f} GB of "
            f"memory: {remedy}"
        )


def _memory() -> float:
    """Bytes of memory, if the system reports them."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows
        return math.inf
