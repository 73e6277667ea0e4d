"""A scikit-learn estimator: `soc.summarize`, `soc.fit` and `soc.item_posteriors` as methods."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .._fit import fit
from .._lib.arguments import (
    PROBABILITY,
    FitError,
    ItemsError,
    ItemsWarning,
    per_item,
    shown,
    warn_user,
)
from .._lib.arrays import Columns, Floats, Pair
from .._lib.reprs import counted
from .._lib.work import showing
from ..data.engines import scan
from ..data.items import ITEMS, Items, Roles
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..families import OUTCOMES, family_of
from ..families.family import Outcome
from ..families.priors import Prior
from ..families.scales import common_scale
from ..fits import Fit, Method
from ..posterior.calibration import curve_variables
from ..posterior.item_columns import arrays_of, in_chunks, warn_of_extrapolation
from ..posterior.predictive import posterior_of
from ..posterior.scoring import item_posteriors, predictive_intervals

_SIZES = tuple(kind.size for kind in OUTCOMES.values())
_REQUESTS = dict.fromkeys((*_SIZES, "group"), True)
_ROUTING = "sklearn.set_config(enable_metadata_routing=True)"

Column = ArrayLike | None


class SecondOrderCalibrator(RegressorMixin, BaseEstimator):
    """Second order calibration of one column of scores, as a scikit-learn regressor.

    Outcomes are counts, values, successes, labels or amounts. The scores t, a column of ``X``,
    must come from a model that never saw these outcomes, such as out-of-fold predictions.

    Parameters
    ----------
    prior : Gamma, Normal, Beta, InverseGamma, a mixture of them, "auto" or None
        The prior of theta given t; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for values,
        ``soc.Beta()`` for successes and labels, ``soc.InverseGamma()`` for amounts; ``"auto"``
        chooses, as in `soc.fit`.
    method : VI, NUTS, FiveSteps or None
        ``soc.VI()`` (the default), ``soc.NUTS()`` or ``soc.FiveSteps()``; its ``seed`` is the
        estimator's random state.
    noise_sd : float or None
        A number > 0: outcomes are values, and this is their default noise sd. None: they are
        counts, unless `fit` gets noise sds or trials, or `y` are labels.
    noise_df : float or None
        Degrees of freedom of noise sds that are estimates, one number for all; a column of them is
        for `NormalItems`.
    shape : float or None
        Shape of amounts, as in `AmountItems`; None is 1. Outcomes are amounts where there are
        `events`, or by their prior.
    pos_label : object
        The label of a success, of the two that `y` has, such as ``"yes"``. None takes labels that
        are true or false, and 0 and 1 if scores are probabilities and no sizes are given, with a
        warning; ``pos_label=1`` or ``prior=soc.Beta()`` say so, ``exposure=1`` says counts.
    column : int, str or None
        The column of ``X`` with the scores, by position or name. None: ``X`` is a vector, or has
        only this column.
    bins : int or None
        Number of bins, as in `soc.summarize`.
    on_leakage : {"raise", "warn", "ignore"}
        As in `soc.summarize`.
    draws : {"auto", "all"}
        As in `soc.item_posteriors`.
    progress : bool
        Whether to show progress.

    Attributes
    ----------
    fit_ : Fit
        The fit, for all other functions of the package.
    statistics_ : Statistics
        The statistics of the fitted items.

    Notes
    -----
    With ``column=0``, all checks of scikit-learn's ``check_estimator`` pass. Without it, those fail
    that refuse vectors or pass several columns.

    Pass counts with ``exposure=N``, not rates with ``sample_weight=N``. Pipelines and searches pass
    sizes and groups on after ``sklearn.set_config(enable_metadata_routing=True)``.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> ads = soc.simulation.s1(2000, seed=0)
    >>> calibrator = soc.SecondOrderCalibrator(method=soc.FiveSteps())
    >>> _ = calibrator.fit(ads["score"], ads["count"], exposure=ads["exposure"])
    >>> after = calibrator.predict([0.05], [0], exposure=[1000])   # no event in 1,000
    >>> bool(after[0] < 0.3 * calibrator.predict([0.05])[0])
    True
    """

    # passed on by routing, if they are given
    __metadata_request__fit: ClassVar[dict[str, Any]] = _REQUESTS | {
        "cluster": True, "sample_weight": True
    }  # fmt: skip
    __metadata_request__predict: ClassVar[dict[str, Any]] = _REQUESTS | {"y": True}
    __metadata_request__score: ClassVar[dict[str, Any]] = _REQUESTS | {
        "sample_weight": True
    }

    def __init__(
        self, prior: Prior | Literal["auto"] | None = None, method: Method | None = None, *,
        noise_sd: float | None = None, noise_df: float | None = None,
        shape: float | None = None, pos_label: object = None,
        column: int | str | None = None, bins: int | None = None,
        on_leakage: Literal["raise", "warn", "ignore"] = "raise",
        draws: Literal["auto", "all"] = "auto", progress: bool = False,
    ) -> None:  # fmt: skip
        self.prior = prior
        self.method = method
        self.noise_sd = noise_sd
        self.noise_df = noise_df
        self.shape = shape
        self.pos_label = pos_label
        self.column = column
        self.bins = bins
        self.on_leakage = on_leakage
        self.draws = draws
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: scores are positive on log scales; `score` is not R-squared."""
        tags = super().__sklearn_tags__()
        positive = self.noise_sd is None
        if isinstance(self.prior, Prior):
            curves = self.prior.mean, self.prior.variance
            positive = common_scale(*(curve.scale for curve in curves)).low >= 0
        tags.input_tags.one_d_array = self.column is None
        tags.input_tags.positive_only = positive
        tags.regressor_tags.poor_score = True
        tags.target_tags.positive_only = self.noise_sd is None
        return tags

    def fit(
        self, X: ArrayLike, y: ArrayLike, exposure: Column = None, noise_sd: Column = None,
        trials: Column = None, group: Column = None, *, events: Column = None,
        cluster: Column = None, sample_weight: Column = None,
    ) -> Self:  # fmt: skip
        """Fit the curves E and Var(theta | t).

        Parameters
        ----------
        X : array_like, shape (n, k) or (n,)
            Scores t: an array, a Series, or a frame; of several columns `column` is read.
        y : array_like, shape (n,)
            Outcomes: counts (whole numbers >= 0), values, successes, labels, or sums of amounts.
        exposure : float or array_like, shape (n,), or None
            Exposures of counts, >= 0; None is 1.
        noise_sd : float or array_like, shape (n,), or None
            Noise sds of values, > 0; None is the estimator's `noise_sd`.
        trials : float or array_like, shape (n,), or None
            Trials of successes, whole numbers; None is 1.
        events : float or array_like, shape (n,), or None
            Numbers of events of amounts, whole numbers.
        group : array_like, shape (n,) or (n, k), or None
            Labels of the items' groups, whose curves are partially pooled, or of k crossed groups,
            whose effects add up.
        cluster : array_like, shape (n,), or None
            Labels of clusters of items that depend on each other beyond their scores: intervals
            then allow for it.
        sample_weight : array_like, shape (n,), or None
            Whole numbers >= 0: how many equal items each row stands for. Other weights are refused.

        Returns
        -------
        SecondOrderCalibrator
            The estimator itself.

        Raises
        ------
        ItemsError, FitError
            If the items are not valid, the scores have seen the outcomes, or the prior or method
            does not suit the items. Both are a `ValueError`.
        """
        scores, observed = self._scores(X, y, reset=True)
        sizes = dict(zip(_SIZES, (exposure, noise_sd, trials, events), strict=True))
        known = {
            name: getattr(self, name, None) if x is None else x
            for name, x in sizes.items()
        }
        labelled = self.pos_label is not None or np.asarray(y).dtype == bool
        unsized = all(value is None for value in known.values())
        if unsized and not labelled and self.prior in (None, "auto"):
            labelled = _are_labels(observed, scores)
        outcome = _outcome_for(self.prior, known, labelled)
        size = self._size(outcome, sizes[outcome.size], scores)
        columns = {"score": scores, outcome.observed: observed, outcome.size: size}
        labels = _groups_of(group, scores)
        if cluster is not None:
            (labels["cluster"],) = _label_columns("cluster", np.ravel(cluster), scores)
        has_weight = np.ones(len(scores), dtype=bool)
        if sample_weight is not None:
            weight = _per_item("sample_weight", np.asarray(sample_weight), scores)
            has_weight = weight != 0
            if not has_weight.any():
                raise ItemsError(
                    "sample_weight is zero for all rows: give some of them more"
                )
            labels["weight"] = weight
        items = self._as_items(outcome, columns, labels)
        items = replace(items, source=items.source.filter(has_weight))
        reads = isinstance(self.prior, Prior) and self.prior.reads_joint
        reads = reads or self.noise_df is not None
        self.statistics_: Statistics = summarize(
            items,
            bins=self.bins, joint="auto" if self.prior == "auto" else reads,
            on_leakage=self.on_leakage, progress=self.progress,
        )  # fmt: skip
        self.fit_: Fit = fit(
            self.statistics_, self.prior, self.method, progress=self.progress
        )
        self._needs_size = sizes[outcome.size] is not None
        return self

    def predict(
        self, X: ArrayLike, y: Column = None, exposure: Column = None, noise_sd: Column = None,
        trials: Column = None, group: Column = None, *, events: Column = None,
    ) -> Floats:  # fmt: skip
        """E(theta | t), or E(theta | t, y) if outcomes are given.

        Parameters
        ----------
        X : array_like, shape (n, k) or (n,)
            Scores t.
        y : array_like, shape (n,), or None
            Outcomes; None predicts from the score alone.
        exposure : float or array_like, shape (n,), or None
            As in `fit`, and required with `y` if the fit had them. Without `y` only a prior with a
            term in exposure uses sizes; without both, it averages over those of similar scores.
        noise_sd : float or array_like, shape (n,), or None
            As `exposure`.
        trials : float or array_like, shape (n,), or None
            As `exposure`.
        events : float or array_like, shape (n,), or None
            As `exposure`.
        group : array_like, shape (n,) or (n, k), or None
            As in `fit`.

        Returns
        -------
        numpy.ndarray, shape (n,)
            In events per unit of exposure or the unit of the values.

        Raises
        ------
        ItemsError, FitError
            If the items are not valid, or lack sizes or groups that the fit was given.
        """
        check_is_fitted(self, "fit_")
        sizes = exposure, noise_sd, trials, events
        if y is None and self.fit_.mean_only:
            columns, groups = self._columns(X, y, sizes, group)
            places = {"score": columns["score"], **self._group_labels(groups)}
            warn_of_extrapolation(self.fit_.curves, columns["score"])
            variables = curve_variables(posterior_of(self.fit_), places)
            return np.asarray(variables["mean"].mean(axis=0))
        return self._summaries(X, y, sizes, (), group)[0]

    def predict_std(
        self, X: ArrayLike, y: Column = None, exposure: Column = None, noise_sd: Column = None,
        trials: Column = None, group: Column = None, *, events: Column = None,
    ) -> Floats:  # fmt: skip
        """Standard deviation of theta given t, or given t and y, with the curves' uncertainty.

        Parameters
        ----------
        X : array_like, shape (n, k) or (n,)
            Scores t.
        y : array_like, shape (n,), or None
            As in `predict`.
        exposure : float or array_like, shape (n,), or None
            As in `predict`.
        noise_sd : float or array_like, shape (n,), or None
            As in `predict`.
        trials : float or array_like, shape (n,), or None
            As in `predict`.
        events : float or array_like, shape (n,), or None
            As in `predict`.
        group : array_like, shape (n,) or (n, k), or None
            As in `predict`.

        Returns
        -------
        numpy.ndarray, shape (n,)
            In the unit of `predict`.

        Raises
        ------
        ItemsError, FitError
            As in `predict`.
        """
        return self._summaries(X, y, (exposure, noise_sd, trials, events), (), group)[1]

    def predict_interval(
        self, X: ArrayLike, y: Column = None, exposure: Column = None, noise_sd: Column = None,
        trials: Column = None, group: Column = None, *, events: Column = None, prob: float = 0.9,
    ) -> Floats:  # fmt: skip
        """Central interval of theta given t, or given t and y, with the curves' uncertainty.

        Parameters
        ----------
        X : array_like, shape (n, k) or (n,)
            Scores t.
        y : array_like, shape (n,), or None
            As in `predict`.
        exposure : float or array_like, shape (n,), or None
            As in `predict`; also needed without `y` if the fit has a term in exposure.
        noise_sd : float or array_like, shape (n,), or None
            As in `predict`.
        trials : float or array_like, shape (n,), or None
            As in `predict`.
        events : float or array_like, shape (n,), or None
            As in `predict`.
        group : array_like, shape (n,) or (n, k), or None
            As in `predict`.
        prob : float
            Probability of the interval.

        Returns
        -------
        numpy.ndarray, shape (n, 2)
            The ends, in the unit of `predict`.

        Raises
        ------
        ItemsError, FitError
            As in `predict`.
        """
        PROBABILITY(prob, "prob")
        ends = ((1 - prob) / 2, (1 + prob) / 2)
        sizes = exposure, noise_sd, trials, events
        *_, low, high = self._summaries(X, y, sizes, ends, group)
        return np.column_stack([low, high])

    def predict_band(
        self, X: ArrayLike, exposure: Column = None, noise_sd: Column = None,
        trials: Column = None, group: Column = None, *, events: Column = None, prob: float = 0.9,
    ) -> Floats:  # fmt: skip
        """Credible band of E(theta | t), the curve of `predict`; of labels too.

        Parameters
        ----------
        X : array_like, shape (n, k) or (n,)
            Scores t.
        exposure : float or array_like, shape (n,), or None
            Exposures, if the fit has a term in them; None averages over those of its items.
        noise_sd : float or array_like, shape (n,), or None
            As `exposure`.
        trials : float or array_like, shape (n,), or None
            As `exposure`.
        events : float or array_like, shape (n,), or None
            As `exposure`.
        group : array_like, shape (n,) or (n, k), or None
            As in `predict`.
        prob : float
            Probability of the band at each score.

        Returns
        -------
        numpy.ndarray, shape (n, 2)
            The ends, in the unit of `predict`. `predict_interval` is of theta, and wider.

        Raises
        ------
        ItemsError, FitError
            As in `predict`.
        """
        PROBABILITY(prob, "prob")
        columns, groups = self._columns(
            X, None, (exposure, noise_sd, trials, events), group
        )
        del columns[self._outcome.observed]
        columns |= self._group_labels(groups)
        posterior = posterior_of(self.fit_)
        warn_of_extrapolation(posterior.curves, columns["score"])
        ends = ((1 - prob) / 2, (1 + prob) / 2)

        def band(part: Columns) -> Floats:
            return np.quantile(curve_variables(posterior, part)["mean"], ends, axis=0)

        return in_chunks(band, posterior.curves.items_at_once, columns).T

    def predict_outcome_interval(
        self, X: ArrayLike, y: Column = None, exposure: Column = None, noise_sd: Column = None,
        trials: Column = None, group: Column = None, *, events: Column = None,
        further: Column = None, prob: float = 0.9,
    ) -> Floats:  # fmt: skip
        """Central interval of the next outcome, as `soc.predictive_intervals` returns it.

        Parameters
        ----------
        X : array_like, shape (n, k) or (n,)
            Scores t.
        y : array_like, shape (n,), or None
            As in `predict`.
        exposure : float or array_like, shape (n,), or None
            As in `predict`; without `y` that of the next outcome, unless `further` is given.
        noise_sd : float or array_like, shape (n,), or None
            As `exposure`.
        trials : float or array_like, shape (n,), or None
            As `exposure`.
        events : float or array_like, shape (n,), or None
            As `exposure`.
        group : array_like, shape (n,) or (n, k), or None
            As in `predict`.
        further : float or array_like, shape (n,), or None
            Exposure (noise sd, trials) of the next outcome. None is that of `y`.
        prob : float
            Probability of the interval; one of counts holds at least as much.

        Returns
        -------
        numpy.ndarray, shape (n, 2)
            The ends, in the unit of `y`.

        Raises
        ------
        ItemsError, FitError
            As in `predict`, or if the next exposure is missing or not valid.
        """
        PROBABILITY(prob, "prob")
        columns, groups = self._columns(
            X, y, (exposure, noise_sd, trials, events), group
        )
        if y is None:
            del columns[self._outcome.observed]
        items = self._as_items(self._outcome, columns, groups)
        table = predictive_intervals(
            self.fit_,
            items,
            exposure=further,
            quantiles=((1 - prob) / 2, (1 + prob) / 2),
            progress=self.progress,
        )
        return table.iloc[:, :2].to_numpy()

    def score(
        self, X: ArrayLike, y: ArrayLike, exposure: Column = None, noise_sd: Column = None,
        trials: Column = None, group: Column = None, *, events: Column = None,
        sample_weight: Column = None,
    ) -> float:  # fmt: skip
        """Mean log predictive density of outcomes given their scores, in nats; higher is better.

        Parameters
        ----------
        X : array_like, shape (n, k) or (n,)
            Scores t.
        y : array_like, shape (n,)
            As in `predict`.
        exposure : float or array_like, shape (n,), or None
            As in `predict`.
        noise_sd : float or array_like, shape (n,), or None
            As in `predict`.
        trials : float or array_like, shape (n,), or None
            As in `predict`.
        events : float or array_like, shape (n,), or None
            As in `predict`.
        group : array_like, shape (n,) or (n, k), or None
            As in `predict`.
        sample_weight : array_like, shape (n,), or None
            Weights of the items in the mean.

        Returns
        -------
        float
            The mean over items.

        Raises
        ------
        ItemsError, FitError
            As in `predict`; or if weights are not finite numbers >= 0.
        """
        columns, groups = self._columns(
            X, y, (exposure, noise_sd, trials, events), group
        )
        with showing(self.progress):
            scan(self._as_items(self._outcome, columns, groups))
        columns |= self._group_labels(groups)
        posterior = posterior_of(self.fit_)

        def averaged(part: Columns) -> Floats:
            return posterior.log_mean_density(part)[None]

        (log_density,) = in_chunks(averaged, posterior.curves.items_at_once, columns)
        weights = 1 if sample_weight is None else sample_weight
        weight = _per_item("sample_weight", weights, log_density)
        if not ((weight >= 0) & np.isfinite(weight)).all() or not weight.sum() > 0:
            raise ItemsError(
                "sample_weight must be finite numbers >= 0, some of them above 0"
            )
        return float(np.average(log_density, weights=weight))

    def _scores(self, X: ArrayLike, y: Column = None, *, reset: bool) -> Pair:
        """Scores and outcomes, checked by scikit-learn's rules; NaN without outcomes."""
        alone = y is None and not reset
        if self.pos_label is not None and y is not None:
            y = _successes(y, self.pos_label)
        rules: dict[str, Any] = {}
        if not alone:
            rules = {"y_numeric": True, "ensure_min_samples": 2 if reset else 1}
        table = _as_column(X) if self.column is None else X
        data = [table] if alone else [table, y]
        try:
            checked = validate_data(self, *data, reset=reset, dtype=np.float64, **rules)
            if alone:
                return self._read(checked), np.full(len(checked), np.nan)
            observed = np.asarray(checked[1], dtype=np.float64)
        # others are TypeErrors, as scikit-learn requires
        except (ValueError, OverflowError) as error:
            text = " ".join(str(error).split())
            if "could not convert" in text or isinstance(error, OverflowError):
                remedy = "convert them first, or say which label is pos_label="
                text = f"X and y must be numbers ({text}): {remedy}"
            raise ItemsError(text) from error
        return self._read(checked[0]), observed

    def _read(self, table: Floats) -> Floats:
        """The column of scores."""
        n = table.shape[1]
        column = self.column
        if column is None and n != 1:
            raise ItemsError(
                f"X has {n} columns: give one, the items' scores, or say with column= which it is"
            )
        if column is None:
            return table[:, 0]
        names = [*getattr(self, "feature_names_in_", range(n))]
        if column in names and not isinstance(column, bool):
            return table[:, names.index(column)]
        if column not in range(-n, n) or isinstance(column, bool):
            raise ItemsError(
                f"column={shown(column)} is not in X: give one of {shown(names)}"
            )
        return table[:, int(column)]

    def _as_items(
        self, outcome: Outcome, columns: Mapping[str, Any], labels: Mapping[str, Any]
    ) -> Items:
        """Items in an Arrow table with a column for each role."""
        import pyarrow as pa

        table = pa.table({**columns, **labels})
        names = table.column_names
        arguments = Roles(zip(names, names, strict=True)).arguments
        kind = ITEMS[outcome.kind]
        for name, size in (("noise_df", "noise_sd"), ("shape", "events")):
            if (value := getattr(self, name)) is None:
                continue
            if name not in kind.__dataclass_fields__:
                raise ItemsError(
                    f"{name}={shown(value)} is not for {outcome.words.items}: give {size}= too, "
                    "or leave it out"
                )
            arguments[name] = value
        items: Items = kind(table, **arguments)
        return items

    @property
    def _outcome(self) -> Outcome:
        return self.statistics_.outcome

    def _columns(
        self, X: ArrayLike, y: Column, sizes: tuple[Column, ...], group: Column
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Columns of items by role: score, outcome and, if known, its size; and of groups."""
        check_is_fitted(self, "fit_")
        size = self._outcome.size
        known = dict(zip(_SIZES, sizes, strict=True))
        for name, value in known.items():
            if name != size and value is not None:
                raise ItemsError(f"the fit's items have {size}=: leave out {name}=")
        scores, observed = self._scores(X, y, reset=False)
        columns = {"score": scores, self._outcome.observed: observed}
        if known[size] is not None:
            columns[size] = _per_item(size, known[size], scores)
        elif y is not None:
            if self._needs_size:
                raise ItemsError(
                    f"the fit was given {size}=: give that of these outcomes too (in pipelines and "
                    f"cross-validation, {_ROUTING} passes it on)"
                )
            columns[size] = self._size(self._outcome, None, scores)
        groups = _groups_of(group, scores)
        n = len(self.fit_.curves.roles.groups)
        if len(groups) != n and (groups or self.fit_.groups):
            columns_of_fit = counted(n, "column") if n else "no column"
            remedy = "give as many as group=" if n else "leave out group="
            raise ItemsError(f"the fit was given {columns_of_fit} of groups: {remedy}")
        return columns, groups

    def _size(self, outcome: Outcome, values: Column, scores: Floats) -> Floats:
        """Sizes of outcomes, by default the estimator's own or the usual one of the kind."""
        default = getattr(self, outcome.size, outcome.usual_size)
        return _per_item(outcome.size, default if values is None else values, scores)

    def _group_labels(self, groups: Mapping[str, Any]) -> dict[str, Any]:
        """Labels of groups as posteriors read them, if the fit has groups."""
        if not self.fit_.groups:
            return {}
        return dict(arrays_of(groups, Roles(zip(groups, groups, strict=True))))

    def _summaries(
        self,
        X: ArrayLike,
        y: Column,
        sizes: tuple[Column, ...],
        probs: tuple[float, ...],
        group: Column,
    ) -> Floats:
        """Mean, sd, variance and quantiles of theta, (3 + probabilities, n)."""
        columns, groups = self._columns(X, y, sizes, group)
        size = self._outcome.size
        if y is None:
            del columns[self._outcome.observed]
            if self.fit_.prior.exposure is not None and size not in columns:
                if probs:
                    raise FitError(
                        f"theta depends on {size} in this fit: give {size}= too"
                    )
                columns |= self._group_labels(groups)
                return _averages_over_sizes(self.fit_, columns)
        items = self._as_items(self._outcome, columns, groups)
        options: dict[str, Any] = {"draws": self.draws, "progress": self.progress}
        scored = item_posteriors(self.fit_, items, quantiles=probs, **options)
        names = [name for name in scored.column_names if name.startswith("theta_")]
        return np.array([scored[name].to_numpy() for name in names])


def _as_column(X: Any) -> Any:
    """A vector of scores as a column; anything else unchanged."""
    try:
        dims = np.ndim(X) if isinstance(X, list | tuple) else getattr(X, "ndim", None)
    except ValueError:
        raise ItemsError(f"X={shown(X)} must be numbers, one for each item") from None
    return np.asarray(X).reshape(-1, 1) if dims == 1 else X


def _successes(y: ArrayLike, pos_label: object) -> Floats:
    """Labels as 1 where they are that of a success, else 0."""
    labels = pd.Series(np.asarray(y).ravel())
    further = labels[labels != pos_label].unique()
    if len(further) > 1 or labels.isna().any():
        text = f"y has the labels {shown(further.tolist())} besides pos_label={shown(pos_label)}"
        raise ItemsError(f"{text}: give two labels, none missing")
    return np.asarray(labels == pos_label, dtype=np.float64)


def _are_labels(observed: Floats, scores: Floats) -> bool:
    """Return True, with a warning, for outcomes of 0 and 1 with probabilities for scores."""
    are_rates = 0 <= scores.min() <= scores.max() <= 1
    if not (are_rates and np.isin(observed, (0, 1)).all()):
        return False
    warn_user(
        "y is 0 or 1 throughout and X has probabilities, so y are labels, not counts: "
        "pos_label=1 says so without this warning, and fit(..., exposure=1) fits counts",
        ItemsWarning,
    )
    return True


def _groups_of(group: Column, score: Floats) -> dict[str, Any]:
    """Arrow columns of groups by role."""
    if group is None:
        return {}
    return Roles.of_groups(_label_columns("group", group, score))


def _label_columns(name: str, labels: ArrayLike, score: Floats) -> list[Any]:
    """Arrow columns of the labels of groups or clusters; the items check them."""
    import pyarrow as pa

    array = np.asarray(labels)
    if array.ndim not in (1, 2) or len(array) != len(score) or not array.size:
        raise ItemsError(
            f"{name} has the shape {array.shape}: give {counted(len(score), 'label')}, as X has, "
            "or of several groups a column of them for each"
        )
    try:
        return [pa.array(column.tolist()) for column in array.reshape(len(score), -1).T]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ItemsError(
            f"{name} holds labels that are not of one type ({error})"
        ) from error


def _per_item(name: str, values: Any, score: Floats) -> Floats:
    """Exposures or noise sds, one for each item; the items check their values."""
    if np.ndim(values) == 2 and np.shape(values)[1] == 1:
        values = np.ravel(values)
    return per_item(values, name, len(score), ItemsError)


def _outcome_for(prior: object, sizes: Mapping[str, object], labels: bool) -> Outcome:
    """The kind of outcomes: by their sizes, by the prior, by being labels, else counts."""
    kinds = [kind for kind in OUTCOMES.values() if sizes[kind.size] is not None]
    if len(kinds) > 1:
        names = ", ".join(f"{kind.size}= ({kind.words.outcomes})" for kind in kinds)
        raise ItemsError(
            f"outcomes must be of one kind, but there are {names}: give one of them"
        )
    suited = family_of(prior).outcome if isinstance(prior, Prior) else None
    if not kinds and suited is not None and suited.usual_size is not None:
        return suited
    outcome = kinds[0] if kinds else OUTCOMES["binomial" if labels else "poisson"]
    if suited not in (None, outcome):
        raise ItemsError(
            f"soc.{type(prior).__name__} is a prior for {suited.words.items}: give {suited.size}="
        )
    return outcome


def _averages_over_sizes(fit: Fit, columns: Mapping[str, Any]) -> Floats:
    """Mean, sd and variance of theta given t over the sizes of items with similar scores."""
    posterior = posterior_of(fit)
    warn_of_extrapolation(posterior.curves, columns["score"])

    def summarized(part: Columns) -> Floats:
        variables = curve_variables(posterior, part)
        mean = variables["mean"]
        variance = variables["variance"].mean(axis=0) + mean.var(axis=0)
        return np.array([mean.mean(axis=0), variance**0.5, variance])

    return in_chunks(summarized, posterior.curves.items_at_once, columns)
