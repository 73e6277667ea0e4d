"""Some numbers of the public interface, recorded: a change that moves them is meant or a mistake.

They hold on any processor and version to 1e-3 of themselves, or to the number's own Monte Carlo
error where draws decide it (probabilities of rank, Pareto k are left out for that reason). After a
change that is meant, `python -m tests.whole.test_numbers` prints the table anew.
"""

import pprint

import numpy as np
import pytest

import soc_pymc as soc
from tests.examples import CASES, Example

QUIET = {"progress": False}


def of_fit(example, scores):
    """Returns curves, item posteriors and checks of an example, by name."""
    curves = soc.calibration_curves(example.fit, scores)
    band = soc.bands(curves, 0.9)
    items = example.case.items(example.frame.head(40))
    scored = soc.item_posteriors(example.fit, items, quantiles=(0.05, 0.95), **QUIET)
    middle = len(scores) // 2
    return {
        "mean": float(curves["mean"].mean(("chain", "draw"))[middle]),
        "variance": float(curves["variance"].mean(("chain", "draw"))[middle]),
        "band": float(np.ptp(band["mean"].to_numpy(), axis=None)),
        "theta_mean": float(np.linalg.norm(scored["theta_mean"])),
        "theta_sd": float(scored["theta_sd"].sum()),
        "theta_q95": float(scored["theta_q95"].sum()),
    }


SCORES = {
    "gamma": [0.005, 0.02, 0.1],
    "normal": [-2.0, 0.0, 2.0],
    "beta": [0.1, 0.3, 0.7],
    "gamma_mixture": [0.005, 0.02, 0.1],
}
RECORDED = {
    "gamma": {
        "mean": 0.0205984,
        "variance": 0.000221015,
        "band": 0.101306,
        "theta_mean": 0.660774,
        "theta_sd": 1.34371,
        "theta_q95": 5.31658,
    },
    "normal": {
        "mean": 0.0343889,
        "variance": 0.433455,
        "band": 4.30506,
        "theta_mean": 9.20006,
        "theta_sd": 16.3985,
        "theta_q95": 17.6663,
    },
    "beta": {
        "mean": 0.286521,
        "variance": 0.0168432,
        "band": 0.525888,
        "theta_mean": 2.14341,
        "theta_sd": 3.12399,
        "theta_q95": 17.3675,
    },
    "gamma_mixture": {
        "mean": 0.0206061,
        "variance": 0.000218128,
        "band": 0.101939,
        "theta_mean": 0.665918,
        "theta_sd": 1.35411,
        "theta_q95": 5.35816,
    },
}


def numbers(example):
    """Returns all numbers by name; `example` returns an example by its name."""
    return {name: of_fit(example(name), scores) for name, scores in SCORES.items()}


@pytest.mark.parametrize("name", SCORES)
def test_numbers_are_those_recorded(name, example):
    assert of_fit(example(name), SCORES[name]) == pytest.approx(RECORDED[name], rel=1e-3)


if __name__ == "__main__":
    pprint.pprint(numbers(lambda name: Example(CASES[name], CASES[name].fit)), sort_dicts=False)
