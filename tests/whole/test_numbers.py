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
        "mean": 0.0204947,
        "variance": 0.000212393,
        "band": 0.101115,
        "theta_mean": 0.644566,
        "theta_sd": 1.30095,
        "theta_q95": 5.20468,
    },
    "normal": {
        "mean": 0.0344221,
        "variance": 0.434572,
        "band": 4.30541,
        "theta_mean": 9.20016,
        "theta_sd": 16.4186,
        "theta_q95": 17.7148,
    },
    "beta": {
        "mean": 0.286516,
        "variance": 0.0168473,
        "band": 0.52589,
        "theta_mean": 2.14344,
        "theta_sd": 3.12499,
        "theta_q95": 17.3687,
    },
    "gamma_mixture": {
        "mean": 0.0205522,
        "variance": 0.000218392,
        "band": 0.101472,
        "theta_mean": 0.645855,
        "theta_sd": 1.33085,
        "theta_q95": 5.2599,
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
