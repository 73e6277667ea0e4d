"""Full and read-only disks, two writers, wrong clocks, signals: whole or one clear error."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc._lib.files import check_target, remove_stale, replacing
from soc_pymc._lib.progress import Phase
from soc_pymc.data.tables.sources import readable
from soc_pymc.front.cli import main
from soc_pymc.inference import sampling

ROOT = Path(soc.__file__).parents[1]
ROLES = ["--score", "score", "--count", "count", "--exposure", "exposure"]
OLD = b"the old one"
DAYS = 3 * 86_400


def python(*words, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.Popen([sys.executable, *words], env=env, **options)


def parts(folder):
    return [name for name in os.listdir(folder) if name.endswith(".part")]


@pytest.fixture
def folder(tmp_path, small_frame, small_statistics, small_fit):
    """Items, statistics and a fit."""
    small_frame.to_parquet(tmp_path / "items.parquet")
    small_statistics.save(tmp_path / "stats.nc")
    small_fit.save(tmp_path / "fit.nc")
    return tmp_path


# ---------------------------------------------------------------- one file

WRITER = """
import sys, time
from soc_pymc._lib.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_file_that_is_being_written_stays_whatever_the_clock_says(tmp_path):
    target = tmp_path / "out.nc"
    writer = python("-c", WRITER, str(target), stdout=subprocess.PIPE)
    try:
        writer.stdout.readline()
        [left] = parts(tmp_path)
        for at in (time.time() - DAYS, time.time() + DAYS):  # the clock was set since
            os.utime(tmp_path / left, (at, at))
            remove_stale(target)
            assert parts(tmp_path) == [left]
    finally:
        writer.kill()
        writer.wait()
    os.utime(tmp_path / left, (time.time() + DAYS,) * 2)
    remove_stale(target)
    assert parts(tmp_path) == []


def test_leftovers_of_another_machine_go_when_old(tmp_path):
    target = tmp_path / "out.nc"
    left = tmp_path / ".out.nc.elsewhere-1.abc.part"
    left.touch()
    remove_stale(target)
    assert left.exists()
    os.utime(left, (time.time() - DAYS,) * 2)
    remove_stale(target)
    assert not left.exists()


TWO = """
import sys
from soc_pymc._lib.files import replacing
letter = sys.argv[2]
for _ in range(100):
    with replacing(sys.argv[1]) as temporary:
        with temporary.open("w") as file:
            for _ in range(20):
                file.write(letter * 1000)
                file.flush()
"""


def test_two_processes_writing_one_file_both_finish_and_it_is_always_whole(tmp_path):
    target = tmp_path / "out.txt"
    both = [python("-c", TWO, str(target), letter) for letter in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in both):
        if target.exists():
            seen.add(target.read_text())
    assert [writer.returncode for writer in both] == [0, 0]
    assert seen <= {"a" * 20_000, "b" * 20_000}
    assert seen
    assert parts(tmp_path) == []


def test_links_and_permissions_stay(tmp_path):
    (tmp_path / "data").mkdir()
    real, link = tmp_path / "data" / "real.txt", tmp_path / "link.txt"
    real.write_bytes(OLD)
    real.chmod(0o640)
    link.symlink_to(real)
    with replacing(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_names_as_long_as_file_systems_allow(tmp_path):
    target = tmp_path / ("ü" * 125 + ".nc")
    with replacing(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"


def test_names_that_cannot_be_written_are_refused_at_once(tmp_path):
    with pytest.raises(IsADirectoryError, match="a folder is there"):
        check_target(tmp_path)
    with pytest.raises(FileNotFoundError, match="make it first"):
        check_target(tmp_path / "none" / "out.nc")
    with pytest.raises(OSError, match="no ordinary file"):
        check_target(os.devnull)


def as_nobody(work):
    """What work returns, as text, to a user whom permissions stop, as they do not stop root."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            os.write(write, work().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


def said_of(path):
    try:
        check_target(path)
    except PermissionError as error:
        return str(error.strerror)
    return "may be written"


def test_folders_and_files_that_are_read_only():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "free").mkdir()
        (folder / "free").chmod(0o777)
        protected = folder / "free" / "protected.nc"
        protected.write_bytes(OLD)
        protected.chmod(0o444)
        folder.chmod(0o555)
        assert "cannot be written to" in as_nobody(lambda: said_of(folder / "new.nc"))
        assert "write-protected" in as_nobody(lambda: said_of(protected))
        assert as_nobody(lambda: said_of(folder / "free" / "new.nc")) == "may be written"
        folder.chmod(0o755)


# ---------------------------------------------------------------- commands

DISK = """
import contextlib, io, json, os, subprocess, sys
from soc_pymc.front.cli import main
folder = sys.argv[1]
disk = folder + "/disk"
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", disk], check=True)
roles = json.loads(sys.argv[2])
inside = lambda name: f"{folder}/{name}"
commands = [
    (["summarize", inside("items.parquet"), *roles, "--bins", "20"], "s.nc"),
    (["fit", inside("stats.nc")], "f.nc"),
    (["curves", inside("fit.nc")], "c.csv"),
    (["posteriors", inside("fit.nc"), inside("items.parquet")], "p.parquet"),
    (["posteriors", inside("fit.nc"), inside("items.parquet")], ""),
    (["report", inside("fit.nc"), inside("items.parquet")], "r.html"),
    (["run", inside("items.parquet"), *roles, "--bins", "20", "--keep", disk], "p.parquet"),
    (["demo", "--items", "1000"], ""),
]
found = []
for state in ("full", "read-only"):
    for words, name in commands:
        out = f"{disk}/{name}"
        if state == "full":
            for old in os.listdir(disk):
                os.unlink(f"{disk}/{old}")
            if name:
                with open(out, "wb") as file:
                    file.write(b"the old one")
            with open(f"{disk}/filler", "wb") as file:  # all but a page
                file.write(bytes(15_000))
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            status = main([*words, "--out", out, "--quiet"])
        left = sorted(n for n in os.listdir(disk) if n != "filler")
        kept = not name or open(out, "rb").read() == b"the old one"
        errors = [line for line in said.getvalue().splitlines() if "error:" in line]
        found.append([state, words[0], name, status, errors, kept, left])
    if state == "read-only":
        break
    for old in os.listdir(disk):
        os.unlink(f"{disk}/{old}")
    for name in {name for _, name in commands if name}:
        with open(f"{disk}/{name}", "wb") as file:
            file.write(b"the old one")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    os.name != "posix"
    or not hasattr(os, "getuid")
    or os.getuid() != 0
    or shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
    reason="only root may mount a small disk",
)
def test_full_and_read_only_disks_of_every_command(folder):
    (folder / "disk").mkdir()
    words = ["unshare", "-m", sys.executable, "-c", DISK, str(folder), json.dumps(ROLES)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 16
    for state, command, name, status, errors, kept, left in found:
        if name == "c.csv" and state == "full" and status == 0:
            continue  # so small that it had room
        assert status == 2, (state, command)
        assert len(errors) == 1, (state, command, errors)
        assert kept, (state, command)
        assert not [n for n in left if n.endswith(".part")], (state, command, left)


def test_nothing_that_is_read_is_written_over(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    for words in (
        ["summarize", "items.parquet", *ROLES, "--out", "items.parquet"],
        ["summarize", "*.parquet", *ROLES, "--out", "./items.parquet"],
        ["fit", "stats.nc", "--out", "stats.nc"],
        ["curves", "fit.nc", "--out", "fit.nc"],
        ["run", "items.parquet", *ROLES, "--out", "items.parquet"],
    ):
        assert main([*words, "--quiet"]) == 2
        assert "is a file that is read" in capsys.readouterr().err
    assert {name: (folder / name).read_bytes() for name in os.listdir(folder)} == before


@pytest.mark.slow
def test_a_folder_that_is_missing_is_said_before_the_work(folder, capsys, monkeypatch):
    def work(*_, **__):
        raise AssertionError("the work was done")

    monkeypatch.setattr("soc_pymc.inference.fitting.fit", work)
    monkeypatch.setattr("soc_pymc.data.summaries.summarize", work)
    items, out = str(folder / "items.parquet"), str(folder / "none" / "out.parquet")
    for words in (
        ["summarize", items, *ROLES],
        ["fit", str(folder / "stats.nc")],
        ["run", items, *ROLES],
    ):
        assert main([*words, "--out", out]) == 2
        assert "make it first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "statuses"), [(signal.SIGINT, (130, -2)), (signal.SIGTERM, (143,))]
)
@pytest.mark.slow
def test_a_command_that_is_stopped_says_one_line(number, statuses, folder):
    """A status of -2 is what shells show as 130: the interpreter may end so."""
    words = ["fit", "stats.nc", "--out", "new.nc", "--quiet"]
    for seconds in (0.2, 0.8):  # while it is loaded, which takes a second, and at the end of that
        script = (
            f"import soc_pymc.front.cli as c, sys; print(flush=True); sys.exit(c.main({words}))"
        )
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running = python("-c", script, cwd=folder, **pipes)
        running.stdout.readline()  # the interpreter is up
        time.sleep(seconds)
        running.send_signal(number)
        said = running.communicate(timeout=60)[1]
        assert running.returncode in statuses, said
        assert len(said.splitlines()) == 1, said
        assert "nothing was left half-written" in said
    assert not (folder / "new.nc").exists()
    assert parts(folder) == []


@pytest.mark.slow
def test_a_reader_that_has_gone_is_no_error(folder):
    words = ["-m", "soc_pymc", "sql", "fit.nc", "--table", "ads"]
    running = python(*words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout.read(4) == b"WITH"
    running.stdout.close()
    assert running.stderr.read() == b""
    assert running.wait() == 141


@pytest.mark.slow
def test_output_that_cannot_be_written_is_an_error(folder):
    with open("/dev/full", "w") as full:
        words = ["-m", "soc_pymc", "sql", "fit.nc", "--table", "ads"]
        running = python(*words, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
        said = running.communicate()[1]
    assert running.returncode == 2
    assert said == "soc-pymc: error: No space left on device\n"


LETTERS = """
import sys
from soc_pymc.front.cli import main
roles = ["--score", "größe", "--count", "zähl", "--exposure", "übrig"]
print(main(["summarize", "ä.parquet", *roles, "--bins", "20", "--quiet", "--out", "ö.nc"]))
print(main(["fit", "ö.nc", "--quiet", "--out", "ü.nc"]))
print(main(["check", "ü.nc", "ä.parquet", "--quiet"]))
print(main(["posteriors", "ü.nc", "ä.parquet", "--quiet", "--out", "ß.parquet"]))
print(main(["curves", "ü.nc", "--quiet", "--out", "ß.csv"]))
print(main(["sql", "ü.nc", "--table", "ads"]))
"""


@pytest.mark.slow
def test_letters_that_the_terminal_lacks(tmp_path, small_frame):
    names = {"score": "größe", "count": "zähl", "exposure": "übrig"}
    small_frame.rename(columns=names).to_parquet(tmp_path / "ä.parquet")
    (tmp_path / "script.py").write_text(LETTERS, encoding="utf-8")
    env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "TZ": "Pacific/Kiritimati"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = python("script.py", cwd=tmp_path, env=env, text=True, **pipes)
    out, said = running.communicate()
    statuses = [line for line in out.splitlines() if line in ("0", "1", "2")]
    assert statuses == ["0", "0", "0", "0", "0", "2"], (out, said)
    assert "ascii has no" in said  # SQL with other letters would not be the SQL that was asked for
    assert "Traceback" not in said


# ---------------------------------------------------------------- Ctrl-C in a notebook


def interrupt_at(monkeypatch, call):
    """Let Ctrl-C come when progress is told for the n-th time."""
    calls = []
    advance = Phase.advance

    def advanced(self, amount=1):
        advance(self, amount)
        calls.append(amount)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Phase, "advance", advanced)


def state():
    """What a call must leave as it was."""
    import logging
    import warnings

    import matplotlib as mpl
    import numba
    import pytensor

    return (
        threading.active_count(),
        numba.get_num_threads(),
        pytensor.config.traceback__limit,
        pytensor.config.mode,
        logging.getLogger("soc_pymc").level,
        list(warnings.filters),
        mpl.get_backend(auto_select=False),
        signal.getsignal(signal.SIGINT),
    )


TASKS = {
    "summarize": (1, lambda items, stats, fit, out: soc.summarize(items, bins=20).data),
    "fit": (5, lambda items, stats, fit, out: soc.fit(stats).data["posterior"].to_dataset()),
    "posteriors": (1, lambda items, stats, fit, out: soc.item_posteriors(fit, items, out=out)),
    "check": (1, lambda items, stats, fit, out: soc.check(fit, items).table),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(t, marks=pytest.mark.slow) if t in ("posteriors", "check") else t for t in TASKS],
)
@pytest.mark.slow
def test_ctrl_c_leaves_the_notebook_usable(
    name, monkeypatch, tmp_path, small_items, small_statistics, small_fit
):
    call, task = TASKS[name]
    given = (small_items, small_statistics, small_fit, tmp_path / "out.parquet")

    def result():
        found = task(*given)
        return found.read_bytes() if isinstance(found, Path) else found

    expected = result()
    (tmp_path / "out.parquet").unlink(missing_ok=True)
    before = state()
    with monkeypatch.context() as patch:
        interrupt_at(patch, call)
        with pytest.raises(KeyboardInterrupt):
            result()
    assert state() == before
    assert os.listdir(tmp_path) == []
    again = result()
    assert again == expected if isinstance(again, bytes) else again.equals(expected)


@pytest.mark.slow
def test_ctrl_c_while_duckdb_works_is_ctrl_c():
    """DuckDB says RuntimeError: Query interrupted."""
    long = "SELECT count(*) FROM range(30000000) a(x), range(30) b(y) WHERE (x * y) % 7 = 3"
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with duckdb.connect() as connection, pytest.raises(KeyboardInterrupt), readable():
        connection.execute(long).fetchall()
    timer.join()


def test_ctrl_c_in_nuts_is_not_an_order_to_return_fewer_draws(small_statistics, monkeypatch):
    """What `pm.sample` does with it; the slow test below has PyMC's own do it."""

    def sample(**_):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return
        raise AssertionError("no signal came")

    monkeypatch.setattr(sampling.pm, "sample", sample)
    # a process in the background of a shell ignores the signal
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            soc.fit(small_statistics, method=soc.NUTS(), progress=False)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, inherited)


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_nuts(small_statistics, monkeypatch):
    real, drawn = sampling.pm.sample, []

    def sample(**words):
        def callback(trace, draw):
            drawn.append(draw)
            if len(drawn) == 150:
                signal.raise_signal(signal.SIGINT)

        return real(callback=callback, **words)

    monkeypatch.setattr(sampling.pm, "sample", sample)
    method = soc.NUTS(draws=100, tune=100, chains=1)
    with pytest.raises(KeyboardInterrupt):
        soc.fit(small_statistics, method=method, progress=False)
    assert len(drawn) == 150


KERNEL = """
import soc_pymc as soc
frame = soc.simulation.s1(300_000)
items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
stats = soc.summarize(items, progress=False)
print("ready", flush=True)
while True:
    soc.fit(stats, progress=False)
"""


def reply_to(asked, client):
    """The reply to one request: a slow kernel is asked several times whether it is ready."""
    while True:
        reply = client.get_shell_msg(timeout=120)
        if reply["parent_header"]["msg_id"] == asked:
            return reply["content"]


@pytest.mark.slow
def test_interrupting_a_jupyter_kernel_in_a_fit():
    manager = pytest.importorskip(
        "jupyter_client", reason="Jupyter is not installed"
    ).KernelManager()
    pytest.importorskip("ipykernel", reason="no Python kernel for Jupyter is installed")
    manager.start_kernel(env={**os.environ, "PYTHONPATH": str(ROOT)})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        asked = client.execute(KERNEL)
        while "ready" not in client.get_iopub_msg(timeout=120)["content"].get("text", ""):
            pass
        time.sleep(1.0)
        manager.interrupt_kernel()
        reply = reply_to(asked, client)
        assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
        asked = client.execute("assert soc.fit(stats, progress=False).status.converged")
        assert reply_to(asked, client)["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_scores_of_another_clock_are_made_again_when_the_items_change(folder):
    """A file is finished where the time of its items is that of before, whatever the clock."""
    items, out = folder / "items.parquet", folder / "scored"
    words = ["posteriors", str(folder / "fit.nc"), str(items), "--quiet", "--out", f"{out}/"]
    assert main(words) == 0
    scored = out / "items.parquet"
    made = scored.stat().st_mtime_ns
    for at in (time.time() + DAYS, time.time() - 100 * DAYS):
        os.utime(scored, (at, at))
        before = scored.stat().st_mtime_ns
        assert main(words) == 0
        assert scored.stat().st_mtime_ns == before  # kept
        os.utime(items, (at, at))
        assert main(words) == 0
        assert scored.stat().st_mtime_ns not in (before, made)  # made again
    assert np.isfinite(soc.load_fit(folder / "fit.nc").status.seconds)
