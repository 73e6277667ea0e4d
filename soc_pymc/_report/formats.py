"""Numbers and names as the page shows them."""

import re
from html import escape
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

BANDS = 0.9
"""Probability of all intervals and bands of the page."""

_LEAST, _MOST = 1e-4, 1e7  # numbers between are written out
_LONGEST = 120  # characters of a label
# control characters, and marks that turn the direction of what follows
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: object) -> Any:
    """Text whose unseen or unencodable characters are replacement marks; HTML stays as it is."""
    if hasattr(text, "__html__"):
        return text
    encoded = str(text).encode("utf-8", "replace").decode("utf-8")
    return _UNSEEN.sub("\ufffd", encoded)


class Label(str):
    """A name or label of the user's: its direction stays its own; very long ones are cut."""

    __slots__ = ()

    def __html__(self) -> str:
        """The label as the template writes it."""
        shown = str(self)
        if len(shown) > _LONGEST:
            shown = f"{shown[:_LONGEST]}... ({len(shown):,} characters)"
        return f"<bdi>{escape(clean(shown))}</bdi>"


def number(value: float, digits: int = 3) -> str:
    """A number in a few significant digits; large ones with separators."""
    if not np.isfinite(value):
        return "not known" if np.isnan(value) else "infinite"
    if value == 0:
        return "0"
    if not _LEAST <= abs(value) < _MOST:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(power)}".replace("-", "−")
    places = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    shown = f"{value:,.{places}f}"
    if float(value).is_integer() and "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return shown.replace("-", "−")


def exact(value: float) -> str:
    """A number that was given, as it was given."""
    return f"{value:,.12g}".replace("-", "−")


def whole(value: float) -> str:
    """A whole number with separators."""
    return f"{round(value):,}".replace("-", "−")


def percent(share: float) -> str:
    """A share in percent, with enough digits to tell it from none and from all."""
    if not np.isfinite(share):
        return "not known"
    if 0 < abs(share) < 1e-4:
        return "less than 0.01%"
    if abs(share) >= 0.1:
        return f"{100 * share:.1f}%".replace(".0%", "%").replace("-", "−")
    return number(100 * share) + "%"


def counted(n: float, what: str, many: str = "") -> str:
    """A number with what it counts."""
    return f"{whole(n)} {what if round(n) == 1 else many or what + 's'}"


def band(low: float, high: float, digits: int = 3) -> str:
    """An interval."""
    return f"{number(low, digits)} to {number(high, digits)}"


def central(draws: xr.DataArray | ArrayLike) -> tuple[float, float, float]:
    """Lower end, median and upper end of the central interval of draws."""
    values = np.asarray(draws, dtype=float).ravel()
    low, middle, high = np.quantile(values, [(1 - BANDS) / 2, 0.5, (1 + BANDS) / 2])
    return float(low), float(middle), float(high)
