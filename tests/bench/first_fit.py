"""What the first fit ever on a machine costs: one program with empty caches, then with warm ones.

python -m tests.bench.first_fit    (the program itself: it prints its fit's own seconds)
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import soc_pymc as soc
from tests.bench.timing import Report, spent

__all__ = ["bench"]

_ITEMS, _BINS, _TARGET = 20_000, 200, 20.0


@dataclass(frozen=True)
class _Run:
    """Seconds of the whole program and of its fit alone, and what it printed while fitting."""

    wall: float
    cpu: float
    fit_wall: float
    fit_cpu: float
    shown: list[str]


def bench(report: Report) -> None:
    """Run the program twice on caches that start out empty."""
    report.section(f"first fit on a machine: {_ITEMS:,} items, {_BINS} bins, import to status")
    with tempfile.TemporaryDirectory() as folder:
        first, again = _program(Path(folder)), _program(Path(folder))
    for what, run in (("empty caches", first), ("the same caches again", again)):
        note = (
            f"{run.wall:.1f} s wall; the fit alone {run.fit_cpu:.1f} CPU, {run.fit_wall:.1f} wall"
        )
        report.line(what, run.cpu, note)
    wall, extra = first.wall - again.wall, first.cpu - again.cpu
    report.line("first fit costs more by", extra, f"{wall:.1f} s wall (target {_TARGET:.0f} s)")
    report.say("it says: " + "; ".join(s for s in first.shown if "compiling" in s))


def _program(caches: Path) -> _Run:
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(caches / "numba"),
        "PYTENSOR_FLAGS": f"base_compiledir={caches / 'pytensor'}",
    }
    used = spent(
        lambda: subprocess.run(
            [sys.executable, "-m", "tests.bench.first_fit"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    )
    fit = json.loads(used.result.stdout)
    return _Run(used.wall, used.cpu, fit["wall"], fit["cpu"], used.result.stderr.splitlines())


def _main() -> None:
    frame = soc.simulation.s1(_ITEMS, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=_BINS, progress=False)
    used = spent(lambda: soc.fit(stats))
    print(json.dumps({"wall": used.wall, "cpu": used.cpu}))


if __name__ == "__main__":
    _main()
