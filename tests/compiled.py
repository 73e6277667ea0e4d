"""Compile the kernels once, in two processes, before tests use them.

    python -m tests.compiled

Numba keeps compiled code beside the sources. It looks at the file of a function, not at the files
of those that it calls, so what was kept is removed first.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import soc_pymc as soc
from tests.studies import golden_fits as golden

# together they go through all kernels; the mixtures' take as long as all others
SINGLE = ("gamma", "gamma_bins", "normal")
MIXTURES = ("gamma_mixture", "normal_mixture", "five_mixture")
PROBS = (0.05, 0.95)


def use(name: str) -> None:
    """Fit a golden case, score its items in every way, and check it."""
    case, fit = golden.CASES[name], golden.fit_of(name)
    items = case.items(golden.chosen(case.kind))
    for draws in ("all", "auto"):
        soc.item_posteriors(fit, items, quantiles=PROBS, draws=draws, **golden.QUIET)
    soc.check(fit, case.items(golden.FRAMES[case.kind]().head(200)), **golden.QUIET)


def single() -> None:
    """Kernels of statistics, of single families and of many groups."""
    for roles in ({"id": "id"}, {"group": "group"}):
        items = golden.items_of("counts", golden.counts(), **roles)
        soc.summarize(items, folds=3, **golden.QUIET)
    for name in SINGLE:
        use(name)
    frame = golden.counts().assign(t=lambda d: d["t"].clip(upper=0.9), level=np.arange(2000) % 10)
    counts = soc.PoissonItems(frame, score="t", **golden.COUNTS, group="level")
    trials = soc.BinomialItems(
        frame.assign(y=np.minimum(frame["y"], frame["N"])), score="t", successes="y", trials="N"
    )
    for items, prior in (
        (counts, soc.Gamma()), (trials, soc.Beta()), (trials, soc.Beta(bin_effects=True))
    ):  # fmt: skip
        fit = soc.fit(soc.summarize(items, **golden.QUIET), prior, **golden.QUIET)
        soc.item_posteriors(fit, items, **golden.QUIET)


def mixtures() -> None:
    """Kernels of mixtures."""
    for name in MIXTURES:
        use(name)
    stats = golden.statistics_of("values")
    soc.fit(stats, soc.NormalMixture(), soc.FiveSteps(), **golden.QUIET)


def main() -> None:
    """Use every kernel once."""
    for path in Path(soc.__file__).parent.rglob("*.nb[ci]"):
        path.unlink()
    quiet = {"initializer": warnings.simplefilter, "initargs": ("ignore",)}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), **quiet) as pool:
        for done in [pool.submit(mixtures), pool.submit(single)]:
            done.result()


if __name__ == "__main__":
    main()
