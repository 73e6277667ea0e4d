"""Killed, out of disk, or stopped by a bad file: nothing half-written, and a rerun succeeds."""

import os
import resource
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from tests.thinning import thinned

FILES, ROWS = 4, 30_000


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A folder with items in files."""
    folder = tmp_path_factory.mktemp("items")
    (folder / "parts").mkdir()
    for k in range(FILES):
        frame = soc.simulation.s1(ROWS, seed=k)[["score", "count", "exposure"]]
        pq.write_table(pa.Table.from_pandas(frame), folder / "parts" / f"{k}.parquet")
    return folder


@pytest.fixture
def items(parts, name):
    """The folder, with statistics and a fit where the command of this name reads them."""
    if name != "summarize" and not (parts / "fit.nc").exists():
        assert run(parts, summarize(parts, "stats.nc")).returncode == 0
        assert run(parts, fit("stats.nc", "fit.nc")).returncode == 0
    return parts


def summarize(folder, out):
    roles = ["--score", "score", "--count", "count", "--exposure", "exposure"]
    return ["summarize", f"{folder}/parts/*.parquet", *roles, "--bins", "300", "--out", out]


def fit(stats, out):
    return ["fit", stats, "--out", out]


def posteriors(folder, out):
    draws = ["--draws", "auto"]
    return ["posteriors", "fit.nc", f"{folder}/parts/*.parquet", *draws, "--out", out]


def command(words):
    return [sys.executable, "-m", "soc_pymc", *words, "--quiet"]


def run(folder, words, **options):
    return subprocess.run(
        command(words), cwd=folder, capture_output=True, text=True, timeout=300, **options
    )


COMMANDS = {
    "summarize": lambda folder: summarize(folder, "new.nc"),
    "fit": lambda folder: fit("stats.nc", "new.nc"),
    "posteriors": lambda folder: posteriors(folder, "new.parquet"),
}


def whole(path):
    """Whether a result is there, and can be read in full."""
    if not path.exists():
        return False
    if path.suffix == ".parquet":
        return pq.read_table(path).num_rows == FILES * ROWS
    try:
        return soc.load_statistics(path).n_items == FILES * ROWS
    except soc.StatisticsError:
        return soc.load_fit(path).status.converged


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_any_moment(name, items):
    """kill -9 after shares of the time that the command takes, late ones above all."""
    words = COMMANDS[name](items)
    target = items / words[-1]
    start = time.monotonic()
    assert run(items, words).returncode == 0
    duration = time.monotonic() - start
    killed = 0
    for share in (0.3, 0.7, 0.85, 0.95):
        target.unlink(missing_ok=True)
        running = subprocess.Popen(command(words), cwd=items, stderr=subprocess.DEVNULL)
        time.sleep(share * duration)
        running.kill()
        killed += running.wait() != 0
        assert whole(target) or not target.exists()
    assert killed > 0
    assert run(items, words).returncode == 0
    assert whole(target)
    target.unlink()
    assert [p.name for p in items.iterdir() if ".new." in p.name] == []  # the rerun tidied up


def _little_disk():
    """No file may grow beyond 20 kB: what a full disk does, without filling one."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@pytest.mark.parametrize("name", thinned(COMMANDS, ["summarize"]))
def test_a_full_disk_is_one_line_and_leaves_the_old_file(name, items):
    words = COMMANDS[name](items)
    target = items / words[-1]
    target.write_text("the old one")
    done = run(items, words, preexec_fn=_little_disk)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("soc-pymc: error: ")
    assert target.read_text() == "the old one"
    target.unlink()
    assert [p.name for p in items.iterdir() if ".new." in p.name] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["summarize", "posteriors"])
def test_an_unreadable_file_in_the_middle_is_named(name, items):
    words = COMMANDS[name](items)
    bad = items / "parts" / "2.parquet"
    good = bad.read_bytes()
    damaged = bytearray(good)
    damaged[4:60] = os.urandom(56)
    try:
        for content, at_fault in ((good[: len(good) // 2], "cut"), (bytes(damaged), "damaged")):
            bad.write_bytes(content)
            done = run(items, words)
            assert done.returncode == 2, at_fault
            assert "2.parquet" in done.stderr, at_fault
            assert len(done.stderr.strip().splitlines()) == 1
            assert not (items / words[-1]).exists()
    finally:
        bad.write_bytes(good)
    assert run(items, words).returncode == 0
    (items / words[-1]).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["posteriors"])
def test_finished_files_of_a_glob_are_not_made_again(items):
    """A killed run over a folder goes on where it was."""
    out = items / "scored"
    out.mkdir()
    words = posteriors(items, f"{out}/")
    running = subprocess.Popen(command(words), cwd=items, stderr=subprocess.DEVNULL)
    while not any(out.glob("*.parquet")) and running.poll() is None:
        time.sleep(0.01)
    running.kill()
    running.wait()
    finished = {p.name: p.stat().st_mtime_ns for p in out.glob("*.parquet")}
    assert finished
    assert run(items, words).returncode == 0
    again = {p.name: p.stat().st_mtime_ns for p in out.glob("*.parquet")}
    assert again.keys() == {f"{k}.parquet" for k in range(FILES)}
    assert all(again[name] == at for name, at in finished.items())
    assert all(pq.read_table(p).num_rows == ROWS for p in out.glob("*.parquet"))
    assert not [p for p in out.iterdir() if p.name.startswith(".")]
