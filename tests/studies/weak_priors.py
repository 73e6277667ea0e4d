"""Does the default prior of the second curve suit tables of few events, and leave others alone?

    python -m tests.studies weak_priors coverage [--tables 50]
    python -m tests.studies weak_priors change

`coverage` simulates tables of 50 to 500 events whose curves no prior knows: cv2 in the middle
between 0.05 and 2, with a change over the middle 98% of the items by a factor of 1/10 to 10.
`change` fits tables with more data, simulated and real, and compares the curves with those of the
widest prior, and elpd (leave-one-out).
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.studies import common

PRIORS = {
    "wide": (2.0, None, 0.5),
    "default": (1.4, 0.5, 0.3),
    "0.35, 0.25": (1.4, 0.35, 0.25),
    "tight": (1.4, 0.2, 0.2),
}
"""Sd of the level, of the slope per sd of log score (None: 1 per unit), and scale of the wiggle."""
_MIDDLE = 2 * 2.326  # sds of a Normal score between its 1% and 99% points
_POINTS = (0.02, 0.25, 0.5, 0.75, 0.98)


def prior_of(name: str, score: np.ndarray) -> soc.Gamma:
    level, slope, wiggle = PRIORS[name]
    slope = 1.0 if slope is None else slope / np.log(score).std()
    return soc.Gamma(
        variance=soc.Spline(level=(np.log(0.3), level), slope=(0.0, slope), wiggle=wiggle)
    )


def small_table(events: float, seed: int, items: int = 1000) -> pd.DataFrame:
    """Items with about so many events in all, and their theta."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=items)
    exposure, mean = np.exp(1.2 * rng.normal(size=items)), 0.05 * np.exp(0.7 * u)
    exposure *= events / (mean @ exposure)
    middle, change = np.exp(rng.uniform(np.log([0.05, 0.1]), np.log([2.0, 10.0])))
    cv2 = middle * change ** (u / _MIDDLE)
    return common.gamma_counts(rng, 0.05 * np.exp(0.7 * u), exposure, mean, cv2)


def coverage(tables: int) -> None:
    """Prints coverage of 90% intervals of theta, by events, and intervals' widths by prior."""
    rows = []
    for seed, events in enumerate(np.geomspace(50, 500, tables)):
        frame = small_table(events, seed)
        stats = common.summarize(common.counts(frame))
        for name in PRIORS:
            fit = common.fit(stats, prior_of(name, frame["score"]))
            scored = common.posteriors(fit, common.counts(frame))
            covered = common.items_covered(scored, frame["theta"])
            seen = frame["count"] > 0
            width = (scored["theta_q95"] - scored["theta_q05"])[seen].mean()
            error = np.sqrt(((scored["theta_mean"] - frame["theta"])[seen] ** 2).mean())
            row = {"prior": name, "events": "50 to 158" if events < 158.2 else "158 to 500"}
            row |= {"items": covered.mean(), "with an event": covered[seen].mean()}
            row |= {"width": width / scored["theta_mean"][seen].mean()}
            row |= {"error": error / frame["theta"][seen].mean()}
            rows.append(row | common.quality(fit))
    table = pd.DataFrame(rows)
    for keys in (["prior"], ["prior", "events"]):
        common.show(table.groupby(keys, sort=False).mean(numeric_only=True), digits=3)
    errors = table.groupby("prior", sort=False)[["items", "with an event"]].sem()
    common.show(errors, "standard errors over tables", digits=2)


def falling(items: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    u = rng.normal(size=items)
    exposure = np.ceil(np.exp(rng.normal(np.log(6.0), 1.8, items)))
    t = 0.05 * np.exp(0.8 * u)
    return common.gamma_counts(rng, t, exposure, t, 0.35 * 6.0 ** (-u / _MIDDLE))


s1 = soc.simulation.s1
TABLES: dict[str, Any] = {
    **{f"falling, 4,000, seed {seed}": partial(falling, 4000, seed) for seed in range(3)},
    **{f"S1, 20,000, seed {seed}": partial(s1, 20_000, seed=seed) for seed in (0, 1)},
    **{name: partial(common.real_counts, name) for name in common.REAL},
}


def change(tables: list[str]) -> None:
    """Prints how far priors move the curves, in posterior sds of the widest, and their elpd."""
    rows = []
    for table in tables:
        frame = TABLES[table]()
        stats = common.summarize(common.counts(frame), joint=True)
        method = soc.VI(draws=4000)
        fits = {n: common.fit(stats, prior_of(n, frame["score"]), method) for n in PRIORS}
        score = np.quantile(frame["score"], _POINTS)
        curves = {name: common.curves(fit, score) for name, fit in fits.items()}
        elpd = soc.compare(fits, stats, progress=False)["elpd"].astype(float)
        for name in list(PRIORS)[1:]:
            pairs = {c: (draws, curves["wide"][c]) for c, draws in curves[name].items()}
            moved = {curve: common.against(*pair) for curve, pair in pairs.items()}
            row = {"table": table, "prior": name}
            row |= {curve: apart["largest difference of means"] for curve, apart in moved.items()}
            row |= {"lowest sd ratio, cv2": moved["log cv2"]["lowest sd ratio"]}
            rows.append(row | {"elpd": elpd[name] - elpd["wide"]} | common.quality(fits[name]))
    common.show(pd.DataFrame(rows).set_index(["table", "prior"]), digits=2)


def main() -> None:
    small, parts = {"tables": 2, "data": [next(iter(TABLES))]}, ("coverage", "change")
    data = common.Choice(TABLES)
    chosen = common.options(__doc__, small, part=parts, tables=50, data=data)
    if chosen.part == "coverage":
        coverage(chosen.tables)
    else:
        change(chosen.data)
