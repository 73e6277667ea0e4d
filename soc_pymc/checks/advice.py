"""Advice on a check: what to distrust, then remedies, the one that gains most first.

Remedies are looked for by what free shifts and shapes add to the log density under the average
curves: of a grouping the best shifts of both for each level, of a richer shape a mixture of shifted
curves. Those that add more than chance are fitted quickly, and ordered by what these fits gain.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import batched
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arguments import SocError
from .._lib.arrays import Bools, Columns, Floats, Ints, Pair, equal_parts
from .._lib.laws import smoothed
from .._lib.reprs import code_of, counted
from ..data.items import NO_SCORE, Items
from ..data.statistics import Statistics
from ..families import family_of
from ..families.noise import NoiseLaw, df_of_spread
from ..families.priors import Prior, Spline
from ..families.scales import LINEAR
from ..fits import PARETO_K, Fit
from ..inference.fitting import rough_curves
from ..posterior.calibration import variance_parts
from ..posterior.item_columns import places
from ..posterior.predictive import MixturePosterior, Posterior, posterior_under, widened
from .comparison import LeftOut, mixture_weights
from .findings import FAIL, FAILS, OK, WARN, WARNS, Remedy, intervals
from .observations import Observations, observe, totals_without_folds
from .pit import NUMBER, is_cut, level_codes

# differences of ECDFs that matter to few uses, of that many items
_SMALL_DISTANCE = 0.01
_MANY_ITEMS = 100_000
# factor of the bands' width from which clusters are named
_MATTERS = 1.1
# parts of the scores and of the sizes, each with its own shifts
_SHIFTED_PARTS = 20
# share of the larger gain from which the simpler remedy is preferred
SIMPLER_SHARE = 0.8
_WORTH = 1.0  # nats that a remedy has to gain
_FEWEST_PER_LEVEL = 5  # items of a level, on average
_MOST_LEVELS = 50  # levels; items of more levels count as clustered
# ends of the interval of a share of Var(theta) that is next to nothing
_LEAST_EXPLAINED = 0.02
_MOST_EXPLAINED = 0.25
_SUMMARIZED = "on soc.summarize(items, joint=True)"

_MOST_EXAMINED = 20_000  # most rows examined, a random subset; of mixtures fewer
_MOST_ON_GRIDS = 4_000
_SHIFT_SIZES = 0.02 * 1.5 ** np.arange(
    14
)  # sizes of shifts, in sds of theta and of the second curve
# degrees of freedom of noise sds, and shifts of log Var(theta) that they may cause
_NOISE_DF = (1.0, 2.0, 3.0, 5.0, 8.0, 14.0, 24.0)
_NARROWER = (0.0, -0.4, -0.8, -1.3, -2.0, -4.0)
# factors of the shape of amounts, and shifts of log cv2 that they may cause
_FACTORS = 2.0 ** (np.arange(-12, 13) / 4.0)
_WIDER = (*_NARROWER, 0.4, 0.8, 1.3, 2.0)
_SHIFTS = np.outer(_SHIFT_SIZES, [1.0, -1.0]).ravel()
# draws of a fit on a grid, where average curves do not give the density
_FAR = 100.0  # sds from the mean, beyond all components
_GRID_DRAWS = 8
_SHIFTS_AT_ONCE = 8  # in memory
# places of components, in sds of theta
_PLACES = (-2.0, -1.0, 0.0, 1.0, 2.0)
_SPREADS = (
    -3.0,
    -1.7,
    -1.0,
    -0.5,
    0.0,
    1.0,
)  # logarithms of their variances over that of theta
_WIDE = (2.0, 4.0)  # and those of outliers
# of a mixture that follows two narrow populations
_FREE = {"functions": 18, "shape": 2.4}
_RISES = (0.0, 0.3, 0.7, 1.1)  # rises of theta that is not 0, in sds
_LARGEST_EXCESS = 50.0  # largest excess of a log density over that of the fit
# sds of a gain by chance, which gains have to exceed, if they must be sure
_SURE = 3.0

_SENTENCES = {
    "clusters allowed for": "Clusters matter: they make bands of the curves {clusters:.2f} times "
    "as wide, and the fit allows for it. The p-values here do not: they treat items as independent "
    "and are too small.",
    "clusters": "Clusters matter: bands of the curves should be {clusters:.2f} times as wide. Give "
    "the items cluster=, summarize and fit again.",
    "inference": "Do not trust the inference (fit.status.reason says why): fit again with "
    "method=soc.NUTS() before you read anything else here.",
    "noise": "Fix the noise model first: the other findings may follow from it.",
    "unexplained": "No single remedy stands out: see which slices are off with "
    "soc.plots.plot_pit(result), and slice by further columns with soc.check(..., by=).",
    "chance": "{departing} of {tests} tests {have} p < 0.05, about {expected:.1f} would by chance: "
    "nothing fails.",
    "number": "Many slices have p < 0.05: each departure is small, but chance does not explain so "
    "many.",
    "small": "With so many items the smallest departures show: no cumulative probability is off by "
    "more than {largest:.3f}, which may not matter to you.",
    "nothing": "No evidence against the model on these items.",
    "few draws": "A few of the approximation's draws carry most of the weight: compare with "
    "method=soc.NUTS().",
    "outliers": "Chance does not explain {far}: result.worst() of items lists those that lie "
    "farthest out.",
    "score": "The score hardly tells theta apart: it explains {value:.1%} of Var(theta), with 90% "
    "probability {low:.1%} to {high:.1%}.",
    "sway": "The fit is swayed by {swaying} (Pareto k above {most_k}, up to {k:.2f}): "
    "result.worst() of items lists those that lie farthest out. Compare fits with "
    "soc.evaluate.held_out, which does not reweight draws to leave items out.",
}
MOST = 100  # items kept
_DRAWS = 100  # of the curves
_FEW_DRAWS = 20
_MORE_DRAWS = 500  # for the ends of an interval
_MOST_ROWS = 5_000  # most rows whose densities are compared, a random subset
# levels up to which a grid of theta in each, or any fit, takes reasonable time
_MOST_GRIDS = 12
_MOST_FITTED = 1_000


class Gain(NamedTuple):
    """What a fit of a remedy gains in nats; NaN if there is none."""

    nats: float = np.nan
    error: float = np.nan  # standard error
    explains: bool = True  # most of what outliers, left out, lack

    @property
    def sure(self) -> bool:
        """False if chance may explain it."""
        return not self.nats < _SURE * self.error


GainOf = Callable[[Remedy], Gain]


def advise(
    table: pd.DataFrame,
    fit: Fit,
    gains: "Gains",
    gain_of: GainOf,
    outliers: "Outliers",
    made_fit: bool,
    cause: str = "",
    loo: LeftOut | None = None,
) -> Iterator[Remedy]:
    """Yield advice on verdicts: doubts about the inference, then remedies by their gain.

    Outliers come before remedies that do not explain them, and last those whose gain is not sure.
    `made_fit` says that the items made the fit, which a fit to them would only repeat, `cause` why
    outcomes vary less than their noise allows, if they do, and `loo` which items sway the fit.
    """
    failed = set(table.loc[table["verdict"] == FAIL, "what"])
    departures = failed | set(table.loc[table["verdict"] == WARN, "what"])
    values = table.groupby("what")["value"].first()
    tests = table[table["p"].notna() & (table["what"] != NUMBER)]
    departing = int((tests["verdict"] != OK).sum())
    # wrong noise shows by size, in zeros and in shape
    explained = bool(cause) or ("noise" in failed and departing > 0)
    of_model = bool(failed or departing) and not explained
    refit = bool(failed) and not (explained or made_fit)
    gaining = _remedies(gains, gain_of, of_model, refit)
    sure = [pair for pair in gaining if pair[0].sure]
    explaining = [remedy for gain, remedy in sure if gain.explains]
    leaving = [remedy for gain, remedy in sure if not gain.explains]
    unsure = [remedy for gain, remedy in gaining if not gain.sure]
    swaying = ""
    if loo:
        left_out = int(loo.n.sum())
        noun = "item" if left_out == outliers.number else "random item"
        swaying = f"{loo.swaying:,} of {counted(left_out, noun)}"
    of_score = _of_score(fit)
    numbers = {
        "clusters": values.get("clusters", 1.0),
        "k": values.get("leave-one-out"),
        "most_k": PARETO_K,
        "swaying": swaying,
        "largest": tests.loc[tests["what"] == "PIT", "value"].max(),
        "departing": departing,
        "have": "has" if departing == 1 else "have",
        "tests": len(tests),
        "expected": WARNS * len(tests),
        "far": counted(outliers.beyond_chance, "outcome"),
        **of_score,
    }
    first_rules = {
        "clusters allowed for": fit.widened and numbers["clusters"] > _MATTERS,
        "clusters": not fit.widened and numbers["clusters"] > _MATTERS,
        "inference": {"converged", "pareto_k"} & failed,
        "noise": explained,
    }
    outlier_rules = {"outliers": failed and outliers.beyond_chance}
    last_rules = {
        "score": of_score
        and of_score["low"] < _LEAST_EXPLAINED
        and of_score["high"] < _MOST_EXPLAINED,
        "unexplained": failed and departing and not (explained or sure),
        "chance": departing and not failed,
        "number": failed == {NUMBER},
        "small": failed
        and not explained
        and outliers.number > _MANY_ITEMS
        and numbers["largest"] < _SMALL_DISTANCE,
        "nothing": not departures and not sure,
        "few draws": "ess_fraction" in departures,
        "sway": "leave-one-out" in departures,
    }
    doubt = fit.curves.outcome.words.doubt
    doubts = (
        [Remedy("noise", doubt.format(width=values["noise"]))]
        if "noise" in departures
        else []
    )
    if "noise" in failed:
        yield doubts.pop()
    if cause:
        yield Remedy("noise", cause)
    for rules, remedies in (
        (first_rules, explaining),
        (outlier_rules, [*leaving, *doubts]),
        (last_rules, unsure),
    ):
        for rule, holds in rules.items():
            if holds:
                yield Remedy(rule, _SENTENCES[rule].format(**numbers))
        yield from remedies


def _of_score(fit: Fit) -> dict[str, float]:
    """Share of Var(theta) that the score explains, with its interval; nothing if it cannot."""
    curves = fit.curves
    # curves without a range of scores
    width = curves.axis("mean").local.width
    if fit.one_draw or fit.groups or not {"score_min", width} <= set(curves.bins):
        return {}
    if curves.one_score or fit.prior.mean.knots == 1:
        return {}
    found = dict[str, float]()
    # few draws show that most scores explain far more
    for draws in (_FEW_DRAWS, _MORE_DRAWS):
        explained, total = variance_parts(posterior_under(curves.thin(draws)))
        found = {name: float(x) for name, x in intervals(explained / total).items()}
        if found["value"] > _MOST_EXPLAINED:
            return {}
    return found


def _remedies(
    gains: "Gains", gain_of: "GainOf", of_model: bool, refit: bool
) -> list[tuple[Gain, Remedy]]:
    """Remedies that gain more than chance: of columns, and of the model or a new fit if asked."""
    remedies = [*_of_columns(gains)]
    if of_model:
        remedies += _of_model(gains)
    if refit:  # new items stray a little as a whole, by the error of the curves
        words = "The curves are off for all items: fit again with these."
        prior = gains.posterior.prior
        remedies.append(Remedy("curves", words, prior=prior, nats=gains.shift()))
    tried = [(gain_of(remedy), remedy) for remedy in remedies if remedy.nats > 0]
    # where no fit says more, the estimate has to do
    tried.sort(key=lambda x: -(x[1].nats if np.isnan(x[0].nats) else x[0].nats))
    return [
        (gain, replace(remedy, nats=gain.nats, error=gain.error))
        for gain, remedy in tried
        if not gain.nats < _WORTH
    ]


def _of_model(gains: "Gains") -> Iterator[Remedy]:
    prior = gains.posterior.prior
    outcome = gains.posterior.outcome
    columns = gains.items.columns
    n = gains.items.n
    word = outcome.words.size
    score = columns["score"]
    atom = gains.posterior.curves.atom(score)
    mixed = mixture_of(prior)
    mixture = gains.mixture() if mixed != prior else 0.0
    of_atoms = gains.mixture(atom > 0) if mixture and atom.any() else 0.0
    # values may be zero effects too, which outcomes cannot tell from small ones
    is_zero = prior.zero or not outcome.whole or outcome.truncated
    zero = 0.0 if is_zero else gains.zero()
    if zero > SIMPLER_SHARE * mixture:
        zeros = replace(prior, zero=True)
        words = (
            f"Theta of some items may be exactly 0: fit {code_of(zeros)} {_SUMMARIZED}."
        )
        yield Remedy("zeros", words, prior=zeros, nats=zero)
    elif of_atoms > SIMPLER_SHARE * mixture:
        words = (
            "Items of a score that many share, such as a default score, are of several kinds: "
            f"give them a group=, or fit {code_of(mixed)} {_SUMMARIZED}."
        )
        yield Remedy("atoms", words, "score", prior=mixed, nats=of_atoms)
    elif mixture:
        words = "of this mixture" if prior.mixture else prior.family
        words = (
            f"Theta given the score is not {words}: fit {code_of(mixed)} {_SUMMARIZED}."
        )
        yield Remedy("shape", words, prior=mixed, nats=mixture)
    if prior.exposure:
        sized = replace(prior, exposure=_more(prior.exposure))
        words = (
            f" and the term in it: give that more knots, {code_of(sized)}, or fit its ranges "
            "separately."
        )
    else:
        sized = replace(prior, exposure=Spline())
        words = (
            f": fit {code_of(sized)} {_SUMMARIZED}, or give the score model the {word} as an "
            "input."
        )
    words = f"Theta depends on {word} beyond what the score says{words}"
    gain = gains.shifts(equal_parts(columns[outcome.size], _SHIFTED_PARTS, n))
    df, noise = gains.noise() if outcome.theta is LINEAR else (0.0, 0.0)
    is_shaped = "shape" in gains.posterior.family.attrs
    shape, shape_gain = gains.shape() if is_shaped else (0.0, 0.0)
    # sds of other laws and other shapes of theta look like estimated noise, to a lesser extent
    if noise > max(gain, mixture):
        words = (
            f"The noise sds vary, and values stray, as if each sd came from about {df + 1:g} "
            f"values: if they are such estimates, give the items noise_df={df:g}."
        )
        yield Remedy(
            "noise sds", words, outcome.size, roles={"noise_df": df}, nats=noise
        )
    elif shape_gain > max(gain, mixture):
        words = (
            f"Amounts about one mean vary as if their shape were {shape:.2g}: give the items "
            f"shape={shape:.2g}."
        )
        roles = {"shape": shape}
        yield Remedy("shape of amounts", words, roles=roles, nats=shape_gain)
    elif not gains.posterior.curves.noise_law:
        yield Remedy("size", words, outcome.size, prior=sized, nats=gain)
    supple = replace(prior, mean=_more(prior.mean), variance=_more(prior.variance))
    words = (
        "The curves are too stiff: use more bins in soc.summarize and more knots, "
        f"{code_of(supple)}."
    )
    gain = gains.shifts(equal_parts(score, _SHIFTED_PARTS, n))
    yield Remedy("knots", words, "score", prior=supple, nats=gain)


def _of_columns(gains: "Gains") -> Iterator[Remedy]:
    curves = gains.posterior.curves
    groups = tuple(curves.roles.groups.values())
    kind = f"soc.{curves.outcome.kind.capitalize()}Items"
    for column, values in gains.items.labels.items():
        number = values.nunique()
        grouping = (*groups, column) if groups else column
        trial: dict[str, Any] = {}
        if is_cut(values):
            words = (
                f"{column!r} says something about theta that the score does not: give the score "
                "model this column, or fit its ranges separately."
            )
            if not curves.roles.has_score:
                words = f"{column!r} says something about theta: give it as score=."
        elif number * _FEWEST_PER_LEVEL > len(values):
            continue  # names of items
        elif column in groups and curves.groups:
            words = f"Groups of {column!r} are off although each has its curves: fit each alone."
        elif column in groups:
            trial = {"prior": replace(curves.prior, groups=True)}
            words = f"Levels of {column!r} differ: fit {code_of(trial['prior'])}."
        elif number <= _MOST_LEVELS:
            words = f"Levels of {column!r} differ: give the items group={grouping!r}."
            if curves.roles.has_score:
                words = (
                    f"Levels of {column!r} differ at equal score: give the items "
                    f"group={grouping!r}, or give the score model this column."
                )
            trial = {"roles": {"group": grouping}}
        else:
            words = (
                f"Items with the same {column!r} are alike: tell the fit by {kind}(..., "
                f"group={grouping!r}), for curves of each, or by cluster={column!r}, which only "
                "widens bands."
            )
            # a grid of theta in each would take too long
            roles = {"cluster": column} if curves.prior.gridded else {"group": grouping}
            trial = {"roles": roles}
        gain = gains.shifts(level_codes(values, gains.items.n)[0])
        yield Remedy("levels", words, column, nats=gain, **trial)


def mixture_of(prior: Prior) -> Prior:
    """The mixture with the curves and terms of a prior; of a mixture one of freer shape."""
    mixture = family_of(prior).mixture
    names = {f.name for f in fields(mixture)} & {f.name for f in fields(prior)}
    arguments = {name: getattr(prior, name) for name in names}
    if prior.mixture:
        for name, least in _FREE.items():
            arguments[name] = max(arguments[name], least)
    return mixture(**arguments)


def _more(spline: Spline) -> Spline:
    return replace(spline, knots=max(2 * spline.knots, Spline().knots))


class Gains:
    """Gains of remedies in nats, of all items, from some rows; 0 where chance explains them.

    If `sure`, chance is far from explaining the others.
    """

    def __init__(
        self,
        posterior: Posterior,
        items: Observations,
        rng: Generator,
        sure: bool = True,
    ) -> None:
        gridded = posterior.prior.gridded
        _, self.items = items.sample(_MOST_ON_GRIDS if gridded else _MOST_EXAMINED, rng)
        self._scale = float(items.n.sum() / self.items.n.sum())
        # some rows may stand out among all
        self._sure = sure or self._scale > 1.0
        self.posterior = posterior
        outcome = self.posterior.outcome
        columns = self.items.columns
        self._outcomes = columns[outcome.observed], posterior.typical_sizes(columns)
        average = posterior.curves.average(*places(outcome, columns))
        location, dispersion = (curve[None] for curve in average)
        self._location, self._dispersion = widened(
            posterior.curves, (location, dispersion), columns
        )
        spread = np.exp(self._dispersion)
        self._sd = np.sqrt(spread if outcome.theta is LINEAR else np.log1p(spread))

    def _densities(self, places: ArrayLike, spread: float = 0.0) -> Floats:
        """Log densities (places, n) under shifts of both curves, of the first in sds of theta.

        Shifts of the first may differ by item, (places, n).
        """
        curves = self._curves(places, spread)
        return self.posterior.log_densities(self.items.columns, curves)

    def _means(self, spread: float) -> Floats:
        """E(theta | t, y) (1, n) under a shift of the second curve."""
        family = self.posterior.family
        prior = family.to_parameters(*self._curves([0.0], spread))
        return family.mean(*family.update(*prior, *self._outcomes))

    def _curves(self, places: ArrayLike, spread: float) -> Pair:
        shift = np.asarray(places)
        shift = shift[:, None] if shift.ndim == 1 else shift
        location = self._location + shift * self._sd
        return location, np.broadcast_to(self._dispersion + spread, location.shape)

    @cached_property
    def _base(self) -> Floats:
        """Log density under the fit; on a grid it has no closed form in the curves."""
        if not self.posterior.prior.gridded:
            return self._densities([0.0])[0]
        draws = self.posterior.curves.even_draws(_GRID_DRAWS)
        return self.posterior.log_mean_density(self.items.columns, draws)

    @cached_property
    def _shifted(self) -> list[Floats]:
        """Log densities at shifts of one curve over those without: the least ones come first."""
        if isinstance(self.posterior, MixturePosterior):  # shifts of its own shape
            pairs = [(0.0, 0.0), *((place, 0.0) for place in _SHIFTS)]
            pairs += [(0.0, spread) for spread in _SHIFTS]
            base, *shifted = self._shifted_densities(self.posterior, pairs)
            return [*np.split(np.stack(shifted) - base, 2)]
        base = self._densities([0.0])
        spread = np.concatenate([self._densities([0.0], shift) for shift in _SHIFTS])
        return [self._densities(_SHIFTS) - base, spread - base]

    def _shifted_densities(
        self, posterior: MixturePosterior, pairs: Sequence[tuple[float, float]]
    ) -> Floats:
        """Log densities (pairs, n) under a mixture whose components are all shifted."""

        def shift(
            place: float, spread: float, location: Floats, dispersion: Floats
        ) -> Pair:
            gap = location - self._location
            shifted = self._location + place * self._sd + gap * np.exp(spread / 2.0)
            # theta of almost 0, as of a share of zeros, stays where it is
            is_far = np.abs(gap) > _FAR * self._sd
            return np.where(is_far, location, shifted), dispersion + spread

        columns = self.items.columns
        draws = posterior.curves.even_draws(_GRID_DRAWS)
        shifts = [partial(shift, *pair) for pair in pairs]
        parts = [
            posterior.shifted_log_densities(columns, draws, batch).mean(axis=1)
            for batch in batched(shifts, _SHIFTS_AT_ONCE)
        ]
        return np.concatenate(parts)

    @cached_property
    def _components(self) -> Floats:
        """Log densities (components, n) under the fit and members of its family around it."""
        shifted = [self._densities(_PLACES, spread) for spread in _SPREADS]
        wide = [self._densities([0.0], spread) for spread in _WIDE]
        return np.vstack([self._base, *shifted, *wide])

    @cached_property
    def _of_all(self) -> float:
        return self._best(np.zeros(len(self.items.n), dtype=np.int64))

    def shifts(self, code: Ints) -> float:
        """Gain from shifts for each level of a grouping, beyond those that all items share."""
        freedom = 2 * (len(np.unique(code)) - 1)
        return self._certain(self._best(code) - self._of_all, freedom)

    def effects(self, code: Ints) -> float:
        """Gain of items left out from normal effects of the levels of a grouping, at most.

        It is twice the log evidence of effects with the best sds: a small effect gains that much,
        a large one hardly more than the evidence.
        """
        shifts = np.append(_SHIFTS, 0.0)
        order = np.argsort(shifts)
        shifts = shifts[order]
        log_prior = (
            np.log(np.gradient(shifts)) - 0.5 * (shifts / _SHIFT_SIZES[:, None]) ** 2
        )
        log_prior -= special.logsumexp(log_prior, axis=1, keepdims=True)
        evidence = 0.0
        for by_level in self._by_level(code):
            log_density = np.vstack([by_level, np.zeros(by_level.shape[1])])[order]
            log_evidence = special.logsumexp(
                log_prior[:, :, None] + log_density, axis=1
            )
            evidence += max(0.0, log_evidence.sum(axis=1).max())
        return self._scale * 2.0 * evidence

    def _by_level(self, code: Ints) -> list[Floats]:
        """Sums (shifts, levels) of the log densities at shifts of either curve."""
        n = self.items.n
        return [
            np.stack([np.bincount(code, n * gain) for gain in shifted])
            for shifted in self._shifted
        ]

    def shift(self) -> float:
        """Gain from one shift of both curves for all items."""
        return self._certain(self._of_all, 2)

    def mixture(self, rows: Bools | None = None) -> float:
        """Gain from a free shape of theta, of all rows or some, beyond one shift of all curves."""
        rows = np.ones(len(self._base), dtype=bool) if rows is None else rows
        mixed = self._mixed(self._components[:, rows], rows)
        return self._certain(mixed - self._of_all, 4)

    def robust_means(self, items: Observations) -> Floats:
        """E(theta | t, y) of some items (n,) under the best mixture of narrow and wide priors."""
        spreads = (*_SPREADS, *_WIDE)
        wide = np.vstack([self._densities([0.0], spread) for spread in spreads])
        weight = mixture_weights(self._ratio(wide), self.items.n)
        log_weight = np.log(weight + 1e-300)[:, None]
        gains = Gains(self.posterior, items, np.random.default_rng(0))
        log_density = np.vstack([gains._densities([0.0], spread) for spread in spreads])
        share = special.softmax(log_weight + log_density, axis=0)
        means = np.vstack([gains._means(spread) for spread in spreads])
        return (share * means).sum(axis=0)

    def zero(self) -> float:
        """Gain from a share of theta that is 0, beyond one shift of both curves for all items."""
        y, size = self._outcomes
        zero = self.posterior.outcome.log_likelihood(y, size, np.zeros(len(y)))
        shifted = (
            base for spread in _SPREADS for base in self._densities(_RISES, spread)
        )
        mixed = max(self._mixed(np.stack([base, zero])) for base in shifted)
        return self._certain(mixed - self._of_all, 3)

    def noise(self) -> tuple[float, float]:
        """Degrees of freedom of noise sds that fit best as estimates, and what these gain."""
        curves = self.posterior.curves
        if curves.noise_law or np.ptp(self._outcomes[1]) == 0:
            return 0.0, 0.0
        columns = self.items.columns
        variance = self._outcomes[1] ** 2
        n = self.items.n.astype(float)
        gains: dict[float, float] = {}
        # sds vary at least as much as those of equal true ones would
        centre = n @ np.log(variance) / n.sum()
        spread = float(n @ (np.log(variance) - centre) ** 2 / n.sum())
        least = df_of_spread(spread)
        for df in (least, *(df for df in _NOISE_DF if df > least)):
            law = NoiseLaw.of(columns["score"], variance, n, df)
            gains[df] = self._under(law.attrs, _NARROWER)
        return self._best_of(gains)

    def shape(self) -> tuple[float, float]:
        """Shape of single amounts that fits best, and what it gains."""
        shape = self.posterior.family.attrs["shape"]
        gains = {x * shape: self._under({"shape": x * shape}, _WIDER) for x in _FACTORS}
        return self._best_of(gains)

    def _best_of(self, gains: Mapping[float, float]) -> tuple[float, float]:
        """The number that gains most, and its gain beyond one shift of both curves."""
        number, gain = max(gains.items(), key=lambda pair: pair[1])
        return number, self._certain(gain - self._of_all, 1)

    def _under(self, attrs: Mapping[str, Any], spreads: Sequence[float]) -> float:
        """Gain of a family or noise with other attributes, at the best shift of the spread."""
        columns = self.items.columns
        curves = self.posterior.curves
        other = posterior_under(replace(curves, attrs={**curves.attrs, **attrs}))
        if curves.prior.gridded:
            draws = curves.even_draws(_GRID_DRAWS)
            log_densities = [other.log_mean_density(columns, draws)]
        else:
            members = ((self._location, self._dispersion + x) for x in spreads)
            log_densities = [other.log_densities(columns, x)[0] for x in members]
        by_spread = (np.stack(log_densities) - self._base) @ self.items.n
        return float(by_spread.max())

    def _best(self, code: Ints) -> float:
        n = self.items.n
        total = 0.0
        items = np.maximum(np.bincount(code, n), 1)
        for shifted, by_level in zip(self._shifted, self._by_level(code), strict=True):
            slope = (shifted[0] - shifted[1]) / (2 * _SHIFT_SIZES[0])
            bend = -float(n @ (shifted[0] + shifted[1])) / _SHIFT_SIZES[0] ** 2
            # under a wrong shape scores vary by more than their curvature says
            square = float(
                n @ slope**2 - np.bincount(code, n * slope) ** 2 @ (1 / items)
            )
            excess = max(1.0, square / bend) if bend > 0 else 1.0
            gain = float(np.maximum(by_level.max(axis=0), 0.0).sum())
            total += gain / excess
        return total

    def _ratio(self, components: Floats, rows: Any = slice(None)) -> Floats:
        """Log densities over that of the fit, of which none counts beyond all measure."""
        return np.minimum(components - self._base[rows], _LARGEST_EXCESS)

    def _mixed(self, components: Floats, rows: Any = slice(None)) -> float:
        """Gain of the best mixture of components (components, m) of all or some items."""
        n = self.items.n[rows]
        ratio = self._ratio(components, rows)
        weight = mixture_weights(ratio, n)
        return float(n @ np.log(np.maximum(weight @ np.exp(ratio), 1e-300)))

    def _certain(self, gain: float, freedom: int) -> float:
        excess = gain - freedom / 2
        chance = _SURE * np.sqrt(freedom / 2) if self._sure else 0.0
        if excess <= chance + 1:
            return 0.0
        return self._scale * excess


# --- the farthest items --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outliers:
    """The outlying items of a check, the farthest first."""

    gains: Gains  # of all items
    items: Observations
    place: Ints  # among all items, from 0
    p: Floats  # two-sided tail probabilities
    number: int  # of all items

    @property
    def beyond_chance(self) -> int:
        """Number of items so far out that one of all would be by chance in 1% of tables."""
        return int(self._beyond_chance.sum())

    def explained(self, log_density: Floats) -> bool:
        """Return True if outcomes beyond chance lack less than half as much under these (rows,)."""
        return 2.0 * self._lacking(log_density) <= self._lacking(self._densities[1])

    def _lacking(self, log_density: Floats) -> float:
        """Nats that they lack where any one of all outcomes might be as far out."""
        lacking = self._densities[0] - np.log(self.number) - log_density
        return float(self._beyond_chance @ np.maximum(lacking, 0.0))

    @cached_property
    def _densities(self) -> Pair:
        """Log densities (rows,) under the fit, where outcomes are expected and where they are."""
        posterior = self.gains.posterior
        outcome = posterior.outcome
        columns = self.items.columns
        expected, _ = residuals(posterior, columns)
        size = columns[outcome.size]
        typical = expected * size if outcome.sizes_add else expected
        draws = posterior.curves.even_draws(_DRAWS)
        inside = {**columns, outcome.observed: typical}
        at_best, observed = (
            posterior.log_mean_density(x, draws) for x in (inside, columns)
        )
        return at_best, observed

    @property
    def _beyond_chance(self) -> Ints:
        return self.items.n * (self.number * self.p < FAILS)

    def table(self) -> pd.DataFrame:
        """Return a row for each of these items."""
        posterior = self.gains.posterior
        outcome = posterior.outcome
        columns = self.items.columns
        roles = self.items.roles
        outcomes = {
            name: columns[role]
            for role, name in roles.outcomes.items()
            if name != NO_SCORE
        }
        levels = {name: self.items.labels[name].array for name in roles.groups.values()}
        expected, sds = residuals(posterior, columns)
        numbers = {
            "estimate": outcome.estimate(
                columns[outcome.observed], columns[outcome.size]
            ),
            "expected": expected,
            "sds": sds,
            "p": self.p,
            "by_chance": self.number * self.p,
            "theta_mean": posterior.moments(columns)[0].mean(axis=0),
            "robust_mean": self.gains.robust_means(self.items),
        }
        index = pd.Index(columns.get("row", self.place), name="item")
        return pd.DataFrame(outcomes | levels | numbers, index)


def outliers(gains: Gains, items: Observations, ends: Floats) -> Outliers:
    """Return the farthest of all items, given P(Y < y) and P(Y <= y) of these, (2, n)."""
    lower, upper = ends
    p = np.minimum(2.0 * np.minimum(upper, 1.0 - lower), 1.0)
    last = min(MOST, len(p)) - 1
    # more than these where tails are too small for floating-point numbers
    place = np.flatnonzero(p <= np.partition(p, last)[last])
    _, sds = residuals(gains.posterior, items.at(place).columns)
    order = np.lexsort([-np.abs(sds), p[place]])[:MOST]
    place = place[order]
    return Outliers(gains, items.at(place), place, p[place], int(items.n.sum()))


def residuals(posterior: Posterior, columns: Columns) -> Pair:
    """Return expected rates or values (n,), and how far outcomes are from these, in their sds."""
    outcome = posterior.outcome
    size = columns[outcome.size]
    draws = posterior.curves.even_draws(_DRAWS)
    curves = posterior.curve_variables(columns, draws)
    means = curves["mean"]
    mean = means.mean(axis=0)
    variance = curves["variance"].mean(axis=0) + means.var(axis=0)
    noise = outcome.noise(mean, variance)
    with np.errstate(divide="ignore"):  # of items without information
        noise = noise / size if outcome.sizes_add else noise * size**2
    expected, square = outcome.of_listed(size, mean, variance, variance + noise)
    gap = outcome.estimate(columns[outcome.observed], size) - expected
    return expected, np.nan_to_num(gap / np.sqrt(square))


@dataclass(frozen=True, eq=False)
class QuickFits:
    """Fits to `data`, with rows `items`, against the present one, which they may have made.

    `data` may be some of `all_items`, which are fitted.
    """

    present: Posterior
    data: Items | Statistics
    all_items: Items | Statistics
    items: Observations
    outliers: Outliers
    made_fit: bool

    @cached_property
    def _place(self) -> Any:
        rng = np.random.default_rng(0)
        return self.items.sample(_MOST_ROWS, rng)[0]

    @cached_property
    def _rows(self) -> Any:
        """Places of rows whose densities are compared, then of outliers."""
        return np.append(self._place, self.outliers.place)

    @cached_property
    def _present(self) -> Floats:
        """Log densities (rows,) under the present fit."""
        columns = self.items.at(self._rows).columns
        if not self.made_fit:
            return self.present.log_mean_density(columns)
        return _left_out(posterior_under(self.present.curves.thin(_DRAWS)), columns)

    @cached_property
    def _again(self) -> Floats:
        """Log densities (rows,) under a fit of the present prior to these items."""
        return self._present if self.made_fit else self._fitted(self.present.prior, {})

    def gain(self, remedy: Remedy) -> Gain:
        """Gain of a fit of a remedy over one of the present prior, all items left out.

        A fit of the present prior gains over the present fit. NaN if the remedy is no fit, or it
        takes long.
        """
        prior = remedy.prior or self.present.prior
        roles = remedy.roles
        by_roles = isinstance(self.data, Items) and "cluster" not in roles
        if not (remedy.prior or roles) or (roles and not by_roles):
            return Gain()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if prior == self.present.prior and not roles:
                    fits = self._again, self._present
                else:
                    fits = self._fitted(prior, roles), self._again
        except (SocError, np.linalg.LinAlgError):
            return Gain()
        rows = len(self._place)
        gain = (fits[0] - fits[1])[:rows]
        n = self.items.n[self._place]
        mean = n @ gain / n.sum()
        error = np.sqrt(n @ (gain - mean) ** 2) / n.sum()
        scale = self.items.n.sum()
        explains = self.outliers.explained(fits[0][rows:])
        return Gain(float(scale * mean), float(scale * error), explains)

    def _fitted(self, prior: Prior, roles: Any) -> Floats:
        """Log densities (rows,) of items left out of a fit; NaN if it takes long."""
        if "group" in roles:
            prior = replace(prior, groups=True)
        data = _with_roles(self.data, roles)
        stats = _with_roles(self.all_items, roles)
        if isinstance(stats, Items):
            stats = totals_without_folds(stats)
        if takes_long(prior, stats) or len(stats.groups) > _MOST_FITTED:
            return np.full(len(self._rows), np.nan)
        curves = rough_curves(stats, prior)
        rows = observe(curves, data).at(self._rows)
        return _left_out(posterior_under(curves), rows.columns)


def takes_long(prior: Prior, stats: Statistics) -> bool:
    """Return True if a grid of theta in each of the groups would take too long."""
    return prior.gridded and prior.groups and len(stats.groups) > _MOST_GRIDS


def _with_roles(data: Any, roles: Any) -> Items | Statistics:
    return replace(data, **roles) if roles else data


def _left_out(posterior: Posterior, columns: Columns) -> Floats:
    """Log densities (rows,) of items that are left out, by smoothed weights of all draws."""
    density = posterior.log_density(columns)
    log_weight, _ = smoothed(-density)
    return np.asarray(special.logsumexp(log_weight + density, axis=0))
