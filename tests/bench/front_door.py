"""CPU seconds of what a newcomer runs first, each in a fresh process on 3,000 items.

    python -m tests.bench.front_door

Kernels are compiled before, by a first run of each program; the least of three more is printed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import soc_pymc as soc
from tests.bench.timing import spent

_ITEMS = 3000
_ROLES = 'score="score", count="count", exposure="exposure"'
_FIT = f"""
import matplotlib
matplotlib.use("agg")
import soc_pymc as soc
items = soc.PoissonItems("items.parquet", {_ROLES})
fit = soc.fit(soc.summarize(items, progress=False), progress=False)
"""
_LOADED = f"""
import soc_pymc as soc
items, fit = soc.PoissonItems("items.parquet", {_ROLES}), soc.load_fit("fit.nc")
"""
_PROGRAMS = {  # with their targets
    "first picture: import, sums, fit, plot_curves": (
        _FIT + 'soc.plots.plot_curves(fit)[0].figure.savefig("curves.png")',
        8,
    ),
    "report of a saved fit, with a threshold": (
        _LOADED + "soc.report(fit, items, threshold=0.05, progress=False)",
        8,
    ),
    "the call of soc.report alone": (
        _LOADED
        + """
import time
began = time.process_time()
soc.report(fit, items, threshold=0.05, progress=False)
print(time.process_time() - began)
""",
        8,
    ),
    "GridSearchCV, two priors, three folds": (
        """
import pandas as pd, sklearn, soc_pymc as soc
from sklearn.model_selection import GridSearchCV
table = pd.read_parquet("items.parquet")
priors = {"prior": [soc.Gamma(), soc.GammaMixture()]}
with sklearn.config_context(enable_metadata_routing=True):
    search = GridSearchCV(soc.SecondOrderCalibrator(), priors, cv=3)
    search.fit(table[["score"]], table["count"], exposure=table["exposure"])
""",
        20,
    ),
}


def _run(program: str, folder: Path) -> float:
    """CPU seconds of a program, or what it prints."""
    environment = os.environ | {"PYTHONPATH": str(Path.cwd()), "PYTHONWARNINGS": "ignore"}

    def work() -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        return done.stdout

    used = spent(work)
    return float(used.result) if used.result else used.cpu


def _main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame = soc.simulation.s1(_ITEMS, seed=0)
        frame.to_parquet(folder / "items.parquet")
        items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        soc.fit(soc.summarize(items, progress=False), progress=False).save(folder / "fit.nc")
        for what, (program, target) in _PROGRAMS.items():
            seconds = [_run(program, folder) for _ in range(4)]
            line = f"{what:48s} {min(seconds[1:]):6.1f} CPU s  (target {target})"
            print(line, flush=True)


if __name__ == "__main__":
    _main()
