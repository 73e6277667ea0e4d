"""Theta that is a mixture, or exactly 0: moments, quantiles, averages, and further outcomes."""

import numpy as np
import pytest
from scipy import optimize

from soc_pymc.decisions import expected_variance, value_of_outcome
from soc_pymc.posterior.item_columns import ThetaMixture
from tests.family_records import RECORDS, SHAPE

# conjugate parameters of three components of two items
PARAMETERS = {
    "Gamma": (np.array([[2.5], [0.7]]), np.array([[3.0, 5.0, 9.0], [0.1, 1.0, 40.0]])),
    "Normal": (np.array([[-1.0, 0.2, 2.0], [0.5, 0.6, 0.7]]), np.array([[0.3], [1.1]])),
    "Beta": (
        np.array([[2.0, 4.0, 1.0], [0.5, 8.0, 3.0]]),
        np.array([[9.0, 2.0, 5.0], [6.0, 6.0, 0.8]]),
    ),
    "InverseGamma": (np.array([[6.0], [20.0]]), np.array([[3.0, 5.0, 9.0], [0.1, 1.0, 40.0]])),
}
WEIGHT = np.array([[0.2, 0.3, 0.1, 0.4], [0.25, 0.35, 0.38, 0.02]])
WEIGHTS = {  # of the components, and of theta = 0
    "zeros": WEIGHT,
    "no zeros": np.array([[0.2, 0.3, 0.5, 0.0], [0.9, 0.001, 0.099, 0.0]]),
    "one component": np.array([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]),
}
PROBS = (0.003, 0.05, 0.3, 0.51, 0.7, 0.95, 0.999)


@pytest.mark.parametrize("shares", WEIGHTS)
def test_summaries_by_the_cdf(record, shares):
    """Moments by sums; a quantile is where the cdf, with its step at 0, reaches it."""
    family, weight, (a, b) = record.family, WEIGHTS[shares], PARAMETERS[record.family.name]
    rest = weight[:, :3] / weight[:, :3].sum(axis=1, keepdims=True)
    *result, zero = family.summaries(rest.T, a.T, b.T, PROBS, weight[:, 3])
    np.testing.assert_array_equal(zero, weight[:, 3])
    result = np.array(result)
    law = record.theta(*np.broadcast_arrays(a, b))
    means, variances = law.stats("mv")
    mean = (weight[:, :3] * means).sum(axis=1)
    variance = (weight[:, :3] * (variances + means**2)).sum(axis=1) - mean**2
    np.testing.assert_allclose(result[:3], [mean, np.sqrt(variance), variance], rtol=1e-10)
    if not weight[:, 3].any():
        plain = family.summaries(rest.T, a.T, b.T, PROBS)
        sd = np.sqrt(variance)
        np.testing.assert_allclose(plain[:3], result[:3], rtol=1e-10)
        np.testing.assert_allclose(plain[3:] / sd, result[3:] / sd, atol=5e-4)
    for i in range(2):

        def cdf(theta, i=i):
            return weight[i, :3] @ law.cdf(theta)[i] + weight[i, 3] * (theta >= 0.0)

        ends = law.ppf(1e-9)[i].min(), law.ppf(1.0 - 1e-12)[i].max()
        for prob, theta in zip(PROBS, result[3:, i], strict=True):
            if cdf(-1e-12) <= prob <= cdf(0.0) and weight[i, 3]:
                assert theta == 0.0
                continue
            exact = optimize.brentq(lambda x, p=prob: cdf(x) - p, *ends, xtol=1e-13)
            assert theta == pytest.approx(exact, abs=5e-4 * result[1, i])


def test_summaries_of_zero(record):
    """No component counts where theta is 0 for certain."""
    a, b = PARAMETERS[record.family.name]
    nothing = np.zeros((3, 1))
    result = record.family.summaries(nothing, a.T[:, :1], b.T[:, :1], PROBS, np.ones(1))
    np.testing.assert_array_equal(result.ravel(), [0.0] * (3 + len(PROBS)) + [1.0])


def test_averages_with_zero(record):
    family = record.family
    a, b = np.broadcast_arrays(*PARAMETERS[family.name])
    share = WEIGHT[:, :3] / WEIGHT[:, :3].sum(axis=1, keepdims=True)
    theta = ThetaMixture(a.T, b.T, share.T, WEIGHT[:, 3])
    mean = (WEIGHT[:, :3] * record.theta(a, b).mean()).sum(axis=1)
    assert theta.average(family.mean(a.T, b.T)) == pytest.approx(mean)
    listed = theta.listed(family)
    assert listed.weight == pytest.approx(WEIGHT.T)
    assert listed.average(family.mean(listed.a, listed.b)) == pytest.approx(mean)
    cut = np.array([0.1, 0.4])
    over = theta.average(family.excess(cut, a.T, b.T), 0.0)
    short = theta.average(family.shortfall(cut, a.T, b.T), cut)
    assert over - short == pytest.approx(mean - cut)


# --- further outcomes: against direct sums over all of them ---------------------------------------

# conjugate parameters of components (as a mixture of one item has them), sizes and cuts
COMPONENTS = {
    "Gamma": (np.full(4, 5.0), np.array([40.0, 90.0, 160.0, 400.0])),
    "Normal": (np.array([-0.5, 0.3, 0.9, 2.0]), np.full(4, 0.09)),
    "Beta": (np.array([2.0, 9.0, 4.0, 0.7]), np.array([9.0, 11.0, 2.0, 6.0])),
    "InverseGamma": (np.full(4, 9.0), np.array([3.0, 7.0, 15.0, 40.0])),
}
SIZES = {
    **{"Gamma": (3.0, 80.0, 2000.0), "Normal": (0.05, 0.7, 20.0), "Beta": (1.0, 20.0, 3000.0)},
    "InverseGamma": (1.0, 20.0, 400.0),
}
CUTS = {
    **{"Gamma": (0.02, 0.05, 0.09, 0.3), "Normal": (-1.0, 0.4, 0.6, 3.0), "Beta": (0.1, 0.3, 0.6)},
    "InverseGamma": (0.3, 1.0, 2.0, 6.0),
}
SHARES = np.array([0.2, 0.5, 0.0, 0.3])


def by_all_outcomes(record, a, b, weight, size, cut):
    """Expected posterior variance, and value of choosing at a cut with the further outcome."""
    ends = [record.outcomes(*prior, size)[0] for prior in zip(a, b, strict=True)]
    if record.family.outcome.whole:
        y, step = max(ends, key=len)[:, None], 1.0
    else:
        space = np.geomspace if record.family.outcome.positive else np.linspace
        y = space(min(e[0] for e in ends), max(e[-1] for e in ends), 40_001)[:, None]
        step = np.gradient(y[:, 0])
    marginal = record.marginal(a, b, size)
    p = weight * (marginal.pmf(y) if record.family.outcome.whole else marginal.pdf(y))
    after = record.family.update(a, b, y, size)
    means, variances = np.broadcast_arrays(
        record.family.mean(*after), record.family.variance(*after)
    )
    total = np.maximum(p.sum(axis=1), 1e-300)
    mean = (p * means).sum(axis=1) / total
    variance = (step * (p * (variances + (means - mean[:, None]) ** 2)).sum(axis=1)).sum()
    now = weight @ record.family.mean(a, b)
    value = (step * total * np.maximum(mean - cut, 0.0)).sum() - max(now - cut, 0.0)
    return variance, value


@pytest.mark.parametrize("weighted", [True, False])
def test_value_and_expected_variance(name, weighted):
    record, (a, b) = RECORDS[name], COMPONENTS[name]
    family = record.family
    weight = SHARES if weighted else np.full(4, 0.25)
    theta = ThetaMixture(a[:, None], b[:, None], weight[:, None] if weighted else None)
    for size in SIZES[name]:
        more = np.array([size])
        for cut in CUTS[name]:
            variance, value = by_all_outcomes(record, a, b, weight, size, cut)
            result = value_of_outcome(family, theta, theta, more, np.array([cut]))[0]
            # the sum of values has a step at the kink
            assert result == pytest.approx(
                value, rel=1e-7, abs=1e-9 if family.outcome.whole else 1e-6
            )
        if weighted:  # from a grid of at most 256 outcomes
            assert expected_variance(family, theta, more)[0] == pytest.approx(variance, rel=1e-4)


def test_one_component_has_the_closed_form(name):
    """E Var = variance / (1 + gain), also for many outcomes and where most counts are 0."""
    family = RECORDS[name].family
    a, b, more = {
        "Gamma": ([9.0, 900.0, 0.5], [0.3, 0.03, 0.25], [3000.0, 30.0, 2.5]),
        "Normal": ([0.0, 1e3, -5.0], [1.0, 4.0, 1e-4], [0.01, 30.0, 1.0]),
        "Beta": ([9.0, 0.5, 3e3], [3.0, 2.0, 9e3], [3000.0, 1.0, 100.0]),
        "InverseGamma": ([9.0, 900.0, 6.0], [0.3, 0.03, 0.25], [3000.0, 30.0, 2.0]),
    }[name]
    a, b, more = (np.array([column]) for column in (a, b, more))
    result = expected_variance(family, ThetaMixture(a, b, np.ones((1, 3))), more[0])
    mean, variance = family.mean(a, b)[0], family.variance(a, b)[0]
    gain = family.outcome.response(more[0], mean, variance)
    closed = {
        "Gamma": a / (b * (b + more)),
        "Normal": b / (1.0 + b / more**2),
        "Beta": variance * (a + b) / (a + b + more),
        "InverseGamma": variance * (a - 1.0) / (a - 1.0 + SHAPE * more),
    }[name]
    np.testing.assert_allclose(result, np.ravel(closed), rtol=1e-4)
    np.testing.assert_allclose(variance / (1.0 + gain), np.ravel(closed), rtol=1e-9)
