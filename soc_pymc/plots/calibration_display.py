"""The calibration curve of predicted probabilities, from labels alone, in scikit-learn's manner."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from .._lib.arguments import PROBABILITY, A, OrNone, checked, numbers_of, shown
from .._lib.arrays import Floats
from .._lib.errors import ItemsError
from ..data.items import BinomialItems
from ..data.summaries import summarize
from ..families.priors import Beta
from ..inference.results import Fit
from ..posterior.calibration import bands, calibration_curves
from . import canvas
from .arguments import AxesOf

_BARS = 40  # of the histogram of scores


@dataclass
class CalibrationDisplay:
    """A calibration curve with its bands, as data and as a picture.

    Attributes
    ----------
    score : numpy.ndarray of shape (200,)
        Predicted probabilities at which the curve is known.
    mean, lower, upper : numpy.ndarray of shape (200,)
        E(y|score), and the band that holds the whole curve with probability `prob`.
    prob : float
        Probability of the band.
    scores : numpy.ndarray
        Predicted probabilities of all items, for the histogram.
    fit : Fit
        The fit behind it.
    name : str or None
        Name of the curve in the legend.
    ax_, histogram_ : matplotlib.axes.Axes
        Axes of the curve and of the histogram, once drawn.
    figure_ : matplotlib.figure.Figure
        Their figure.

    Examples
    --------
    >>> import numpy as np
    >>> import soc_pymc as soc
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.02, 0.98, 2000)
    >>> display = soc.plots.CalibrationDisplay.from_predictions(rng.random(2000) < p, p)
    >>> bool(((display.lower < display.score) & (display.score < display.upper)).all())
    True
    """

    score: Floats
    mean: Floats
    lower: Floats
    upper: Floats
    prob: float
    scores: Floats
    fit: Fit
    name: str | None = None

    ax_: Axes | None = None
    histogram_: Axes | None = None
    figure_: Figure | None = None

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        p: ArrayLike,
        *,
        prob: float = 0.9,
        prior: Beta | None = None,
        name: str | None = None,
        axes: Any = None,
    ) -> "CalibrationDisplay":
        """Fit the curve to labels and predicted probabilities, and draw it.

        Parameters
        ----------
        y
            Labels, 0 or 1 (or booleans), shape (n,).
        p
            Predicted probabilities of 1, strictly between 0 and 1, shape (n,).
        prob
            Probability of the band.
        prior
            Prior with the curve's knots and axis; None is ``soc.Beta()``.
        name
            Name of the curve in the legend.
        axes
            Two axes, for the curve and the histogram; None makes a figure.

        Returns
        -------
        CalibrationDisplay

        Raises
        ------
        ItemsError
            If labels or probabilities are not as above.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.uniform(0.02, 0.98, 500)
        >>> display = CalibrationDisplay.from_predictions(rng.random(500) < p, p, name="model")
        >>> display.ax_.get_ylabel()
        'share of 1s'
        """
        labels = _labels(y)
        scores = numbers_of(p, "p", ItemsError)
        if scores.shape != labels.shape or scores.ndim != 1:
            raise ItemsError(
                f"y and p must be vectors of one length, not {labels.shape} and {scores.shape}"
            )
        outside = ~((scores > 0) & (scores < 1))
        if outside.any():
            raise ItemsError(
                f"{int(outside.sum()):,} of {len(scores):,} probabilities p are not between 0 and "
                "1: clip them, for example to 1e-6 and 1 - 1e-6"
            )
        import pyarrow as pa

        from ..inference.fitting import fit as fit_statistics  # which loads PyMC

        table = pa.table({"p": scores, "y": labels, "n": np.ones(len(labels), dtype=np.int64)})
        items = BinomialItems(table, score="p", successes="y", trials="n")
        stats = summarize(items, on_leakage="ignore", progress=False)
        fit = fit_statistics(stats, prior, progress=False)
        curves = calibration_curves(fit)[["mean"]]
        band = bands(curves, prob, simultaneous=True)["mean"].to_numpy()
        at = curves["score"].to_numpy()
        return cls(at, band[1], band[0], band[2], prob, scores, fit, name).plot(axes)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, **options: Any
    ) -> "CalibrationDisplay":
        """The same of a fitted binary classifier with ``predict_proba``.

        Parameters
        ----------
        estimator
            A fitted classifier of two classes.
        X, y
            Features and labels that it was not trained on.
        **options
            As of `from_predictions`.

        Returns
        -------
        CalibrationDisplay

        Raises
        ------
        ItemsError
            If the estimator has no probabilities of two classes.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 1))
        >>> y = rng.random(1000) < 1 / (1 + np.exp(-X[:, 0]))
        >>> model = LogisticRegression().fit(X[:500], y[:500])
        >>> CalibrationDisplay.from_estimator(model, X[500:], y[500:]).name
        'LogisticRegression'
        """
        if not hasattr(estimator, "predict_proba"):
            raise ItemsError(f"{type(estimator).__name__} has no predict_proba: give probabilities")
        p = np.asarray(estimator.predict_proba(X))
        if p.ndim != 2 or p.shape[1] != 2:
            raise ItemsError("the estimator must have two classes: give one class's probabilities")
        odd = ~np.isin(np.asarray(y), estimator.classes_)
        if odd.any():
            raise ItemsError(
                f"{int(odd.sum()):,} of {odd.size:,} labels y are none of the estimator's classes "
                f"({', '.join(map(str, estimator.classes_))}): give labels of these"
            )
        labels = np.asarray(y) == estimator.classes_[1]
        options.setdefault("name", type(estimator).__name__)
        return cls.from_predictions(labels, p[:, 1], **options)

    def plot(self, axes: Any = None) -> "CalibrationDisplay":
        """Draw the curve over the diagonal, and the histogram of scores below.

        Parameters
        ----------
        axes
            Two axes; None makes a figure.

        Returns
        -------
        CalibrationDisplay
            The display itself.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.uniform(0.02, 0.98, 500)
        >>> display = CalibrationDisplay.from_predictions(rng.random(500) < p, p)
        >>> _, axes = plt.subplots(2)
        >>> display.plot(axes).histogram_ is axes[1]
        True
        """
        top, bottom = canvas.panels_in(axes, (5.5, 6.0), 2, sharex=True, height_ratios=(4, 1))
        label = f"{self.prob:.0%} band of the whole curve"
        top.fill_between(self.score, self.lower, self.upper, color=canvas.CURVE, alpha=0.25, lw=0)
        top.plot([], [], color=canvas.CURVE, alpha=0.25, lw=6, label=label)
        name = self.name or "E(y | p)"
        top.plot(self.score, self.mean, color=canvas.CURVE, label=name)
        top.plot(
            [0, 1], [0, 1], color=canvas.REFERENCE, lw=1, ls="--", label="perfectly calibrated"
        )
        top.set(xlim=(0, 1), ylim=(0, 1))
        canvas.finish(top, f"Calibration curve, {len(self.scores):,} items", "", "share of 1s")
        bottom.hist(self.scores, bins=np.linspace(0, 1, _BARS + 1), color=canvas.SKY)
        canvas.finish(bottom, "", "predicted probability p", "items", legend=False)
        self.ax_, self.histogram_, self.figure_ = top, bottom, top.figure
        return self


@checked(prob=PROBABILITY, name=OrNone(A(str, "text")), axes=OrNone(AxesOf(2)))
def plot_calibration(
    y: ArrayLike,
    p: ArrayLike,
    *,
    prob: float = 0.9,
    prior: Beta | None = None,
    name: str | None = None,
    axes: Any = None,
) -> CalibrationDisplay:
    """Draw the calibration curve of predicted probabilities with an honest band, from labels alone.

    The curve is the mean of a Beta prior given the score, a spline on the logit scale with a
    posterior. No bins are chosen for the eye. The band holds the whole curve with probability
    `prob`: where it leaves the diagonal, the probabilities are not calibrated.

    Parameters
    ----------
    y, p, prob, prior, name, axes
        As of `CalibrationDisplay.from_predictions`.

    Returns
    -------
    CalibrationDisplay
        With ``ax_``, ``figure_``, and the curve as arrays.

    Raises
    ------
    ItemsError
        If labels or probabilities are not as they must be.

    Examples
    --------
    >>> import numpy as np
    >>> import soc_pymc as soc
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.02, 0.98, 2000)
    >>> display = soc.plots.plot_calibration(rng.random(2000) < p**2, p)
    >>> bool(display.upper[100] < display.score[100])      # predictions are too high there
    True
    """
    return CalibrationDisplay.from_predictions(y, p, prob=prob, prior=prior, name=name, axes=axes)


def _labels(y: ArrayLike) -> Floats:
    """Labels as 0 and 1."""
    try:
        given = np.asarray(y)
    except (TypeError, ValueError):
        raise ItemsError(f"y={shown(y)} must be labels, 0 or 1 each") from None
    if given.dtype == bool:
        return given.astype(float)
    if given.dtype.kind in "UST" or any(isinstance(label, str) for label in given.flat):
        first = shown(str(given.flat[0]))
        raise ItemsError(f"labels y are text ({first}): give 0 and 1, for example y == {first}")
    labels = numbers_of(given, "y", ItemsError)
    bad = ~((labels == 0) | (labels == 1))
    if bad.any():
        raise ItemsError(
            f"{int(bad.sum()):,} of {labels.size:,} labels y are neither 0 nor 1: give labels, or "
            "use soc.BinomialItems for successes in trials"
        )
    return labels
