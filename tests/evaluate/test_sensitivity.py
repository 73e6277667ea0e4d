"""Power-scaling: held to closed forms, to refits under the scaled prior, and to ArviZ."""

from dataclasses import replace

import arviz_stats
import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy import stats as distributions

import soc_pymc as soc
from soc_pymc.evaluate import power_scaling
from soc_pymc.inference import draw_densities
from soc_pymc.model.problem import build, extended

mpl.use("agg")

import matplotlib.pyplot as plt

QUIET = {"progress": False}
COUNTS = {"score": "score", "count": "count", "exposure": "exposure"}


def statistics(n=2000, seed=0, **options):
    items = soc.PoissonItems(soc.simulation.s1(n, seed=seed), **COUNTS)
    return soc.summarize(items, bins=50, **options, **QUIET)


@pytest.fixture(scope="module")
def stats():
    return statistics(joint=True)


def informative(power):
    """A prior that disagrees with the data a little, raised to a power."""
    by = np.sqrt(power)
    return soc.Gamma(
        mean=soc.Spline(knots=8, level=(-2, 0.1 / by), slope=(0.5, 0.1 / by), wiggle=0.1 / by),
        variance=soc.Spline(knots=8, level=(0, 0.5 / by), slope=(0, 0.3 / by), wiggle=0.2 / by),
    )


@pytest.fixture(scope="module")
def fits(stats):
    method = soc.VI(draws=4000)
    return {a: soc.fit(stats, informative(a), method, **QUIET) for a in (0.8, 1.0, 1.25)}


# --- right numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("component", ["prior", "likelihood"])
@pytest.mark.parametrize("alpha", [0.8, 1.25])
def test_weights_give_the_scaled_posterior_in_closed_form(component, alpha):
    """theta ~ Normal(1, 0.5^2), one value 0 with sd 0.5: a density to a power divides its sd^2."""
    theta = np.random.default_rng(0).normal(0.5, np.sqrt(0.125), (1, 40_000))
    densities = {
        "prior": distributions.norm.logpdf(theta, 1, 0.5),
        "likelihood": distributions.norm.logpdf(0, theta, 0.5),
    }
    weight, k = power_scaling.scaled_weights(densities[component], alpha)
    precision = {"prior": 4.0, "likelihood": 4.0}
    precision[component] *= alpha
    total = sum(precision.values())
    mean = (weight * theta).sum()
    assert k < 0.5
    assert mean == pytest.approx(precision["prior"] / total, abs=0.01)
    assert (weight * (theta - mean) ** 2).sum() == pytest.approx(1 / total, rel=0.03)


def shifts(fits, densities, alpha):
    """Shifts of posterior means in sds: of a refit under the scaled prior, and by reweighting."""
    base, refit = (soc.calibration_curves(fits[a], [0.014, 0.05, 0.18]) for a in (1.0, alpha))
    weight, _ = power_scaling.scaled_weights(densities, alpha)
    found = []
    for name in ("mean", "log_variance"):
        old, new = base[name].to_numpy(), refit[name].to_numpy()
        mean, sd = old.mean((0, 1)), old.std((0, 1))
        reweighted = (weight[:, :, None] * old).sum((0, 1))
        found.append(((new.mean((0, 1)) - mean) / sd, (reweighted - mean) / sd))
    return np.hstack(found)


@pytest.mark.parametrize("alpha", [0.8, 1.25])
def test_reweighting_agrees_with_a_refit_under_the_scaled_prior(fits, stats, alpha):
    """And would not if prior and likelihood were exchanged."""
    prior, likelihood = draw_densities.draw_densities(fits[1.0], stats, None)
    truth, found = shifts(fits, prior, alpha)
    assert np.abs(truth).max() > 0.4
    assert np.abs(found - truth).max() < 0.15
    _, exchanged = shifts(fits, likelihood, alpha)
    assert np.abs(exchanged - truth).max() > 0.5


def test_prior_density_is_that_of_the_documented_priors(fits, stats):
    prior, likelihood = draw_densities.draw_densities(fits[1.0], stats, None)
    draws = fits[1.0].data["posterior"]
    spread = {"log_mean": (0.1, -2, 0.1, 0.5, 0.1), "log_cv2": (0.2, 0, 0.5, 0, 0.3)}
    expected = 0.0
    for name, (scale, *line) in spread.items():
        expected = expected + distributions.halfnorm.logpdf(draws[f"{name}_wiggle_sd"], 0, scale)
        own = distributions.norm.logpdf(draws[f"{name}_line"], line[::2], line[1::2])
        expected = expected + own.sum(axis=-1)
    np.testing.assert_allclose(prior, expected, rtol=1e-8)
    # the likelihood from the curves at the bins' centres, without the model's graph
    built = build(stats, fits[1.0].prior)
    curves = soc.calibration_curves(fits[1.0], built.score)
    m = curves["log_mean"].to_numpy()[0, :20]
    c = -np.log(curves["shape"].to_numpy()[0, :20])
    by_bin = built.data.value_and_gradient(m, c, np.arange(len(built.score)))[0]
    np.testing.assert_allclose(likelihood[0, :20], by_bin.sum(axis=-1), rtol=1e-8)


def test_table_is_that_of_arviz(fits, stats):
    found = soc.sensitivity(fits[1.0], stats, **QUIET)
    table = arviz_stats.psense_summary(found.data, round_to=10)
    for name in power_scaling.COMPONENTS:
        np.testing.assert_allclose(found.table[name], table[name].astype(float), atol=1e-8)


# --- diagnoses -----------------------------------------------------------------------------------


def test_tight_wrong_prior_is_a_conflict_and_the_default_is_fine():
    stats = statistics(5000)
    weak = soc.sensitivity(soc.fit(stats, **QUIET), stats, **QUIET)
    assert set(weak.table["diagnosis"]) == {"fine"}
    assert weak.advice == ("No result here depends on the prior.",)
    assert len(weak.table) == 11
    prior = soc.Gamma(mean=soc.Spline(knots=2, level=(0.0, 0.05)))
    tight = soc.sensitivity(soc.fit(stats, prior, soc.VI(draws=4000), **QUIET), stats, **QUIET)
    assert tight.table["diagnosis"].iloc[0] == "prior-data conflict"
    assert "disagree" in tight.advice[0]
    assert "prior-data conflict" in repr(tight)
    assert "prior-data conflict" in tight._repr_html_()


@pytest.mark.parametrize(
    ("numbers", "diagnosis"),
    [
        ((0.01, 0.2, 0.005, 0.03), "fine"),
        ((0.01, 0.01, 0.005, 0.03), "fine"),
        ((0.2, 0.2, 0.01, 0.03), "prior-data conflict"),
        ((0.2, 0.02, 0.01, 0.01), "prior dominates"),
        ((0.06, 0.2, 0.02, 0.03), "too few draws"),
        ((0.2, 0.06, 0.01, 0.05), "too few draws"),
    ],
)
def test_diagnosis(numbers, diagnosis):
    names = ["prior", "likelihood", "prior_error", "likelihood_error"]
    assert power_scaling._diagnosis(dict(zip(names, numbers, strict=True))) == diagnosis


def test_errors_are_those_of_independent_draws():
    """Sensitivities of many sets of draws of an unrelated quantity, whose truth is 0."""
    rng = np.random.default_rng(0)
    draws, log_density = rng.normal(size=(60, 1, 1000)), rng.normal(0, 3, (1, 1000))
    found = power_scaling._sensitivities(draws, log_density)
    blocks = list(np.arange(1000)[:, None])
    errors = power_scaling._errors(draws[:5], log_density, found[:5], blocks)
    assert errors.mean() == pytest.approx(np.sqrt((found**2).mean()), rel=0.4)


def test_copies_of_draws_count_once(fits):
    fit = fits[1.0]
    copies = np.repeat(np.arange(40.0), 5).reshape(1, -1)
    assert [len(b) for b in power_scaling._blocks(fit, copies)] == [5] * 40
    chains = replace(fit, status=replace(fit.status, pareto_k=None))
    assert [len(b) for b in power_scaling._blocks(chains, copies)] == [20] * 10


# --- other fits (of every kind: tests/inference/test_arviz_groups.py) ----------------------------


def values():
    rng = np.random.default_rng(0)
    t = rng.normal(size=1500)
    frame = pd.DataFrame({"t": t, "y": rng.normal(t, 1), "s": 0.5})
    return soc.NormalItems(frame, score="t", value="y", noise_sd="s")


def plain():
    return soc.PoissonItems(soc.simulation.s1(1500, seed=1), **COUNTS)


@pytest.mark.slow
def test_chains_of_nuts(stats):
    method = soc.NUTS(draws=300, tune=300, chains=2)
    with pytest.warns(soc.ConvergenceWarning):
        fit = soc.fit(stats, method=method, **QUIET)
    found = soc.sensitivity(fit, stats, [0.05], **QUIET)
    assert found.data["log_likelihood"]["total"].shape == (2, 300)
    assert "did not converge" in found.advice[0]


def test_a_fit_that_began_elsewhere_has_the_same_densities(stats):
    """Its coefficients are rotated by other numbers; the curves tell which they are."""
    fit = soc.fit(stats, start=soc.fit(statistics(3000, seed=5), **QUIET), **QUIET)
    prior, likelihood = draw_densities.draw_densities(fit, stats, None)
    turned = fit.data["posterior"].to_dataset()
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(18, 18)))[0]
    name = "log_mean_wiggle"
    turned[name] = (turned[name].dims, turned[name].to_numpy() @ rotation)
    other = fit.data.copy()
    other["posterior"].update(turned)
    again = draw_densities.draw_densities(replace(fit, data=other), stats, None)
    np.testing.assert_allclose(again[0], prior, rtol=1e-10)
    np.testing.assert_allclose(again[1], likelihood, rtol=1e-8)


def test_terms_of_ones_own(stats):
    with soc.model(stats) as model:
        bias = pm.Normal("bias", 0.0, 0.1)
        spread = pm.HalfNormal("spread", 1.0)
        pm.Normal("below", bias, spread)
        pm.Normal("audit", model["bin_log_mean"][25] + bias, 0.05, observed=-2.8)
    names = [v.name for v in draw_densities.top_level(extended(build(stats, soc.Gamma()), model))]
    lines = ["log_mean_wiggle_sd", "log_mean_line", "log_cv2_wiggle_sd", "log_cv2_line"]
    assert names == [*lines, "bias", "spread"]
    with soc.model(stats) as model:
        bias = pm.Normal("bias", 0.0, 0.1)
        pm.Normal("audit", model["bin_log_mean"][25] + bias, 0.05, observed=-2.8)
    fit = soc.fit(stats, model=model, **QUIET)
    _, likelihood = draw_densities.draw_densities(fit, stats, model)
    _, bare = draw_densities.draw_densities(soc.fit(stats, **QUIET), stats, None)
    assert likelihood.mean() != pytest.approx(bare.mean(), abs=0.3)
    with pytest.raises(soc.FitError, match="made with model=: give it too"):
        soc.sensitivity(fit, stats, **QUIET)


# --- refusals and the picture --------------------------------------------------------------------


def test_refusals(stats, fits):
    fit = fits[1.0]
    with pytest.raises(soc.FitError, match=r"only one: fit with soc.VI\(\) or soc.NUTS\(\)"):
        soc.sensitivity(soc.fit(stats, method=soc.FiveSteps(), **QUIET), stats, **QUIET)
    with pytest.raises(soc.FitError, match="30 draws are too few"):
        soc.sensitivity(soc.fit(stats, method=soc.VI(draws=30), **QUIET), stats, **QUIET)
    with pytest.raises(soc.FitError, match=r"not those of the fit \(score differs in 50"):
        soc.sensitivity(fit, statistics(seed=1), **QUIET)
    with pytest.raises(soc.FitError, match=r"not those of the fit \(30 occupied"):
        soc.sensitivity(fit, soc.summarize(plain(), bins=30, **QUIET), **QUIET)
    with pytest.raises(soc.FitError, match="without model=: leave it out"):
        soc.sensitivity(fit, stats, model=soc.model(stats), **QUIET)
    with pytest.raises(soc.FitError, match="which are of normal items"):
        soc.sensitivity(fit, soc.summarize(values(), **QUIET), **QUIET)


def test_picture(stats, fits):
    found = soc.sensitivity(fits[1.0], stats, **QUIET)
    top, bottom = soc.plots.plot_sensitivity(found)
    assert len(top.get_xticks()) == len(found.table)
    shown = [text.get_text() for text in bottom.texts]
    assert f"{found.table['likelihood'][0]:.3f}" in shown
    assert "R²" in shown
    moved = [line.get_ydata() for line in top.lines if line.get_marker() == "o"]
    draws = found.data["posterior"]["mean"].isel(score=0).to_numpy()
    middle = (np.median(draws) - draws.mean()) / draws.std()
    assert moved[1][0] == pytest.approx(middle, abs=1e-3)
    assert moved[0][0] < moved[1][0] < moved[2][0]  # the prior's level is above the data's
    others = plt.subplots(3)[1]
    soc.plots.plot_sensitivity(found, axes=others[:2])
    assert not others[2].lines
    plt.close("all")
    with pytest.raises(soc.FitError, match=r"what soc\.sensitivity"):
        soc.plots.plot_sensitivity(found.table)
