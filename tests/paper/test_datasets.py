"""Data sets: found in the order documented, stand-ins like the real tables, facts as published."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

FILES = {
    "keywords": "adwords_items.parquet",
    "motor_policies": "fremtpl2_items.parquet",
    "neighbourhoods": "chetty_cz.csv",
    "batting": "brown2008_batting.csv",
}


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Folders of the variable and of the cache, both empty."""
    named = tmp_path / "named"
    named.mkdir()
    monkeypatch.setenv("SOC_PYMC_DATA", str(named))
    for system in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):  # of Linux, Windows and macOS
        monkeypatch.setenv(system, str(tmp_path / "cache"))
    cache = soc.datasets.cache_folder()
    assert cache.is_relative_to(tmp_path)
    cache.mkdir(parents=True)
    return named, cache


def write_keywords(folder, clicks):
    columns = {"keyword_id": 1, "week": 4, "score": 0.1, "clicks": clicks, "impressions": 9}
    pd.DataFrame(columns, index=[0]).to_parquet(folder / FILES["keywords"])


@pytest.mark.parametrize("name", FILES)
def test_stand_in_is_seeded_and_says_so(folders, name):
    load = getattr(soc.datasets, name)
    frame = load(0)
    pd.testing.assert_frame_equal(frame, load(0))
    assert not frame.equals(load(1))
    assert frame.attrs["simulated"]
    assert FILES[name] in frame.attrs["source"]
    assert frame.notna().all(axis=None)


@pytest.mark.parametrize("name", FILES)
def test_stand_in_is_like_the_real_table(real_data, monkeypatch, tmp_path, name):
    """Same columns and types; quantiles within a factor of 2.5, as wide as a user would notice."""
    if not (real_data / FILES[name]).is_file():
        pytest.skip(f"real data: {FILES[name]} is not in the folder that SOC_PYMC_DATA names")
    real = getattr(soc.datasets, name)()
    assert not real.attrs["simulated"]
    monkeypatch.setenv("SOC_PYMC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = getattr(soc.datasets, name)()
    assert made.attrs["simulated"]
    assert dict(made.dtypes) == dict(real.dtypes)
    if name != "motor_policies":  # its stand-in is smaller, and says so
        assert len(made) == len(real)
    for column in {"score", "clicks", "impressions", "exposure_years", "se25"} & set(made):
        for q in (0.25, 0.5, 0.9):
            ratio = made[column].quantile(q) / max(real[column].quantile(q), 1e-9)
            assert 1 / 2.5 < ratio < 2.5 or made[column].quantile(q) < 1.5


def test_folder_of_the_variable_comes_before_the_cache(folders, monkeypatch):
    named, cache = folders
    write_keywords(cache, 1)
    assert soc.datasets.keywords()["clicks"].tolist() == [1]
    write_keywords(named, 2)
    frame = soc.datasets.keywords()
    assert frame["clicks"].tolist() == [2]
    assert not frame.attrs["simulated"]
    monkeypatch.setenv("SOC_PYMC_DATA", "/no/such/folder")
    assert soc.datasets.keywords()["clicks"].tolist() == [1]
    monkeypatch.delenv("SOC_PYMC_DATA")
    assert soc.datasets.keywords()["clicks"].tolist() == [1]


@pytest.mark.parametrize("name", FILES)
def test_unreadable_file_is_an_error_that_names_it(folders, name):
    (folders[0] / FILES[name]).write_bytes(b"\x89 neither Parquet nor \x00\xff CSV")
    with pytest.raises(soc.ItemsError, match=FILES[name]):
        getattr(soc.datasets, name)()


def test_keyword_scores_have_not_seen_their_week(folders):
    """The stand-in's score is the shrunken rate of the four weeks before, from its own columns."""
    frame = soc.datasets.keywords()
    assert (frame["clicks"] <= frame["impressions"]).all()
    weeks, keywords = frame["week"].nunique(), frame["keyword_id"].nunique()
    clicks, impressions, score = (
        frame[c].to_numpy().reshape(weeks, keywords) for c in ("clicks", "impressions", "score")
    )

    def before(values):
        return sum(values[k : weeks - 4 + k] for k in range(4))

    mean = (score[4:] * (before(impressions) + 25) - before(clicks)) / 25
    assert np.ptp(mean) < 1e-9


def test_real_halves_are_those_of_brown(real_data):
    """567 players estimated and 499 validated have 11 at-bats or more in the halves."""
    if not (real_data / FILES["batting"]).is_file():
        pytest.skip(f"real data: {FILES['batting']} is not in the folder that SOC_PYMC_DATA names")
    frame = soc.datasets.batting()
    enough = frame["at_bats"] >= 11
    assert enough.sum() == 567
    assert (enough & (frame["later_at_bats"] >= 11)).sum() == 499


def test_batters_are_those_of_efron_and_morris():
    """Their transformed sums: S = 18.96, shrinkage .791, squared errors 17.56 and 5.01.

    Averages have three digits, which leaves .02 of rounding; later hits are whole.
    """
    frame = soc.datasets.batters()
    assert len(frame) == frame["player"].nunique() == 18
    assert frame["hits"].sum() == 215
    x, truth = (
        np.sqrt(45) * np.arcsin(2 * rate - 1)
        for rate in (frame["hits"] / frame["at_bats"], frame["later_average"])
    )
    spread = ((x - x.mean()) ** 2).sum()
    assert spread == pytest.approx(18.96, abs=5e-3)
    assert 15 / spread == pytest.approx(0.791, abs=5e-4)
    shrunk = x.mean() + (1 - 15 / spread) * (x - x.mean())
    errors = [((estimate - truth) ** 2).sum() for estimate in (x, shrunk)]
    assert errors == pytest.approx([17.56, 5.01], abs=0.02)
    hits = (frame["later_average"] * frame["later_at_bats"]).round()
    assert ((hits / frame["later_at_bats"] - frame["later_average"]).abs() <= 5e-4).all()
