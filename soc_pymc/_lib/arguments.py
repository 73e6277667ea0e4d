"""Plain arguments checked: one sentence that names the argument, what it was, and what it must be.

Every check takes the value, the name under which the user gave it, and the error to raise.
"""

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import FitError, SocError

__all__ = [
    "MOST_DRAWS",
    "Refusal",
    "choice",
    "instance",
    "many",
    "names_of",
    "numbers_of",
    "path_of",
    "real",
    "refuse_beyond_memory",
    "shown",
    "switch",
    "whole",
]

_LARGEST_WHOLE = 2**128  # seeds hold no more; beyond 4,300 digits Python itself writes none
_LONGEST = 60  # characters of a value that an error shows
MOST_DRAWS = 10_000_000
"""Draws, iterations or sums asked for at once; beyond it no machine has the memory."""

Refusal = type[SocError]


def shown(value: object) -> str:
    """A value as errors show it: on one line, and cut where it is long.

    Examples
    --------
    >>> shown("a" * 100)[-9:]
    'aaaaaa...'
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # whatever the user's object makes of it; Python itself refuses 5,000 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def whole(
    value: Any, name: str, least: int, error: Refusal = FitError, most: int | None = None
) -> int:
    """A whole number, of Python or NumPy; true and false are none.

    Examples
    --------
    >>> whole(3, "bins", 1)
    3
    >>> whole(2.5, "bins", 1)
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: bins=2.5 must be a whole number of at least 1
    """
    good = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if good and least <= value <= (_LARGEST_WHOLE if most is None else most):
        return int(value)
    words = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    if good and most is None and value > least:
        words += " and at most 2^128"
    raise error(f"{name}={shown(value)} must be a whole number {words}")


def real(
    value: Any,
    name: str,
    error: Refusal = FitError,
    *,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """A finite number, strictly between two others; true and false are none.

    Examples
    --------
    >>> real(0.9, "prob", above=0, below=1)
    0.9
    >>> real(float("nan"), "prob", above=0, below=1)
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: prob=nan must be a number between 0 and 1
    """
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if good and _is_finite(value) and above < value < below:
        return float(value)
    if math.isfinite(above) and math.isfinite(below):
        words = f"number between {above:g} and {below:g}"
    else:
        words = f"finite number > {above:g}" if math.isfinite(above) else "finite number"
    raise error(f"{name}={shown(value)} must be a {words}")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of more than 308 digits
        return False


def choice(value: Any, name: str, options: Sequence[str], error: Refusal = FitError) -> str:
    """One of some words.

    Examples
    --------
    >>> choice("any", "draws", ("all", "representative"))
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: draws='any' must be 'all' or 'representative'
    """
    if isinstance(value, str) and value in options:
        return value
    words = [repr(option) for option in options]
    raise error(f"{name}={shown(value)} must be {', '.join(words[:-1])} or {words[-1]}")


def switch(value: Any, name: str, error: Refusal = FitError) -> bool:
    """True or False, of Python or NumPy."""
    if isinstance(value, bool) or (type(value).__name__ == "bool" and hasattr(value, "dtype")):
        return bool(value)
    raise error(f"{name}={shown(value)} must be True or False")


def instance(value: Any, name: str, types: Any, wanted: str, error: Refusal = FitError) -> None:
    """Refuse what is not of the types; `wanted` says what to give instead.

    Examples
    --------
    >>> instance("fit.nc", "fit", dict, "a fit: soc.load_fit(path) reads one")
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: fit must be a fit: soc.load_fit(path) reads one, not str
    """
    if not isinstance(value, types):
        what = value.__name__ + " itself" if isinstance(value, type) else type(value).__name__
        raise error(f"{name} must be {wanted}, not {what}")


def path_of(value: Any, name: str = "path", error: Refusal = FitError) -> str:
    """The name of a file or folder as text: of str or `pathlib.Path`, not empty, without NUL.

    Examples
    --------
    >>> path_of(b"fit.nc")
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: path=b'fit.nc' must be the name of a file, as str or pathlib.Path
    """
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
            f"{name}={shown(value)} holds {letter!a}, which names of files cannot hold here: "
            "give another name"
        ) from None
    return text


def names_of(value: Any, name: str, error: Refusal = FitError) -> list[str]:
    """Names of columns: one, or several in a list.

    Examples
    --------
    >>> names_of("country", "by"), names_of(("a", "b"), "by")
    (['country'], ['a', 'b'])
    """
    given = [value] if isinstance(value, str) else value
    if isinstance(given, list | tuple) and all(isinstance(each, str) and each for each in given):
        return list(given)
    raise error(f"{name}={shown(value)} must be the name of a column, or a list of names")


def numbers_of(
    value: Any, name: str, error: Refusal = FitError, wanted: str = "numbers"
) -> NDArray[np.float64]:
    """A number or an array of numbers as float64; words, dates and switches are none.

    Examples
    --------
    >>> numbers_of([1, 2.5], "score")
    array([1. , 2.5])
    >>> numbers_of("ten", "score")
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: score='ten' must be numbers
    """
    try:
        array = np.asarray(value)
        # NumPy would make numbers of words, dates, switches and nothing too
        if value is None or (array.size and array.dtype.kind not in "iufO"):
            raise TypeError
        return np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise error(f"{name}={shown(value)} must be {wanted}") from None


def many(given: Mapping[str, Any], error: Refusal = FitError) -> tuple[NDArray[np.float64], ...]:
    """Arrays of numbers by name, of shapes that go together as NumPy has it.

    Examples
    --------
    >>> many({"count": [0, 1], "exposure": 2.0})
    (array([0., 1.]), array(2.))
    >>> many({"y": [0, 1], "N": [1, 2, 3]})
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: y and N have the shapes (2,) and (3,): give one of each for every item
    """
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
    """Refuse what has more bytes than this machine has memory, before any is taken.

    Parameters
    ----------
    size
        Bytes of it.
    what, remedy
        What takes them, and what to do.
    error
        The error to raise.

    Examples
    --------
    >>> refuse_beyond_memory(8e3, "1,000 draws", "ask for fewer")
    """
    have = _memory()
    if size > have:
        raise error(
            f"{what} take {size / 1e9:,.0f} GB, and this machine has {have / 1e9:,.0f} GB of "
            f"memory: {remedy}"
        )


def _memory() -> float:
    """Bytes of memory, where the system says."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows
        return math.inf
