"""Fits with a model to which a user has added terms, and those that are refused."""

import numpy as np
import pymc as pm
import pytest

import soc_pymc as soc
from tests.examples import QUIET, SMALL_MIXTURE

OVER = ("chain", "draw")


def audited(stats):
    """The model with an audit at the middle bin, of unknown bias, and unrelated parameters."""
    with soc.model(stats) as model:
        bias = pm.Normal("audit_bias", 0.0, 0.1)
        middle = model["bin_log_mean"][stats.bins // 2]
        pm.Normal("audit", middle + bias, 0.05, observed=np.log(0.1))
        far = pm.Normal("far", 1000.0, 100.0, shape=(2, 2))
        pm.Normal("far_seen", far, 1.0, observed=np.full((2, 2), 1200.0))
        pm.Potential("smooth_end", -0.5 * ((model["log_cv2"][0] - model["log_cv2"][1]) / 0.1) ** 2)
    return model


@pytest.fixture(scope="module")
def audited_fit(small_statistics):
    return soc.fit(small_statistics, model=audited(small_statistics), progress=False)


@pytest.mark.slow
def test_added_terms_count(audited_fit, small_statistics, small_fit):
    """Independent parameters have their closed-form posterior; audit and curve meet in between."""
    assert audited_fit.status.converged
    posterior = audited_fit.data["posterior"]
    assert posterior["far"].dims == (*OVER, "far_dim_0", "far_dim_1")
    precision = 1 + 1 / 100**2
    np.testing.assert_allclose(posterior["far"].mean(OVER), 1200 - 200e-4 / precision, atol=0.2)
    np.testing.assert_allclose(posterior["far"].std(OVER), precision**-0.5, rtol=0.12)
    # to first order the audit's surprise is divided by variances: of curve, bias and audit
    middle = small_statistics.bins // 2
    score = audited_fit.data["constant_data"]["score"].to_numpy()[[middle]]
    before, after = (soc.calibration_curves(f, score)["log_mean"] for f in (small_fit, audited_fit))
    variances = np.array([float(before.var()), 0.1**2, 0.05**2])
    surprise = np.log(0.1) - float(before.mean())
    shift = surprise * variances / variances.sum()
    assert float(after.mean() - before.mean()) == pytest.approx(
        shift[0], abs=0.3 * float(before.std())
    )
    assert float(posterior["audit_bias"].mean()) == pytest.approx(shift[1], abs=0.02)
    first, second = (audited_fit.data["posterior"]["log_cv2"].isel(variance_knot=k) for k in (0, 1))
    assert float((first - second).std()) < 0.11


@pytest.mark.slow
def test_minibatches_take_added_terms(audited_fit, small_statistics):
    """Within 0.3 posterior sd, which covers the error of 1,000 draws and of minibatches."""
    model = audited(small_statistics)
    initial = dict(model.rvs_to_initial_values)
    other = soc.fit(small_statistics, model=model, method=soc.VI(batch=5), progress=False)
    assert model.rvs_to_initial_values == initial
    a, b = (f.data["posterior"]["audit_bias"] for f in (audited_fit, other))
    assert abs(float(a.mean() - b.mean())) < 0.3 * float(a.std())


def test_a_model_that_is_not_an_extension(small_frame, small_statistics):
    with pytest.raises(soc.FitError, match="count, log_cv2_line"):
        soc.fit(small_statistics, model=pm.Model())
    more = soc.PoissonItems(
        small_frame.assign(count=small_frame["count"] + 1),
        score="score",
        count="count",
        exposure="exposure",
    )
    others = soc.summarize(more, edges=small_statistics.edges, on_leakage="ignore", progress=False)
    with pytest.raises(soc.FitError, match="model="):
        soc.fit(others, model=soc.model(small_statistics))
    with soc.model(small_statistics) as model:
        pm.Poisson("number", 3.0)
    with pytest.raises(soc.FitError, match="number"):
        soc.fit(small_statistics, model=model)


# --- refusals: the error names the argument that is at fault
EXPOSURE = soc.Spline()


@pytest.fixture(scope="module")
def by_content(example):
    """Statistics by what they have beyond bins."""
    items, frame = example("gamma").items, example("gamma").frame
    negative = frame.assign(score=frame["score"] - frame["score"].quantile(0.1))
    values = example("normal").items
    return {
        "bins": soc.summarize(items, bins=5, joint=False, **QUIET),
        "joint": soc.summarize(items, bins=5, joint=True, **QUIET),
        "groups": soc.summarize(example("groups").items, bins=5, joint=True, **QUIET),
        "values": soc.summarize(values, bins=5, joint=True, **QUIET),
        "few negative scores": soc.summarize(
            example("gamma").case.items(negative), bins=5, **QUIET
        ),
    }


@pytest.mark.parametrize(
    ("name", "prior", "method", "word"),
    [
        ("bins", soc.Gamma(exposure=EXPOSURE), None, "joint=True"),
        ("bins", soc.GammaMixture(), None, "joint=True"),
        ("bins", soc.Gamma(zero=True), None, "joint=True"),
        ("bins", soc.Normal(), None, "Gamma"),
        ("joint", soc.NormalMixture(), None, "GammaMixture"),
        ("values", soc.Beta(), None, "Normal"),
        ("few negative scores", soc.Gamma(), None, 'scale="rank"'),
        ("joint", soc.GammaMixture(**SMALL_MIXTURE), soc.VI(batch=2), "batch"),
        ("bins", soc.Gamma(mean=soc.Spline(knots=5)), soc.FiveSteps(), "knots"),
        ("bins", soc.Gamma(variance=soc.Spline(wiggle=0.1)), soc.FiveSteps(), "wiggle"),
        ("joint", soc.Gamma(exposure=EXPOSURE), soc.FiveSteps(), "exposure"),
        ("bins", soc.Gamma(bin_effects=True), soc.FiveSteps(), "bin_effects"),
        ("bins", soc.GammaMixture(), soc.FiveSteps(), "joint"),
        ("joint", soc.GammaMixture(drift=1.0), soc.FiveSteps(), "drift"),
        ("groups", soc.Gamma(), soc.FiveSteps(), "groups=False"),
        ("values", soc.Normal(), soc.FiveSteps(moments="log"), "moments"),
        ("joint", soc.GammaMixture(monotone=True), soc.FiveSteps(moments="log"), "monotone"),
    ],
)
def test_what_a_fit_cannot_use_is_named(name, prior, method, word, by_content):
    with pytest.raises(soc.FitError, match=word):
        soc.fit(by_content[name], prior, method, **QUIET)


def test_five_steps_take_no_model(small_statistics):
    model = soc.model(small_statistics)
    with pytest.raises(soc.FitError, match="model="):
        soc.fit(small_statistics, method=soc.FiveSteps(), model=model, **QUIET)


@pytest.mark.slow
def test_curves_need_the_terms_of_the_fit(small_fit, example):
    exposed = example("exposure").fit
    with pytest.raises(soc.FitError, match="group"):
        soc.calibration_curves(exposed, [0.05], group="a", exposure=1.0)
    with pytest.raises(soc.FitError, match="exposure"):
        soc.calibration_curves(small_fit, [0.05], exposure=1.0)
