"""Which items are valid: one declaration of bounds, from which every form of the check comes.

`Bounds` say what the numbers of one role may be; `Validity` puts those of an item together. NumPy
and Ibis read the bounds, compiled loops get a function made of them.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba

LARGEST_COUNT = 2.0**53 - 1.0
"""Whole numbers up to here are exact in float64, and none beyond is rounded to one of them."""
LARGEST = 1e90
"""Third powers of scores and exposures, times a count, must stay finite."""
LARGEST_VALUE = 1e35
"""Of values and noise sds: y^2 s^6 must stay finite, summed over all items."""
LEAST_SD = 1e-35
"""Of noise sds: y^2 s^6 must not vanish, where y itself is not smaller than this."""

_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@dataclass(frozen=True)
class Bounds:
    """What the numbers of one role may be; missing and infinite ones are never valid."""

    needs: str  # the rule, as errors say it
    largest: float = LARGEST  # in size
    least: float | None = None  # None: numbers of either sign
    whole: bool = False
    name_of_largest: str = ""  # how errors call numbers that are too large
    negligible: float = 0.0  # smaller numbers count as 0 in powers and products

    @property
    def beyond(self) -> str:
        """What numbers larger than the largest are."""
        return self.name_of_largest or f"beyond {self.largest:g} in size"

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
    # f(y, x), true where outcome and size exclude each other, in operators that numbers, arrays
    # and columns of engines know
    conflict: Callable[[Any, Any], Any] | None = None
    conflict_words: str = ""  # what such an outcome is; {size} is the size's column

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
    """A compiled function of a generated source, in which it is called {name}.

    The name that it gets tells Numba's cache, kept beside the module's `file`, one source from
    another.
    """
    known = source + "".join(sorted(getattr(v, "__name__", "") for v in names.values()))
    name = f"{what}_{hashlib.sha256(known.encode()).hexdigest()[:16]}"
    namespace: dict[str, Any] = {"math": math, "__name__": __name__, **names}
    exec(compile(source.strip().format(name=name), file, "exec"), namespace)
    return _compiled(namespace[name])


def positive_without_size(y: Any, x: Any) -> Any:
    """Outcomes that no item of size 0 has."""
    return (y > 0) & (x == 0)


def more_than_size(y: Any, x: Any) -> Any:
    """Outcomes beyond their size."""
    return y > x
