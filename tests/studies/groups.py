"""Groups of very different sizes in one model: coverage and width of their bands.

Twelve groups of 200 to 200,000 items share the curves of S1 but for deviations of their own: of log
mean in level (sd .2) and slope (sd .1), of log cv2 in level (sd .3). One fit of all groups is
compared with one that pools them and with separate fits.

    python -m tests.studies.groups --simulations 20 --out groups.csv
"""

import argparse

import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc

SIZES = np.rint(np.geomspace(200, 200_000, 12)).astype(int)
SCORES = np.exp(np.log(0.05) + 0.8 * np.linspace(-1.645, 1.645, 11))


def simulate(seed: int, sizes: np.ndarray = SIZES) -> tuple[pd.DataFrame, np.ndarray]:
    """Items of all groups, and the true curves (groups, 2, scores): log mean and log cv2."""
    return _simulated(seed, sizes)[:2]


def simulate_items(seed: int, sizes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Items of all groups, and the true theta of each."""
    frame, _, theta = _simulated(seed, sizes)
    return frame, theta


def _simulated(seed: int, sizes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    level, slope = 0.2 * rng.normal(size=len(sizes)), 0.1 * rng.normal(size=len(sizes))
    scatter = 0.3 * rng.normal(size=len(sizes))

    def curves(score: np.ndarray, group: np.ndarray) -> np.ndarray:
        log_mean, log_cv2 = soc.simulation.s1_curves(score)
        x = np.log(score / 0.05)
        return np.array([log_mean + level[group] + slope[group] * x, log_cv2 + scatter[group]])

    group = np.repeat(np.arange(len(sizes)), sizes)
    score = np.exp(rng.normal(np.log(0.05), 0.8, len(group)))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, len(group))))
    log_mean, log_cv2 = curves(score, group)
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    labels = np.array([f"g{k:02d}" for k in range(len(sizes))])
    table = {"score": score, "exposure": exposure, "count": rng.poisson(theta * exposure)}
    frame = pd.DataFrame({**table, "group": labels[group]})
    truth = [curves(SCORES, np.full(len(SCORES), k)) for k in range(len(sizes))]
    return frame, np.array(truth), theta


def summarize(frame: pd.DataFrame, group: str | None = "group") -> soc.Statistics:
    """Statistics with or without groups."""
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure", group=group)
    return soc.summarize(items, progress=False)


def _bands(curves: xr.Dataset) -> np.ndarray:
    """(2 curves, 2 bounds, scores): log mean and log cv2."""
    both = curves.assign(log_cv2=curves["log_variance"] - 2 * curves["log_mean"])
    found = soc.bands(both[["log_mean", "log_cv2"]])
    return np.array([found[n].sel(bound=["lower", "upper"]) for n in ("log_mean", "log_cv2")])


def compare(seed: int) -> list[dict[str, float]]:
    """Coverage and width of 90% bands by group."""
    frame, truth = simulate(seed)
    stats = summarize(frame)
    fit = soc.fit(stats, method=soc.VI(seed=seed), progress=False)
    pooled = _bands(
        soc.calibration_curves(soc.fit(stats, soc.Gamma(groups=False), progress=False), SCORES)
    )
    rows = []
    for k, label in enumerate(stats.groups):
        own = _bands(soc.calibration_curves(fit, SCORES, group=label))
        row = {"seed": seed, "items": SIZES[k], "seconds": fit.status.seconds}
        row |= {"k": fit.status.pareto_k, "converged": fit.status.converged}
        if SIZES[k] < 1000:
            alone = soc.fit(stats.of_group(label), soc.Gamma(groups=False), progress=False)
            row["separate_width"] = np.diff(
                _bands(soc.calibration_curves(alone, SCORES))[0], axis=0
            ).mean()
        for i, name in enumerate(("mean", "cv2")):
            low, high = own[i]
            row[f"covered_{name}"] = ((low <= truth[k, i]) & (truth[k, i] <= high)).mean()
            row[f"width_{name}"] = (high - low).mean()
        row["pooled_width"] = np.diff(pooled[0], axis=0).mean()
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", default="groups.csv")
    chosen = parser.parse_args()
    rows: list[dict[str, float]] = []
    for seed in range(chosen.first, chosen.first + chosen.simulations):
        rows += compare(seed)
        table = pd.DataFrame(rows)
        table.to_csv(chosen.out, index=False)
        last = table[table["seed"] == seed]
        print(
            f"seed {seed}: {last[['covered_mean', 'covered_cv2']].mean().round(3).to_dict()}, "
            f"k {last['k'].iloc[0]:.2f}, {last['seconds'].iloc[0]:.0f} s",
            flush=True,
        )
    print(table.groupby("items").mean(numeric_only=True).round(3).to_string())
    print(table[["covered_mean", "covered_cv2"]].mean())


if __name__ == "__main__":
    main()
