"""Validity of items: one declaration of bounds, from which all forms of the check are made.

`Bounds` are for the numbers of one role; `Validity` combines those of an item. NumPy and Ibis use
the bounds, compiled loops a function generated from them.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np

from .._lib.arrays import Floats

LARGEST_COUNT = 2.0**53 - 1.0
"""Largest size of whole numbers that are exact in float64, and that no larger one is rounded to."""
LARGEST = 1e90
"""Largest score or exposure: third powers, times a count, must stay finite."""
LARGEST_VALUE = 1e35
"""Largest value or noise sd: y^2 s^6, summed over all items, must stay finite."""
LEAST_SD = 1e-35
"""Smallest noise sd: y^2 s^6 must not vanish for y of at least this size."""

_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@dataclass(frozen=True)
class Bounds:
    """Bounds on the numbers of one role; missing and infinite ones are never valid."""

    needs: str  # the rule, as in errors
    largest: float = LARGEST  # in size
    least: float | None = None  # None: numbers of either sign
    whole: bool = False
    name_of_largest: str = ""  # description of too large numbers in errors
    labels: bool = False  # true and false are valid too, as 1 and 0
    negligible: float = 0.0  # smaller numbers count as 0 in powers and products

    @property
    def beyond(self) -> str:
        """Description of numbers larger than the largest."""
        return self.name_of_largest or f"beyond {self.largest:g} in size"

    def is_whole(self, column: Any) -> Any:
        """Whether numbers of an Ibis column without NaN are whole, if they must be."""
        return column == column.floor() if self.whole else True

    def source(self, name: str) -> str:
        """The rule as Python source; every comparison with NaN is false."""
        low = f"{self.least!r} <= {name}" if self.least is not None else f"abs({name})"
        fraction = f" and {name} == math.floor({name})" if self.whole else ""
        return f"{low} <= {self.largest!r}{fraction}"


@dataclass(frozen=True)
class Validity:
    """Which items of one kind are valid."""

    score: Bounds
    outcome: Bounds
    size: Bounds
    # f(y, x), true if outcome and size exclude each other, in operators for numbers, arrays and
    # columns of engines
    conflict: Callable[[Any, Any], Any] | None = None
    conflict_words: str = ""  # description of such an outcome; {size} is the size's column

    @cached_property
    def is_valid(self) -> Any:
        """Compiled f(t, y, x): whether one item is valid."""
        rules = [
            bounds.source(name)
            for name, bounds in (("t", self.score), ("y", self.outcome), ("x", self.size))
        ]
        rules += ["not conflict(y, x)"] if self.conflict else []
        names = {"conflict": _compiled(self.conflict)} if self.conflict else {}
        source = f"def {{name}}(t, y, x):\n    return {' and '.join(rules)}"
        return generated("is_valid", source, __file__, names)

    @cached_property
    def are_valid(self) -> Any:
        """Compiled f(score, outcome, size): whether all items are valid."""
        return generated("are_valid", _ARE_VALID, __file__, {"is_valid": self.is_valid})


_ARE_VALID = """
def {name}(t, y, x):
    good = True
    for i in range(len(t)):
        good &= is_valid(t[i], y[i], x[i])
    return good
"""


def generated(what: str, source: str, file: str, names: Mapping[str, Any]) -> Any:
    """A compiled function from a generated source, in which its name is {name}.

    The final name depends on the source, so that Numba's cache, kept with the module's `file`,
    distinguishes sources.
    """
    known = source + "".join(sorted(getattr(v, "__name__", "") for v in names.values()))
    name = f"{what}_{hashlib.sha256(known.encode()).hexdigest()[:16]}"
    namespace: dict[str, Any] = {"math": math, "__name__": __name__, **names}
    exec(compile(source.strip().format(name=name), file, "exec"), namespace)
    return _compiled(namespace[name])


def positive_without_size(y: Any, x: Any) -> Any:
    """Positive outcomes of size 0, which are not possible."""
    return (y > 0) & (x == 0)


def more_than_size(y: Any, x: Any) -> Any:
    """Outcomes beyond their size, unless that is wrong by itself."""
    return (y > x) & (x >= 0)


class CertainNoise:
    """Functions of `OutcomeForms` for kinds whose noise is not in doubt."""

    def doubt(self, table: Callable[[str], Mapping[str, Any]]) -> str:
        """As of `OutcomeForms`."""
        return ""

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        """As of `OutcomeForms`."""
        return False

    def other_width(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """As of `OutcomeForms`."""
        return np.ones_like(mean)
