"""The scikit-learn estimator: the same numbers as the functions, and scikit-learn's conventions."""

import inspect
import warnings
from copy import copy

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

import soc_pymc as soc

ROLES = ["score", "count", "exposure"]
FIVE_STEPS = soc.FiveSteps()  # milliseconds


@pytest.fixture(scope="module")
def ads():
    return soc.simulation.s1(3000, seed=5)


@pytest.fixture(scope="module")
def fitted(ads):
    calibrator = soc.SecondOrderCalibrator()
    return calibrator.fit(ads["score"], ads["count"], exposure=ads["exposure"])


@pytest.fixture(scope="module")
def items(ads):
    return soc.PoissonItems(ads, score="score", count="count", exposure="exposure")


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(8)
    t, noise = rng.normal(size=1500), rng.uniform(0.3, 1.0, 1500)
    theta = rng.normal(2 * t, 0.5)
    return {"t": t, "y": rng.normal(theta, noise), "noise_sd": noise, "theta": theta}


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# --- the same numbers as the functions' ----------------------------------------------------------


def test_posteriors_are_those_of_the_functions(fitted, items, ads):
    """Same seed, same statistics: every digit."""
    fit, few = soc.fit(soc.summarize(items, progress=False), progress=False), ads.head(50)
    scored = soc.item_posteriors(
        fit, soc.PoissonItems(few, **items.roles), quantiles=(0.1, 0.9), progress=False
    )
    given = (few[["score"]].to_numpy(), few["count"], few["exposure"])
    np.testing.assert_array_equal(fitted.predict(*given), scored["theta_mean"])
    np.testing.assert_array_equal(fitted.predict_std(*given), scored["theta_sd"])
    ends = fitted.predict_interval(*given, prob=0.8)
    np.testing.assert_allclose(ends, scored[["theta_q10", "theta_q90"]], rtol=1e-6)  # 0.8 rounds


def test_before_the_outcome_it_is_the_curves(fitted):
    """Mean and total variance of `calibration_curves`, up to rounding."""
    t = np.array([0.004, 0.05, 0.3])
    curves = soc.calibration_curves(fitted.fit_, t)
    mean, over = curves["mean"], ("chain", "draw")
    variance = curves["variance"].mean(over) + mean.var(over)
    every = copy(fitted).set_params(draws="all")
    np.testing.assert_allclose(every.predict(t), mean.mean(over), rtol=1e-12)
    np.testing.assert_allclose(every.predict_std(t), np.sqrt(variance), rtol=1e-12)


def test_interval_before_the_outcome_has_its_coverage(fitted):
    """By draws of theta from every draw of the curves; 4e5 draws: 4 standard errors are 0.002."""
    curves = soc.calibration_curves(fitted.fit_, [0.05])
    shape, rate = (curves[name].to_numpy().ravel() for name in ("shape", "rate"))
    theta = np.random.default_rng(0).standard_gamma(np.repeat(shape, 400)) / np.repeat(rate, 400)
    low, high = fitted.predict_interval([0.05], prob=0.7)[0]
    assert abs((theta < low).mean() - 0.15) < 0.003
    assert abs((theta > high).mean() - 0.15) < 0.003


def test_values(values):
    """Noise sds by item; a mixture as prior; E(theta | t) as from the curves."""
    calibrator = soc.SecondOrderCalibrator(method=FIVE_STEPS, bins=30)
    t, y, noise = values["t"], values["y"], values["noise_sd"]
    calibrator.fit(t, y, noise_sd=noise)
    assert calibrator.statistics_.kind == "normal"
    curves = soc.calibration_curves(calibrator.fit_, [-1.0, 1.0])
    np.testing.assert_allclose(calibrator.predict([-1.0, 1.0]), curves["mean"].to_numpy()[0, 0])
    sd = np.sqrt(curves["variance"].to_numpy()[0, 0])
    np.testing.assert_allclose(calibrator.predict_std([-1.0, 1.0]), sd)
    with pytest.raises(soc.ItemsError, match="was given noise_sd="):
        calibrator.predict(t, y)
    with pytest.raises(soc.ItemsError, match="leave out exposure="):
        calibrator.predict(t, y, exposure=noise)
    ends = calibrator.predict_interval(t, y, noise_sd=noise, prob=0.8)
    inside = (ends[:, 0] < values["theta"]) & (values["theta"] < ends[:, 1])
    assert abs(inside.mean() - 0.8) < 0.04  # 4 standard errors of 1,500 items
    mixture = soc.SecondOrderCalibrator(soc.NormalMixture(), FIVE_STEPS, noise_sd=0.6)
    assert mixture.fit(t, y).statistics_.coarse > 0  # it reads joint cells
    assert np.isfinite(mixture.predict([0.0, 0.5])).all()


def test_score_is_the_log_density(fitted, ads):
    """By hand: negative binomials, averaged over draws."""
    from scipy import stats

    few = ads.iloc[:7]
    curves = soc.calibration_curves(fitted.fit_, few["score"].to_numpy())
    shape, rate = (curves[name].to_numpy().reshape(-1, 7) for name in ("shape", "rate"))
    p = rate / (rate + few["exposure"].to_numpy())
    expected = np.log(stats.nbinom.pmf(few["count"].to_numpy(), shape, p).mean(axis=0)).mean()
    found = fitted.score(few["score"], few["count"], few["exposure"])
    assert found == pytest.approx(expected, rel=1e-9)
    one = fitted.score(few["score"], few["count"], few["exposure"], sample_weight=np.eye(7)[2])
    assert one == pytest.approx(fitted.score(*(few.iloc[[2]][c] for c in ROLES)), rel=1e-9)


@pytest.mark.slow
def test_a_term_in_exposure(ads):
    """theta that decreases with exposure: predictions follow exposure, intervals require it."""
    rng = np.random.default_rng(1)
    n = rng.choice([20.0, 2000.0], 3000)
    theta = ads["theta"].to_numpy() * np.where(n > 100, 0.5, 1.0)
    prior = soc.Gamma(exposure=soc.Spline())
    calibrator = soc.SecondOrderCalibrator(prior).fit(ads["score"], rng.poisson(theta * n), n)
    t = [0.05, 0.05]
    low, high = calibrator.predict(t, exposure=[2000.0, 20.0])
    assert 0.4 < low / high < 0.62
    assert low < calibrator.predict(t)[0] < high
    assert calibrator.predict_std(t)[0] > calibrator.predict_std(t, exposure=2000.0)[0]
    with pytest.raises(soc.FitError, match="give exposure="):
        calibrator.predict_interval(t)
    ends = calibrator.predict_interval(t, exposure=[2000.0, 20.0])
    assert (ends[0] < ends[1]).all()


# --- conventions ----------------------------------------------------------------------------------


def _one_column(estimator, X, X_test=None, kernel=None):
    """Data of the checks as one column, positive for the log scale."""

    def fit_for(x):
        return np.abs(x[:, :1]) + 0.1 if estimator.noise_sd is None else x[:, :1]

    return fit_for(X) if X_test is None else (fit_for(X), fit_for(X_test))


def _outcomes(estimator, y):
    return np.round(np.abs(y)) if estimator.noise_sd is None else y


EXPECTED = {
    "check_fit1d": "vectors of scores are taken on purpose",
    "check_fit2d_predict1d": "vectors of scores are taken on purpose",
    "check_n_features_in_after_fitting": "it drops a column, and there is but one",
    "check_positive_only_tag_during_fit": "many columns, or an error that names the log scale",
}
EXPECTED_COUNTS = EXPECTED | {
    "check_estimators_dtypes": "scores rounded to 0 have no place on the log scale"
}


@pytest.mark.parametrize(
    ("noise_sd", "expected"),
    [(1.0, EXPECTED), (None, EXPECTED_COUNTS)],
    ids=["values", "counts"],
)
@pytest.mark.slow
def test_scikit_learns_own_checks(noise_sd, expected, monkeypatch):
    """All of them, with data reduced to one column and to counts."""
    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_X", _one_column)
    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_y", _outcomes)
    calibrator = soc.SecondOrderCalibrator(method=FIVE_STEPS, noise_sd=noise_sd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few items, of equal scores
        found = check_estimator(
            calibrator, expected_failed_checks=expected, on_fail=None, on_skip=None
        )
    status = {(r["check_name"], r["status"]): r["exception"] for r in found}
    assert {k: v for k, v in status.items() if k[1] == "failed"} == {}
    assert {name for name, how in status if how == "xfail"} == set(expected)
    assert sum(r["status"] == "passed" for r in found) > 40


def test_parameters_and_clones(fitted):
    prior = soc.Gamma(monotone=True)
    calibrator = soc.SecondOrderCalibrator(prior, soc.VI(seed=3), bins=30)
    again = clone(calibrator).set_params(bins=40)
    assert again.get_params() == {**calibrator.get_params(), "bins": 40}
    assert again.prior == prior
    assert not hasattr(clone(fitted), "fit_")
    assert fitted.n_features_in_ == 1
    with pytest.raises(NotFittedError):
        calibrator.predict([0.1])


def test_names_of_columns(ads):
    calibrator = soc.SecondOrderCalibrator(method=FIVE_STEPS)
    calibrator.fit(ads[["score"]], ads["count"], ads["exposure"])
    assert calibrator.feature_names_in_.tolist() == ["score"]
    with pytest.raises(ValueError, match="feature names"):
        calibrator.predict(pd.DataFrame({"t": [0.1]}))


BAD = {
    "nan": (lambda d: d | {"t": np.where(d["t"] == d["t"][3], np.nan, d["t"])}, "NaN"),
    "two columns": (lambda d: d | {"t": np.column_stack([d["t"]] * 2)}, "2 columns"),
    "lengths": (lambda d: d | {"y": d["y"][:-1]}, "inconsistent numbers of samples"),
    "exposures' length": (lambda d: d | {"exposure": d["exposure"][:-1]}, "exposure has the shape"),
    "negative exposure": (lambda d: d | {"exposure": -d["exposure"]}, "column 'exposure': 200 of"),
    "negative count": (lambda d: d | {"y": d["y"] - 1}, "column 'y': .* negative"),
    "a rate": (lambda d: d | {"y": d["y"] / 7}, "column 'y': .* not whole"),
    "both": (lambda d: d | {"noise_sd": 1.0}, "give one of them"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_ends_in_one_clear_error(kind, ads):
    few = ads.iloc[:200]
    good = {"t": few["score"], "y": few["count"], "exposure": few["exposure"]}
    change, text = BAD[kind]
    given = change({name: column.to_numpy() for name, column in good.items()})
    with pytest.raises(ValueError, match=text):
        soc.SecondOrderCalibrator(method=FIVE_STEPS).fit(**given)


def test_priors_of_the_wrong_kind(ads):
    with pytest.raises(soc.ItemsError, match=r"soc.Normal is a prior for values"):
        soc.SecondOrderCalibrator(soc.Normal()).fit(ads["score"], ads["count"])
    leaked = (ads["count"] + 1.0) / (ads["exposure"] + 1.0)
    with pytest.raises(soc.ItemsError, match="saw the very counts"):
        soc.SecondOrderCalibrator().fit(leaked, ads["count"], ads["exposure"])


# --- pipelines and cross-validation ---------------------------------------------------------------


@pytest.mark.usefixtures("routing")
@pytest.mark.slow
def test_exposures_go_through_pipelines_and_searches(ads):
    """Without exposures they are 1 and scores are far off, so the score shows that they arrive."""
    t, y, n = ads[["score"]].to_numpy(), ads["count"].to_numpy(), ads["exposure"].to_numpy()
    calibrator = soc.SecondOrderCalibrator(method=FIVE_STEPS)
    pipe = make_pipeline(FunctionTransformer(lambda x: np.maximum(x, 1e-3)), calibrator)
    folds = KFold(3)
    found = cross_validate(pipe, t, y, cv=folds, params={"exposure": n}, return_estimator=True)
    for (train, test), estimator, score in zip(
        folds.split(t), found["estimator"], found["test_score"], strict=True
    ):
        assert estimator[-1].statistics_.total_exposure == n[train].sum()
        alone = clone(calibrator).fit(np.maximum(t[train], 1e-3), y[train], n[train])
        assert score == pytest.approx(alone.score(t[test], y[test], n[test]))
    out = cross_val_predict(pipe, t, y, cv=folds, params={"exposure": n})
    assert np.corrcoef(np.log(out), np.log(ads["true_mean"]))[0, 1] > 0.98
    search = GridSearchCV(calibrator, {"bins": [5, 50]}, cv=folds)
    search.fit(t, y, exposure=n)
    assert search.best_estimator_.statistics_.total_exposure == n.sum()
    assert search.predict(t[:4]).shape == (4,)


@pytest.mark.slow
def test_loading_is_lazy():
    """Neither the package nor its other functions load scikit-learn."""
    import subprocess
    import sys

    code = (
        "import sys, soc_pymc as soc, soc_pymc.posterior.items, soc_pymc.inference.fitting;"
        "assert 'sklearn' not in sys.modules; soc.SecondOrderCalibrator;"
        "assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_true_and_false_are_labels():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, 500)
    y = rng.random(500) < p
    calibrator = soc.SecondOrderCalibrator(method=soc.VI(draws=50))
    found = calibrator.fit(p, y).predict([0.3, 0.7])
    assert isinstance(calibrator.fit_.prior, soc.Beta)
    assert -0.69 < calibrator.score(p, y) < 0  # better than a coin
    same = calibrator.fit(p, y.astype(int), trials=1).predict([0.3, 0.7])
    assert (found == same).all()


def test_true_and_false_can_be_counts():
    p = np.linspace(0.1, 0.9, 200)
    calibrator = soc.SecondOrderCalibrator(soc.Gamma(), soc.FiveSteps(), bins=5)
    with pytest.warns(soc.ItemsWarning, match="successes in trials"):
        calibrator.fit(p, np.arange(200) % 3 == 0)
    assert isinstance(calibrator.fit_.prior, soc.Gamma)


@pytest.mark.usefixtures("routing")
def test_routing_needs_no_requests(ads):
    """Exposures reach fit, score and predict of a pipeline by the switch of routing alone."""
    few = ads.head(600)
    t, y, n = few[["score"]].to_numpy(), few["count"].to_numpy(), few["exposure"].to_numpy()
    clip = FunctionTransformer(np.clip, kw_args={"a_min": 1e-3, "a_max": None})
    pipe = make_pipeline(clip, soc.SecondOrderCalibrator(method=FIVE_STEPS, bins=10))
    folds = KFold(2)
    scores = cross_val_score(pipe, t, y, cv=folds, params={"exposure": n})
    for score, (train, test) in zip(scores, folds.split(t), strict=True):
        alone = soc.SecondOrderCalibrator(method=FIVE_STEPS, bins=10)
        alone.fit(t[train], y[train], n[train])
        assert score == pytest.approx(alone.score(t[test], y[test], n[test]))
    pipe.fit(t, y, exposure=n)
    after = pipe[-1].predict(t, y, n)
    np.testing.assert_array_equal(pipe.predict(t, y=y, exposure=n), after)


def test_exposures_are_never_forgotten(ads):
    """Neither by the estimator nor by its clones: without exposures all would count as 1."""
    few = ads.head(600)
    t, y, n = few[["score"]].to_numpy(), few["count"].to_numpy(), few["exposure"].to_numpy()
    calibrator = soc.SecondOrderCalibrator(method=FIVE_STEPS, bins=10).fit(t, y, n)
    for later in (calibrator, clone(calibrator), clone(clone(calibrator))):
        with pytest.raises(
            soc.ItemsError, match=r"was given exposure=.*would count as 1: give fit"
        ):
            later.fit(t, y)
    with pytest.raises(ValueError, match="enable_metadata_routing=True"):  # without routing
        cross_val_score(calibrator, t, y, cv=2, params={"exposure": n}, error_score="raise")
    with pytest.raises(ValueError, match="was given exposure="):
        cross_val_score(calibrator, t, y, cv=2, error_score="raise")
    counts = soc.SecondOrderCalibrator(method=FIVE_STEPS, bins=10).fit(t, y)  # of exposure 1
    assert counts.statistics_.total_exposure == len(y)
    counts.score(t, y, n)
    with pytest.raises(soc.ItemsError, match="was given exposure="):
        counts.fit(t, y)


def test_methods_take_their_arguments_in_one_order():
    """By place the fifth is the trials everywhere; weights are given by name."""
    of = soc.SecondOrderCalibrator
    order = ["self", "t", "y", "exposure", "noise_sd", "trials", "group"]
    for method in (of.fit, of.predict, of.predict_std, of.predict_interval, of.score):
        own = inspect.signature(method).parameters.values()
        assert [p.name for p in own if p.kind is p.POSITIONAL_OR_KEYWORD] == order
    with pytest.raises(TypeError, match="positional"):
        of().score([0.1], [1], [1], None, None, None, [1.0])
