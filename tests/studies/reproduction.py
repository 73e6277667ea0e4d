"""Section 5.1 of the paper, number by number, by five steps and Bayesian.

    SOC_PYMC_DATA=... python -m tests.studies reproduction numbers [--data simulated]
    SOC_PYMC_DATA=... python -m tests.studies reproduction held-out --data adwords --splits 5

A tenth of every item's exposure is held out, as in the paper. ``numbers`` has a row for every
figure that the paper gives and a column for each method; of simulated items also what is true.
``held-out`` prints gains over t in percent, with their standard errors and sds over splits, and
p-values of the predictive PIT; besides, five steps in 200 bins.
"""

from collections.abc import Mapping

import pandas as pd

import soc_pymc as soc
from tests.studies.common import Choice, counts, fit, options, real_counts, show, summarize

BINS = {"adwords": 100, "simulated": 1000, "fremtpl2": 100}
"""Bins of equal counts."""


def fits_of(items: soc.PoissonItems, bins: int) -> tuple[soc.Statistics, dict[str, soc.Fit]]:
    """Statistics in bins of equal counts, and fits by both methods; ours with exposure too."""
    stats = summarize(items, bins=bins, equal="count", joint=True)
    return stats, {
        "five steps": fit(stats, method=soc.FiveSteps(moments="log")),
        "Bayesian": fit(stats),
        "Bayesian with exposure": fit(stats, soc.Gamma(exposure=soc.Spline())),
    }


def in_sample(
    items: soc.PoissonItems, stats: soc.Statistics, fits: Mapping[str, soc.Fit]
) -> pd.DataFrame:
    """What the paper reads off the fits: spread of t, seconds, PIT, R-squared, variance left."""
    spread = fits["five steps"].data["constant_data"]["log_score_sd"]
    rows: dict[str, dict[str, float]] = {}
    for name, model in fits.items():
        table = soc.check(model, items, progress=False).table.set_index(["what", "where"])
        share = soc.quantities.r_squared(model, stats).to_numpy()
        left = soc.quantities.variance_reduction(model, items, progress=False)
        left = left.data["ratio"].to_numpy()
        rows[name] = {
            "seconds of the fit": model.status.seconds,
            "PIT, all items: distance": table.loc[("PIT", "all items"), "value"],
            "PIT, all items: p": table.loc[("PIT", "all items"), "p"],
            "PIT, N >= 50: distance": table.loc[("PIT", "exposure >= 50"), "value"],
            "PIT, N >= 50: p": table.loc[("PIT", "exposure >= 50"), "p"],
        }
        for what, draws in (("R-squared", share), ("E Var(theta | t, y) / Var(theta | t)", left)):
            rows[name] |= {what: float(draws.mean()), f"{what}: sd": float(draws.std())}
    numbers = pd.DataFrame(rows)
    numbers.loc["Sd(log t) in a bin, median"] = float(spread.median())
    numbers.loc["Sd(log t) in a bin, largest"] = float(spread.max())
    return numbers


def truth(frame: pd.DataFrame) -> pd.Series:
    """The same of simulated items by the curves that made them."""
    mean, cv2, weight = frame["true_mean"], frame["true_cv2"], frame["exposure"]
    variance = cv2 * mean**2
    left = (1.0 / cv2 + frame["count"]) / (1.0 / (cv2 * mean) + weight) ** 2
    found = {
        "R-squared": 1.0 - variance.mean() / (mean.var() + variance.mean()),
        "E Var(theta | t, y) / Var(theta | t)": (weight @ left) / (weight @ variance),
    }
    return pd.Series(found, name="truth")


def one_split(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Gains of fits in default bins, and of five steps in 200 too."""
    split = soc.evaluate.split_items(counts(frame), 0.1, seed)
    stats, few = summarize(split.train, joint=True), summarize(split.train, bins=200)
    fits = {
        "plain": fit(stats),
        "exposure": fit(stats, soc.Gamma(exposure=soc.Spline())),
        "five steps": fit(stats, method=soc.FiveSteps()),
        "five steps, 200 bins": fit(few, method=soc.FiveSteps()),
    }
    held = soc.evaluate.held_out(fits, split, progress=False)
    print(seed, held, flush=True)
    return held.data["gain"].to_dataset().sel(bin=-1).to_dataframe()


def main() -> None:
    small = {"items": 2000, "bins": 20}
    data, parts = Choice(BINS, "adwords"), ("numbers", "held-out")
    chosen = options(__doc__, small, part=parts, data=data, items=int, bins=int, splits=1)
    simulated = chosen.data == "simulated"
    number = chosen.items or 1_000_000
    frame = soc.simulation.s1(number, 0) if simulated else real_counts(chosen.data)[:number]
    if chosen.part == "held-out":
        gains = pd.concat([one_split(frame, seed) for seed in range(chosen.splits)])
        by_estimator = gains.groupby("estimator", sort=False)
        means = by_estimator[["gain", "gain_percent", "gain_percent_se"]].mean()
        show(means.assign(sd_over_splits=by_estimator["gain_percent"].std()))
        return
    items, bins = counts(frame), chosen.bins or BINS[chosen.data]
    numbers = in_sample(items, *fits_of(items, bins))
    show(numbers.join(truth(frame)) if simulated else numbers)
    split = soc.evaluate.split_items(items, 0.1, 0)
    held = soc.evaluate.held_out(fits_of(split.train, bins)[1], split, seed=0, progress=False)
    show(held.data["gain"].to_dataset().to_dataframe(), "gains")
    print(held, flush=True)
