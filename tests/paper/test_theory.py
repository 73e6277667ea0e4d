"""Posterior moments of Poisson rates from marginals alone, against conjugate closed forms."""

import numpy as np
import pytest
from scipy import special, stats

import soc_pymc as soc
from soc_pymc import theory
from soc_pymc.families import poisson_gamma

ORDERS = (1, 2, 3, 5, 8)


def negative_binomial(exposure, mean, cv2):
    return lambda y: poisson_gamma.log_pmf(y, exposure, np.log(mean), np.log(cv2))


def gamma_moment(shape, rate, order):
    return np.exp(sum(np.log(shape + j) for j in range(order)) - order * np.log(rate))


@pytest.mark.parametrize("exposure", [1e-3, 1.0, 300.0, 1e9])
@pytest.mark.parametrize("mean", [1e-9, 1e-2, 3.0])
@pytest.mark.parametrize("cv2", [1e-6, 0.3, 10.0, 1e3])
def test_moments_are_those_of_the_conjugate_posterior(exposure, mean, cv2):
    """To a relative 1e-10, however far the counts lie from what is expected.

    Where a count's logarithm is in the millions of nats its own rounding is more: 1e-15 of it.
    """
    y = np.array([0.0, 1, 5, 31, 200, 1000])
    shape, rate = 1 / cv2 + y, 1 / cv2 / mean + exposure
    log_pmf = negative_binomial(exposure, mean, cv2)
    for k in ORDERS:
        error = theory.poisson_moment(y, exposure, log_pmf, k) / gamma_moment(shape, rate, k) - 1
        assert (np.abs(error) < np.maximum(1e-10, 1e-15 * np.abs(log_pmf(y)))).all()


def test_cumulants_are_those_of_the_conjugate_posterior():
    """(j - 1)! shape / rate^j; errors grow as mean^j / cumulant, so that each has its own."""
    y, exposure, cv2 = np.arange(40.0), np.linspace(0.5, 500, 40), 0.7
    log_pmf = negative_binomial(exposure, 0.05, cv2)
    got = theory.poisson_cumulants(y, exposure, log_pmf, 4)
    shape, rate = 1 / cv2 + y, 1 / cv2 / 0.05 + exposure
    for j, found in enumerate(got, 1):
        want = special.gamma(j) * shape / rate**j
        condition = (shape / rate) ** j / want
        assert (np.abs(found / want - 1) < 1e-13 * (1 + 100 * condition)).all()
    np.testing.assert_allclose(got[1], shape / rate**2, rtol=1e-10)


def test_unbiased_estimate_is_unbiased():
    y = np.arange(200.0)
    for k in (1, 2, 4):
        for theta in (0.3, 2.0):
            average = stats.poisson.pmf(y, 10 * theta) @ theory.poisson_umvu(y, 10.0, k)
            assert average == pytest.approx(theta**k, rel=1e-12)


def test_unbiased_estimate_and_correction_make_the_moment():
    """The two terms of the Appendix, formed as they are written."""
    y, exposure = np.arange(30.0), 12.0
    f = negative_binomial(exposure, 0.4, 0.5)
    for k in (1, 2, 3):
        rising, falling = special.poch(y + 1, k), special.poch(y - k + 1, k)
        delta = np.exp(f(y + k)) * rising - np.exp(f(y)) * falling
        whole = theory.poisson_umvu(y, exposure, k) + delta / np.exp(f(y)) / exposure**k
        np.testing.assert_allclose(whole, theory.poisson_moment(y, exposure, f, k), rtol=1e-11)


def test_regularised_moments():
    """As defined, everywhere; untouched above rho; unbiased estimates in the far tail."""
    y, exposure, rho = np.arange(400.0), 3.0, 1e-3
    f = negative_binomial(exposure, 2.0, 0.1)
    for k in (1, 2, 3):
        got = theory.regularised_poisson_moment(y, exposure, f, k, rho=rho)
        rising, falling = special.poch(y + 1, k), np.maximum(special.poch(y - k + 1, k), 0)
        delta = np.exp(f(y + k)) * rising - np.exp(f(y)) * falling
        want = (falling + delta / np.maximum(np.exp(f(y)), rho)) / exposure**k
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-14)
        above = np.exp(f(y)) > rho
        assert 5 < above.sum() < 30
        plain = theory.poisson_moment(y, exposure, f, k)
        np.testing.assert_allclose(got[above], plain[above], rtol=1e-12)
        umvu = theory.poisson_umvu(y, exposure, k)
        np.testing.assert_allclose(got[300:], umvu[300:], rtol=1e-9)
        assert (np.abs(plain[300:] / umvu[300:] - 1) > 0.3).all()  # where shrinkage goes too far
        none = theory.regularised_poisson_moment(y, exposure, f, k, rho=0.0)
        np.testing.assert_allclose(none, plain, rtol=1e-12)


def test_regularised_moment_where_the_marginal_is_zero():
    """Probabilities that are exactly 0 leave the unbiased estimate, here of counts 2 and 3."""
    table = np.array([np.log(0.5), np.log(0.5), -np.inf, -np.inf, -np.inf])
    got = theory.regularised_poisson_moment([2, 3], 2.0, table, rho=0.1)
    np.testing.assert_array_equal(got, [1.0, 1.5])
    with pytest.raises(soc.FitError, match="2 counts probability 0"):
        theory.poisson_moment([2, 3], 2.0, table)


def test_a_table_is_as_good_as_a_function():
    f = negative_binomial(7.0, 0.4, 0.5)
    table = f(np.arange(20.0))
    y = np.array([0, 3, 16])
    got = theory.poisson_moment(y, 7.0, table, 3)
    np.testing.assert_array_equal(got, theory.poisson_moment(y, 7.0, f, 3))
    with pytest.raises(soc.FitError, match=r"1 counts .* beyond the table's last, 19"):
        theory.poisson_moment(y, 7.0, table, 4)


def test_what_is_refused():
    with pytest.raises(soc.ItemsError, match="count: 2 rows are not whole"):
        theory.poisson_moment([0.5, -1, 2], 1.0, np.zeros(9))
    with pytest.raises(soc.ItemsError, match="exposure: 1 rows are not above 0"):
        theory.poisson_moment([1, 2], [0.0, 1.0], np.zeros(9))
    with pytest.raises(soc.FitError, match="order=0"):
        theory.poisson_moment([1], 1.0, np.zeros(9), 0)
    with pytest.raises(soc.FitError, match="rho=-1"):
        theory.regularised_poisson_moment([1], 1.0, np.zeros(9), rho=-1.0)


def test_cumulants_and_moments_are_inverse():
    """Gamma(2.5): cumulants 2.5 (k - 1)!, moments (2.5)_k."""
    k = np.arange(1, 9)
    cumulants, moments = 2.5 * special.gamma(k), special.poch(2.5, k)
    np.testing.assert_allclose(theory.cumulants_from_moments(moments), cumulants, rtol=1e-9)
    np.testing.assert_allclose(theory.moments_from_cumulants(cumulants), moments, rtol=1e-13)


def compare_with_robbins(fit, frame, items):
    """The package's posteriors of items, and Robbins' formula on the package's marginals.

    Two ways that share nothing but the curves, draw by draw: to a relative 1e-8.
    """
    from soc_pymc.posterior.predictive import posterior_of

    columns = {c: frame[c].to_numpy(dtype=float)[:200] for c in ("score", "count", "exposure")}
    law, count, exposure = posterior_of(fit), columns["count"], columns["exposure"]

    def log_pmf(y):
        return law.log_density(columns | {"count": y})

    each = [theory.poisson_moment(count, exposure, log_pmf, k) for k in (1, 2)]
    mean, variance = theory.cumulants_from_moments([m.mean(axis=0) for m in each])
    given = {"quantiles": (), "draws": "all", "progress": False}
    scored = soc.item_posteriors(fit, items, **given).iloc[:200]
    np.testing.assert_allclose(mean, scored["theta_mean"], rtol=1e-8)
    np.testing.assert_allclose(variance, scored["theta_var"], rtol=1e-8)


def test_fitted_marginal_gives_the_posteriors_of_the_fit(small_fit, small_frame, small_items):
    compare_with_robbins(small_fit, small_frame, small_items)


@pytest.mark.parametrize("smooth", [True, False])
def test_five_steps_give_the_same_posteriors(smooth, small_statistics, small_frame, small_items):
    fit = soc.fit(small_statistics, soc.Gamma(), soc.FiveSteps(smooth=smooth), progress=False)
    compare_with_robbins(fit, small_frame, small_items)


@pytest.mark.slow
def test_fitted_mixture_gives_the_posteriors_of_the_fit():
    frame = soc.simulation.click_rates(3000, seed=5)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    statistics = soc.summarize(items, joint=True, progress=False)
    compare_with_robbins(soc.fit(statistics, soc.GammaMixture(), progress=False), frame, items)


def light_tailed():
    """Exponential rates, and a marginal that takes them for a fixed rate of 1."""
    rng = np.random.default_rng(1)
    theta = rng.exponential(size=20_000)
    y, held = rng.poisson(theta), rng.poisson(theta)
    return y, held


def test_choice_of_rho_by_counts_held_out():
    y, held = light_tailed()
    candidates = [0.0, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 1.0]

    def choose(log_pmf):
        return theory.choose_rho(
            lambda rho: theory.regularised_poisson_moment(y, 1.0, log_pmf, rho=rho),
            lambda rate: stats.poisson.logpmf(held, np.maximum(rate, 1e-3)),
            candidates,
        )

    wrong = choose(stats.poisson(1.0).logpmf)
    assert wrong.rho >= 0.1
    assert wrong.gain.max() > 5 * wrong.standard_error[np.argmax(wrong.gain)]
    right = choose(lambda k: -(k + 1) * np.log(2.0))  # the true marginal
    assert right.rho <= 1e-4
    assert (right.gain[-2:] < 0).all()  # where all is unbiased, nothing is shrunk


def test_choice_of_rho_refuses():
    with pytest.raises(soc.FitError, match="no candidates"):
        theory.choose_rho(lambda rho: np.zeros(3), lambda rate: rate, [])
    with pytest.raises(soc.FitError, match="none of 2 candidates"):
        theory.choose_rho(lambda rho: np.zeros(3), lambda rate: rate - np.inf, [0.0, 0.1])


def test_page(small_fit, small_frame, small_items):
    """The page's block runs as it is written, and says what its comment says."""
    import re
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "dev" / "theory.md").read_text()
    names = {"fit": small_fit, "frame": small_frame.iloc[:300]}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)
    given = {"quantiles": (), "draws": "all", "progress": False}
    scored = soc.item_posteriors(small_fit, small_items, **given).iloc[:300]
    np.testing.assert_allclose(names["mean"], scored["theta_mean"], rtol=1e-8)
    np.testing.assert_allclose(names["variance"], scored["theta_var"], rtol=1e-8)
