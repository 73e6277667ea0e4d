"""Few nodes against every draw, for every family, with every term."""

import numpy as np
import pandas as pd
import pytest
from scipy import special

import soc_pymc as soc

N, SCORED = 2000, 300
TERMS = {
    "plain": {},
    "exposure": {"exposure": soc.Spline()},
    "groups": {},
    "bins": {"bin_effects": True},
    "zero": {"zero": True},
}
CASES = [(f, t) for f in ("Gamma", "Normal", "Beta") for t in TERMS if t != "zero"]
CASES += [("GammaMixture", "exposure"), ("NormalMixture", "groups"), ("BetaMixture", "plain")]
CASES += [("Gamma", "zero"), ("Normal", "zero")]
COLUMNS = ["theta_mean", "theta_sd", "theta_q02_5", "theta_q05", "theta_q50", "theta_q97_5"]


def items_of(family, term):
    """Items whose theta depends on score, size and group."""
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=N), rng.normal(size=N)
    group = rng.choice(["a", "b", "c"], N)
    own = 0.8 * x + 0.1 * u + 0.2 * (group == "b")
    roles = {"group": "group"} if term == "groups" else {}
    if family.startswith("Gamma"):
        size = np.ceil(np.exp(2.5 + u))
        theta = 0.05 * np.exp(own) * rng.gamma(3.0, 1.0 / 3.0, N)
        table = {"t": 0.05 * np.exp(x), "y": rng.poisson(size * theta), "n": size}
        return soc.PoissonItems(
            pd.DataFrame({**table, "group": group}), score="t", count="y", exposure="n", **roles
        )
    if family.startswith("Normal"):
        size = np.exp(0.5 * u - 0.5)
        theta = own + 0.5 * rng.normal(size=N)
        table = {"t": x, "y": theta + size * rng.normal(size=N), "n": size}
        return soc.NormalItems(
            pd.DataFrame({**table, "group": group}), score="t", value="y", noise_sd="n", **roles
        )
    size = np.ceil(np.exp(2.5 + u)) + 1.0
    mean = special.expit(own - 1.0)
    theta = rng.beta(8.0 * mean, 8.0 * (1.0 - mean))
    table = {"t": special.expit(x - 1.0), "y": rng.binomial(size.astype(int), theta), "n": size}
    return soc.BinomialItems(
        pd.DataFrame({**table, "group": group}), score="t", successes="y", trials="n", **roles
    )


@pytest.mark.slow
@pytest.mark.parametrize(("family", "term"), CASES)
def test_within_a_thousandth_of_a_posterior_sd(family, term, kept_fit):
    """Mean, sd and quantiles of `draws="auto"`; and most items are not scored over all draws."""
    items = items_of(family, term)

    def make():
        stats = soc.summarize(items, bins=40, joint=True, progress=False)
        prior = getattr(soc, family)(**TERMS[term])
        return soc.fit(stats, prior, soc.VI(draws=400, seed=0), progress=False)

    fit = kept_fit(f"auto_{family}_{term}", make)
    # cells' points are made for mixtures only if there are as many items
    every = type(items)(pd.concat([items.source] * 3, ignore_index=True), **items.roles)
    given = {"quantiles": (0.025, 0.05, 0.5, 0.975), "progress": False}
    near = soc.item_posteriors(fit, every, **given).head(SCORED)
    few = type(items)(items.source.head(SCORED), **items.roles)
    exact = soc.item_posteriors(fit, few, draws="all", **given)
    error = (near[COLUMNS] - exact[COLUMNS]).abs().div(exact["theta_sd"], axis=0).max(axis=1)
    if fit.prior.zero:  # a quantile jumps where its probability is the share of zeros
        far = (exact["p_zero"].to_numpy()[:, None] - [0.025, 0.05, 0.5, 0.975]).T
        error = error[(np.abs(far) > 1e-3).all(axis=0)]
    # moments of a mixture's weights in a table are least accurate at the outermost scores
    assert error.max() < (2e-3 if fit.prior.gridded else 1e-3)
    assert (error > 0).mean() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("term", ["plain", "exposure"])
def test_items_beside_an_atom(term):
    """On a scale of ranks an atom is an edge of cells, whose curves are those beside it."""
    rng = np.random.default_rng(0)
    score = np.exp(rng.normal(-3.0, 0.8, 20_000))
    score[:2000] = 0.05
    size = np.ceil(np.exp(rng.normal(2.0, 1.0, len(score))))
    theta = rng.gamma(3.0, np.where(score == 0.05, 0.15, score) / 3.0)
    frame = pd.DataFrame({"t": score, "y": rng.poisson(theta * size), "n": size})
    ranks = soc.Spline(scale="rank")
    prior = soc.GammaMixture(mean=ranks, variance=ranks, **TERMS[term])
    roles = {"score": "t", "count": "y", "exposure": "n"}
    with pytest.warns(soc.ItemsWarning, match="shared by many items"):
        stats = soc.summarize(soc.PoissonItems(frame, **roles), progress=False)
    fit = soc.fit(stats, prior, soc.VI(draws=400), progress=False)
    assert fit.atoms == (0.05,)
    beside = frame[(frame["t"] > 0.0495) & (frame["t"] < 0.0505) & (frame["t"] != 0.05)]
    beside = soc.PoissonItems(pd.concat([beside.head(40)] * 60, ignore_index=True), **roles)
    near = soc.item_posteriors(fit, beside, progress=False)
    exact = soc.item_posteriors(fit, beside, draws="all", progress=False)
    off = (near["theta_mean"] - exact["theta_mean"]).abs() / exact["theta_sd"]
    assert off.max() < 1e-3
