"""The curves: theta given the score, with bands and the spread of the items' own theta."""

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from ...plots import plot_curves, plot_prior_ribbon
from ...posterior.calibration import bands, calibration_curves
from ..markup import Html, own, table, tag
from ..material import Material, section
from ..pictures import drawable_fit, picture
from ..words import BANDS, band, number, unit_of

__all__ = ["curves"]

_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
_GROUPS = 20


def curves(material: Material) -> Html:
    """The section on the curves."""
    fit = material.fit
    if fit.groups:
        note = (
            f"The fit has curves of its own for each of {len(fit.groups):,} groups; those shown "
            "are the ones that groups share."
        )
    elif fit.prior.exposure is not None:
        note = "Theta also depends on the size of the items here: curves average over the sizes."
    else:
        note = ""
    return section(
        "curves",
        "Theta given the score",
        tag("p", *_introduction(material)),
        *([tag("p", note)] if note else []),
        _curves_picture(material),
        _table(material),
        _ribbon(material),
        *_by_group(material),
    )


def _introduction(material: Material) -> tuple[object, ...]:
    roles, law = material.roles, material.law
    unit = "rate" if law.outcome.whole else "value"
    bands_words = (
        "This fit has a single draw, so that there are no bands."
        if material.fit.one_draw
        else "Bands hold 90% of the posterior: dark at each score, light for the whole curve."
    )
    return (
        f"E(theta | score) is the mean of the true {unit} among items of a score, ",
        own(unit_of(law, roles)),
        "; the lower curve says how widely theta varies among them. ",
        bands_words,
    )


def _curves_picture(material: Material) -> Html:
    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        plot_curves(drawable_fit(material.fit), BANDS, axes=axes)

    dots = "rates" if material.law.outcome.whole else "mean values"
    return picture(
        draw,
        (7.0, 6.6),
        f"Curves of E(theta | score) over the {dots} seen in bins, and of the spread of theta "
        "below; the table that follows gives them in numbers.",
        f"Dots: {dots} seen in about 40 bins of equally many items; their bars are one standard "
        "error. They should scatter about the curve.",
    )


def _table(material: Material) -> Html:
    """Both curves at some quantiles of the scores."""
    score = material.glance.sample.columns["score"]
    at = np.unique(np.quantile(score, _SHARES, method="inverted_cdf"))
    drawn = calibration_curves(material.fit, at)
    drawn = drawn[["mean"]].assign(sd=(drawn["variance"] ** 0.5).assign_attrs(banded="log"))
    banded = bands(drawn, BANDS)
    rows = []
    for k, t in enumerate(at):
        below = float(np.mean(score <= t))
        cells: list[object] = [number(t), f"{100 * below:.0f}%"]
        for name in ("mean", "sd"):
            low, middle, high = banded[name].to_numpy()[:, k]
            cells.append(number(middle))
            if not material.fit.one_draw:
                cells.append(band(low, high))
        rows.append(cells)
    interval = () if material.fit.one_draw else ("90% band",)
    head = (
        "Score",
        "Items up to it",
        "E(theta | score)",
        *interval,
        "sd(theta | score)",
        *interval,
    )
    return table("The curves at some scores", head, rows, range(len(head)))


def _ribbon(material: Material) -> Html:
    """Quantiles of theta given the score."""
    law, fit = material.law, material.fit
    at, words = None, ""
    if fit.prior.exposure is not None:
        sizes = material.glance.sample.columns[law.outcome.size]
        at = float(f"{float(np.median(sizes[sizes > 0])):.3g}")
        words = f" Drawn at the median {law.outcome.size.replace('_', ' ')}, {number(at)}."

    def draw(figure: Figure) -> None:
        plot_prior_ribbon(drawable_fit(fit), ax=figure.subplots(), exposure=at)

    return picture(
        draw,
        (7.0, 4.2),
        "Quantiles of theta given the score: 5%, 50% and 95%.",
        "The items' own theta: nine of ten items of a score have theta in the shaded range. "
        "This is how much items differ, not how well the curve is known." + words,
    )


def _by_group(material: Material) -> Iterator[Html]:
    """The mean curve of each group at the median score."""
    fit = material.fit
    if not fit.groups:
        return
    middle = float(np.median(material.glance.sample.columns["score"]))
    part, labels = material.stats.table("part"), material.stats.groups
    n = dict(zip(labels, np.bincount(part["group"], part["n"], len(labels)), strict=True))
    known = sorted((g for g in labels if g in fit.groups), key=lambda g: -n[g])[:_GROUPS]
    rows = []
    for label in known:
        mean = bands(calibration_curves(fit, [middle], group=label)[["mean"]], BANDS)["mean"]
        low, estimate, high = (float(x) for x in mean.to_numpy()[:, 0])
        interval = () if fit.one_draw else (band(low, high),)
        rows.append((own(label), f"{n[label]:,.0f}", number(estimate), *interval))
    head = ("Group", "Items", "E(theta | score)", *(() if fit.one_draw else ("90% band",)))
    if rows:
        cut = f", the {len(rows)} largest groups" if len(labels) > len(rows) else ""
        yield table(
            f"By group, at the median score {number(middle, 4)}{cut}",
            head,
            rows,
            range(1, len(head)),
        )
