"""The picture of a prior."""

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import soc_pymc as soc
from tests.picture_records import counts, drawn, line, values


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_lines_are_draws_and_the_median_is_theirs():
    _, _, stats, _ = counts()
    found = soc.prior_predictive(soc.Gamma(), stats, draws=30, items=200)
    left, right = drawn(soc.plots.plot_prior_predictive(found, lines=10))
    mean = found["prior"]["mean"].to_numpy()[0]
    thin = [x for x in left.lines if x.get_linewidth() < 1]
    assert len(thin) == 10
    np.testing.assert_array_equal(thin[1].get_ydata(), mean[3])
    np.testing.assert_array_equal(line(left, "median").get_ydata(), np.median(mean, axis=0))
    assert left.get_yscale() == "log"
    count = found["prior_predictive"]["count"].to_numpy()[0]
    own = [x for x in right.lines if x.get_linewidth() < 1][1]
    np.testing.assert_array_equal(own.get_xdata()[[0, -1]], [count[3].min(), count[3].max()])
    assert "200 items" in right.get_title("left")


def test_values_have_straight_axes_and_given_axes_are_used():
    _, _, stats, _ = values()
    _, axes = plt.subplots(1, 2)
    found = soc.prior_predictive(soc.Normal(), stats, draws=5)
    both = drawn(soc.plots.plot_prior_predictive(found, axes=axes))
    assert list(both) == list(axes)
    assert [ax.get_xscale() for ax in both] == ["linear", "linear"]


def test_other_results_are_refused():
    _, _, _, fits = counts()
    with pytest.raises(soc.FitError, match=r"soc\.prior_predictive\(prior, stats\)"):
        soc.plots.plot_prior_predictive(fits["VI"].data)
    with pytest.raises(soc.FitError, match="result must be"):
        soc.plots.plot_prior_predictive(fits["VI"])
