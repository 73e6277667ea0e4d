"""Successes in trials: statistics on two engines against the items, validity, error bound."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.data.items import BinomialItems
from soc_pymc.families.binomial_beta import a_b
from soc_pymc.families.binomial_rows import BetaRows
from soc_pymc.families.family import BETA
from soc_pymc.model.rows import rows_of
from tests import exact_beta


def table(n=3000, most=400, seed=0):
    """Items whose mean is that of their score, with a few of very many trials and some of none."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, n)
    trials = rng.integers(0, most, n)
    trials[:20] = rng.integers(10_000, 1_000_000, 20)
    theta = rng.beta(*a_b(np.log(p) - np.log1p(-p), np.log(0.1)))
    return pd.DataFrame({"p": p, "hits": rng.binomial(trials, theta), "bats": trials})


def items(frame, **roles):
    return BinomialItems(frame, score="p", successes="hits", trials="bats", **roles)


def _sorted(stats, name):
    keys = [k for k in stats.table(name) if k in ("group", "fold", "bin") or k.endswith("cell")]
    columns = stats.table(name)
    order = np.lexsort([columns[k] for k in keys])
    return {k: v[order] for k, v in columns.items()}


@pytest.mark.parametrize("joint", [False, True])
def test_engines_agree(joint):
    import ibis

    frame = table()
    frame["site"] = np.where(np.arange(len(frame)) % 3, "a", "b")
    options = {"edges": [0.2, 0.5, 0.7], "joint": joint, "progress": False}
    one = soc.summarize(items(frame, group="site"), **options)
    two = soc.summarize(items(ibis.memtable(frame), group="site"), **options)
    names = ("part", "trials", "failures", "successes", *["joint"] * joint)
    for name in names:
        here, there = _sorted(one, name), _sorted(two, name)
        for column, values in here.items():
            np.testing.assert_allclose(there[column], values, rtol=1e-12, err_msg=column)
    for weight in ("successes", "trials"):
        edges = [
            soc.summarize(items(x), equal=weight, bins=10, progress=False).edges
            for x in (frame, ibis.memtable(frame))
        ]
        np.testing.assert_array_equal(*edges)


def test_sums_are_those_of_the_items():
    frame = table()
    stats = soc.summarize(items(frame), edges=[0.5], joint=True, progress=False)
    y, n = frame["hits"].to_numpy(float), frame["bats"].to_numpy(float)
    of = (frame["p"] >= 0.5).to_numpy().astype(int)
    sums = {"sum_y3": y**3, "sum_z2": (n - y) ** 2, "sum_z3": (n - y) ** 3, "sum_N3": n**3}
    for name in ("successes", "failures", "trials", "joint"):
        cells = stats.cells(name)
        for column in sums.keys() & cells.keys():
            found = np.bincount(cells["bin"], cells[column])
            np.testing.assert_allclose(found, np.bincount(of, sums[column]), rtol=1e-12)
    logits = np.log(frame["p"]) - np.log1p(-frame["p"])
    np.testing.assert_allclose(stats.data["sum_logit_t"].sum(), logits.sum(), rtol=1e-10)


@pytest.mark.parametrize("joint", [False, True])
def test_rows_are_those_of_the_items(joint):
    """Within the stated error, from the three margins or from joint cells."""
    frame = table()
    stats = soc.summarize(items(frame), edges=[0.5], joint=True, progress=False)
    rows, data = rows_of(stats, BETA)
    if joint:
        cells = stats.table("joint")
        data = BetaRows.of(2, {"joint": {**cells, "row": cells["bin"]}})
    y, n = frame["hits"].to_numpy(float), frame["bats"].to_numpy(float)
    true = exact_beta.exact_rows((frame["p"] >= 0.5).to_numpy() * 1.0, y, n, 2)
    assert rows.number == 2
    base = None
    for g in (-8.0, -3.0, -1.0, 0.5):
        f, second = np.array([-0.9, 0.9]), np.full(2, g)
        gap = data.likelihood(f, second)[0] - true.likelihood(f, second)[0]
        base = gap if base is None else base  # of the terms that are free of parameters
        assert (np.abs(gap - base) <= 2 * stats.error_bound + 1e-6).all()


def test_labels_and_no_trials():
    frame = table(most=2).iloc[20:]
    stats = soc.summarize(items(frame), bins=10, progress=False)
    assert stats.leakage_z == 0
    _, data = rows_of(stats, BETA)
    assert not data.tells_second.any()
    frame = frame.assign(bats=0, hits=0)
    with pytest.raises(soc.FitError, match="all trials are 0"):
        soc.fit(soc.summarize(items(frame), bins=10, progress=False), progress=False)


def test_leakage_is_seen():
    """Scores that saw the successes vary less around them than their noise."""
    frame = table(most=200)
    honest = soc.summarize(items(frame), progress=False)
    assert honest.leakage_z > -3
    frame = frame[frame["bats"] > 0]
    seen = frame.assign(p=((frame["hits"] + 0.5) / (frame["bats"] + 1)))
    with pytest.raises(soc.ItemsError, match="successes vary far less"):
        soc.summarize(items(seen), progress=False)


@pytest.mark.parametrize(
    ("column", "bad", "said"),
    [
        ("hits", 1e6, "1 of 50 rows is above the trials of column 'bats'"),
        ("hits", -1.0, "1 of 50 rows is negative"),
        ("hits", 0.5, "1 of 50 rows is not whole"),
        ("bats", 90.5, "1 of 50 rows is not whole"),
        ("bats", -3.0, "1 of 50 rows is negative"),
    ],
)
@pytest.mark.parametrize("engine", ["stream", "ibis"])
def test_bad_items_are_refused(column, bad, said, engine):
    import ibis

    frame = table().iloc[100:150].astype(float)
    frame = frame.assign(bats=frame["bats"] + 5)
    frame.iloc[30, frame.columns.get_loc(column)] = bad
    if bad == -3.0:
        frame.iloc[30, frame.columns.get_loc("hits")] = 0.0
    source = frame if engine == "stream" else ibis.memtable(frame)
    with pytest.raises(soc.ItemsError, match=said):
        soc.summarize(items(source), progress=False)


def test_a_fit_recovers_both_curves_and_its_items():
    """Curves within four sds of the truth, and intervals of items cover."""
    rng = np.random.default_rng(5)
    n = 6000
    p = rng.uniform(0.05, 0.95, n)
    logit = np.log(p) - np.log1p(-p)
    a, b = a_b(0.2 + 0.9 * logit, np.log(0.15) - 0.2 * logit)
    theta, trials = rng.beta(a, b), rng.integers(1, 300, n)
    frame = pd.DataFrame({"p": p, "hits": rng.binomial(trials, theta), "bats": trials})
    fit = soc.fit(soc.summarize(items(frame), bins=60, progress=False), progress=False)
    assert fit.status.converged
    curves = soc.calibration_curves(fit, score=np.array([0.1, 0.3, 0.5, 0.7, 0.9]))
    at = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    line = np.log(at) - np.log1p(-at)
    for name, true in (
        ("logit_mean", 0.2 + 0.9 * line),
        ("log_odds_cv2", np.log(0.15) - 0.2 * line),
    ):
        draws = curves[name].to_numpy().reshape(-1, 5)
        assert (np.abs(draws.mean(axis=0) - true) < 4 * draws.std(axis=0)).all()
    scored = soc.item_posteriors(fit, items(frame), progress=False)
    inside = (scored["theta_q05"] <= theta) & (theta <= scored["theta_q95"])
    assert 0.885 < inside.mean() < 0.915
    oracle = ((a + frame["hits"]) / (a + b + trials) - theta) ** 2
    assert ((scored["theta_mean"] - theta) ** 2).mean() < 1.02 * oracle.mean()


@pytest.mark.parametrize("engine", ["stream", "ibis"])
def test_labels_are_true_or_false(engine):
    import ibis

    frame = table(most=2).assign(bats=1)
    frame = frame.assign(hits=frame["hits"].clip(upper=1))
    labels = frame.assign(hits=frame["hits"] == 1)
    source = labels if engine == "stream" else ibis.memtable(labels)
    found, same = (soc.summarize(items(each), bins=10, progress=False) for each in (source, frame))
    assert all(
        np.array_equal(found.data[name], same.data[name])
        for name in found.data
        if found.data[name].dtype.kind == "i"
    )
    assert found.data["sum_y"].sum() > 0
