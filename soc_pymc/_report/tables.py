"""Tables and sentences of the page, from what the verbs return."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from .. import decisions, quantities
from .._lib.reprs import html_table
from ..checks.results import (
    COLUMNS,
    FAIL,
    OK,
    PROB,
    WARN,
    Result,
    cells,
    intervals,
    number,
    worst_first,
)
from ..data.items import group_roles, has_score
from ..data.statistics import Statistics
from ..inference.results import Fit
from ..plots.curves import fitted_curves
from ..posterior.calibration import bands
from ..posterior.curves import P_ZERO
from ..posterior.predictive import posterior_of
from .overview import BY_LOSS, BY_LOW_QUANTILE, BY_MEAN, Overview, Subset

_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)  # quantiles of the scores
_LISTED = 10  # items of a list
_MOST = 200  # rows of a result
_PROBS = (0.05, 0.1, 0.95)


def table(title: str, rows: Iterable[Sequence[Any]], head: Sequence[str] = ()) -> Markup:
    """Return a table of the page, with numbers as `print` shows those of a result."""
    text = [[number(x) if isinstance(x, float) else x for x in row] for row in rows]
    return Markup(html_table(title, text, head))  # it escapes all text


def of_result(title: str, result: Result) -> Markup:
    """Return the table of a result, the worst rows first."""
    return table(title, cells(worst_first(result.table)[:_MOST]), COLUMNS)


def worst(table: pd.DataFrame) -> tuple[str, str]:
    """Return the worst verdict of a check, and how many of its rows have it."""
    counts, n = table["verdict"].value_counts(), len(table)
    verdict = next(verdict for verdict in (FAIL, WARN, OK) if verdict in counts)
    if verdict == OK:
        return OK, f"All {n:,} checks pass"
    ending = "s" if counts[verdict] == 1 else ""
    return verdict, f"{counts[verdict]:,} of {n:,} checks {verdict}{ending}"


def curve_table(fit: Fit, score: Any) -> Markup:
    """Return both curves at quantiles of the scores, and at scores that many items share."""
    quantiles = np.quantile(score, _SHARES, method="inverted_cdf")
    scores = np.unique(np.concatenate([quantiles, fit.atoms]))
    drawn = fitted_curves(fit, scores)
    sd = (drawn["variance"] ** 0.5).assign_attrs(banded="log")
    share = {P_ZERO: drawn[P_ZERO]} if fit.prior.zero else {}
    banded = bands(drawn[["mean"]].assign({"sd": sd, **share}), PROB)
    head = ["score", "items up to it"]
    known = has_score(fit.data.attrs)
    places = scores.tolist() if known else ["none"]
    columns = [places, [f"{np.mean(score <= t):.0%}" for t in scores]]
    names = "E(theta | score)", "sd(theta | score)", "P(theta = 0 | score)"
    for name, curve in zip(names, ("mean", "sd", *share), strict=False):
        low, middle, high = banded[curve].to_numpy().tolist()
        head += [name] if fit.one_draw else [name, "low", "high"]
        columns += [middle] if fit.one_draw else [middle, low, high]
    return table("The curves at some scores", zip(*columns, strict=True), head)


def in_short(fit: Fit, stats: Statistics, overview: Overview, threshold: float | None) -> list[str]:
    """Return sentences on the score, on what outcomes add, and on items above the threshold."""
    outcomes = posterior_of(fit).outcome.words.outcomes
    reduction = quantities.variance_reduction(fit, stats, weight="items", progress=False)
    explained = _percent(fit, quantities.r_squared(fit, stats))
    removed = _percent(fit, 1 - reduction.data["ratio"])
    above = f"of {overview.n:,} items lie above {threshold or 0.0:.12g} with a probability of more"
    before = "calibrated score" if has_score(fit.data.attrs) else "mean of all items"
    return [
        f"The calibrated score explains {explained} of how theta varies among items.",
        f"The items' own {outcomes} remove {removed} of the mean squared error that the {before} "
        "has by itself.",
        *(f"{n:,} {above} than {p:.0%}." for p, n in sorted(overview.above.items())),
    ]


def _percent(fit: Fit, draws: Any) -> str:
    """Return the median and interval of a share in words."""
    share = intervals(np.ravel(draws))
    ends = f" (90% interval {share['low']:.1%} to {share['high']:.1%})"
    return f"{share['value']:.1%}" + ("" if fit.one_draw else ends)


def item_tables(
    fit: Fit, overview: Overview, by: Sequence[str], threshold: float | None
) -> Iterator[tuple[str, Markup]]:
    """Yield lists of items, each with a sentence."""
    lists, outcome = overview.lists, posterior_of(fit).outcome
    best = _ranked("Highest posterior mean", fit, lists[BY_MEAN], by, "mean")
    yield "The best guesses, regardless of their uncertainty.", best
    cautious = _ranked("Highest 10% quantile", fit, lists[BY_LOW_QUANTILE], by, "10% quantile")
    why = "Theta is above the 10% quantile with a probability of 90%, so items about which little"
    yield f"{why} is known rank lower.", cautious
    if threshold is None:
        return
    rows, words = lists[BY_LOSS], outcome.words
    sizes = overview.sample.columns[outcome.size]
    amount = float(f"{np.median(sizes[sizes > 0]):.3g}")
    gain = decisions.value_of_exposure(fit, rows.items, amount, threshold=threshold, progress=False)
    further = words.further.format(amount=f"{amount:,.12g}", size=rows.items.roles[outcome.size])
    text = (
        f"Value: how much {further} (the median of the items) would improve the choice on average, "
        "in units of theta. It is large where theta may lie on either side of the threshold."
    )
    yield text, _ranked(words.worth, fit, rows, by, "value", value=gain["value"].to_numpy())


def _ranked(
    title: str, fit: Fit, rows: Subset, by: Sequence[str], ranked_by: str, **further: Any
) -> Markup:
    """Return the first items by one column: names, what was observed, and their posteriors."""
    posterior, roles = posterior_of(fit), rows.items.roles
    mean, _, _, low, cautious, high = posterior.scorer(_PROBS, "all")(rows.columns)[:6]
    estimates = {"mean": mean, "5%": low, "95%": high}
    estimates |= further or ({} if ranked_by == "mean" else {ranked_by: cautious})
    order = np.argsort(-estimates[ranked_by], kind="stable")[:_LISTED]
    observed = ["score"] if rows.items.score else []
    observed += [posterior.outcome.observed, posterior.outcome.size]
    numbers = {roles[role]: rows.columns[role].tolist() for role in observed}
    labels = [name for name in [*group_roles(roles).values(), *by] if name not in numbers]
    columns = {name: rows.items.source[name].to_pylist() for name in labels} | numbers
    head = [*([rows.heading] if len(rows.names) else []), *columns, *estimates]
    values = [*([rows.names] if len(rows.names) else []), *columns.values()]
    values += [x.tolist() for x in estimates.values()]
    return table(title, [[column[k] for column in values] for k in order], head)


def same_items(fit: Fit, stats: Statistics) -> bool:
    """Return True if these items made the fit, as far as totals tell."""
    outcome, n_items = posterior_of(fit).outcome, fit.data["constant_data"]["n_items"]
    # bins keep the sum of whole outcomes, and the mean of others
    sums = fit.data["observed_data"][outcome.observed] * (1 if outcome.whole else n_items)
    same_total = np.isclose(float(sums.sum()), float(stats.data["sum_y"].sum()), rtol=1e-9)
    return bool(same_total) and int(n_items.sum()) == stats.n_items
