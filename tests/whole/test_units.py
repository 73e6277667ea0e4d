"""A table in another unit gives the same posteriors in that unit.

The unit changes by a power of two, which multiplies floating-point numbers exactly: so the same
computation in the new unit gives the same digits, and a tolerance of 1e-9 leaves room for the
logarithm of the unit alone. A constant with a hidden unit (a floor, a step, a prior's width) shows.
"""

import dataclasses

import numpy as np
import pytest

import soc_pymc as soc
from tests.examples import CASES, Case, Example, value_frame

GROUPED_VALUES = Case(value_frame, soc.NormalItems, soc.Normal(), roles={"group": "kind"})
# powers of the unit in columns
VALUE_COLUMNS = {"score": 1, "value": 1, "noise_sd": 1}
COUNT_COLUMNS = {"exposure": 1, "score": -1}


def example_in_unit(case, columns, octaves):
    """Returns an example whose columns are in another unit."""
    frame = case.frame()
    frame = frame.assign(**{n: frame[n] * 2.0 ** (p * octaves) for n, p in columns.items()})
    scaled = dataclasses.replace(case, frame=lambda: frame)
    return Example(scaled, scaled.fit)


def posteriors(example):
    """Returns posterior means, sds and quantiles of the first 200 items of an example."""
    items = example.case.items(example.frame.head(200))
    scored = soc.item_posteriors(example.fit, items, quantiles=(0.05, 0.95), progress=False)
    return scored[["theta_mean", "theta_sd", "theta_q05", "theta_q95"]].to_numpy()


def tolerance(octaves):
    """Returns 3e-8, since the logarithm of the unit takes digits, and 1e-8 without a change.

    A quantile's search begins at a place that rounding moves, and ends a little elsewhere.
    """
    return 1e-8 * (1.0 + max(0, abs(octaves) - 20) / 10)


CHOSEN_ANEW = 0.05
"""Tolerance for mixtures in posterior sds: the last digits of weights decide which draws are kept.

Errors were up to 0.002 for values and 0.033 for counts, at 1 octave as at 40; a step of one unit in
the grid of weights made 0.5.
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "octaves"),
    [
        ("normal", -40),
        ("normal", 40),
        ("grouped", -40),
        ("grouped", 40),
        ("normal_mixture", -40),
    ],
)
def test_values_in_another_unit(name, octaves, example):
    known = Example(GROUPED_VALUES, GROUPED_VALUES.fit) if name == "grouped" else example(name)
    expected = posteriors(known)
    scaled = example_in_unit(known.case, VALUE_COLUMNS, octaves)
    size = np.abs(expected[:, :1]) + expected[:, 1:2]  # means may be near 0
    error = np.abs(posteriors(scaled) / 2.0**octaves - expected) / size
    assert error.max() < (CHOSEN_ANEW if "mixture" in name else tolerance(octaves))


@pytest.mark.parametrize(
    ("name", "octaves"),
    [
        ("gamma", 40),
        pytest.param("gamma", -40, marks=pytest.mark.slow),
        pytest.param("groups", -40, marks=pytest.mark.slow),
        ("gamma_mixture", 40),  # slow by its example
    ],
)
def test_exposures_in_another_unit(name, octaves, example):
    scaled = example_in_unit(CASES[name], COUNT_COLUMNS, octaves)
    actual = posteriors(scaled) * 2.0**octaves
    rtol = tolerance(octaves) * np.array([1.0, 1.0, 4.0, 4.0])  # quantiles are searched for
    expected = posteriors(example(name))
    if "mixture" in name:
        assert (np.abs(actual - expected) < CHOSEN_ANEW * expected[:, 1:2]).all()
    else:
        assert (np.abs(actual / expected - 1.0) < rtol).all()
