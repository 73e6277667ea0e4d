"""Warnings of extrapolation: scores far outside the fit's, counted by batch and reported once."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike

from .._lib.errors import ItemsWarning, warn_user
from ..data.statistics import Statistics
from ..families.scales import RANK
from ..inference.results import Fit
from .curves import atom_of

_MARGIN = 0.1  # allowed distance, as a share of the range of the fit's scores on the mean's axis
_FAR = "far outside those that the fit saw"


class Extrapolation:
    """Counts scores far outside those of a fit, batch by batch."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._total, self._far = 0, 0
        self._least, self._most = np.inf, -np.inf
        self._low, self._high = -np.inf, np.inf
        bins = fit.data.children.get("constant_data")
        if bins is None or "score_min" not in bins:  # curves without a range of scores
            return
        beside = atom_of(fit, bins["score"].to_numpy()) == 0
        low, high = (bins[name].to_numpy()[beside] for name in ("score_min", "score_max"))
        self._seen = float(low.min()), float(high.max())
        # ranks end at the fit's scores, so distances are measured on the scores' own scale
        scale = fit.axis("mean").local
        low, high = scale.checked(self._seen)
        margin = _MARGIN * (high - low)
        self._low, self._high = scale.score(np.array([low - margin, high + margin]))

    def count(self, score: ArrayLike, highest: ArrayLike | None = None) -> None:
        """Count further scores, or ranges of scores."""
        low = np.asarray(score, dtype=float)
        high = low if highest is None else np.asarray(highest, dtype=float)
        self._total += low.size
        outside = (low < self._low) | (high > self._high)
        if self._fit.atoms:  # these the fit knows, however far they are
            outside &= atom_of(self._fit, np.where(low == high, low, np.nan)) == 0
        if outside.any():
            self._far += int(outside.sum())
            self._least = min(self._least, float(low[outside].min()))
            self._most = max(self._most, float(high[outside].max()))

    def warn(self, what: str = "items have scores") -> None:
        """Warn if any were counted; `what` includes the verb."""
        text = self.message(what)
        if text is not None:
            warn_user(text, ItemsWarning)

    def message(self, what: str = "items have scores") -> str | None:
        """The warning's text; None if none were counted."""
        if not self._far:
            return None
        low, high = self._seen
        span = f"{self._least:.6g}"
        if self._most > self._least:
            span += f" to {self._most:.6g}"
        return (
            f"{self._far:,} of {self._total:,} {what} {_FAR} "
            f"({low:.6g} to {high:.6g}; these: {span}): {self._rule()}, which no item "
            "supports; fit items with such scores too, or leave these out"
        )

    def _rule(self) -> str:
        """Rule of extrapolation, in words."""
        if self._fit.by_bin:
            return "they count as scores of the outermost bins"
        if {self._fit.prior.mean.scale, self._fit.prior.variance.scale} == {RANK}:
            return "they count as the outermost scores of the fit"
        return "the curves continue as straight lines there, kept between 1e-100 and 1e100"


@contextmanager
def extrapolation_reported() -> Iterator[None]:
    """Leave reports of extrapolation inside this block to the caller, once for all items."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".* {_FAR} ", ItemsWarning)
        yield


def warn_of_extrapolation(fit: Fit, score: ArrayLike, what: str = "items have scores") -> None:
    """Warn of scores far outside those of a fit; `what` includes the verb."""
    far = Extrapolation(fit)
    far.count(score)
    far.warn(what)


def warn_of_extrapolated_bins(fit: Fit, stats: Statistics) -> None:
    """Warn of bins with scores far outside those of a fit."""
    low, high = (stats.data[name].to_numpy() for name in ("score_min", "score_max"))
    filled = ~np.isnan(low)  # bins without items have no scores
    far = Extrapolation(fit)
    far.count(low[filled], high[filled])
    far.warn("bins of the statistics hold scores")
