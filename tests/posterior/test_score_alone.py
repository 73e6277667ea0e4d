"""Theta of items without outcomes: the prior predictive of theta at the item's own score."""

import numpy as np
import pytest

import soc_pymc as soc
from tests.examples import CASES
from tests.posterior.references import (
    CLOSED_FORM,
    QUANTILES,
    QUICK,
    ThetaGrid,
    assert_quantile,
    averaged_moments,
    kind_of,
    prior_moments,
    prior_parameters,
    some_rows,
    theta_law,
    thinned_fit,
)
from tests.thinning import thinned


def new_items(name, frame):
    """Returns rows as items that name the score, the group, and an exposure the prior needs."""
    case = CASES[name]
    roles = {"score": "score"} | case.roles
    if case.prior.exposure is not None:
        roles["exposure"] = "exposure"
    return case.kind(frame[list(roles.values())], **roles)


@pytest.mark.parametrize("draws", ["all", "auto"])
@pytest.mark.parametrize("name", thinned(CASES, QUICK))
def test_moments_are_those_of_the_curves_over_all_draws(example, name, draws):
    """Total variance over the draws; few nodes are within 2e-3 sd (terms and mixtures 5e-3)."""
    frame, fit = some_rows(example(name), 40), example(name).fit
    scored = soc.item_posteriors(fit, new_items(name, frame), draws=draws, progress=False)
    mean, sd = averaged_moments(*prior_moments(name, fit, frame))
    bound = 1e-3 if draws == "all" else 5e-3
    assert (np.abs(scored["theta_mean"] - mean) < bound * sd).all()
    assert (np.abs(scored["theta_sd"] - sd) < bound * sd).all()


@pytest.mark.parametrize("name", CLOSED_FORM)
def test_quantiles_of_a_single_family(example, name):
    frame, fit = some_rows(example(name), 40), example(name).fit
    options = {"quantiles": tuple(QUANTILES.values()), "draws": "all", "progress": False}
    scored = soc.item_posteriors(fit, new_items(name, frame), **options)
    kind = kind_of(name)
    law = theta_law(kind, *prior_parameters(kind, *prior_moments(name, fit, frame)))
    for column, prob in QUANTILES.items():
        slack = 1e-4 * scored["theta_sd"].to_numpy()
        assert_quantile(lambda x: law.cdf(x).mean(axis=0), scored[column], prob, slack)


@pytest.mark.parametrize("name", ["normal_mixture", "zeros"])
def test_quantiles_of_a_mixture(example, name):
    fit, frame = thinned_fit(example(name).fit, 20), some_rows(example(name), 3)
    scored = soc.item_posteriors(fit, new_items(name, frame), draws="all", progress=False)
    for row, score in enumerate(frame["score"]):
        grid = ThetaGrid.at(name, fit, score)
        weight, zero = grid.weight.mean(axis=0), grid.zero.mean()
        cdf = np.cumsum(weight) - 0.5 * weight + zero * (grid.theta > 0.0)
        for column, prob in (("theta_q05", 0.05), ("theta_q95", 0.95)):
            expected = np.interp(prob, cdf, grid.theta)
            assert abs(scored[column][row] - expected) < 2e-3 * scored["theta_sd"][row]
        if name == "zeros":
            assert scored["p_zero"][row] == pytest.approx(zero, abs=1e-4)


def test_intervals_cover_new_items(small_fit):
    """Of 20,000 new items 90% lie inside; three standard errors are 0.6%, the curves' 1%."""
    new = soc.simulation.s1(20_000, seed=11)
    scored = soc.item_posteriors(small_fit, soc.PoissonItems(new, score="score"), progress=False)
    inside = (scored["theta_q05"] <= new["theta"]) & (new["theta"] <= scored["theta_q95"])
    assert abs(inside.mean() - 0.9) < 0.016
