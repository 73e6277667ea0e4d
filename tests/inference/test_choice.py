"""Choice between a conjugate prior and a mixture, on simulations from both.

Leave-one-out of all items from joint cells. Where one family is true it must be preferred, although
by little (a mixture can be all but the same); where it is not, the mixture must be by far.
"""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

ITEMS = 15_000
QUIET = {"progress": False}


def counts(gamma):
    if gamma:
        frame = soc.simulation.s1(ITEMS, seed=0)
    else:
        frame = soc.simulation.click_rates(ITEMS, sigma=1.0, seed=0)
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


def values(normal):
    rng = np.random.default_rng(0)
    score, noise = rng.normal(0.0, 1.2, ITEMS), np.exp(rng.normal(-0.3, 0.4, ITEMS))
    theta = rng.normal(score, 0.8) if normal else rng.laplace(score, 1.0)
    frame = pd.DataFrame({"score": score, "noise_sd": noise, "value": rng.normal(theta, noise)})
    return soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "conjugate", "single", "mixture"),
    [
        (counts, True, soc.Gamma(), soc.GammaMixture()),
        (counts, False, soc.Gamma(), soc.GammaMixture()),
        (values, False, soc.Normal(), soc.NormalMixture()),
    ],
    ids=["gamma", "lognormal", "laplace"],
)
def test_the_true_family_is_preferred(make, conjugate, single, mixture):
    """The check of the single family also advises the mixture where that is true."""
    items = make(conjugate)
    stats = soc.summarize(items, joint=True, **QUIET)
    priors = {"single": single, "mixture": mixture}
    fits = {name: soc.fit(stats, prior, **QUIET) for name, prior in priors.items()}
    table = soc.compare(fits, stats, **QUIET)
    difference = table.loc["mixture", "elpd"] - table.loc["single", "elpd"]
    if conjugate:
        assert difference < 0
        return
    assert difference > 4 * table["dse"].max()
    advice = " ".join(soc.check(fits["single"], items, **QUIET).advice)
    assert type(mixture).__name__ in advice
    assert "fail" not in set(soc.check(fits["mixture"], stats, **QUIET).table["verdict"])
