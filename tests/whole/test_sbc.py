"""Simulation-based calibration with 20 data sets, and that it finds bands of half the width.

The full study of 200 is `python -m tests.studies.sbc`; its result is in docs/dev/inference.md.
"""

import pytest

from tests.studies import sbc


@pytest.mark.slow
def test_ranks_are_uniform():
    """13 quantities by 20 fits: shares inside 90% have standard errors near 0.03 overall and 0.07
    for one quantity; the tests of uniformity are corrected for their number."""
    found = sbc.ranks(20, 5000, seed=7)
    result = sbc.table(found)
    assert len(result) == 13
    assert result["p corrected"].min() > 0.01
    assert 0.81 <= result["inside central 90%"].mean() <= 0.99
    assert result["inside central 90%"].min() >= 0.65


@pytest.mark.slow
def test_narrow_bands_are_found(monkeypatch):
    plain = sbc.curve_draws

    def narrow(fit, score):
        return tuple(x.mean(axis=0) + 0.5 * (x - x.mean(axis=0)) for x in plain(fit, score))

    monkeypatch.setattr(sbc, "curve_draws", narrow)
    inside = sbc.table(sbc.ranks(8, 5000, seed=7))["inside central 90%"]
    assert inside[[name for name in inside.index if " at " in name]].mean() < 0.75
