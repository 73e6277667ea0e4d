"""Are the p-values of `soc.check` right where the model is, and do they find what is wrong?

    python -m tests.studies check_calibration truth|refit|power [--family gamma]

``truth`` simulates sets of items from known curves and checks each set against them, item
by item and from joint cells. ``refit`` checks the same sets against fits to each of them, where
tests may be conservative. ``power`` checks S1 against its own fit with a wider variance curve, and
with a theta that has a spike. Prints the rejections at 5%.
"""

from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.fits import with_draws
from tests.checks.hand_made import as_items, hand_made_fit, simulate
from tests.studies.common import Choice, counts, fit, fitted, options, show, summarize

LEVEL = 0.05
ACCEPTED = (10, 32)  # of 400: the 0.005 and 0.995 quantiles of Binomial(400, 0.05), nearly
BINS, LEFT_OUT = 100, 500  # and items of each set that are left out one by one
DEFAULTS = {"truth": (2000, 400), "refit": (2000, 400), "power": (100_000, 50)}  # items, runs
WIDER, SPIKE, LOW, SPIKE_PROBABILITY = 1.3, 6.0, 0.565, 0.08
BY = ("level", "number")
FAMILIES = {"gamma": "counts", "normal": "values", "beta": "trials"}


def p_values(
    model: soc.Fit, items: Any, seed: int, by: tuple[str, ...] = (), subset: int = LEFT_OUT
) -> dict[str, float]:
    """P-values of all tests of `soc.check`, on items or on statistics.

    Slices are named without their ranges, which differ between sets.
    """
    table = soc.check(model, items, by=by, seed=seed, subset=subset, progress=False).table
    table = table[table["p"].notna()]
    slices = table["where"].str.replace(r"( \d/\d):.*", r"\1", regex=True)
    return dict(zip(table["what"] + ", " + slices, table["p"], strict=True))


def null_run(family: str, part: str, n: int, seed: int) -> dict:
    """All tests of one set, by what it is checked against and from what."""
    kind, rng = FAMILIES[family], np.random.default_rng([seed, 1])
    frame = simulate(n, seed, kind)
    frame = frame.assign(level=rng.choice(["a", "b", "c"], n), number=rng.normal(size=n))
    items = as_items(frame, kind)
    stats = summarize(items, bins=BINS, joint=True)
    model = hand_made_fit(kind) if part == "truth" else fit(stats)
    cells = p_values(model, stats, seed)
    return {
        (part, "items"): p_values(model, items, seed, BY, 20 if part == "truth" else LEFT_OUT),
        (part, "cells"): {name: p for name, p in cells.items() if name.startswith("PIT")},
    }


def spiked(n: int, seed: int) -> pd.DataFrame:
    """S1 with theta at six times its mean, or a little more than half of it."""
    frame = soc.simulation.s1(n, seed=seed)
    rng = np.random.default_rng([seed, 1])
    factor = np.where(rng.random(n) < SPIKE_PROBABILITY, SPIKE, LOW)
    theta = frame["true_mean"] * factor
    return frame.assign(theta=theta, count=rng.poisson(theta * frame["exposure"]))


def power_run(n: int, seed: int) -> dict:
    plain, spike = counts(soc.simulation.s1(n, seed=seed)), counts(spiked(n, seed))
    model = fitted(plain)
    posterior = model.data["posterior"].to_dataset()
    wider = with_draws(model, posterior.assign(log_cv2=posterior["log_cv2"] + np.log(WIDER)))
    return {
        ("x1.3", "items"): p_values(wider, plain, seed),
        ("spike", "items"): p_values(fitted(spike), spike, seed),
    }


def rejections(table: pd.DataFrame) -> pd.DataFrame:
    """Runs, rejections at 5% and the median p-value by test.

    ``odd`` tests reject more often than chance has it, or against the truth too seldom.
    """
    tests = table.assign(rejected=table["p_value"] < LEVEL)
    found = tests.groupby(["against", "from", "test"], sort=False).agg(
        runs=("seed", "size"), rejected=("rejected", "sum"), median_p=("p_value", "median")
    )
    low, high = (limit * found["runs"] / 400 for limit in ACCEPTED)
    of_truth = found.index.get_level_values("against") == "truth"
    return found.assign(odd=(found["rejected"] > high) | (of_truth & (found["rejected"] < low)))


def main() -> None:
    family = Choice(FAMILIES, "gamma")
    small = {"runs": 2, "items": 500}
    chosen = options(__doc__, small, part=DEFAULTS, family=family, items=int, runs=int)
    items, runs = DEFAULTS[chosen.part]
    items, tables = chosen.items or items, []
    for seed in range(chosen.runs or runs):
        if chosen.part == "power":
            found = power_run(items, seed)
        else:
            found = null_run(chosen.family, chosen.part, items, seed)
        for (against, source), tests in found.items():
            table = pd.DataFrame({"test": tests.keys(), "p_value": tests.values(), "seed": seed})
            tables.append(table.assign(against=against, **{"from": source}))
    show(rejections(pd.concat(tables)), digits=3)
