"""Are the p-values of `soc.check` right where the model is, and do they find what is wrong?

    python -m tests.studies.check_calibration truth --family gamma --out truth_gamma.parquet
    python -m tests.studies.check_calibration refit --family gamma --out refit_gamma.parquet
    python -m tests.studies.check_calibration power --out power.parquet

``truth`` simulates sets of items from one draw of the curves (a fit's mean curves, so that the
truth is known exactly) and checks each set against it, item by item and from joint cells. Of 400
sets a test at 5% rejects 20, from 10 to 32 with a probability of .99. ``refit`` checks the same
sets against fits to each of them: on the items that made the fit tests may be conservative.

``power`` checks S1: once against its own fit with the variance curve times 1.3, and once with theta
= m x (6 with probability .08, else .565), fitted again.

Every row of ``--out`` is one test of one run. Another call makes the runs that are missing, and
prints the rejections at 5% of all.
"""

import argparse
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc
from soc_pymc._lib.files import replacing
from soc_pymc.checks.cells import cell_pit, make_cells
from soc_pymc.posterior.predictive import posterior_of

LEVEL = 0.05
ACCEPTED = (10, 32)  # of 400: the .005 and .995 quantiles of Binomial(400, .05), nearly
SET_SIZE, BINS = 2000, 100
TEMPLATE = 50_000
LEFT_OUT = 500  # items left out one by one, of each set
POWER_ITEMS, POWER_RUNS, NULL_RUNS = 100_000, 50, 400
WIDER, SPIKE, LOW, SPIKE_PROBABILITY = 1.3, 6.0, 0.565, 0.08
BY = ("level", "number")
DESIGNATED = {"x1.3": ["PIT, exposure >= 50", "dispersion, all items"], "spike": ["PIT, all items"]}


def gamma_items(frame: pd.DataFrame) -> soc.PoissonItems:
    """Items of S1's columns."""
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


def normal_items(frame: pd.DataFrame) -> soc.NormalItems:
    """Items with values."""
    return soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")


def normal_frame(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Scores, noise sds and values: theta ~ Normal(t + .3 sin 2t, exp(-1 + t/2))."""
    score = rng.normal(0, 1, n)
    noise_sd = np.exp(rng.normal(-0.3, 0.7, n))
    theta = rng.normal(score + 0.3 * np.sin(2 * score), np.exp(0.5 * (-1 + 0.5 * score)))
    value = rng.normal(theta, noise_sd)
    return pd.DataFrame({"score": score, "noise_sd": noise_sd, "value": value})


FAMILIES = {"gamma": gamma_items, "normal": normal_items}


def template(family: str) -> soc.Fit:
    """The truth: the mean curves of a fit, as a fit of one draw."""
    rng = np.random.default_rng(17)
    frame = (
        soc.simulation.s1(TEMPLATE, seed=17) if family == "gamma" else normal_frame(TEMPLATE, rng)
    )
    fit = soc.fit(soc.summarize(FAMILIES[family](frame), bins=BINS, progress=False), progress=False)
    posterior = fit.data["posterior"].to_dataset()
    mean = posterior.mean(["chain", "draw"]).expand_dims(chain=[0], draw=[0])
    tree = fit.data.copy()
    tree["posterior"] = xr.DataTree(mean.transpose("chain", "draw", ...))
    return replace(fit, data=tree)


def null_set(family: str, truth: soc.Fit, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """New items whose outcomes come from the truth."""
    if family == "gamma":
        score = np.exp(rng.normal(np.log(0.05), 0.8, n))
        size = np.ceil(np.exp(rng.normal(np.log(6), 1.8, n)))
    else:
        score, size = rng.normal(0, 1, n), np.exp(rng.normal(-0.3, 0.7, n))
    law = posterior_of(truth)
    columns = {"score": score, law.outcome.size: size, law.outcome.observed: np.zeros(n)}
    columns[law.outcome.observed] = law.simulate(columns, rng)[0]
    level, number = rng.choice(["a", "b", "c"], n), rng.normal(size=n)
    return pd.DataFrame(columns | {"level": level, "number": number})


def plain(name: str) -> str:
    """A slice without its range, which differs between sets."""
    return re.sub(r"( \d/\d):.*", r"\1", name)


def item_rows(fit: soc.Fit, items: object, seed: int, by: tuple[str, ...] = ()) -> dict[str, float]:
    """P-values of all tests of `soc.check` on items."""
    subset = 20 if fit.one_draw else LEFT_OUT
    table = soc.check(fit, items, by=by, seed=seed, subset=subset, progress=False).table
    table = table[table["p_value"].notna()]
    return {
        f"{check}, {plain(name)}": p
        for check, name, p in zip(table["check"], table["slice"], table["p_value"], strict=True)
    }


def cell_rows(fit: soc.Fit, stats: soc.Statistics, seed: int) -> dict[str, float]:
    """P-values of the PIT of cells; those of ``soc.check(fit, stats)`` without leave-one-out."""
    found = cell_pit(fit, make_cells(fit, stats), np.random.default_rng(seed), progress=False)
    return {f"PIT, {plain(name)}": test.p_value for name, (_, _, n, test) in found.items() if n}


def null_run(
    family: str, part: str, truth: soc.Fit, n: int, seed: int
) -> dict[tuple[str, str], dict[str, float]]:
    """All tests of one set, by what it is checked against and from what."""
    frame = null_set(family, truth, n, np.random.default_rng([seed, len(family)]))
    items = FAMILIES[family](frame)
    stats = soc.summarize(items, bins=BINS, joint=True, progress=False)
    fit = truth if part == "truth" else soc.fit(stats, progress=False)
    return {
        (part, "items"): item_rows(fit, items, seed, BY),
        (part, "cells"): cell_rows(fit, stats, seed),
    }


def wider_fit(fit: soc.Fit, factor: float) -> soc.Fit:
    """The fit with its variance curve multiplied."""
    posterior = fit.data["posterior"].to_dataset()
    name = "log_cv2" if "log_cv2" in posterior else "log_variance"
    tree = fit.data.copy()
    tree["posterior"] = xr.DataTree(posterior.assign({name: posterior[name] + np.log(factor)}))
    return replace(fit, data=tree)


def spiked(n: int, seed: int) -> pd.DataFrame:
    """S1 with theta at six times its mean, or a little more than half of it."""
    frame = soc.simulation.s1(n, seed=seed)
    rng = np.random.default_rng([seed, 1])
    factor = np.where(rng.random(n) < SPIKE_PROBABILITY, SPIKE, LOW)
    theta = frame["true_mean"] * factor
    return frame.assign(theta=theta, count=rng.poisson(theta * frame["exposure"]))


def power_run(n: int, seed: int) -> dict[tuple[str, str], dict[str, float]]:
    """Both departures once."""
    found = {}
    for name, frame in (("x1.3", soc.simulation.s1(n, seed=seed)), ("spike", spiked(n, seed))):
        items = gamma_items(frame)
        fit = soc.fit(soc.summarize(items, progress=False), progress=False)
        if name == "x1.3":
            fit = wider_fit(fit, WIDER)
        found[name, "items"] = item_rows(fit, items, seed)
    return found


def rejections(table: pd.DataFrame) -> pd.DataFrame:
    """Runs, rejections at 5% and the median p-value by test."""
    by = table.groupby(["against", "from", "test"], sort=False)["p_value"]
    found = pd.DataFrame(
        {"runs": by.size(), "rejected": by.agg(lambda p: int((p < LEVEL).sum()))}
        | {"median_p": by.median()}
    )
    return found.reset_index()


def outside(found: pd.DataFrame) -> pd.DataFrame:
    """Null tests that reject more often than chance has it, or against the truth too seldom."""
    share = found["runs"] / NULL_RUNS
    low, high = ACCEPTED
    many = found["rejected"] > high * share
    few = (found["rejected"] < low * share) & (found["against"] == "truth")
    return found[many | few]


def run(chosen: argparse.Namespace) -> pd.DataFrame:
    """Runs that are missing in the file, saved every few."""
    done = pd.read_parquet(chosen.out) if chosen.out and chosen.out.exists() else pd.DataFrame()
    seen = set(done["seed"]) if len(done) else set()
    truth = template(chosen.family) if chosen.part != "power" else None
    parts, start = [done] if len(done) else [], time.monotonic()
    left = [s for s in range(chosen.seed, chosen.seed + chosen.runs) if s not in seen]
    for number, seed in enumerate(left, start=1):
        if truth is not None:
            found = null_run(chosen.family, chosen.part, truth, chosen.items, seed)
        else:
            found = power_run(chosen.items, seed)
        rows = [
            (seed, against, source, test, p)
            for (against, source), tests in found.items()
            for test, p in tests.items()
        ]
        parts.append(pd.DataFrame(rows, columns=["seed", "against", "from", "test", "p_value"]))
        if number % 10 == 0 or number == len(left):
            parts = [pd.concat(parts, ignore_index=True)]
            if chosen.out:
                with replacing(chosen.out) as temporary:
                    parts[0].to_parquet(temporary)
            print(f"{number} of {len(left)} runs, {time.monotonic() - start:.0f} s", flush=True)
    return pd.concat(parts, ignore_index=True)


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Print the rejections of all runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["truth", "refit", "power"])
    parser.add_argument("--family", choices=FAMILIES, default="gamma")
    parser.add_argument("--items", type=int, help="items in a set")
    parser.add_argument("--runs", type=int, help="number of sets")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first set")
    parser.add_argument("--out", type=Path, help="Parquet file of all p-values")
    chosen = parser.parse_args(arguments)
    null = chosen.part != "power"
    chosen.items = chosen.items or (SET_SIZE if null else POWER_ITEMS)
    chosen.runs = chosen.runs or (NULL_RUNS if null else POWER_RUNS)
    found = rejections(run(chosen))
    print(found.to_string(index=False, float_format=lambda x: f"{x:.3f}"))
    if null:
        odd = outside(found)
        print(f"{len(odd)} tests of {len(found)} are out of range")
        print(odd.to_string(index=False) if len(odd) else "")
    return found


if __name__ == "__main__":
    main()
