"""Likelihoods with a share of zeros against sums over items of SciPy's densities."""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import soc_pymc as soc
from soc_pymc._model import problem
from soc_pymc.inference.density import near_densities, rows_of_likelihood
from tests.studies.choice import with_zeros

COUNTS = {"score": "score", "count": "y", "exposure": "size"}
TRIALS = {"score": "score", "successes": "y", "trials": "size"}


def counts(mean, g, y, size):
    return stats.nbinom(np.exp(-g), 1.0 / (1.0 + size * mean * np.exp(g))).logpmf(y)


def successes(mean, g, y, size):
    return stats.betabinom(size, np.exp(-g) / (1.0 - mean), np.exp(-g) / mean).logpmf(y)


@pytest.mark.parametrize(
    ("kind", "roles", "log_pmf", "inverse"),
    [
        (soc.PoissonItems, COUNTS, counts, np.exp),
        (soc.BinomialItems, TRIALS, successes, special.expit),
    ],
    ids=["counts", "successes"],
)
def test_rows_are_sums_over_items(kind, roles, log_pmf, inverse):
    rng = np.random.default_rng(1)
    score = np.repeat([0.05, 0.1, 0.2], 40)
    size = rng.choice([10, 30], len(score))
    y = rng.binomial(size, score) * (rng.random(len(score)) < 0.6)
    items = kind(pd.DataFrame({"score": score, "y": y, "size": size}), **roles)
    statistics = soc.summarize(items, joint=True, progress=False)
    prior = statistics.family.prior(zero=True, atoms=False)
    built = problem.build(statistics, prior)
    likelihood = rows_of_likelihood(built)
    cells = built.mixture.cells
    bounds = cells.forms.bounds
    assert likelihood.number > len(built.score)  # not those of the grid
    # within a posterior sd, where the polynomials hold
    start = built.space.start
    coefficients = built.space.at(start + 0.3 * rng.normal(size=(6, len(start)))).coefficients
    predictors = built.coordinates.parts[0].at_rows @ coefficients[0].T
    by_row = predictors.T.reshape(6, len(built.score), -1)
    location, dispersion = bounds.represented(by_row[..., 0], by_row[..., 1])
    row = np.searchsorted(built.score, score - 1e-9)
    zero = special.expit(by_row[:, row, -1])
    family = np.exp(log_pmf(inverse(location[:, row]), dispersion[:, row], y, size))
    expected = np.log((1.0 - zero) * family + zero * (y == 0)).sum(axis=1)
    expected += cells.within_bounds(by_row)
    # the polynomials' own bound on their error
    np.testing.assert_allclose(likelihood.sums(predictors), expected, atol=2e-3)


def test_gradients_are_differences():
    items = with_zeros("counts", 200, 0.3, np.random.default_rng(2))
    statistics = soc.summarize(items, joint=True, progress=False)
    built = problem.build(statistics, soc.Gamma(zero=True))
    bound = near_densities(built).bound
    point = built.space.start + 0.3
    unit = np.eye(len(point))
    step = 1e-4
    ahead, behind = (bound(point + sign * step * unit)[0] for sign in (1, -1))
    _, gradient = bound(point[None])
    # differences of values of about 1,000 nats, rounded to 1e-13 of these
    np.testing.assert_allclose(gradient[0], (ahead - behind) / (2.0 * step), atol=1e-4)
