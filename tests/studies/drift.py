"""Does `soc.drift` find changes in time, and keep still where nothing changes?

    python -m tests.studies.drift --out drift.parquet

A series is 60 days of counts y ~ Poisson(theta N), theta given t from a Gamma with mean t and cv2
0.3, N whole and 20 on average, t log-normal about 0.05. Four kinds:

- ``step``: 100,000 items a day; from day 41 on the mean is 10% higher. Delay is the number of days
  from the first changed day to the first alarm (1: on that day), false alarms are those before it.
- ``stable``: the same without the step. ``small``: 2,000 items a day and no step.
- ``walk``: 20,000 items a day, log mean a random walk with steps of sd 0.02 a day, which is no
  reason for an alarm.

Statistics have 20 bins; joint cells allow the PIT of all but `walk`. Every series is fitted on its
own. Series of two more kinds are of days' estimates alone, Normal with sds of 0.004 (level), 0.003
(slope) and 0.02 (spread), without items: ``still``, and ``moving`` with natural steps of 0.01,
0.001 and 0.01 a day.

Rows of ``--out`` are series; another call makes those that are missing. False alarms are bounded at
5% of series: of 20, at most 3 with a probability of 0.98 if the bound is reached; of 200, at
most 16.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc._lib.files import replacing
from soc_pymc.checks._drift import HORIZON
from soc_pymc.checks.walk import walk

DAYS, CHANGED, STEP = 60, 40, 0.10
BINS, CV2, TOGETHER = 20, 0.3, 10
KINDS = {  # items a day, whether there is a step, sd of natural steps, joint cells, series
    "step": (100_000, True, 0.0, True, 20),
    "stable": (100_000, False, 0.0, True, 20),
    "small": (2_000, False, 0.0, True, 20),
    "walk": (20_000, False, 0.02, False, 20),
}
ESTIMATES, ESTIMATED = {"still": 0.0, "moving": 1.0}, 200  # factor of natural steps; series
NOISE, NATURAL = np.array([0.004, 0.003, 0.02]), np.array([0.01, 0.001, 0.01])


def day_of_items(n: int, mean: float, rng: np.random.Generator) -> pd.DataFrame:
    """One day's items, with their mean `mean` times the score."""
    score = np.exp(rng.normal(-3.0, 1.0, n))
    exposure = np.ceil(rng.gamma(1.0, 20.0, n))
    theta = rng.gamma(1 / CV2, mean * score * CV2)
    return pd.DataFrame({"t": score, "y": rng.poisson(theta * exposure), "N": exposure})


def series(kind: str, seed: int) -> soc.Statistics:
    """Statistics of 60 days, ten of which are summarized together."""
    n, step, sd, joint, _ = KINDS[kind]
    rng = np.random.default_rng([sorted(KINDS).index(kind), seed])
    log_mean = np.cumsum(rng.normal(0.0, sd, DAYS)) if sd else np.zeros(DAYS)
    log_mean[CHANGED:] += np.log1p(STEP) if step else 0.0
    total, edges = None, None
    for some in np.split(np.arange(DAYS), DAYS // TOGETHER):
        frames = [day_of_items(n, np.exp(log_mean[k]), rng) for k in some]
        days = np.datetime64("2026-01-01") + some.repeat(n).astype("timedelta64[D]")
        frame = pd.concat(frames).assign(day=days.astype("datetime64[us]"))
        items = soc.PoissonItems(frame, score="t", count="y", exposure="N", date="day")
        bins = {"bins": BINS} if edges is None else {"edges": edges}
        own = soc.summarize(items, **bins, joint=joint, progress=False)
        total, edges = own if total is None else total + own, own.edges
    return total


def run(kind: str, seed: int) -> dict[str, object]:
    """One series, with its first alarm and the alarms before any change."""
    begun = time.process_time()
    stats = series(kind, seed)
    made = time.process_time()
    found = soc.drift(stats, progress=False)
    table = found.table
    alarm = np.flatnonzero(table["verdict"] == "fail")
    changed = CHANGED if KINDS[kind][1] else DAYS
    late = alarm[alarm >= changed]
    row = {f"step_{part}": float(found.data["step"].sel(part=part)) for part in ("level", "spread")}
    return row | {
        "kind": kind,
        "seed": seed,
        "false_alarms": int((alarm < changed).sum()),
        "delay": int(late[0]) - changed + 1 if len(late) else None,
        "least_p": float(table["p_value"][:changed].min()),
        "moved": ", ".join(table["moved"].iloc[alarm]),
        "p_pit": float(table["p_pit"][:changed].median()),
        "seconds_made": made - begun,
        "seconds": time.process_time() - made,
    }


def estimates(kind: str, seed: int) -> dict[str, object]:
    """One series of days' estimates, whose three tests stand for four as in `soc.drift`."""
    begun = time.process_time()
    rng = np.random.default_rng([sorted(ESTIMATES).index(kind), seed])
    state = np.cumsum(rng.normal(size=(DAYS, 3)) * ESTIMATES[kind] * NATURAL, axis=0)
    precision = np.tile(np.diag(NOISE**-2.0), (DAYS, 1, 1))
    seen = state + rng.normal(size=(DAYS, 3)) * NOISE
    found = walk(precision, seen * NOISE**-2.0, np.arange(float(DAYS)))
    p_value = np.minimum(1.0, 4 * found.p_value.min(axis=1))
    return {
        "kind": kind,
        "seed": seed,
        "false_alarms": int((p_value < 0.05 / HORIZON).sum()),
        "step_level": float(found.step[0]),
        "step_spread": float(found.step[2]),
        "least_p": float(p_value.min()),
        "seconds": time.process_time() - begun,
        "seconds_made": 0.0,
    }


def main() -> None:
    """Run missing series and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("drift.parquet"))
    parser.add_argument("--kind", nargs="+", default=[*ESTIMATES, *KINDS])
    chosen = parser.parse_args()
    table = pd.read_parquet(chosen.out) if chosen.out.exists() else pd.DataFrame()
    done = set(zip(table["kind"], table["seed"], strict=True)) if len(table) else set()
    for kind in chosen.kind:
        for seed in range(KINDS[kind][-1] if kind in KINDS else ESTIMATED):
            if (kind, seed) in done:
                continue
            row = run(kind, seed) if kind in KINDS else estimates(kind, seed)
            table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
            with replacing(chosen.out) as temporary:
                table.to_parquet(temporary)
    for kind, own in table.groupby("kind"):
        print(
            f"{kind}: {len(own)} series, {(own['false_alarms'] > 0).sum()} with a false alarm; "
            f"delays {own['delay'].value_counts().to_dict()}, typical step "
            f"{own['step_level'].median():.4f}, {own['seconds'].median():.1f} s of drift and "
            f"{own['seconds_made'].median():.1f} s of statistics"
        )


if __name__ == "__main__":
    main()
