"""kill -9 at random moments in every command that writes: what is left, and does a rerun succeed?

    python -m tests.studies faults --kills 100

Every second kill comes at a moment that is uniform over the length of a run; the others come when a
temporary file is there, up to 10 milliseconds later. After each kill every final name must be
absent, or hold the old file, or what a run never killed writes. Every fifth kill is followed by a
run to its end, after which all files must be those and no temporary file may be left.
"""

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc
from soc_pymc.__main__ import main as command
from tests.studies.common import Choice, options, show

_ROWS, _WINDOW, _RERUN_EVERY = 20_000, 0.01, 5
_OLD = b"the old one"
_ROLES = "--score score --count count --exposure exposure"
_PROCESSES = get_context("forkserver")  # children of a server that has imported all
_PROCESSES.set_forkserver_preload(["tests.studies.faults"])

# words of the command, and the files it writes
COMMANDS = {
    "summarize": ("summarize in/*.parquet {roles} --joint --bins 100 --out out/s.nc", ["s.nc"]),
    "fit": ("fit stats.nc --out out/f.nc", ["f.nc"]),
    "curves": ("curves fit.nc --out out/c.csv", ["c.csv"]),
    "posteriors": ("posteriors fit.nc in/*.parquet --out out/p.parquet", ["p.parquet"]),
    "a folder": ("posteriors fit.nc in/*.parquet --out out/", ["0.parquet", "1.parquet"]),
    "run --keep": (
        "run in/0.parquet {roles} --bins 50 --keep out --out out/r.parquet",
        ["stats.nc", "fit.nc", "r.parquet"],
    ),
}


def _command(words: str) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(command([*words.format(roles=_ROLES).split(), "--quiet"]))


def _run(words: str, stop: Callable[[float], bool] | None = None, delay: float = 0.0) -> float:
    """Runs a command to its end, or kills it after `stop` of its seconds; returns its seconds."""
    start, child = time.monotonic(), _PROCESSES.Process(target=_command, args=(words,))
    child.start()
    while stop and child.exitcode is None:
        if stop(time.monotonic() - start):
            time.sleep(delay)
            child.kill()
            break
        time.sleep(0.0005)
    child.join()
    if child.exitcode and not stop:
        raise RuntimeError(f"{words} ended with status {child.exitcode}")
    return time.monotonic() - start


def _parts(out: Path) -> list[Path]:
    return list(out.glob("*.part"))


def _empty(out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()


def content(path: Path) -> bytes:
    """Returns the content of a file without dates and durations."""
    if path.suffix == ".parquet":
        return repr(pd.read_parquet(path).to_dict("list")).encode()
    if path.suffix != ".nc":
        return path.read_bytes()
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        groups = {node.path: node.to_dataset().load().to_dict("list") for node in tree.subtree}
    return repr([(name, g["coords"], g["data_vars"]) for name, g in groups.items()]).encode()


def _state(path: Path, expected: bytes) -> str:
    if not path.exists():
        return "absent"
    if path.read_bytes() == _OLD:
        return "old"
    try:
        return "new" if content(path) == expected else "faulty"
    except Exception:
        return "faulty"


def torture(name: str, kills: int, rng: np.random.Generator) -> Counter[str]:
    words, targets = COMMANDS[name]
    out, counts = Path("out"), Counter(kills=kills)
    for _ in range(2):  # the first compiles what is not yet compiled
        _empty(out)
        seconds = _run(words)
    expected = {target: content(out / target) for target in targets}
    for kill in range(kills):
        _empty(out)
        if rng.random() < 0.5:
            for target in targets:
                (out / target).write_bytes(_OLD)
        moment = rng.random() * seconds
        if kill % 2:
            _run(words, lambda passed, moment=moment: passed >= moment)
        else:
            _run(words, lambda _: bool(_parts(out)), rng.random() * _WINDOW)
        counts["while writing"] += bool(_parts(out))
        counts.update(_state(out / target, expected[target]) for target in targets)
        if kill % _RERUN_EVERY == 0:
            _run(words)
            states = {_state(out / target, expected[target]) for target in targets}
            counts["reruns"] += 1
            counts["faulty"] += states != {"new"} or bool(_parts(out))
    return counts


def main() -> None:
    small = {"kills": 4, "only": ["summarize", "curves"]}
    chosen = options(__doc__, small, kills=100, seed=0, only=Choice(COMMANDS))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("in").mkdir()
        for k in range(2):
            frame = soc.simulation.s1(_ROWS, seed=k)[["score", "count", "exposure"]]
            frame.to_parquet(f"in/{k}.parquet")
        _run("summarize in/*.parquet {roles} --bins 100 --out stats.nc")
        _run("fit stats.nc --out fit.nc")
        rows = {}
        for name in chosen.only:
            rng = np.random.default_rng([chosen.seed, list(COMMANDS).index(name)])
            rows[name] = torture(name, chosen.kills, rng)
    table = pd.DataFrame(rows).T.fillna(0).astype(int)
    show(table)
    sys.exit(int(table["faulty"].sum()) > 0)
