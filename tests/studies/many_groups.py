"""Many groups: time, Pareto k, agreement with NUTS, and coverage of item intervals.

    python -m tests.studies.many_groups [--groups 12] [--items 100] [--seed 0] [--nuts]
    python -m tests.studies.many_groups --groups 2000 --largest 100000

Groups have the curves of S1, each with its own deviations: of log mean in level (sd 0.2) and
slope (sd 0.1), of log cv2 in level (sd 0.3). They are of equal sizes, or of log-uniform sizes from
1 item to the largest. Standard errors of coverage treat groups as independent.
"""

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.oracles import s1_curves
from tests.studies import common
from tests.studies.common import counts, curves, fit, timed

SMALL, SAMPLE = 50, 200_000
SCORES = np.exp(np.log(0.05) + 0.8 * np.linspace(-1.645, 1.645, 11))


def simulate(seed: int, sizes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Items of all groups, and the true curves (groups, 2, scores): log mean and log cv2."""
    rng = np.random.default_rng(seed)
    level, slope = 0.2 * rng.normal(size=len(sizes)), 0.1 * rng.normal(size=len(sizes))
    scatter = 0.3 * rng.normal(size=len(sizes))

    def curves_of(score: np.ndarray, group: np.ndarray) -> np.ndarray:
        log_mean, log_cv2 = s1_curves(score)
        x = np.log(score / 0.05)
        return np.array([log_mean + level[group] + slope[group] * x, log_cv2 + scatter[group]])

    group = np.repeat(np.arange(len(sizes)), sizes)
    score = np.exp(rng.normal(np.log(0.05), 0.8, len(group)))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, len(group))))
    frame = common.gamma_counts(rng, score, exposure, *np.exp(curves_of(score, group)))
    labels = np.array([f"g{k:02d}" for k in range(len(sizes))])
    truth = [curves_of(SCORES, np.full(len(SCORES), k)) for k in range(len(sizes))]
    return frame.assign(group=labels[group]), np.array(truth)


def grouped(frame: pd.DataFrame) -> soc.Statistics:
    return common.summarize(counts(frame, group="group"))


def log_uniform(seed: int, number: int, largest: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.floor(np.exp(rng.uniform(0.0, np.log(largest), number))).astype(int)


def coverage(inside: np.ndarray, group: np.ndarray) -> str:
    """Share of items inside, with its standard error between groups."""
    _, code = np.unique(group, return_inverse=True)
    items, away = np.bincount(code), np.bincount(code, inside - inside.mean())
    return f"{inside.mean():.3f} +- {np.sqrt((away**2).sum()) / items.sum():.3f}"


def agreement(fitted: soc.Fit, nuts: soc.Fit) -> pd.DataFrame:
    """Compares curves with those of NUTS at all scores, group by group."""
    rows = []
    for label in fitted.groups:
        drawn, true = (curves(each, SCORES, group=label) for each in (fitted, nuts))
        rows += [common.against(drawn[name], true[name]) for name in drawn]
    return pd.DataFrame(rows)


def main() -> None:
    small = {"groups": 9, "items": 50}
    chosen = common.options(__doc__, small, groups=12, items=100, largest=int, seed=0, nuts=False)
    sizes = np.full(chosen.groups, chosen.items)
    if chosen.largest:
        sizes = log_uniform(chosen.seed, chosen.groups, chosen.largest)
    frame, _ = simulate(chosen.seed, sizes)
    stats = grouped(frame)
    frame = frame.assign(size=np.repeat(sizes, sizes))
    frame["even"] = np.arange(len(frame)) % -(-len(frame) // SAMPLE) == 0
    frame = frame[frame["even"] | (frame["size"] < SMALL)]
    fit(grouped(simulate(0, np.full(9, 50))[0]))  # compiles
    model, seconds = timed(lambda: fit(stats, method=soc.VI(seed=chosen.seed)))
    print(f"{sizes.sum():,} items, {seconds:.1f} CPU s: {model.status.reason}")
    inside = common.items_covered(common.posteriors(model, counts(frame, group="group")))
    for name, some in (("all", frame["even"]), (f"below {SMALL}", frame["size"] < SMALL)):
        if some.any():
            share = coverage(inside[some].to_numpy(), frame["group"][some])
            print(f"item intervals cover {share} (sizes of groups: {name})")
    if chosen.nuts:
        nuts = fit(stats, method=soc.NUTS(draws=2000, chains=2, seed=1))
        print(agreement(model, nuts).agg(["min", "max"]).round(3).to_string())


if __name__ == "__main__":
    main()
