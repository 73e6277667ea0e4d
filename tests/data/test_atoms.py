"""Scores that many items share: which they are, their bins, on every engine and after adding."""

import ibis
import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.data.binning import stand_out

QUIET = {"progress": False}
ROLES = {"score": "t", "count": "y", "exposure": "N"}


def frame_with(default, share=0.2, n=3000, seed=0, **kind):
    rng = np.random.default_rng(seed)
    t = 0.05 * np.exp(rng.normal(0.0, 0.8, n))
    t[rng.random(n) < share] = default
    return pd.DataFrame({"t": t.astype(**kind) if kind else t, "y": rng.poisson(1.0, n), "N": 20.5})


def told(frame, **options):
    """Statistics with the warning that says which scores are shared."""
    with pytest.warns(soc.ItemsWarning, match="column 't' has scores shared by many items") as seen:
        stats = soc.summarize(
            soc.PoissonItems(frame, **ROLES), on_leakage="ignore", **QUIET, **options
        )
    assert sum("shared by many" in str(one.message) for one in seen) == 1
    return stats


# on a log scale, at 0, negative, inside, among the scores' ends, and far outside
@pytest.mark.parametrize("default", [0.05, 0.1 + 0.2, 0.0, -1.0, 999.0, 1e-30, 1 / 3])
def test_an_atom_has_a_bin_of_its_own(default):
    frame = frame_with(default)
    stats = told(frame)
    assert stats.atoms == {default: int((frame["t"] == default).sum())}
    (at,) = stats.atom_bins
    low, high, n = (stats.data[k].to_numpy()[at] for k in ("score_min", "score_max", "n"))
    assert low == high == default
    assert n == (frame["t"] == default).sum()
    assert stats.edges[at - 1] == default or at == 0
    # other bins are as even as without it: no bin beside it has many items
    others = np.delete(stats.data["n"].to_numpy(), at)
    assert others.max() <= 3 * 10


def test_bins_of_equal_exposure_and_asked_numbers_of_bins():
    frame = frame_with(0.05).assign(N=lambda d: 1.0 + d.index % 7)
    for options in ({"bins": 40}, {"bins": 40, "equal": "exposure"}, {"equal": "count"}):
        assert list(told(frame, **options).atoms) == [0.05]
    assert told(frame, bins=40).bins in (41, 42, 43)


def test_several_atoms():
    frame = frame_with(0.05)
    frame.loc[frame.index % 9 == 0, "t"] = 0.0501
    frame.loc[frame.index % 11 == 0, "t"] = 0.2
    assert list(told(frame).atoms) == [0.05, 0.0501, 0.2]


@pytest.mark.parametrize("kind", ["few", "rounded", "coarse", "lattice", "rare", "continuous"])
def test_discrete_scores_are_no_atoms(kind, recwarn):
    rng = np.random.default_rng(1)
    t = 0.05 * np.exp(rng.normal(0.0, 0.8, 4000))
    if kind == "few":  # ten scores, one of them with most of the items
        t = np.where(rng.random(4000) < 0.8, 0.05, 0.01 * rng.integers(1, 11, 4000))
    elif kind == "rounded":
        t = t.round(3)
    elif kind == "coarse":
        t = t.round(2)
    elif kind == "lattice":  # rates of 40 trials
        t = rng.poisson(2.0, 4000) / 40 + rng.integers(0, 30, 4000) * 1e-3
    elif kind == "rare":  # repeated, but by less than 1%
        t[:39] = 0.05
    frame = pd.DataFrame({"t": t, "y": rng.poisson(1.0, 4000), "N": 20.5})
    stats = soc.summarize(soc.PoissonItems(frame, **ROLES), on_leakage="ignore", **QUIET)
    assert stats.atoms == {}
    assert not any("shared by many" in str(one.message) for one in recwarn)


def test_the_rule_for_atoms():
    """1% and 50 items, and 10 times those of the nearest bins except two."""
    others = np.full(60, 5)

    def found(items, single=True, at=30):
        n = others.copy()
        n[at] = items
        alone = np.full(60, single)
        return stand_out(n, alone)[at]

    assert found(50)
    assert not found(49)
    assert not found(500, single=False)  # a bin with several scores
    assert not stand_out(np.full(20, 5) + 500 * (np.arange(20) == 3), np.ones(20, bool)).any()
    heavy = others.copy()
    heavy[[28, 30, 31]] = 600, 700, 650
    assert np.flatnonzero(stand_out(heavy, np.ones(60, bool))).tolist() == [28, 30, 31]
    heavy[33] = 600
    assert not stand_out(heavy, np.ones(60, bool)).any()


def test_atoms_of_days_add_up():
    """Each day has too few items at the score; edges around it come from the first."""
    days = [frame_with(0.05, n=1500, seed=k) for k in range(3)]
    first = told(days[0])
    others = [
        soc.summarize(
            soc.PoissonItems(day, **ROLES), edges=first.edges, on_leakage="ignore", **QUIET
        )
        for day in days[1:]
    ]
    whole = sum([first, *others])
    n = sum(int((day["t"] == 0.05).sum()) for day in days)
    assert whole.atoms == {0.05: n}
    with_others = first.edges[np.abs(first.edges - 0.05) > 1e-9]
    moved = soc.summarize(
        soc.PoissonItems(days[0], **ROLES), edges=with_others, on_leakage="ignore", **QUIET
    )
    assert moved.atoms == {}  # in a bin with other scores


def test_stored_statistics_keep_their_atoms(tmp_path):
    stats = told(frame_with(0.05))
    stats.save(tmp_path / "stats.nc")
    assert soc.load_statistics(tmp_path / "stats.nc").atoms == stats.atoms
    assert "atoms   " in repr(stats)


@pytest.mark.parametrize("default", [0.1 + 0.2, 0.0, 1 / 3])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_engines_find_the_same_atoms(default, kind, tmp_path):
    frame = frame_with(default, dtype=kind)
    frame.to_parquet(tmp_path / "items.parquet")
    connection = ibis.duckdb.connect()
    connection.con.register("items", frame)
    sources = [frame, str(tmp_path / "items.parquet"), connection.table("items")]
    found = [told(source) for source in sources]
    score = float(kind(default))
    for stats in found:
        assert list(stats.atoms) == [score]
        assert np.array_equal(stats.edges, found[0].edges)
        assert np.array_equal(stats.data["n"], found[0].data["n"])
