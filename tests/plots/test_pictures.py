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

import soc_pymc as soc
from soc_pymc import plots
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
