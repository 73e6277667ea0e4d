"""Every picture can be drawn, in a figure of its own or in given axes, whatever names say."""

import dataclasses
import functools
import inspect
import warnings

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from sklearn.linear_model import LogisticRegression

import soc_pymc as soc
from soc_pymc import plots
from soc_pymc.plots import CalibrationDisplay, plot_calibration
from tests.examples import ROLES, SINGLE_FAMILIES
from tests.thinning import thinned

HOSTILE = r"_ $x^{ per $ \frac _"


class Material:
    """Items whose columns have hostile names, their statistics and fits, and what is drawn."""

    def __init__(self, example):
        roles = ROLES[type(example.items)]
        self.columns = {role: f"{HOSTILE}{role}" for role in roles}
        frame = example.frame.rename(columns=self.columns)
        self.items = type(example.items)(frame, **self.columns)
        self.stats = soc.summarize(self.items, bins=20, progress=False)
        self.five_steps = soc.fit(self.stats, example.case.prior, soc.FiveSteps(), progress=False)
        # the example's fit, as if it had been made from these columns
        data = example.fit.data.copy()
        data.attrs["roles"] = self.five_steps.data.attrs["roles"]
        self.fit = dataclasses.replace(example.fit, data=data)

    @functools.cached_property
    def check(self):
        return soc.check(self.fit, self.items, subset=100, progress=False)

    @functools.cached_property
    def posteriors(self):
        return soc.item_posteriors(self.fit, self.items, progress=False)

    @functools.cached_property
    def prior_draws(self):
        return soc.prior_predictive(self.fit.prior, self.stats, draws=30, items=100)


@pytest.fixture(scope="module")
def material(example):
    """Returns the material of a family, made once."""
    return functools.cache(lambda family: Material(example(family)))


PICTURES = {
    "plot_curves": lambda m: ((m.fit,), {}),
    "plot_prior": lambda m: ((m.fit,), {}),
    "plot_pit": lambda m: ((m.check,), {}),
    "plot_shrinkage": lambda m: ((m.posteriors,), m.columns),
    "plot_prior_predictive": lambda m: ((m.prior_draws,), {}),
}
CASES = [(name, family) for name in PICTURES for family in SINGLE_FAMILIES]
ELSEWHERE = {"plot_intervals", "plot_calibration", "CalibrationDisplay"}


def draw(name, *arguments, given=False, **options):
    """Draws a picture, in given axes or in its own figure, and returns the words in it."""
    picture = getattr(plots, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # of other libraries
        if given:
            places, role = places_of(picture, arguments, options)
            options |= {role: places}
        axes = list(np.ravel(picture(*arguments, **options)))
        assert all(isinstance(ax, Axes) for ax in axes)
        assert not given or axes == list(np.ravel(places))
        axes[0].figure.draw_without_rendering()  # raises where text cannot be laid out
    texts = axes[0].figure.findobj(mpl.text.Text)
    words = [text.get_text() for text in texts if r"\mathdefault" not in text.get_text()]
    assert any(words)
    for word in words:
        assert word.count("$") == word.count(r"\$")  # else it is read as mathematics
    return words


def places_of(picture, arguments, options):
    """Returns new axes for a picture, and the argument that takes them; refuses too many."""
    if "ax" in inspect.signature(picture).parameters:
        return plt.subplots()[1], "ax"
    with pytest.raises(soc.FitError, match="axes"):
        picture(*arguments, **options, axes=plt.subplots(1, 7)[1])
    return plt.subplots(1, 2, figsize=(12, 5))[1], "axes"


def test_every_picture_is_tested():
    assert {*PICTURES, *ELSEWHERE} == set(plots.__all__)


@pytest.mark.parametrize(("name", "family"), thinned(CASES, lambda case: case[1] == "gamma"))
def test_pictures_of_fits(name, family, material):
    arguments, options = PICTURES[name](material(family))
    draw(name, *arguments, **options, given=family != "gamma")


def test_intervals_of_hostile_names():
    names = [f"{HOSTILE}{k}" for k in range(3)]
    table = pd.DataFrame({"what": names, "where": names, "value": [0.1, 1.0, 3.0]})
    words = draw("plot_intervals", table)
    assert any(HOSTILE in word.replace(r"\$", "$") for word in words)


SELDOM = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("exposure", "gamma_mixture", "zeros")
]


@pytest.mark.parametrize("case", ["groups", *SELDOM])
def test_other_fits(case, example):
    """Mixtures, groups, terms in exposure and spikes at zero."""
    fit = example(case).fit
    options = {"exposure": 5.0} if fit.prior.exposure is not None else {}
    draw("plot_curves", fit)
    draw("plot_prior", fit, **options)
    if options:
        with pytest.raises(soc.FitError, match="exposure="):
            plots.plot_prior(fit)


def test_a_single_bin(example):
    stats = soc.summarize(example("gamma").items, edges=[], progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    for name in ("plot_curves", "plot_prior"):
        draw(name, fit)


def test_a_score_that_is_too_high_is_seen():
    """The truth, the score's square, is within 90% bands at 9 of 10 scores or more."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 4000)
    display = plot_calibration(rng.random(4000) < p**2, p, name="_ $x^{ forest")
    truth = display.score**2
    middle = (display.score > 0.3) & (display.score < 0.8)
    assert (display.upper[middle] < display.score[middle]).all()
    assert ((display.lower < truth) & (truth < display.upper)).mean() > 0.9
    assert ((display.lower < display.mean) & (display.mean < display.upper)).all()
    display.figure_.draw_without_rendering()
    np.testing.assert_array_equal(display.line_.get_ydata(), display.mean)
    assert len(repr(display)) < 100
    axes = plt.subplots()[1]
    assert display.plot(axes) is display
    assert display.ax_ is axes


def test_observed_points_are_those_of_bins():
    """Exact 0 and 1 are points of their own; intervals hold the share of each bin."""
    rng = np.random.default_rng(3)
    p = np.clip(rng.uniform(-0.1, 1.1, 3000), 0, 1)
    y = np.where(rng.random(3000) < p, "yes", "no")
    display = plot_calibration(y, p, n_bins=5, pos_label="yes")
    bins, positive = display.bins, y == "yes"
    assert bins["p"].iloc[[0, -1]].tolist() == [0.0, 1.0]
    assert bins["n"].iloc[[0, -1]].tolist() == [(p == 0).sum(), (p == 1).sum()]
    inner = np.array_split(np.sort(p[(p > 0) & (p < 1)]), 5)
    assert np.abs(bins["n"].to_numpy()[1:-1] - [len(part) for part in inner]).max() <= 1
    assert (bins["n"] * bins["share"]).sum() == pytest.approx(positive.sum())
    assert ((bins["low"] <= bins["share"]) & (bins["share"] <= bins["high"])).all()
    assert bins["share"].iloc[[0, -1]].tolist() == [0.0, 1.0]
    # nothing runs upright along the ends of the axis
    assert display.score[0] > 0.005
    assert display.score[-1] < 0.995


@pytest.mark.slow
def test_a_calibrated_estimator_stays_within_the_band():
    """A band that holds the whole curve with probability 0.99, at a fixed seed."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 2))
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-x[:, 0])), "yes", "no")
    p = LogisticRegression().fit(x[:1500], y[:1500]).predict_proba(x[1500:])[:, 1]
    display = CalibrationDisplay.from_predictions(y[1500:], p, pos_label="yes", prob=0.99)
    assert display.bins["n"].sum() == 1500
    assert ((display.lower < display.score) & (display.score < display.upper)).all()


@pytest.mark.parametrize(
    ("y", "p", "text"),
    [
        ([0, 2], [0.2, 0.3], "neither 0 nor 1"),
        ([0, 1], [-0.1, 0.3], "1 of 2 probabilities p"),
        ([0, 1], [0.0, 1.0], "exactly 0 or 1"),
        ([0, 1, 1], [0.2, 0.3], "one length"),
        (["a", "b"], [0.2, 0.3], "pos_label"),
    ],
)
def test_bad_labels_and_probabilities_are_refused(y, p, text):
    with pytest.raises(soc.ItemsError, match=text):
        plot_calibration(y, p)
