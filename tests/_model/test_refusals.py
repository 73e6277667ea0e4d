"""Fits that cannot be made: the error names the argument that is at fault."""

import numpy as np
import pytest

import soc_pymc as soc
from tests.examples import QUIET

EXPOSURE = soc.Spline()


@pytest.fixture(scope="module")
def statistics(example):
    """Statistics by what they have beyond bins."""
    items, frame = example("gamma").items, example("gamma").frame
    logs = frame.assign(score=np.log(frame["score"]))
    values = example("normal").items
    return {
        "bins": soc.summarize(items, bins=5, joint=False, **QUIET),
        "joint": soc.summarize(items, bins=5, joint=True, **QUIET),
        "groups": soc.summarize(example("groups").items, bins=5, joint=True, **QUIET),
        "values": soc.summarize(values, bins=5, joint=True, **QUIET),
        "negative scores": soc.summarize(example("gamma").case.items(logs), bins=5, **QUIET),
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
        ("negative scores", soc.Gamma(), None, 'scale="rank"'),
        ("joint", soc.GammaMixture(), soc.VI(batch=2), "batch"),
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
def test_what_a_fit_cannot_use_is_named(name, prior, method, word, statistics):
    with pytest.raises(soc.FitError, match=word):
        soc.fit(statistics[name], prior, method, **QUIET)


def test_five_steps_and_models_take_no_start(small_statistics, small_fit):
    with pytest.raises(soc.FitError, match="start="):
        soc.fit(small_statistics, method=soc.FiveSteps(), start=small_fit, **QUIET)
    with pytest.raises(soc.FitError, match="start="):
        soc.fit(small_statistics, model=soc.model(small_statistics), start=small_fit, **QUIET)


@pytest.mark.slow
def test_curves_need_the_terms_of_the_fit(small_fit, example):
    exposed = example("exposure").fit
    with pytest.raises(soc.FitError, match="group"):
        soc.calibration_curves(exposed, [0.05], group="a", exposure=1.0)
    with pytest.raises(soc.FitError, match="exposure"):
        soc.calibration_curves(small_fit, [0.05], exposure=1.0)
