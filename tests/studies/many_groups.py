"""Many groups: time, Pareto k, agreement with NUTS, and coverage of item intervals.

    python -m tests.studies.many_groups [--groups 12] [--items 100] [--seed 0] [--nuts]
    python -m tests.studies.many_groups --groups 2000 --largest 100000

Groups are those of `tests.studies.groups`, of equal sizes, or of log-uniform sizes from 1 item to
the largest. NUTS on the whole model takes a minute for 12 groups of 100 items, and 9 for 50 of 400.
Prints the share of items whose theta is inside its 90% interval, over all items, or an even sample
of them, and over those of groups below 50 items; standard errors treat groups as independent.
"""

import argparse
import re
import time
from pathlib import Path

import numpy as np

import soc_pymc as soc
from soc_pymc.posterior.curves import curve_draws
from tests.studies import groups

SMALL, SAMPLE = 50, 200_000


def log_uniform(seed: int, number: int, largest: int) -> np.ndarray:
    """Sizes of groups from 1 to the largest."""
    rng = np.random.default_rng(seed)
    return np.floor(np.exp(rng.uniform(0.0, np.log(largest), number))).astype(int)


def coverage(inside: np.ndarray, group: np.ndarray) -> str:
    """Share of items inside, with its standard error between groups."""
    _, code = np.unique(group, return_inverse=True)
    items, away = np.bincount(code), np.bincount(code, inside - inside.mean())
    return f"{inside.mean():.3f} +- {np.sqrt((away**2).sum()) / items.sum():.3f}"


def agreement(fit: soc.Fit, nuts: soc.Fit) -> tuple[float, float, float]:
    """Lowest and highest sd ratio and largest difference of means in sd, over groups and scores."""
    ratios, shifts = [], []
    for label in (None, *fit.groups):
        names = None if label is None else np.full(len(groups.SCORES), label)
        one, other = (
            np.array(curve_draws(each, groups.SCORES, group=names)) for each in (fit, nuts)
        )
        sd = other.std(axis=1)
        ratios.append(one.std(axis=1) / sd)
        shifts.append(np.abs(one.mean(axis=1) - other.mean(axis=1)) / sd)
    return float(np.min(ratios)), float(np.max(ratios)), float(np.max(shifts))


def peak_memory() -> float:
    """GB at most since the last call (Linux counts them)."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    Path("/proc/self/clear_refs").write_text("5")
    return float(found[1]) / 1e6 if found else np.nan


def main() -> None:
    """Run the study and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--largest", type=int, help="log-uniform sizes up to this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nuts", action="store_true")
    chosen = parser.parse_args()
    sizes = np.full(chosen.groups, chosen.items)
    if chosen.largest:
        sizes = log_uniform(chosen.seed, chosen.groups, chosen.largest)
    frame, theta = groups.simulate_items(chosen.seed, sizes)
    stats = groups.summarize(frame)
    size = np.repeat(sizes, sizes)
    even = np.arange(len(theta)) % -(-len(theta) // SAMPLE) == 0
    kept = even | (size < SMALL)
    frame, theta, size, even = frame[kept], theta[kept], size[kept], even[kept]
    soc.fit(groups.summarize(groups.simulate(0, np.full(9, 50))[0]), progress=False)  # compiles
    before, began = peak_memory(), time.process_time()
    fit = soc.fit(stats, method=soc.VI(seed=chosen.seed), progress=False)
    print(f"{time.process_time() - began:.1f} CPU s: {fit.status.reason}")
    print(f"{sizes.sum():,} items; peak {peak_memory():.1f} GB, {before:.1f} GB before the fit")
    items = soc.PoissonItems(
        frame, score="score", count="count", exposure="exposure", group="group"
    )
    found = soc.item_posteriors(fit, items, quantiles=(0.05, 0.95), progress=False)
    low, high = (np.asarray(found[name]) for name in ("theta_q05", "theta_q95"))
    inside, label = (low <= theta) & (theta <= high), frame["group"].to_numpy()
    print(f"item intervals cover {coverage(inside[even], label[even])}")
    small = size < SMALL
    if small.any():
        print(f"in groups below {SMALL} items {coverage(inside[small], label[small])}")
    if chosen.nuts:
        nuts = soc.fit(stats, method=soc.NUTS(draws=2000, chains=2, seed=1), progress=False)
        print("sd ratios and means against NUTS:", np.round(agreement(fit, nuts), 3))


if __name__ == "__main__":
    main()
