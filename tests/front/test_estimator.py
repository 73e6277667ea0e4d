"""The scikit-learn estimator: the same numbers as the functions, and scikit-learn's conventions."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import stats
from sklearn import model_selection
from sklearn.base import clone
from sklearn.model_selection import cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import soc_pymc as soc
from tests.examples import ROLES, SINGLE_FAMILIES, thinned

QUICK = soc.VI(draws=50)


@pytest.fixture(scope="module")
def ads(example):
    return example("gamma").frame.head(1500)


def columns_of(example, n=None):
    _, outcome, size = ROLES[type(example.items)]
    frame = example.frame.head(n or len(example.frame))
    return frame["score"], frame[outcome], {size: frame[size]}


@pytest.fixture(scope="module")
def fitted(example):

    def of(family):
        known = example(family)
        t, y, size = columns_of(known)
        calibrator = soc.SecondOrderCalibrator(
            known.case.prior, QUICK, shape=known.case.roles.get("shape"), bins=20
        )
        calibrator.fit(t, y, **size)
        calibrator.quick, calibrator.fit_ = calibrator.fit_, known.fit
        return calibrator

    return of


@pytest.mark.slow
def test_auto_chooses_the_prior_as_the_function_does(ads):
    X, y, size = ads[["score"]], ads["count"], ads["exposure"]
    calibrator = clone(soc.SecondOrderCalibrator("auto", bins=20)).fit(X, y, exposure=size)
    fit = soc.fit(calibrator.statistics_, "auto", progress=False)
    assert calibrator.fit_.prior == fit.prior == soc.Gamma()
    assert calibrator.fit_.selection.equals(fit.selection)
    assert fit.selection["elpd"].notna().any()  # the statistics have joint cells


@pytest.mark.parametrize("family", thinned(SINGLE_FAMILIES, ["beta"]))
def test_numbers_are_those_of_the_functions(family, example, fitted):
    known, calibrator = example(family), fitted(family)
    statistics = soc.summarize(known.items, bins=20, joint=False, progress=False)
    assert calibrator.statistics_.data.equals(statistics.data)
    fit = soc.fit(statistics, known.case.prior, calibrator.method, progress=False)
    assert fit.data["posterior"].equals(calibrator.quick.data["posterior"])

    t, y, size = columns_of(known, 50)
    after = soc.item_posteriors(
        known.fit, known.case.items(known.frame.head(50)), quantiles=(0.1, 0.9), progress=False
    )
    np.testing.assert_array_equal(calibrator.predict(t, y, **size), after["theta_mean"])
    np.testing.assert_array_equal(calibrator.predict_std(t, y, **size), after["theta_sd"])
    ends = calibrator.predict_interval(t, y, **size, prob=0.8)
    np.testing.assert_allclose(ends, after[["theta_q10", "theta_q90"]], rtol=1e-6)

    alone = type(known.items)(known.frame.head(50), score="score")
    before = soc.item_posteriors(known.fit, alone, quantiles=(0.1, 0.9), progress=False)
    ends = calibrator.predict_interval(t, prob=0.8)
    np.testing.assert_allclose(ends, before[["theta_q10", "theta_q90"]], rtol=1e-6)
    curves, over = soc.calibration_curves(known.fit, t), ("chain", "draw")
    variance = curves["variance"].mean(over) + curves["mean"].var(over)
    calibrator.set_params(draws="all")
    np.testing.assert_allclose(calibrator.predict(t), curves["mean"].mean(over), rtol=1e-12)
    np.testing.assert_allclose(calibrator.predict_std(t), np.sqrt(variance), rtol=1e-12)


def test_score_is_the_log_density(fitted, ads):
    """By hand: negative binomials, averaged over draws."""
    calibrator, few = fitted("gamma"), ads.head(7)
    t, y, n = few["score"], few["count"], few["exposure"]
    curves = soc.calibration_curves(calibrator.fit_, t.to_numpy())
    shape, rate = (curves[name].to_numpy().reshape(-1, 7) for name in ("shape", "rate"))
    each = np.log(stats.nbinom.pmf(y.to_numpy(), shape, rate / (rate + n.to_numpy())).mean(axis=0))
    assert calibrator.score(t, y, n) == pytest.approx(each.mean(), rel=1e-9)
    weighted = calibrator.score(t, y, n, sample_weight=np.eye(7)[2])
    assert weighted == pytest.approx(each[2], rel=1e-9)


def test_values_need_their_noise(example):
    t, y, size = columns_of(example("normal"))
    calibrator = soc.SecondOrderCalibrator(method=QUICK).fit(t, y, **size)
    with pytest.raises(soc.ItemsError, match="noise_sd="):
        calibrator.predict(t, y)
    with pytest.raises(soc.ItemsError, match="exposure="):
        calibrator.predict(t, y, exposure=size["noise_sd"])
    mixture = soc.SecondOrderCalibrator(soc.NormalMixture(), soc.FiveSteps(), noise_sd=0.6)
    assert mixture.fit(t, y).statistics_.has_joint  # it reads joint cells
    assert np.isfinite(mixture.predict([0.0, 0.5])).all()


def test_noise_sds_that_are_estimates(example):
    """As items with these degrees of freedom, which have one rule; refused for counts."""
    t, y, size = columns_of(example("normal"))
    calibrator = soc.SecondOrderCalibrator(method=soc.VI(draws=100), noise_df=4)
    predicted = calibrator.fit(t, y, **size).predict(t, y, **size)
    frame = pd.DataFrame({"t": t, "y": y, **size})
    items = soc.NormalItems(frame, score="t", value="y", noise_sd="noise_sd", noise_df=4)
    fit = soc.fit(soc.summarize(items, progress=False), method=soc.VI(draws=100), progress=False)
    expected = soc.item_posteriors(fit, items, progress=False)["theta_mean"]
    np.testing.assert_allclose(predicted, expected, rtol=1e-9)
    assert np.isfinite(calibrator.score(t, y, **size))
    with pytest.raises(soc.ItemsError, match="noise_df=4 is not for"):
        calibrator.fit(t, np.ones(len(t)), exposure=1)
    for df in (0.001, 2e9):
        with pytest.raises(soc.ItemsError, match=r"noise_df=.*from 0.01 to 1e9"):
            soc.NormalItems(frame, score="t", value="y", noise_sd="noise_sd", noise_df=df)


def test_one_thing_is_named_in_the_singular(ads):
    t, y, size = ads["score"], ads["count"], ads["exposure"]
    calibrator = soc.SecondOrderCalibrator(method=QUICK, bins=20)
    calibrator.fit(t, y, exposure=size, group=np.arange(len(t)) % 2)
    with pytest.raises(soc.ItemsError, match=r"was given 1 column of groups: give as many"):
        calibrator.predict(t)
    with pytest.raises(soc.ItemsError, match=r"give 1 label, as X has"):
        calibrator.predict(t[:1], group=[0, 1])
    one = soc.PoissonItems(ads.head(1), score="score", count="count", exposure="exposure")
    assert repr(soc.summarize(one)).startswith("<soc_pymc.Statistics: 1 item in 1 bin, ")
    alone = calibrator.fit(t, y, exposure=size)
    assert "check: 1 item, " in repr(soc.check(alone.fit_, one, progress=False))


@pytest.mark.slow
def test_a_term_in_exposure(example):
    """theta that halves from 20 to 2,000 exposures: predictions follow exposure."""
    rng = np.random.default_rng(1)
    ads = example("gamma").frame.head(3000)
    n = rng.choice([20.0, 2000.0], len(ads))
    theta = ads["theta"].to_numpy() * np.where(n > 100, 0.5, 1.0)
    prior = soc.Gamma(exposure=soc.Spline())
    calibrator = soc.SecondOrderCalibrator(prior).fit(ads["score"], rng.poisson(theta * n), n)
    t = [0.05, 0.05]
    low, high = calibrator.predict(t, exposure=[2000.0, 20.0])
    assert 0.4 < low / high < 0.62
    assert low < calibrator.predict(t)[0] < high
    assert calibrator.predict_std(t)[0] > calibrator.predict_std(t, exposure=2000.0)[0]
    with pytest.raises(soc.FitError, match="exposure="):
        calibrator.predict_interval(t)
    ends = calibrator.predict_interval(t, exposure=[2000.0, 20.0])
    assert (ends[0] < ends[1]).all()


def test_labels_are_true_and_false_or_text():
    """Labels of calibrated probabilities: within 0.15, three sd of the curve at its ends."""
    rng = np.random.default_rng(1)
    p = rng.uniform(0.1, 0.9, 600)
    y = rng.random(600) < p
    calibrator = soc.SecondOrderCalibrator(method=QUICK, bins=20).fit(p, y)
    assert isinstance(calibrator.fit_.prior, soc.Beta)
    assert np.abs(calibrator.predict(p) - p).max() < 0.15
    assert -0.69 < calibrator.score(p, y) < 0  # better than a coin
    with pytest.raises(soc.FitError, match="predict_band"):
        calibrator.predict_interval(p)
    low, high = calibrator.predict_band(p).T
    assert ((low < calibrator.predict(p)) & (calibrator.predict(p) < high)).all()
    curves = soc.calibration_curves(calibrator.fit_, p[:3])[["mean"]]
    banded = soc.bands(curves)["mean"].sel(bound=["lower", "upper"])
    np.testing.assert_allclose(calibrator.predict_band(p)[:3].T, banded, atol=2e-3)
    words = np.where(y, "bought", "left")
    with pytest.raises(soc.ItemsError, match="pos_label="):
        calibrator.fit(p, words)
    calibrator.set_params(pos_label="left").fit(p, words)
    assert np.abs(calibrator.predict(p) - (1 - p)).max() < 0.15
    assert calibrator.score(p, words) > -0.69
    with pytest.raises(soc.ItemsError, match="two labels"):
        calibrator.fit(p, np.append(words[:-1], "returned"))


@pytest.mark.parametrize("number", thinned([int, float], [float]))
def test_zeros_and_ones_beside_probabilities_are_labels(number):
    """The same fit as of true and false; counts with an exposure, or beside other scores."""
    rng = np.random.default_rng(2)
    p = rng.uniform(0.05, 0.95, 150)
    y = (rng.random(150) < p).astype(number)
    calibrator = soc.SecondOrderCalibrator(method=QUICK)
    with pytest.warns(soc.ItemsWarning, match="y are labels") as caught:
        predicted = clone(calibrator).fit(p, y).predict(p)
    assert len(caught) == 1
    for labels, label in ((y == 1, None), (y, 1)):
        told = clone(calibrator).set_params(pos_label=label).fit(p, labels)
        np.testing.assert_array_equal(told.predict(p), predicted)
    for scores, exposure in ((p, 1), (3.0 * p, None)):
        counts = clone(calibrator).fit(scores, y, exposure=exposure)
        assert isinstance(counts.fit_.prior, soc.Gamma)


@pytest.mark.slow
def test_clusters_widen_the_fit(example):
    frame = example("gamma").frame.head(600)
    known = frame["score"], frame["count"], frame["exposure"]
    method = soc.VI(draws=50)
    calibrator = soc.SecondOrderCalibrator(method=method, bins=20)
    calibrator.fit(*known, cluster=np.arange(600) // 6)
    assert calibrator.fit_.widened
    with pytest.raises(soc.ItemsError, match=r"cluster has the shape \(2,\)"):
        calibrator.fit(*known, cluster=np.arange(2))


def test_scikit_learns_habits(ads):
    """A column by name after other steps, feature names, clones, pickles, tags and routing."""
    few = ads.head(300)
    X, y, n = few[["exposure", "score"]], few["count"], few["exposure"]
    plain = soc.SecondOrderCalibrator(method=QUICK, bins=10)
    calibrator = clone(clone(plain).set_params(column="score"))
    assert calibrator.__sklearn_tags__().input_tags.two_d_array
    assert not calibrator.__sklearn_tags__().input_tags.one_d_array
    routing = calibrator.get_metadata_routing()
    assert routing.fit.requests["sample_weight"] is routing.score.requests["exposure"] is True
    step = FunctionTransformer(feature_names_out="one-to-one")
    pipe = make_pipeline(step, calibrator).set_output(transform="pandas")
    pipe.fit(
        X, y, secondordercalibrator__exposure=n, secondordercalibrator__sample_weight=n * 0 + 1
    )
    assert calibrator.n_features_in_ == 2
    assert [*calibrator.feature_names_in_] == ["exposure", "score"]
    expected = plain.fit(few["score"], y, n).predict(few["score"])
    np.testing.assert_array_equal(pipe.predict(X), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(pipe)).predict(X), expected)
    by_place = clone(calibrator).set_params(column=-1).fit(X.to_numpy(), y, n)
    np.testing.assert_array_equal(by_place.predict(X.to_numpy()), expected)
    with pytest.raises(ValueError, match="same order"):
        calibrator.predict(X[["score", "exposure"]])
    for column in ("rate", 2, True, None):
        with pytest.raises(soc.ItemsError, match="column="):
            clone(calibrator).set_params(column=column).fit(X, y, n)


@pytest.mark.slow
def test_scikit_learns_own_checks():
    from sklearn.utils import estimator_checks  # slow to import

    calibrator = soc.SecondOrderCalibrator(method=soc.FiveSteps(), noise_sd=1.0, column=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few items, of equal scores
        results = estimator_checks.check_estimator(calibrator, on_fail=None, on_skip=None)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
    assert sum(r["status"] == "passed" for r in results) > 40


@pytest.mark.slow
@sklearn.config_context(enable_metadata_routing=True)
def test_exposures_go_through_pipelines_and_searches(ads):
    """Without exposures they are 1 and scores are far off, so the score shows that they arrive."""
    t, y, n = ads[["score"]].to_numpy(), ads["count"].to_numpy(), ads["exposure"].to_numpy()
    calibrator = soc.SecondOrderCalibrator(method=QUICK, bins=20)
    pipe = make_pipeline(FunctionTransformer(lambda x: np.maximum(x, 1e-3)), calibrator)
    folds = model_selection.KFold(2)
    results = cross_validate(pipe, t, y, cv=folds, params={"exposure": n}, return_estimator=True)
    for (train, test), estimator, score in zip(
        folds.split(t), results["estimator"], results["test_score"], strict=True
    ):
        assert float(estimator[-1].statistics_.data["sum_N"].sum()) == n[train].sum()
        alone = clone(calibrator).fit(np.maximum(t[train], 1e-3), y[train], n[train])
        assert score == pytest.approx(alone.score(t[test], y[test], n[test]))
    predicted = model_selection.cross_val_predict(pipe, t, y, cv=folds, params={"exposure": n})
    assert np.corrcoef(np.log(predicted), np.log(ads["true_mean"]))[0, 1] > 0.97
    search = model_selection.GridSearchCV(calibrator, {"bins": [5, 20]}, cv=folds)
    search.fit(t, y, exposure=n)
    assert float(search.best_estimator_.statistics_.data["sum_N"].sum()) == n.sum()
    pipe.fit(t, y, exposure=n)
    after = pipe[-1].predict(t, y, n)
    np.testing.assert_array_equal(pipe.predict(t, y=y, exposure=n), after)


def test_exposures_are_not_left_out_of_scores(ads):
    """Without exposures all would count as 1."""
    few = ads.head(600)
    t, y, n = few[["score"]].to_numpy(), few["count"].to_numpy(), few["exposure"].to_numpy()
    calibrator = soc.SecondOrderCalibrator(method=QUICK, bins=10).fit(t, y, n)
    with pytest.raises(ValueError, match="enable_metadata_routing=True"):  # without routing
        cross_val_score(calibrator, t, y, cv=2, params={"exposure": n}, error_score="raise")
    counts = soc.SecondOrderCalibrator(method=QUICK, bins=10).fit(t, y)  # of exposure 1
    assert float(counts.statistics_.data["sum_N"].sum()) == len(y)
