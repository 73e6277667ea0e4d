"""Advice on a check: rules in the order in which to act, each with its sizes and a remedy."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from ..data.groups import group_roles, roles_of
from ..inference.results import Fit
from ..posterior.predictive import posterior_of
from .pit import TOGETHER
from .results import FAIL, OK, WARN
from .slices import ALL

_SMALL, _MANY = 0.01, 100_000  # differences of ECDFs that matter to few uses, of that many items
_MATTERS = 1.1  # factor of the bands' width from which clusters are named
_RANGES = r"\d/\d(:| to) "  # how names of fifths go on, of one and of all together
_SUMMARIZED = "on soc.summarize(items, joint=True)"

Rules = Iterable[tuple[object, str]]
"""Conditions, and the sentences to say where they hold."""


def advise(table: pd.DataFrame, fit: Fit, n_items: int, by: Sequence[str]) -> Iterator[str]:
    """Sentences on the verdicts, most serious first; `by` are columns whose levels were slices."""

    def values(what: str, *verdicts: str) -> list[float]:
        rows = table["what"].eq(what) & table["verdict"].isin(verdicts)
        return table.loc[rows, "value"].tolist()

    failed = bool((table["verdict"] == FAIL).any())
    # the tests that fail, or if nothing does those that warn
    has_p = table["p"].notna()
    tests = table[has_p & (table["verdict"] == (FAIL if failed else WARN))]
    noise, doubt = values("noise", FAIL, WARN), posterior_of(fit).outcome.words.doubt
    # wrong noise shows by size, in zeros and in shape
    explained = bool(values("noise", FAIL)) and not tests.empty
    wider = [factor for factor in values("clusters", OK, WARN, FAIL) if factor > _MATTERS]
    yield from (doubt.format(width=width) for width in noise)
    yield from (_clusters(factor, fit.widened) for factor in wider)
    first: Rules = (
        (
            values("converged", FAIL) or values("pareto_k", FAIL),
            "The inference is not to be trusted (fit.status.reason says why): fit again with "
            "method=soc.NUTS() before reading anything else here.",
        ),
        (explained, "Fix the noise model first: the other findings may follow from it."),
        (
            not (explained or failed or tests.empty),
            f"{len(tests)} of {has_p.sum()} tests have p < 0.05, about {0.05 * has_p.sum():.1f} "
            "are expected by chance: nothing fails, but look at soc.plots.plot_pit(result).",
        ),
    )
    yield from _said(first)
    if not explained:
        chance = "" if failed else "If this is more than chance: "
        yield from (chance + sentence for sentence in _of_tests(tests, fit, by, not noise))
    largest = tests.loc[tests["what"] == "PIT", "value"].max()
    last: Rules = (
        (
            failed and not explained and n_items > _MANY and largest < _SMALL,
            "With so many items the smallest departures show: no cumulative probability is off by "
            f"more than {largest:.3f}, which may not matter to you.",
        ),
        (table["verdict"].eq(OK).all(), "Nothing speaks against the model on these items."),
        (
            values("ess_fraction", WARN),
            "Few of the approximation's draws carry the weight: compare with method=soc.NUTS().",
        ),
    )
    yield from _said(last)
    for k in values("leave-one-out", WARN, FAIL):
        yield (
            f"A few outcomes sway the fit when they are left out (Pareto k {k:.2f}): look at them "
            "by arviz.plot_khat, of result.elpd or of arviz.loo(result.data, pointwise=True), and "
            "compare fits by soc.evaluate.held_out, which does not use these weights."
        )


def _said(rules: Rules) -> Iterator[str]:
    return (sentence for condition, sentence in rules if condition)


def _clusters(factor: float, widened: bool) -> str:
    if widened:
        return (
            f"Clusters matter: they make bands of the curves {factor:.2f} times as wide, as the "
            "fit allows for. P-values here take items as independent: they are too small."
        )
    return (
        f"Clusters matter: bands of the curves should be {factor:.2f} times as wide. Fit "
        "statistics that keep them: soc.summarize(items, cluster=...)."
    )


def _of_tests(tests: pd.DataFrame, fit: Fit, by: Sequence[str], known: bool) -> Iterator[str]:
    """Advice on tests that fail; where the noise is not `known`, only on what it cannot explain."""
    prior, outcome = fit.prior, posterior_of(fit).outcome
    words, name, family = outcome.words, f"soc.{type(prior).__name__}", prior.family
    shape = "what the fit says" if prior.mixture or prior.zero else family
    for what, ratio in zip(tests["what"], tests["value"], strict=True):
        more = f"than the model says ({ratio:.3g} times)"
        excess: Rules = (
            (
                what == "dispersion",
                f"{words.outcomes.capitalize()} scatter {'more' if ratio > 1 else 'less'} {more}: "
                "if these are not the items that made the fit, things have changed since: fit "
                "again; if they are, see which slices fail, and give the variance more knots, "
                f"{name}(variance=soc.Spline(knots=40)), on more bins.",
            ),
            (
                what.startswith("zero "),
                f"There are {'more' if ratio > 1 else 'fewer'} {what} {more}: theta given the "
                f"score is not {shape} near 0. Look for slices that fail, or two kinds of items "
                "under one score, and fit them apart.",
            ),
            (
                what.startswith("zero ") and ratio > 1 and not prior.zero,
                f"If theta of some items is exactly 0, fit {name}(zero=True) {_SUMMARIZED}.",
            ),
        )
        yield from _said(excess if ratio > 1 or known else ())
    slices = tests.loc[tests["what"].isin(["PIT", TOGETHER]), "where"]
    by_size = _off(slices, rf"{words.size} ({_RANGES}|>= )")
    by_score = known and _off(slices, f"score {_RANGES}")
    rules: Rules = (
        (
            by_size and prior.exposure is not None,
            f"The fit is off at some {words.sizes} though it has a term in {words.size}: give that "
            f"more knots, {name}(exposure=soc.Spline(knots=40)), or fit ranges of {words.size} "
            "apart.",
        ),
        (
            by_size and prior.exposure is None,
            f"The fit is off at some {words.sizes}. If these items made the fit, theta depends on "
            f"{words.size} beyond what the score says: fit {name}(exposure=soc.Spline()) "
            f"{_SUMMARIZED}, or give the score model the {words.size} as an input.",
        ),
        (
            by_score,
            "The fit is off by score: the curves are too stiff there. Use more bins in "
            "soc.summarize and more knots, "
            f"{name}(mean=soc.Spline(knots=40), variance=soc.Spline(knots=40)).",
        ),
        (
            _off(slices, "score = "),
            "Items of one score that many share, such as a default score, are not what the fit "
            "says: they may be of several kinds. Give them a group=, let theta depend on "
            f"{words.size} ({family}(exposure=soc.Spline())), or fit them apart.",
        ),
    )
    yield from _said(rules)
    roles = roles_of(fit.data.attrs)
    for column in by:
        yield from _said(_of_column(column, slices, fit, roles, outcome.size))
    or_zero = f", or {name}(zero=True) if many are exactly 0"
    yield from _said(
        (
            (
                (by_score or (known and (slices == ALL).any())) and not prior.mixture,
                f"Theta given the score may not be {family}: try soc.{family}Mixture("
                f"{'zero=True' * prior.zero})"
                f"{'' if prior.zero or outcome.positive else or_zero}, {_SUMMARIZED}.",
            ),
            (
                list(slices) == [ALL],
                "The fit is off overall: look at soc.plots.plot_curves(fit) and at "
                "soc.plots.plot_pit(result).",
            ),
        )
    )


def _off(slices: pd.Series, pattern: str) -> bool:
    """True if slices fail whose names begin with a pattern."""
    return bool(slices.str.match(pattern).any())


def _of_column(
    column: str, slices: pd.Series, fit: Fit, roles: Mapping[str, str], size: str
) -> Rules:
    """Rules on slices by one column."""
    prior, groups = fit.prior, list(group_roles(roles).values())
    levels, grouped = _off(slices, rf"(column )?{re.escape(column)} = "), column in groups
    ranges = _off(slices, rf"(column )?{re.escape(column)} {_RANGES}")
    together = repr((*groups, column)) if groups else repr(column)
    return (
        (
            levels and grouped and fit.groups,
            f"The fit is off in some groups of {column!r}, though each has curves of its own: see "
            "which, and fit them apart.",
        ),
        (
            levels and grouped and not fit.groups,
            f"The fit is off in some groups of {column!r}, which it pools: let each have curves of "
            f"its own, soc.{type(prior).__name__}(groups=True).",
        ),
        (
            levels and not grouped,
            f"The fit is off in some levels of {column!r}: give the items group={together}, so "
            f"that each level has curves of its own in soc.{prior.family}(), or give the score "
            "model this column.",
        ),
        (
            ranges and column not in (roles.get("score"), roles.get(size)),
            f"The fit is off by {column!r}, which says something about theta that the score does "
            "not: give the score model this column, or fit ranges of it apart.",
        ),
    )
