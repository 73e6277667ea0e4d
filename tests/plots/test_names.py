"""Words in pictures: the user's own names of columns, as text; numbers of items; sizes to read."""

import functools

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc import plots
from tests.picture_records import (
    accuracy_table,
    bin_table,
    drawn,
    held_table,
    histograms,
    labels,
    reduction,
)
from tests.picture_records import counts as plain_counts

HOSTILE = r"cost $x^{ per $ \frac _"
WIDEST = 8.0  # inches in a notebook


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


@functools.cache
def case(kind, name):
    """Items with columns named after this, their statistics and a fit by five steps."""
    names = {role: f"{name}{role}" for role in ("score", *KINDS[kind])}
    if kind == "counts":
        frame, make = soc.simulation.s1(3000, seed=0), soc.PoissonItems
    else:
        frame, make = soc.simulation.laplace_effects(3000, seed=0), soc.NormalItems
    items = make(frame.rename(columns=names), **names)
    stats = soc.summarize(items, bins=20, progress=False)
    return items, stats, soc.fit(stats, method=soc.FiveSteps(), progress=False)


KINDS = {"counts": ("count", "exposure"), "values": ("value", "noise_sd")}


def pictures_of(items, stats, fit):
    """Every picture of a fit and of its items."""
    yield plots.plot_curves(fit)
    yield plots.plot_calibration_illustration(fit)
    yield plots.plot_prior_ribbon(fit)
    yield plots.plot_adjusted_prior(fit)
    yield plots.plot_prior_in_bin(fit, items)
    yield plots.plot_smoothing(fit)
    yield plots.plot_bin_spread(stats)


def words_of(axes):
    """All words in the figure of some axes."""
    figure = np.ravel(axes)[0].figure
    for text in figure.findobj(mpl.text.Text):
        yield text.get_text()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_names_of_columns_are_never_mathematics(kind):
    for axes in pictures_of(*case(kind, HOSTILE)):
        drawn(axes)  # raises where mathematics cannot be read
        words = list(words_of(axes))
        assert any("per \\$" in word for word in words)
        for word in words:
            assert word.count("$") == word.count(r"\$")


def test_pictures_speak_of_the_columns():
    items, stats, fit = case("counts", "my ")
    top, bottom = plots.plot_curves(fit)
    assert top.get_ylabel() == "E(theta | score)\nmy count per unit of my exposure"
    assert bottom.get_xlabel() == "score (my score)"
    assert any(text.startswith("items: my count / my exposure") for text in labels(top))
    title = top.get_title(loc="left")
    assert f"n = 3,000 items in {stats.bins} bins" in title
    events, exposure = (int(items.source[f"my {c}"].sum()) for c in ("count", "exposure"))
    assert f"{events:,} my count, {exposure:,} my exposure" in title
    ax = plots.plot_adjusted_prior(fit)
    assert ax.get_xlabel() == "score t (my score)"
    assert "theta, my count per unit of my exposure" in ax.get_ylabel()
    assert "bins: my count / my exposure" in labels(ax)
    assert plots.plot_bin_spread(fit).get_xlabel() == "score t (my score)"
    _, _, fit = case("values", "my ")
    top, _ = plots.plot_curves(fit)
    assert top.get_ylabel() == "E(theta | score)\nin the unit of the values (my value)"


def test_roles_that_are_names_are_said_once():
    _, _, _, fits = plain_counts()
    axes = plots.plot_curves(fits["five steps"])
    assert axes[0].get_ylabel() == "E(theta | score)\nevents per unit of exposure"
    assert axes[1].get_xlabel() == "score"


@pytest.mark.slow
def test_names_of_methods_and_slices_are_text():
    for name in (HOSTILE, "_hidden"):
        other = f"{name} 2"
        axes = drawn(plots.plot_regret(accuracy_table(methods=(name, other))))
        legend = axes[0, 0].figure.legends[0]
        shown = [text.get_text().replace(r"\$", "$") for text in legend.get_texts()]
        assert sum(name in text for text in shown) == 4
        drawn(plots.plot_error_ratio(accuracy_table(grid=False, methods=(name, other))))
        drawn(plots.plot_accuracy(accuracy_table(grid=False, methods=(name, other))))
        ax = drawn(plots.plot_variance_gain({name: reduction(5), other: reduction(1)}))
        assert len(labels(ax)) == 2
        drawn(plots.plot_pit_histograms({name: histograms(), other: histograms()}))
        held = held_table()
        held["estimator"] = held["estimator"].replace({"E(theta | t)": f"{name}: E(theta | t)"})
        ax = drawn(plots.plot_gain_by_bin(held))
        assert sum(name in text.replace(r"\$", "$") for text in labels(ax)) == 1


def test_slices_of_a_check_are_text():
    items, _, fit = case("counts", "my ")
    frame = items.source.assign(**{"a $ b": np.where(np.arange(3000) % 2, "$x^{$", "_")})
    named = soc.PoissonItems(frame, **items.roles)
    result = soc.check(fit, named, by="a $ b", subset=50, progress=False)
    axes = drawn(plots.plot_pit(result))
    assert any(r"a \$ b = \$x^{\$" in ax.get_title() for ax in axes)


def test_scores_of_values_are_never_on_a_logarithmic_axis():
    frame = soc.simulation.laplace_effects(3000, seed=0)
    frame["score"] = np.exp(frame["score"])  # positive, over more than an octave
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    stats = soc.summarize(items, bins=20, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    for axes in pictures_of(items, stats, fit):
        for ax in np.ravel(axes):
            assert ax.get_xscale() == "linear"
    for source in (stats, fit):
        assert plots.plot_bin_spread(source).get_xscale() == "linear"
    table = accuracy_table(grid=False).assign(mse_y=2.0)
    table["score"] = np.exp(table["score"])
    assert plots.plot_accuracy(table)[0, 0].get_xscale() == "linear"


@pytest.mark.slow
def test_pictures_fit_a_notebook():
    items, stats, fit = case("counts", "my ")
    made = [*pictures_of(items, stats, fit), plots.plot_bin_choice(bin_table())]
    made.append(plots.plot_regret(accuracy_table()))
    made.append(plots.plot_pit_histograms({f"fit {k}": histograms() for k in range(4)}))
    made.append(plots.plot_pit(soc.check(fit, items, subset=50, progress=False)))
    for axes in made:
        figure = np.ravel(axes)[0].figure
        assert figure.get_figwidth() <= WIDEST
        figure.draw_without_rendering()
        for text in figure.findobj(mpl.text.Text):
            assert not text.get_text() or text.get_fontsize() >= 7


@pytest.mark.slow
def test_fits_of_other_kinds_can_be_drawn():
    items, stats, _ = case("counts", "my ")
    joint = soc.summarize(items, joint=True, bins=20, progress=False)
    for made_of, prior, method in (
        (stats, soc.Gamma(), soc.FiveSteps(smooth=False)),
        (joint, soc.GammaMixture(), soc.FiveSteps()),
    ):
        fit = soc.fit(made_of, prior, method, progress=False)
        drawn(plots.plot_curves(fit))
        drawn(plots.plot_prior_ribbon(fit))
        drawn(plots.plot_adjusted_prior(fit))
        drawn(plots.plot_calibration_illustration(fit))
        drawn(plots.plot_prior_in_bin(fit, items))
    frame = items.source.assign(land=np.where(np.arange(3000) % 3, "$a$", "_b"))
    grouped = soc.PoissonItems(frame, **items.roles, group="land")
    fit = soc.fit(soc.summarize(grouped, progress=False), method=soc.VI(draws=50), progress=False)
    title = drawn(plots.plot_curves(fit))[0].get_title(loc="left")
    assert "n = 3,000 items" in title
    assert "2 groups" in title
    drawn(plots.plot_prior_ribbon(fit))
