"""Scores that many items share: which they are, their bins, on every engine and after adding."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.tables import ROLES, remote

QUIET = {"on_leakage": "ignore", "progress": False}


def frame_with(default, n=3000, seed=0, kind=np.float64):
    """Returns items of which a fifth have a default score."""
    rng = np.random.default_rng(seed)
    t = 0.05 * np.exp(rng.normal(0.0, 0.8, n))
    t[rng.random(n) < 0.2] = default
    return pd.DataFrame({"t": t.astype(kind), "y": rng.poisson(1.0, n), "N": 20.5})


def told(frame, **options):
    """Returns statistics, with the warning that many items share a score."""
    with pytest.warns(soc.ItemsWarning, match="'t' has scores shared by many items"):
        return soc.summarize(soc.PoissonItems(frame, **ROLES), **QUIET, **options)


# on a log scale, at 0, negative, inside, among the scores' ends, and far outside
@pytest.mark.parametrize("default", [0.05, 0.0, -1.0, 999.0])
def test_an_atom_has_a_bin_of_its_own(default):
    frame = frame_with(default)
    stats = told(frame)
    assert stats.atoms == {default: int((frame["t"] == default).sum())}
    (atom_bin,) = stats.bins_of(stats.atoms)
    low, high, n = (stats.data[k].to_numpy()[atom_bin] for k in ("score_min", "score_max", "n"))
    assert low == high == default
    assert n == (frame["t"] == default).sum()
    # other bins are as even as without it: no bin beside it has many items
    others = np.delete(stats.data["n"].to_numpy(), atom_bin)
    assert others.max() <= 3 * 10


def test_several_atoms_and_bins_of_equal_amounts():
    frame = frame_with(0.05).assign(N=lambda table: 1.0 + table.index % 7)
    for options in ({"bins": 40, "equal": "items"}, {"equal": "count"}):
        assert list(told(frame, **options).atoms) == [0.05]
    assert told(frame, bins=40).bins in (41, 42, 43)
    frame.loc[frame.index % 9 == 0, "t"] = 0.0501
    frame.loc[frame.index % 11 == 0, "t"] = 0.2
    assert list(told(frame).atoms) == [0.05, 0.0501, 0.2]


@pytest.mark.parametrize("form", ["few", "rounded", "coarse", "lattice", "rare", "continuous"])
def test_discrete_scores_are_no_atoms(form, recwarn):
    rng = np.random.default_rng(1)
    t = 0.05 * np.exp(rng.normal(0.0, 0.8, 4000))
    if form == "few":  # ten scores, one of them with most of the items
        t = np.where(rng.random(4000) < 0.8, 0.05, 0.01 * rng.integers(1, 11, 4000))
    elif form == "rounded":
        t = t.round(3)
    elif form == "coarse":
        t = t.round(2)
    elif form == "lattice":  # rates of 40 trials
        t = rng.poisson(2.0, 4000) / 40 + rng.integers(0, 30, 4000) * 1e-3
    elif form == "rare":  # repeated, but by less than 1%
        t[:39] = 0.05
    frame = pd.DataFrame({"t": t, "y": rng.poisson(1.0, 4000), "N": 20.5})
    assert soc.summarize(soc.PoissonItems(frame, **ROLES), **QUIET).atoms == {}
    assert not any("shared by many" in str(warning.message) for warning in recwarn)


def test_other_repeated_scores_hide_no_default():
    """Smoothed rates: a default, and beside it scores that a few hundred or dozen items share."""
    frame, start = frame_with(0.05), 0
    for k, items in enumerate((150, 120, 100, 70, 60, 50), 1):
        frame.loc[start : start + items - 1, "t"] = 0.05 - 1e-4 * k
        start += items
    assert 0.05 in told(frame).atoms


def test_the_default_score_of_campaigns_is_an_atom(real_data):
    """331 first days of campaigns share the overall rate, beside other days without a click."""
    frame = pd.read_parquet(real_data / "adcampaign_items.parquet")
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    with pytest.warns(soc.ItemsWarning, match="331 of 10,855"):
        stats = soc.summarize(items, **QUIET)
    assert 331 in stats.atoms.values()
    assert len(stats.atoms) <= 4


def test_atoms_of_days_add_up():
    """Each day has too few items at the score; edges around it come from the first."""
    days = [frame_with(0.05, n=1500, seed=k) for k in range(3)]
    head = told(days[0])
    tail = [
        soc.summarize(soc.PoissonItems(day, **ROLES), edges=head.edges, **QUIET) for day in days[1:]
    ]
    stats = sum([head, *tail])
    assert stats.atoms == {0.05: sum(int((day["t"] == 0.05).sum()) for day in days)}
    others = head.edges[np.abs(head.edges - 0.05) > 1e-9]
    moved = soc.summarize(soc.PoissonItems(days[0], **ROLES), edges=others, **QUIET)
    assert moved.atoms == {}  # in a bin with other scores


@pytest.mark.parametrize(("default", "kind"), [(0.0, np.float64), (0.1 + 0.2, np.float32)])
def test_engines_find_the_same_atoms(default, kind):
    frame = frame_with(default, kind=kind)
    here, there = (told(source) for source in (frame, remote(frame)))
    assert list(here.atoms) == list(there.atoms) == [float(kind(default))]
    np.testing.assert_array_equal(here.edges, there.edges)
    np.testing.assert_array_equal(here.data["n"], there.data["n"])
