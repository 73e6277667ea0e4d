"""Right answers on simulation S1: a small version of the study.

The full one of 50 data sets is `python -m tests.studies.s1`; README and docs/dev/inference.md have
its result.
"""

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.posterior.curves import curve_draws
from tests.oracles import s1_curves
from tests.studies import s1


@pytest.mark.slow
def test_small():
    """Three seeds. Limits are the study's widened by about 3 standard errors of three seeds:
    0.003 for items (0.006 a fifth), 0.1 for bands (42 correlated indicators)."""
    outcomes = [s1.one_seed(seed) for seed in range(3)]
    averages = s1.table(outcomes)["average"]
    assert 0.885 <= averages["items, overall"] <= 0.915
    for j in range(5):
        assert 0.87 <= averages[f"items, fifth {j + 1} of t"] <= 0.93
    assert averages["RMSE over the oracle's"] < 1.015
    assert 0.76 <= averages["bands, both curves"] <= 1.0
    assert averages["converged"] == 1


@pytest.mark.slow
def test_wide_bins_tell_the_truth_about_the_ends():
    """20 bins of 10,000 items: without the spread of scores within them, log cv2 at the 98% point
    of t is 7.7 posterior sd too high. Ten z-values, of which one may reach 3.5."""
    frame = soc.simulation.s1(200_000, seed=4)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    fit = soc.fit(soc.summarize(items, bins=20, progress=False), progress=False)
    score = frame["score"].quantile([0.02, 0.25, 0.5, 0.75, 0.98]).to_numpy()
    for draws, truth in zip(curve_draws(fit, score), s1_curves(score), strict=True):
        assert np.abs((draws.mean(axis=0) - truth) / draws.std(axis=0)).max() < 3.5
