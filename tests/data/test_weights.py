"""Rows with a weight stand for as many equal items."""

from dataclasses import replace
from itertools import product

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import soc_pymc as soc
from soc_pymc.data import local, summaries
from tests.examples import QUIET, thinned
from tests.tables import KINDS, simulated

FAST = {"method": soc.VI(draws=200, seed=1), **QUIET}


def weighted_items(kind, n=600):
    """Items of one kind with weights, over a pandas table, and the same with repeated rows."""
    make, roles = KINDS[kind]
    rng = np.random.default_rng(0)
    frame = simulated(kind, n=n).assign(g=rng.choice(["a", "b"], n), w=rng.integers(1, 12, n))
    items = make(frame, **roles, group="g", weight="w")
    rows = frame.loc[frame.index.repeat(frame["w"])].reset_index(drop=True)
    return items, replace(items, source=rows, weight=None)


def assert_same_sums(stats, other):
    """Whole numbers are equal; real sums to their rounding."""
    np.testing.assert_array_equal(stats.edges, other.edges)
    for name in stats.outcome.tables:
        table = other.table(name)
        for column, values in stats.table(name).items():
            rounding = 0.0 if values.dtype.kind == "i" else 1e-11
            np.testing.assert_allclose(values, table[column], rtol=rounding, atol=rounding)


@pytest.mark.parametrize(
    ("kind", "path"),
    thinned(
        list(product(KINDS, ["arrays", "compiled", "engine"])),
        lambda case: case[1] != "engine" or case[0] == "values",
    ),
)
def test_sums_are_those_of_repeated_rows(kind, path, monkeypatch):
    items, repeated = weighted_items(kind)
    options = {"joint": True, "folds": 3, "on_leakage": "ignore", **QUIET}
    expected = soc.summarize(repeated, **options)
    if path == "engine":
        items = replace(items, source=ibis.memtable(items.source))
        monkeypatch.setattr(summaries, "is_remote", lambda source: True)
    elif path == "compiled":
        monkeypatch.setattr(local._add, "_left", 0)
        monkeypatch.setattr(local.in_order, "_left", 0)
    stats = soc.summarize(items, **options)
    assert stats.n_items == len(repeated.source)
    assert_same_sums(stats, expected)
    assert_same_sums(stats + stats, expected + expected)


@pytest.mark.parametrize(
    "engine", thinned(["duckdb", "polars", "remote", "postgres", "spark"], ["polars"])
)
def test_engines_count_rows_by_their_weights(engine, put_on):
    """Whole sums are those of repeated rows on the engine itself, to the bit."""
    items, repeated = weighted_items("counts", n=300)
    frames = (x.source.assign(g=(x.source["g"] == "a").astype(int)) for x in (items, repeated))
    tables = [pa.Table.from_pandas(frame) for frame in frames]
    options = {"joint": True, "bins": 10, "on_leakage": "ignore", **QUIET}
    stats, expected = (
        soc.summarize(replace(x, source=put_on(engine, table)), **options)
        for x, table in zip((items, repeated), tables, strict=True)
    )
    assert stats.n_items == tables[1].num_rows
    assert_same_sums(stats, expected)


@pytest.mark.slow
def test_checks_and_posteriors_read_rows_as_equal_items():
    items, repeated = weighted_items("successes", n=150)
    fit = soc.fit(soc.summarize(repeated, on_leakage="ignore", **QUIET), **FAST)
    checks = [soc.check(fit, x, seed=1, subset=100, **QUIET) for x in (items, repeated)]
    pd.testing.assert_frame_equal(*(check.table for check in checks))
    worst = checks[0].worst(20)
    np.testing.assert_array_equal(worst["t"], items.source.loc[worst.index, "t"])
    each = soc.item_posteriors(fit, repeated, **QUIET)["theta_mean"]
    once = soc.item_posteriors(fit, items, **QUIET)["theta_mean"]
    np.testing.assert_allclose(np.repeat(once, items.source["w"]), each, rtol=1e-12)
    for read in (
        lambda: soc.decisions.probability_above(fit, items, 0.5, **QUIET),
        lambda: soc.evaluate.split_items(items, 0.5),
    ):
        with pytest.raises(soc.ItemsError, match="repeat the rows"):
            read()


@pytest.mark.parametrize(
    ("weight", "words"),
    [(1.5, "not whole"), (0.5, "not whole"), (0, "is 0;"), (-1, "negative"), (np.nan, "missing")],
)
def test_other_weights_are_refused_with_what_to_do(weight, words):
    items, _ = weighted_items("successes")
    frame = items.source.assign(w=items.source["w"] + 0.0)
    frame.loc[3, "w"] = weight
    expected = rf"^[^\n]*{words}[^\n]*survey weights[^\n]*group=[^\n]*$"
    with pytest.raises(soc.ItemsError, match=expected):  # in one line
        soc.summarize(replace(items, source=frame), **QUIET)


@pytest.mark.slow
def test_sample_weights_of_the_estimator_and_the_calibration_curve():
    """Frequencies are rows that repeat, 0 leaves a row out; the curves are the same."""
    rng = np.random.default_rng(4)
    p = np.round(rng.uniform(0.02, 0.98, 500), 2)
    y = rng.random(500) < p
    weight = rng.integers(0, 5, 500)
    rows = np.repeat(np.arange(500), weight)
    calibrator = soc.SecondOrderCalibrator(method=FAST["method"])
    weighted = calibrator.fit(p, y, sample_weight=weight).predict(p)
    np.testing.assert_allclose(weighted, calibrator.fit(p[rows], y[rows]).predict(p), rtol=1e-9)
    display = soc.plots.plot_calibration(y, p, sample_weight=weight)
    expected = soc.plots.plot_calibration(y[rows], p[rows])
    pd.testing.assert_frame_equal(display.bins, expected.bins)
    np.testing.assert_allclose(display.mean, expected.mean, rtol=1e-9)
    for fit in (calibrator.fit, lambda y, p, **more: soc.plots.plot_calibration(p, y, **more)):
        with pytest.raises(soc.ItemsError, match="survey weights"):
            fit(p, y, sample_weight=rng.uniform(1.0, 3.0, 500))
