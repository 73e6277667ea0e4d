"""`check`: does the model fit these outcomes, and what to do if not."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.random import Generator
from xarray.core import indexing

from .._lib.arguments import SEED, FitError, ItemsError, Whole, names_of
from .._lib.arrays import Columns, Floats, Ints, Pair
from .._lib.laws import exceedance
from .._lib.reprs import counted, made_above
from .._lib.work import long_work, parts
from ..data.causes import Evidence, cause_of
from ..data.items import Items
from ..data.sources import opened, sampled, word_columns
from ..data.statistics import Statistics, words_of_absent_zeros, words_of_percentages
from ..families.rows import MEAN_ONLY
from ..fits import (
    FEW_DRAWS,
    FIT,
    PARETO_K,
    Fit,
    Later,
    Status,
    other_total,
    telling,
)
from ..posterior.averages import cdf_without, draws_without
from ..posterior.item_columns import select
from ..posterior.predictive import Posterior, posterior_of, posterior_under
from . import pit
from .advice import MOST, Gains, Outliers, QuickFits, advise, outliers
from .comparison import LeftOut, leave_one_out
from .findings import (
    ALL,
    FAIL,
    OK,
    VERDICTS,
    WARN,
    WARNS,
    Finding,
    Remedy,
    Result,
    result_table,
)
from .observations import (
    ITEMS_OR_STATISTICS,
    Observations,
    clustered,
    observe,
    totals_without_folds,
)

_TREE_DRAWS = 1000  # in the tree for ArviZ
_FEW_PER_LEVEL = 1000  # items of a level, on average, which it follows closely
_MOST_COLUMNS = 8  # most columns of a table that advice names unasked
# items whose intervals are judged, and how wrong they may be
_DOUBTED = 2000
_WRONG = 0.1
_NARROW_BANDS = 0.5  # how much too narrow bands of curves may be
_ESS_FRACTION = 0.1
# most items replicated, or checked on a page, a random subset: tests are powerful by then
_MOST_CHECKED = 50_000
_REPLICATED_AT_ONCE = 200_000
_REPLICATES = 100  # at first, and where their tail leaves the p-value open, up to
_MOST_REPLICATES = 10_000
_MOST_REPLICATED = 1e7  # outcomes that are replicated: fewer replicates of many items
_TAIL = 20  # replicates to which a tail beyond them is fitted
# p-values that more replicates may move across a bound of a verdict
_OPEN = (1e-7, 0.1)
_MIDDLE = 20  # draws whose median is the middle of summaries


@dataclass(frozen=True, eq=False, repr=False)
class CheckResult(Result):
    """Findings of the checks of a fit.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per check and slice: the ``verdict`` is ``"fail"`` where p < 0.01 after
        Holm-Bonferroni over the table, ``"warn"`` where p < 0.05 by itself, else ``"ok"``; a fixed
        bound judges values without ``p``. Items that made the fit are also left out (``LOO-PIT``):
        in all tests where levels of its groups follow less than 1,000 items each. The ``value`` of
        the PIT is the largest difference from the uniform cdf; of ``dispersion`` and ``zero
        counts`` observed over predicted; of ``noise`` and ``clusters`` how many times as wide
        intervals and bands should be; of ``leave-one-out`` the largest Pareto k.
    data : xarray.DataTree
        Groups of items on a random subset, for ArviZ's own functions; outcomes and log likelihoods
        by draw are made when they are read. Items without information, of which
        ``log_likelihood.attrs`` has the number, are left out there. Of all items ``pit`` has the
        ECDFs by slice of a ``column``, minus the uniform cdf; ``pit_by_score`` those in 20 bins.
    advice : tuple[str, ...]
        What the findings mean and what to try next, in plain sentences.
    remedies : tuple[Remedy, ...]
        Records of the advice: the ``prior`` to fit or the ``roles`` to give to columns, and the
        ``nats`` that a quick fit of it gains.
    elpd : arviz_stats.utils.ELPDData or None
        ArviZ's record of leave-one-out, by item, for ``arviz.compare`` and ``arviz.plot_khat``.
        None for fits of one draw.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> list(soc.check(fit, items, subset=200).table.columns)
    ['what', 'where', 'n', 'value', 'low', 'high', 'p', 'verdict']
    """

    loo: LeftOut | None = None
    remedies: tuple[Remedy, ...] = ()
    outliers: Outliers | None = None
    rows = 5

    @property
    def elpd(self) -> Any:
        """See the class."""
        return self.loo and self.loo.record()

    def worst(self, n: int = 10) -> pd.DataFrame:
        """Return the items whose outcomes lie farthest in the tails of what the model predicts.

        Parameters
        ----------
        n : int
            Number of items, at most 100.

        Returns
        -------
        pandas.DataFrame
            By ``item``, its row from 0: score, outcome, size and groups; the ``estimate`` of theta
            by the outcome alone; the ``expected`` one, and how many predictive ``sds`` lie between;
            the two-sided tail probability ``p``, and how many of all items have one as small
            ``by_chance``; the posterior mean ``theta_mean``, and ``robust_mean``, that under a
            prior whose tails are as wide as these items show.

        Raises
        ------
        FitError
            If `n` is not in its range, or statistics were checked, which have no items.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> worst = soc.check(fit, items).worst(3)
        >>> bool((worst["by_chance"] > 0.01).all())
        True
        """
        n = Whole(1, MOST)(n, "n")
        if self.outliers is None:
            raise FitError("statistics have no items to list: check the items")
        return self.outliers.table().head(n)

    def _repr_html_(self) -> str:
        return super()._repr_html_() + str(made_above("pit_image", self))


@long_work
def check(
    fit: Fit,
    items: Items | Statistics,
    *,
    by: str | Sequence[str] = (),
    seed: int = 0,
    subset: int = 5000,
    progress: bool | None = None,
) -> CheckResult:
    """Test whether the outcomes look like those that the fitted model makes.

    Every item's outcome is put through the cdf of its predictive distribution: if the model is
    right the results are uniform, except for the error of the curves, which the tests allow for.
    Slices are fifths of the score and of the exposure (noise sd, trials), exposures of at least 50,
    scores that many items share, and levels of the items' groups and of the columns `by`.
    Dispersion and numbers of zeros are compared with replicated outcomes.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems, AmountItems or Statistics
        Items to check it on: those that made it (tests are then conservative), or better others; or
        statistics with joint cells, of which all items are left out in turn.
    by : str or Sequence[str]
        Further columns of the items' table to slice on: numbers and dates of more than 20 distinct
        values by fifths, others by level, the 200 most frequent. Missing values are a level.
    seed : int
        Seed of all random choices.
    subset : int
        Number of random items in ``data``, which are also left out one by one.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    CheckResult
        Its ``table`` has a verdict for each check and slice.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid or not of the fit's kind, or a column is missing.

    References
    ----------
    .. [1] Czado, Gneiting and Held (2009), Predictive model assessment for count data, Biometrics
       65, 1254-1261.
    .. [2] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.check(fit, items, subset=200)
    >>> "fail" in set(result.table["verdict"])
    False
    """
    fit = FIT(fit, "fit")
    items = ITEMS_OR_STATISTICS(items, "items")
    by = names_of(by, "by")
    seed = SEED(seed, "seed")
    subset = Whole(1)(subset, "subset")
    return Checks(fit, items, by=tuple(by), seed=seed, subset=subset).result()


def check_sample(
    fit: Fit, items: Items, made_fit: bool, by: Sequence[str] = (), seed: int = 0
) -> CheckResult:
    """Check valid items, or so many random ones that the tests are powerful."""
    columns = [*items.roles.columns, *by, *word_columns(items.source)]
    names = list(dict.fromkeys(columns))
    sample = sampled(items.source, names, _MOST_CHECKED, seed)
    # clusters of a sample may have one item each
    all_items = None if sample is items.source else items
    data = replace(items, source=sample)
    checks = Checks(fit, data, tuple(by), seed, all_items=all_items, made_fit=made_fit)
    return checks.result()


@dataclass(frozen=True, eq=False)
class Checks:
    """The checks of a fit on `data`, some of `all_items`, which show the clusters.

    `made_fit` says that all items made the fit; `loo` is the leave-one-out of the same statistics,
    if that is known already.
    """

    fit: Fit
    data: Items | Statistics
    by: tuple[str, ...] = ()
    seed: int = 0
    subset: int = 5000
    all_items: Items | None = None
    made_fit: bool = False
    loo: LeftOut | None = None

    def __post_init__(self) -> None:
        if self.fit.mean_only:
            raise FitError(f"soc.check needs the variance of theta: {MEAN_ONLY}")
        if self.by and isinstance(self.data, Statistics):
            raise FitError(
                "by= slices items, and statistics have no such columns: give the items"
            )

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior of items."""
        return posterior_of(self.fit)

    @cached_property
    def exact_draws(self) -> bool:
        """True if draws can leave an item out: not if they were widened for clusters."""
        return not (self.fit.one_draw or self.fit.widened)

    def result(self) -> CheckResult:
        """Return all findings with their numbers and the advice."""
        fit = self.fit
        posterior = self.posterior
        seeds = np.random.SeedSequence(self.seed).spawn(3)
        rngs = [np.random.default_rng(seed) for seed in seeds]
        names = [*self.by, *self._label_columns()]
        observed = observe(posterior.curves, self.data, names)
        sliced = {*self.by, *observed.roles.groups.values()}
        labels = {k: values for k, values in observed.labels.items() if k in sliced}
        items = replace(observed, labels=labels)
        n = int(items.n.sum())
        made_fit = self.made_fit or not other_total(fit, items.columns, items.n)
        of_items = not isinstance(self.data, Statistics)
        # levels follow their few items
        few = n < _FEW_PER_LEVEL * len(fit.groups)
        leaves_out = made_fit and few and self.exact_draws
        if leaves_out:
            ends = np.stack(cdf_without(posterior, items.columns))
        else:
            ends = pit.cdf_ends(posterior, items.columns)
        groups, rows = self._of_pit(items, ends, rngs[0])
        rows += self._of_outcomes(items.columns, leaves_out)
        gains = Gains(posterior, observed, rngs[2])
        far = outliers(gains, observed, ends)
        sample = items
        where = ALL
        if of_items:
            item, sample = items.sample(self.subset, rngs[1])
            where = ALL if len(item) == n else f"{len(item):,} random items"
        loo = self.loo
        if loo is None and not fit.one_draw:
            loo = leave_one_out(posterior, sample)
        if of_items:
            groups |= self._arviz_groups(
                sample.columns, item, ends[:, item], leaves_out, loo, rngs[1]
            )
            if self.exact_draws and made_fit:
                values = groups["loo_pit"][posterior.outcome.observed].to_numpy()
                rows.append(pit.loo_pit_finding(values, where))
        if loo is not None:
            rows += [*self._of_left_out(loo, where), *self._of_clusters()]
        table = result_table([*rows, *_of_status(fit.status)])
        table.loc[table["n"].isna() & (table["where"] == ALL), "n"] = n
        all_items = self.all_items or self.data
        fits = QuickFits(posterior, self.data, all_items, items, far, made_fit)
        advice = advise(
            table,
            fit,
            gains,
            fits.gain,
            far,
            made_fit,
            self._too_little_variation(table),
            loo,
        )
        of_table = self._of_table(table)  # which explains all else
        remedies = (of_table,) if of_table else (*advice, *pit.rare_levels(labels))
        counts = table["verdict"].value_counts()
        numbers = ", ".join(f"{counts.get(v, 0)} {v}" for v in VERDICTS)
        random = "random " if self.all_items else ""
        title = f"check: {counted(n, f'{random}item')}, {numbers}"
        return CheckResult(
            table=table,
            data=xr.DataTree.from_dict(groups),
            advice=tuple(map(str, remedies)),
            title=title,
            loo=loo,
            remedies=remedies,
            outliers=far if of_items else None,
        )

    def _of_table(self, table: pd.DataFrame) -> Remedy | None:
        """Say that items of 0 are absent or outcomes are percentages, if the items show it."""
        data = self.data
        if not isinstance(data, Statistics):
            if not (table["p"] < WARNS).any():
                return None
            data = totals_without_folds(data, joint=False)
        if absent := words_of_absent_zeros(data):
            return Remedy("absent zeros", f"{absent}.", roles={"truncated": True})
        words = words_of_percentages(data)
        return Remedy("percentages", f"{words}.") if words else None

    def _too_little_variation(self, table: pd.DataFrame) -> str:
        """Say why outcomes vary less than their noise allows, if the items show that they do."""
        tight = table[(table["verdict"] == FAIL) & (table["value"] < 1)]
        if isinstance(self.data, Statistics) or "dispersion" not in {*tight["what"]}:
            return ""
        if "noise" in {*table["what"]}:
            return ""  # which says more
        seen = Evidence.of(self.data)
        if not seen.tight:
            return ""
        words = seen.outcome.words
        return f"{words.outcomes.capitalize()} vary less than their noise allows: {cause_of(seen)}"

    def _of_pit(
        self, items: Observations, ends: Floats, rng: Generator
    ) -> tuple[dict[str, xr.Dataset], list[Finding]]:
        masks = pit.slices(self.posterior.curves, items)
        bins = pit.bins_of_score(items)
        pits = pit.slice_pits(ends, items.n, masks | bins, rng)
        number = len(masks)
        by_score = pits.isel(slice=slice(number, None))
        pits = pits.isel(slice=slice(number))
        pits, rows = pit.pit_tests(self.posterior, items, masks, pits, rng)
        by_score = pit.pits_by_score(by_score, items, bins)
        draws = self.fit.data["posterior"].to_dataset()
        return {"posterior": draws, "pit": pits, "pit_by_score": by_score}, rows

    def _label_columns(self) -> list[str]:
        """Columns of text, categories or truth values that have no role, for the advice."""
        if isinstance(self.data, Statistics):
            return []
        columns: list[str] = []
        known = {*self.by, *self.data.roles.values()}
        for name in word_columns(self.data.source):
            if len(columns) < _MOST_COLUMNS and name not in known:
                with suppress(ItemsError):  # objects of several types
                    opened(self.data.source, [name])
                    columns.append(name)
        return columns

    def _of_outcomes(self, columns: Columns, leaves_out: bool) -> list[Finding]:
        outcome = self.posterior.outcome
        size = columns[outcome.size]
        amount = outcome.is_amount(self.data.roles[outcome.size])
        if isinstance(self.data, Statistics):
            doubt = "" if amount else outcome.doubt(self.data.table)
            return [self._noise(columns)] if doubt else []
        rows = self._summaries(columns, leaves_out)
        # other shapes of theta have fewer zeros, too
        dispersion = rows[0]
        tight = dispersion.value < 1 and dispersion.p < WARNS
        if not amount and outcome.doubtful(columns[outcome.observed], size, tight):
            rows.append(self._noise(columns, tight))
        return rows

    def _summaries(self, columns: Columns, leaves_out: bool = False) -> list[Finding]:
        """Observed summaries of items over the medians of their replicates."""
        summaries = self.posterior.outcome.summaries
        rng = np.random.default_rng(self.seed)
        n = len(columns["score"])
        if n > _MOST_CHECKED:
            some = np.sort(rng.choice(n, _MOST_CHECKED, replace=False))
            columns = select(columns, some)
            n = _MOST_CHECKED
        draws = self.posterior.curves.even_draws(_REPLICATES)
        draws = np.tile(draws, -(-_REPLICATES // len(draws)))
        observed, replicated = self._replicated(columns, draws, rng, leaves_out)
        most = min(_MOST_REPLICATES, int(_MOST_REPLICATED / n))
        further = self.posterior.curves.even_draws(most)
        while (number := replicated.shape[1]) < most:
            p = tail_probabilities(replicated, observed)
            fitted = p * number < 2 * _TAIL
            if not (fitted & (_OPEN[0] < p) & (p < _OPEN[1])).any():
                break
            several = min(number, most - number)
            draws = rng.choice(further, several)
            _, more = self._replicated(columns, draws, rng, leaves_out)
            replicated = np.hstack([replicated, more])
        # widened curves have far draws; of rare zeros the median is 0
        middles = np.median(replicated, axis=1)
        expected = np.where(middles > 0, middles, replicated.mean(axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(observed == expected, 1.0, observed / expected)
        p = tail_probabilities(replicated, observed)
        rows = zip(summaries, ratio.tolist(), p.tolist(), strict=True)
        return [
            Finding(name, ALL, value=value, p=chance) for name, value, chance in rows
        ]

    def _replicated(
        self, columns: Columns, draws: Ints, rng: Generator, leaves_out: bool
    ) -> Pair:
        """Summaries of the observed outcomes, (m,), and of a replicate of each draw, (m, draws).

        If it `leaves_out` items, each has the draws of a fit without it.
        """
        posterior = self.posterior
        outcome = posterior.outcome
        middle = posterior.curves.even_draws(_MIDDLE)
        place = None
        number = len(draws)
        sums = np.zeros((len(outcome.summaries), 1 + number))
        n = len(columns["score"])
        at_once = max(1, _REPLICATED_AT_ONCE // number)
        for rows in parts("predictive checks", n, at_once):
            part = select(columns, rows)
            if leaves_out:
                draws, place = draws_without(posterior, part, number, rng)
            # summaries are about the median curves: about its own draw, the outcomes of new items
            # would scatter more than replicates of that draw, as the draw is not their truth; items
            # whose curve is hardly known weigh less, or the far draws of clusters would rule the
            # sum
            curves = posterior.curve_variables(part, middle if place is None else draws)
            if place is not None:
                some = place[:: -(-number // _MIDDLE)]
                curves = {
                    name: np.take_along_axis(curves[name], some, axis=0)
                    for name in ("mean", "variance")
                }
            mean = np.median(curves["mean"], axis=0)
            variance = np.median(curves["variance"], axis=0)
            low, high = np.quantile(curves["mean"], [0.16, 0.84], axis=0)
            centres = (
                posterior.typical_sizes(part),
                mean,
                variance + ((high - low) / 2) ** 2,
            )
            replicates = posterior.simulate(part, rng, draws, place)
            outcomes = np.vstack([part[outcome.observed], replicates])
            sums += [
                summary(outcomes, *centres) for summary in outcome.summaries.values()
            ]
        return sums[:, 0], sums[:, 1:]

    def _noise(self, columns: Columns, tight: bool = False) -> Finding:
        """Factor by which intervals of typical items would widen under the doubted noise."""
        step = max(1, len(columns["score"]) // _DOUBTED)
        outcome = self.posterior.outcome
        typical = select(columns, slice(None, None, step))
        size = typical[outcome.size]
        draws = self.posterior.curves.even_draws(_REPLICATES)
        curves = self.posterior.curve_variables(typical, draws)
        moments = (curves[name].mean(axis=0) for name in ("mean", "variance"))
        widths = outcome.other_width(typical[outcome.observed], size, *moments)
        width = float(np.median(widths))
        verdict = _verdict(abs(np.log(width)), _WRONG)
        verdict = WARN if tight and verdict == OK else verdict
        return Finding("noise", ALL, value=width, verdict=verdict)

    def _of_left_out(self, loo: LeftOut, where: str) -> list[Finding]:
        if not self.exact_draws:
            return []
        k = float(np.nanmax(loo.pareto_k))
        verdict = OK if k <= PARETO_K else WARN
        n = int(loo.n.sum())
        return [Finding("leave-one-out", where, n, k, verdict=verdict)]

    def _of_clusters(self) -> list[Finding]:
        data = self.all_items or self.data
        if not (self.fit.widened or clustered(data)):
            return []
        # which loads PyMC
        from ..inference.clusters import cluster_factor

        if not (self.fit.widened or isinstance(data, Statistics)):
            data = totals_without_folds(data)
        factor = cluster_factor(self.fit, data)
        verdict = (
            OK if self.fit.widened else _verdict(abs(np.log(factor)), _NARROW_BANDS)
        )
        n = data.n_items if isinstance(data, Statistics) else None
        return [Finding("clusters", ALL, n, factor, verdict=verdict)]

    def _arviz_groups(
        self,
        columns: Columns,
        item: Ints,
        ends: Floats,
        leaves_out: bool,
        loo: LeftOut | None,
        rng: Generator,
    ) -> dict[str, xr.Dataset]:
        """Groups of some items, and their PIT; if draws are exact also of items left out.

        `leaves_out` says that `ends` are those of such items already. Items that draws cannot leave
        out, as Pareto k of `loo` says, stay in. Without items whose outcomes say nothing, at which
        ArviZ's leave-one-out stops for all.
        """
        posterior = posterior_under(self.posterior.curves.thin(_TREE_DRAWS))
        few = posterior.curves.even_draws(FEW_DRAWS)
        says = telling(posterior.log_density(columns, few))
        columns = select(columns, says)
        item = item[says]
        ends = ends[:, says]
        draws = posterior.curves.posterior
        outcome = posterior.outcome
        name = outcome.observed
        constants = {role: ("item", columns[role]) for role in ("score", outcome.size)}
        groups = {
            "posterior": draws,
            "constant_data": xr.Dataset(constants, {"item": item}),
        }
        share = rng.random(len(item))
        cdfs = {"pit_values": ends}
        if self.exact_draws:
            cdfs["loo_pit"] = ends
        if self.exact_draws and loo is not None and not leaves_out:
            without = np.stack(cdf_without(posterior, columns))
            stays = (loo.pareto_k > loo.good_k)[says]
            cdfs["loo_pit"] = np.where(stays, ends, without)
        by_item = {"observed_data": columns[name].astype(outcome.dtype)}
        for group, (below, upto) in cdfs.items():
            by_item[group] = below + share * (upto - below)
        for group, values in by_item.items():
            groups[group] = xr.Dataset({name: ("item", values)}, {"item": item})
        coords = {"chain": draws["chain"], "draw": draws["draw"], "item": item}
        shape = draws.sizes["chain"], draws.sizes["draw"], len(item)
        simulate = partial(posterior.simulate, columns, rng)
        density = partial(posterior.log_density, columns)
        for group, dtype, make in (
            ("posterior_predictive", outcome.dtype, simulate),
            ("log_likelihood", np.float64, density),
        ):
            later = indexing.LazilyIndexedArray(Later(shape, dtype, make))
            groups[group] = xr.Dataset({name: (tuple(coords), later)}, coords)
        silent = int((~says).sum())
        groups["log_likelihood"].attrs["items_that_say_nothing"] = silent
        return groups


def tail_probabilities(replicated: Floats, observed: Floats) -> Floats:
    """Two-sided p-values of summaries (m,) among replicates (m, R), ties counted half.

    Beyond the replicates a tail is exponential, the upper one in log(1 + x): in these scales the
    tails of positive sums, lognormal ones too, are lighter than this.
    """
    values = np.hstack([replicated, observed[:, None]])
    unit = replicated.mean(axis=1, keepdims=True)
    upwards = np.log1p(values / np.where(unit > 0, unit, 1.0))
    tails = [
        [exceedance(x[:-1], x[-1], _TAIL) for x in scaled]
        for scaled in (-values, upwards)
    ]
    return np.minimum(1.0, 2.0 * np.min(tails, axis=0))


def _verdict(error: float, wrong: float) -> str:
    """Verdict on a logarithm of widths: off by half of what counts as wrong, or by all of it."""
    if error <= np.log1p(wrong / 2):
        return OK
    return WARN if error <= np.log1p(wrong) else FAIL


def _of_status(status: Status) -> list[Finding]:
    k = status.pareto_k
    share = status.ess_fraction
    tests = [
        ("converged", float(status.converged), status.converged, FAIL),
        ("pareto_k", k, k is None or k <= PARETO_K, FAIL),
        ("ess_fraction", share, share is None or share >= _ESS_FRACTION, WARN),
    ]
    return [
        Finding(name, "inference", value=value, verdict=OK if good else verdict)
        for name, value, good, verdict in tests
        if value is not None
    ]
