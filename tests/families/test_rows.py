"""Log marginals of rows of items from their sums: against mpmath, the items, and differences.

Rows are made as by every fit, from statistics of items; each bin of scores is a row.
"""

import numpy as np
import pandas as pd
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import bernoulli, betabinom, binom, nbinom, norm, poisson

import soc_pymc as soc
from soc_pymc._model import problem
from soc_pymc._model.rows import rows_of
from soc_pymc.inference import density
from tests import exact
from tests.examples import FAMILIES, ROLES, SINGLE_FAMILIES, thinned
from tests.family_records import RECORDS
from tests.oracles import pymc_density

NAMES = {"Gamma": "gamma", "Normal": "normal", "Beta": "beta", "InverseGamma": "inverse_gamma"}


def made_rows(name, rows):
    """Sums of rows, each of which is a pair of lists of outcomes and sizes."""
    kind = FAMILIES[NAMES[name]].kind
    score = np.repeat(np.arange(len(rows)), [len(outcomes) for outcomes, _ in rows]) + 0.5
    outcome, size = (np.concatenate(column) for column in zip(*rows, strict=True))
    frame = pd.DataFrame(dict(zip(ROLES[kind].values(), (score, outcome, size), strict=True)))
    statistics = soc.summarize(
        kind(frame, **ROLES[kind]),
        edges=np.arange(1.0, len(rows)),
        on_leakage="ignore",
        progress=False,
    )
    return rows_of(statistics, RECORDS[name].family)[1]


def values(sums, first, second):
    """Log marginals of all rows at the same curves (draws,): (draws, rows)."""
    number = len(sums.total)
    curves = (np.repeat(np.ravel(x)[:, None], number, axis=1) for x in (first, second))
    return sums.value_and_gradient(*curves)


# each cell of outcomes or sizes has one item, or items that are equal
ROWS = {
    "Gamma": [
        ([0, 1, 2, 5, 31, 0, 3], [1, 2, 5, 30, 31, 7, 4]),
        ([0, 0, 0, 0], [1, 3, 20, 31]),
        ([0, 0, 2], [0, 0, 9]),
        ([0, 2, 0, 7], [1e-3, 1e9, 1e-3, 50.0]),
        ([32, 33, 60, 1000, 1_000_000], [40.0, 1e3, 1e3, 1e4, 1e6]),
    ],
    "Normal": [
        ([0.3], [1.0]),
        ([1e4 + 1.0, 1e4 - 2.0, 1e4 + 0.5], [0.7, 0.7, 0.7]),
        ([-3.0, 0.1, 40.0, 2.0], [1e-3, 0.5, 30.0, 1e3]),
    ],
    "Beta": [
        ([0, 1, 2, 5, 31, 0, 3], [1, 2, 5, 30, 31, 7, 4]),
        ([0, 0, 0, 0], [1, 3, 20, 1_000_000]),
        ([1, 3, 20, 1_000_000], [1, 3, 20, 1_000_000]),
        ([0, 0, 2], [0, 0, 9]),
        ([0, 1, 1, 0, 1], [1] * 5),
        ([32, 33, 60, 1000, 999_000, 12], [40, 1000, 64, 10_000, 1_000_000, 1_000_000]),
    ],
    "InverseGamma": [
        ([0.7, 31.0, 4.0, 0.0], [1, 31, 7, 0]),
        ([1e-6, 0.2, 1e6, 3.0], [1, 2, 40, 9]),
        ([70.0, 4000.0, 1e5], [64, 1000, 1_000_000]),
    ],
}
CURVES = {
    "Gamma": [(np.log(m), np.log(c)) for m in (1e-9, 0.5, 20.0) for c in (1e-12, 1e-6, 0.3, 1e3)],
    "Normal": [(m, c) for m in (0.2, 1e4) for c in (-40.0, -1.0, 5.0)],
    "InverseGamma": [
        (np.log(m), np.log(c)) for m in (1e-9, 0.5, 20.0) for c in (1e-12, 1e-6, 0.3, 1e3)
    ],
    "Beta": [
        RECORDS["Beta"].family.to_curves(*np.array(prior))
        for prior in RECORDS["Beta"].priors + RECORDS["Beta"].extreme_priors
    ],
}


def test_values_are_those_of_the_items(name):
    """To 1e-12 of the terms that the log marginals are made of, in the limits."""
    sums = made_rows(name, ROWS[name])
    result = values(sums, *np.array(CURVES[name]).T)[0]
    for curves, row_values in zip(CURVES[name], result, strict=True):
        for (outcomes, sizes), value in zip(ROWS[name], row_values, strict=True):
            items = [
                exact.log_marginal(name, y, size, *curves)
                for y, size in zip(outcomes, sizes, strict=True)
            ]
            total, terms = float(sum(log for log, _ in items)), sum(size for _, size in items)
            # values of 1e4 squared lose 8 of 16 digits
            scale = 1e8 if name == "Normal" and max(outcomes) > 1e3 else 0.0
            assert abs(value - total) <= 1e-12 * terms + 1e-13 * scale + 1e-11, curves


@pytest.mark.parametrize("example_name", SINGLE_FAMILIES)
def test_values_of_wide_cells_are_nearly_those_of_items(example_name, example):
    """Near the bins' own means and at any variance: within 1e-3 nats of the items' sum."""
    case = example(example_name)
    statistics, items = case.statistics, case.frame
    family = problem.build(statistics, case.case.prior).family
    sums = rows_of(statistics, family)[1]
    outcome, size = (
        items[ROLES[case.case.kind][role]].to_numpy(dtype=float)
        for role in (family.outcome.observed, family.outcome.size)
    )
    row = np.searchsorted(statistics.edges, items["score"], side="right")
    total, amount = (np.bincount(row, x) for x in (outcome, size))
    number = np.bincount(row)
    mean = {
        "Gamma": lambda: np.log(total / amount),
        "InverseGamma": lambda: np.log(total / amount),
        "Normal": lambda: total / number,
        "Beta": lambda: np.log(total / (amount - total)),
    }[family.name]()
    for second in (-6.0, -2.0, 0.0, 1.5):
        curves = mean, np.full(len(mean), second)
        result = sums.values(*(x[None] for x in curves))[0]
        each = family.log_density(outcome, size, *(x[row] for x in curves))
        assert np.abs(result - np.bincount(row, each)).max() < 1e-3


@pytest.mark.parametrize("example_name", SINGLE_FAMILIES)
def test_merged_bins_keep_their_items(example_name, example):
    """At curves without slope bins together have the sum of their log marginals, to 1e-3 nats."""
    statistics = example(example_name).statistics
    family = problem.build(statistics, example(example_name).case.prior).family
    curves = family.rows.level(rows_of(statistics, family)[1])
    totals = []
    for most in (0, 5):
        rows, sums = rows_of(statistics, family, most_bins=most)
        totals.append(sums.values(*(np.full((1, len(rows.n)), x) for x in curves)).sum())
    assert len(rows.n) <= 5
    assert totals[1] == pytest.approx(totals[0], abs=1e-3)


@pytest.mark.parametrize("name", thinned(RECORDS, ["Gamma", "Normal"]))
def test_derivatives_are_those_of_pytensor(name):
    """Differences of values, with and without a spread of the items' means within a row."""
    rows = [*ROWS[name], *ROWS[name]]
    spread = np.append(np.zeros(len(rows) // 2), np.linspace(0.01, 0.4, len(rows) // 2))
    sums = made_rows(name, rows).with_spread(spread)
    points = {
        "Gamma": [(-2.0, -1.0), (1.0, -6.0), (-0.3, 1.0)],
        "Normal": [(0.3, -1.0), (2.0, 3.0), (-1.0, 0.0)],
        "Beta": [(-2.0, -3.0), (0.1, 2.0), (1.5, -1.0)],
        "InverseGamma": [(-2.0, -1.0), (1.0, -6.0), (-0.3, 1.0)],
    }[name]
    first, second = pt.vectors("first", "second")
    # rounding of the values' terms, over the step and its square
    size = np.array([np.max(np.abs([y, n])) ** 2 + np.sum(n) for y, n in rows])
    value = sums.log_marginal(pt, first, second, *sums.cells())
    slopes = pt.grad(value.sum(), [first, second])
    across = pt.grad(slopes[0].sum(), [first, second])
    outputs = [value, *slopes, *across, pt.grad(slopes[1].sum(), second)]
    exact_ones = pytensor.function([first, second], outputs, mode="FAST_COMPILE")
    for point in points:
        curves = [np.full(len(rows), x) for x in point]
        result = sums.expansion(*curves)
        result = [result.value, *result.slopes, *result[2:]]
        for order, (near, true) in enumerate(zip(result, exact_ones(*curves), strict=True)):
            power = (0, 1, 1, 2, 2, 2)[order]
            allowed = 1e-4 * np.abs(true) + (1e-15 * 300**power + 1e-6 * (power > 0)) * size
            assert (np.abs(near - true) <= allowed).all(), order
        slopes_alone = sums.value_and_gradient(*(x[None] for x in curves))[1:, 0]
        np.testing.assert_allclose(slopes_alone, result[1:3], rtol=1e-9, atol=1e-6)


def test_a_spread_within_a_row_widens_the_prior(name):
    sums = made_rows(name, ROWS[name])
    number, curves = len(sums.total), (np.array([-1.2]), np.array([-0.8]))
    plain, spread = sums.with_spread(np.zeros(number)), np.full(number, 0.15)
    wide = RECORDS[name].family.widened(*curves, 0.15)
    np.testing.assert_allclose(
        values(sums.with_spread(spread), *curves)[0], values(plain, *wide)[0], rtol=1e-10
    )


def test_exchange_of_successes_and_failures_mirrors_values():
    failures = [(np.subtract(n, y), n) for y, n in ROWS["Beta"]]
    sums, mirrored = made_rows("Beta", ROWS["Beta"]), made_rows("Beta", failures)
    first, second = np.array([-3.0, 0.4, 2.0]), np.array([-2.0, 0.5, -6.0])
    result, opposite = values(sums, first, second), values(mirrored, -first, second)
    np.testing.assert_allclose(opposite[0], result[0], rtol=1e-10)
    np.testing.assert_allclose(opposite[1], -result[1], rtol=1e-8, atol=1e-6)


def test_information_is_that_of_the_score(name):
    """E[score^2] over all outcomes of an item, by differences; a lower bound, nearly reached."""
    record, step = RECORDS[name], 1e-4
    for prior in record.priors[:2]:
        for size in record.sizes:
            curves = np.array(record.family.to_curves(*prior))
            y, weight = record.outcomes(*prior, size)
            probability = weight * np.exp(record.family.log_density(y, size, *curves))
            sums = made_rows(name, [([y[0]], [size])])
            result = np.ravel(sums.information(*curves[:, None]))
            for k, information in enumerate(result):
                ahead, behind = (
                    record.family.log_density(y, size, *(curves + sign * step * np.eye(2)[k]))
                    for sign in (1, -1)
                )
                score = (ahead - behind) / (2.0 * step)
                exact_information = probability @ score**2
                assert information <= exact_information * 1.001 + 1e-9
                assert information >= exact_information * (0.8 if k == 0 else 0.25) - 1e-9


def test_single_trials_say_nothing_of_the_variance():
    single_trials = [0, 1, 1, 0, 1], [1] * 5
    assert not made_rows("Beta", [single_trials]).informs_variance
    sums = made_rows("Beta", [single_trials, ([0, 1], [1, 2])])
    assert sums.informs_variance
    variance = np.linspace(-5.0, 2.0, 8)
    single = values(sums, np.full(8, 0.3), variance)[0, :, 0]
    assert np.ptp(single) < 1e-12


@pytest.mark.parametrize("spread", [0.0, 0.2])
@pytest.mark.parametrize("second", [-9.0, -0.5])
def test_drawn_totals_have_the_mean_and_variance_of_sums(name, second, spread):
    """20,000 draws: 4 standard errors of the mean, 5% of the variance."""
    record, first = RECORDS[name], 0.4
    sizes = np.repeat({"Normal": [0.5, 2.0]}.get(name, [1.0, 40.0]), [50, 4])
    outcomes = sizes if name == "InverseGamma" else np.zeros(54)
    sums = made_rows(name, [(outcomes, sizes)]).with_spread(np.array([spread]))
    curves = np.full((20_000, 1), first), np.full((20_000, 1), second)
    totals = sums.draw(*curves, np.random.default_rng(3))[:, 0]
    wide = record.family.widened(first, second, spread)
    law = record.marginal(*record.family.to_parameters(*wide), sizes)
    mean, variance = (np.sum(moment) for moment in law.stats("mv"))
    if name == "Normal":  # the row's mean
        mean, variance = mean / 54, variance / 54**2
    assert totals.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / 20_000))
    assert totals.var() == pytest.approx(variance, rel=0.05)


# sizes of a row's items, its curves, and the exact law of its total
SHAPES = np.exp(0.7) * (1.0 + np.exp(0.4)), np.exp(0.7) * (1.0 + np.exp(-0.4))
LAWS = {
    "counts": (
        "Gamma",
        [2.0] * 3,
        (0.4, -0.7),
        nbinom(3 * np.exp(0.7), 1 / (1 + 2 * np.exp(-0.3))),
    ),
    "counts of small shape": (
        "Gamma",
        [50.0],
        (0.4, 4.0),
        nbinom(np.exp(-4), 1 / (1 + 50 * np.exp(4.4))),
    ),
    "counts of tiny shape": ("Gamma", [50.0] * 2, (0.4, 600.0), poisson(0.0)),
    "counts of infinite cv2": ("Gamma", [50.0] * 2, (0.4, 800.0), poisson(0.0)),
    "counts of large shape": ("Gamma", [2.0] * 3, (0.4, -30.0), poisson(6 * np.exp(0.4))),
    "counts of cv2 0": ("Gamma", [2.0, 5.0, 0.0], (0.4, -800.0), poisson(7 * np.exp(0.4))),
    "trials": ("Beta", [20], (0.4, -0.7), betabinom(20, *SHAPES)),
    "single trials": ("Beta", [1] * 9, (0.4, 3.0), binom(9, 1 / (1 + np.exp(-0.4)))),
    "trials of equal theta": ("Beta", [20, 7, 0], (0.4, -800.0), binom(27, 1 / (1 + np.exp(-0.4)))),
    "values": (
        "Normal",
        [0.5, 2.0, 2.0],
        (0.4, -0.7),
        norm(0.4, np.sqrt(8.25 / 9 + np.exp(-0.7) / 3)),
    ),
    "values of equal theta": ("Normal", [0.5] * 4, (1e3, -800.0), norm(1e3, 0.25)),
}


@pytest.mark.parametrize("case", LAWS)
def test_drawn_totals_have_their_exact_law(case):
    """20,000 draws beside another row: shares below each percentile to 4 standard errors."""
    family_name, sizes, point, law = LAWS[case]
    sums = made_rows(family_name, [(np.zeros(len(sizes)), sizes), ([0], [3])])
    curves = (np.full((20_000, 2), value) for value in point)
    totals = np.sort(sums.draw(*curves, np.random.default_rng(4))[:, 0])
    cuts = np.unique(np.quantile(totals, np.linspace(0.01, 0.99, 99), method="nearest"))
    below = np.searchsorted(totals, cuts, side="right") / len(totals)
    share = law.cdf(cuts)
    error = np.sqrt(share * (1.0 - share) / len(totals))
    assert (np.abs(below - share) <= 4.0 * error + 1e-9).all()


@pytest.mark.parametrize("second", [40.0, 800.0])
@pytest.mark.parametrize("first", [-2.0, 1.0, 700.0, -700.0])
def test_drawn_successes_are_all_or_none_where_theta_is_0_or_1(first, second):
    sums = made_rows("Beta", [([0], [20]), ([0, 0], [20, 7])])
    curves = (np.full((20_000, 2), value) for value in (first, second))
    one, two = sums.draw(*curves, np.random.default_rng(4)).T
    assert set(one) <= {0.0, 20.0}
    # the sum of two Beta-Binomials is drawn as one
    assert ((two >= 0) & (two <= 27)).all()
    for totals, trials in ((one, 20), (two, 27)):
        law = bernoulli(1.0 / (1.0 + np.exp(-first)))
        error = law.std() / np.sqrt(len(totals))
        assert totals.mean() / trials == pytest.approx(law.mean(), abs=4.0 * error + 1e-12)


def test_drawn_counts_beyond_the_digits_of_numbers_are_their_means():
    """Where one event more is below rounding, and numpy cannot draw."""
    sums = made_rows("Gamma", [([0, 0], [1e9, 2e9]), ([0], [1.0])])
    curves = np.full((50, 2), 30.0), np.full((50, 2), -60.0)
    totals = sums.draw(*curves, np.random.default_rng(4))
    np.testing.assert_allclose(totals[:, 0], 3e9 * np.exp(30.0), rtol=1e-12)
    mean = np.exp(30.0)
    assert totals[:, 1].mean() == pytest.approx(mean, abs=4.0 * np.sqrt(mean / 50))
    assert totals[:, 1].std() == pytest.approx(np.sqrt(mean), rel=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("example_name", ["gamma", "beta"])
def test_polynomials_stand_for_the_density(example_name, example):
    """At the pilot, at draws, and far out, where they are refused: to 5e-3 nats, slopes alike."""
    case = example(example_name)
    arguments = case.statistics, case.case.prior
    built, model = problem.build(*arguments), soc.model(*arguments)
    near, start = density.near_densities(built), built.space.start
    direction = np.random.default_rng(1).normal(size=(20, len(start)))
    for size in (0.0, 1.0, 4.0):
        value, gradient = near.bound(size * direction)
        exact_value, exact_gradient = pymc_density(model, size * direction)
        np.testing.assert_allclose(value, exact_value, atol=5e-3, rtol=0)
        np.testing.assert_allclose(gradient, exact_gradient, atol=1e-2, rtol=1e-6)
        np.testing.assert_allclose(near.weights(size * direction), value, atol=1e-9)


def test_noise_that_varies_within_a_cell():
    """Two noise sds of one cell, constant theta: the error is of fourth order in their distance."""
    noise_sd = np.repeat([1.02, 1.03], [900, 100])
    sums = made_rows("Normal", [(np.zeros(1000), noise_sd)])
    log_marginal = sums.values(np.zeros((1, 1)), np.full((1, 1), -60.0))
    expected = norm.logpdf(0.0, 0.0, noise_sd).sum()
    assert log_marginal.item() == pytest.approx(expected, abs=1e-5)
