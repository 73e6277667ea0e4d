"""Data sets: found in the order documented, stand-ins like the real tables, facts as published."""

import logging

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

NAMES = ("keywords", "motor_policies", "neighbourhoods", "batting")
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


def keyword_rows(count):
    return pd.DataFrame(
        {"keyword_id": 1, "week": 4, "score": 0.1, "clicks": count, "impressions": 9}, index=[0]
    )


@pytest.mark.parametrize("name", NAMES)
def test_stand_in_is_seeded_and_says_so(folders, name):
    made, again, other = (getattr(soc.datasets, name)(seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(made, again)
    assert not made.equals(other)
    assert made.attrs["simulated"]
    assert f"simulated stand-in of {len(made):,} rows" in made.attrs["source"]
    assert FILES[name] in made.attrs["source"]
    assert made.notna().all(axis=None)


@pytest.mark.parametrize("name", NAMES)
def test_stand_in_is_like_the_real_table(real_data, monkeypatch, tmp_path, name):
    """Same columns and types; medians within a factor of 2.5, as wide as a user would notice."""
    if not (real_data / FILES[name]).is_file():
        pytest.skip(f"real data: {FILES[name]} is not in the folder that SOC_PYMC_DATA names")
    real = getattr(soc.datasets, name)()
    assert not real.attrs["simulated"]
    monkeypatch.setenv("SOC_PYMC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = getattr(soc.datasets, name)()
    assert made.attrs["simulated"]
    assert dict(made.dtypes) == dict(real.dtypes)
    assert list(made.columns) == list(real.columns)
    if name != "motor_policies":  # its stand-in is smaller, and says so
        assert len(made) == len(real)
    for column in {"score", "clicks", "impressions", "exposure_years", "se25", "stayer25"}:
        if column in made:
            for q in (0.25, 0.5, 0.9):
                ratio = made[column].quantile(q) / max(real[column].quantile(q), 1e-9)
                assert 1 / 2.5 < ratio < 2.5 or made[column].quantile(q) < 1.5


def test_folder_of_the_variable_comes_before_the_cache(folders):
    named, cache = folders
    keyword_rows(1).to_parquet(cache / FILES["keywords"])
    assert soc.datasets.keywords()["clicks"].tolist() == [1]
    keyword_rows(2).to_parquet(named / FILES["keywords"])
    frame = soc.datasets.keywords()
    assert frame["clicks"].tolist() == [2]
    assert "real" in frame.attrs["source"]
    assert "GPL-3" in frame.attrs["source"]


def test_missing_variable_leaves_the_cache(folders, monkeypatch):
    _, cache = folders
    monkeypatch.delenv("SOC_PYMC_DATA")
    assert soc.datasets.cache_folder() == cache
    assert soc.datasets.keywords().attrs["simulated"]
    keyword_rows(3).to_parquet(cache / FILES["keywords"])
    assert soc.datasets.keywords()["clicks"].tolist() == [3]


def test_folder_that_is_not_there_is_passed_over(folders, monkeypatch):
    monkeypatch.setenv("SOC_PYMC_DATA", "/no/such/folder")
    assert soc.datasets.neighbourhoods().attrs["simulated"]


def test_stand_in_is_logged_and_warns_of_nothing(folders, caplog, recwarn):
    with caplog.at_level(logging.INFO, logger="soc_pymc"):
        frame = soc.datasets.neighbourhoods()
    assert [r.getMessage() for r in caplog.records] == [frame.attrs["source"]]
    assert not recwarn.list


@pytest.mark.parametrize("name", NAMES)
def test_unreadable_file_is_one_clear_error(folders, name):
    path = folders[0] / FILES[name]
    path.write_bytes(b"\x89 neither Parquet nor \x00\xff CSV")
    with pytest.raises(soc.ItemsError, match=FILES[name]) as caught:
        getattr(soc.datasets, name)()
    assert "stand-in" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_without_a_column_is_one_clear_error(folders):
    keyword_rows(1).drop(columns="clicks").to_parquet(folders[0] / FILES["keywords"])
    with pytest.raises(soc.ItemsError, match="clicks"):
        soc.datasets.keywords()


def test_value_of_a_wrong_type_is_one_clear_error(folders):
    keyword_rows(1).assign(clicks="many").to_parquet(folders[0] / FILES["keywords"])
    with pytest.raises(soc.ItemsError, match="Search-ad keywords"):
        soc.datasets.keywords()


def test_keyword_scores_have_not_seen_their_week(folders):
    """The stand-in's score is the shrunken rate of the four weeks before, from its own columns."""
    frame = soc.datasets.keywords()
    assert (frame["clicks"] <= frame["impressions"]).all()
    assert frame["impressions"].min() >= 2
    weeks, n_keywords = frame["week"].nunique(), frame["keyword_id"].nunique()
    assert frame.sort_values(["week", "keyword_id"]).index.is_monotonic_increasing
    clicks, shown, score = (
        frame[c].to_numpy().reshape(weeks, n_keywords).T for c in ("clicks", "impressions", "score")
    )
    clicks, shown, score = _sums(clicks), _sums(shown), score[:, 4:]
    pseudo = (score * (shown + 25) - clicks) / 25
    assert np.ptp(pseudo) < 1e-9


def _sums(values):
    """Sums over the four weeks before each week but the first four, shape (keywords, weeks)."""
    return sum(values[:, k : values.shape[1] - 4 + k] for k in range(4))


def test_real_halves_are_those_of_brown(real_data):
    """567 players estimated and 499 validated have 11 at-bats or more in the halves."""
    if not (real_data / FILES["batting"]).is_file():
        pytest.skip(f"real data: {FILES['batting']} is not in the folder that SOC_PYMC_DATA names")
    frame = soc.datasets.batting()
    enough = frame["at_bats"] >= 11
    assert enough.sum() == 567
    assert (enough & (frame["later_at_bats"] >= 11)).sum() == 499


def test_batters_are_those_of_efron_and_morris():
    """Their transformed sums: S = 18.96, shrinkage .791, squared errors 17.56 and 5.01 (a ratio of
    3.50), of averages of three digits: to .02 of rounding."""
    frame = soc.datasets.batters()
    assert len(frame) == 18
    assert frame["player"].is_unique
    assert frame["hits"].sum() == 215
    assert frame["later_average"].mean() == pytest.approx(0.265, abs=5e-4)

    def stable(rate):
        return np.sqrt(45) * np.arcsin(2 * rate - 1)

    x = stable(frame["hits"] / frame["at_bats"])
    truth = stable(frame["later_average"])
    spread = ((x - x.mean()) ** 2).sum()
    assert spread == pytest.approx(18.96, abs=5e-3)
    assert 15 / spread == pytest.approx(0.791, abs=5e-4)
    shrunk = x.mean() + (1 - 15 / spread) * (x - x.mean())
    errors = [((estimate - truth) ** 2).sum() for estimate in (x, shrunk)]
    assert errors == pytest.approx([17.56, 5.01], abs=0.02)


def test_later_averages_of_batters_are_of_whole_hits():
    """Hits are whole: the averages are those of whole hits, to half their last digit."""
    frame = soc.datasets.batters()
    hits = (frame["later_average"] * frame["later_at_bats"]).round()
    off = (hits / frame["later_at_bats"] - frame["later_average"]).abs()
    assert (off <= 5e-4).all()
