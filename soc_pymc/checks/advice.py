"""What the findings of a check mean, and what to try next."""

import json
import re
from collections.abc import Iterator, Sequence

import pandas as pd

from ..inference.results import Fit
from ..posterior.predictive import Posterior
from .pit import sizes

__all__ = ["advise"]

_SMALL = 0.01  # ECDF differences below this matter to few uses
_MIXTURES = {"Gamma": "GammaMixture", "Normal": "NormalMixture"}


def advise(
    table: pd.DataFrame, fit: Fit, law: Posterior, n_items: int, by: Sequence[str]
) -> Iterator[str]:
    """What the verdicts mean, most serious first.

    Parameters
    ----------
    table
        Findings with their verdicts.
    fit, law
        The fit and its law.
    n_items
        Number of items.
    by
        Columns whose levels were slices.
    """
    failed = table[table["verdict"] == "fail"]
    tested = table["p_value"].notna()
    if not failed.empty:
        yield from _inference_advice(failed)
        findings = failed[failed["p_value"].notna()]
        yield from _summary_advice(findings, fit, law)
        yield from _slice_advice(findings, fit, law, by)
        yield from _size_of_sample(findings, n_items)
    elif (table["verdict"] == "look").any():
        looks = int(((table["verdict"] == "look") & tested).sum())
        if looks:
            yield (
                f"{looks} of {int(tested.sum())} tests have p < .05, about "
                f"{0.05 * tested.sum():.1f} are expected by chance: nothing fails, but look at "
                "soc.plots.plot_pit(result)."
            )
    else:
        yield "Nothing speaks against the model on these items."
    if ((table["check"] == "ess_fraction") & (table["verdict"] == "look")).any():
        yield ("Few of the approximation's draws carry the weight: compare with method=soc.NUTS().")


def _inference_advice(failed: pd.DataFrame) -> Iterator[str]:
    if failed["check"].isin(["converged", "pareto_k"]).any():
        yield (
            "The inference is not to be trusted (fit.status.reason says why): fit again with "
            "method=soc.NUTS() before reading anything else here."
        )


def _summary_advice(failed: pd.DataFrame, fit: Fit, law: Posterior) -> Iterator[str]:
    """On dispersion and the number of zeros."""
    what = "Counts scatter" if law.outcome.whole else "Values scatter"
    for ratio in failed.loc[failed["check"] == "dispersion", "statistic"]:
        side = "more" if ratio > 1 else "less"
        yield (
            f"{what} {side} than the model says ({ratio:.3g} times): if these "
            "are not the items that made the fit, things have changed since: fit again; if they "
            "are, look which slices fail, and give the variance more knots, "
            f"soc.{_family(fit)}(variance=soc.Spline(knots=40)), on more bins."
        )
    for ratio in failed.loc[failed["check"] == "zero counts", "statistic"]:
        side, what = "fewer", "slices that fail"
        if ratio > 1:
            side, what = "more", "two kinds of items under one score"
        yield (
            f"There are {side} zero counts than the model says ({ratio:.3g} times): theta given "
            f"the score is not {_shape(fit)} near 0. Look for {what} and fit them apart."
        )


def _family(fit: Fit) -> str:
    return type(fit.prior).__name__


def _single(fit: Fit) -> str:
    """The family that takes further terms: a mixture takes none."""
    return _family(fit).removesuffix("Mixture")


def _shape(fit: Fit) -> str:
    return _family(fit) if _family(fit) in _MIXTURES else "what the fit says"


def _slice_advice(
    failed: pd.DataFrame, fit: Fit, law: Posterior, by: Sequence[str]
) -> Iterator[str]:
    """On the slices whose PIT fails."""
    named = failed.loc[failed["check"] == "PIT", "slice"]
    family = _family(fit)
    if named.str.match(rf"{sizes(law)} (\d/\d: |>= )").any():
        yield _size_advice(fit, law)
    by_score = named.str.match(r"score \d/\d: ").any()
    if by_score:
        yield (
            "The fit is off by score: the curves are too stiff there. Use more bins in "
            f"soc.summarize and more knots, soc.{family}(mean=soc.Spline(knots=40), "
            "variance=soc.Spline(knots=40))."
        )
    for column in by:
        own = rf"(column )?{re.escape(column)}"
        if named.str.match(rf"{own} = ").any():
            yield _level_advice(fit, column)
        if named.str.match(rf"{own} \d/\d: ").any() and not _is_input(law, fit, column):
            yield (
                f"The fit is off by {column!r}, which says something about theta that the score "
                "does not: give the score model this column, or fit ranges of it apart."
            )
    if (named.eq("all items").any() or by_score) and family in _MIXTURES:
        yield (
            f"Theta given the score may not be {family}: try soc.{_MIXTURES[family]}() on "
            "soc.summarize(items, joint=True)."
        )
    if list(named) == ["all items"]:
        yield (
            "The fit is off overall: look at soc.plots.plot_curves(fit) and at "
            "soc.plots.plot_pit(result)."
        )


def _is_input(law: Posterior, fit: Fit, column: str) -> bool:
    """Whether a column is the score or the size, on which there is advice of its own."""
    roles = json.loads(fit.data.attrs.get("roles", "{}"))
    return column in (roles.get("score"), roles.get(law.outcome.size))


def _size_advice(fit: Fit, law: Posterior) -> str:
    """On items of some sizes."""
    size = sizes(law)
    if getattr(fit.prior, "exposure", None) is not None:
        return (
            f"The fit is off at some {size}s though it has a term in {size}: give that more knots, "
            f"soc.{_family(fit)}(exposure=soc.Spline(knots=40)), or fit ranges of {size} apart."
        )
    return (
        f"The fit is off at some {size}s. If these items made the fit, {size} says something about "
        "theta that the score does not: fit "
        f"soc.{_single(fit)}(exposure=soc.Spline()) on "
        "soc.summarize(items, joint=True), or give "
        f"the score model the {size} as an input."
    )


def _level_advice(fit: Fit, column: str) -> str:
    """On levels of a column."""
    if column == json.loads(fit.data.attrs.get("roles", "{}")).get("group"):
        if fit.groups:
            return (
                f"The fit is off in some groups of {column!r}, though each has curves of its own: "
                "look which, and fit them apart."
            )
        return (
            f"The fit is off in some groups of {column!r}, which it pools: let each have curves of "
            f"its own, soc.{_single(fit)}(groups=True)."
        )
    return (
        f"The fit is off in some levels of {column!r}: give the items group={column!r}, so that "
        f"each level has curves of its own in soc.{_single(fit)}(), or give the score model this "
        "column."
    )


def _size_of_sample(failed: pd.DataFrame, n_items: int) -> Iterator[str]:
    pit = failed[failed["check"] == "PIT"]
    if not pit.empty and n_items > 100_000 and float(pit["statistic"].max()) < _SMALL:
        yield (
            f"With {n_items:,} items the smallest departures show: no cumulative probability is "
            f"off by more than {pit['statistic'].max():.3f}, which may not matter to you."
        )
