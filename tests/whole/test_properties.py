"""Laws of statistics and curves, on examples that hypothesis chooses: the same every time."""

import numpy as np
import pandas as pd
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import soc_pymc as soc
from soc_pymc._model.splines import spline_matrix

SEED = st.integers(0, 2**32 - 1)


def drawn_items(seed, n=400, factor=1.0):
    rng = np.random.default_rng(seed)
    score = rng.lognormal(-3.0, 0.8, n)
    exposure = np.exp2(rng.integers(0, 8, n)) if seed % 2 else rng.lognormal(3.0, 1.0, n)
    theta = score * rng.gamma(5.0, 0.2, n)
    count = rng.poisson(theta * exposure)
    return pd.DataFrame({"t": score, "y": count, "N": exposure * factor, "ad": np.arange(n)})


def summed(frame, **options):
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    return soc.summarize(items, progress=False, on_leakage="ignore", **options)


def assert_close(one, two):
    """The same statistics: whole numbers bit for bit, sums up to rounding."""
    assert one.data.sizes == two.data.sizes
    for name, values in one.data.variables.items():
        mine, its = values.to_numpy(), two.data[name].to_numpy()
        if mine.dtype.kind == "f":
            # 400 items: 1e-12 is a hundred times their sums' rounding
            np.testing.assert_allclose(mine, its, rtol=1e-12, err_msg=name)
        else:
            np.testing.assert_array_equal(mine, its, err_msg=name)


# ---------------------------------------------------------------- statistics


@settings(max_examples=6)
@given(SEED, st.booleans())
def test_the_order_of_items_does_not_matter(seed, joint):
    frame = drawn_items(seed)
    mixed = frame.sample(frac=1.0, random_state=seed)
    one, two = (summed(f, bins=7, joint=joint, folds=3) for f in (frame, mixed))
    assert_close(one, two)


@settings(max_examples=5)
@given(SEED, st.integers(-12, 12))
def test_units_of_exposure_are_free(seed, octaves):
    """In another unit (a power of 2) counts and bins stay; sums of N take on its powers."""
    factor = 2.0**octaves
    one, two = (summed(drawn_items(seed, factor=f), bins=6) for f in (1.0, factor))
    np.testing.assert_array_equal(one.edges, two.edges)
    for name in one.data.variables:
        power = 0
        if name in ("sum_N", "part_sum_N"):
            power = 1
        elif name.endswith(("cell", "label", "above", "log_N")):
            continue
        elif name.startswith(("exposure_sum_", "joint_sum_")) and "N" in name:
            power = int(name[-1]) if name[-1].isdigit() else 1
        np.testing.assert_array_equal(
            one.data[name].to_numpy() * factor**power, two.data[name].to_numpy(), err_msg=name
        )


# ---------------------------------------------------------------- curves


KNOTS = st.lists(st.integers(-50, 50), min_size=2, max_size=9, unique=True).map(sorted)


@given(KNOTS, st.floats(-3, 3), st.floats(-3, 3), st.floats(0.1, 10), st.floats(-20, 20))
def test_splines_keep_lines_and_know_no_units(knots, level, slope, factor, shift):
    """Straight lines are reproduced, beyond the knots too; a change of unit changes nothing."""
    at = np.linspace(knots[0] - 5, knots[-1] + 5, 23)
    knots = np.array(knots, dtype=float)
    matrix = spline_matrix(at, knots)
    line = level + slope * at
    size = 1 + np.abs(line).max() * np.abs(matrix).sum(axis=1).max()
    np.testing.assert_allclose(matrix @ (level + slope * knots), line, atol=1e-10 * size)
    moved = spline_matrix(factor * at + shift, factor * knots + shift)
    np.testing.assert_allclose(moved, matrix, atol=1e-8 * (1 + np.abs(matrix).max()))


@given(SEED, st.floats(0.05, 0.95), st.floats(0.01, 0.04))
def test_bands_are_nested(seed, prob, more):
    """Wider for more probability, simultaneous ones widest, free of the order of draws."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(1, 60, 5)).cumsum(axis=2)
    curves = xr.Dataset({"mean": (("chain", "draw", "score"), values)}, {"score": np.arange(5.0)})
    narrow, wide = (soc.bands(curves, p)["mean"].to_numpy() for p in (prob, prob + more))
    whole = soc.bands(curves, prob, simultaneous=True)["mean"].to_numpy()
    axis = next(i for i, n in enumerate(narrow.shape) if n != 5)
    low, high = (lambda b: b.min(axis=axis)), (lambda b: b.max(axis=axis))
    assert (low(wide) <= low(narrow) + 1e-12).all()
    assert (high(wide) >= high(narrow) - 1e-12).all()
    assert (low(whole) <= low(narrow) + 1e-12).all()
    assert (high(whole) >= high(narrow) - 1e-12).all()
    mixed = curves.isel(draw=rng.permutation(60))
    np.testing.assert_allclose(soc.bands(mixed, prob)["mean"].to_numpy(), narrow, atol=1e-12)
