"""A part of every item's outcome, held out and predicted: search ads, motor policies (Section 5.1).

    SOC_PYMC_DATA=... python -m tests.studies.held_out adwords --splits 5
    SOC_PYMC_DATA=... python -m tests.studies.held_out fremtpl2 --splits 3

A tenth of the exposure is held out, by thinning. Fits: `soc.Gamma()` and
`soc.Gamma(exposure=soc.Spline())` by variational inference, and five steps in as many bins and in
200, smoothed and not. Prints the gain over t in percent, its standard error and its sd over splits,
and p-values of the predictive PIT.
"""

import pandas as pd

import soc_pymc as soc
from soc_pymc.checks.results import Result
from tests.studies.common import counts, fit, options, real_counts, show, summarize


def one_split(frame: pd.DataFrame, seed: int) -> Result:
    """All fits to one training part, judged on the other."""
    split = soc.evaluate.split_items(counts(frame), 0.1, seed=seed)
    stats = summarize(split.train, joint=True)
    few = summarize(split.train, bins=200)
    fits = {
        "plain": fit(stats),
        "exposure": fit(stats, soc.Gamma(exposure=soc.Spline())),
        "five steps": fit(stats, method=soc.FiveSteps()),
        "five steps, 200 bins": fit(few, method=soc.FiveSteps()),
    }
    return soc.evaluate.held_out(fits, split, progress=False)


def summary(tables: pd.DataFrame) -> pd.DataFrame:
    means = {"gain": "nats", "gain_percent": "percent", "gain_percent_se": "standard_error"}
    by_estimator = tables.groupby("estimator", sort=False)
    spread = by_estimator["gain_percent"].std().rename("sd_over_splits")
    return by_estimator[list(means)].mean().rename(columns=means).join(spread)


def main() -> None:
    small = {"splits": 1, "items": 3000}
    data = ("adwords", "fremtpl2")
    chosen = options(__doc__, small, part=data, splits=1, items=int)
    frame, tables = real_counts(chosen.part).iloc[: chosen.items], []
    for seed in range(chosen.splits):
        held = one_split(frame, seed)
        print(seed, held, flush=True)
        gains = held.data["gain"].to_dataset().sel(bin=-1).to_dataframe()
        tables.append(gains.reset_index().assign(split=seed))
    show(summary(pd.concat(tables)))


if __name__ == "__main__":
    main()
