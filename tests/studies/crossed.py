"""Two crossed columns of groups whose effects are known: coverage of 90% intervals.

Items of 12 countries and 3 devices have the curves of S1 plus main effects of country and device.
The log mean has effects in level (sd 0.3 and 0.2) and, for countries only, in slope (sd 0.1); log
cv2 has them in level (sd 0.2 and 0.2).

    python -m tests.studies.crossed --simulations 10
"""

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.oracles import s1_curves
from tests.studies import common

GROUP = ("country", "device")
SIZES = 12, 3
SCORES = np.exp(np.log(0.05) + 0.8 * np.linspace(-1.645, 1.645, 7))


def simulate(
    seed: int, items: int = 400, sizes: tuple[int, int] = SIZES
) -> tuple[pd.DataFrame, np.ndarray]:
    """Items of all cells, and the true curves (countries, devices, 2, scores)."""
    rng = np.random.default_rng(seed)
    level = [sd * rng.normal(size=k) for sd, k in zip((0.3, 0.2), sizes, strict=True)]
    scatter = [0.2 * rng.normal(size=k) for k in sizes]
    slope = 0.1 * rng.normal(size=sizes[0])

    def curves_of(score: np.ndarray, country: np.ndarray, device: np.ndarray) -> np.ndarray:
        log_mean, log_cv2 = s1_curves(score)
        log_mean = log_mean + slope[country] * np.log(score / 0.05)
        log_mean = log_mean + level[0][country] + level[1][device]
        return np.array([log_mean, log_cv2 + scatter[0][country] + scatter[1][device]])

    cell = np.repeat(np.indices(sizes).reshape(2, -1), items, axis=1)
    score = np.exp(rng.normal(np.log(0.05), 0.8, cell.shape[1]))
    exposure = np.ceil(np.exp(rng.normal(np.log(30), 1.5, cell.shape[1])))
    frame = common.gamma_counts(rng, score, exposure, *np.exp(curves_of(score, *cell)))
    labels = {
        name: np.char.add(name[0], np.char.mod("%02d", k))
        for name, k in zip(GROUP, cell, strict=True)
    }
    truth = [[curves_of(SCORES, i, j) for j in range(sizes[1])] for i in range(sizes[0])]
    return frame.assign(**labels), np.array(truth)


def effects_of(truth: np.ndarray) -> np.ndarray:
    """True factors of levels at equal score, of countries and then of devices, relative to all."""
    log_mean = truth[:, :, 0].mean(axis=-1)  # about that at the middle score, as slopes are even
    country, device = log_mean.mean(axis=1), log_mean.mean(axis=0)
    return np.exp(np.concatenate([country - country.mean(), device - device.mean()]))


def coverage(
    seed: int,
    items: int = 400,
    bins: int | None = 100,
    sizes: tuple[int, int] = SIZES,
    prior: soc.Gamma | None = None,
) -> dict[str, float]:
    """Shares covered by 90% intervals: curves of cells, effects of levels, theta of items."""
    frame, truth = simulate(seed, items, sizes)
    roles = common.counts(frame, group=GROUP)
    stats = common.summarize(roles, bins=bins, on_leakage="ignore")
    model = common.fit(stats, prior, soc.VI(seed=seed))
    inside: dict[str, list[np.ndarray]] = {"log mean": [], "log cv2": []}
    for i, j in np.ndindex(truth.shape[:2]):
        drawn = common.curves(model, SCORES, group=(f"c{i:02d}", f"d{j:02d}"))
        for k, name in enumerate(inside):
            inside[name].append(common.covered(drawn[name], truth[i, j, k]))
    effects = soc.quantities.group_effects(model, stats).table.sort_values(["what", "where"])
    effects = effects[effects["where"] != "all levels"]
    factors = pd.Series(effects_of(truth), effects.index)
    return {
        "mean": float(np.mean(inside["log mean"])),
        "cv2": float(np.mean(inside["log cv2"])),
        "items": float(common.items_covered(common.posteriors(model, roles)).mean()),
        "effects": float(factors.between(effects["low"], effects["high"]).mean()),
        "k": model.status.pareto_k,
    }


def main() -> None:
    """Prints coverage."""
    small = {"simulations": 1, "items": 50}
    chosen = common.options(__doc__, small, simulations=10, first=0, items=400)
    seeds = range(chosen.first, chosen.first + chosen.simulations)
    common.show(common.averages([coverage(seed, chosen.items) for seed in seeds]), digits=3)


if __name__ == "__main__":
    main()
