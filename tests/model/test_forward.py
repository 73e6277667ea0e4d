"""Draws of the model's variables: by compiled graphs without warnings, and from the right laws."""

import time
import warnings

import numpy as np
import pymc as pm
import pytest
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.families.poisson_rows import Histograms
from soc_pymc.model import forward, prior_draws, problem

QUIET = {"progress": False}


@pytest.fixture(scope="module")
def fitted():
    frame = soc.simulation.s1(3000, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=40, **QUIET)
    return stats, soc.fit(stats, **QUIET)


@pytest.mark.slow
def test_predictive_draws_by_pymc_warn_of_nothing_and_are_fast(fitted):
    """100 draws from the prior take at most 5 s once the machine has compiled them, in a new model.

    Drawn in plain Python they warned of seven variables, and each call compiled for seconds.
    """
    stats, fit = fitted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with soc.model(stats):
            pm.sample_prior_predictive(2, random_seed=0)
        start = time.process_time()
        with soc.model(stats):
            prior = pm.sample_prior_predictive(100, random_seed=1)
        assert time.process_time() - start < 5.0
        with soc.model(stats):
            posterior = pm.sample_posterior_predictive(fit.data, random_seed=2, progressbar=False)
    assert prior["prior_predictive"]["count"].sizes["bin"] == fit.data["observed_data"].sizes["bin"]
    # PyMC's replicates and the fit's own: means to 5 of their standard errors, sds to a fifth
    theirs, ours = (
        tree["posterior_predictive"]["count"].to_numpy().reshape(1000, -1)
        for tree in (posterior, fit.data)
    )
    error = np.hypot(theirs.std(axis=0), ours.std(axis=0)) / np.sqrt(1000)
    assert np.abs((theirs.mean(axis=0) - ours.mean(axis=0)) / error).max() < 5
    assert theirs.std(axis=0) == pytest.approx(ours.std(axis=0), rel=0.2)


@pytest.mark.slow
def test_draws_from_the_prior_are_those_of_pymc(fitted):
    """Kolmogorov-Smirnov tests of scales, coefficients and curves at knots: p above 1e-4."""
    stats, _ = fitted
    with soc.model(stats):
        theirs = pm.sample_prior_predictive(1000, random_seed=3)["prior"]
    built = problem.build(stats, soc.Gamma())
    ours = prior_draws.prior_draws(built, 1000, np.random.default_rng(4))
    assert set(ours.data_vars) == {n for n in theirs.data_vars if not n.startswith("bin_")}
    for name, values in ours.data_vars.items():
        a, b = (x.to_numpy().reshape(1000, -1) for x in (values, theirs[name]))
        for k in (0, a.shape[1] - 1):
            assert sps.ks_2samp(a[:, k], b[:, k]).pvalue > 1e-4, name


def test_python_draws_by_the_same_rules(fitted):
    """Without compiled graphs PyMC calls the rules one by one: the same seeds, the same numbers."""
    rng = np.random.default_rng
    found = forward.BLOCK(np.array([1.0, 10.0]), np.ones(4), np.zeros(4), rng=rng(0), size=None)
    one = rng(0)
    expected = [forward.BLOCK.compiled(one, s, np.ones(4), np.zeros(4)) for s in (1.0, 10.0)]
    np.testing.assert_array_equal(found, expected)
    assert forward.SCALE(2.0, np.ones(4), rng=rng(1), size=(3,)).shape == (3,)
    model = soc.model(fitted[0])
    drawn = pm.draw(model["log_mean_line"], draws=5, random_seed=1, mode="FAST_COMPILE")
    assert drawn.shape == (5, 2)


def _few_counts():
    frame = soc.simulation.s1(300, seed=1)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # no count exceeds its exposure
        stats = soc.summarize(items, bins=1, **QUIET)
    return frame, problem.build(stats, soc.Gamma()).data.with_spread(np.zeros(1))


@pytest.mark.parametrize("cv2", [1e-20, 0.3, 4.0])
def test_totals_of_counts_have_their_mean_and_variance(cv2):
    """20,000 totals of 300 items: five standard errors of the mean, a tenth of the variance."""
    frame, data = _few_counts()
    assert isinstance(data, Histograms)
    ends = np.full((20_000, 1), np.log(0.05)), np.full((20_000, 1), np.log(cv2))
    total = data.draw(*ends, np.random.default_rng(2))[:, 0]
    expected = 0.05 * frame["exposure"].to_numpy()
    mean, variance = expected.sum(), (expected + cv2 * expected**2).sum()
    assert total.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / 20_000))
    assert total.var() == pytest.approx(variance, rel=0.1)


def test_extreme_draws_of_totals_stay_numbers():
    _, data = _few_counts()
    first = np.array([[-700.0], [60.0], [0.0], [0.0]])
    second = np.array([[0.0], [0.0], [-750.0], [750.0]])
    total = data.draw(first, second, np.random.default_rng(0))[:, 0]
    assert np.isfinite(total).all()
    assert total[0] == 0
    assert total[1] > 1e20
    assert total[3] == 0


def test_totals_of_values_have_their_mean_and_variance():
    frame = soc.simulation.laplace_effects(300, seed=1)
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    data = problem.build(soc.summarize(items, bins=1, **QUIET), soc.Normal()).data
    data = data.with_spread(np.zeros(1))
    ends = np.full((20_000, 1), 0.7), np.full((20_000, 1), np.log(0.2))
    mean = data.draw(*ends, np.random.default_rng(2))[:, 0]
    variance = (0.2 + frame["noise_sd"] ** 2).sum() / 300**2
    assert mean.mean() == pytest.approx(0.7, abs=5 * np.sqrt(variance / 20_000))
    assert mean.var() == pytest.approx(variance, rel=0.05)
