"""Compile the kernels once, in one process, before tests run in several.

    python -m tests.compiled

Numba keeps compiled code beside the sources. It looks at the file of a function, not at the files
of those that it calls, so what was kept is removed first.
"""

import warnings
from pathlib import Path

import soc_pymc as soc
from tests.studies import golden_fits as golden

# together they go through all kernels
FITS = ("gamma", "gamma_bins", "gamma_mixture", "normal", "normal_mixture", "five_mixture")
PROBS = (0.05, 0.95)


def use(name: str) -> None:
    """Fit a golden case, score its items in every way, and check it."""
    case, fit = golden.CASES[name], golden.fit_of(name)
    items = case.items(golden.chosen(case.kind))
    for draws in ("all", "auto"):
        soc.item_posteriors(fit, items, quantiles=PROBS, draws=draws, **golden.QUIET)
    soc.check(fit, case.items(golden.FRAMES[case.kind]().head(200)), **golden.QUIET)


def main() -> None:
    """Use every kernel once."""
    for path in Path(soc.__file__).parent.rglob("*.nb[ci]"):
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in FITS:
            use(name)
        stats = golden.statistics_of("values")
        soc.fit(stats, soc.NormalMixture(), soc.FiveSteps(), **golden.QUIET)
        for roles in ({"id": "id"}, {"group": "group"}):
            items = golden.items_of("counts", golden.counts(), **roles)
            soc.summarize(items, folds=3, **golden.QUIET)


if __name__ == "__main__":
    main()
