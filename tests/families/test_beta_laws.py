"""Fits to successes in trials: failures in place of successes, and rates that are small.

With failures for successes, scores 1 - t and bins turned around, the curves' mode is mirrored. Bins
by default have ends that are sums of few powers of 2, finer near 0 than near 1: those are not
mirrored. Nor are draws: random numbers belong to coordinates whose signs are fixed, and an
approximation from other random numbers is another one. So the mode and its information are
compared, and items under draws that were mirrored by hand.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.model import problem

ROLES = {"score": "p", "successes": "hits", "trials": "at_bats"}
PROBS = (0.05, 0.5, 0.95)
GRID = 2.0**20  # scores are multiples of its inverse, so that 1 - t is exact


def _frame():
    rng = np.random.default_rng(0)
    score = np.round(rng.beta(2.0, 5.0, 4000).clip(0.01, 0.99) * GRID) / GRID
    trials = np.round(np.exp(rng.uniform(0.0, np.log(300.0), 4000)))
    hits = rng.binomial(trials.astype(int), rng.beta(20.0 * score, 20.0 * (1.0 - score)))
    return pd.DataFrame({"p": score, "hits": hits, "at_bats": trials})


def _mirrored(frame):
    return frame.assign(p=1.0 - frame["p"], hits=frame["at_bats"] - frame["hits"])


@cache
def _both():
    """Items and statistics, and the same of failures."""
    frame = _frame()
    cuts = np.quantile(frame["p"], np.linspace(0.0, 1.0, 31)[1:-1])
    edges = np.round(cuts * GRID) / GRID + 0.5 / GRID
    found = []
    for table, ends in ((frame, edges), (_mirrored(frame), 1.0 - edges[::-1])):
        items = soc.BinomialItems(table, **ROLES)
        found.append((items, soc.summarize(items, edges=ends, progress=False)))
    return found


@pytest.mark.parametrize("prior", [soc.Beta(), soc.Beta(bin_effects=True)], ids=["plain", "bins"])
def test_mode_is_mirrored(prior):
    here, there = (problem.build(stats, prior) for _, stats in _both())
    np.testing.assert_allclose(there.data.spread[::-1], here.data.spread, rtol=1e-8)
    for k, sign in enumerate((-1.0, 1.0)):
        one, two = here.coefficients[k], there.coefficients[k]
        curves = [of.laplace.state.at(of.design) for of in (one, two)]
        np.testing.assert_allclose(sign * curves[1][::-1], curves[0], rtol=0, atol=1e-8)
        knots = [p.curves[k].at_knots(p.coefficients[k].laplace.state.coefficients)
                 for p in (here, there)]  # fmt: skip
        np.testing.assert_allclose(sign * knots[1][::-1], knots[0], rtol=0, atol=1e-8)
        assert two.laplace.state.taus == pytest.approx(one.laplace.state.taus, rel=1e-8)
        (mine,), (its,) = one.laplace.blocks, two.laplace.blocks
        np.testing.assert_allclose(its.precision, mine.precision, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(np.abs(its.pull), np.abs(mine.pull), rtol=1e-7, atol=1e-7)
    if here.effects:
        assert there.effects.tau == pytest.approx(here.effects.tau, rel=1e-6)


def _mirrored_fit(fit):
    """The fit with every draw of its curves mirrored by hand."""
    posterior = fit.data["posterior"].to_dataset()
    kept = fit.data["constant_data"].to_dataset()
    variables, positions = {}, {}
    for curve, name, sign in (("mean", "logit_mean", -1), ("variance", "log_odds_cv2", 1)):
        knot = f"{curve}_knot"
        values = posterior[name].isel({knot: slice(None, None, -1)})
        variables[name] = values.dims, sign * values.to_numpy()  # the labels stay
        positions[f"{knot}_position"] = knot, -kept[f"{knot}_position"].to_numpy()[::-1]
    rest = posterior.drop_dims(["mean_knot", "variance_knot"])
    tree = fit.data.copy()
    tree["posterior"] = rest.assign(variables)
    tree["constant_data"] = kept.assign(positions)
    return replace(fit, data=tree)


@cache
def _fits():
    fit = soc.fit(_both()[0][1], progress=False)
    return fit, _mirrored_fit(fit)


@pytest.mark.parametrize(("draws", "error"), [("all", 1e-8), ("auto", 1e-3)])
def test_items_are_mirrored(draws, error):
    """Those from a table of scores to its error, as the table's steps are not turned around."""
    frame = _frame().head(500)
    here, there = (
        soc.item_posteriors(
            fit, soc.BinomialItems(table, **ROLES), quantiles=PROBS, draws=draws, progress=False
        )
        for fit, table in zip(_fits(), (frame, _mirrored(frame)), strict=True)
    )
    sd = here["theta_sd"]
    assert (np.abs(1.0 - there["theta_mean"] - here["theta_mean"]) / sd).max() < error
    assert np.abs(there["theta_sd"] / sd - 1.0).max() < error
    for low, high in (("theta_q05", "theta_q95"), ("theta_q50", "theta_q50")):
        assert (np.abs(1.0 - there[high] - here[low]) / sd).max() < error


def test_curves_are_mirrored():
    score = np.linspace(0.05, 0.9, 30)
    here, there = (
        soc.calibration_curves(fit, score=at)
        for fit, at in zip(_fits(), (score, 1.0 - score), strict=True)
    )
    for name, mirror in (("mean", lambda x: 1.0 - x), ("variance", lambda x: x)):
        np.testing.assert_allclose(mirror(there[name].to_numpy()), here[name], rtol=1e-8)


@pytest.mark.slow
def test_approximations_are_mirrored_but_for_their_draws():
    fits = [soc.fit(stats, method=soc.VI(draws=4000), progress=False) for _, stats in _both()]
    for name, sign in (("logit_mean", -1.0), ("log_odds_cv2", 1.0)):
        one, two = (fit.data["posterior"][name].to_numpy()[0] for fit in fits)
        sd = one.std(axis=0)
        assert (np.abs(sign * two.mean(axis=0)[::-1] - one.mean(axis=0)) / sd).max() < 0.1
        assert np.abs(two.std(axis=0)[::-1] / sd - 1.0).max() < 0.1


# --- small rates ---------------------------------------------------------------------------------


def _against_counts(largest, trials):
    """E and sd of items by a Beta, over those by a Gamma, less 1."""
    rng = np.random.default_rng(0)
    score = 0.5 * largest * np.exp(-rng.uniform(0.0, 3.0, 10_000))
    n = np.round(np.exp(rng.uniform(*np.log(trials), len(score))))
    theta = np.minimum(rng.gamma(1 / 0.3, 0.3 * score), 1.0)
    frame = pd.DataFrame({"p": score, "hits": rng.binomial(n.astype(int), theta), "at_bats": n})
    counts = soc.PoissonItems(frame, score="p", count="hits", exposure="at_bats")
    found = []
    for items in (soc.BinomialItems(frame, **ROLES), counts):
        fit = soc.fit(soc.summarize(items, progress=False), progress=False)
        found.append(soc.item_posteriors(fit, items, quantiles=(), progress=False))
    ratio = (found[0] / found[1] - 1.0)[["theta_mean", "theta_sd"]]
    return ratio[found[1]["theta_mean"] < largest]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("largest", "trials", "error"),
    [(0.01, (200.0, 5e3), 0.01), (0.001, (2e3, 5e4), 0.001)],
)
def test_small_rates_are_those_of_counts(largest, trials, error):
    """In proportion to the rate: a Binomial's variance has a factor 1 - theta.

    With few trials a Gamma takes E(theta)^2 / n of Var(theta | t) for noise, whatever the rate.
    """
    assert _against_counts(largest, trials).abs().max().max() < error
