"""Quadrature points against every draw, on fits made by hand."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from soc_pymc.data.items import PoissonItems
from soc_pymc.families.mixtures import gamma_summaries
from soc_pymc.families.priors import Gamma, Spline
from soc_pymc.families.rules import gauss_rule
from soc_pymc.inference.methods import VI
from soc_pymc.inference.results import Fit, Status
from soc_pymc.posterior.items import item_posteriors
from soc_pymc.posterior.predictive import posterior_of
from soc_pymc.posterior.quadrature import LIMITS, NodeTable

KNOTS = np.log([0.004, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.8])


def make_fit(sd, scale="log"):
    """Smooth curves with skewed, correlated departures of size `sd` (three times in log cv2)."""
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, len(KNOTS))
    smooth = np.vstack([np.ones_like(x), x / 2, np.sin(2 * x), np.cos(3 * x)])
    z = rng.normal(size=(2, 1, 1000, 4)) @ smooth * (1 + 0.5 * x**2) / 2
    log_mean = KNOTS - 0.1 * np.tanh(x) + sd * z[0]
    log_cv2 = np.log(0.3) - 0.8 * np.tanh(x) + 3 * sd * (z[1] + 0.4 * z[0] + 0.2 * sd * z[1] ** 2)
    knots = KNOTS if scale == "log" else x
    posterior = xr.Dataset(
        {
            "log_mean": (("chain", "draw", "mean_knot"), log_mean),
            "log_cv2": (("chain", "draw", "variance_knot"), log_cv2),
        },
        {"chain": [0], "draw": range(1000), "mean_knot": knots, "variance_knot": knots},
    )
    tree = xr.DataTree.from_dict({"posterior": posterior})
    prior = Gamma(mean=Spline(scale=scale), variance=Spline(scale=scale))
    return Fit(tree, prior, VI(), Status(True, "made by hand", 0.1, 0.9, 0.0))


def both(fit, frame):
    items = PoissonItems(frame, score="score", count="count", exposure="exposure")
    return (item_posteriors(fit, items, draws=d, progress=False) for d in ("all", "auto"))


def frame_of(n, score):
    rng = np.random.default_rng(3)
    exposure = np.floor(np.exp(rng.normal(2.5, 1.8, n)))
    rate = 0.05 * np.exp(rng.normal(0, 0.9, n))
    return pd.DataFrame(
        {"score": score, "count": rng.poisson(rate * exposure), "exposure": exposure}
    )


def worst(every, few):
    columns = ["theta_mean", "theta_sd", "theta_q05", "theta_q95"]
    error = (few - every)[columns].abs().div(every["theta_sd"], axis=0)
    return error.to_numpy().max()


@pytest.mark.parametrize("sd", [0.01, 0.03, 0.05, 0.1])
@pytest.mark.slow
def test_within_a_thousandth_of_a_posterior_sd_of_every_draw(sd):
    score = np.exp(np.random.default_rng(1).normal(np.log(0.05), 0.8, 1000))
    every, few = both(make_fit(sd), frame_of(1000, score))
    assert 0 < worst(every, few) < 1e-3


def test_scores_of_any_sign_and_beyond_the_knots():
    every, few = both(make_fit(0.03, "linear"), frame_of(300, np.linspace(-3, 3, 300)))
    assert worst(every, few) < 1e-3


@pytest.mark.parametrize("score", [[0.05], [0.05, 0.05], [0.001, 0.05, 3.0]])
def test_few_scores(score):
    every, few = both(make_fit(0.03), frame_of(len(score), score))
    assert worst(every, few) < 1e-3


def columns_of(frame):
    return {role: frame[role].to_numpy(dtype=float) for role in ("score", "count", "exposure")}


def test_every_level_is_used_and_every_cell_has_the_least_that_suffices():
    """Rules' weights add up to 1, and a cell has rules of no level below its own."""
    columns = columns_of(frame_of(2000, np.exp(np.linspace(KNOTS[0] - 1, KNOTS[-1] + 1, 2000))))
    homes = set()
    for sd in (0.02, 0.1):
        table = NodeTable(make_fit(sd))
        cell = table.cells.find(columns)
        assert (cell >= 0).all()
        for level in range(len(LIMITS)):
            table.prepare(level, [cell])
            row = table.rows(level, cell)
            np.testing.assert_allclose(table._rules[level][:, :, 0].sum(axis=2), 1.0, rtol=1e-9)
            home = np.array([table._home[c] for c in cell.tolist()])
            np.testing.assert_array_equal(row >= 0, home <= level)
            homes |= set(home.tolist())
    assert homes == set(range(len(LIMITS) + 1))


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_cells_hold_their_scores(scale):
    cells = NodeTable(make_fit(0.03, scale)).cells
    rng = np.random.default_rng(0)
    ends = np.log([0.001, 3.0]) if scale == "log" else [-3.9, 3.9]
    score = np.concatenate([rng.uniform(*ends, 20_000), cells._position])
    score = np.exp(score) if scale == "log" else score
    cell = cells.find({"score": score, "exposure": np.ones(len(score))})
    inside = cell >= 0
    assert inside.mean() > 0.99
    position = cells._axis.position(score[inside])
    assert (cells._position[cell[inside]] <= position).all()
    assert (position < cells._position[cell[inside] + 1]).all()
    far = np.array([1e-90, 1e90]) if scale == "log" else np.array([-1e90, 1e90])
    np.testing.assert_array_equal(cells.find({"score": far, "exposure": np.ones(2)}), -1)


def test_an_item_does_not_depend_on_those_beside_it():
    """To rounding, alone and among others, in a new table and in one that is in use."""
    fit, frame = make_fit(0.05), frame_of(200, np.geomspace(0.003, 1.0, 200))
    score = posterior_of(fit).scorer((0.05, 0.95), "auto", False)
    whole = score(columns_of(frame))
    for one in (score, posterior_of(fit).scorer((0.05, 0.95), "auto", False)):
        for i in (0, 57, 199):
            alone = one(columns_of(frame.iloc[[i]]))[:, 0]
            np.testing.assert_allclose(alone, whole[:, i], rtol=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(0, 100), st.floats(-2, 2))
def test_rules_reproduce_the_draws_moments(number, seed, skew):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 3)) * [1e-3, 0.1, 1.0] - 3
    z = np.exp(0.5 * rng.normal(size=(40, 3))) + skew * x
    weight, at_x, at_z = gauss_rule(x, z, number)
    assert weight.shape == (number**2, 3)
    u, at_u = (x - x.mean(0)) / x.std(0), (at_x - x.mean(0)) / x.std(0)
    v, at_v = z - z.mean(0), at_z - z.mean(0)
    for i in range(number):
        for j in range(number - i):
            exact = (u**i * v**j).mean(axis=0)
            np.testing.assert_allclose((weight * at_u**i * at_v**j).sum(0), exact, atol=1e-8)
    for i in range(2 * number):
        exact = (u**i).mean(axis=0)
        np.testing.assert_allclose((weight * at_u**i).sum(0), exact, rtol=1e-7, atol=1e-8)


def test_draws_that_agree_give_one_value():
    weight, x, z = gauss_rule(np.full((50, 2), -3.1), np.full((50, 2), -1.3), 3)
    np.testing.assert_allclose((weight * x).sum(axis=0), -3.1)
    np.testing.assert_allclose((weight * z**2).sum(axis=0), 1.69)


@pytest.mark.parametrize("spread", [(0.05, 0.2), (0.5, 1.2)])
def test_quantiles_of_every_draw_where_data_and_curves_disagree(spread):
    rng = np.random.default_rng(0)
    n = 150
    m = np.log(0.01) + spread[0] * rng.normal(size=(500, n))
    c = np.log(0.5) + spread[1] * rng.normal(size=(500, n))
    exposure = np.ceil(np.exp(rng.normal(5, 2, n)))
    count = rng.poisson(exposure * 0.01 * np.exp(rng.normal(0, 2, n))).astype(float)
    found = gamma_summaries(m, c, count, exposure, (0.05, 0.95))
    shape, rate = np.exp(-c) + count, np.exp(-c - m) + exposure
    for theta, p in zip(found.quantiles, (0.05, 0.95), strict=True):
        below, above = (
            special.gammainc(shape, (theta + e * np.sqrt(found.variance)) * rate).mean(axis=0)
            for e in (-1e-5, 1e-5)
        )
        assert ((below <= p) & (p <= above)).all()
