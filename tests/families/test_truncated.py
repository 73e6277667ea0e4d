"""Items of which those of 0 are absent: likelihood, predictive laws and draws by brute force."""

import time

import mpmath as mp
import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc._model import pymc_model
from soc_pymc._model.rows import rows_of
from soc_pymc.families import TRUNCATED
from soc_pymc.families.truncated import log_no_success
from tests import exact
from tests.family_records import RECORDS

NAMES = {"Gamma": "poisson", "Beta": "binomial"}
ITEMS = {"Gamma": soc.PoissonItems, "Beta": soc.BinomialItems}
COLUMNS = {"Gamma": {"count": "y", "exposure": "n"}, "Beta": {"successes": "y", "trials": "n"}}
# rows of outcomes and sizes; each cell has one item, or items that are equal
ROWS = {
    "Gamma": [
        ([1, 1, 2, 5, 31, 3], [1, 2, 5, 30, 31, 7]),
        ([1, 1, 2], [1e-9, 1e-9, 1e-9]),
        ([1, 2, 1, 7], [1e-3, 1e9, 1e-3, 50.0]),
        ([33, 60, 1000, 1_000_000], [1e3, 1e3, 1e4, 1e6]),
    ],
    "Beta": [
        ([1, 1, 2, 5, 31, 3], [1, 2, 5, 30, 31, 7]),
        ([1, 3, 20], [1, 3, 20]),
        ([1, 1, 2], [9, 10, 1_000_000]),
        ([32, 33, 60, 1000, 999_000], [33, 1000, 64, 10_000, 1_000_000]),
    ],
}
# mean and cv2 of a Gamma, a and b of a Beta: variances that vanish, and means of nearly 0
CURVES = {
    "Gamma": [(np.log(m), np.log(c)) for m in (1e-9, 0.5, 20.0) for c in (1e-16, 1e-6, 0.3, 30.0)],
    "Beta": [
        RECORDS["Beta"].family.to_curves(*np.array(prior))
        for prior in ((0.7, 2.0), (1e-6, 3.0), (0.5, 1e8), (1e9, 3e9), (1e12, 1e15), (400.0, 3.0))
    ],
}


def log_density(name, y, size, first, second):
    """Log probability given 1 or more, by mpmath, and the size of what it is a sum of."""
    value, terms = exact.log_marginal(name, y, size, first, second)
    none, _ = exact.log_marginal(name, 0, size, first, second)
    return float(value - mp.log(-mp.expm1(none))), terms


def row_sums(name, rows):
    """Sums of rows of truncated items."""
    score = np.repeat(np.arange(len(rows)), [len(outcomes) for outcomes, _ in rows]) + 0.5
    outcome, size = (np.concatenate(column) for column in zip(*rows, strict=True))
    frame = pd.DataFrame({"t": score, "y": outcome, "n": size})
    items = ITEMS[name](frame, score="t", **COLUMNS[name], truncated=True)
    statistics = soc.summarize(items, edges=np.arange(1.0, len(rows)), progress=False)
    return rows_of(statistics, statistics.family)[1]


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_conditional_on_1_or_more(name):
    """1e-9 nats, of rows with exposures of 1e-9, vanishing variance and huge outcomes.

    Rounding allows 1e-12 of the terms that a log marginal is made of.
    """
    sums = row_sums(name, ROWS[name])
    curves = np.array(CURVES[name]).T[..., None] + np.zeros(len(ROWS[name]))
    values = sums.values(*curves)
    for row, (outcomes, sizes) in enumerate(ROWS[name]):
        for draw, (first, second) in enumerate(CURVES[name]):
            items = zip(outcomes, sizes, strict=True)
            parts = [log_density(name, y, size, first, second) for y, size in items]
            total, terms = (sum(part) for part in zip(*parts, strict=True))
            assert abs(values[draw, row] - total) < 1e-9 + 1e-12 * terms, (first, second, row)


@pytest.mark.parametrize("name", ROWS)
def test_slopes_are_differences_of_values(name):
    """Of compiled rows in both curves, and second derivatives of these slopes.

    Central differences err by the third derivative times 1e-8 / 6, and by rounding.
    """
    rows = ROWS[name][:1] * 2
    sums = row_sums(name, rows).with_spread(np.array([0.0, 0.2]))
    place, step = np.arange(2), 1e-4
    for first, second in CURVES[name]:
        if second < -12.0:
            continue
        curves = np.full((1, 2), float(first)), np.full((1, 2), float(second))

        def slopes(u, v, curves=curves):
            return pymc_model.exact_slopes(sums, curves[0] + u, curves[1] + v, place)

        value, *slope = slopes(0.0, 0.0)
        expansion = sums.expansion(*(curve[0] for curve in curves))
        assert value[0] == pytest.approx(expansion.value, rel=1e-12)
        bends = [expansion.by_location, expansion.by_dispersion]
        for k, move in enumerate(((step, 0.0), (0.0, step))):
            ahead, behind = slopes(*move), slopes(*(-x for x in move))
            difference = (ahead - behind) / (2.0 * step)
            assert slope[k] == pytest.approx(difference[0], rel=1e-6, abs=1e-6)
            # these differences have steps of 4e-3
            assert bends[k] == pytest.approx(difference[1 + k][0], rel=1e-3, abs=1e-3)
        assert expansion.mixed == pytest.approx(difference[1][0], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", ROWS)
def test_information_is_a_bound_that_is_nearly_reached(name):
    """Below E(score^2), and above half of it, where few or nearly all items are listed."""
    record, family, step = RECORDS[name], TRUNCATED[NAMES[name]], 1e-4
    cases = {
        "Gamma": [((2.0, 2.0), size) for size in (1e-3, 0.1, 1.0, 30.0)],
        "Beta": [((2.0, 20.0), size) for size in (3.0, 10.0, 300.0)],
    }
    for prior, size in cases[name]:
        curves = np.array(family.to_curves(*prior))
        y, _ = record.outcomes(*prior, size)
        y = y[1:]
        probability = np.exp(family.log_density(y, size, *curves))
        assert probability.sum() == pytest.approx(1.0, abs=1e-9)
        result = np.ravel(row_sums(name, [([1.0], [size])]).information(*curves[:, None]))
        for k, information in enumerate(result):
            ahead, behind = (
                family.log_density(y, size, *(curves + sign * step * np.eye(2)[k]))
                for sign in (1, -1)
            )
            score = (ahead - behind) / (2.0 * step)
            assert information <= probability @ score**2 * 1.01
            assert information >= 0.5 * (probability @ score**2)


def test_probability_of_no_success_has_all_its_digits():
    """1e-12 nats in the logarithm of its complement, from 1 to 100,000 trials."""
    for a in (1e-6, 1e-3, 0.5, 1e3, 1e15):
        for b in (1e-3, 3.0, 1e6, 1e15):
            trials = np.array([1.0, 2.0, 31.0, 32.0, 33.0, 1000.0, 1e5])
            log_listed = np.log(-np.expm1(log_no_success(trials, a, b)))
            for n, value in zip(trials, log_listed, strict=True):
                whole, x, y = exact.numbers(n, a, b)
                none = mp.loggamma(y + whole) - mp.loggamma(y)
                none -= mp.loggamma(x + y + whole) - mp.loggamma(x + y)
                assert float(mp.log(-mp.expm1(none)) - value) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "prior", "size"),
    [
        ("Gamma", (2.0, 2.0), 1e-9),
        ("Gamma", (0.2, 0.1), 0.7),
        ("Gamma", (3.0, 1.0), 40.0),
        ("Beta", (0.4, 3.0), 5.0),
        ("Beta", (2.0, 600.0), 50.0),
        ("Beta", (5.0, 2.0), 40.0),
    ],
)
def test_predictive_law(name, prior, size):
    """Cdf to 1e-9 of the sum of densities; draws by the Kolmogorov distance, which exceeds twice
    the square root of the number of draws with probability 7e-4.
    """
    family = TRUNCATED[NAMES[name]]
    curves = np.array(family.to_curves(*prior))
    y, _ = RECORDS[name].outcomes(*prior, size)
    y = np.arange(1.0, max(y[-1], 4.0) + 1.0)
    if name == "Beta":
        y = np.arange(1.0, size + 1.0)
    below, upto = family.cdf_interval(y, size, *curves)
    density = np.exp(family.log_density(y, size, *curves))
    assert upto == pytest.approx(np.cumsum(density), abs=1e-9)
    assert below == pytest.approx(np.cumsum(density) - density, abs=1e-9)
    draws = 20_000
    parameters = family.to_parameters(*np.repeat(curves[:, None], draws, axis=1))
    drawn = family.simulate(*parameters, size, np.random.default_rng(5))
    share = np.searchsorted(np.sort(drawn), y, side="right") / draws
    assert drawn.min() >= 1.0
    assert np.abs(share - upto).max() * np.sqrt(draws) < 2.0


@pytest.mark.parametrize("name", ROWS)
def test_totals_have_the_mean_and_variance_of_listed_items(name):
    """Mean within four standard errors of 4,000 draws, sd within 6%; its error is 1.1%."""
    prior = {"Gamma": (2.0, 2.0), "Beta": (1.5, 30.0)}[name]
    sizes = {"Gamma": [0.05] * 30 + [4.0] * 5, "Beta": [3] * 30 + [200] * 5}[name]
    family = TRUNCATED[NAMES[name]]
    curves = np.array(family.to_curves(*prior))
    sums = row_sums(name, [(np.ones(len(sizes)), sizes)])
    drawn = sums.draw(*np.tile(curves[:, None, None], (1, 4000, 1)), np.random.default_rng(2))
    moments = []
    for size in sizes:
        y = RECORDS[name].outcomes(*prior, size)[0]
        density = np.exp(family.log_density(y[1:], size, *curves))
        mean = density @ y[1:]
        moments.append((mean, density @ (y[1:] - mean) ** 2))
    mean, variance = np.sum(moments, axis=0)
    assert drawn.min() >= len(sizes)
    assert abs(drawn.mean() - mean) < 4.0 * np.sqrt(variance / 4000)
    assert drawn.std() == pytest.approx(np.sqrt(variance), rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("truncated", [False, True])
def test_a_mixture_fits_rates_near_0_and_1(truncated):
    """Within seconds, where wide components took minutes; 90% intervals cover 88 to 95%.

    Rates within 1e-6 of 0 or 1 count as these, as no number of trials here tells them apart.
    """
    rng = np.random.default_rng(5)
    p = rng.uniform(0.05, 0.95, 3000)
    theta = rng.beta(0.6 * p, 0.6 * (1.0 - p))
    trials = rng.integers(1, 20, 3000)
    frame = pd.DataFrame({"t": p, "theta": theta, "y": rng.binomial(trials, theta), "n": trials})
    frame = frame[frame["y"] >= truncated]
    items = soc.BinomialItems(frame, score="t", **COLUMNS["Beta"], truncated=truncated)
    stats = soc.summarize(items, joint=True, progress=False)
    began = time.process_time()
    fit = soc.fit(stats, soc.BetaMixture(), progress=False)
    assert time.process_time() - began < 60.0
    assert fit.status.converged
    scored = soc.item_posteriors(fit, items, progress=False)
    low, high, truth = (scored[x].clip(1e-6, 1 - 1e-6) for x in ("theta_q05", "theta_q95", "theta"))
    assert 0.88 < ((low <= truth) & (truth <= high)).mean() < 0.95
