"""Scores that saw their outcomes, and counts that look like trials: refused, or warned of."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.examples import thinned
from tests.tables import KINDS, ROLES, simulated

pytestmark = pytest.mark.filterwarnings("ignore:.*(shared by many|bins instead of)")


def leaky(kind, frame):
    """Returns the items with scores shrunk towards their own outcomes."""
    if kind == "values":
        weight = 0.25 / (0.25 + frame["s"] ** 2)
        return frame.assign(t=frame["t"] + (frame["v"] - frame["t"]) * weight)
    if kind == "amounts":
        return frame.assign(t=(frame["x"] + 4 * frame["t"]) / (frame["N"] + 4))
    prior = {"counts": 20, "successes": 2}[kind]
    return frame.assign(t=(frame["y"] + 1) / (frame["N"] + prior))


def summarized(kind, frame, **options):
    make, roles = KINDS[kind]
    return soc.summarize(make(frame, **roles), **{"joint": False, "progress": False} | options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", thinned(range(8), range(2)))
def test_honest_scores_do_not_leak(kind, seed):
    """z is about standard normal; the largest of 72 is beyond 4.5 with probability 5e-4."""
    frame = simulated(kind, seed, size=None if seed % 2 else 20)
    for bins in (100, 1000, 2500):
        assert abs(summarized(kind, frame, bins=bins, on_leakage="ignore").leakage_z) < 4.5


def test_yes_or_no_outcomes_do_not_leak():
    rng = np.random.default_rng(0)
    t = rng.uniform(0.05, 0.6, 20_000)
    frame = pd.DataFrame({"t": t, "y": rng.binomial(1, t), "N": 1})
    assert abs(summarized("counts", frame).leakage_z) < 3
    assert summarized("successes", frame).leakage_z == 0  # labels say nothing of the variation


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [None, 20])
def test_scores_that_saw_their_outcomes_are_refused(kind, size):
    spread = 0.1 if kind == "successes" else 0.5
    size = 1.0 if kind == "values" and size else size
    frame = simulated(kind, spread=spread, size=size)
    assert summarized(kind, frame, bins=50).leakage_z > 3
    for bins in (None, 20, 200):
        with pytest.raises(soc.ItemsError, match="vary far less"):
            summarized(kind, leaky(kind, frame), bins=bins)


def test_leaks_can_be_told_or_ignored(recwarn):
    frame = leaky("counts", simulated("counts", spread=0.5))
    assert summarized("counts", frame, on_leakage="ignore", bins=20).leakage_z < -6
    assert not [w for w in recwarn if "vary far less" in str(w.message)]
    with pytest.warns(soc.ItemsWarning, match="vary far less"):
        summarized("counts", frame, on_leakage="warn")


# mean, a + b of the Beta distribution of theta, trials
CELLS = [(0.26, 500, 50), (0.26, 500, 500), (0.7, 20, 50), (0.7, 200, 500), (0.9, 50, 100)]
DOUBT = "BinomialItems"


def beta_successes(mean, total, trials, n=4000, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.beta(total * mean, total * (1 - mean), n)
    score = np.clip(mean * np.exp(rng.normal(0.0, 0.02, n)), 0.01, 0.99)
    return pd.DataFrame({"t": score, "y": rng.binomial(trials, theta), "N": trials})


def summarized_counts(frame):
    return soc.summarize(soc.PoissonItems(frame, **ROLES), progress=False)


@pytest.mark.parametrize("cell", CELLS)
def test_successes_as_counts_are_told(cell):
    with pytest.warns(soc.ItemsWarning, match=DOUBT):
        summarized_counts(beta_successes(*cell))


@pytest.mark.parametrize(
    "make",
    [
        lambda frame: frame.assign(N=frame["N"] + 0.5),
        lambda frame: frame.assign(y=frame["y"].where(frame.index > 0, frame["N"] + 1)),
        lambda frame: beta_successes(0.03, 200, 50),
        lambda frame: soc.simulation.s1(2000, seed=0).rename(columns=ROLES),
    ],
    ids=["real exposures", "a count above its exposure", "small rates", "counts"],
)
def test_counts_are_not(make, recwarn):
    summarized_counts(make(beta_successes(0.7, 20, 50)))
    assert not [warning for warning in recwarn if DOUBT in str(warning.message)]
