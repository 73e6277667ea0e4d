"""What a user would pick instead on 20,000 items: scipy with Laplace, or Bambi."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.bench import bambi_baseline
from tests.bench import laplace_baseline as laplace
from tests.bench.timing import Report, spent

__all__ = ["bench"]

_ITEMS = 20_000
_ADVI = {"inference_method": "vi", "n": 30_000, "random_seed": 0, "progressbar": False}
_NUTS = {"chains": 2, "random_seed": 0, "progressbar": False}


def bench(report: Report, bambi_draws: int) -> None:
    """Time each on the same items; how many of 14 true values its 90% bands hold."""
    report.section(f"others on {_ITEMS:,} items; 90% bands at 7 quantiles of the score hold:")
    frame = soc.simulation.s1(_ITEMS, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    soc.fit(soc.summarize(items, progress=False), progress=False)  # warm

    def ours() -> Any:
        fit = soc.fit(soc.summarize(items, progress=False), progress=False)
        return laplace.our_bands(frame, fit)

    base = _line(report, "soc_pymc, items to bands", frame, ours)
    works = {
        "two splines by scipy and Laplace, penalty 1": (1.0,),
        f"the same, best of {len(laplace.PENALTIES)} penalties by evidence": laplace.PENALTIES,
    }
    for name, penalties in works.items():
        _line(report, name, frame, lambda p=penalties: laplace.laplace_bands(frame, p)[:2], base)
    _bambi(report, frame, base, bambi_draws)


def _bambi(report: Report, frame: pd.DataFrame, base: float, draws: int) -> None:
    """Bambi's model by NUTS and by ADVI, where it is installed."""
    problem = bambi_baseline.unavailable()
    if problem:
        report.say(f"Bambi: {problem}")
        return
    scores = np.quantile(frame["score"], laplace.PROBABILITIES)
    methods = {
        f"Bambi by ADVI, {_ADVI['n']:,} steps": _ADVI,
        f"Bambi by NUTS, 2 chains of {draws:,} + {draws:,}": _NUTS
        | {"draws": draws, "tune": draws},
    }
    for name, options in methods.items():
        _line(
            report,
            name,
            frame,
            lambda o=options: bambi_baseline.bambi_fit(frame, scores, **o),
            base,
        )


def _line(
    report: Report, what: str, frame: pd.DataFrame, work: Callable[[], Any], base: float = 0.0
) -> float:
    """Print one method's seconds, coverage and width of bands; returns its CPU seconds."""
    done = spent(work)
    low, high = done.result
    mean, cv2 = laplace.covered(frame, low, high).sum(axis=1)
    width = (high - low).mean(axis=1)
    note = (
        f"{done.wall:.1f} s wall; log mean {mean} of 7, log cv2 {cv2} of 7; "
        f"width {width[0]:.3f}, {width[1]:.3f}"
    )
    if base:
        note = f"{done.cpu / base:.2f} of ours; {note}"
    report.line(what, done.cpu, note)
    return done.cpu
