"""Killed, interrupted, or out of disk: results are complete or absent, and a rerun succeeds."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numba
import pyarrow as pa
import pyarrow.parquet as pq
import pytensor
import pytest

import soc_pymc as soc
from soc_pymc.__main__ import main
from soc_pymc._lib.files import replacing
from soc_pymc._lib.work import Phase

ROOT = Path(soc.__file__).parents[1]
ROLES = ["--score", "score", "--count", "count", "--exposure", "exposure"]
FILES, ROWS = 4, 30_000


def temporary_files(folder):
    return [name for name in os.listdir(folder) if name.startswith(".") or name.endswith(".part")]


def start(words, folder, **options):
    """Starts the command line in a process of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "soc_pymc", *words, "--quiet"]
    return subprocess.Popen(command, cwd=folder, env=environment, **options)


def run(words, folder, **options):
    """Runs the command line to its end and returns its status and standard error."""
    process = start(words, folder, **options)
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


@pytest.fixture
def folder(tmp_path, small_frame, small_statistics, small_fit):
    """A folder with items, their statistics and their fit."""
    small_frame.to_parquet(tmp_path / "items.parquet")
    small_statistics.save(tmp_path / "stats.nc")
    small_fit.save(tmp_path / "fit.nc")
    return tmp_path


def test_links_and_permissions_stay(tmp_path):
    target, link = tmp_path / "real.txt", tmp_path / "link.txt"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o640)


TWO_WRITERS = """
import sys
from soc_pymc._lib.files import replacing
for _ in range(100):
    with replacing(sys.argv[1]) as temporary, temporary.open("w") as file:
        for _ in range(20):
            file.write(sys.argv[2] * 1000)
            file.flush()
"""


@pytest.mark.slow
def test_two_processes_write_one_file(tmp_path):
    """Both finish, and whoever reads meanwhile sees a complete file."""
    target = tmp_path / "out.txt"
    writers = [
        subprocess.Popen([sys.executable, "-c", TWO_WRITERS, str(target), letter], cwd=ROOT)
        for letter in "ab"
    ]
    contents = set()
    while any(writer.poll() is None for writer in writers):
        if target.exists():
            contents.add(target.read_text())
    assert [writer.returncode for writer in writers] == [0, 0]
    assert contents
    assert contents <= {"a" * 20_000, "b" * 20_000}
    assert temporary_files(tmp_path) == []


def test_inputs_are_never_overwritten(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    for words in (
        ["summarize", "items.parquet", *ROLES, "--out", "./items.parquet"],
        ["fit", "stats.nc", "--out", "stats.nc"],
        ["curves", "fit.nc", "--out", "fit.nc"],
        ["run", "items*.parquet", *ROLES, "--out", "items_scored.parquet"],
    ):
        assert main([*words, "--quiet"]) == 2
        assert "is a file that is read" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


def _small_disk():
    """Lets no file grow beyond 20 kB, as a full disk would."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_the_old_file(folder):
    words = ["summarize", "items.parquet", *ROLES, "--bins", "300", "--out", "new.nc"]
    (folder / "new.nc").write_text("old")
    status, errors = run(words, folder, preexec_fn=_small_disk)
    assert status == 2
    assert errors.startswith("soc-pymc: error: ")
    assert len(errors.strip().splitlines()) == 1
    assert (folder / "new.nc").read_text() == "old"
    assert temporary_files(folder) == []


@pytest.mark.slow
def test_killed_while_scoring_a_folder(folder):
    """Finished files stay as they are, and a rerun makes the others and tidies up."""
    (folder / "parts").mkdir()
    for number in range(FILES):
        frame = soc.simulation.s1(ROWS, seed=number)[["score", "count", "exposure"]]
        pq.write_table(pa.Table.from_pandas(frame), folder / "parts" / f"{number}.parquet")
    scored = folder / "scored"
    scored.mkdir()
    words = ["posteriors", "fit.nc", "parts/*.parquet", "--out", "scored/"]
    process = start(words, folder)
    while not any(scored.glob("[0-9].parquet")) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    finished = {path.name: path.stat().st_mtime_ns for path in scored.glob("[0-9].parquet")}
    assert finished
    assert run(words, folder)[0] == 0
    times = {path.name: path.stat().st_mtime_ns for path in scored.iterdir()}
    assert times.keys() == {f"{number}.parquet" for number in range(FILES)}
    assert all(times[name] == finished[name] for name in finished)
    assert all(pq.read_table(path).num_rows == ROWS for path in scored.iterdir())


@pytest.mark.slow
def test_a_terminated_command_says_one_line(folder):
    # so many draws take seconds
    process = start(["fit", "stats.nc", "--draws", "300000", "--out", "new.nc"], folder)
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert len(errors.splitlines()) == 1, errors
    assert not (folder / "new.nc").exists()
    assert temporary_files(folder) == []


@pytest.fixture
def ctrl_c():
    """Lets Ctrl-C interrupt, which a process in the background of a shell ignores."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


def _interrupt_at(monkeypatch, call):
    """Sends Ctrl-C when progress is reported for the n-th time."""
    advance, calls = Phase.advance, []

    def advanced(self, amount=1):
        advance(self, amount)
        calls.append(amount)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Phase, "advance", advanced)


def _settings():
    """Returns what a call must leave as it was."""
    return numba.get_num_threads(), pytensor.config.mode, signal.getsignal(signal.SIGINT)


@pytest.mark.parametrize(
    ("call", "task"),
    [
        (5, lambda items, stats, fit, out: soc.fit(stats).data["posterior"].to_dataset()),
        (1, lambda items, stats, fit, out: soc.item_posteriors(fit, items, out=out).read_bytes()),
    ],
    ids=["fit", "item_posteriors"],
)
@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_a_notebook_usable(
    call, task, monkeypatch, tmp_path, small_items, small_statistics, small_fit
):
    arguments = (small_items, small_statistics, small_fit, tmp_path / "out.parquet")
    expected = task(*arguments)
    (tmp_path / "out.parquet").unlink(missing_ok=True)
    before = _settings()
    with monkeypatch.context() as patch:
        _interrupt_at(patch, call)
        with pytest.raises(KeyboardInterrupt):
            task(*arguments)
    assert _settings() == before
    assert os.listdir(tmp_path) == []
    again = task(*arguments)
    assert again == expected if isinstance(again, bytes) else again.equals(expected)


def _fails_after_ctrl_c(*_, **__):
    """What DuckDB and HDF5 do on Ctrl-C: they raise an error of their own."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as interrupt:
        raise RuntimeError("Query interrupted") from interrupt


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_library_stays_ctrl_c(monkeypatch, folder, small_items, small_fit):
    items = soc.PoissonItems(str(folder / "items.parquet"), **small_items.roles)
    places = {
        "soc_pymc.data.sources._query": lambda: soc.item_posteriors(small_fit, items),
        "xarray.open_datatree": lambda: soc.load_fit(folder / "fit.nc"),
        "h5py.File": lambda: small_fit.save(folder / "new.nc"),
    }
    for place, task in places.items():
        with monkeypatch.context() as patch:
            patch.setattr(place, _fails_after_ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                task()
    assert not (folder / "new.nc").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_nuts_does_not_return_fewer_draws(small_statistics, monkeypatch):
    import pymc as pm

    sample, draws = pm.sample, []

    def interrupted(**words):
        def callback(trace, draw):
            draws.append(draw)
            if len(draws) == 150:
                signal.raise_signal(signal.SIGINT)

        return sample(callback=callback, **words)

    monkeypatch.setattr(pm, "sample", interrupted)
    with pytest.raises(KeyboardInterrupt):
        soc.fit(small_statistics, method=soc.NUTS(draws=100, tune=100, chains=1))
    assert len(draws) == 150


@pytest.mark.slow
def test_closed_output(folder):
    result = run(["curves", "fit.nc"], folder, preexec_fn=lambda: os.close(1))
    assert result == (2, "soc-pymc: error: standard output is closed: redirect it to a file\n")


@pytest.mark.slow
def test_output_that_cannot_be_written_is_an_error(folder):
    with open("/dev/full", "w") as full:
        result = run(["sql", "fit.nc", "--table", "ads"], folder, stdout=full)
    assert result == (2, "soc-pymc: error: No space left on device\n")
