"""kill -9 at random moments in every command that writes: what is left, and does a rerun succeed?

    python -m tests.studies.faults --kills 100

A parent that has imported everything, and used no thread, forks a child for each run and kills
it. Half of the moments are uniform over the length of a run; the other half come when a temporary
file is there, up to a few milliseconds later. After each kill every final name must be absent, or
hold the old file, or the new one as a run never killed writes it. Every fifth kill is followed by
a run to its end, after which all files must be those and no temporary file may be left.
"""

import argparse
import hashlib
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_ROWS, _FILES, _WINDOW = 20_000, 2, 0.01
_RERUN_EVERY = 5
_OLD = b"the old one"
_ROLES = ["--score", "score", "--count", "count", "--exposure", "exposure"]
_REPRESENTATIVE = ["--draws", "auto"]

# words of the command, and the files it writes
COMMANDS = {
    "summarize": (
        ["summarize", "in/*.parquet", *_ROLES, "--joint", "--bins", "100", "--out", "out/s.nc"],
        ["s.nc"],
    ),
    "fit": (["fit", "stats.nc", "--out", "out/f.nc"], ["f.nc"]),
    "curves": (["curves", "fit.nc", "--out", "out/c.csv"], ["c.csv"]),
    "posteriors, one file": (
        ["posteriors", "fit.nc", "in/*.parquet", *_REPRESENTATIVE, "--out", "out/p.parquet"],
        ["p.parquet"],
    ),
    "posteriors, a folder": (
        ["posteriors", "fit.nc", "in/*.parquet", *_REPRESENTATIVE, "--out", "out/"],
        [f"{k}.parquet" for k in range(_FILES)],
    ),
    "run --keep": (
        ["run", "in/0.parquet", *_ROLES, "--bins", "50", "--keep", "out", "--out", "out/r.parquet"],
        ["stats.nc", "fit.nc", "r.parquet"],
    ),
    "report": (["report", "fit.nc", "in/0.parquet", "--out", "out/r.html"], ["r.html"]),
    "demo": (
        ["demo", "--items", "2000", "--out", "out"],
        ["items.parquet", "fit.nc", "posteriors.parquet", "curves.png", "pit.png", "shrinkage.png"],
    ),
}


@dataclass
class Outcome:
    """Counts of one command's kills."""

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STAGES, 0))
    left: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LEFT, 0))
    leftovers: int = 0
    reruns: int = 0
    faults: list[str] = field(default_factory=list)


_STAGES = ("before writing", "while a temporary file was there", "after the end")
_LEFT = ("absent", "old", "new")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(COMMANDS))
    chosen = parser.parse_args()
    os.nice(10)
    _import_all()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _inputs()
        for name in chosen.only:
            rng = np.random.default_rng([chosen.seed, list(COMMANDS).index(name)])
            start = time.monotonic()
            found = torture(name, chosen.kills, rng)
            seconds = time.monotonic() - start
            kills = ", ".join(f"{n} {stage}" for stage, n in found.kills.items())
            left = ", ".join(f"{n} {what}" for what, n in found.left.items())
            print(
                f"{name}: kills {kills}; files {left}; {found.leftovers} kills left a temporary "
                f"file; {found.reruns} reruns; {len(found.faults)} faults; {seconds:.0f} s",
                flush=True,
            )
            for fault in found.faults:
                print("  ", fault)
            bad += len(found.faults)
    sys.exit(bad > 0)


def torture(name: str, kills: int, rng: np.random.Generator) -> Outcome:
    """Kill one command so often, and see each time."""
    words, targets = COMMANDS[name]
    out, found = Path("out"), Outcome()
    _empty(out)
    _to_end(words)  # compiles what is not yet compiled
    _empty(out)
    seconds = _to_end(words)
    expected = {target: content(out / target) for target in targets}
    for kill in range(kills):
        _empty(out)
        if rng.random() < 0.5:
            for target in targets:
                (out / target).write_bytes(_OLD)
        stage = _killed(words, out, len(targets), rng, rng.random() * seconds if kill % 2 else None)
        found.kills[stage] += 1
        found.leftovers += bool(_parts(out))
        for target in targets:
            state = _state(out / target, expected[target])
            if state in found.left:
                found.left[state] += 1
            else:
                found.faults.append(f"kill {kill}, {stage}: {target} is {state}")
        if kill % _RERUN_EVERY == 0:
            found.reruns += 1
            _to_end(words)
            wrong = [t for t in targets if _state(out / t, expected[t]) != "new"]
            if wrong or _parts(out):
                found.faults.append(f"rerun after kill {kill}: {wrong}, {_parts(out)}")
    return found


def _import_all() -> None:
    """Import what commands do when they run, so that a child need not."""


def _inputs() -> None:
    """Items, statistics and a fit, made by children as the parent is to start no thread."""
    os.mkdir("in")

    def make() -> int:
        import soc_pymc as soc

        for k in range(_FILES):
            frame = soc.simulation.s1(_ROWS, seed=k)[["score", "count", "exposure"]]
            frame.to_parquet(f"in/{k}.parquet")
        return 0

    os.waitpid(_fork(make), 0)
    _to_end(["summarize", "in/*.parquet", *_ROLES, "--bins", "100", "--out", "stats.nc"])
    _to_end(["fit", "stats.nc", "--out", "fit.nc"])


def _fork(work) -> int:
    """A child in a process group of its own that does some work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # libraries' idle threads
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _start(words: list[str]) -> int:
    from soc_pymc.front.cli import main as command

    return _fork(lambda: command([*words, "--quiet"]))


def _to_end(words: list[str]) -> float:
    start = time.monotonic()
    _, status = os.waitpid(_start(words), 0)
    if status:
        raise RuntimeError(f"{words} ended with status {status}")
    return time.monotonic() - start


def _killed(
    words: list[str], out: Path, files: int, rng: np.random.Generator, after: float | None
) -> str:
    """Kill a run after some seconds, or where None when it writes; at which stage it was."""
    pid, start = _start(words), time.monotonic()
    wanted = int(rng.integers(1, files + 1))  # the temporary file, of so many, that is waited for
    seen: set[str] = set()
    ended = False
    while not ended:
        ended = os.waitpid(pid, os.WNOHANG)[0] != 0
        if after is not None:
            if time.monotonic() - start >= after:
                break
            time.sleep(0.0005)
            continue
        seen |= set(_parts(out))
        if len(seen) >= wanted:
            time.sleep(rng.random() * _WINDOW)
            break
    if not ended:
        # whoever sees the child alive here may see it end before the signal comes
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        ended = not os.WIFSIGNALED(status)
    if ended:
        return _STAGES[2]
    return _STAGES[1] if _parts(out) else _STAGES[0]


def _parts(out: Path) -> list[str]:
    return [name for name in os.listdir(out) if name.endswith(".part")]


def _empty(out: Path) -> None:
    out.mkdir(exist_ok=True)
    for path in out.iterdir():
        path.unlink()


def _state(path: Path, expected: str) -> str:
    if not path.exists():
        return "absent"
    if path.read_bytes() == _OLD:
        return "old"
    try:
        return "new" if content(path) == expected else "another than a run never killed writes"
    except Exception as error:
        return f"half-written: {type(error).__name__}: {error}"


def content(path: Path) -> str:
    """Digest of what a file says, but for dates and durations."""
    digest = hashlib.sha256()
    if path.suffix == ".nc":
        import xarray as xr

        with xr.open_datatree(path, engine="h5netcdf") as tree:
            for node in tree.subtree:
                for name in sorted(map(str, node.variables)):
                    values = node.variables[name].to_numpy()
                    plain = values.tolist() if values.dtype == object else values.tobytes()
                    digest.update(f"{node.path} {name} {plain!r}".encode())
    elif path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path, use_threads=False)
        for name in table.column_names:
            digest.update(f"{name} {table[name].to_numpy().tobytes()!r}".encode())
    elif path.suffix == ".html":
        text = re.sub(r"\d{4}-\d\d-\d\d[T ]?[\d:+.]*", "", path.read_text(encoding="utf-8"))
        digest.update(text.encode())
    else:
        digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
