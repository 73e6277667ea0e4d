"""Pictures of successes in trials: logit axes, sds, and what lies beyond either end."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.families.scales import LINEAR, LOG, LOGIT
from soc_pymc.plots import canvas
from tests.picture_records import drawn, labels

QUIET = {"progress": False}


def _items(largest):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.95, 3000) * largest
    n = rng.integers(1, 60, 3000)
    hits = rng.binomial(n, rng.beta(15 * p, 15 * (1 - p)))
    table = pd.DataFrame({"p": p, "hits": hits, "bats": n})
    return soc.BinomialItems(table, score="p", successes="hits", trials="bats")


@pytest.fixture(scope="module", params=[1.0, 0.1])
def fitted(request):
    items = _items(request.param)
    stats = soc.summarize(items, bins=40, **QUIET)
    return items, soc.fit(stats, method=soc.FiveSteps(), **QUIET)


def test_curves_are_on_logit_axes_and_the_spread_is_an_sd(fitted):
    top, bottom = drawn(soc.plots.plot_curves(fitted[1]))
    assert top.get_xscale() == top.get_yscale() == bottom.get_xscale() == "logit"
    assert bottom.get_yscale() == "linear"
    assert bottom.get_ylabel() == "sd(theta | score)"
    assert bottom.get_ylim()[0] == 0
    assert len(top.get_yticks()) >= 3


@pytest.mark.parametrize("name", ["plot_prior_ribbon", "plot_adjusted_prior"])
def test_the_prior_is_on_a_logit_axis(fitted, name):
    ax = drawn(getattr(soc.plots, name)(fitted[1]))
    assert ax.get_xscale() == ax.get_yscale() == "logit"
    assert 0 < ax.get_ylim()[0] < ax.get_ylim()[1] < 1


def test_the_smoothed_mean_is_on_a_logit_axis_and_the_variance_on_a_logarithmic_one(fitted):
    mean, variance = drawn(soc.plots.plot_smoothing(fitted[1]))
    assert (mean.get_yscale(), variance.get_yscale()) == ("logit", "log")


def test_items_of_large_rates_are_on_linear_axes(fitted):
    items, fit = fitted
    post = soc.item_posteriors(fit, items, **QUIET)
    roles = {"score": "p", "successes": "hits", "trials": "bats"}
    ax = drawn(soc.plots.plot_shrinkage(post, **roles))
    assert ax.get_xscale() == "linear"  # own rates of 1 are in both tables
    assert "own rate: hits / bats" in ax.get_xlabel()


def test_bins_beyond_either_end_stand_at_its_side():
    p = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 20)
    share = np.repeat([0.0, 0.3, 0.5, 0.7, 1.0], 20)
    table = pd.DataFrame({"p": p, "hits": np.round(share * 10), "bats": 10})
    items = soc.BinomialItems(table, score="p", successes="hits", trials="bats")
    stats = soc.summarize(items, edges=[0.2, 0.4, 0.6, 0.8], on_leakage="ignore", **QUIET)
    ax = drawn(soc.plots.plot_adjusted_prior(soc.fit(stats, method=soc.FiveSteps(), **QUIET)))
    assert {"bins without successes: 1", "bins of successes alone: 1"} <= set(labels(ax))


def test_far_ends():
    assert canvas.far_ends(LINEAR, 1.0, 2.0, 10.0) == (-np.inf, np.inf)
    assert canvas.far_ends(LOG, 1.0, 2.0, 10.0) == pytest.approx((0.1, np.inf))
    low, high = canvas.far_ends(LOGIT, 0.5, 0.5, 9.0)
    assert (low, high) == pytest.approx((0.1, 0.9))
