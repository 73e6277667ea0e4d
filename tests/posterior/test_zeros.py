"""Fits to items a quarter of whose thetas are exactly 0: what they recover."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.examples import COUNT_ROLES, VALUE_ROLES

SHARE = 0.25
CASES = {
    "counts": (soc.PoissonItems, COUNT_ROLES, soc.Gamma),
    "values": (soc.NormalItems, VALUE_ROLES, soc.Normal),
}
pytestmark = pytest.mark.slow


def simulated(kind, number=2000):
    """Returns a frame with theta, of which a quarter is 0; the rest is Gamma or Normal."""
    rng = np.random.default_rng(0)
    if kind == "counts":
        score = np.exp(rng.normal(np.log(0.02), 0.8, number))
        exposure = np.ceil(np.exp(rng.normal(np.log(80.0), 1.2, number)))
        theta = score * rng.gamma(2.0, 0.5, number)
        theta[rng.random(number) < SHARE] = 0.0
        columns = {"count": rng.poisson(theta * exposure), "exposure": exposure}
    else:
        score, noise_sd = rng.normal(size=number), np.exp(rng.normal(np.log(0.4), 0.5, number))
        theta = 0.5 + 0.8 * score + 0.5 * rng.normal(size=number)
        theta[rng.random(number) < SHARE] = 0.0
        columns = {"value": rng.normal(theta, noise_sd), "noise_sd": noise_sd}
    return pd.DataFrame({"score": score, **columns, "theta": theta})


def items_of(kind, frame):
    """Returns a frame as items."""
    make, roles, _ = CASES[kind]
    return make(frame, **roles)


@pytest.fixture(scope="module", params=CASES)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def frame(kind):
    return simulated(kind)


@pytest.fixture(scope="module")
def fit(kind, frame, kept_fit):
    statistics = soc.summarize(items_of(kind, frame), bins=20, joint=True, progress=False)

    prior = CASES[kind][2](zero=True)

    def make():
        return soc.fit(statistics, prior, soc.VI(draws=200), progress=False)

    return kept_fit(f"zeros_{kind}", make)


@pytest.fixture(scope="module")
def scored(kind, frame, fit):
    return soc.item_posteriors(fit, items_of(kind, frame), draws="all", progress=False)


def test_the_share_of_zeros_is_recovered(fit, frame):
    """The 90% band reaches within 0.03 of the true share at three scores."""
    score = frame["score"].quantile([0.3, 0.5, 0.7])
    low, _, high = soc.bands(soc.calibration_curves(fit, score))["p_zero"].to_numpy()
    assert ((low < SHARE + 0.03) & (high > SHARE - 0.03)).all()


def test_probabilities_of_zero_are_frequencies(frame, scored):
    """In five classes of p_zero the share of zeros is expected within 4 standard errors."""
    zero, p_zero = frame["theta"] == 0.0, scored["p_zero"]
    for _, rows in zero.groupby(np.minimum((5 * p_zero).astype(int), 4)):
        expected = p_zero[rows.index]
        error = np.sqrt(max((expected * (1 - expected)).sum(), 0.25))
        assert abs(rows.sum() - expected.sum()) < 4 * error


def test_intervals_cover(frame, scored):
    """90% intervals contain theta; they are wider where they end at the spike."""
    inside = (scored["theta_q05"] <= frame["theta"]) & (frame["theta"] <= scored["theta_q95"])
    assert 0.88 < inside.mean() < 0.96
