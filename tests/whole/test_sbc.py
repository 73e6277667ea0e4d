"""Simulation-based calibration on a few data sets, and that it finds faulty posteriors.

The full studies are `python -m tests.studies.sbc`, of 200 data sets, and `tests.studies.vsbc`, of
100; their results are in docs/dev/inference.md.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from tests.studies import sbc, vsbc

CHANGES = {
    "right": lambda draws: draws,
    "narrow": lambda draws: draws.mean() + 0.5 * (draws - draws.mean()),
    "shifted": lambda draws: draws + 0.75 * draws.std(),
}


@pytest.mark.slow
def test_ranks_are_uniform_and_faults_are_found():
    """13 quantities by 14 fits: shares inside 90% have standard errors near 0.03 overall and 0.08
    for one quantity; the tests of uniformity are corrected for their number."""
    fits = [quantities for _, quantities in sbc.replicates(14, 1500, seed=7)]
    ranks = {
        fault: pd.DataFrame(
            {name: sbc.rank(change(draws), *truth) for name, draws, *truth in quantities}
            for quantities in fits
        )
        for fault, change in CHANGES.items()
    }
    right, narrow = (sbc.table(ranks[fault]) for fault in ("right", "narrow"))
    assert len(right) == 13
    assert right["p corrected"].min() > 0.01
    assert 0.81 <= right["inside central 90%"].mean() <= 0.99
    assert right["inside central 90%"].min() >= 0.64
    curves = [name for name in narrow.index if " at " in name]
    assert narrow.loc[curves, "inside central 90%"].mean() < 0.75
    assert vsbc.table(ranks["right"]).loc["all", "p"] > 0.05
    assert vsbc.table(ranks["shifted"]).loc["all", "p"] < 0.05


def test_what_the_symmetry_of_ranks_sees():
    """400 normal approximations to N(0, 1). Wrong widths are symmetric: the spread shows them.

    A shift of 0.3 sd moves the distance to 0.24; without one 99 of 100 are below 0.14. The spread
    of draws with a share w of the width is 4 arctan(1 / w) / pi: 1.14 for 0.8.
    """
    z = np.random.default_rng(0).normal(size=400)
    for width in (0.8, 1.0, 1.25):
        row = vsbc.table(pd.DataFrame({"z": norm.cdf(z / width)})).loc["z"]
        assert row["p"] > 0.01
        assert abs(row["spread"] - 4 * np.arctan(1 / width) / np.pi) < 3 * row["its error"]
    assert vsbc.table(pd.DataFrame({"z": norm.cdf(z - 0.3)})).loc["z", "p"] < 0.01
