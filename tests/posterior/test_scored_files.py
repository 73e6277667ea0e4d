"""Posteriors as files: complete or absent, and made again only after a change."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from soc_pymc._lib.threads import VARIABLE
from soc_pymc.posterior import items as posterior_items

ROLES = {"score": "score", "count": "count", "exposure": "exposure"}


@pytest.fixture
def files(tmp_path):
    """Three files of 400 items with a column of names; and the items of all of them."""
    frame = soc.simulation.s1(1200, seed=7)[list(ROLES)]
    frame["name"] = [f"item {i}" for i in range(len(frame))]
    folder = tmp_path / "items"
    folder.mkdir()
    for i, letter in enumerate("abc"):
        part = frame.iloc[400 * i : 400 * (i + 1)]
        part.to_parquet(folder / f"{letter}.parquet", index=False)
    return folder


def score(fit, source, out, **options):
    items = soc.PoissonItems(str(source), **ROLES)
    return soc.item_posteriors(fit, items, out=out, progress=False, **options)


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()}


def test_a_folder_holds_what_one_file_holds(small_fit, files, tmp_path):
    """Order, the user's columns and the numbers, file by file and all at once."""
    folder = score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    assert sorted(times(folder)) == ["a.parquet", "b.parquet", "c.parquet"]
    whole = pq.read_table(score(small_fit, files / "*.parquet", tmp_path / "all.parquet"))
    assert whole["name"].to_pylist() == [f"item {i}" for i in range(1200)]
    parts = [pq.read_table(folder / f"{letter}.parquet") for letter in "abc"]
    assert [part.num_rows for part in parts] == [400] * 3
    for name in whole.column_names:
        split = np.concatenate([part[name].to_numpy() for part in parts])
        if name.startswith("theta"):
            np.testing.assert_allclose(split, whole[name].to_numpy(), rtol=1e-12)
        else:
            assert (split == whole[name].to_numpy()).all()


@pytest.mark.parametrize("name", ["small_fit", "grouped_fit"])
def test_files_scored_at_once_are_the_same_bits(name, files, tmp_path, request, monkeypatch):
    fit = request.getfixturevalue(name)
    monkeypatch.setattr(posterior_items, "_BATCH_OF_FEW", 50)
    for path in files.iterdir() if fit.groups else ():
        table = pq.read_table(path)
        labels = [("a", "b")[i % 2] for i in range(len(table))]
        pq.write_table(table.append_column("kind", [labels]), path)
    items = soc.PoissonItems(
        str(files / "*.parquet"), **ROLES, **({"group": "kind"} if fit.groups else {})
    )
    found = []
    for number in "123":
        monkeypatch.setenv(VARIABLE, number)
        folder = soc.item_posteriors(fit, items, out=f"{tmp_path}/{number}/", progress=False)
        found.append([(p.name, p.read_bytes()) for p in sorted(folder.iterdir())])
    assert len(found[0]) == 3
    assert found[0] == found[1] == found[2]


def test_finished_files_are_kept(small_fit, files, tmp_path, capsys):
    folder = score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    first = times(folder)
    items = soc.PoissonItems(str(files / "*.parquet"), **ROLES)
    options = {"out": folder, "draws": "auto"}
    soc.item_posteriors(small_fit, items, **options)
    assert times(folder) == first
    changed = pq.read_table(files / "b.parquet").slice(0, 300)
    pq.write_table(changed, files / "b.parquet")
    (folder / "c.parquet").write_bytes(b"no Parquet at all")
    score(small_fit, files / "*.parquet", folder)
    again = times(folder)
    assert [name for name in first if first[name] == again[name]] == ["a.parquet"]
    assert pq.read_metadata(folder / "b.parquet").num_rows == 300


def test_another_fit_or_other_options_make_all_again(small_fit, small_statistics, files, tmp_path):
    folder = score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    first = times(folder)
    other = soc.fit(small_statistics, method=soc.FiveSteps(), progress=False)
    score(other, files / "*.parquet", folder)
    second = times(folder)
    assert all(first[name] != second[name] for name in first)
    score(other, files / "*.parquet", folder, quantiles=(0.5,))
    assert all(second[name] != t for name, t in times(folder).items())


def test_a_saved_fit_is_the_same_fit(small_fit, files, tmp_path):
    folder = score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    first = times(folder)
    small_fit.save(tmp_path / "fit.nc")
    score(soc.load_fit(tmp_path / "fit.nc"), files / "*.parquet", folder)
    assert times(folder) == first


def test_a_bad_file_in_the_middle(small_fit, files, tmp_path, monkeypatch):
    """One error that names the file; the files before it stay and are not made again."""
    monkeypatch.setenv("SOC_PYMC_THREADS", "1")  # another thread may have begun the last file
    good = (files / "b.parquet").read_bytes()
    table = pq.read_table(files / "b.parquet").to_pandas()
    table.loc[123, "count"] = -1
    table.to_parquet(files / "b.parquet", index=False)
    with pytest.raises(soc.ItemsError, match=r"b\.parquet: column 'count': 1 of 400 rows"):
        score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    first = times(tmp_path / "scored")
    assert list(first) == ["a.parquet"]
    damaged = bytearray(good)
    damaged[100:4000] = bytes(3900)  # the footer stays
    (files / "b.parquet").write_bytes(damaged)
    with pytest.raises(soc.ItemsError, match=r"b\.parquet"):
        score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    (files / "b.parquet").write_bytes(good)
    score(small_fit, files / "*.parquet", f"{tmp_path}/scored/")
    assert times(tmp_path / "scored")["a.parquet"] == first["a.parquet"]
    assert len(times(tmp_path / "scored")) == 3


def test_clashing_names_and_overwritten_items_are_refused(small_fit, files, tmp_path):
    (files / "more").mkdir()
    (files / "more" / "a.parquet").write_bytes((files / "a.parquet").read_bytes())
    twice = [str(files / "a.parquet"), str(files / "more" / "a.parquet")]
    items = soc.PoissonItems(twice, **ROLES)
    with pytest.raises(soc.ItemsError, match="both be scored to"):
        soc.item_posteriors(small_fit, items, out=f"{tmp_path}/scored/", progress=False)
    before = (files / "a.parquet").read_bytes()
    for out in (files, files / "a.parquet"):
        with pytest.raises(soc.ItemsError, match="holds the items"):
            score(small_fit, files / "*.parquet", out)
    assert (files / "a.parquet").read_bytes() == before
    frame = soc.PoissonItems(soc.simulation.s1(10), **ROLES)
    with pytest.raises(soc.ItemsError, match="are no files"):
        soc.item_posteriors(small_fit, frame, out=tmp_path, progress=False)
    with pytest.raises(soc.ItemsError, match=r"named \*\.parquet"):
        soc.item_posteriors(small_fit, frame, out=tmp_path / "scored.csv", progress=False)


@pytest.mark.parametrize("out", ["scored.parquet", "scored/"])
def test_a_full_disk_leaves_nothing(small_fit, files, tmp_path, monkeypatch, out):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        score(small_fit, files / "*.parquet", f"{tmp_path}/{out}")
    left = [path for path in tmp_path.rglob("*") if files not in path.parents]
    assert [path.name for path in left if path.is_file()] == []


def test_vanished_rows_are_detected(small_fit, files, tmp_path, monkeypatch):
    from soc_pymc.posterior import items as posteriors

    whole = posteriors.batches
    monkeypatch.setattr(posteriors, "batches", lambda *a, **k: (b.slice(1) for b in whole(*a, **k)))
    with pytest.raises(soc.ItemsError, match="1,199 rows were scored of 1,200"):
        score(small_fit, files / "*.parquet", tmp_path / "scored.parquet")
    assert not list(tmp_path.glob("*.parquet"))


KILLED = """
import sys, time, soc_pymc as soc, pyarrow.parquet as pq
write = pq.ParquetWriter.write_table
def slow(self, table, *a, **k):
    write(self, table, *a, **k)
    open(sys.argv[3], "w").close()
    time.sleep(60)
pq.ParquetWriter.write_table = slow
items = soc.PoissonItems(sys.argv[2], score="score", count="count", exposure="exposure")
soc.item_posteriors(soc.load_fit(sys.argv[1]), items, out=sys.argv[4], plug_in=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is a signal of POSIX systems")
def test_a_killed_run(small_fit, files, tmp_path):
    """No file under the final name; the next run removes temporary files and succeeds."""
    small_fit.save(tmp_path / "fit.nc")
    written, out = tmp_path / "written", tmp_path / "scored.parquet"
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path / "fit.nc", files / "a.parquet", written, out]
    )
    deadline = time.monotonic() + 60
    while not written.exists() and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.05)
    try:
        assert written.exists()
        (left,) = tmp_path.glob(".scored.parquet.*.part")
        assert not out.exists()
        # while that run lives, another one leaves its file alone
        score(small_fit, files / "b.parquet", out)
        assert left.exists()
        out.unlink()
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert left.exists()
    assert not out.exists()
    score(small_fit, files / "a.parquet", out)
    assert pq.read_metadata(out).num_rows == 400
    assert not left.exists()


def test_leftovers_of_other_machines_go_after_a_day(small_fit, files, tmp_path):
    names = {".s.parquet.elsewhere-1.abc.part": 90_000, ".s.parquet.elsewhere-2.abc.part": 10}
    names |= {".other.parquet.elsewhere-1.abc.part": 90_000, ".s.parquet.txt": 90_000}
    for name, age in names.items():
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    score(small_fit, files / "a.parquet", tmp_path / "s.parquet")
    there = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert there == {"s.parquet", *list(names)[1:]}
