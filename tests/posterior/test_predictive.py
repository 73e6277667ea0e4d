"""Predictive distributions of outcomes against SciPy's and against quadrature over theta."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import soc_pymc as soc
from soc_pymc.posterior.averages import cdf_interval, density_moments, further_cdf_interval
from soc_pymc.posterior.predictive import posterior_of
from soc_pymc.posterior.weights import SmoothWeights
from tests.examples import CASES, FAMILIES, ROLES, thinned
from tests.family_records import RECORDS, SHAPE, prior_parameters, updated_parameters
from tests.posterior import references as ref


def further_outcomes(name, example, number):
    """Returns outcomes and sizes of other rows, as further outcomes of the first ones."""
    other = ref.some_rows(example, number).iloc[::-1].reset_index(drop=True)
    return ref.outcome_and_size(name, other)


@pytest.mark.parametrize("name", ref.CLOSED_FORM)
def test_outcomes_of_a_single_family(example, name):
    """Densities by draw to rounding; distribution functions, over few nodes, to 1e-3."""
    frame = ref.some_rows(example(name), 25)
    fit, columns = example(name).fit, ref.columns_of(name, frame)
    outcome, size = ref.outcome_and_size(name, frame)
    prior = prior_parameters(ref.family_of(name), *ref.prior_moments(name, fit, frame))
    law = RECORDS[ref.family_of(name)].marginal(*prior, size)
    expected = ref.log_probability(law, outcome)
    # SciPy's own log probabilities lose digits for large shapes
    found = posterior_of(fit).log_density(columns)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    below, upto = cdf_interval(posterior_of(fit), columns)
    np.testing.assert_allclose(upto, law.cdf(outcome).mean(axis=0), atol=1e-3)
    start = outcome - hasattr(law, "pmf")
    np.testing.assert_allclose(below, law.cdf(start).mean(axis=0), atol=1e-3)
    draws = np.arange(len(found))[::3]
    ends = posterior_of(fit).cdf_by_draw(columns, draws)
    expected = [np.broadcast_to(law.cdf(y), found.shape)[draws] for y in (start, outcome)]
    np.testing.assert_allclose(ends, expected, atol=1e-8)


@pytest.mark.parametrize("name", thinned(CASES, ["normal"]))
def test_moments_of_densities_over_the_draws(example, name):
    """Where log p varies by less than .01: logarithms of E(p) and E(1/p) to 5e-3, variances to .3.

    Of a mixture only the mean and the covariance of its weights are known.
    """
    frame, fit = ref.some_rows(example(name), 100), example(name).fit
    columns, posterior = ref.columns_of(name, frame), posterior_of(fit)
    log_density = posterior.log_density(columns)
    density = np.exp(log_density)
    full, without, variance = density_moments(posterior, columns)
    alike = log_density.var(axis=0) < 0.01
    assert alike.mean() > 0.5
    np.testing.assert_allclose(full[alike], np.log(density.mean(axis=0))[alike], atol=5e-3)
    expected = -np.log((1 / density).mean(axis=0))
    np.testing.assert_allclose(without[alike], expected[alike], atol=5e-3)
    total = log_density.var(axis=0)[alike].sum()
    assert variance[alike].sum() == pytest.approx(total, rel=0.3)


@pytest.mark.parametrize("name", thinned(["gamma_mixture", "normal_mixture", "zeros"], ref.QUICK))
def test_interpolated_weights_are_close_to_those_solved_for(example, name):
    """Half the sum of differences at the scores of 100 items: 1e-3 on average over the draws.

    In a draw 1e-2 for 99 of 100 items. A few items alone are solved for.
    """
    fit = ref.thinned_fit(example(name).fit, 100)
    weights, draws = fit.curves.once(SmoothWeights), np.arange(100)
    columns = {"score": example(name).frame["score"].to_numpy()[:100]}
    columns["score"] = columns["score"][weights.are_interpolated(columns)]
    solved = weights._solve(columns, weights._predictors(columns))
    few = {"score": columns["score"][:5]}
    np.testing.assert_allclose(weights.by_draw(few, draws), solved[:, :5], rtol=1e-5, atol=1e-7)
    gap = weights.by_draw(columns, draws) - solved
    assert 0.5 * np.abs(gap.mean(axis=0)).sum(axis=-1).max() < 1e-3
    assert np.quantile(0.5 * np.abs(gap).sum(axis=-1), 0.99) < 1e-2


def test_outcomes_of_one_draw_for_each_item(example):
    """Simulated by the draws named, whose means are far apart."""
    fit, frame = example("normal").fit, ref.some_rows(example("normal"), 1)
    columns = {k: np.repeat(v, 4000) for k, v in ref.columns_of("normal", frame).items()}
    draws = np.array([3, 8])
    drawn_by = np.arange(4000) % 2
    posterior, rng = posterior_of(fit), np.random.default_rng(0)
    outcomes = posterior.simulate(columns, rng, draws, drawn_by)
    both = posterior.simulate(columns, rng, draws)
    assert outcomes.shape == (4000,)
    for place in (0, 1):
        means = outcomes[drawn_by == place].mean(), both[place].mean()
        assert means[0] == pytest.approx(means[1], abs=5 * both[place].std() / np.sqrt(1300))


@pytest.mark.parametrize("name", ref.CLOSED_FORM)
def test_further_outcomes_of_a_single_family(example, name):
    """The distribution of a further outcome given the item's own, over all draws: to 1e-4.

    With a term in exposure the prior's table is followed to 3e-4. The further outcome's exposure
    does not change the prior; the item's own may.
    """
    frame, family = ref.some_rows(example(name), 25), ref.family_of(name)
    fit, columns = example(name).fit, ref.columns_of(name, frame)
    prior = prior_parameters(family, *ref.prior_moments(name, fit, frame))
    after = updated_parameters(family, *prior, *ref.outcome_and_size(name, frame))
    outcome, size = further_outcomes(name, example(name), 25)
    law = RECORDS[family].marginal(*after, size)
    below, upto = further_cdf_interval(posterior_of(fit), columns, outcome, size)
    start, slack = outcome - hasattr(law, "pmf"), 3e-4 if name == "exposure" else 1e-4
    np.testing.assert_allclose(upto, law.cdf(outcome).mean(axis=0), atol=slack)
    np.testing.assert_allclose(below, law.cdf(start).mean(axis=0), atol=slack)


@pytest.mark.parametrize("name", thinned(ref.ON_A_GRID, ref.QUICK))
def test_outcomes_of_a_mixture_against_quadrature(example, name):
    """Densities by draw to 1e-4, distribution functions to 1e-4, for six items at one score.

    The grid has the mean and variance of the calibration curves in every draw.
    """
    fit, frame = ref.thinned_fit(example(name).fit, 20), ref.some_rows(example(name), 6)
    frame["score"] = example(name).frame["score"].median()
    grid = ref.ThetaGrid.at(name, fit, frame["score"][0])
    mean, variance = (moment[:, 0] for moment in ref.prior_moments(name, fit, frame))
    found_mean, found_variance = grid.prior_moments()
    np.testing.assert_allclose(found_mean, mean, atol=1e-4 * np.sqrt(variance.mean()))
    np.testing.assert_allclose(found_variance, variance, rtol=2e-4)

    columns, law = ref.columns_of(name, frame), posterior_of(fit)
    outcomes, sizes = ref.outcome_and_size(name, frame)
    further = further_outcomes(name, example(name), 6)
    log_density, (_, upto) = law.log_density(columns), cdf_interval(law, columns)
    further_below, further_upto = further_cdf_interval(law, columns, *further)
    for row, (outcome, size) in enumerate(zip(outcomes, sizes, strict=True)):
        density = grid.density(outcome, size)
        np.testing.assert_allclose(log_density[:, row], np.log(density), atol=1e-4)
        below = grid.weight @ grid.outcome_cdf(outcome, size, grid.theta)
        below = below + grid.zero * grid.outcome_cdf(outcome, size, 0.0)
        assert upto[row] == pytest.approx(below.mean(), abs=1e-4)
        weight, zero = grid.posterior(outcome, size)
        next_outcome, next_size = further[0][row], further[1][row]

        def cdf(value, next_size=next_size, weight=weight, zero=zero):
            inside = weight @ grid.outcome_cdf(value, next_size, grid.theta)
            return inside + zero * grid.outcome_cdf(value, next_size, 0.0)

        assert further_upto[row] == pytest.approx(cdf(next_outcome), abs=5e-4)
        if law.outcome.whole:
            assert further_below[row] == pytest.approx(cdf(next_outcome - 1), abs=5e-4)


@pytest.mark.parametrize("name", thinned(FAMILIES, ref.QUICK))
def test_simulated_outcomes_have_the_moments_of_the_curves(example, name):
    """200 copies of three items under every draw: means and variances to 5 standard errors."""
    fit, copies = example(name).fit, 200
    rows = ref.some_rows(example(name), 3)
    frame = rows.loc[np.repeat(rows.index, copies)].reset_index(drop=True)
    columns = dict(ref.columns_of(name, frame))
    del columns[posterior_of(fit).outcome.observed]  # of new items
    drawn = posterior_of(fit).simulate(columns, np.random.default_rng(0))
    mean, variance = ref.prior_moments(name, fit, rows)
    size = ref.outcome_and_size(name, rows)[1]
    if ref.kind_of(name) == "gamma":
        expected, within = size * mean, size * mean + size**2 * variance
    elif ref.kind_of(name) == "normal":
        expected, within = mean, variance + size**2
    elif ref.kind_of(name) == "inverse_gamma":
        expected = size * mean
        within = size**2 * variance + size * (mean**2 + variance) / SHAPE
    else:
        expected = size * mean
        within = size * mean * (1 - mean) + size * (size - 1) * variance
    drawn = drawn.reshape(len(mean), len(rows), copies).transpose(1, 0, 2).reshape(len(rows), -1)
    total = within.mean(axis=0) + expected.var(axis=0)
    error = np.sqrt(total / drawn.shape[1])
    assert (np.abs(drawn.mean(axis=1) - expected.mean(axis=0)) < 5 * error).all()
    squares = (drawn - drawn.mean(axis=1, keepdims=True)) ** 2
    error = squares.std(axis=1) / np.sqrt(drawn.shape[1])
    assert (np.abs(squares.mean(axis=1) - total) < 5 * error).all()


@pytest.mark.parametrize("name", thinned(CASES, ref.QUICK))
def test_moments_and_whole_posteriors_are_those_of_the_scores(example, name):
    """Moments by draw, the mixture over draws, and parameters drawn at random (to chance)."""
    fit, frame = example(name).fit, ref.some_rows(example(name), 40)
    scored = ref.score_items(example(name), frame, draws="all", quantiles=())
    columns, posterior = ref.columns_of(name, frame), posterior_of(fit)
    mean, variance, _ = posterior.moments(columns)
    np.testing.assert_allclose(mean.mean(axis=0), scored["theta_mean"], rtol=1e-6, atol=1e-9)
    total = variance.mean(axis=0) + mean.var(axis=0)
    np.testing.assert_allclose(total, scored["theta_var"], rtol=1e-5)
    theta, family = posterior.theta(columns), posterior.family
    means = family.mean(theta.a, theta.b)
    average = theta.average(means)
    np.testing.assert_allclose(average, scored["theta_mean"], rtol=1e-6, atol=1e-9)
    spread = theta.average(family.variance(theta.a, theta.b) + (means - average) ** 2, average**2)
    np.testing.assert_allclose(spread, scored["theta_var"], rtol=1e-5)
    number = len(mean)
    draws = np.tile(np.arange(number), 2000 // number)
    uniform = np.random.default_rng(3).random((len(draws), len(frame)))
    drawn = family.mean(*posterior.theta_given(columns, draws, uniform))
    error = scored["theta_sd"].to_numpy() / np.sqrt(len(draws))
    assert (np.abs(drawn.mean(axis=0) - scored["theta_mean"]) < 5 * error + 1e-9).all()


def items_in_exact_cells(name):
    """Returns items of twelve scores and three sizes, so that cells and bins hold equal items."""
    rng, number = np.random.default_rng(6), 3000
    case = CASES[name]
    scores = rng.choice(np.linspace(0.1, 0.6, 12), number)
    if ref.kind_of(name) == "gamma":
        size = rng.choice([4.0, 10.0, 30.0], number)
        outcome = rng.poisson(scores * rng.gamma(2.0, 0.5, number) * size)
        outcome[rng.random(number) < 0.2] = 0
    else:
        size = rng.choice([3, 10, 30], number)
        outcome = rng.binomial(size, rng.beta(5 * scores, 5 * (1 - scores)))
    columns = dict(zip(ROLES[case.kind].values(), (scores, outcome, size), strict=True))
    return case.items(pd.DataFrame(columns))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ItemsWarning", "ignore::soc_pymc.ConvergenceWarning")
@pytest.mark.parametrize("name", ["gamma", "beta", "gamma_mixture", "beta_mixture", "zeros"])
def test_items_are_scored_with_the_likelihood_that_was_fitted(example, name):
    """The sum of the items' log densities, draw by draw, moves with the fit's log likelihood."""
    items = items_in_exact_cells(name)
    edges = np.linspace(0.1, 0.6, 12)[:-1] + 0.5 / 22
    statistics = soc.summarize(items, edges=edges, joint=True, on_leakage="ignore", progress=False)
    fit = soc.fit(statistics, example(name).case.prior, soc.VI(draws=50), progress=False)
    (by_bin,) = fit.data["log_likelihood"].data_vars.values()
    fitted = by_bin.sum(by_bin.dims[2:]).to_numpy()
    scored = posterior_of(fit).log_density(ref.columns_of(name, items.source)).sum(axis=1)
    difference = scored - fitted.ravel()
    assert difference.std() < 0.02 * scored.std()


def test_outcomes_of_rows_whose_means_are_spread(example):
    """The variance of means within a row adds to that of theta given the curves."""
    fit, frame = example("normal").fit, ref.some_rows(example("normal"), 25)
    mean, variance = ref.prior_moments("normal", fit, frame)
    value, noise_sd = ref.outcome_and_size("normal", frame)
    columns = {**ref.columns_of("normal", frame), "spread": np.full(len(frame), 0.3)}
    law = norm(mean, np.sqrt(variance + 0.3 + noise_sd**2))
    log_density = posterior_of(fit).log_density(columns)
    np.testing.assert_allclose(log_density, law.logpdf(value), rtol=1e-8)
