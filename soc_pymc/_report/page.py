"""The page as text: one template over sentences, tables, pictures and the options of the call."""

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .. import __version__, decisions, plots, quantities
from .._lib.reprs import code_of, html_table, number, short, visible
from ..checks import findings
from ..checks._check import CheckResult
from ..checks.comparison import other_total
from ..checks.findings import FAIL, OK, PROB, WARN
from ..checks.observations import Observations
from ..data.items import Items
from ..data.roles import Roles
from ..data.sources import kind_of
from ..data.statistics import Statistics
from ..fits.fit import Fit
from ..plots.curves import fitted_curves
from ..plots.style import picture_of
from ..posterior.averages import scorer
from ..posterior.calibration import bands
from ..posterior.predictive import posterior_of
from ..posterior.weights import P_ZERO
from .overview import BY_LOSS, BY_LOW_QUANTILE, BY_MEAN, Overview, Subset

_LEVELS = 20  # in the picture of a column of groups
_PACKAGES = ("pymc", "arviz", "numpy", "scipy", "pandas", "xarray", "duckdb")
_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)  # quantiles of the scores
_LISTED = 10  # items of a list
_MOST = 200  # rows of a result
_PROBS = (0.05, 0.1, 0.95)


def render(
    fit: Fit, items: Items, stats: Statistics, overview: Overview, check: CheckResult,
    options: Mapping[str, Any], made_fit: bool,
) -> str:  # fmt: skip
    """Return the page; all text in it is escaped, invisible characters too."""
    environment = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0]),
        autoescape=True,
        finalize=lambda text: text if hasattr(text, "__html__") else visible(text),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    outcome = fit.curves.outcome
    n = len(overview.sample)
    threshold = options["threshold"]
    names = {
        "outcome": items.roles[outcome.observed],
        "size": items.roles[outcome.size],
    }
    total = f"{overview.n:,} items"
    of_outcome = names["outcome"]
    title = f"Calibration of {items.score} against {of_outcome}"
    title = title if items.score else f"Theta of all items from {of_outcome}"
    at_scores = not fit.one_score and fit.prior.exposure is None
    return environment.get_template("page.html").render(
        title=options["title"] or title,
        scored=items.score is not None,
        words=outcome.words,
        unit=outcome.words.unit.format(**names),
        fit=fit,
        n=overview.n,
        sampled=f"all {n:,} items" if n == overview.n else f"a random {n:,} of {total}",
        in_short=in_short(fit, stats, overview, threshold),
        fitted=_fitted(fit, items, stats),
        made_fit=made_fit,
        far=overview.far,
        curves=picture_of(plots.plot_curves, fit, PROB, height=5.8, panels=(3, 2)),
        curve_table=curve_table(fit, overview.sample.columns["score"]),
        prior=at_scores and picture_of(plots.plot_prior, fit, height=3.8),
        groups=_groups(fit, stats),
        check=check,
        findings=of_result(check.title, check),
        worst=worst(check.table),
        pit=picture_of(plots.plot_pit, check, height=3.2),
        pit_by_score=picture_of(plots.plot_pit, check, by="score", height=4.0),
        lists=list(item_tables(fit, overview, options["by"], threshold)),
        threshold=threshold,
        code=Markup("{}").format(_code(fit, items, options)),  # with its line breaks
        versions=", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        version=__version__,
        seed=options["seed"],
        made=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
    )


def _fitted(fit: Fit, items: Items, stats: Statistics) -> list[Markup]:
    """Return the items, their statistics and the fit, in the words of their representations."""
    n = fit.data["constant_data"]["n_items"]
    bins = f"{int(n.sum()):,} in {n.size:,} bins"
    rows = [("prior", short(fit.prior)), ("method", short(fit.method)), ("items", bins)]
    rows.append(("status", fit.status.reason))
    statistics = Markup(stats._repr_html_())  # it escapes all text
    roles = items.roles.arguments
    columns = table("Items", [(role, repr(name)) for role, name in roles.items()])
    tables = [columns, statistics, table("Fit", rows)]
    if fit.selection is not None:
        priors = fit.selection.drop(columns="chosen")
        tables.append(
            table("Choice of the prior", priors.values.tolist(), [*map(str, priors)])
        )
    return tables


def _groups(fit: Fit, stats: Statistics) -> dict[str, Any] | None:
    """Return effects of the levels of groups, and how many differ by chance."""
    if not fit.groups or fit.one_draw:
        return None
    effects = quantities.group_effects(fit, stats)
    levels = effects.table[effects.table["p"].notna()]
    sizes = [min(n, _LEVELS) + 2 for n in levels.groupby("what", sort=False).size()]
    arguments = levels, _LEVELS, effects.data.attrs["neutral"]
    height = 0.5 + 0.25 * sum(sizes)
    picture = picture_of(plots.plot_intervals, *arguments, height=height, panels=sizes)
    table = of_result("Levels at equal score", effects)
    return {"advice": effects.advice, "picture": picture, "table": table}


def _code(fit: Fit, items: Items, options: Mapping[str, Any]) -> str:
    """Return the calls that made the fit and this page, as far as the fit knows them."""
    source = repr(items.source) if kind_of(items.source) == "files" else "table"
    roles = ", ".join(
        f"{name}={column!r}" for name, column in items.roles.arguments.items()
    )
    joint = ", joint=True" if fit.prior.reads_joint else ""
    words = "".join(f", {k}={v!r}" for k, v in options.items() if v not in (None, ()))
    return (
        "import soc_pymc as soc\n\n"
        f"items = soc.{type(items).__name__}({source}, {roles})\n"
        f"stats = soc.summarize(items{joint})  # {fit.data['constant_data'].sizes['bin']:,} bins\n"
        f"fit = soc.fit(stats, {code_of(fit.prior)}, soc.{short(fit.method)})\n"
        f"soc.report(fit, items{words})\n"
    )


def table(
    title: str, rows: Iterable[Sequence[Any]], head: Sequence[str] = ()
) -> Markup:
    """Return a table of the page, whose numbers look as in a printed result."""
    text = [[number(x) for x in row] for row in rows]
    return Markup(html_table(title, text, head))  # it escapes all text


def of_result(title: str, result: findings.Result) -> Markup:
    """Return the table of a result, the worst rows first."""
    return table(
        title,
        findings.cells(findings.worst_first(result.table)[:_MOST]),
        findings.COLUMNS,
    )


def worst(table: pd.DataFrame) -> tuple[str, str]:
    """Return the worst verdict of a check, and how many of its rows have it."""
    counts = table["verdict"].value_counts()
    n = len(table)
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
    places = scores.tolist() if Roles.of(fit.data.attrs).has_score else ["none"]
    columns = [places, [f"{np.mean(score <= t):.0%}" for t in scores]]
    names = "E(theta | score)", "sd(theta | score)", "P(theta = 0 | score)"
    for name, curve in zip(names, ("mean", "sd", *share), strict=False):
        low, middle, high = banded[curve].to_numpy().tolist()
        head += [name] if fit.one_draw else [name, "low", "high"]
        columns += [middle] if fit.one_draw else [middle, low, high]
    return table("The curves at some scores", zip(*columns, strict=True), head)


def in_short(
    fit: Fit, stats: Statistics, overview: Overview, threshold: float | None
) -> list[str]:
    """Return sentences on the score, on what outcomes add, and on items above the threshold."""
    outcomes = fit.curves.outcome.words.outcomes
    reduction = quantities.variance_reduction(
        fit, stats, weight="items", progress=False
    )
    explained = _percent(fit, quantities.r_squared(fit, stats))
    removed = _percent(fit, 1 - reduction.data["ratio"])
    above = f"of {overview.n:,} items lie above {threshold or 0.0:.12g} with a probability of more"
    estimate = (
        "calibrated score"
        if Roles.of(fit.data.attrs).has_score
        else "mean of all items"
    )
    return [
        f"The calibrated score explains {explained} of how theta varies among items.",
        f"The items' own {outcomes} remove {removed} of the mean squared error that the {estimate} "
        "has by itself.",
        *(f"{n:,} {above} than {p:.0%}." for p, n in sorted(overview.above.items())),
    ]


def _percent(fit: Fit, draws: Any) -> str:
    """Return the median and interval of a share in words."""
    share = findings.intervals(np.ravel(draws))
    ends = f" (90% interval {share['low']:.1%} to {share['high']:.1%})"
    return f"{share['value']:.1%}" + ("" if fit.one_draw else ends)


def item_tables(
    fit: Fit, overview: Overview, by: Sequence[str], threshold: float | None
) -> Iterator[tuple[str, Markup]]:
    """Yield lists of items, each with a sentence."""
    lists = overview.lists
    outcome = fit.curves.outcome
    by_mean = _ranked("Highest posterior mean", fit, lists[BY_MEAN], by, "mean")
    yield "The best guesses, regardless of their uncertainty.", by_mean
    by_quantile = _ranked(
        "Highest 10% quantile", fit, lists[BY_LOW_QUANTILE], by, "10% quantile"
    )
    text = "Theta is above the 10% quantile with a probability of 90%, so items about which little"
    yield f"{text} is known rank lower.", by_quantile
    if threshold is None:
        return
    rows = lists[BY_LOSS]
    words = outcome.words
    sizes = overview.sample.columns[outcome.size]
    amount = float(f"{np.median(sizes[sizes > 0]):.3g}")
    gain = decisions.value_of_exposure(
        fit, rows.items, amount, threshold=threshold, progress=False
    )
    further = words.further.format(
        amount=f"{amount:,.12g}", size=rows.items.roles[outcome.size]
    )
    text = (
        f"Value: how much {further} (the median of the items) would improve the choice on average, "
        "in units of theta. It is large where theta may lie on either side of the threshold."
    )
    yield (
        text,
        _ranked(words.worth, fit, rows, by, "value", value=gain["value"].to_numpy()),
    )


def _ranked(
    title: str,
    fit: Fit,
    rows: Subset,
    by: Sequence[str],
    ranked_by: str,
    **further: Any,
) -> Markup:
    """Return the first items by one column: names, what was observed, and their posteriors."""
    posterior = posterior_of(fit)
    roles = rows.items.roles
    mean, _, _, low, cautious, high = scorer(posterior, _PROBS, "all")(rows.columns)[:6]
    estimates = {"mean": mean, "5%": low, "95%": high}
    estimates |= further or ({} if ranked_by == "mean" else {ranked_by: cautious})
    order = np.argsort(-estimates[ranked_by], kind="stable")[:_LISTED]
    observed = ["score"] if rows.items.score else []
    observed += [posterior.outcome.observed, posterior.outcome.size]
    numbers = {roles[role]: rows.columns[role].tolist() for role in observed}
    labels = [name for name in [*roles.groups.values(), *by] if name not in numbers]
    columns = {name: rows.items.source[name].to_pylist() for name in labels} | numbers
    head = [*([rows.heading] if len(rows.names) else []), *columns, *estimates]
    values = [*([rows.names] if len(rows.names) else []), *columns.values()]
    values += [x.tolist() for x in estimates.values()]
    return table(title, [[column[k] for column in values] for k in order], head)


def same_items(fit: Fit, stats: Statistics) -> bool:
    """Return True if these items made the fit, as far as totals tell."""
    part = stats.table("part")
    outcome = fit.curves.outcome
    columns = {outcome.observed: part["sum_y"] / part["n"]}
    return not other_total(fit, Observations(columns, part["n"], {}, Roles()))
