"""Compile the kernels once, in two processes, before the tests use them.

    python -m tests.compiled

Numba keeps compiled code beside the sources. It looks at the file of a function, not at the files
of those that it calls, so everything compiled earlier is removed first.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import soc_pymc as soc
from soc_pymc.data import local
from soc_pymc.families import special_functions
from tests.examples import CASES, COUNT_ROLES, QUIET, count_frame

# what mixtures share takes as long to compile as all single families together
GROUPS = (
    ("gamma", "groups", "exposure", "zeros", "normal", "beta", "beta_mixture"),
    ("gamma_mixture", "normal_mixture", "five_steps"),
)


def use(names: tuple[str, ...]) -> None:
    """Fit examples, score their items in every way, and check them, all by compiled loops."""
    for loop in (
        local._add, local.in_order, special_functions._tail_sums,
        special_functions._beta_fraction, special_functions._stirling_sums,
    ):  # fmt: skip
        loop._left = 0
    for name in names:
        case = CASES[name]
        fit, items = case.fit(), case.items(case.frame().head(300))
        for draws in ("all", "auto"):
            soc.item_posteriors(fit, items, quantiles=(0.05, 0.95), draws=draws, **QUIET)
        soc.check(fit, items, **QUIET)
        if name in ("normal", "gamma_mixture", "normal_mixture"):
            soc.fit(case.statistics(), type(case.prior)(), soc.FiveSteps(), **QUIET)
    frame = count_frame(500)
    frame["id"], frame["level"] = range(500), [number % 10 for number in range(500)]
    for roles in ({"id": "id"}, {"group": "level"}):
        items = soc.PoissonItems(frame, **COUNT_ROLES, **roles)
        stats = soc.summarize(items, folds=3, **QUIET)
        soc.item_posteriors(soc.fit(stats, **QUIET), items, **QUIET)


def main() -> None:
    for path in Path(soc.__file__).parent.rglob("*.nb[ci]"):
        path.unlink()
    quiet = {"initializer": warnings.simplefilter, "initargs": ("ignore",)}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), **quiet) as pool:
        for job in [pool.submit(use, names) for names in reversed(GROUPS)]:
            job.result()


if __name__ == "__main__":
    main()
