"""Posteriors as files: complete or absent, and made again only after a change."""

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from tests.examples import COUNT_ROLES


@pytest.fixture(scope="module")
def fit(example):
    """The fit of five steps, which scores fast."""
    return example("five_steps").fit


@pytest.fixture
def files(tmp_path):
    """A folder of three files of 400 items with a column of names."""
    frame = soc.simulation.s1(1200, seed=7)[list(COUNT_ROLES)]
    frame["name"] = [f"item {i}" for i in range(len(frame))]
    folder = tmp_path / "items"
    folder.mkdir()
    for i, letter in enumerate("abc"):
        part = frame.iloc[400 * i : 400 * (i + 1)]
        part.to_parquet(folder / f"{letter}.parquet", index=False)
    return folder


def score(fit, source, out, **options):
    items = soc.PoissonItems(str(source), **COUNT_ROLES)
    return soc.item_posteriors(fit, items, out=out, progress=False, **options)


def times(folder):
    """Returns times of last change by file name."""
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()}


@pytest.mark.parametrize("out", ["items/all.parquet", "all/../items/"])
def test_posteriors_that_a_pattern_would_read_as_items_are_refused(fit, files, out):
    (files.parent / "all").mkdir()
    with pytest.raises(soc.ItemsError, match=r"(holds the|read as) items.* give another name"):
        score(fit, files / "*.parquet", f"{files.parent}/{out}")
    assert sorted(times(files)) == ["a.parquet", "b.parquet", "c.parquet"]
    assert score(fit, files / "?.parquet", files / "all.parquet").exists()


def test_a_folder_holds_what_one_file_holds(small_fit, files, tmp_path):
    """Order, the user's columns and the numbers, file by file and all at once."""
    folder = score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    assert sorted(times(folder)) == ["a.parquet", "b.parquet", "c.parquet"]
    out = tmp_path / "all.parquet"
    assert score(small_fit, files / "*.parquet", out) == out
    whole = pq.read_table(out)
    assert whole["name"].to_pylist() == [f"item {i}" for i in range(1200)]
    items = soc.PoissonItems(str(files / "*.parquet"), **COUNT_ROLES)
    in_memory = soc.item_posteriors(small_fit, items, progress=False)
    parts = [pq.read_table(folder / f"{letter}.parquet") for letter in "abc"]
    assert [part.num_rows for part in parts] == [400] * 3
    for name in whole.column_names:
        split = np.concatenate([part[name].to_numpy() for part in parts])
        for found in (split, in_memory[name].to_numpy()):
            if name.startswith("theta"):
                np.testing.assert_allclose(found, whole[name].to_numpy(), rtol=1e-12)
            else:
                assert (found == whole[name].to_numpy()).all()


def test_finished_files_are_kept(fit, files, tmp_path):
    """Also by a saved fit; a changed file of items, or one that is no Parquet, is scored again."""
    folder = score(fit, files / "*.parquet", f"{tmp_path}/scored/")
    before = times(folder)
    fit.save(tmp_path / "fit.nc")
    score(soc.load_fit(tmp_path / "fit.nc"), files / "*.parquet", folder)
    assert times(folder) == before
    changed = pq.read_table(files / "b.parquet").slice(0, 300)
    pq.write_table(changed, files / "b.parquet")
    (folder / "c.parquet").write_bytes(b"no Parquet at all")
    score(fit, files / "*.parquet", folder)
    after = times(folder)
    assert [name for name in before if before[name] == after[name]] == ["a.parquet"]
    assert pq.read_metadata(folder / "b.parquet").num_rows == 300


@pytest.mark.slow
def test_another_fit_or_other_options_make_all_again(small_fit, fit, files, tmp_path):
    folder = score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    previous = times(folder)
    for options in ({}, {"quantiles": (0.5,)}):
        score(fit, files / "*.parquet", folder, **options)
        assert all(previous[name] != when for name, when in times(folder).items())
        previous = times(folder)


def test_a_bad_file_in_the_middle(fit, files, tmp_path, monkeypatch):
    """One error that names the file; the files before it stay and are not made again."""
    monkeypatch.setenv("SOC_PYMC_THREADS", "1")  # another thread may have begun the last file
    good = (files / "b.parquet").read_bytes()
    table = pq.read_table(files / "b.parquet").to_pandas()
    table.loc[123, "count"] = -1
    table.to_parquet(files / "b.parquet", index=False)
    with pytest.raises(soc.ItemsError, match=r"b\.parquet: column 'count': 1 of 400 rows"):
        score(fit, files / "*.parquet", f"{tmp_path}/scored/")
    before = times(tmp_path / "scored")
    assert list(before) == ["a.parquet"]
    damaged = bytearray(good)
    damaged[100:4000] = bytes(3900)  # the footer stays
    (files / "b.parquet").write_bytes(damaged)
    with pytest.raises(soc.ItemsError, match=r"b\.parquet"):
        score(fit, files / "*.parquet", f"{tmp_path}/scored/")
    (files / "b.parquet").write_bytes(good)
    score(fit, files / "*.parquet", f"{tmp_path}/scored/")
    after = times(tmp_path / "scored")
    assert after["a.parquet"] == before["a.parquet"]
    assert len(after) == 3


def test_a_file_that_was_written_again_is_scored_again(fit, files, tmp_path):
    """Even if it has its old size; the others are kept."""
    score(fit, files / "*.parquet", f"{tmp_path}/scored/")
    before = times(tmp_path / "scored")
    os.utime(files / "b.parquet", (1.0, 1.0))
    score(fit, files / "*.parquet", f"{tmp_path}/scored/")
    after = times(tmp_path / "scored")
    assert {name for name in before if after[name] != before[name]} == {"b.parquet"}


def test_items_are_never_overwritten(fit, files, tmp_path):
    """Nor are two files of items scored to one."""
    (files / "more").mkdir()
    (files / "more" / "a.parquet").write_bytes((files / "a.parquet").read_bytes())
    twice = [str(files / "a.parquet"), str(files / "more" / "a.parquet")]
    items = soc.PoissonItems(twice, **COUNT_ROLES)
    with pytest.raises(soc.ItemsError):
        soc.item_posteriors(fit, items, out=f"{tmp_path}/scored/", progress=False)
    before = (files / "a.parquet").read_bytes()
    for out in (files, files / "a.parquet"):
        with pytest.raises(soc.ItemsError):
            score(fit, files / "*.parquet", out)
    assert (files / "a.parquet").read_bytes() == before


@pytest.mark.parametrize("out", ["scored.parquet", "scored/"])
def test_a_full_disk_leaves_nothing(fit, files, tmp_path, monkeypatch, out):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        score(fit, files / "*.parquet", f"{tmp_path}/{out}")
    remaining = [path for path in tmp_path.rglob("*") if files not in path.parents]
    assert [path.name for path in remaining if path.is_file()] == []
