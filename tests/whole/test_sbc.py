"""Simulation-based calibration on a few data sets, and that it finds bands of half the width.

The full study of 200 is `python -m tests.studies.sbc`; its result is in docs/dev/inference.md.
"""

import pandas as pd
import pytest

from tests.studies import sbc


def narrow(draws):
    return draws.mean() + 0.5 * (draws - draws.mean())


@pytest.mark.slow
def test_ranks_are_uniform_and_narrow_bands_are_found():
    """13 quantities by 14 fits: shares inside 90% have standard errors near 0.03 overall and 0.08
    for one quantity; the tests of uniformity are corrected for their number."""
    fits = [quantities for _, quantities in sbc.replicates(14, 5000, seed=7)]
    right, wrong = (
        sbc.table(
            pd.DataFrame(
                {name: sbc.rank(change(draws), *truth) for name, draws, *truth in quantities}
                for quantities in fits
            )
        )
        for change in (lambda draws: draws, narrow)
    )
    assert len(right) == 13
    assert right["p corrected"].min() > 0.01
    assert 0.81 <= right["inside central 90%"].mean() <= 0.99
    assert right["inside central 90%"].min() >= 0.64
    curves = [name for name in wrong.index if " at " in name]
    assert wrong.loc[curves, "inside central 90%"].mean() < 0.75
