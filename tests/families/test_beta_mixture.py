"""Mixtures of Betas: the grid of components, their weights, and fits of Beta and other truths."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

import soc_pymc as soc
from soc_pymc.families import bin_mixtures, binomial_beta
from soc_pymc.families.beta_mixtures import (
    BETA_MIXTURE,
    BETAS,
    beta_weights,
    betas_of_logit,
    logit_moments,
    success_frame,
    success_log_density,
)
from soc_pymc.families.components import GAMMAS, NORMALS, Frame, cell_points, count_log_density
from soc_pymc.families.mixture_rows import solved

# --- components ----------------------------------------------------------------------------------


def test_betas_have_the_moments_of_the_logit():
    variance, location = np.meshgrid(np.geomspace(1e-10, 100.0, 41), np.linspace(-60.0, 60.0, 61))
    mean, spread = logit_moments(*betas_of_logit(location, variance))
    assert spread == pytest.approx(variance, rel=1e-9)
    assert (mean - location) / np.sqrt(variance) == pytest.approx(0.0, abs=1e-7)


def test_betas_of_the_opposite_logit_change_places():
    location, variance = np.linspace(0.0, 9.0, 19), np.geomspace(1e-4, 30.0, 19)
    a, b = betas_of_logit(location, variance)
    other_a, other_b = betas_of_logit(-location, variance)
    assert other_a == pytest.approx(b, rel=1e-10)
    assert other_b == pytest.approx(a, rel=1e-10)


@pytest.mark.parametrize(("a", "b"), [(0.7, 0.7), (2.0, 30.0), (9.0, 1.0), (500.0, 90.0)])
def test_rise_is_the_derivative_of_the_location(a, b):
    curves = np.array(binomial_beta.to_curves(a, b))[:, None]
    step = np.array([[1e-5], [0.0]])
    ahead, behind = (success_frame(*(curves + s * step)).location[0] for s in (1, -1))
    found = BETAS.rise(success_frame(*curves))[0]
    assert found == pytest.approx((ahead - behind) / 2e-5, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(("a", "b"), [(0.7, 0.7), (2.0, 30.0), (9.0, 1.0), (500.0, 90.0)])
def test_relative_moments_are_those_of_the_components(a, b):
    """In units of the mean m of the start: around it in m (1 - m)."""
    curves = np.array(binomial_beta.to_curves(a, b))[:, None]
    frame = success_frame(*curves)
    place, width = frame.places(BETAS.z), frame.width()
    handle, mean, variance = BETAS.relative(frame, BETAS.z)
    middle, parts = a / (a + b), stats.beta(*betas_of_logit(place, width))
    unit = middle * (1.0 - middle)
    assert middle + unit * mean == pytest.approx(parts.mean(), rel=1e-10)
    assert unit**2 * variance == pytest.approx(parts.var(), rel=1e-9)
    assert np.isfinite(handle).all()
    assert (handle[:, 5] < curves[1]).all()
    assert (curves[1] < handle[:, 6]).all()


# Betas, and by how much their cdf may differ from that of components
ENDS = [
    (0.3, 0.3, 0.004),
    (0.5, 5.0, 0.005),
    (1.0, 1.0, 0.001),
    (1.0, 30.0, 0.002),
    (20.0, 3.0, 0.001),
    (3.0, 1e5, 0.002),
    (1e6, 1e7, 0.001),
]


@pytest.mark.parametrize(("a", "b", "error"), ENDS)
def test_weights_make_the_base_distributions_beta(a, b, error):
    frame = success_frame(*(np.atleast_1d(x) for x in binomial_beta.to_curves(a, b)))
    z = BETAS.z
    curves = np.array([binomial_beta.to_curves(a, b)])
    weight = beta_weights(frame, z, curves)[0]
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    parts = betas_of_logit(frame.location + frame.spread * z, frame.width())
    prob = np.concatenate([[1e-4, 1e-3], np.linspace(0.01, 0.99, 99), [0.999, 0.9999]])
    theta = stats.beta.ppf(prob, a, b)
    cdf = weight @ special.betainc(*(x[:, None] for x in parts), theta)
    assert cdf == pytest.approx(prob, abs=error)


@pytest.mark.parametrize(
    ("a", "b", "error"),
    # that mean and variance are exact costs a little where theta is nearest 0
    [(0.5, 5.0, 0.007) if end[:2] == (0.5, 5.0) else end for end in ENDS],
)
def test_weights_with_the_mean_and_variance_make_the_beta(a, b, error):
    """At the end of the path, where mean and variance are exact."""
    curves = np.array([binomial_beta.to_curves(a, b)])
    frame, z = success_frame(*curves.T), BETAS.z
    forms = BETAS.forms(frame, np.zeros((len(z), 1)), curves)
    weight = solved(np.column_stack([curves, [1.0]])[None], *forms.arrays)[0][0, 0]
    parts = stats.beta(*betas_of_logit(frame.location + frame.spread * z, frame.width()))
    prob = np.concatenate([[1e-4, 1e-3], np.linspace(0.01, 0.99, 99), [0.999, 0.9999]])
    theta = stats.beta.ppf(prob, a, b)
    assert weight @ parts.cdf(theta[:, None]).T == pytest.approx(prob, abs=error)
    mean, variance = weight @ parts.mean(), weight @ parts.var()
    variance += weight @ (parts.mean() - mean) ** 2
    assert mean == pytest.approx(a / (a + b), rel=1e-7)
    assert variance == pytest.approx(stats.beta.var(a, b), rel=1e-7)


def test_weights_of_the_opposite_base_are_mirrored():
    first, second = np.linspace(-4.0, 4.0, 9), np.linspace(-3.0, 1.0, 9)
    base, other = success_frame(first, second), success_frame(-first, second)
    weight, opposite = (
        beta_weights(frame, BETAS.z, np.column_stack([frame.first, second]))
        for frame in (base, other)
    )
    assert opposite == pytest.approx(weight[:, ::-1], abs=1e-9)


# --- outcomes ------------------------------------------------------------------------------------


def test_log_density_against_the_integral():
    location, variance = np.array([[-2.0, 0.5]]), np.array([0.3])
    found = success_log_density(np.array([4.0]), np.array([9.0]), location, variance)[0]
    for r in range(2):
        a, b = (float(x) for x in betas_of_logit(location[0, r], variance[0]))

        def integrand(theta, a=a, b=b):
            return stats.binom.pmf(4, 9, theta) * stats.beta.pdf(theta, a, b)

        assert found[r] == pytest.approx(np.log(integrate.quad(integrand, 0, 1)[0]), abs=1e-8)


def test_probabilities_add_up_to_one_and_are_mirrored():
    y, n = np.arange(41.0), np.full(41, 40.0)
    location = np.broadcast_to(np.linspace(-12.0, 12.0, 7), (41, 7))
    found = success_log_density(y, n, location, np.full(41, 0.2))
    assert np.exp(found).sum(axis=0) == pytest.approx(1.0, abs=1e-11)
    mirrored = success_log_density(n - y, n, -location, np.full(41, 0.2))
    assert mirrored == pytest.approx(found, abs=1e-9)


def test_small_rates_are_those_of_counts():
    y, n = np.array([0.0, 2.0, 7.0]), np.array([3.0, 9e5, 5e6])
    location = np.log(np.array([[1e-7, 4e-7, 2e-6]] * 3))
    variance = np.full(3, 0.4)
    counts = count_log_density(y, n, location, variance)
    assert success_log_density(y, n, location, variance) == pytest.approx(counts, abs=1e-4)


def test_points_keep_the_means_of_cells_and_stay_possible():
    rng = np.random.default_rng(0)
    n = rng.integers(5000, 5200, 300)
    y = n - rng.integers(40, 45, 300)
    sums = {"n": 300, "sum_y": y.sum(), "sum_N": n.sum(), "sum_yN": (y * n).sum()}
    sums |= {"sum_y2": (y * y).sum(), "sum_N2": (n * n).sum(), "sum_z": (n - y).sum()}
    cells = {name: np.array([value]) for name, value in sums.items()}
    sharp = BETAS.sharpness(cells, np.array([0.01]))
    cell, (successes, trials), items = cell_points(BETAS, cells, sharp)
    assert len(cell) == 2
    assert (successes <= trials).all()
    assert items @ successes == pytest.approx(y.sum())
    assert items @ trials == pytest.approx(n.sum())


def test_summaries_are_those_of_the_mixture():
    rng = np.random.default_rng(1)
    location, variance = rng.normal(size=(5, 1)) + 0.4 * np.arange(9), np.full((5, 1), 0.2)
    a, b = betas_of_logit(location, variance)
    weight = rng.random((5, 9))
    mean, sd, var, low, high = BETA_MIXTURE.summaries(weight, a, b, (0.05, 0.95))
    share = weight / weight.sum(axis=1, keepdims=True)
    assert mean == pytest.approx((share * a / (a + b)).sum(axis=1))
    assert sd**2 == pytest.approx(var)
    for prob, quantile in ((0.05, low), (0.95, high)):
        cdf = (share * special.betainc(a, b, quantile[:, None])).sum(axis=1)
        assert cdf == pytest.approx(prob, abs=1e-6)


def test_five_steps_move_components_to_both_curves():
    rng = np.random.default_rng(2)
    weight = rng.dirichlet(np.ones(12), 6)
    place, sd = np.tile(np.linspace(-3.0, 2.0, 12), (6, 1)), np.full((6, 12), 0.5)
    first, spread = np.linspace(-4.0, 4.0, 6), np.geomspace(0.01, 3.0, 6)
    kind = bin_mixtures.MIXTURES["Beta"]
    moved = kind.adjusted((weight, place, sd), first, spread)
    level, own = kind.curves(weight, moved[1] + first[:, None], moved[2])
    assert level == pytest.approx(first, abs=1e-6)
    assert own == pytest.approx(spread, rel=1e-5)


def test_frames_of_other_families_move_with_the_first_curve():
    frame = Frame(np.zeros(1), np.ones(1), np.full(1, 2.0), np.ones(1))
    assert GAMMAS.rise(frame).tolist() == NORMALS.rise(frame).tolist() == [1.0]


# --- fits ----------------------------------------------------------------------------------------

QUIET = {"progress": False}


def simulated(n, seed, truth="beta", flipped=False):
    """Scores, successes and trials, with curved means from 0.05 to 0.95.

    Truths are Beta, or logits of which a tenth are spread five times as far as the others.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(0.0, 1.2, n)
    mean = special.expit(-0.3 + 0.8 * x + 0.15 * np.sin(2.0 * x))
    trials = np.floor(np.exp(rng.uniform(0.0, np.log(500.0), n)))
    if truth == "beta":
        total = np.exp(2.0 + 0.3 * x)
        theta = rng.beta(mean * total, (1.0 - mean) * total)
    else:
        sd = np.where(rng.random(n) < 0.1, 1.8, 0.35)
        theta = special.expit(special.logit(mean) + sd * rng.normal(size=n))
    successes = rng.binomial(trials.astype(int), theta)
    if flipped:
        x, successes, theta = 0.6 - x, trials - successes, 1.0 - theta
    score = special.expit(x - 0.3)
    return pd.DataFrame({"t": score, "y": successes, "N": trials, "theta": theta})


def fitted(frame, prior, draws=1000, **more):
    items = soc.BinomialItems(frame[["t", "y", "N"]], score="t", successes="y", trials="N")
    summary = soc.summarize(items, joint=True, **QUIET, **more)
    return soc.fit(summary, prior, soc.VI(draws=draws), **QUIET), items


@pytest.fixture(scope="module")
def few():
    return fitted(simulated(3000, 0), soc.BetaMixture(), bins=20)


def test_a_fit_is_saved_and_scores_as_before(few, tmp_path):
    fit, _ = few
    frame = simulated(200, 1)
    items = soc.BinomialItems(frame[["t", "y", "N"]], score="t", successes="y", trials="N")
    assert fit.status.converged
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.prior == fit.prior
    tables = [soc.item_posteriors(f, items, **QUIET) for f in (fit, again)]
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.slow
def test_few_nodes_agree_with_all_draws(few):
    fit, items = few
    every = soc.item_posteriors(fit, items, **QUIET)
    near = soc.item_posteriors(fit, items, **QUIET)
    sd = every["theta_sd"]
    for name in ("theta_mean", "theta_sd", "theta_q05", "theta_q95"):
        assert ((near[name] - every[name]) / sd).abs().max() < 0.02


@pytest.mark.slow
def test_the_rest_of_the_package_takes_it(few):
    fit, items = few
    curves = soc.calibration_curves(fit)
    assert bool(((curves["mean"] > 0) & (curves["mean"] < 1)).all())
    assert not soc.check(fit, items, **QUIET).table.empty
    above = soc.decisions.probability_above(fit, items, 0.5, **QUIET)
    assert above.between(0.0, 1.0).all()


def test_five_steps_fit_it():
    items = soc.BinomialItems(simulated(3000, 0), score="t", successes="y", trials="N")
    stats_of = soc.summarize(items, joint=True, bins=10, **QUIET)
    steps = soc.FiveSteps(components=30)
    fit = soc.fit(stats_of, soc.BetaMixture(), method=steps, **QUIET)
    single = soc.fit(stats_of, soc.Beta(), method=soc.FiveSteps(), **QUIET)
    own, other = (soc.item_posteriors(f, items, **QUIET) for f in (fit, single))
    away = (own["theta_mean"] - other["theta_mean"]) / other["theta_sd"]
    assert np.sqrt((away**2).mean()) < 0.2


@pytest.mark.slow
def test_beta_truth_and_its_mirror_image():
    """As `soc.Beta` where that is right; and the same when successes and failures change places.

    The Monte Carlo error alone is about 0.02 sd for 1% of the items.
    """
    found = []
    for flipped in (False, True):
        frame = simulated(10_000, 1, flipped=flipped)
        fit, items = fitted(frame, soc.BetaMixture(), 2000)
        found.append(soc.item_posteriors(fit, items, **QUIET))
    mixed, mirrored = found
    fit, items = fitted(simulated(10_000, 1), soc.Beta())
    single = soc.item_posteriors(fit, items, **QUIET)
    sd = single["theta_sd"]
    away = ((mixed["theta_mean"] - single["theta_mean"]) / sd).abs()
    assert away.quantile(0.99) < 0.1
    assert (mixed["theta_sd"] / sd).quantile([0.01, 0.99]).tolist() == pytest.approx(
        [1.0] * 2, abs=0.05
    )
    other = ((1.0 - mirrored["theta_mean"] - mixed["theta_mean"]) / sd).abs()
    assert other.quantile(0.99) < 0.03


@pytest.mark.slow
def test_heavy_tails_are_covered():
    """By fifth of score and by trials, where intervals of one Beta are too wide for few trials.

    The shape is far from a Beta's, at coefficients of 4, seven default sds of their prior. With
    that default the first two classes of trials are covered to 0.919 and 0.921 (by the truth itself
    to 0.906 and 0.908).
    """
    frame = simulated(20_000, 0, truth="heavy")
    fifth = frame["t"].rank(pct=True).mul(5).clip(upper=4.999).astype(int)
    octaves = np.searchsorted([1.5, 5.0, 20.0, 100.0], frame["N"])
    covers = {}
    for prior in (soc.Beta(), soc.BetaMixture(shape=0.8)):
        fit, items = fitted(frame, prior)
        table = soc.item_posteriors(fit, items, **QUIET)
        inside = frame["theta"].between(table["theta_q05"], table["theta_q95"])
        parts = [inside.groupby(by).mean() for by in (fifth, octaves)]
        covers[type(prior).__name__] = pd.concat(parts)
    assert covers["BetaMixture"].between(0.88, 0.92).all()
    assert covers["Beta"].max() > 0.92
