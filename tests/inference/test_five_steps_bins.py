"""Step 2: each bin's maximum likelihood against a direct search on the items, and at its limits."""

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from scipy import stats as laws

import soc_pymc as soc
from tests.examples import QUIET, ROLES
from tests.family_records import RECORDS, prior_parameters


def counts(rng, exposure, log_mean, log_cv2, score=0.5):
    """Counts of one Gamma prior."""
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2), len(exposure))
    return pd.DataFrame(
        {"score": score, "count": rng.poisson(theta * exposure), "exposure": exposure}
    )


def per_bin(frame, edges=(), kind=soc.PoissonItems):
    """The fit, and its estimates by bin."""
    items = kind(frame, **ROLES[kind])
    stats = soc.summarize(items, edges=list(edges), on_leakage="ignore", **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    return fit, fit.data["per_bin"].to_dataset()


FAMILIES = {soc.PoissonItems: "Gamma", soc.NormalItems: "Normal", soc.BinomialItems: "Beta"}


def marginal(frame, mean, variance, kind=soc.PoissonItems):
    """Log marginals of items under one mean and variance of theta."""
    outcome, size = (frame[column] for column in list(ROLES[kind].values())[1:])
    prior = prior_parameters(FAMILIES[kind], mean, variance)
    law = RECORDS[FAMILIES[kind]].marginal(*prior, size)
    return law.logpdf(outcome) if kind is soc.NormalItems else law.logpmf(outcome)


def count_bin(rng):
    return counts(rng, rng.integers(1, 17, 600).astype(float), -1.5, -1.0)


def value_bin(rng):
    noise = rng.choice([0.5, 1.0, 2.0], 600)
    value = rng.normal(rng.normal(2.0, 0.8, 600), noise)
    return pd.DataFrame({"score": 0.5, "value": value, "noise_sd": noise})


def trial_bin(rng):
    trials = rng.integers(1, 17, 600)
    successes = rng.binomial(trials, rng.beta(2.0, 5.0, 600))
    return pd.DataFrame({"score": 0.5, "successes": successes, "trials": trials})


@pytest.mark.parametrize(
    ("kind", "make", "start"),
    [
        (soc.PoissonItems, count_bin, (0.2, 0.02)),
        (soc.NormalItems, value_bin, (2.0, 0.6)),
        (soc.BinomialItems, trial_bin, (0.3, 0.03)),
    ],
)
def test_estimates_are_those_of_a_direct_search(kind, make, start):
    """Sizes of few values have exact cells: estimates to 1e-4, log likelihoods to 1e-6.

    The search on the items, whose derivatives are zero there, finds the maximum to 1e-5.
    """
    frame = make(np.random.default_rng(0))
    _, estimates = per_bin(frame, kind=kind)

    def minus(x):
        return -marginal(frame, x[0], np.exp(x[1]), kind).sum()

    begin = [start[0], np.log(start[1])]
    options = {"xatol": 1e-8, "fatol": 1e-10}
    best = optimize.minimize(minus, begin, method="Nelder-Mead", options=options)
    assert float(estimates["mean"][0]) == pytest.approx(best.x[0], rel=1e-4)
    assert np.log(float(estimates["variance"][0])) == pytest.approx(best.x[1], abs=1e-4)
    assert float(estimates["log_likelihood"][0]) == pytest.approx(-best.fun, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1e7])
def test_wide_cells_agree_to_their_error(scale):
    """Exposures from 1e-3 to 1e9, counts to 1e5: cells of 1/16 octave leave 1e-5."""
    rng = np.random.default_rng(1)
    exposure = scale * np.exp(rng.uniform(0, 4.6, 500))
    frame = counts(rng, exposure, np.log(30.0 / scale), -1.5)
    _, estimates = per_bin(frame)
    mean, variance = (float(estimates[name][0]) for name in ("mean", "variance"))

    def total(x):
        return marginal(frame, mean * np.exp(x[0]), variance * np.exp(x[1])).sum()

    # slopes over information: how far the items' own maximum is
    step = 1e-3
    for axis, allowed in ((0, 1e-5), (1, 1e-4)):
        ahead, behind = (total(sign * step * np.eye(2)[axis]) for sign in (1, -1))
        bend = (2 * total((0, 0)) - ahead - behind) / step**2
        assert abs((ahead - behind) / (2 * step) / bend) < 5 * allowed


def test_too_little_scatter_is_variance_zero():
    """Counts and values that vary less than their noise have the likelihood of one theta."""
    even = pd.DataFrame({"score": 0.5, "count": np.full(50, 3), "exposure": np.full(50, 10.0)})
    fit, estimates = per_bin(even)
    assert fit.status.converged
    assert float(estimates["mean"][0]) == pytest.approx(0.3, rel=1e-12)
    assert float(estimates["variance"][0]) == 0.0
    poisson = laws.poisson.logpmf(3, 3.0) * 50
    assert float(estimates["log_likelihood"][0]) == pytest.approx(poisson, rel=1e-12)
    # the slope there is half the sum of (y - 3)^2 - y: 10 counts 9 turn it, 5 counts 6 do not
    for high, number, zeros, positive in ((6, 5, 5, False), (9, 10, 20, True)):
        count = np.r_[np.full(50 - number - zeros, 3), np.zeros(zeros), np.full(number, high)]
        assert bool(per_bin(even.assign(count=count.astype(int)))[1]["variance"][0] > 0) is positive
    values = {"score": 0.0, "value": [1.0, 1.1, 0.9, 1.3], "noise_sd": [1.0, 1.0, 2.0, 0.5]}
    _, estimates = per_bin(pd.DataFrame(values), kind=soc.NormalItems)
    weighted = np.average(values["value"], weights=np.power(values["noise_sd"], -2.0))
    assert float(estimates["variance"][0]) == 0.0
    assert float(estimates["mean"][0]) == pytest.approx(weighted, rel=1e-9)


def test_bins_of_any_size_are_fitted():
    """One item, no event, one event, and counts of 1e6: no failure and no NaN."""
    parts = [
        pd.DataFrame({"score": [0.1], "count": [2], "exposure": [5.0]}),
        pd.DataFrame({"score": [0.3] * 2, "count": [0, 0], "exposure": [1.0, 4.0]}),
        pd.DataFrame({"score": [0.5] * 2, "count": [0, 1], "exposure": [1.0, 4.0]}),
        pd.DataFrame(
            {"score": [0.7] * 3, "count": [1_000_000, 2_000_000, 900_000], "exposure": [1e9] * 3}
        ),
        pd.DataFrame({"score": [0.9] * 3, "count": [40, 0, 100], "exposure": [1e-3, 1e-3, 2e-3]}),
    ]
    fit, estimates = per_bin(pd.concat(parts), edges=(0.2, 0.4, 0.6, 0.8))
    assert fit.status.converged
    assert np.isnan(estimates["mean"]).to_numpy().tolist() == [False, True, False, False, False]
    assert (estimates["variance"].to_numpy()[[3, 4]] > 0).all()
    scores = [0.1, 0.3, 0.5, 0.7, 0.9]
    assert np.isfinite(soc.calibration_curves(fit, scores)["mean"]).all()
    stats = soc.summarize(soc.PoissonItems(parts[3], **ROLES[soc.PoissonItems]), edges=[], **QUIET)
    alone = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    mean = soc.calibration_curves(alone, scores)["mean"].to_numpy().ravel()
    np.testing.assert_allclose(mean, 1.3e-3, rtol=1e-4)


def test_estimates_follow_units_and_ignore_order():
    """Exposures times 1,024: E / 1,024, Var / 1,024^2; items in another order: the same."""
    frame = soc.simulation.s1(3000, seed=3)
    edges = np.quantile(frame["score"], [0.25, 0.5, 0.75])
    _, estimates = per_bin(frame, edges)
    _, scaled = per_bin(frame.assign(exposure=1024.0 * frame["exposure"]), edges)
    np.testing.assert_allclose(scaled["mean"], estimates["mean"] / 1024, rtol=1e-6)
    np.testing.assert_allclose(scaled["variance"], estimates["variance"] / 1024**2, rtol=1e-5)
    _, shuffled = per_bin(frame.sample(frac=1, random_state=0), edges)
    np.testing.assert_allclose(shuffled["mean"], estimates["mean"], rtol=1e-12)
    np.testing.assert_allclose(shuffled["variance"], estimates["variance"], rtol=1e-9)


def test_the_search_finds_the_higher_of_two_maxima():
    """Many small items without overdispersion and one huge one: no point of a grid is higher."""
    frame = pd.DataFrame(
        {
            "score": 0.5,
            "count": [0] * 30 + [400] + [1] * 5,
            "exposure": [1.0] * 30 + [50.0] + [9.0] * 5,
        }
    )
    _, estimates = per_bin(frame)
    grid = [
        marginal(frame, mean, cv2 * mean**2).sum()
        for mean in np.exp(np.linspace(-3, 4, 36))
        for cv2 in np.exp(np.linspace(-6, 6, 31))
    ]
    assert float(estimates["log_likelihood"][0]) >= max(grid)


@pytest.mark.parametrize(("size", "cv2"), [(1e9, 0.3), (1e8, 1e-6)])
def test_huge_counts_converge_though_their_sums_round(size, cv2):
    """Counts of 1e8, whose sums cancel to 1e-4 nats: every bin ends near the truth.

    2,000 items in 20 bins know cv2 of a bin to 15% (2 / sqrt(200)): 5 such sds are allowed.
    """
    rng = np.random.default_rng(8)
    exposure = np.exp(rng.normal(np.log(size), 1.0, 2000))
    frame = counts(rng, exposure, np.log(0.05), np.log(cv2), score=rng.random(2000))
    fit, estimates = per_bin(frame, np.linspace(0.05, 0.95, 19))
    assert fit.status.converged, fit.status.reason
    np.testing.assert_allclose(estimates["variance"] / estimates["mean"] ** 2, cv2, rtol=0.75)
