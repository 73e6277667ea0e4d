"""Closed forms in the limits against mpmath at 50 digits: `tests.exact` has the references.

Shapes run from 1e-3 to 1e12, exposures to 1e9, trials to 1e6, noise sds from 1e-35 to 1e35.
"""

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from tests import exact
from tests.examples import thinned
from tests.family_records import RECORDS, updated_parameters

ALL_PRIORS = [
    (name, prior)
    for name, record in RECORDS.items()
    for prior in (*record.priors, *record.extreme_priors)
]
FEW_PRIORS = thinned(ALL_PRIORS, lambda case: case[1] in RECORDS[case[0]].extreme_priors[::3])
LEAST = 1e-290  # float64 has all its digits above


def near_outcomes(record, prior, size):
    """Outcomes about as expected, and far above and below."""
    mean = float(record.family.mean(*prior))
    if record.family.name == "Normal":
        sd = np.hypot(size, np.sqrt(prior[1]))
        return [mean + z * sd for z in (-6.0, 0.3, 2.0)]
    most = size if record.family.name == "Beta" else 1e9
    counts = {0.0, 1.0, np.floor(size * mean), np.ceil(1.5 * size * mean + 5.0), most}
    return sorted(y for y in counts if y <= most and (y < most or record.family.name == "Beta"))


@pytest.mark.parametrize(("name", "prior"), ALL_PRIORS)
def test_log_marginals(name, prior):
    """To 1e-13 of the terms that the log marginal is made of."""
    record = RECORDS[name]
    curves = record.family.to_curves(*np.array(prior))
    for size in (*record.sizes, *record.extreme_sizes):
        for y in near_outcomes(record, prior, size):
            log, terms = exact.log_marginal(name, y, size, *curves)
            result = float(record.family.log_density(y, size, *curves))
            assert abs(result - float(log)) <= 1e-13 * terms + 1e-12, (y, size)


@pytest.mark.parametrize(("name", "prior"), ALL_PRIORS)
def test_posterior_moments(name, prior):
    record = RECORDS[name]
    for size in record.extreme_sizes:
        for outcome in near_outcomes(record, prior, size):
            numbers = exact.numbers(*prior), exact.numbers(outcome, size)
            a, b = updated_parameters(name, *numbers[0], *numbers[1])
            mean, variance = {
                "Gamma": (a / b, a / b**2),
                "Normal": (a, b),
                "Beta": (a / (a + b), a * b / (a + b) ** 2 / (a + b + 1)),
            }[name]
            scale = max(abs(outcome), abs(prior[0])) if name == "Normal" else float(mean)
            after = record.family.update(*prior, outcome, size)
            assert record.family.mean(*after) == pytest.approx(float(mean), abs=1e-13 * scale)
            assert record.family.variance(*after) == pytest.approx(float(variance), rel=1e-11)


def upto(name, y, size, first, second):
    """P(Y <= y) of the family, with P(Y < y), of outcomes under one pair of curves."""
    y = np.atleast_1d(y)
    curves = (np.full((1, len(y)), curve) for curve in (first, second))
    below, upto = RECORDS[name].family.cdf_interval(y, np.full(len(y), float(size)), *curves)
    return upto[0], below[0]


def cuts_of(name, prior):
    """Cuts around the prior's mean, and far in both tails."""
    a, b = prior
    z = np.array([-20.0, -6.0, 0.1, 3.0, 9.0])
    if name == "Normal":
        return a + z * np.sqrt(b)
    if name == "Gamma":
        return a / b * np.exp(z / np.sqrt(max(a, 4.0)))
    cuts = special.expit(np.log(a / b) + z * min(np.sqrt(1.0 / a + 1.0 / b), 3.0))
    return cuts[(cuts > 1e-280) & (cuts < 1.0 - 1e-6)]


@pytest.mark.parametrize(("name", "prior"), FEW_PRIORS)
def test_tails_and_partial_expectations(name, prior):
    """Relative 1e-9: the tails depend on the rounding of shapes and cuts."""
    family = RECORDS[name].family
    for cut in cuts_of(name, prior):
        with mp.workdps(30):
            tails = exact.theta_tails(name, cut, *prior)
        args = np.array([cut]), *(np.array([x]) for x in prior)
        for function in ("above", "excess", "shortfall"):
            if tails[function] > LEAST:
                result = float(getattr(family, function)(*args)[0])
                assert result == pytest.approx(float(tails[function]), rel=1e-9), (function, cut)


@pytest.mark.parametrize(("name", "prior"), FEW_PRIORS)
def test_quantiles_invert_the_exact_cdf(name, prior):
    family = RECORDS[name].family
    for prob in (1e-6, 0.05, 0.5, 0.95, 1.0 - 1e-6):
        theta = float(family.summaries(None, *np.reshape(prior, (2, 1, 1)), (prob,))[3, 0])
        if not 1e-290 < theta < 1.0 - 1e-9:
            continue
        with mp.workdps(30):
            tails = exact.theta_tails(name, theta, *prior)
        below = tails["below"] - prob if prob < 0.5 else 1 - mp.mpf(prob) - tails["above"]
        sd = float(np.sqrt(family.variance(*prior)))
        unit = min(sd, theta) if family.outcome.positive else sd
        # the search ends where its error is about 1e-6 of a logit; at shapes of 1e12 its densities
        # have few digits left
        assert abs(float(below / tails["density"])) < 2e-4 * unit, prob


@pytest.mark.parametrize("shape", thinned([1e-8, 0.5, 1e4, 1e12], [1e-8, 1e12]))
def test_ends_of_counts(shape):
    """P(Y <= y) by summing, by the incomplete beta function, and where variance is all but 0."""
    for expected in (1e-6, 300.0, 1e9):
        sd = np.sqrt(expected * (1.0 + expected / shape))
        for z in (-5.0, 2.0):
            y = np.floor(min(max(expected + z * sd, 0.0), 1e9))
            curves = np.log(expected / 7.0), -np.log(shape)
            a, rate = exact.prior("Gamma", *curves)
            with mp.workdps(30):
                reference = exact.count_tails(y, a, 7 * a / rate)[0]
            if reference > LEAST:
                # a last digit of the mean moves a tail of z sd by z sd of them
                result = upto("Gamma", y, 7.0, *curves)[0]
                assert result == pytest.approx(float(reference), rel=1e-7), (expected, y)


@pytest.mark.parametrize("prior", RECORDS["Beta"].extreme_priors)
def test_ends_of_trials_are_sums_of_probabilities(prior):
    n = 3000
    family = RECORDS["Beta"].family
    curves = family.to_curves(*np.array(prior))
    p = np.exp(family.log_density(np.arange(n + 1.0), float(n), *curves))
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    sums = np.cumsum(p)
    y = np.unique(np.searchsorted(sums, [0, 0.001, 0.1, 0.5, 0.9, 0.999, 1]).clip(0, n))
    ends = upto("Beta", y * 1.0, n, *curves)
    np.testing.assert_allclose(ends, [sums[y], np.append(0.0, sums)[y]], atol=1e-9)


@pytest.mark.parametrize("prior", [(2.0, 7.0), (0.4, 0.6), (30.0, 1e5)])
def test_ends_of_a_million_trials(prior):
    """Against the average of the Binomial's cdf over quantiles of theta."""
    record, n = RECORDS["Beta"], 1_000_000
    law = record.theta(*prior)
    theta = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    y = np.rint(n * law.ppf([0.01, 0.3, 0.5, 0.8, 0.999]))
    means = [special.bdtr(k, n, theta).mean() for k in y]
    curves = record.family.to_curves(*np.array(prior))
    np.testing.assert_allclose(upto("Beta", y, n, *curves)[0], means, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "variance"), [("Gamma", -60.0), ("Normal", -700.0), ("Beta", -200.0), ("Beta", -35.0)]
)
def test_priors_without_variance(name, variance):
    """The marginal is that of a known theta, and quantiles are those of a Normal, or the mean."""
    record = RECORDS[name]
    first, size = -0.7, record.sizes[1]
    theta = record.family.outcome.theta.score(first)
    law = record.outcome(theta, size)
    y = np.unique(law.ppf([0.1, 0.5, 0.99]))
    log = law.logpmf(y) if record.family.outcome.whole else law.logpdf(y)
    np.testing.assert_allclose(record.family.log_density(y, size, first, variance), log, rtol=1e-9)
    curves, none = (np.full((1, 1), x) for x in (first, variance)), np.zeros(1)
    without = none + record.family.outcome.no_information
    after = record.family.update(*record.family.to_parameters(*curves), none, without)
    mean, sd, _, *quantiles = record.family.summaries(None, *after, (0.05, 0.5, 0.95))[:, 0]
    assert mean == pytest.approx(theta, rel=1e-12)
    normal = theta + sd * special.ndtri([0.05, 0.5, 0.95])
    np.testing.assert_allclose(quantiles, normal, rtol=1e-12, atol=1e-4 * sd)


def test_small_counts_whose_sum_starts_below_all_numbers():
    """(1 + 1500)^-100 is a subnormal number; the sum to 127 counts is not."""
    family = RECORDS["Gamma"].family
    curves = np.log(1.5e5), -np.log(100.0)
    log = family.log_density(np.arange(128.0), 1.0, *curves)
    result = np.log(upto("Gamma", 127.0, 1.0, *curves)[0])
    assert result == pytest.approx(special.logsumexp(log), abs=1e-9)


def test_probabilities_of_zero_raise_no_warning():
    """A count in no exposure has log probability -inf, without a division."""
    family = RECORDS["Gamma"].family
    with np.errstate(all="raise"):
        assert family.log_density(3, 0.0, 0.0, 0.0) == -np.inf
        assert family.log_density(0, 0.0, 0.0, 0.0) == 0.0
        assert family.log_density(2, 1.0, 0.0, -800.0) == pytest.approx(-1.0 - np.log(2.0))
