"""Statistical tests fail when the method that they are about is broken on purpose.

A fault replaces one function, by name, while a test runs. `docs/dev/testing.md` has the record
of more.
"""

from importlib import import_module

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.checks import predictive
from tests.checks import test_checks as checks
from tests.evaluate import test_honest_scores as honest
from tests.paper import test_oracles as oracles
from tests.paper import test_simulation as simulation
from tests.posterior import test_curves as curves

TRUE_BANDS, TRUE_S1 = soc.bands, soc.simulation.s1
TRUE_RATES, TRUE_TAIL = oracles.lognormal_rates, predictive.tail_probability


def narrow_bands(draws, prob=0.9, **options):
    return TRUE_BANDS(draws, prob=0.8 * prob, **options)


def upper_end(below, upto, rng):
    return upto


def one_tail(values):
    return TRUE_TAIL(values) / 2


def wide_theta(n, **options):
    frame = TRUE_S1(n, **options)
    return frame.assign(theta=frame["true_mean"] + 1.2 * (frame["theta"] - frame["true_mean"]))


def wide_rates(score, exposure, delta, sigma, **options):
    return TRUE_RATES(score, exposure, delta, 1.3 * sigma, **options)


def scattered_folds(n, folds, groups, seed):
    return np.arange(n) % folds


FAULTS = {
    "bands too narrow": (
        ("soc_pymc.bands", narrow_bands),
        [
            curves.test_pointwise_bands_have_their_coverage,
            curves.test_simultaneous_bands_contain_whole_curves,
        ],
    ),
    "PIT without randomisation": (
        ("soc_pymc.checks.predictive.randomised_pit", upper_end),
        [checks.test_pit_is_calibrated_on_the_truth],
    ),
    "tail of one side": (
        ("soc_pymc.checks.predictive.tail_probability", one_tail),
        [checks.test_tail_probability_is_two_sided_and_goes_beyond_the_replicates],
    ),
    "theta of a larger variance": (
        ("soc_pymc.simulation.s1", wide_theta),
        [simulation.test_s1_has_its_moments],
    ),
    "lognormal rates of another sigma": (
        ("tests.paper.test_oracles.lognormal_rates", wide_rates),
        [
            oracles.test_lognormal_oracle_is_calibrated,
            oracles.test_rates_are_lognormal_around_given_scores,
        ],
    ),
    "groups divided among folds": (
        ("soc_pymc.evaluate.honest_scores._folds", scattered_folds),
        [honest.test_groups_stay_together],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen(name, monkeypatch):
    (where, wrong), tests = FAULTS[name]
    module, _, function = where.rpartition(".")
    owner = soc.simulation if module == "soc_pymc.simulation" else import_module(module)
    assert callable(getattr(owner, function))
    monkeypatch.setattr(owner, function, wrong)
    for test in tests:
        with pytest.raises(AssertionError):
            test()
