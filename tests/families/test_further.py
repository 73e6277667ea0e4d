"""What a further outcome brings, against direct sums over all further outcomes."""

import numpy as np
import pytest

from soc_pymc.posterior.item_columns import ThetaMixture
from tests.family_records import RECORDS

# conjugate parameters of components (as a mixture of one item has them), sizes and cuts
COMPONENTS = {
    "Gamma": (np.full(4, 5.0), np.array([40.0, 90.0, 160.0, 400.0])),
    "Normal": (np.array([-0.5, 0.3, 0.9, 2.0]), np.full(4, 0.09)),
    "Beta": (np.array([2.0, 9.0, 4.0, 0.7]), np.array([9.0, 11.0, 2.0, 6.0])),
}
SIZES = {"Gamma": (3.0, 80.0, 2000.0), "Normal": (0.05, 0.7, 20.0), "Beta": (1.0, 20.0, 3000.0)}
CUTS = {"Gamma": (0.02, 0.05, 0.09, 0.3), "Normal": (-1.0, 0.4, 0.6, 3.0), "Beta": (0.1, 0.3, 0.6)}
WEIGHT = np.array([0.2, 0.5, 0.0, 0.3])


def by_all_outcomes(record, a, b, weight, size, cut):
    """Expected posterior variance, and value of choosing at a cut with the further outcome."""
    ends = [record.outcomes(*prior, size)[0] for prior in zip(a, b, strict=True)]
    if record.family.outcome.whole:
        y, step = max(ends, key=len)[:, None], 1.0
    else:
        y = np.linspace(min(e[0] for e in ends), max(e[-1] for e in ends), 40_001)[:, None]
        step = float(y[1, 0] - y[0, 0])
    marginal = record.marginal(a, b, size)
    p = weight * (marginal.pmf(y) if record.family.outcome.whole else marginal.pdf(y))
    after = record.family.update(a, b, y, size)
    means, variances = np.broadcast_arrays(
        record.family.mean(*after), record.family.variance(*after)
    )
    total = np.maximum(p.sum(axis=1), 1e-300)
    mean = (p * means).sum(axis=1) / total
    variance = step * (p * (variances + (means - mean[:, None]) ** 2)).sum()
    now = weight @ record.family.mean(a, b)
    value = step * (total * np.maximum(mean - cut, 0.0)).sum() - max(now - cut, 0.0)
    return variance, value


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("weighted", [True, False])
def test_value_and_expected_variance(name, weighted):
    record, (a, b) = RECORDS[name], COMPONENTS[name]
    family = record.family
    weight = WEIGHT if weighted else np.full(4, 0.25)
    theta = ThetaMixture(a[:, None], b[:, None], weight[:, None] if weighted else None)
    for size in SIZES[name]:
        more = np.array([size])
        for cut in CUTS[name]:
            variance, value = by_all_outcomes(record, a, b, weight, size, cut)
            result = family.value_of_outcome(theta, theta, more, np.array([cut]))[0]
            # the sum of values has a step at the kink
            assert result == pytest.approx(value, rel=1e-7, abs=1e-6 if name == "Normal" else 1e-9)
        if weighted:  # from a grid of at most 256 outcomes
            assert family.expected_variance(theta, more)[0] == pytest.approx(variance, rel=1e-4)


@pytest.mark.parametrize("name", RECORDS)
def test_one_component_has_the_closed_form(name):
    """E Var = variance / (1 + gain), also for many outcomes and where most counts are 0."""
    family = RECORDS[name].family
    a, b, more = {
        "Gamma": ([9.0, 900.0, 0.5], [0.3, 0.03, 0.25], [3000.0, 30.0, 2.5]),
        "Normal": ([0.0, 1e3, -5.0], [1.0, 4.0, 1e-4], [0.01, 30.0, 1.0]),
        "Beta": ([9.0, 0.5, 3e3], [3.0, 2.0, 9e3], [3000.0, 1.0, 100.0]),
    }[name]
    a, b, more = (np.array([column]) for column in (a, b, more))
    result = family.expected_variance(ThetaMixture(a, b, np.ones((1, 3))), more[0])
    mean, variance = family.mean(a, b)[0], family.variance(a, b)[0]
    gain = family.outcome.forms.response(more[0], mean, variance)
    closed = {
        "Gamma": a / (b * (b + more)),
        "Normal": b / (1.0 + b / more**2),
        "Beta": variance * (a + b) / (a + b + more),
    }[name]
    np.testing.assert_allclose(result, np.ravel(closed), rtol=1e-4)
    np.testing.assert_allclose(variance / (1.0 + gain), np.ravel(closed), rtol=1e-9)
