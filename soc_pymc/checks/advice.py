"""Advice on a check: what to distrust, then remedies, the one that gains most first."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd

from .._lib.reprs import short
from ..data.groups import group_roles, roles_of
from ..families.family import family_of
from ..families.priors import Spline
from ..inference.results import Fit
from ..posterior.predictive import posterior_of
from .gains import Gains
from .pit import NUMBER
from .results import FAIL, OK, WARN
from .slices import codes, equal_parts

_SMALL, _MANY = 0.01, 100_000  # differences of ECDFs that matter to few uses, of that many items
_MATTERS = 1.1  # factor of the bands' width from which clusters are named
_PARTS = 20  # of the scores and of the sizes, which have shifts for themselves
_ATOM = 0.2  # share of items of one size, which is then a group
_NEARLY = 0.8  # of two gains, where the simpler remedy is the better one
_FEWEST = 5  # items of a level, on average
_MOST_GROUPS = 50  # levels, of more of which items are clustered
_SUMMARIZED = "on soc.summarize(items, joint=True)"

Remedy = tuple[float, str]
"""Nats that it gains, and a sentence."""


def advise(table: pd.DataFrame, fit: Fit, gains: Gains | None, n_items: int) -> Iterator[str]:
    """Sentences on verdicts: doubts about the inference first, then remedies by their gain."""

    def values(what: str, *verdicts: str) -> list[float]:
        rows = table["what"].eq(what) & table["verdict"].isin(verdicts)
        return table.loc[rows, "value"].tolist()

    failed = bool((table["verdict"] == FAIL).any())
    tests = table[table["p"].notna() & (table["what"] != NUMBER)]
    off = tests[tests["verdict"].isin([WARN, FAIL])]
    wrong = values("noise", FAIL)
    for width in values("noise", FAIL, WARN):
        yield posterior_of(fit).outcome.words.doubt.format(width=width)
    for factor in values("clusters", OK, WARN, FAIL):
        if factor > _MATTERS:
            yield _clusters(factor, fit.widened)
    if values("converged", FAIL) or values("pareto_k", FAIL):
        yield (
            "The inference is not to be trusted (fit.status.reason says why): fit again with "
            "method=soc.NUTS() before reading anything else here."
        )
    found = remedies(fit, gains, failed) if gains else []
    if wrong and not off.empty:
        # wrong noise shows by size, in zeros and in shape
        yield "Fix the noise model first: the other findings may follow from it."
    else:
        yield from (f"{sentence} It gains about {nats:,.0f} nats." for nats, sentence in found)
    if failed and not (wrong or found or off.empty):
        yield (
            "No single remedy stands out: see which slices are off, by soc.plots.plot_pit(result) "
            "and by columns, soc.check(..., by=)."
        )
    if not (failed or off.empty):
        yield (
            f"{len(off)} of {len(tests)} tests {'has' if len(off) == 1 else 'have'} p < 0.05, "
            f"about {0.05 * len(tests):.1f} would by chance: nothing fails."
        )
    for number in values(NUMBER, FAIL) if table["verdict"].eq(FAIL).sum() == 1 else ():
        yield (
            f"{number:.0f} slices have p < 0.05: each departure is small, but so many are not "
            "chance."
        )
    largest = tests.loc[tests["what"] == "PIT", "value"].max()
    if failed and not wrong and n_items > _MANY and largest < _SMALL:
        yield (
            "With so many items the smallest departures show: no cumulative probability is off by "
            f"more than {largest:.3f}, which may not matter to you."
        )
    if table["verdict"].eq(OK).all() and not found:
        yield "Nothing speaks against the model on these items."
    if values("ess_fraction", WARN):
        yield "Few of the approximation's draws carry the weight: compare with method=soc.NUTS()."
    for k in values("leave-one-out", WARN, FAIL):
        yield (
            f"A few outcomes sway the fit when they are left out (Pareto k {k:.2f}): look at them "
            "by arviz.plot_khat, of result.elpd or of arviz.loo(result.data, pointwise=True), and "
            "compare fits by soc.evaluate.held_out, which does not use these weights."
        )


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


# --- remedies ------------------------------------------------------------------------------------


def remedies(fit: Fit, gains: Gains, failed: bool) -> list[Remedy]:
    """All remedies that gain more than chance would, by falling gain."""
    found = [*_of_shape(fit, gains), *_of_size(fit, gains), *_of_score(fit, gains)]
    found += _of_columns(fit, gains)
    if failed:  # new items stray a little as a whole, by the error of the curves
        found.append((
            gains.overall,
            "The curves are off for these items as a whole: if they are not those that made the "
            "fit, things have changed since. Fit again.",
        ))  # fmt: skip
    return sorted((pair for pair in found if pair[0] > 0), key=lambda pair: -pair[0])


def _of_shape(fit: Fit, gains: Gains) -> Iterable[Remedy]:
    prior = fit.prior
    mixture, zero = 0.0 if prior.mixture else gains.mixture(), 0.0
    if not (prior.zero or posterior_of(fit).outcome.theta.name == "linear"):
        zero = gains.zero()
    if zero and zero > _NEARLY * mixture:
        code = as_code(prior, zero=True)
        yield zero, f"Theta of some items may be exactly 0: fit {code} {_SUMMARIZED}."
    if mixture:
        code = as_code(prior, family_of(prior).mixture)
        yield mixture, f"Theta given the score is not {prior.family}: fit {code} {_SUMMARIZED}."


def _of_size(fit: Fit, gains: Gains) -> Iterable[Remedy]:
    prior, words, n = fit.prior, posterior_of(fit).outcome.words, gains.items.n
    size = gains.items.columns[posterior_of(fit).outcome.size]
    gain = gains.by(equal_parts(size, _PARTS, n))
    common, place = np.unique(size, return_inverse=True)
    share = np.bincount(place, n) / n.sum()
    atom = int(share.argmax())
    off = f"Theta depends on {words.size} beyond what the score says"
    alone = prior.exposure is not None or gains.by((place == atom).astype(int)) > _NEARLY * gain
    if _ATOM < share[atom] < 1 - _ATOM and alone:
        column = roles_of(fit.data.attrs)[posterior_of(fit).outcome.size]
        yield gain, (
            f"{off}, and {share[atom]:.0%} of the items share one, {common[atom]:.6g}: make these "
            f"a group of the items, group= a column of {column} == {common[atom]:.6g}."
        )
    elif prior.exposure is None:
        code = as_code(prior, exposure=Spline())
        yield gain, (
            f"{off}: fit {code} {_SUMMARIZED}, or give the score model the {words.size} as an "
            "input."
        )
    else:
        code = as_code(prior, exposure=_more(prior.exposure))
        yield gain, (
            f"{off} and the term in it: give that more knots, {code}, or fit ranges of "
            f"{words.size} apart."
        )


def _of_score(fit: Fit, gains: Gains) -> Iterable[Remedy]:
    score, prior, atoms = gains.items.columns["score"], fit.prior, np.array(fit.atoms)
    inside = np.isin(score, atoms)
    if inside.any():
        code = np.where(inside, 1 + np.searchsorted(atoms, score), 0)
        yield gains.by(code), (
            "Items of a score that many share, such as a default score, are of several kinds: give "
            "them a group=, or fit them apart."
        )
    code = as_code(prior, mean=_more(prior.mean), variance=_more(prior.variance))
    yield gains.by(equal_parts(score, _PARTS, gains.items.n)), (
        f"The curves are too stiff: use more bins in soc.summarize and more knots, {code}."
    )


def _of_columns(fit: Fit, gains: Gains) -> Iterable[Remedy]:
    roles, prior = roles_of(fit.data.attrs), fit.prior
    groups = list(group_roles(roles).values())
    kind = f"soc.{posterior_of(fit).outcome.kind.capitalize()}Items"
    for column, values in gains.items.labels.items():
        number, ranges = values.nunique(), codes(values)[1]
        if number * _FEWEST > len(values) and not ranges:
            continue  # names of items
        gain = gains.by(codes(values)[0])
        if ranges:
            said = (
                f"{column!r} says something about theta that the score does not: give the score "
                "model this column, or fit ranges of it apart."
            )
        elif column in groups and fit.groups:
            said = f"Groups of {column!r} are off though each has its curves: fit them apart."
        elif column in groups:
            said = f"Levels of {column!r} differ: fit {as_code(prior, groups=True)}."
        elif number <= _MOST_GROUPS:
            together = (*groups, column) if groups else column
            said = (
                f"Levels of {column!r} differ at equal score: give the items group={together!r}, "
                "or give the score model this column."
            )
        else:
            said = (
                f"Items of one {column!r} are alike: name it, {kind}(..., cluster={column!r}), or "
                f"group={column!r} for curves of each."
            )
        yield gain, said


# --- the fit's prior as code ---------------------------------------------------------------------


def as_code(prior: Any, kind: Any = None, **changes: Any) -> str:
    """Returns code for a prior with its terms, with some of them changed, or of another class."""
    kind = kind or type(prior)
    names = {field.name for field in fields(kind)} & {field.name for field in fields(prior)}
    changed = kind(**{name: getattr(prior, name) for name in names} | changes)
    return f"soc.{short(changed)}".replace("=Spline(", "=soc.Spline(")


def _more(spline: Spline) -> Spline:
    return replace(spline, knots=2 * spline.knots)
