"""Power-scaling: held to refits under the scaled prior, and to ArviZ."""

import arviz_stats
import numpy as np
import pytest
from scipy import stats as distributions

import soc_pymc as soc
from soc_pymc._model.problem import build
from soc_pymc.inference.fit_tree import draw_densities
from soc_pymc.inference.variational import importance
from tests.examples import QUIET, part_of

stats = part_of("gamma", "statistics")


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


def shifts(fits, densities, alpha):
    """Shifts of posterior means in sds: of a refit under the scaled prior, and by reweighting."""
    base, refit = (soc.calibration_curves(fits[a], [0.014, 0.05, 0.18]) for a in (1.0, alpha))
    weight = importance((alpha - 1.0) * densities.ravel())[0].reshape(densities.shape)
    found = []
    for name in ("mean", "log_variance"):
        old, new = base[name].to_numpy(), refit[name].to_numpy()
        mean, sd = old.mean((0, 1)), old.std((0, 1))
        reweighted = (weight[:, :, None] * old).sum((0, 1))
        found.append(((new.mean((0, 1)) - mean) / sd, (reweighted - mean) / sd))
    return np.hstack(found)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.8, 1.25])
def test_reweighting_agrees_with_a_refit_under_the_scaled_prior(fits, stats, alpha):
    """And would not if prior and likelihood were exchanged."""
    prior, likelihood = draw_densities(fits[1.0], stats)
    truth, found = shifts(fits, prior, alpha)
    assert np.abs(truth).max() > 0.4
    assert np.abs(found - truth).max() < 0.15
    _, exchanged = shifts(fits, likelihood, alpha)
    assert np.abs(exchanged - truth).max() > 0.5


def test_densities_are_those_of_the_documented_prior_and_the_curves(stats):
    """Normal levels and slopes, half-normal wiggles; the likelihood from curves at bins' scores."""
    fit = soc.fit(stats, informative(1.0), soc.VI(draws=100), **QUIET)
    prior, likelihood = draw_densities(fit, stats)
    draws, expected = fit.data["posterior"], 0.0
    for name, spline in (("log_mean", fit.prior.mean), ("log_cv2", fit.prior.variance)):
        wiggle = draws[f"{name}_wiggle_sd"]
        expected = expected + distributions.halfnorm.logpdf(wiggle, 0, spline.wiggle)
        for place, (centre, sd) in enumerate((spline.level, spline.slope)):
            own = draws[f"{name}_line"].to_numpy()[..., place]
            expected = expected + distributions.norm.logpdf(own, centre, sd)
    np.testing.assert_allclose(prior, expected, rtol=1e-8)
    built = build(stats, fit.prior)
    curves = soc.calibration_curves(fit, built.score)
    m = curves["log_mean"].to_numpy()[0, :20]
    c = -np.log(curves["shape"].to_numpy()[0, :20])
    by_bin = built.data.values(m, c)
    np.testing.assert_allclose(likelihood[0, :20], by_bin.sum(axis=-1), rtol=1e-8)


def test_table_is_that_of_arviz(small_fit, stats):
    found = soc.sensitivity(small_fit, stats, **QUIET)
    table = arviz_stats.psense_summary(found.data, round_to=10)
    for name in ("prior", "likelihood"):
        rows = found.table[found.table["what"] == name]
        np.testing.assert_allclose(rows["value"], table[name].astype(float), atol=1e-8)
        assert set(rows["verdict"]) == {"ok"}
        assert len(rows) == 11


@pytest.mark.slow
def test_a_tight_wrong_prior_is_a_conflict(stats):
    prior = soc.Gamma(mean=soc.Spline(knots=2, level=(0.0, 0.05)))
    tight = soc.sensitivity(soc.fit(stats, prior, soc.VI(draws=4000), **QUIET), stats, **QUIET)
    assert tight.table["verdict"].iloc[0] == "fail"
    assert "Prior and data disagree on E(theta | t)" in repr(tight)


@pytest.mark.slow
def test_statistics_that_did_not_make_the_fit_are_refused(small_fit, example):
    with pytest.raises(soc.FitError, match="not those of the fit"):
        soc.sensitivity(small_fit, example("groups").statistics, **QUIET)
