"""Variational simulation-based calibration with 20 data sets, and that it finds a shift.

The full study of 100 is `python -m tests.studies.vsbc`; its result is in docs/inference.md.
"""

import numpy as np
import pandas as pd
import pytest

from tests.studies import sbc, vsbc


def _of(p):
    return vsbc.symmetry(pd.DataFrame({"quantity": p})).loc["quantity"]


def test_symmetry_is_tested():
    """p of normal approximations to N(0, 1), 100 each: wrong widths are symmetric, a shift of half
    an sd is not. Under symmetry p-values are above 0.01 in 99 of 100; the shift's is 4 standard
    errors off. By hand: 0.1, 0.2 and 0.9 beside 0.9, 0.8 and 0.1 differ by a third at most."""
    from scipy.stats import norm

    z = np.random.default_rng(0).normal(size=100)
    for width in (0.5, 1.0, 2.0):
        assert _of(norm.cdf(z / width))["p"] > 0.01
    assert _of(norm.cdf(z + 0.5))["p"] < 0.01
    assert _of(norm.cdf(z + 0.5))["share below half"] < 0.45
    assert _of([0.1, 0.2, 0.9])["KS distance"] == pytest.approx(1 / 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "normal"])
def test_marginals_are_not_biased(kind):
    """13 quantities by 20 fits; p-values are corrected for their number."""
    found = sbc.ranks(20, 5000, seed=7, kind=kind)
    assert vsbc.symmetry(found.drop(columns=["converged", "pareto_k"]))["p corrected"].min() > 0.01


@pytest.mark.slow
def test_shifted_curves_are_found(monkeypatch):
    """A shift of one posterior sd moves p of 20 fits by 20^0.5 standard errors or so."""
    plain = sbc.curve_draws

    def shifted(fit, score):
        return tuple(x + x.std(axis=0) for x in plain(fit, score))

    monkeypatch.setattr(sbc, "curve_draws", shifted)
    found = sbc.ranks(20, 5000, seed=7)
    table = vsbc.symmetry(found.drop(columns=["converged", "pareto_k"]))
    curves = table.loc[[name for name in table.index if " at " in name]]
    assert curves["p corrected"].max() < 0.05
    assert curves["share below half"].min() > 0.5
