"""Leaks of outcomes into scores are found, and honest scores raise no alarm."""

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.evaluate import leakage
from tests.studies.leakage import fresh_of, items_of, one, world
from tests.thinning import thinned


def leaky(frame, share, rows=slice(None)):
    """Returns items whose score is in part their outcome's own estimate of theta."""
    rate = frame["value"] if "value" in frame else frame["count"] / frame["exposure"]
    mixed = frame["score"].copy()
    mixed[rows] = share * rate[rows] + (1 - share) * frame["score"][rows]
    return frame.assign(score=mixed)


def leaks(result):
    return "fail" in set(result.table["verdict"])


def evidence(result):
    return result.table.set_index("where").assign(z=result.data["z"].to_numpy())


@pytest.mark.parametrize(
    "kind",
    thinned(["s1", "informative", "coarse", "sure", "trials", "values"], ["informative"]),
)
def test_honest_scores_raise_no_alarm(kind):
    """Tests of 5% on two pieces of evidence: none of three fixed seeds raises an alarm."""
    for seed in (3, 4, 5):
        frame = world(2000, seed, kind)
        result = leakage(items_of(frame), fresh=items_of(fresh_of(frame)))
        assert not leaks(result), result


@pytest.mark.slow
def test_false_alarms_have_their_level():
    """Of 40 honest sets at most 6 alarms on tests of 5% (P = .01), on outcomes alone."""
    found = [
        leaks(leakage(items_of(world(2000, seed, kind))))
        for kind in ("s1", "values")
        for seed in range(10, 30)
    ]
    assert sum(found) <= 6


def test_heavy_leaks_show_in_outcomes_alone():
    """Half of the score is the outcome: of all items, of values, of small exposures alone."""
    frame = world(2000, 0)
    result = evidence(leakage(items_of(leaky(frame, 0.5)))).loc["outcomes alone"]
    assert result["z"] > 4
    assert result["value"] < 0.8
    assert leaks(leakage(items_of(leaky(world(2000, 0, "values"), 0.5))))
    frame = world(3000, 0)
    few = items_of(leaky(frame, 0.5, frame["exposure"] <= 8))
    assert leaks(leakage(few))
    assert soc.summarize(few, on_leakage="ignore", progress=False).leakage_z > -4
    assert not leaks(leakage(soc.summarize(items_of(frame), progress=False)))


def test_light_leaks_show_in_fresh_outcomes():
    """A tenth of the score is the outcome: nothing alone, much against fresh outcomes."""
    frame = leaky(world(3000, 1), 0.1)
    table = evidence(leakage(items_of(frame), fresh=items_of(fresh_of(frame))))
    assert table["verdict"].to_list() == ["ok", "fail"]
    assert table.loc["fresh outcomes", "value"] < 0.97


@pytest.mark.parametrize(("share", "factor"), [(0.0, 2.0), (0.1, 20.0)])
def test_a_common_factor_is_no_leak_and_hides_none(share, factor):
    """Fresh rates that are all higher by a factor, at exposures that grow or shrink with t."""
    frame, rng = leaky(world(3000, 0), share), np.random.default_rng(0)
    moved = frame["exposure"] * np.where((frame["score"] > 0.05) == (share == 0), 1.0, 0.2)
    later = frame.assign(count=rng.poisson(factor * frame["theta"] * moved), exposure=moved)
    table = evidence(leakage(items_of(frame), fresh=items_of(later)))
    assert (table.loc["fresh outcomes", "verdict"] == "fail") == bool(share)


def test_in_sample_scores_differ_from_out_of_fold_ones():
    """Leaves of 20 items against five folds, each scored by a model of the others."""
    alarms = one("leaves of 20", 3000, 0)
    assert alarms["out-of-fold scores"]
    assert alarms["any of them"]
    frame = world(300, 0)
    with pytest.raises(soc.ItemsError, match="another score"):
        leakage(items_of(frame), fresh=items_of(frame.iloc[::-1]))
