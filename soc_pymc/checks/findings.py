"""The findings of a check in plain words: what they mean, and what to try next."""

import re
from collections.abc import Iterator, Sequence

import pandas as pd

from ..data.groups import group_roles, roles_of
from ..families.outcomes import Outcome
from ..inference.results import Fit
from .results import FAIL, OK, WARN

_SMALL = 0.01  # ECDF differences below this matter to few uses
_MATTERS = 1.1  # factor of the bands' width from which clusters are named
TOGETHER = "PIT of slices"
"""The check of all slices by one quantity together."""


# --- advice --------------------------------------------------------------------------------------


def advise(
    table: pd.DataFrame, fit: Fit, outcome: Outcome, n_items: int, by: Sequence[str]
) -> Iterator[str]:
    """What the verdicts mean, most serious first; `by` are columns whose levels were slices."""
    doubted = (table["what"] == "noise") & (table["verdict"] != OK)
    for width in table.loc[doubted, "value"]:
        yield outcome.words.doubt.format(width=width)
    yield from _cluster_advice(table[table["what"] == "clusters"], fit)
    known = not doubted.any()
    failed = table[table["verdict"] == FAIL]
    tested = table["p"].notna()
    if not failed.empty:
        if failed["what"].isin(["converged", "pareto_k"]).any():
            yield (
                "The inference is not to be trusted (fit.status.reason says why): fit again with "
                "method=soc.NUTS() before reading anything else here."
            )
        findings = failed[failed["p"].notna()]
        if (table.loc[doubted, "verdict"] == FAIL).any() and not findings.empty:
            # wrong noise shows by size, in zeros and in the shape too
            yield "Mend the noise first: the other findings may follow from it."
        else:
            yield from _summary_advice(findings, fit, outcome, known)
            yield from _slice_advice(findings, fit, outcome, by, known)
            yield from _size_of_sample(findings, n_items)
    elif (table["verdict"] == WARN).any():
        looked = table[(table["verdict"] == WARN) & tested]
        if not looked.empty:
            yield (
                f"{len(looked)} of {int(tested.sum())} tests have p < 0.05, about "
                f"{0.05 * tested.sum():.1f} are expected by chance: nothing fails, but look at "
                "soc.plots.plot_pit(result)."
            )
        yield from (
            f"If this is more than chance: {sentence}"
            for sentence in (
                *_summary_advice(looked, fit, outcome, known),
                *_slice_advice(looked, fit, outcome, by, known),
            )
        )
    else:
        yield "Nothing speaks against the model on these items."
    if ((table["what"] == "ess_fraction") & (table["verdict"] == WARN)).any():
        yield ("Few of the approximation's draws carry the weight: compare with method=soc.NUTS().")
    swayed = (table["what"] == "leave-one-out") & (table["verdict"] != OK)
    for k in table.loc[swayed, "value"]:
        yield (
            f"A few outcomes sway the fit when they are left out (Pareto k {k:.2f}): look at them "
            "by arviz.plot_khat, of result.elpd or of arviz.loo(result.data, pointwise=True), and "
            "compare fits by soc.evaluate.held_out, which does not use these weights."
        )


def _cluster_advice(found: pd.DataFrame, fit: Fit) -> Iterator[str]:
    """On items that depend on each other within clusters."""
    for factor in found.loc[found["value"] > _MATTERS, "value"]:
        if fit.widened:
            yield (
                f"Clusters matter: they make bands of the curves {factor:.2f} times as wide, as "
                "the fit allows for. P-values here take items as independent: they are too small."
            )
        else:
            yield (
                f"Clusters matter: bands of the curves should be {factor:.2f} times as wide. Fit "
                "statistics that keep them: soc.summarize(items, cluster=...)."
            )


def _summary_advice(failed: pd.DataFrame, fit: Fit, outcome: Outcome, known: bool) -> Iterator[str]:
    """On dispersion and the number of zeros; if the noise is not known, on excesses alone."""
    if not known:
        failed = failed[failed["value"] > 1]
    for ratio in failed.loc[failed["what"] == "dispersion", "value"]:
        side = "more" if ratio > 1 else "less"
        yield (
            f"{outcome.words.outcomes.capitalize()} scatter {side} than the model says "
            f"({ratio:.3g} times): if these are not the items that made the fit, things have "
            "changed since: fit again; if they are, look which slices fail, and give the variance "
            f"more knots, soc.{_prior(fit)}(variance=soc.Spline(knots=40)), on more bins."
        )
    zeros = failed[failed["what"].str.startswith("zero ")]
    for zero, ratio in zip(zeros["what"], zeros["value"], strict=True):
        side, what = "fewer", "slices that fail"
        if ratio > 1:
            side, what = "more", "two kinds of items under one score"
        plain = not (fit.prior.mixture or fit.prior.zero)
        shape = fit.prior.family if plain else "what the fit says"
        cause = ""
        if ratio > 1 and not fit.prior.zero:
            cause = (
                f" If theta of some items is exactly 0, fit soc.{_prior(fit)}(zero=True) on "
                "soc.summarize(items, joint=True)."
            )
        yield (
            f"There are {side} {zero} than the model says ({ratio:.3g} times): theta given "
            f"the score is not {shape} near 0.{cause} Look for {what} and fit them apart."
        )


def _prior(fit: Fit) -> str:
    return type(fit.prior).__name__


def _slice_advice(
    failed: pd.DataFrame, fit: Fit, outcome: Outcome, by: Sequence[str], known: bool
) -> Iterator[str]:
    """On slices whose PIT fails; if the noise is not known, not on what it may explain."""
    named = failed.loc[failed["what"].isin(["PIT", TOGETHER]), "where"]
    if named.str.match(rf"{outcome.words.size} (\d/\d(:| to) |>= )").any():
        yield _size_advice(fit, outcome)
    by_score = known and named.str.match(r"score \d/\d(:| to) ").any()
    if by_score:
        yield (
            "The fit is off by score: the curves are too stiff there. Use more bins in "
            f"soc.summarize and more knots, soc.{_prior(fit)}(mean=soc.Spline(knots=40), "
            "variance=soc.Spline(knots=40))."
        )
    if named.str.match(r"score = ").any():
        yield (
            "Items of one score that many share, such as a default score, are not what the fit "
            "says: they may be of several kinds. Give them a group=, let theta depend on "
            f"{outcome.words.size} ({fit.prior.family}(exposure=soc.Spline())), or fit them apart."
        )
    for column in by:
        own = rf"(column )?{re.escape(column)}"
        if named.str.match(rf"{own} = ").any():
            yield _level_advice(fit, column)
        if named.str.match(rf"{own} \d/\d(:| to) ").any() and not _is_input(outcome, fit, column):
            yield (
                f"The fit is off by {column!r}, which says something about theta that the score "
                "does not: give the score model this column, or fit ranges of it apart."
            )
    whole = known and named.eq("all items").any()
    if (whole or by_score) and not fit.prior.mixture:
        zero = "zero=True" if fit.prior.zero else ""
        often = (
            ""
            if zero or outcome.positive
            else (f", or soc.{_prior(fit)}(zero=True) if many are exactly 0")
        )
        yield (
            f"Theta given the score may not be {fit.prior.family}: try "
            f"soc.{fit.prior.family}Mixture({zero}){often}, on soc.summarize(items, joint=True)."
        )
    if list(named) == ["all items"]:
        yield (
            "The fit is off overall: look at soc.plots.plot_curves(fit) and at "
            "soc.plots.plot_pit(result)."
        )


def _is_input(outcome: Outcome, fit: Fit, column: str) -> bool:
    """Whether a column is the score or the size, on which there is advice of its own."""
    roles = roles_of(fit.data.attrs)
    return column in (roles.get("score"), roles.get(outcome.size))


def _size_advice(fit: Fit, outcome: Outcome) -> str:
    """On items of some sizes."""
    size, sizes = outcome.words.size, outcome.words.sizes
    if fit.prior.exposure is not None:
        return (
            f"The fit is off at some {sizes} though it has a term in {size}: give that more knots, "
            f"soc.{_prior(fit)}(exposure=soc.Spline(knots=40)), or fit ranges of {size} apart."
        )
    return (
        f"The fit is off at some {sizes}. If these items made the fit, theta depends on {size} "
        f"beyond what the score says: fit soc.{_prior(fit)}(exposure=soc.Spline()) on "
        f"soc.summarize(items, joint=True), or give the score model the {size} as an input."
    )


def _level_advice(fit: Fit, column: str) -> str:
    """On levels of a column."""
    columns = list(group_roles(roles_of(fit.data.attrs)).values())
    if column in columns:
        if fit.groups:
            return (
                f"The fit is off in some groups of {column!r}, though each has curves of its own: "
                "look which, and fit them apart."
            )
        return (
            f"The fit is off in some groups of {column!r}, which it pools: let each have curves of "
            f"its own, soc.{_prior(fit)}(groups=True)."
        )
    wanted = repr((*columns, column)) if columns else repr(column)
    return (
        f"The fit is off in some levels of {column!r}: give the items group={wanted}, so that "
        f"each level has curves of its own in soc.{fit.prior.family}(), or give the score model "
        "this column."
    )


def _size_of_sample(failed: pd.DataFrame, n_items: int) -> Iterator[str]:
    pit = failed[failed["what"] == "PIT"]
    if not pit.empty and n_items > 100_000 and float(pit["value"].max()) < _SMALL:
        yield (
            f"With {n_items:,} items the smallest departures show: no cumulative probability is "
            f"off by more than {pit['value'].max():.3f}, which may not matter to you."
        )
