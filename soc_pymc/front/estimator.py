"""A scikit-learn estimator, for pipelines and cross-validation.

`fit` calls `soc.summarize` and `soc.fit`, predictions call `soc.item_posteriors`; the statistics
and the fit are attributes.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from .._lib.arguments import PROBABILITY, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError
from ..data.groups import arguments_of, group_roles, roles_of, roles_of_groups
from ..data.items import ITEMS, Items
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..data.tables import scan
from ..families.family import family_of, reads_joint
from ..families.outcomes import OUTCOMES, Outcome
from ..families.priors import Prior
from ..families.scales import common_scale
from ..inference import fitting as inference
from ..inference.methods import Method
from ..inference.results import Fit
from ..posterior.calibration import curves_of
from ..posterior.curves import items_at_once
from ..posterior.extrapolation import warn_of_extrapolation
from ..posterior.item_columns import columns_of
from ..posterior.items import item_posteriors
from ..posterior.predictive import posterior_of

_REQUESTS = {"t": UNUSED} | dict.fromkeys(("exposure", "noise_sd", "trials", "group"), True)
_ROUTING = "sklearn.set_config(enable_metadata_routing=True)"


class SecondOrderCalibrator(RegressorMixin, BaseEstimator):
    """Second order calibration of one column of scores, as a scikit-learn regressor.

    The outcomes are counts y ~ Poisson(theta N) with exposures N, values y ~ Normal(theta, s^2)
    with noise sds s, or successes y ~ Binomial(n, theta) in n trials. The scores t must come from a
    model that never saw the outcomes given here, such as out-of-fold predictions by
    `sklearn.model_selection.cross_val_predict`.

    Parameters
    ----------
    prior
        The prior of theta given t; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for values,
        ``soc.Beta()`` for successes. Labels (0 or 1) without `trials` need ``soc.Beta()``.
        If the prior needs joint cells, they are kept.
    method
        ``soc.VI()`` (the default), ``soc.NUTS()`` or ``soc.FiveSteps()``; its ``seed`` is the
        estimator's random state.
    noise_sd
        None: outcomes are counts, unless `fit` gets noise sds. A number > 0: outcomes are values,
        and this is their default noise sd.
    bins
        Number of bins; None as in `soc.summarize`.
    on_leakage
        What to do if the scores must have seen the outcomes: ``"raise"``, ``"warn"`` or
        ``"ignore"``.
    draws
        Draws of the curves in predictions, as in `soc.item_posteriors`: ``"auto"`` is few
        quadrature points wherever these are accurate, ``"all"`` every draw.
    progress
        Whether `fit` and predictions show their progress on standard error.

    Attributes
    ----------
    fit_ : Fit
        The fit, for all other functions of the package.
    statistics_ : Statistics
        The statistics of the fitted items.
    n_features_in_ : int
        1, the score.
    feature_names_in_ : ndarray of shape (1,)
        Name of the score's column, if it came from a table with names.

    Notes
    -----
    Parameters are stored unchanged and checked by `fit`. Errors in the data are
    `soc.ItemsError`, those in priors and methods `soc.FitError`; both are a `ValueError`.

    scikit-learn's Poisson regressors take rates y / N with ``sample_weight=N``; here pass counts y
    with ``exposure=N``. Of two models of the same outcomes the one with the higher `score`, a mean
    log predictive density, is better; R-squared would judge only the means.

    Exposures (noise sds, trials, groups) go through `Pipeline`, `cross_validate` and `GridSearchCV`
    by scikit-learn's metadata routing, for which
    ``sklearn.set_config(enable_metadata_routing=True)`` suffices: the estimator requests them.
    `fit` without exposures takes 1 for each, whatever an earlier `fit` was given; predictions for
    outcomes and `score` need them if `fit` had them.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> ads = soc.simulation.s1(2000, seed=0)
    >>> calibrator = soc.SecondOrderCalibrator()
    >>> calibrator.fit(ads["score"], ads["count"], exposure=ads["exposure"])
    SecondOrderCalibrator()
    >>> calibrator.predict([0.02, 0.05]).shape                     # E(theta | t)
    (2,)
    >>> after = calibrator.predict_interval([0.05], [9], exposure=[100], prob=0.5)
    >>> before = calibrator.predict_interval([0.05], prob=0.5)     # 9 events of 100: more than 5
    >>> bool((after > before).all())
    True
    >>> calibrator.fit_.status.converged
    True
    """

    # t is the first argument, not metadata; the rest is passed on by routing if it is given
    __metadata_request__fit: ClassVar[dict[str, Any]] = _REQUESTS | {"cluster": True}
    __metadata_request__predict: ClassVar[dict[str, Any]] = _REQUESTS | {"y": True}
    __metadata_request__score: ClassVar[dict[str, Any]] = _REQUESTS | {"sample_weight": True}

    def __init__(
        self,
        prior: Prior | None = None,
        method: Method | None = None,
        *,
        noise_sd: float | None = None,
        bins: int | None = None,
        on_leakage: Literal["raise", "warn", "ignore"] = "raise",
        draws: Literal["auto", "all"] = "auto",
        progress: bool = False,
    ) -> None:
        self.prior = prior
        self.method = method
        self.noise_sd = noise_sd
        self.bins = bins
        self.on_leakage = on_leakage
        self.draws = draws
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: one column, positive on log scales; `score` is not R-squared."""
        tags = super().__sklearn_tags__()
        curves = (getattr(self.prior, name, None) for name in ("mean", "variance"))
        counts = self.noise_sd is None
        tags.input_tags.one_d_array = True
        scale = common_scale(*(getattr(curve, "scale", "") for curve in curves))
        tags.input_tags.positive_only = (self.prior is None and counts) or scale.low >= 0
        tags.regressor_tags.poor_score = True
        tags.target_tags.positive_only = counts
        return tags

    def fit(
        self,
        t: ArrayLike,
        y: ArrayLike,
        exposure: ArrayLike | None = None,
        noise_sd: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        group: ArrayLike | None = None,
        *,
        cluster: ArrayLike | None = None,
    ) -> Self:
        """Fit the curves E and Var(theta | t).

        Parameters
        ----------
        t
            Scores, shape (n,) or (n, 1): an array, a Series, or a frame of one column.
        y
            Outcomes, shape (n,): counts (whole numbers >= 0), values, or successes. Labels are 0
            and 1 with ``trials=1`` or ``prior=soc.Beta()``, or true and false.
        exposure
            For counts: a number or shape (n,), >= 0; None is 1 for every item, and theta is then
            the expected count.
        noise_sd
            For values: a number or shape (n,), > 0; None takes the estimator's `noise_sd`.
        trials
            For successes: a whole number or shape (n,), none below an item's successes; None is 1
            for every item if the prior is a Beta. With one trial each, only E(theta | t) is known.
        group
            Labels of the items' groups (text, whole numbers or true/false), which have curves of
            their own, partially pooled: shape (n,), or a frame or array of shape (n, k) for k
            crossed groups, whose effects add up.
        cluster
            Labels of clusters, shape (n,), of items that depend on each other beyond their scores,
            such as the ads of one campaign: intervals then allow for it.

        Returns
        -------
        SecondOrderCalibrator
            The estimator itself.

        Raises
        ------
        ItemsError
            If the items are not valid, or the scores have seen the outcomes.
        FitError
            If the prior or the method does not suit the items.

        Warns
        -----
        ConvergenceWarning
            If the fit did not converge.

        Examples
        --------
        >>> import numpy as np
        >>> import soc_pymc as soc
        >>> rng = np.random.default_rng(0)
        >>> t = rng.normal(size=2000)                              # predicted effects
        >>> effect = t + rng.normal(0.0, 0.3, 2000)                # true ones
        >>> y = rng.normal(effect, 0.5)                            # estimates with standard error
        >>> calibrator = soc.SecondOrderCalibrator(noise_sd=0.5).fit(t, y)
        >>> sd = calibrator.predict_std([0.0])
        >>> bool(abs(sd[0] - 0.3) < 0.05)
        True
        """
        scores, observed = self._scores(t, y, reset=True)
        given = _given(exposure, noise_sd, trials)
        if (
            np.asarray(y).dtype == bool
            and self.prior is None
            and not any(size is not None for size in (*given.values(), self.noise_sd))
        ):
            outcome = self._kind_of(given | {"trials": 1})  # true and false are labels
        else:
            outcome = self._kind_of(given)
        size = given[outcome.size]
        if size is None:
            size = getattr(self, outcome.size, outcome.usual_size)
        columns = {
            "score": scores,
            outcome.observed: observed,
            outcome.size: _sizes(outcome.size, size, scores),
        }
        self.statistics_: Statistics = summarize(
            _items(outcome, columns, _groups(group, scores) | _clusters(cluster, scores)),
            bins=self.bins,
            joint=isinstance(self.prior, Prior) and reads_joint(self.prior),
            on_leakage=self.on_leakage,
            progress=self.progress,
        )
        self.fit_: Fit = inference.fit(
            self.statistics_, self.prior, self.method, progress=self.progress
        )
        self._needs_size = given[outcome.size] is not None
        return self

    def predict(
        self,
        t: ArrayLike,
        y: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise_sd: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        group: ArrayLike | None = None,
    ) -> Floats:
        """E(theta | t), or E(theta | t, y) if outcomes are given.

        Parameters
        ----------
        t
            Scores, shape (n,) or (n, 1).
        y
            Outcomes, shape (n,); None predicts from the score alone.
        exposure, noise_sd, trials
            As in `fit`; required with `y` if the fit had them. Without `y` only a prior with a term
            in exposure uses them, for E(theta | t, N); without both, it averages over the exposures
            of items with similar scores.
        group
            As in `fit`, and required if the fit had it.

        Returns
        -------
        numpy.ndarray
            Shape (n,), in events per unit of exposure or the unit of the values.

        Raises
        ------
        ItemsError
            If the items are not valid.
        FitError
            If a score has no place on the curves' axis.
        sklearn.exceptions.NotFittedError
            Before `fit`.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> ads = soc.simulation.s1(2000, seed=0)
        >>> calibrator = soc.SecondOrderCalibrator(method=soc.FiveSteps())
        >>> _ = calibrator.fit(ads["score"], ads["count"], ads["exposure"])
        >>> after = calibrator.predict([0.05], [0], exposure=[1000])   # no event in 1,000
        >>> bool(after[0] < 0.3 * calibrator.predict([0.05])[0])
        True
        """
        check_is_fitted(self, "fit_")
        if y is None and self.fit_.mean_only:
            scores, _ = self._scores(t, reset=False)
            warn_of_extrapolation(self.fit_, scores)
            labels = self._labels(self._groups(group, scores)).get("group")
            curves = curves_of(self.fit_, scores, labels)
            return np.asarray(curves["mean"].mean(("chain", "draw")).to_numpy())
        return self._summaries(t, y, _given(exposure, noise_sd, trials), (), group)[0]

    def predict_std(
        self,
        t: ArrayLike,
        y: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise_sd: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        group: ArrayLike | None = None,
    ) -> Floats:
        """Standard deviation of theta given t, or given t and y, with the curves' uncertainty.

        It describes theta, not an outcome, and does not vanish with more items.

        Parameters
        ----------
        t, y, exposure, noise_sd, trials, group
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            Shape (n,), in the unit of `predict`.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> ads = soc.simulation.s1(2000, seed=0)
        >>> calibrator = soc.SecondOrderCalibrator(method=soc.FiveSteps())
        >>> _ = calibrator.fit(ads["score"], ads["count"], ads["exposure"])
        >>> after = calibrator.predict_std([0.05], [5], exposure=[100])
        >>> bool(after[0] < calibrator.predict_std([0.05])[0])
        True
        """
        return self._summaries(t, y, _given(exposure, noise_sd, trials), (), group)[1]

    def predict_interval(
        self,
        t: ArrayLike,
        y: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise_sd: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        group: ArrayLike | None = None,
        *,
        prob: float = 0.9,
    ) -> Floats:
        """Central interval of theta given t, or given t and y, with the curves' uncertainty.

        Parameters
        ----------
        t, y, exposure, noise_sd, trials, group
            As in `predict`; a fit with a term in exposure needs `exposure` (`noise_sd`) also
            without `y`.
        prob
            Probability of the interval, between 0 and 1, half of the rest on either side.

        Returns
        -------
        numpy.ndarray
            Shape (n, 2), the lower and upper ends in the unit of `predict`.

        Raises
        ------
        FitError
            If `prob` is not between 0 and 1, or a needed exposure is not given.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> ads = soc.simulation.s1(2000, seed=0)
        >>> calibrator = soc.SecondOrderCalibrator(method=soc.FiveSteps())
        >>> _ = calibrator.fit(ads["score"], ads["count"], ads["exposure"])
        >>> ends = calibrator.predict_interval(
        ...     ads["score"], ads["count"], ads["exposure"], prob=0.8)
        >>> inside = (ends[:, 0] <= ads["theta"]) & (ads["theta"] <= ends[:, 1])
        >>> bool(abs(inside.mean() - 0.8) < 0.04)
        True
        """
        PROBABILITY(prob, "prob")
        ends = ((1 - prob) / 2, (1 + prob) / 2)
        given = _given(exposure, noise_sd, trials)
        return self._summaries(t, y, given, ends, group)[3:5].T.copy()

    def score(
        self,
        t: ArrayLike,
        y: ArrayLike,
        exposure: ArrayLike | None = None,
        noise_sd: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        group: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Mean log predictive density of outcomes given their scores; the higher the better.

        For counts it is the mean of log P(y | t, N), with the curves integrated out, at most 0. It
        judges the whole distribution of theta given t; to judge only means, use `predict` with a
        metric of `sklearn.metrics`.

        Parameters
        ----------
        t, y, exposure, noise_sd, trials, group
            As in `predict`.
        sample_weight
            Weights of the items in the mean, shape (n,); None gives equal weights.

        Returns
        -------
        float
            Nats per item.

        Raises
        ------
        ItemsError
            If the items are not valid, or weights are negative or all 0.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> ads, more = soc.simulation.s1(2000, seed=0), soc.simulation.s1(500, seed=1)
        >>> calibrator = soc.SecondOrderCalibrator(method=soc.FiveSteps())
        >>> _ = calibrator.fit(ads["score"], ads["count"], ads["exposure"])
        >>> calibrator.score(more["score"], more["count"], more["exposure"]) < 0
        True
        """
        check_is_fitted(self, "fit_")
        columns: dict[str, Any] = dict(self._columns(t, y, _given(exposure, noise_sd, trials)))
        groups = self._groups(group, columns["score"])
        scan(_items(self._outcome, columns, groups), progress=False)
        columns |= self._labels(groups)
        posterior, step = posterior_of(self.fit_), items_at_once(self.fit_)
        found = []
        for start in range(0, len(columns["score"]), step):
            part = {role: values[start : start + step] for role, values in columns.items()}
            density = posterior.log_density(part)
            found.append(logsumexp(density, axis=0) - np.log(len(density)))
        each = np.concatenate(found)
        if sample_weight is None:
            return float(each.mean())
        weight = _sizes("sample_weight", sample_weight, each)
        if not ((weight >= 0) & np.isfinite(weight)).all() or not weight.sum() > 0:
            raise ItemsError("sample_weight must be finite numbers >= 0, some of them above 0")
        return float(np.average(each, weights=weight))

    def _scores(self, t: Any, y: Any = None, *, reset: bool) -> tuple[Floats, Floats]:
        """Scores and outcomes, checked by scikit-learn's rules; NaN without outcomes."""
        column = _column(t)
        rules: dict[str, Any] = {"reset": reset, "dtype": np.float64}
        if y is None and not reset:
            X = self._validated(column, **rules)
            return X[:, 0], np.full(len(X), np.nan)
        least = 2 if reset else 1
        X, y = self._validated(column, y, y_numeric=True, ensure_min_samples=least, **rules)
        if X.shape[1] != 1:
            raise ItemsError(f"t has {X.shape[1]:,} columns: give one, the score of every item")
        try:
            return X[:, 0], np.asarray(y, dtype=np.float64)
        except ValueError as error:  # text, which the rules let pass
            raise ItemsError(_not_numbers(error)) from error

    def _validated(self, *data: Any, **rules: Any) -> Any:
        """Arrays checked by scikit-learn's rules; errors become ItemsError.

        Objects that are not numbers raise TypeError, as scikit-learn requires of its estimators.
        """
        try:
            return validate_data(self, *data, **rules)
        except (ValueError, OverflowError) as error:
            text = " ".join(str(error).split())
            odd = "could not convert" in text or isinstance(error, OverflowError)
            raise ItemsError(_not_numbers(error) if odd else text) from error

    @property
    def _outcome(self) -> Outcome:
        return OUTCOMES[self.statistics_.kind]

    def _kind_of(self, given: dict[str, Any]) -> Outcome:
        """The kind of outcomes whose sizes are given; the first kind if none are."""
        named = [
            each
            for each in OUTCOMES.values()
            if given[each.size] is not None or getattr(self, each.size, None) is not None
        ]
        if len(named) > 1:
            sizes = ", ".join(f"{each.size}= ({each.words.outcomes})" for each in named)
            raise ItemsError(f"outcomes are of one kind, but there are {sizes}: give one of them")
        # labels and counts need no size: what they are says the prior
        usual = family_of(self.prior).outcome if isinstance(self.prior, Prior) else None
        if not named and usual is not None and usual.usual_size is not None:
            return usual
        outcome = named[0] if named else next(iter(OUTCOMES.values()))
        wanted = family_of(self.prior).outcome if isinstance(self.prior, Prior) else outcome
        if wanted is not outcome:
            raise ItemsError(
                f"soc.{type(self.prior).__name__} is a prior for {wanted.words.items}: give "
                f"{wanted.size}="
            )
        return outcome

    def _columns(
        self, t: ArrayLike, y: ArrayLike | None, given: dict[str, Any]
    ) -> dict[str, Floats]:
        """Columns of items by role: score, outcome and, if known, its size."""
        size = self._outcome.size
        others = [name for name, value in given.items() if name != size and value is not None]
        if others:
            raise ItemsError(f"the fit is of items with {size}=: leave out {others[0]}=")
        scores, observed = self._scores(t, y, reset=False)
        columns = {"score": scores, self._outcome.observed: observed}
        if given[size] is not None:
            columns[size] = _sizes(size, given[size], scores)
        elif y is not None:
            if self._needs_size:
                raise ItemsError(
                    f"the fit was given {size}=: give that of these outcomes too (in pipelines and "
                    f"cross-validation, {_ROUTING} passes it on)"
                )
            usual = getattr(self, size, self._outcome.usual_size)
            columns[size] = _sizes(size, usual, scores)
        return columns

    def _groups(self, given: Any, score: Floats) -> dict[str, Any]:
        """Arrow columns of groups by role, as many as the fit was given."""
        groups, wanted = _groups(given, score), len(group_roles(roles_of(self.fit_.data.attrs)))
        if len(groups) != wanted and (groups or self.fit_.groups):
            which = "one column" if wanted == 1 else f"{wanted or 'no'} columns"
            remedy = "give as many as group=" if wanted else "leave out group="
            raise ItemsError(f"the fit was given {which} of groups: {remedy}")
        return groups

    def _labels(self, groups: Mapping[str, Any]) -> dict[str, Any]:
        """Labels of groups as posteriors read them, if the fit has groups."""
        return dict(columns_of(groups, {n: n for n in groups})) if self.fit_.groups else {}

    def _summaries(
        self, t: Any, y: Any, given: dict[str, Any], probs: tuple[float, ...], group: Any
    ) -> Floats:
        """Mean, sd, variance and quantiles of theta, (3 + probabilities, n)."""
        check_is_fitted(self, "fit_")
        columns = self._columns(t, y, given)
        groups, size = self._groups(group, columns["score"]), self._outcome.size
        if y is None:
            del columns[self._outcome.observed]
            if self.fit_.prior.exposure is not None and size not in columns:
                return self._over_sizes(columns["score"], probs, groups)
        scored = item_posteriors(
            self.fit_,
            _items(self._outcome, columns, groups),
            quantiles=probs,
            draws=self.draws,
            progress=self.progress,
        )
        names = [name for name in scored.column_names if name.startswith("theta_")]
        return np.array([scored[name].to_numpy() for name in names])

    def _over_sizes(
        self, score: Floats, probs: tuple[float, ...], groups: Mapping[str, Any]
    ) -> Floats:
        """Mean, sd and variance of theta given t over the sizes of items with similar scores."""
        if probs:
            size = self._outcome.size
            raise FitError(
                f"theta depends on {size} in this fit, and its interval is that at a given one: "
                f"give {size}="
            )
        warn_of_extrapolation(self.fit_, score)
        over = "chain", "draw"
        labels, step = self._labels(groups).get("group"), items_at_once(self.fit_)
        parts = []
        for at in (slice(start, start + step) for start in range(0, len(score), step)):
            curves = curves_of(self.fit_, score[at], None if labels is None else labels[at])
            variance = (curves["variance"].mean(over) + curves["mean"].var(over)).to_numpy()
            parts.append([curves["mean"].mean(over).to_numpy(), np.sqrt(variance), variance])
        return np.hstack(parts)


def _given(exposure: Any, noise_sd: Any, trials: Any) -> dict[str, Any]:
    """Sizes of outcomes by role."""
    return {"exposure": exposure, "noise_sd": noise_sd, "trials": trials}


def _not_numbers(error: Exception) -> str:
    """What is wrong with scores or outcomes that a library could not convert."""
    text = " ".join(str(error).split())
    return f"t and y must be numbers ({text}): convert them first, labels to 0 and 1"


def _column(t: Any) -> Any:
    """A vector of scores as a column; anything else unchanged."""
    try:
        vector = getattr(t, "ndim", None) == 1 or (isinstance(t, list | tuple) and np.ndim(t) == 1)
    except ValueError:
        raise ItemsError(f"t={shown(t)} must be numbers, one for each item") from None
    return np.asarray(t).reshape(-1, 1) if vector else t


def _items(outcome: Outcome, columns: Mapping[str, Any], labels: Mapping[str, Any]) -> Items:
    """Items in an Arrow table whose columns have the names of the arguments."""
    import pyarrow as pa

    names = {"score": "t", outcome.observed: "y", outcome.size: outcome.size}
    roles = {role: names[role] for role in columns}
    table = pa.table({roles[role]: values for role, values in columns.items()} | dict(labels))
    roles |= {name: name for name in labels}
    items: Items = ITEMS[outcome.kind](table, **arguments_of(roles))
    return items


def _groups(given: Any, score: Floats) -> dict[str, Any]:
    """Arrow columns of labels of groups, by role; the items check them."""
    if given is None:
        return {}
    labels = np.asarray(given)
    if labels.ndim not in (1, 2) or len(labels) != len(score) or not labels.size:
        raise ItemsError(
            f"group has the shape {labels.shape}: give {len(score):,} labels, as t has, or a "
            "column of them for each of several groups"
        )
    columns = labels.reshape(len(score), -1).T
    return roles_of_groups([_labels(column, "group") for column in columns])


def _clusters(given: Any, score: Floats) -> dict[str, Any]:
    """Arrow column of labels of clusters, by role; the items check it."""
    if given is None:
        return {}
    labels = np.asarray(given)
    if labels.shape != (len(score),):
        raise ItemsError(
            f"cluster has the shape {labels.shape}: give {len(score):,} labels, as t has"
        )
    return {"cluster": _labels(labels, "cluster")}


def _labels(column: Any, name: str) -> Any:
    """An Arrow column of labels."""
    import pyarrow as pa

    try:
        return pa.array(column.tolist())
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ItemsError(
            f"{name} holds labels that are not of one type ({error}): convert them first"
        ) from error


def _sizes(name: str, given: Any, score: Floats) -> Floats:
    """Exposures or noise sds, one for each item; the items check their values."""
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ItemsError(f"{name}={shown(given)} must be a number, or one for each item") from None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape not in ((), score.shape):
        raise ItemsError(
            f"{name} has the shape {values.shape}: give a number, or {len(score):,} of them, as t "
            "has"
        )
    return np.broadcast_to(values, score.shape).copy()
