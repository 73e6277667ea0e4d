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
from ..families.scales import LINEAR
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

_NOT_TRUSTED = (
    "The inference is not to be trusted (fit.status.reason says why): fit again with "
    "method=soc.NUTS() before reading anything else here."
)
_SWAYED = (
    "A few outcomes sway the fit when they are left out (Pareto k {:.2f}): look at them by "
    "arviz.plot_khat, of result.elpd or of arviz.loo(result.data, pointwise=True), and compare "
    "fits by soc.evaluate.held_out, which does not use these weights."
)

Remedy = tuple[float, str]
"""Nats that it gains, and a sentence."""


def advise(table: pd.DataFrame, fit: Fit, gains: Gains, n_items: int) -> Iterator[str]:
    """Sentences on verdicts: doubts about the inference first, then remedies by their gain."""

    def values(what: str, *verdicts: str) -> list[float]:
        rows = table["what"].eq(what) & table["verdict"].isin(verdicts)
        return table.loc[rows, "value"].tolist()

    failed = bool((table["verdict"] == FAIL).any())
    tests = table[table["p"].notna() & (table["what"] != NUMBER)]
    off, found = int(tests["verdict"].isin([WARN, FAIL]).sum()), remedies(fit, gains, failed)
    noise, doubt = values("noise", FAIL, WARN), posterior_of(fit).outcome.words.doubt
    # wrong noise shows by size, in zeros and in shape
    explained = bool(values("noise", FAIL)) and off > 0
    largest = tests.loc[tests["what"] == "PIT", "value"].max()
    yield from (doubt.format(width=width) for width in noise)
    for factor in values("clusters", OK, WARN, FAIL):
        if factor > _MATTERS:
            yield _clusters(factor, fit.widened)
    first = {
        _NOT_TRUSTED: values("converged", FAIL) or values("pareto_k", FAIL),
        "Fix the noise model first: the other findings may follow from it.": explained,
    }
    yield from (sentence for sentence, holds in first.items() if holds)
    if not explained:
        yield from (f"{sentence} It gains about {nats:,.0f} nats." for nats, sentence in found)
    last = {
        "No single remedy stands out: see which slices are off, by soc.plots.plot_pit(result) and "
        "by columns, soc.check(..., by=).": failed and off and not (explained or found),
        f"{off} of {len(tests)} tests {'has' if off == 1 else 'have'} p < 0.05, about "
        f"{0.05 * len(tests):.1f} would by chance: nothing fails.": off and not failed,
        "Many slices have p < 0.05: each departure is small, but so many are not chance.": (
            values(NUMBER, FAIL) and (table["verdict"] == FAIL).sum() == 1
        ),
        "With so many items the smallest departures show: no cumulative probability is off by "
        f"more than {largest:.3f}, which may not matter to you.": (
            failed and not explained and n_items > _MANY and largest < _SMALL
        ),
        "Nothing speaks against the model on these items.": (
            table["verdict"].eq(OK).all() and not found
        ),
        "Few of the approximation's draws carry the weight: compare with method=soc.NUTS().": (
            values("ess_fraction", WARN)
        ),
    }
    yield from (sentence for sentence, holds in last.items() if holds)
    yield from (_SWAYED.format(k) for k in values("leave-one-out", WARN, FAIL))


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
    found = [*_of_shape(fit, gains), _of_size(fit, gains), *_of_score(fit, gains)]
    found += _of_columns(fit, gains)
    if failed:  # new items stray a little as a whole, by the error of the curves
        again = "The curves are off for these items as a whole: if others made the fit, fit again."
        found.append((gains.overall, again))
    return sorted((pair for pair in found if pair[0] > 0), key=lambda pair: -pair[0])


def _of_shape(fit: Fit, gains: Gains) -> Iterable[Remedy]:
    prior = fit.prior
    mixture = 0.0 if prior.mixture else gains.mixture()
    # values may be zero effects too, which no outcome tells from small ones
    zero = 0.0 if prior.zero or posterior_of(fit).outcome.theta is LINEAR else gains.zero()
    if zero > _NEARLY * mixture:
        code = as_code(prior, zero=True)
        yield zero, f"Theta of some items may be exactly 0: fit {code} {_SUMMARIZED}."
    if mixture:
        code = as_code(prior, family_of(prior).mixture)
        yield mixture, f"Theta given the score is not {prior.family}: fit {code} {_SUMMARIZED}."


def _of_size(fit: Fit, gains: Gains) -> Remedy:
    prior, outcome, n = fit.prior, posterior_of(fit).outcome, gains.items.n
    size, words = gains.items.columns[outcome.size], outcome.words
    gain = gains.by(equal_parts(size, _PARTS, n))
    common, place = np.unique(size, return_inverse=True)
    share = np.bincount(place, n) / n.sum()
    atom = int(share.argmax())
    off, value = f"Theta depends on {words.size} beyond what the score says", f"{common[atom]:.6g}"
    alone = prior.exposure is not None or gains.by((place == atom).astype(int)) > _NEARLY * gain
    if _ATOM < share[atom] < 1 - _ATOM and alone:
        column = roles_of(fit.data.attrs)[outcome.size]
        return gain, (
            f"{off}, and {share[atom]:.0%} of the items share one, {value}: make these a group of "
            f"the items, group= a column of {column} == {value}."
        )
    code = as_code(prior, exposure=_more(prior.exposure) if prior.exposure else Spline())
    if prior.exposure is None:
        return gain, (
            f"{off}: fit {code} {_SUMMARIZED}, or give the score model the {words.size} as an "
            "input."
        )
    return gain, (
        f"{off} and the term in it: give that more knots, {code}, or fit ranges of {words.size} "
        "apart."
    )


def _of_score(fit: Fit, gains: Gains) -> Iterable[Remedy]:
    score, prior, atoms = gains.items.columns["score"], fit.prior, np.array(fit.atoms)
    inside = np.isin(score, atoms)
    if inside.any():
        yield (
            gains.by(np.where(inside, 1 + np.searchsorted(atoms, score), 0)),
            (
                "Items of a score that many share, such as a default score, are of several kinds: "
                "give them a group=, or fit them apart."
            ),
        )
    code = as_code(prior, mean=_more(prior.mean), variance=_more(prior.variance))
    yield (
        gains.by(equal_parts(score, _PARTS, gains.items.n)),
        (f"The curves are too stiff: use more bins in soc.summarize and more knots, {code}."),
    )


def _of_columns(fit: Fit, gains: Gains) -> Iterable[Remedy]:
    groups = tuple(group_roles(roles_of(fit.data.attrs)).values())
    kind = f"soc.{posterior_of(fit).outcome.kind.capitalize()}Items"
    for column, values in gains.items.labels.items():
        (code, ranges), number = codes(values), values.nunique()
        if number * _FEWEST > len(values) and not ranges:
            continue  # names of items
        together = (*groups, column) if groups else column
        if ranges:
            said = (
                f"{column!r} says something about theta that the score does not: give the score "
                "model this column, or fit ranges of it apart."
            )
        elif column in groups and fit.groups:
            said = f"Groups of {column!r} are off though each has its curves: fit them apart."
        elif column in groups:
            said = f"Levels of {column!r} differ: fit {as_code(fit.prior, groups=True)}."
        elif number <= _MOST_GROUPS:
            said = (
                f"Levels of {column!r} differ at equal score: give the items group={together!r}, "
                "or give the score model this column."
            )
        else:
            said = (
                f"Items of one {column!r} are alike: name it, {kind}(..., cluster={column!r}), or "
                f"group={together!r} for curves of each."
            )
        yield gains.by(code), said


# --- the fit's prior as code ---------------------------------------------------------------------


def as_code(prior: Any, kind: Any = None, **changes: Any) -> str:
    """Returns code for a prior with its terms, with some of them changed, or of another class."""
    kind = kind or type(prior)
    names = {field.name for field in fields(kind)} & {field.name for field in fields(prior)}
    changed = kind(**{name: getattr(prior, name) for name in names} | changes)
    return f"soc.{short(changed)}".replace("=Spline(", "=soc.Spline(")


def _more(spline: Spline) -> Spline:
    return replace(spline, knots=max(2 * spline.knots, Spline().knots))
