"""Choice between a conjugate prior and a mixture, on simulations from both.

Leave-one-out of all items from joint cells. Where one family is true it must be preferred, although
by little (a mixture can be all but the same); where it is not, the mixture must be by far.
"""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

ITEMS = 20_000


def _counts(truth, seed):
    if truth == "gamma":
        frame = soc.simulation.s1(ITEMS, seed=seed)
    else:
        frame = soc.simulation.click_rates(ITEMS, sigma=1.0, seed=seed)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    return items, soc.summarize(items, joint=True, progress=False)


def _values(truth, seed):
    rng = np.random.default_rng(seed)
    t, s = rng.normal(0.0, 1.2, ITEMS), np.exp(rng.normal(-0.3, 0.4, ITEMS))
    if truth == "normal":
        theta = rng.normal(t, 0.8)
    else:
        theta = rng.laplace(t, 1.0)
    frame = pd.DataFrame({"score": t, "noise_sd": s, "value": rng.normal(theta, s)})
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    return items, soc.summarize(items, joint=True, progress=False)


def _difference(stats, one, mixture):
    """Elpd of the mixture less that of one family, in nats, and its standard error."""
    fits = {"one": soc.fit(stats, one, progress=False)}
    fits["mixture"] = soc.fit(stats, mixture, progress=False)
    table = soc.compare(fits, stats, progress=False)
    difference = table.loc["mixture", "elpd"] - table.loc["one", "elpd"]
    return float(difference), float(table["dse"].max()), fits


@pytest.mark.slow
def test_one_gamma_is_preferred_where_it_is_true():
    _, stats = _counts("gamma", 0)
    difference, _, _ = _difference(stats, soc.Gamma(), soc.GammaMixture())
    assert difference < 0


@pytest.mark.slow
def test_the_mixture_of_gammas_is_preferred_where_theta_is_lognormal():
    """The check of the single Gamma also advises a mixture."""
    items, stats = _counts("lognormal", 0)
    difference, se, fits = _difference(stats, soc.Gamma(), soc.GammaMixture())
    assert difference > 4 * se
    assert difference > 30
    result = soc.check(fits["one"], items, progress=False)
    assert "GammaMixture" in " ".join(result.advice)
    ours = soc.check(fits["mixture"], stats, progress=False)
    assert "fail" not in set(ours.table["verdict"])


@pytest.mark.slow
def test_one_normal_is_preferred_where_it_is_true():
    _, stats = _values("normal", 0)
    difference, _, _ = _difference(stats, soc.Normal(), soc.NormalMixture())
    assert difference < 0


@pytest.mark.slow
def test_the_mixture_of_normals_is_preferred_where_theta_is_laplace():
    items, stats = _values("laplace", 0)
    difference, se, fits = _difference(stats, soc.Normal(), soc.NormalMixture())
    assert difference > 4 * se
    result = soc.check(fits["one"], items, progress=False)
    assert "NormalMixture" in " ".join(result.advice)
