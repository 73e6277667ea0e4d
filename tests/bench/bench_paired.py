"""Cost of whole tasks now and at an earlier commit: `python -m tests.bench.bench_paired COMMIT`.

Each task runs in a process of its own, in turn with the code here and with the code of the commit,
which git writes to a temporary folder. CPU and wall seconds are medians over the rounds, of the
task alone (``process``: of the whole process, with imports); the ratio is the median of the
rounds' ratios, then over now. Other work on the machine is shown as the load average.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import pandas as pd

HERE = Path(__file__).resolve().parents[2]
START = """
import json, resource, sys, time
import soc_pymc as soc

def items(n, **further):
    table = soc.simulation.s1(n, seed=1)
    for name, levels in further.items():
        table[name] = table.index % levels
    groups = {"group": next(iter(further))} if further else {}
    return soc.PoissonItems(table, score="score", count="count", exposure="exposure", **groups)

def summarized(n, **further):
    source = items(n, **further)
    return source, soc.summarize(source, joint=True, progress=False)

def done(began):
    now = time.process_time(), time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([now[0] - began[0], now[1] - began[1], memory]))
    sys.stdout.flush()

def begin():
    return time.process_time(), time.perf_counter()

term = soc.Spline()
"""
FIT = (
    "source, stats = summarized({n}{groups}); began = begin(); soc.fit(stats, {prior}); done(began)"
)
SECOND = (
    "source, stats = summarized({n}); soc.fit(stats, {prior}); began = begin();"
    "soc.fit(stats, {prior}); done(began)"
)
AFTER = (
    "source, stats = summarized({n}{groups}); fit = soc.fit(stats, {prior}); began = begin();"
    "{call}; done(began)"
)
POSTERIORS = "soc.item_posteriors(fit, source)"
CHECK = "soc.check(fit, source)"
SAVE = "fit.save(sys.argv[1] + '/fit.nc')"
TERM = "soc.Gamma(exposure=term)"


def _after(n: int, prior: str, call: str, groups: str = "") -> str:
    return AFTER.format(n=n, prior=prior, call=call, groups=groups)


TASKS = {
    "run 300": "run 300",
    "run 3000": "run 3000",
    "run 3000, nothing compiled": "cold 3000",
    "auto 3000": FIT.format(n=3000, prior="'auto'", groups=""),
    "auto 200000": FIT.format(n=200_000, prior="'auto'", groups=""),
    "second fit 3000": SECOND.format(n=3000, prior="soc.Gamma()"),
    "second fit 3000, exposure": SECOND.format(n=3000, prior=TERM),
    "second fit 1500, exposure": SECOND.format(n=1500, prior=TERM),
    "fit 3000, mixture": FIT.format(n=3000, prior="soc.GammaMixture()", groups=""),
    "fit 3000, 12 groups, exposure": FIT.format(n=3000, prior=TERM, groups=", g=12"),
    "posteriors 3000": _after(3000, "soc.Gamma()", POSTERIORS),
    "posteriors 3000, exposure": _after(3000, TERM, POSTERIORS),
    "posteriors 3000, mixture": _after(3000, "soc.GammaMixture()", POSTERIORS),
    "check 3000": _after(3000, "soc.Gamma()", CHECK),
    "check 3000, exposure": _after(3000, TERM, CHECK),
    "check 3000, mixture": _after(3000, "soc.GammaMixture()", CHECK),
    "save 3000": _after(3000, "soc.Gamma()", SAVE),
    "save 3000, exposure": _after(3000, TERM, SAVE),
    "save 3000, 12 groups, exposure": _after(3000, TERM, SAVE, ", g=12"),
    "summarize 1000000": "source = items(1_000_000); began = begin(); "
    "soc.summarize(source, progress=False); done(began)",
    "fit 1000000": FIT.format(n=1_000_000, prior="soc.Gamma()", groups=""),
    "posteriors 1000000": _after(1_000_000, "soc.Gamma()", POSTERIORS),
    "posteriors 1000000, exposure": _after(1_000_000, TERM, POSTERIORS),
    "check 1000000": _after(1_000_000, "soc.Gamma()", CHECK),
}
RUN = (
    "import sys; from soc_pymc.__main__ import main; sys.exit(main(['run', sys.argv[1] + "
    "'/items{n}.csv', '--score', 'score', '--count', 'count', '--exposure', 'exposure', '--out', "
    "sys.argv[1] + '/posteriors.parquet']))"
)


def checkout(commit: str, folder: Path) -> Path:
    """Write the package at a commit into a folder."""
    target = folder / "then"
    target.mkdir()
    archive = subprocess.run(
        ["git", "-C", HERE, "archive", commit, "soc_pymc"], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", target], input=archive.stdout, check=True)
    return target


def measure(task: str, code: Path, folder: Path) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak memory in MB of a task with the code in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # packages that are installed are compiled
    kind, _, number = task.partition(" ")
    whole = kind in ("run", "cold")
    if kind == "cold":
        home = Path(tempfile.mkdtemp(dir=folder))
        copied = home / "code"
        shutil.copytree(code / "soc_pymc", copied / "soc_pymc", ignore=_ignored)
        environment |= {"HOME": str(home), "PYTHONPATH": str(copied)}
    source = RUN.format(n=number) if whole else START + task
    command = [sys.executable, "-c", source, str(folder)]
    if whole:
        command = [sys.executable, "-c", WHOLE, *command]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{task}: {result.stderr}")
    cpu, wall, memory = json.loads(result.stdout.strip().splitlines()[-1])
    return cpu, wall, memory


WHOLE = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
wall = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024]))
"""
_ignored = shutil.ignore_patterns("__pycache__")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?", default="HEAD", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(TASKS), choices=list(TASKS))
    chosen = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sys.path.insert(0, str(HERE))
        import soc_pymc as soc

        for n in (300, 3000):
            soc.simulation.s1(n, seed=0).to_csv(folder / f"items{n}.csv", index=False)
        versions = {"then": checkout(chosen.commit, folder), "now": HERE}
        for task in chosen.only:
            for code in versions.values():  # compiles, and warms caches
                measure(TASKS[task], code, folder)
            rounds = [
                {key: measure(TASKS[task], code, folder) for key, code in versions.items()}
                for _ in range(chosen.rounds)
            ]
            row = {}
            for k, unit in enumerate(("CPU s", "wall s", "MB")):
                for key in versions:
                    row[f"{unit} {key}"] = median(values[key][k] for values in rounds)
                row[f"{unit} ratio"] = median(x["then"][k] / x["now"][k] for x in rounds)
            rows[task] = row | {"load": os.getloadavg()[0]}
            print(pd.DataFrame(rows).T.to_string(float_format="{:.3g}".format), flush=True)


if __name__ == "__main__":
    main()
