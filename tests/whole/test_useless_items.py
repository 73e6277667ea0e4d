"""Items whose sizes say next to nothing change nobody's posterior, wherever their scores are."""

import functools

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.families.family import informative, typical_precision
from tests.examples import QUIET, thinned
from tests.tables import remote

KINDS = {
    "counts": (soc.PoissonItems, {"count": "y", "exposure": "x"}, 1e-9),
    "values": (soc.NormalItems, {"value": "y", "noise_sd": "x"}, 1e5),
    "successes": (soc.BinomialItems, {"successes": "y", "trials": "x"}, 1.0),
}


def table(kind, items, useless=0, place="among"):
    """Ten or more items, and `useless` ones with scores among or far above theirs."""
    rng = np.random.default_rng(5)
    score = rng.uniform(0.1, 0.6, items)
    if kind == "values":
        size = rng.uniform(0.17, 0.23, items)
        y = rng.normal(rng.normal(score, 0.15), size)
    elif kind == "counts":
        size = rng.uniform(20.0, 90.0, items)
        y = rng.poisson(rng.gamma(4.0, score / 4.0) * size)
    else:
        size = rng.integers(1000, 3000, items)
        y = rng.binomial(size, rng.beta(20 * score, 20 * (1 - score)))
    size_of_useless = KINDS[kind][2]
    low, high = (0.1, 0.6) if place == "among" else (0.9, 0.95)
    further = rng.uniform(low, high, useless)
    if kind == "values":
        outcome = rng.normal(size=useless) * size_of_useless
    elif kind == "counts":
        outcome = np.zeros(useless)
    else:
        outcome = rng.binomial(1, further)
    sizes = np.full(useless, size_of_useless)
    columns = {"t": (score, further), "y": (y, outcome), "x": (size, sizes)}
    return pd.DataFrame({name: np.concatenate(parts) for name, parts in columns.items()})


def items_of(kind, frame, scored=True):
    cls, roles, _ = KINDS[kind]
    return cls(frame, score="t" if scored else None, **roles)


@functools.cache
def posterior_of(kind, scored, useless, place):
    """Posteriors of the first ten items."""
    frame = table(kind, 10, useless, place)
    fit = soc.fit(soc.summarize(items_of(kind, frame, scored), **QUIET), **QUIET)
    return soc.item_posteriors(fit, items_of(kind, frame.iloc[:10], scored), **QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("scored", "place"), [(False, ""), (True, "among"), (True, "far")])
@pytest.mark.parametrize("useless", thinned([2, 200], [200]))
@pytest.mark.filterwarnings("ignore::soc_pymc.ItemsWarning")
def test_useless_items_change_nobody(kind, scored, place, useless):
    """Nobody's sd changes by 5%, and means by 5% of these.

    Single trials say a little about the mean of theta: 5% of it, which for items of thousands of
    trials is more than 5% of an sd.
    """
    alone, together = posterior_of(kind, scored, 0, ""), posterior_of(kind, scored, useless, place)
    ratio = together["theta_sd"] / alone["theta_sd"]
    assert np.abs(ratio - 1.0).max() < 0.05
    unit = alone["theta_mean" if kind == "successes" else "theta_sd"]
    assert (np.abs(together["theta_mean"] - alone["theta_mean"]) / unit).max() < 0.05


def test_bins_and_positions_are_those_of_informative_items():
    """To rounding: useless items weigh 2^-40, and the range of scores is that of all."""
    frame = table("counts", 400, 5000, "far")
    alone, together = (soc.summarize(items_of("counts", f), **QUIET) for f in (frame[:400], frame))
    np.testing.assert_array_equal(together.edges, alone.edges)
    for name in ("sum_weight", "sum_t", "sum_log_t2"):
        np.testing.assert_allclose(together.data[name], alone.data[name], rtol=1e-7)


def test_an_engine_tells_the_same_items_useless():
    frame = table("values", 200, 300)
    here, there = (soc.summarize(items_of("values", x), **QUIET) for x in (frame, remote(frame)))
    np.testing.assert_array_equal(there.edges, here.edges)
    for name in ("n", "sum_weight", "sum_t"):
        np.testing.assert_allclose(there.data[name], here.data[name], rtol=1e-12)


@pytest.mark.parametrize("further", [0, 3, 5000])
def test_typical_precision_ignores_imprecise_and_extremely_precise_items(further):
    """One extreme item has at most the weight of another, so 11/10 of their precision."""
    precision = np.concatenate([np.full(10, 25.0), np.full(further, 1e-10), [1e12]])
    typical = typical_precision(precision, np.ones(len(precision)))
    assert typical == pytest.approx(27.5, rel=1e-6)


def test_rare_events_are_informative_together():
    """Items of 0.0005 expected events are all there is, or nothing beside ten of five each."""
    events = np.array([5e-4, 5.0])
    assert informative(events, np.array([100_000, 1])).all()
    assert informative(events, np.array([100, 10])).tolist() == [False, True]
