"""Two crossed columns of groups whose effects are known: coverage, and agreement with NUTS.

Items of 12 countries and 3 devices have the curves of S1 plus main effects of country and device.
The log mean has effects in level (sd 0.3 and 0.2) and, for countries only, in slope (sd 0.1); log
cv2 has them in level (sd 0.2 and 0.2).

    python -m tests.studies.crossed --simulations 10 --out crossed.csv
    python -m tests.studies.crossed --nuts
"""

import argparse

import numpy as np
import pandas as pd

import soc_pymc as soc

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

    def curves(score: np.ndarray, country: np.ndarray, device: np.ndarray) -> np.ndarray:
        log_mean, log_cv2 = soc.simulation.s1_curves(score)
        log_mean = log_mean + slope[country] * np.log(score / 0.05)
        log_mean = log_mean + level[0][country] + level[1][device]
        return np.array([log_mean, log_cv2 + scatter[0][country] + scatter[1][device]])

    at = np.repeat(np.indices(sizes).reshape(2, -1), items, axis=1)
    score = np.exp(rng.normal(np.log(0.05), 0.8, at.shape[1]))
    exposure = np.ceil(np.exp(rng.normal(np.log(30), 1.5, at.shape[1])))
    log_mean, log_cv2 = curves(score, *at)
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    table = {"score": score, "exposure": exposure, "count": rng.poisson(theta * exposure)}
    labels = {
        name: np.char.add(name[0], np.char.mod("%02d", k))
        for name, k in zip(GROUP, at, strict=True)
    }
    truth = [[curves(SCORES, i, j) for j in range(sizes[1])] for i in range(sizes[0])]
    return pd.DataFrame({**table, **labels, "theta": theta}), np.array(truth)


def items_of(frame: pd.DataFrame) -> soc.PoissonItems:
    """The items with both columns of groups."""
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure", group=GROUP)


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
    **options: object,
) -> dict[str, float]:
    """Shares covered by 90% intervals: curves of cells, effects of levels, theta of items."""
    frame, truth = simulate(seed, items, sizes)
    stats = soc.summarize(items_of(frame), bins=bins, on_leakage="ignore", progress=False)
    fit = soc.fit(stats, method=soc.VI(seed=seed), progress=False, **options)
    row = {"seed": seed, "k": fit.status.pareto_k, "seconds": fit.status.seconds}
    hits: dict[str, list[np.ndarray]] = {"mean": [], "cv2": []}
    for i, j in np.ndindex(truth.shape[:2]):
        curves = soc.calibration_curves(fit, SCORES, group=(f"c{i:02d}", f"d{j:02d}"))
        curves = curves.assign(log_cv2=curves["log_variance"] - 2 * curves["log_mean"])
        bands = soc.bands(curves[["log_mean", "log_cv2"]])
        for k, (name, found) in enumerate(hits.items()):
            low, _, high = bands[f"log_{name}"].to_numpy()
            found.append((low <= truth[i, j, k]) & (truth[i, j, k] <= high))
    row |= {name: float(np.mean(found)) for name, found in hits.items()}
    scored = soc.item_posteriors(fit, items_of(frame), progress=False)
    row["items"] = float(scored["theta"].between(scored["theta_q05"], scored["theta_q95"]).mean())
    effects = soc.quantities.group_effects(fit, stats).table.sort_values(["column", "level"])
    factors = pd.Series(effects_of(truth), effects.index)
    row["effects"] = float(factors.between(effects["low"], effects["high"]).mean())
    return row


def against_nuts(
    seed: int = 0,
    items: int = 400,
    bins: int | None = 100,
    draws: int = 1000,
    sizes: tuple[int, int] = SIZES,
) -> pd.DataFrame:
    """Effects of levels by both methods: means in sds of NUTS apart, and the ratio of sds."""
    stats = soc.summarize(items_of(simulate(seed, items, sizes)[0]), bins=bins, progress=False)
    vi = soc.fit(stats, progress=False)
    nuts = soc.fit(stats, method=soc.NUTS(draws=draws, chains=2), progress=False)
    found = {}
    for name, grouping in (("group_1", "country"), ("group_2", "device")):
        both = []
        for fit in (vi, nuts):
            draw = fit.data["posterior"]
            for curve in ("log_mean", "log_cv2"):
                own = draw[f"{curve}_of_{name}"].mean(f"{curve_knot(curve)}")
                both.append(own - own.mean(name))
        for k, curve in enumerate(("log_mean", "log_cv2")):
            one, other, over = both[k], both[k + 2], ("chain", "draw")
            apart = (one.mean(over) - other.mean(over)) / other.std(over)
            ratio = one.std(over) / other.std(over)
            for level in one[name].to_numpy():
                found[grouping, curve, level] = {
                    "apart": float(apart.sel({name: level})),
                    "ratio": float(ratio.sel({name: level})),
                }
    return pd.DataFrame.from_dict(found, orient="index")


def curve_knot(curve: str) -> str:
    """Dim of the knots of a curve."""
    return "mean_knot" if curve == "log_mean" else "variance_knot"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--nuts", action="store_true")
    parser.add_argument("--out", default="crossed.csv")
    chosen = parser.parse_args()
    if chosen.nuts:
        table = against_nuts(chosen.first, chosen.items)
        print(table.round(3).to_string(), table.abs().describe().round(3), sep="\n")
        return
    rows = []
    for seed in range(chosen.first, chosen.first + chosen.simulations):
        rows.append(coverage(seed, chosen.items))
        pd.DataFrame(rows).to_csv(chosen.out, index=False)
        print({name: round(value, 3) for name, value in rows[-1].items()}, flush=True)
    print(pd.DataFrame(rows).drop(columns="seed").mean().round(3).to_string())


if __name__ == "__main__":
    main()
