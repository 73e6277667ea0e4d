"""Closed forms in the limits against mpmath at 50 digits: the study's grid, or part of it."""

import numpy as np
import pytest

from soc_pymc.families import further
from soc_pymc.families import poisson_gamma as pg
from soc_pymc.families.family import GAMMA
from soc_pymc.posterior.predictive import ThetaMixture
from tests import extreme_references as references
from tests.studies import extremes

# what float64 leaves where sums cancel, from docs/dev/numerics.md: everything else is held to 1e-9
_KNOWN = {
    # a slope is a difference of counts and means: a last digit of 1e9 is 1e-7
    "rows of counts: value": 1e-6,
    "rows of counts: slope in log mean": 1e-6,
    "rows of counts: slope in log cv2": 1e-6,
    "bins of counts: slope in log mean": 1e-6,
    "bins of counts: slope in log cv2": 1e-6,
    "bins of counts: second, both": 1e-6,
    "bins of counts: second, log cv2, twice": 1e-6,
    # tables of splines, and single precision, by design
    "item kernels: quantile, in sd": 1e-6,
    "item kernels: cdf": 1e-6,
    "kernel of mixtures: log marginal of an item, in nats": 3e-7,
    # weights of 45 components in single precision, whose sum is 1 to 6e-8
    "joint cells: nats an item of a bin": 1e-8,
    "decisions: expected variance on a grid": 1e-7,
    # likewise differences of counts and means
    "cells of counts: slope in log cv2": 1e-6,
    # five nodes for each width of an effect, by design
    "effects of counts: log marginal, in nats": 1e-4,
    # counts to which the fit gives next to no probability
    "law of mixtures of Gammas: posterior mean": 1e-5,
    "law of mixtures of Gammas: posterior variance": 3e-5,
}
# no bound: differences of numbers given in float64; their ranges are
_RANGES = {
    "theory: Robbins' variance": 1e4,
    "theory: Tweedie's mean": 1e3,
    "theory: Tweedie's variance": 1e3,
    "mixture of Normals: posterior variance": 1e6,
    "law of Normal: posterior variance": 1e6,
    "law of mixtures of Normals: posterior variance": 5e3,  # of the whole grid
    "cells of values: value": 500.0,
    "cells of values: slope in mean, in sd": 500.0,
    "cells of values: slope in log variance": 500.0,
}


@pytest.fixture(scope="module")
def fast():
    return extremes.table(fast=True)


def _check(table):
    ranges = {name: upto for name, upto in _RANGES.items() if name in table.index}
    errors = table["worst_error"].drop(list(ranges))
    limits = errors.index.map(lambda name: _KNOWN.get(name, extremes.LIMIT)).to_numpy()
    assert len(errors) > 50
    bad = errors[~(errors <= limits)]
    assert bad.empty, table.loc[bad.index].to_string()
    for name, upto in ranges.items():
        found = str(table.loc[name, "within_1e-9_up_to"]).replace("all", "inf")
        assert float(found) >= upto, table.loc[name].to_string()


@pytest.mark.slow
def test_grid_of_limits(fast):
    _check(fast)


@pytest.mark.slow
def test_whole_grid_of_limits():
    table = extremes.table()
    assert {*_RANGES, *_KNOWN} <= {*table.index}
    _check(table)


@pytest.mark.slow
def test_rows_to_the_terms_of_the_data(fast):
    """What curves do not change may be large; against it no digit is lost."""
    assert fast.loc["rows of counts: value, to its data's terms", "worst_error"] < 1e-14


def test_cdf_of_hardly_overdispersed_huge_counts():
    """Mean 1e9 and shape 1e12: a thousandth more variance than Poisson's, 2% of a tail."""
    y, m, c = 999_809_741.0, np.log(1e9), np.log(1e-12)
    want = float(references.count_tails(y, np.exp(-c), np.exp(m))[0])
    assert float(pg.cdf(y, 1.0, m, c)) == pytest.approx(want, rel=1e-7)
    assert float(pg.cdf(y, 1.0, m, np.log(1e-30))) == pytest.approx(0.98 * want, rel=0.01)


def test_small_counts_whose_sum_starts_below_all_numbers():
    """(1 + 1500)^-100 is a subnormal number; the sum to 127 counts is not."""
    args = np.array([127.0]), np.array([1.0]), np.log([[1.5e5]]), -np.log([[100.0]])
    upto = pg.cdf_interval(*args)[1][0, 0]
    log = np.array([float(pg.log_pmf(k, 1.0, args[2], args[3])[0, 0]) for k in range(128)])
    whole = log.max() + np.log(np.exp(log - log.max()).sum())
    assert np.log(upto) == pytest.approx(whole, abs=1e-9)


def test_expected_variance_where_most_further_counts_are_none():
    """A shape of 0.5 and a further mean of 5: the first counts have most of the probability."""
    one = ThetaMixture(np.array([[0.5]]), np.array([[0.25]]), np.ones((1, 1)))
    found = further.expected_variance(GAMMA.further, one, np.array([2.5]))
    assert found[0] == pytest.approx(0.5 / 0.25 / 2.75, rel=1e-7)


def test_no_warning_of_a_probability_of_zero():
    """A count in no exposure has log probability -inf, said without a division."""
    with np.errstate(all="raise"):
        assert pg.log_pmf(3, 0.0, 0.0, 0.0) == -np.inf
        assert pg.log_pmf(0, 0.0, 0.0, 0.0) == 0.0
        assert pg.log_pmf(2, 1.0, 0.0, -800.0) == pytest.approx(-1.0 - np.log(2.0))
