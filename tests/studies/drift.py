"""Does `soc.drift` find changes in time, and keep still where nothing changes?

    python -m tests.studies drift [--simulations 20]

A series is 60 days of counts y ~ Poisson(theta N), theta given t from a Gamma with mean t and cv2
0.3. In ``step`` the mean is 10% higher from day 41 on: the delay is the number of days from there
to the first alarm (1: on that day). In ``walk`` the log mean is a random walk, which is no reason
for an alarm. False alarms are bounded at 5% of series: of 20, at most 3 with a probability of 0.98.
"""

import time
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.studies.common import Choice, counts, gamma_counts, options, show, summarize

DAYS, CHANGED, STEP = 60, 40, 0.10
BINS, CV2, TOGETHER = 20, 0.3, 10
KINDS = {  # items a day, whether there is a step, sd of natural steps, joint cells
    "step": (100_000, True, 0.0, True),
    "stable": (100_000, False, 0.0, True),
    "small": (2_000, False, 0.0, True),
    "walk": (20_000, False, 0.02, False),
}


def day_of_items(n: int, mean: float, rng: np.random.Generator) -> pd.DataFrame:
    """One day's items, with their mean `mean` times the score."""
    score = np.exp(rng.normal(-3.0, 1.0, n))
    exposure = np.ceil(rng.gamma(1.0, 20.0, n))
    return gamma_counts(rng, score, exposure, mean * score, CV2)


def series(kind: str, seed: int) -> soc.Statistics:
    """Statistics of 60 days, ten of which are summarized together."""
    n, step, sd, joint = KINDS[kind]
    rng = np.random.default_rng([sorted(KINDS).index(kind), seed])
    log_mean = np.cumsum(rng.normal(0.0, sd, DAYS)) if sd else np.zeros(DAYS)
    log_mean[CHANGED:] += np.log1p(STEP) if step else 0.0
    total = None
    for days in np.split(np.arange(DAYS), DAYS // TOGETHER):
        frame = pd.concat([day_of_items(n, np.exp(log_mean[k]), rng) for k in days])
        dates = np.datetime64("2026-01-01") + days.repeat(n).astype("timedelta64[D]")
        frame = frame.assign(day=dates.astype("datetime64[us]"))
        items = counts(frame, date="day")
        bins = {"bins": BINS} if total is None else {"edges": total.edges}
        more = summarize(items, **bins, joint=joint)
        total = more if total is None else total + more
    return total


def run(kind: str, seed: int) -> dict[str, Any]:
    """One series, with its first alarm and the alarms before any change."""
    stats, begun = series(kind, seed), time.process_time()
    drift = soc.drift(stats, progress=False)
    seconds, table = time.process_time() - begun, drift.table
    days = table["where"].unique().tolist()
    alarm = np.array([days.index(day) for day in drift.alarms], dtype=int)
    pit = table.loc[table["what"] == "PIT", "p"].to_numpy()
    changed = CHANGED if KINDS[kind][1] else DAYS
    late = alarm[alarm >= changed]
    return {
        "false_alarms": int((alarm < changed).sum()),
        "delay": float(late[0]) - changed + 1 if len(late) else np.nan,
        "step_level": float(drift.data["step"].sel(part="level")),
        "p_pit": float(np.median(pit[:changed])) if len(pit) else np.nan,
        "seconds": seconds,
    }


def main() -> None:
    small = {"kinds": ["small"], "simulations": 1}
    chosen = options(__doc__, small, kinds=Choice(KINDS), simulations=20)
    cases = product(chosen.kinds, range(chosen.simulations))
    table = pd.DataFrame([{"kind": kind, **run(kind, seed)} for kind, seed in cases])
    by_kind = table.assign(false_alarm=table["false_alarms"] > 0).groupby("kind")
    shown = by_kind["false_alarm"].agg(["size", "sum"])
    shown = shown.rename(columns={"size": "series", "sum": "with a false alarm"})
    medians = by_kind[["delay", "step_level", "p_pit", "seconds"]].median()
    show(shown.join(medians), "medians by kind", digits=3)
