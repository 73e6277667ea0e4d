"""Variational simulation-based calibration with 40 data sets, and that it finds planted faults.

The full study of 100 is `python -m tests.studies.vsbc`; its result is in docs/dev/inference.md.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from tests.studies import vsbc


def _of(p):
    return vsbc.table(pd.DataFrame({"quantity": p})).loc["quantity"]


def test_distance_by_hand():
    """0.1, 0.2 and 0.9 beside 0.9, 0.8 and 0.1: below 0.2 lie two thirds and one third."""
    assert _of([0.1, 0.2, 0.9])["KS distance"] == pytest.approx(1 / 3)
    assert _of([0.1, 0.2, 0.9])["spread"] == pytest.approx(4 * (0.4 + 0.3 + 0.4) / 3)


def test_what_the_tests_see():
    """400 normal approximations to N(0, 1). Wrong widths are symmetric: the spread shows them.

    A shift of 0.3 sd moves the distance to 0.24; without one 99 of 100 are below 0.14. The spread
    of draws with a share w of the width is 4 arctan(1 / w) / pi: 1.14 for 0.8.
    """
    z = np.random.default_rng(0).normal(size=400)
    for width in (0.8, 1.0, 1.25):
        row = _of(norm.cdf(z / width))
        assert row["p"] > 0.01
        assert abs(row["spread"] - 4 * np.arctan(1 / width) / np.pi) < 3 * row["its error"]
    assert _of(norm.cdf(z - 0.3))["p"] < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "normal"])
def test_marginals_are_right_and_faults_are_found(kind):
    """All 13 quantities together: p-values of a right fit are above 0.05 in 19 of 20 seeds.

    In 20 samples of 40 from the study's 200 fits of counts, those of draws shifted by 0.3 sd were
    at most 0.006, here 0.013 and less. The spread was within 1.5 errors of 1, that of draws of 0.8
    of the width 3.8 to 7.4 errors above.
    """
    found, _ = vsbc.probabilities(40, 5000, seed=7, kind=kind)
    right, shifted, narrow = (vsbc.table(p).loc["all"] for p in found.values())
    assert right["p"] > 0.05
    assert abs(right["spread"] - 1) < 3 * right["its error"]
    assert shifted["p"] < 0.05
    assert narrow["spread"] - 1 > 3 * narrow["its error"]
