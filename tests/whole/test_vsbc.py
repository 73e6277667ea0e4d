"""Variational simulation-based calibration with 20 data sets, and that it finds planted faults.

The full study of 100 is `python -m tests.studies.vsbc`; its result is in docs/dev/inference.md.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from tests.studies import vsbc


def summary(p):
    return vsbc.table(pd.DataFrame({"quantity": p})).loc["quantity"]


def test_what_the_tests_see():
    """400 normal approximations to N(0, 1). Wrong widths are symmetric: the spread shows them.

    A shift of 0.3 sd moves the distance to 0.24; without one 99 of 100 are below 0.14. The spread
    of draws with a share w of the width is 4 arctan(1 / w) / pi: 1.14 for 0.8.
    """
    z = np.random.default_rng(0).normal(size=400)
    for width in (0.8, 1.0, 1.25):
        row = summary(norm.cdf(z / width))
        assert row["p"] > 0.01
        assert abs(row["spread"] - 4 * np.arctan(1 / width) / np.pi) < 3 * row["its error"]
    assert summary(norm.cdf(z - 0.3))["p"] < 0.01


@pytest.mark.slow
def test_marginals_of_values_are_right_and_faults_are_found():
    """All 13 quantities together: p-values of a right fit are above 0.05 in 19 of 20 seeds.

    Draws shifted by 0.3 sd have a small p; the spread of draws of 0.8 of the width is off.
    """
    found, _ = vsbc.probabilities(20, 5000, seed=7, kind="normal")
    right, shifted, narrow = (vsbc.table(p).loc["all"] for p in found.values())
    assert right["p"] > 0.05
    assert abs(right["spread"] - 1) < 3 * right["its error"]
    assert shifted["p"] < 0.05
    assert narrow["spread"] - 1 > 2 * narrow["its error"]
