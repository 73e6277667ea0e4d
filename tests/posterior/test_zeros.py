"""Fits to items a quarter of whose thetas are exactly 0: what they recover."""

import numpy as np
import pytest

import soc_pymc as soc
from tests.studies import zeros as study
from tests.studies.common import items_covered

SHARE = 0.25
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=study.FAMILY)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def items(kind):
    return study.simulated(kind, 2000, SHARE, seed=0)[0]


@pytest.fixture(scope="module")
def theta(kind):
    return study.simulated(kind, 2000, SHARE, seed=0)[1]["theta"]


@pytest.fixture(scope="module")
def fit(kind, items, kept_fit):
    prior = getattr(soc, study.FAMILY[kind])(zero=True)

    def make():
        statistics = soc.summarize(items, bins=20, joint=True, progress=False)
        return soc.fit(statistics, prior, soc.VI(draws=200), progress=False)

    return kept_fit(f"zeros_{kind}", make)


@pytest.fixture(scope="module")
def scored(items, fit):
    return soc.item_posteriors(fit, items, draws="all", progress=False)


def test_the_share_of_zeros_is_recovered(fit, items):
    """The 90% band reaches within 0.03 of the true share at three scores."""
    score = items.source["score"].quantile([0.3, 0.5, 0.7])
    low, _, high = soc.bands(soc.calibration_curves(fit, score))["p_zero"].to_numpy()
    assert ((low < SHARE + 0.03) & (high > SHARE - 0.03)).all()


def test_probabilities_of_zero_are_frequencies(theta, scored):
    """In five classes of p_zero the share of zeros is expected within 4 standard errors."""
    zero, p_zero = theta == 0.0, scored["p_zero"]
    for _, rows in zero.groupby(np.minimum((5 * p_zero).astype(int), 4)):
        expected = p_zero[rows.index]
        error = np.sqrt(max((expected * (1 - expected)).sum(), 0.25))
        assert abs(rows.sum() - expected.sum()) < 4 * error


def test_intervals_cover(theta, scored):
    """90% intervals contain theta; they are wider where they end at the spike."""
    assert 0.88 < items_covered(scored, theta).mean() < 0.96
