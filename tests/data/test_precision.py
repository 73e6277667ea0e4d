"""Exact totals, values far from 0, and the bound of the error that wide cells make."""

import ibis
import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc._model.rows import rows_of
from soc_pymc.families.family import family_of_kind
from tests.checks import hand_made
from tests.tables import KINDS, ROLES, VALUE_ROLES

QUIET = {"on_leakage": "ignore", "progress": False}


@pytest.mark.parametrize("source", [pd.DataFrame, ibis.memtable])
def test_counts_are_totalled_exactly(source):
    frame = pd.DataFrame({"t": [0.5, 0.5, 0.5], "y": [2**53 - 1, 2**53 - 1, 1], "N": 1.0})
    stats = soc.summarize(soc.PoissonItems(source(frame), **ROLES), edges=[0.6], **QUIET)
    assert int(stats.data["sum_y"].sum()) == 2**54 - 1
    many = pd.DataFrame({"t": 0.5, "y": np.full(600, 2**53 - 1), "N": 1.0})
    with pytest.raises(soc.ItemsError, match="counted exactly"):
        soc.summarize(soc.PoissonItems(source(many), **ROLES), edges=[0.6], **QUIET)


def values(n=20_000, seed=1):
    """Returns values about their scores whose noise sds vary."""
    rng = np.random.default_rng(seed)
    t, s = rng.normal(size=n), rng.lognormal(0, 0.6, n)
    return pd.DataFrame({"t": t, "v": rng.normal(t, np.hypot(0.5, s)), "s": s})


def shifted(frame, shift):
    return frame.assign(t=frame["t"] + shift, v=frame["v"] + shift)


def of_values(frame, source=pd.DataFrame, edges=(-1.0, 0.0, 1.0), **roles):
    items = soc.NormalItems(source(frame), **VALUE_ROLES, **roles)
    return soc.summarize(items, edges=edges, joint=False, **QUIET)


@pytest.mark.parametrize("source", [pd.DataFrame, ibis.memtable])
def test_sums_that_lose_precision_are_refused(source):
    """Where they are accepted, the variation about a bin's mean is right to 1e-4."""
    frame = values()
    for shift in (0.0, 3e4):
        moved, edges = shifted(frame, shift), np.array([-1.0, 0.0, 1.0]) + shift
        data = of_values(moved, source, edges).data
        n, total, squares = (data[name].to_numpy() for name in ("n", "sum_y", "sum_y2"))
        variance = moved.groupby(np.searchsorted(edges, moved["t"], side="right"))["v"].var(ddof=0)
        np.testing.assert_allclose(squares / n - (total / n) ** 2, variance, rtol=1e-4)
    with pytest.raises(soc.ItemsError, match=r"'v': .*subtract a constant"):
        of_values(shifted(frame, 1e7), source, [1e7])


def test_precision_is_checked_by_group():
    """Distant groups vary much together, but each must keep its precision."""
    frame = values().assign(g=lambda table: table.index % 2)
    frame["v"] += 1e9 * frame["g"]
    assert of_values(frame).n_items == len(frame)
    with pytest.raises(soc.ItemsError, match="subtract a constant"):
        of_values(frame, group="g")


def log_marginals(kind, outcome, size, *curves):
    """Returns the items' log marginals at one pair of the curves' levels, by SciPy."""
    case = hand_made.KINDS["trials" if kind == "successes" else kind]
    law = case.marginal(*case.moments(*curves), size)
    return law.logpdf(outcome) if kind == "values" else law.logpmf(outcome)


def wide_items(kind, n=5000):
    """Returns items of one bin whose sizes and outcomes fill many wide cells."""
    rng = np.random.default_rng(2)
    t = rng.uniform(0.2, 0.4, n)
    if kind == "values":
        s = rng.lognormal(0, 0.6, n)
        return pd.DataFrame({"t": t, "v": rng.normal(t, np.hypot(0.7, s)), "s": s})
    if kind == "counts":
        size = rng.lognormal(4, 1.5, n)
        return pd.DataFrame(
            {"t": t, "y": rng.poisson(0.3 * rng.gamma(2, 0.5, n) * size), "N": size}
        )
    size = rng.integers(0, 5000, n)
    return pd.DataFrame({"t": t, "y": rng.binomial(size, rng.beta(3.0, 7.0, n)), "N": size})


@pytest.mark.parametrize("kind", KINDS)
def test_wide_cells_cost_little_of_the_likelihood(kind):
    """Likelihood of statistics against that of the items, up to a constant.

    Dispersions from almost none to large at the bin's mean: within 0.01 nats of 5,000 items.
    """
    make, roles = KINDS[kind]
    frame = wide_items(kind)
    stats = soc.summarize(make(frame, **roles), edges=[], **QUIET)
    outcome, size = (frame[name].to_numpy(float) for name in list(roles.values())[1:])
    first = {
        "counts": lambda: np.log(outcome.sum() / size.sum()),
        "values": outcome.mean,
        "successes": lambda: np.log(outcome.sum() / (size - outcome).sum()),
    }[kind]()
    data = rows_of(stats, family_of_kind(stats.kind))[1]
    gaps = []
    for second in (-9.0, -4.0, -1.0, 0.0, 1.0):
        exact = log_marginals(kind, outcome, size, first, second)
        of_cells = data.values(np.full((1, 1), first), np.full((1, 1), second)).sum()
        gaps.append(of_cells - exact.sum())
    assert np.ptp(gaps) < 0.01
