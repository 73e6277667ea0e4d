"""Counts that look like successes in trials: a warning of `summarize`, a row of `check`."""

import warnings

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

CELLS = [(0.26, 500, 50), (0.26, 500, 500), (0.7, 20, 50), (0.7, 200, 500), (0.9, 50, 100)]


def successes(mean, total, trials, n=4000, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.beta(total * mean, total * (1 - mean), n)
    score = np.clip(mean * np.exp(rng.normal(0.0, 0.02, n)), 0.01, 0.99)
    return pd.DataFrame({"t": score, "y": rng.binomial(trials, theta), "n": trials, "theta": theta})


def counts(frame):
    return soc.PoissonItems(frame, score="t", count="y", exposure="n")


def told(frame):
    """Warnings that these are trials."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        soc.summarize(counts(frame), progress=False)
    return [str(w.message) for w in found if "successes in trials" in str(w.message)]


@pytest.mark.parametrize("cell", CELLS)
def test_successes_as_counts_are_seen(cell):
    (text,) = told(successes(*cell))
    assert "use soc.BinomialItems" in text


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.assign(n=frame["n"] + 0.5),
        lambda frame: frame.assign(y=frame["y"].where(frame.index > 0, frame["n"] + 1)),
        lambda frame: successes(0.03, 200, 50),
    ],
    ids=["real exposures", "a count above its exposure", "small rates"],
)
def test_real_exposures_larger_counts_and_small_rates_are_not(change):
    assert told(change(successes(0.7, 20, 50))) == []


@pytest.mark.parametrize("seed", range(5))
def test_counts_of_few_exposures_are_not(seed):
    frame = soc.simulation.s1(2000, seed=seed)
    assert told(frame.rename(columns={"score": "t", "count": "y", "exposure": "n"})) == []


@pytest.mark.parametrize(
    ("cell", "verdict"),
    [(CELLS[2], "fail"), pytest.param(CELLS[1], "look", marks=pytest.mark.slow)],
)
def test_the_check_says_how_wrong_intervals_are(cell, verdict):
    frame = successes(*cell, n=1500)
    with pytest.warns(soc.ItemsWarning, match="successes in trials"):
        stats = soc.summarize(counts(frame), progress=False)
    fit = soc.fit(stats, progress=False)
    table = soc.check(fit, counts(frame), progress=False).table
    (row,) = table[table["check"] == "noise"].to_dict("records")
    assert row["verdict"] == verdict
