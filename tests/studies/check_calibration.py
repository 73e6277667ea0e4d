"""Are the p-values of `soc.check` right where the model is, and do they find what is wrong?

    python -m tests.studies.check_calibration truth --family gamma --out truth_gamma.parquet
    python -m tests.studies.check_calibration refit --family gamma --out refit_gamma.parquet
    python -m tests.studies.check_calibration power --out power.parquet

``truth`` simulates sets of items from one draw of the curves and checks each set against it, item
by item and from joint cells. ``refit`` checks the same sets against fits to each of them, where
tests may be conservative. ``power`` checks S1 against its own fit with a wider variance curve, and
with a theta that has a spike. Rows of ``--out`` are tests of one run; another call makes the runs
that are missing, and prints the rejections at 5% of all.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc
from soc_pymc.posterior.predictive import posterior_of
from tests.studies.common import Choice, Rows, counts, fit, fitted, options, show, summarize, values

LEVEL = 0.05
ACCEPTED = (10, 32)  # of 400: the .005 and .995 quantiles of Binomial(400, .05), nearly
BINS, LEFT_OUT = 100, 500  # and items of each set that are left out one by one
DEFAULTS = {"truth": (2000, 400), "refit": (2000, 400), "power": (100_000, 50)}  # items, runs
WIDER, SPIKE, LOW, SPIKE_PROBABILITY = 1.3, 6.0, 0.565, 0.08
BY = ("level", "number")
FAMILIES = {"gamma": counts, "normal": values}
OUTCOMES = {"gamma": ("count", "exposure"), "normal": ("value", "noise_sd")}


def normal_frame(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Scores, noise sds and values: theta ~ Normal(t + .3 sin 2t, exp(-1 + t/2))."""
    score = rng.normal(0, 1, n)
    noise_sd = np.exp(rng.normal(-0.3, 0.7, n))
    theta = rng.normal(score + 0.3 * np.sin(2 * score), np.exp(0.5 * (-1 + 0.5 * score)))
    value = rng.normal(theta, noise_sd)
    return pd.DataFrame({"score": score, "noise_sd": noise_sd, "value": value})


def template(family: str, n: int = 50_000) -> soc.Fit:
    """The truth: the mean curves of a fit, as a fit of one draw."""
    rng = np.random.default_rng(17)
    frame = soc.simulation.s1(n, seed=17) if family == "gamma" else normal_frame(n, rng)
    model = fitted(FAMILIES[family](frame), bins=BINS)
    posterior = model.data["posterior"].to_dataset()
    mean = posterior.mean(["chain", "draw"]).expand_dims(chain=[0], draw=[0])
    return with_posterior(model, mean.transpose("chain", "draw", ...))


def with_posterior(model: soc.Fit, posterior: xr.Dataset) -> soc.Fit:
    """The fit with other draws."""
    tree = model.data.copy()
    tree["posterior"] = xr.DataTree(posterior)
    return replace(model, data=tree)


def null_set(family: str, truth: soc.Fit, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """New items whose outcomes come from the truth."""
    if family == "gamma":
        score = np.exp(rng.normal(np.log(0.05), 0.8, n))
        size = np.ceil(np.exp(rng.normal(np.log(6), 1.8, n)))
    else:
        score, size = rng.normal(0, 1, n), np.exp(rng.normal(-0.3, 0.7, n))
    observed, sizes = OUTCOMES[family]
    columns = {"score": score, sizes: size, observed: np.zeros(n)}
    columns[observed] = posterior_of(truth).simulate(columns, rng)[0]
    level, number = rng.choice(["a", "b", "c"], n), rng.normal(size=n)
    return pd.DataFrame(columns | {"level": level, "number": number})


def p_values(model: soc.Fit, items: object, seed: int, by: tuple[str, ...] = ()) -> dict:
    """P-values of all tests of `soc.check`, on items or on statistics.

    Slices are named without their ranges, which differ between sets.
    """
    subset = 20 if model.one_draw else LEFT_OUT
    table = soc.check(model, items, by=by, seed=seed, subset=subset, progress=False).table
    table = table[table["p"].notna()]
    slices = table["where"].str.replace(r"( \d/\d):.*", r"\1", regex=True)
    return dict(zip(table["what"] + ", " + slices, table["p"], strict=True))


def null_run(family: str, part: str, truth: soc.Fit, n: int, seed: int) -> dict:
    """All tests of one set, by what it is checked against and from what."""
    items = FAMILIES[family](null_set(family, truth, n, np.random.default_rng([seed, len(family)])))
    stats = summarize(items, bins=BINS, joint=True)
    model = truth if part == "truth" else fit(stats)
    cells = p_values(model, stats, seed)
    return {
        (part, "items"): p_values(model, items, seed, BY),
        (part, "cells"): {name: p for name, p in cells.items() if name.startswith("PIT")},
    }


def wider_fit(model: soc.Fit, factor: float) -> soc.Fit:
    """The fit with its variance curve multiplied."""
    posterior = model.data["posterior"].to_dataset()
    name = "log_cv2" if "log_cv2" in posterior else "log_variance"
    return with_posterior(model, posterior.assign({name: posterior[name] + np.log(factor)}))


def spiked(n: int, seed: int) -> pd.DataFrame:
    """S1 with theta at six times its mean, or a little more than half of it."""
    frame = soc.simulation.s1(n, seed=seed)
    rng = np.random.default_rng([seed, 1])
    factor = np.where(rng.random(n) < SPIKE_PROBABILITY, SPIKE, LOW)
    theta = frame["true_mean"] * factor
    return frame.assign(theta=theta, count=rng.poisson(theta * frame["exposure"]))


def power_run(n: int, seed: int) -> dict:
    """Both departures once."""
    plain, spike = counts(soc.simulation.s1(n, seed=seed)), counts(spiked(n, seed))
    return {
        ("x1.3", "items"): p_values(wider_fit(fitted(plain), WIDER), plain, seed),
        ("spike", "items"): p_values(fitted(spike), spike, seed),
    }


def rejections(table: pd.DataFrame) -> pd.DataFrame:
    """Runs, rejections at 5% and the median p-value by test.

    ``odd`` tests reject more often than chance has it, or against the truth too seldom.
    """
    tests = table.assign(rejected=table["p"] < LEVEL)
    found = tests.groupby(["against", "from", "test"], sort=False).agg(
        runs=("seed", "size"), rejected=("rejected", "sum"), median_p=("p_value", "median")
    )
    low, high = (limit * found["runs"] / 400 for limit in ACCEPTED)
    of_truth = found.index.get_level_values("against") == "truth"
    return found.assign(odd=(found["rejected"] > high) | (of_truth & (found["rejected"] < low)))


def main() -> None:
    """Prints the rejections of all runs."""
    small = {"runs": 2, "items": 500, "template": 5000}
    family = Choice(FAMILIES, "gamma")
    chosen = options(
        __doc__, small, part=DEFAULTS, family=family, items=int, runs=int, template=50_000, out=Path
    )
    items, runs = (chosen.items or DEFAULTS[chosen.part][0]), DEFAULTS[chosen.part][1]
    truth = None if chosen.part == "power" else template(chosen.family, chosen.template)
    rows = Rows(chosen.out, part=chosen.part, items=items)
    for seed in range(chosen.runs or runs):
        if rows.has(seed=seed):
            continue
        if truth is None:
            found = power_run(items, seed)
        else:
            found = null_run(chosen.family, chosen.part, truth, items, seed)
        for (against, source), tests in found.items():
            table = pd.DataFrame({"test": tests.keys(), "p_value": tests.values()})
            rows.add(table.assign(against=against, **{"from": source}), seed=seed)
    show(rejections(rows.table), digits=3)


if __name__ == "__main__":
    main()
