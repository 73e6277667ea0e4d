"""The choice of a prior: what the items may need is tried, and kept if it predicts better.

Forward selection by the log density of items left out. A step is tried only if a cheap estimate of
its gain is worth a nat, and kept if it gains one (a term in exposure: if it gains at all); the
estimates come from the best prior so far.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._lib.arguments import FitError, SocError
from .._lib.arrays import equal_parts
from .._lib.reprs import Table, code_of
from .._model.pilot import find_pilot
from .._model.rows import sizes_vary
from ..data.statistics import Statistics, as_independent, refuse_weights
from ..families.priors import Constant, Prior, Spline
from ..families.rows import MEAN_ONLY
from ..fits import Fit
from ..posterior.predictive import posterior_of
from .advice import Gains, mixture_of, takes_long
from .comparison import LeftOut, elpd_table, left_out, warn_of_clusters
from .observations import observe

_log = logging.getLogger(__name__)
# nats of all items: a step is tried if it may gain these, and kept if it does. A term in exposure,
# which hardly costs anything where it is false, is kept if it gains at all: on halves of few items
# less than a nat was chance
_WORTH = 1.0
# nats that an estimate may be by chance: of groups 1.2 on average, 2.8 at most of twelve tables
# whose levels were alike; a term in exposure and mixtures that may gain 1.1 to 1.9 lost 0.4
_CHANCE = 2.0
# share of cells with a large Pareto k, beyond which leave-one-out is not trusted
_DOUBTFUL = 0.05
# items up to which curves may be better constant, and groups are tried for a nat
_FEW = 100
# parts of the scores in which levels of a group may differ, where their curves do
_SCORE_PARTS = (1, 4)
_SIZE_PARTS = 8
_UNTRUSTED = "leave-one-out is not to be trusted"
_COLUMNS = ["elpd", "elpd_diff", "dse", "weight", "trust", "chosen", "reason"]


class Step(NamedTuple):
    """A prior that may predict better than the best one so far."""

    prior: Prior
    nats: float  # expected gain; infinite where it is not known
    doubt: str = ""  # what else speaks against trying it
    worth: float = _WORTH  # gain that keeps it


@dataclass(eq=False)
class Best:
    """The best fit so far, with estimates of what remedies gain over it."""

    fit: Fit
    stats: Statistics
    of_groups: float = 0.0  # nats that its groups gained

    @property
    def prior(self) -> Prior:
        """The prior of the fit."""
        return self.fit.prior

    @cached_property
    def gains(self) -> Gains:
        """Gains that chance may explain, too."""
        rows = observe(self.fit.curves, self.stats)
        rng = np.random.default_rng(0)
        return Gains(posterior_of(self.fit), rows, rng, sure=False)


_Kind = Callable[[Best, Statistics], Iterator[Step]]


@dataclass(eq=False)
class Tried:
    """A prior that was fitted, with what leave-one-out says of it where it is to be trusted."""

    loo: LeftOut | None
    elpd: float
    trust: str
    reason: str = ""

    @classmethod
    def of(cls, fit: Fit, stats: Statistics) -> "Tried":
        """Leave out every item of the statistics, with further fits where it needs them."""
        code = code_of(fit.prior)
        elpd = np.nan
        trust = ""
        for refit in (False, True):
            loo, trust = left_out(code, fit, stats, 0, 0, refit=refit)
            if loo is None:
                break
            elpd = loo.elpd
            if loo.doubtful <= _DOUBTFUL * loo.elpd_i.size:
                return cls(loo, elpd, trust)
        return cls(None, elpd, trust, _UNTRUSTED)


class Selection:
    """Priors tried on statistics, in order, and the fit of the best one."""

    def __init__(
        self,
        stats: Statistics,
        fit_prior: Callable[[Prior | None], Fit],
        note: Callable[[str], None],
    ) -> None:
        self._stats = stats
        self._fit_prior = fit_prior
        self._note = note
        self._tried: dict[str, Tried] = {}
        self._left: dict[str, str] = {}
        self._best = Best(self._start(), stats)
        self._chosen = code_of(self._best.prior)

    def _start(self) -> Fit:
        """Fit the simplest prior, of which all later ones have more."""
        prior = self._stats.family.prior()
        if self._stats.groups:
            prior = replace(prior, groups=False)
        return self._fit_prior(prior)

    def run(self) -> None:
        """Take the most promising step from the best prior so far, until none may gain a nat."""
        self._judge(self._best.fit)
        for kinds in _KINDS:
            while steps := self._steps(kinds):
                step = max(steps, key=lambda step: step.nats)
                code = code_of(step.prior)
                self._note(code)
                _log.info("trying %s, which may gain %.1f nats", code, step.nats)
                self._judge(self._fit_prior(step.prior), step.worth)
                _log.info("the best so far is %s", self._chosen)

    def _steps(self, kinds: Sequence[_Kind]) -> list[Step]:
        """Return the steps that are worth trying; note what speaks against the others."""
        steps = []
        for step in (step for kind in kinds for step in kind(self._best, self._stats)):
            code = code_of(step.prior)
            if code in self._tried:
                continue
            nats = step.nats
            if self._best.prior.groups and not step.prior.groups:
                nats = nats - self._best.of_groups
            if nats < _WORTH:
                gain = max(nats, 0.0)
                self._left[code] = f"not fitted: it may gain {gain:.1f} nats"
            elif step.doubt:
                self._left[code] = f"not fitted: {step.doubt}"
            else:
                steps.append(step)
        return steps

    def _judge(self, fit: Fit, worth: float = _WORTH) -> None:
        """Keep a fit if it gains so many nats over the best one so far."""
        code = code_of(fit.prior)
        new = self._tried[code] = Tried.of(fit, self._stats)
        old = self._tried[self._chosen]
        if new.loo is None or new is old:
            return
        of_groups = self._best.of_groups
        if old.loo is not None:
            gain = new.loo.elpd - old.loo.elpd
            if gain < worth:
                verb = "gains only" if gain > 0.0 else "loses"
                new.reason = f"{verb} {abs(gain):.1f} nats against {self._chosen}"
                return
            old.reason = f"{code} gains {gain:.1f} nats"
            if fit.prior.groups and not self._best.prior.groups:
                of_groups = gain
        self._chosen = code
        self._best = Best(fit, self._stats, of_groups)

    @property
    def best(self) -> Fit:
        """The fit of the best prior so far."""
        return self._best.fit

    def table(self) -> pd.DataFrame:
        """Return a row for each prior: those tried in order, then those that were not."""
        trusted = {code: x.loo for code, x in self._tried.items() if x.loo is not None}
        table = elpd_table(trusted).reindex(list(self._tried))
        table["elpd"] = [x.elpd for x in self._tried.values()]
        table["trust"] = [x.trust for x in self._tried.values()]
        table["reason"] = [x.reason for x in self._tried.values()]
        table["chosen"] = table.index == self._chosen
        if not table.loc[self._chosen, "reason"]:
            tried = (
                "nothing tried gains"
                if len(self._tried) > 1
                else "nothing else promises"
            )
            reason = f"{tried} a nat of log likelihood over it"
            table.loc[self._chosen, "reason"] = reason
        left = {code: x for code, x in self._left.items() if code not in self._tried}
        columns = {"trust": "", "chosen": False, "reason": list(left.values())}
        rows = pd.DataFrame(columns, list(left))
        return _with_codes(pd.concat([table, rows]))


def choose(
    stats: Statistics,
    fit_prior: Callable[[Statistics, Prior | None], Fit],
    note: Callable[[str], None],
) -> Fit:
    """Fit the priors that the data may need, and return the fit of the one that predicts best.

    Parameters
    ----------
    stats : Statistics
        Statistics with joint cells.
    fit_prior : Callable
        Fits a prior to statistics; None is the default.
    note : Callable
        Is told the prior that is fitted next.

    Returns
    -------
    Fit
        The fit, whose ``selection`` is the table of the priors. It is that of the default where
        priors cannot be compared, and the table says why.
    """
    # draws that clusters widen cannot leave an item out
    independent = as_independent(stats)
    selection = Selection(independent, partial(fit_prior, independent), note)
    try:
        _check_comparable(selection.best, stats)
        selection.run()
    except SocError as error:
        plain = fit_prior(stats, None)
        row = {"chosen": True, "reason": f"not compared: {error}"}
        return plain.selected_by(_with_codes(pd.DataFrame(row, [code_of(plain.prior)])))
    best = selection.best
    if stats.blocks:
        best = fit_prior(stats, best.prior)
    return best.selected_by(selection.table())


def _check_comparable(fit: Fit, stats: Statistics) -> None:
    if fit.one_draw:
        raise FitError(
            "one draw of the curves, as of soc.FiveSteps(), cannot leave items out"
        )
    if fit.mean_only:
        raise FitError(MEAN_ONLY)
    refuse_weights(stats, "a comparison of priors")
    stats.cells("joint")  # says what to do where there are none
    warn_of_clusters({"": fit}, stats, "standard errors of fit.selection")


def _with_codes(table: pd.DataFrame) -> pd.DataFrame:
    return Table(table.reindex(columns=_COLUMNS).rename_axis("prior").reset_index())


def _exposure(best: Best, stats: Statistics) -> Iterator[Step]:
    """A term in exposure, by what it gains at the mode; beside zeros by shifts of large items."""
    if best.prior.exposure or stats.noise_law or not sizes_vary(stats, stats.family):
        return
    prior = replace(best.prior, exposure=Spline())
    # at the mode of a single family zeros look like effects of the exposure
    if prior.zero:
        items = best.gains.items
        size = items.columns[stats.outcome.size]
        nats = best.gains.shifts(equal_parts(size, _SIZE_PARTS, items.n))
    else:
        pilot = find_pilot(stats, stats.family, prior, full=False)
        nats = pilot.gain_of("exposure")
    yield Step(prior, nats - _CHANCE, worth=0.0)


def _zeros(best: Best, stats: Statistics) -> Iterator[Step]:
    """A share of theta that is 0; of values it would be a guess."""
    outcome = best.fit.curves.outcome
    if best.prior.zero or outcome.truncated or not outcome.whole:
        return
    prior = _feasible(replace(best.prior, zero=True), stats)
    yield Step(prior, best.gains.zero())


def _groups(best: Best, stats: Statistics) -> Iterator[Step]:
    """Curves of each group that the items name."""
    if not stats.groups or best.prior.groups:
        return
    prior = replace(best.prior, groups=True)
    if _feasible(prior, stats) != prior:
        prior = replace(prior, zero=False)
    gains = best.gains
    labels = pd.DataFrame(gains.items.labels)
    score = gains.items.columns["score"]
    nats = 0.0
    for columns in (*labels, list(labels)):
        level = labels.groupby(columns, dropna=False).ngroup().to_numpy()
        for parts in _SCORE_PARTS:
            part = equal_parts(score, parts, gains.items.n)
            nats = max(nats, gains.effects(level * parts + part))
    # fits to few items cost little, and leave-one-out hardly ever keeps levels that are alike
    chance = _CHANCE if stats.n_items > _FEW else 0.0
    yield Step(prior, nats - chance)


def _other_shape(best: Best, stats: Statistics) -> Iterator[Step]:
    """A mixture, without the share of zeros or with it; or without the term in exposure."""
    if best.prior.mixture:
        return
    nats = best.gains.mixture() - _CHANCE
    mixture = _feasible(mixture_of(best.prior), stats)
    if mixture.groups and stats.groups and mixture.exposure is not None:
        doubt = f"it may gain {nats:.1f} nats, but takes minutes by group and size"
        yield Step(mixture, nats, doubt)
        return
    # first, as a share of zeros that another shape explains would stay
    if mixture.zero:
        yield Step(replace(mixture, zero=False), nats)
    yield Step(mixture, nats)
    if mixture.exposure is not None:
        yield Step(replace(mixture, exposure=None), nats)


def _constants(best: Best, stats: Statistics) -> Iterator[Step]:
    """Constant curves where items are too few for others."""
    if stats.n_items > _FEW or stats.one_score:
        return
    yield Step(replace(best.prior, variance=Constant()), np.inf)
    yield Step(replace(best.prior, mean=Constant(), variance=Constant()), np.inf)


# in order, those of one line by what they may gain: groups that differ look like another shape
_KINDS: tuple[tuple[_Kind, ...], ...] = (
    (_exposure, _zeros),
    (_groups,),
    (_other_shape, _zeros),
    (_constants,),
)


def _feasible(prior: Prior, stats: Statistics) -> Prior:
    """Return the prior without groups, if a grid of theta in each of them would take too long."""
    if takes_long(prior, stats):
        return replace(prior, groups=False)
    return prior
