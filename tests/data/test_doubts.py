"""Counts that look like successes in trials, of which `summarize` warns."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.tables import ROLES

# mean, a + b of the Beta distribution of theta, trials
CELLS = [(0.26, 500, 50), (0.26, 500, 500), (0.7, 20, 50), (0.7, 200, 500), (0.9, 50, 100)]
DOUBT = "BinomialItems"


def successes(mean, total, trials, n=4000, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.beta(total * mean, total * (1 - mean), n)
    score = np.clip(mean * np.exp(rng.normal(0.0, 0.02, n)), 0.01, 0.99)
    return pd.DataFrame({"t": score, "y": rng.binomial(trials, theta), "N": trials})


def summarized(frame):
    return soc.summarize(soc.PoissonItems(frame, **ROLES), progress=False)


@pytest.mark.parametrize("cell", CELLS)
def test_successes_as_counts_are_told(cell):
    with pytest.warns(soc.ItemsWarning, match=DOUBT):
        summarized(successes(*cell))


@pytest.mark.parametrize(
    "make",
    [
        lambda frame: frame.assign(N=frame["N"] + 0.5),
        lambda frame: frame.assign(y=frame["y"].where(frame.index > 0, frame["N"] + 1)),
        lambda frame: successes(0.03, 200, 50),
        lambda frame: soc.simulation.s1(2000, seed=0).rename(columns=ROLES),
    ],
    ids=["real exposures", "a count above its exposure", "small rates", "counts"],
)
def test_counts_are_not(make, recwarn):
    summarized(make(successes(0.7, 20, 50)))
    assert not [warning for warning in recwarn if DOUBT in str(warning.message)]
