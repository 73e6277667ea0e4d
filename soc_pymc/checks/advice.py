"""Advice on a check: one table of rules, each a condition, its sizes, a sentence and a remedy."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from ..data.groups import group_roles, roles_of
from ..inference.results import Fit
from ..posterior.predictive import posterior_of
from .results import FAIL, OK, WARN
from .slices import ALL

TOGETHER = "PIT of slices"
"""The check of all slices by one quantity together."""

_SMALL, _MANY = 0.01, 100_000  # differences of ECDFs that matter to few uses, of that many items
_MATTERS = 1.1  # factor of the bands' width from which clusters are named
_RANGES = r"\d/\d(:| to) "  # how names of fifths go on, of one and of all together


class _Case:
    """A table of findings on a fit, and what rules ask of both."""

    def __init__(self, table: pd.DataFrame, fit: Fit, n_items: int, by: Sequence[str]) -> None:
        self.table, self.prior, self.n_items = table, fit.prior, n_items
        self.widened, self.grouped = fit.widened, bool(fit.groups)
        self.outcome, roles = posterior_of(fit).outcome, roles_of(fit.data.attrs)
        self.groups = list(group_roles(roles).values())
        self.failed = bool((table["verdict"] == FAIL).any())
        # the tests that fail, or if nothing does those that warn
        tested = table["p"].notna()
        self.tests = table[tested & (table["verdict"] == (FAIL if self.failed else WARN))]
        self.n_tests = int(tested.sum())
        self.known = not self.values("noise", FAIL, WARN)  # nothing speaks against the noise
        # wrong noise shows by size, in zeros and in shape
        self.explained = bool(self.values("noise", FAIL)) and not self.tests.empty
        pits = self.tests[self.tests["what"].isin(["PIT", TOGETHER])]
        self.slices = pits["where"]
        self.largest = pits.loc[pits["what"] == "PIT", "value"].max()
        self.off_by_score = self.known and self.off(f"score {_RANGES}")
        self.off_overall = self.known and bool((self.slices == ALL).any())
        self.off_by_size = self.off(rf"{self.outcome.words.size} ({_RANGES}|>= )")
        inputs = roles.get("score"), roles.get(self.outcome.size)
        self.levels = [name for name in by if self.off(rf"(column )?{re.escape(name)} = ")]
        self.ranges = [
            name
            for name in by
            if name not in inputs and self.off(rf"(column )?{re.escape(name)} {_RANGES}")
        ]

    def values(self, what: str, *verdicts: str) -> list[float]:
        rows = self.table["what"].eq(what) & self.table["verdict"].isin(verdicts)
        return self.table.loc[rows, "value"].tolist()

    def off(self, pattern: str) -> bool:
        """True if slices fail whose names begin with a pattern."""
        return bool(self.slices.str.match(pattern).any())

    def ratios(self, what: str) -> list[tuple[str, float]]:
        """Names and ratios of summaries; excesses alone if the noise is not known."""
        rows = self.tests[self.tests["what"].str.startswith(what)]
        rows = rows[(rows["value"] > 1) | self.known]
        return list(zip(rows["what"], rows["value"], strict=True))

    def words(self) -> dict[str, str]:
        """Words of the fit that sentences and remedies use."""
        prior, words = self.prior, self.outcome.words
        name = type(prior).__name__
        zeros = f", or soc.{name}(zero=True) if many are exactly 0"
        return {
            "prior": name,
            "family": prior.family,
            "shape": "what the fit says" if prior.mixture or prior.zero else prior.family,
            "outcomes": words.outcomes.capitalize(),
            "size_name": words.size,
            "sizes": words.sizes,
            "zero": "zero=True" if prior.zero else "",
            "or_zero": "" if prior.zero or self.outcome.positive else zeros,
        }


@dataclass(frozen=True)
class Rule:
    """Advice for each size that a condition yields; none where it yields nothing."""

    sizes: Callable[[_Case], Iterable[object]]
    sentence: str  # with {size}, {remedy} and the words of a case
    remedy: str = ""  # code
    of_tests: bool = True  # may be chance where nothing fails, or follow from wrong noise


def _if(condition: object, size: object = "") -> list[object]:
    return [size] if condition else []


def _noise(case: _Case) -> Iterable[str]:
    for width in case.values("noise", FAIL, WARN):
        yield case.outcome.words.doubt.format(width=width)


def _clusters(case: _Case, widened: bool) -> Iterable[str]:
    for factor in case.values("clusters", OK, WARN, FAIL):
        if factor > _MATTERS and case.widened == widened:
            yield f"{factor:.2f}"


def _dispersion(case: _Case) -> Iterable[str]:
    for _, ratio in case.ratios("dispersion"):
        yield f"{'more' if ratio > 1 else 'less'} than the model says ({ratio:.3g} times)"


def _zeros(case: _Case) -> Iterable[str]:
    for name, ratio in case.ratios("zero "):
        yield f"{'more' if ratio > 1 else 'fewer'} {name} than the model says ({ratio:.3g} times)"


def _level_groups(case: _Case) -> Iterable[str]:
    for name in case.levels:
        if name not in case.groups:
            columns = repr((*case.groups, name)) if case.groups else repr(name)
            yield f"{name!r}: give the items group={columns}"


_SUMMARIZED = "soc.summarize(items, joint=True)"
RULES = (
    Rule(_noise, "{size}", of_tests=False),
    Rule(
        lambda case: _clusters(case, widened=True),
        "Clusters matter: they make bands of the curves {size} times as wide, as the fit allows "
        "for. P-values here take items as independent: they are too small.",
        of_tests=False,
    ),
    Rule(
        lambda case: _clusters(case, widened=False),
        "Clusters matter: bands of the curves should be {size} times as wide. Fit statistics that "
        "keep them: {remedy}.",
        "soc.summarize(items, cluster=...)",
        of_tests=False,
    ),
    Rule(
        lambda case: _if(case.values("converged", FAIL) or case.values("pareto_k", FAIL)),
        "The inference is not to be trusted (fit.status.reason says why): fit again with {remedy} "
        "before reading anything else here.",
        "method=soc.NUTS()",
        of_tests=False,
    ),
    Rule(
        lambda case: _if(case.explained),
        "Fix the noise model first: the other findings may follow from it.",
        of_tests=False,
    ),
    Rule(
        lambda case: _if(
            not (case.failed or case.tests.empty),
            f"{len(case.tests)} of {case.n_tests} tests have p < 0.05, about "
            f"{0.05 * case.n_tests:.1f}",
        ),
        "{size} are expected by chance: nothing fails, but look at {remedy}.",
        "soc.plots.plot_pit(result)",
        of_tests=False,
    ),
    Rule(
        _dispersion,
        "{outcomes} scatter {size}: if these are not the items that made the fit, things have "
        "changed since: fit again; if they are, see which slices fail, and give the variance more "
        "knots, {remedy}, on more bins.",
        "soc.{prior}(variance=soc.Spline(knots=40))",
    ),
    Rule(
        _zeros,
        "There are {size}: theta given the score is not {shape} near 0. Look for slices that fail, "
        "or two kinds of items under one score, and fit them apart.",
    ),
    Rule(
        lambda case: _if(
            any(ratio > 1 for _, ratio in case.ratios("zero ")) and not case.prior.zero
        ),
        "If theta of some items is exactly 0, fit {remedy}.",
        f"soc.{{prior}}(zero=True) on {_SUMMARIZED}",
    ),
    Rule(
        lambda case: _if(case.off_by_size and case.prior.exposure is not None),
        "The fit is off at some {sizes} though it has a term in {size_name}: give that more knots, "
        "{remedy}, or fit ranges of {size_name} apart.",
        "soc.{prior}(exposure=soc.Spline(knots=40))",
    ),
    Rule(
        lambda case: _if(case.off_by_size and case.prior.exposure is None),
        "The fit is off at some {sizes}. If these items made the fit, theta depends on {size_name} "
        "beyond what the score says: fit {remedy}, or give the score model the {size_name} as an "
        "input.",
        f"soc.{{prior}}(exposure=soc.Spline()) on {_SUMMARIZED}",
    ),
    Rule(
        lambda case: _if(case.off_by_score),
        "The fit is off by score: the curves are too stiff there. Use more bins in soc.summarize "
        "and more knots, {remedy}.",
        "soc.{prior}(mean=soc.Spline(knots=40), variance=soc.Spline(knots=40))",
    ),
    Rule(
        lambda case: _if(case.off("score = ")),
        "Items of one score that many share, such as a default score, are not what the fit says: "
        "they may be of several kinds. Give them a group=, let theta depend on {size_name} "
        "({remedy}), or fit them apart.",
        "{family}(exposure=soc.Spline())",
    ),
    Rule(
        lambda case: [name for name in case.levels if name in case.groups and case.grouped],
        "The fit is off in some groups of {size!r}, though each has curves of its own: see which, "
        "and fit them apart.",
    ),
    Rule(
        lambda case: [name for name in case.levels if name in case.groups and not case.grouped],
        "The fit is off in some groups of {size!r}, which it pools: let each have curves of its "
        "own, {remedy}.",
        "soc.{prior}(groups=True)",
    ),
    Rule(
        _level_groups,
        "The fit is off in some levels of {size}, so that each level has curves of its own in "
        "{remedy}, or give the score model this column.",
        "soc.{family}()",
    ),
    Rule(
        lambda case: case.ranges,
        "The fit is off by {size!r}, which says something about theta that the score does not: "
        "give the score model this column, or fit ranges of it apart.",
    ),
    Rule(
        lambda case: _if((case.off_overall or case.off_by_score) and not case.prior.mixture),
        "Theta given the score may not be {family}: try {remedy}.",
        f"soc.{{family}}Mixture({{zero}}){{or_zero}}, on {_SUMMARIZED}",
    ),
    Rule(
        lambda case: _if(list(case.slices) == [ALL]),
        "The fit is off overall: look at {remedy}.",
        "soc.plots.plot_curves(fit) and at soc.plots.plot_pit(result)",
    ),
    Rule(
        lambda case: _if(
            case.failed and case.n_items > _MANY and case.largest < _SMALL, f"{case.largest:.3f}"
        ),
        "With so many items the smallest departures show: no cumulative probability is off by more "
        "than {size}, which may not matter to you.",
    ),
    Rule(
        lambda case: _if(case.table["verdict"].eq(OK).all()),
        "Nothing speaks against the model on these items.",
        of_tests=False,
    ),
    Rule(
        lambda case: _if(case.values("ess_fraction", WARN)),
        "Few of the approximation's draws carry the weight: compare with {remedy}.",
        "method=soc.NUTS()",
        of_tests=False,
    ),
    Rule(
        lambda case: [f"{k:.2f}" for k in case.values("leave-one-out", WARN, FAIL)],
        "A few outcomes sway the fit when they are left out (Pareto k {size}): look at them by "
        "arviz.plot_khat, of result.elpd or of arviz.loo(result.data, pointwise=True), and compare "
        "fits by {remedy}, which does not use these weights.",
        "soc.evaluate.held_out",
        of_tests=False,
    ),
)


def advise(table: pd.DataFrame, fit: Fit, n_items: int, by: Sequence[str]) -> Iterator[str]:
    """Sentences on the verdicts, most serious first; `by` are columns whose levels were slices."""
    case = _Case(table, fit, n_items, by)
    words, doubt = case.words(), "" if case.failed else "If this is more than chance: "
    for rule in RULES:
        if not (rule.of_tests and case.explained):
            for size in rule.sizes(case):
                remedy = rule.remedy.format(**words)
                sentence = rule.sentence.format(size=size, remedy=remedy, **words)
                yield (doubt if rule.of_tests else "") + sentence
