"""Every picture can be drawn, in a figure of its own or in given axes, whatever names say."""

import dataclasses
import functools
import inspect
import warnings

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes

import soc_pymc as soc
from soc_pymc import plots
from tests.examples import ROLES, SINGLE_FAMILIES
from tests.plots import records
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


OF_FITS = {
    "plot_curves": lambda m: ((m.fit,), {}),
    "plot_calibration_illustration": lambda m: ((m.fit,), {}),
    "plot_prior_ribbon": lambda m: ((m.fit,), {}),
    "plot_adjusted_prior": lambda m: ((m.fit,), {}),
    "plot_prior_in_bin": lambda m: ((m.fit, m.items), {}),
    "plot_smoothing": lambda m: ((m.fit,), {"per_bin": m.five_steps}),
    "plot_bin_spread": lambda m: ((m.stats,), {}),
    "plot_pit": lambda m: ((m.check,), {}),
    "plot_rootogram": lambda m: ((m.check,), {}),
    "plot_shrinkage": lambda m: ((m.posteriors,), m.columns),
    "plot_forest": lambda m: ((m.posteriors,), m.columns),
    "plot_prior_predictive": lambda m: ((m.prior_draws,), {}),
}
GAMMA_ALONE = (  # pictures that are drawn alike for every family
    "plot_calibration_illustration",
    "plot_adjusted_prior",
    "plot_smoothing",
    "plot_bin_spread",
    "plot_rootogram",
)
CASES = [
    (name, family)
    for name in OF_FITS
    for family in SINGLE_FAMILIES
    if family == "gamma" or name not in GAMMA_ALONE
]
OF_RECORDS = {
    "plot_accuracy": lambda name: records.accuracy_table(name, f"{name} 2"),
    "plot_regret": lambda name: records.accuracy_table(name, f"{name} 2"),
    "plot_error_ratio": lambda name: records.accuracy_table(name, f"{name} 2"),
    "plot_bin_choice": lambda _: records.bin_table(),
    "plot_pit_histograms": lambda name: {name: records.histograms()},
    "plot_r_squared": lambda name: {name: records.share_draws(0.5), "b": records.share_draws(0.6)},
    "plot_score_comparison": records.compared_scores,
    "plot_gain_by_bin": records.held_table,
    "plot_variance_gain": lambda name: {name: records.reduction(5), "b": records.reduction(1)},
    "plot_group_effects": records.group_effects,
}
NUMBER_OF_AXES = {"plot_accuracy": 4, "plot_regret": 4, "plot_error_ratio": 4, "plot_bin_choice": 4}
ELSEWHERE = {"plot_drift", "plot_sensitivity", "plot_calibration", "CalibrationDisplay"}


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
    number = NUMBER_OF_AXES.get(picture.__name__, 2)
    return plt.subplots(1, number, figsize=(12, 5))[1], "axes"


def test_every_picture_is_tested():
    assert {*OF_FITS, *OF_RECORDS, *ELSEWHERE} == set(plots.__all__)


@pytest.mark.parametrize(("name", "family"), thinned(CASES, lambda case: case[1] == "gamma"))
def test_pictures_of_fits(name, family, material):
    arguments, options = OF_FITS[name](material(family))
    draw(name, *arguments, **options, given=family != "gamma")


@pytest.mark.parametrize("name", OF_RECORDS)
def test_pictures_of_records(name):
    words = draw(name, OF_RECORDS[name](HOSTILE), given=True)
    if name != "plot_bin_choice":
        assert any(HOSTILE in word.replace(r"\$", "$") for word in words)


@pytest.mark.slow
def test_pictures_of_drift_and_of_sensitivity(example):
    gamma = example("gamma")
    draw("plot_drift", records.drift_of_counts(gamma.frame, gamma.case.items))
    draw("plot_sensitivity", soc.sensitivity(gamma.fit, gamma.statistics, progress=False))


SELDOM = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("exposure", "gamma_mixture", "zeros")
]


@pytest.mark.parametrize("case", ["by bin", "groups", *SELDOM])
def test_other_fits(case, example):
    """Curves that are steps, mixtures, groups, terms in exposure and spikes at zero."""
    if case == "by bin":
        fit = soc.fit(
            example("gamma").statistics, method=soc.FiveSteps(smooth=False), progress=False
        )
    else:
        fit = example(case).fit
    options = {"exposure": 5.0} if fit.prior.exposure is not None else {}
    draw("plot_curves", fit)
    draw("plot_prior_ribbon", fit, **options)
    if options:
        with pytest.raises(soc.FitError, match="exposure="):
            plots.plot_prior_ribbon(fit)


def test_a_single_bin(example):
    stats = soc.summarize(example("gamma").items, edges=[], progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    for name in ("plot_curves", "plot_prior_ribbon", "plot_adjusted_prior"):
        draw(name, fit)
