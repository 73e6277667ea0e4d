"""Which items: those at the top and, against a threshold, what to choose and where to look on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .. import decisions, plots
from .._lib.arrays import Floats
from ..data.groups import group_roles
from . import pictures
from .formats import Label, band, exact, number, percent, whole
from .overview import BY_LOSS, BY_LOW_QUANTILE, BY_MEAN, Subset
from .sections import Results, Table

_MOST = 50  # items of a list, of which the page unfolds those after the tenth
_DRAWN = 2000  # items in the picture of shrinkage
_LOSSES = 10_000  # items on which losses are summed, which use all draws of the curves
_PROBS = (0.05, 0.1, 0.95)


def choices(results: Results) -> dict[str, Any]:
    """The section on items at the top and on what to choose."""
    threshold = results.options.threshold
    return {
        "threshold": threshold,
        "chances": [],
        **({} if threshold is None else _against(results, threshold)),
        "tops": [_top(results, BY_MEAN), _top(results, BY_LOW_QUANTILE)],
        **_shrinkage(results),
    }


def _against(results: Results, threshold: float) -> dict[str, Any]:
    """What there is to say against the threshold."""
    overview, counts = results.overview, dict(results.overview.above)
    if overview.whole:  # few items: from all draws
        chance = decisions.probability_above(
            results.fit, overview.sample.items, threshold, progress=results.options.progress
        )
        counts = {p: int((chance > p).sum()) for p in counts}
    chances = sorted(counts.items())
    above = f"Above {exact(threshold)} with a probability of more than"
    rows = [(f"{above} {p:.0%}", whole(k), percent(k / overview.n)) for p, k in chances]
    columns = [("Items", ""), ("Number", "n"), ("Share", "n")]
    sample = overview.sample.thinned(_LOSSES, results.options.seed)
    return {
        "chances": chances,
        "above": Table("Items above the threshold", columns, rows),
        "losses": _losses(results, sample, threshold),
        "judged": len(sample),
        "typical_size": results.typical_size,
        "size_label": Label(results.roles[results.posterior.outcome.size]),
        "worth": _worth(results, threshold),
    }


def _losses(results: Results, sample: Subset, threshold: float) -> Table:
    """What rules of choice lose, as the fit judges."""
    loss = decisions.expected_loss(
        results.fit, sample.items, threshold, progress=results.options.progress
    )
    chosen, missed = (loss[c].to_numpy() for c in ("loss_if_chosen", "loss_if_not"))
    own = np.nan_to_num(_own_estimates(results, sample))  # 0 where nothing was seen
    n, few = results.overview.n, len(sample)
    scale = n / few
    rules = [
        ("Choose where the posterior mean is above it", loss["choose"].to_numpy(dtype=bool)),
        ("Choose where the item's own outcome is above it", own > threshold),
        ("Choose all", np.ones(few, dtype=bool)),
        ("Choose none", np.zeros(few, dtype=bool)),
    ]
    rows = []
    for name, rule in rules:
        lost = np.where(rule, chosen, missed)
        total, error = scale * float(lost.sum()), scale * few**0.5 * float(lost.std())
        cells = whole(rule.sum()), number(total, 4)
        if few < n:
            about = f"about {whole(scale * rule.sum())}"
            cells = about, f"{number(total)} ± {number(error, 2)}"
        rows.append((name, *cells))
    head = [("Rule", ""), ("Items chosen", "n"), ("Expected loss, in units of theta", "n")]
    return Table("What rules of choice lose", head, rows)


def _own_estimates(results: Results, rows: Subset) -> Floats:
    """Each item's own estimate of theta; NaN where nothing was seen."""
    outcome, columns = results.posterior.outcome, rows.columns
    estimates = outcome.estimate(columns[outcome.observed], columns[outcome.size])
    return np.asarray(estimates, dtype=float)


def _top(results: Results, by: str) -> Table:
    """The first items by posterior mean or by a low quantile."""
    rows = results.overview.lists[by]
    scored = results.posterior.scorer(_PROBS, "all")(rows.columns)
    mean, _, _, low, cautious, high, *_ = scored
    ranks = {BY_MEAN: mean, BY_LOW_QUANTILE: cautious}[by]
    columns = {
        "Posterior mean": list(map(number, mean)),
        "90% interval": [band(*ends) for ends in zip(low, high, strict=True)],
    }
    heading = "Top items by posterior mean"
    if by == BY_LOW_QUANTILE:
        heading = "Top items by a cautious score"
        columns["10% quantile"] = list(map(number, cautious))
    return _ranked(results, rows, heading, ranks, columns)


def _worth(results: Results, threshold: float) -> Table:
    """The items of which a further observation is worth most to the choice."""
    fit, rows = results.fit, results.overview.lists[BY_LOSS]
    given: dict[str, Any] = {"threshold": threshold, "progress": results.options.progress}
    gain = decisions.value_of_exposure(fit, rows.items, results.typical_size, **given)
    chance = decisions.probability_above(fit, rows.items, threshold, progress=False)
    mean = results.posterior.scorer((), "all")(rows.columns)[0]
    sds = zip(gain["sd_now"], gain["sd_after"], strict=True)
    columns = {
        "Posterior mean": list(map(number, mean)),
        "P(above)": list(map(percent, chance)),
        "sd, now and after": [f"{number(now)} → {number(after)}" for now, after in sds],
        "Value": list(map(number, gain["value"])),
    }
    # without own estimates, for the table to fit a page
    return _ranked(results, rows, results.words.worth, gain["value"].to_numpy(), columns, own=False)


def _ranked(
    results: Results,
    rows: Subset,
    heading: str,
    ranks: Floats,
    columns: dict[str, list[str]],
    own: bool = True,
) -> Table:
    """Items by falling `ranks`: their names, what was seen of them, and further columns."""
    told = [*_described(results, rows, own), *columns.items()]
    order = np.argsort(-ranks, kind="stable")[:_MOST]
    cells = [(place, *(values[k] for _, values in told)) for place, k in enumerate(order, start=1)]
    kinds = ["" if isinstance(values[0], Label) else "n" for _, values in told]
    heads = [("Rank", "n"), *zip((name for name, _ in told), kinds, strict=True)]
    return Table(heading, heads, cells)


def _described(results: Results, rows: Subset, own: bool) -> list[tuple[str, Sequence[str]]]:
    """Columns that name items and say what was seen of them."""
    outcome, roles, columns = results.posterior.outcome, results.roles, rows.columns
    source: Any = rows.items.source
    named = [(Label(rows.named_by), list(map(Label, rows.names)))] if rows.named_by else []
    groups = group_roles(roles)
    numbers = [c for role, c in roles.items() if role not in (*groups, "fold", "cluster")]
    for name in dict.fromkeys([*groups.values(), *results.options.by]):
        if name not in numbers:
            named.append((Label(name), [Label(each) for each in source[name].to_pylist()]))
    observed, size = columns[outcome.observed], columns[outcome.size]
    digits = 4 if outcome.whole else 3
    seen: list[tuple[str, list[str]]] = [
        (Label(roles["score"]), [number(t, 4) for t in columns["score"]]),
        (
            Label(roles[outcome.observed]),
            [(whole if outcome.whole else number)(y) for y in observed],
        ),
        (Label(roles[outcome.size]), [number(s, digits) for s in size]),
    ]
    if own and not outcome.direct:
        estimates = _own_estimates(results, rows)
        shown = ["none" if np.isnan(each) else number(each) for each in estimates]
        seen.append((results.words.own.capitalize(), shown))
    return [*named, *seen]


def _shrinkage(results: Results) -> dict[str, Any]:
    """How far posteriors are from own outcomes: no picture where nothing was seen of any item."""
    outcome = results.posterior.outcome
    sample = results.overview.sample.thinned(_DRAWN, results.options.seed)
    roles = ["score", outcome.observed, outcome.size]
    picture = None
    if np.isfinite(_own_estimates(results, sample)).any():
        mean = results.posterior.scorer(())(sample.columns)[0]
        columns = {role: sample.columns[role] for role in roles} | {"theta_mean": mean}
        named: dict[str, Any] = {role: role for role in roles} | {"seed": results.options.seed}
        frame = pd.DataFrame(columns)
        picture = pictures.picture_of(plots.plot_shrinkage, frame, height=5.4, **named)
    return {"shrinkage": picture, "drawn": len(sample)}
