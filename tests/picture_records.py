"""Small fits and records of evaluations for tests of pictures."""

import functools

import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc

BINS, CELLS = 30, 10


@functools.cache
def counts():
    """Items with counts, their statistics, and fits by both methods."""
    frame = soc.simulation.s1(4000, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=BINS, progress=False)
    return frame, items, stats, _fits(stats)


@functools.cache
def values():
    """Items with values, their statistics, and fits by both methods."""
    frame = soc.simulation.laplace_effects(4000, seed=0)
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    stats = soc.summarize(items, bins=BINS, progress=False)
    return frame, items, stats, _fits(stats)


def _fits(stats):
    return {
        "VI": soc.fit(stats, method=soc.VI(draws=100), progress=False),
        "five steps": soc.fit(stats, method=soc.FiveSteps(), progress=False),
    }


def drawn(ax):
    """Draws for real: labels and limits that cannot be drawn raise here."""
    np.ravel(ax)[0].figure.draw_without_rendering()
    return ax


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def line(ax, start):
    """The one line whose label is this, or else starts so."""
    exact = [x for x in ax.lines if x.get_label() == start]
    (found,) = exact or [x for x in ax.lines if x.get_label().startswith(start)]
    return found


def histograms(bins=6, items=400, seed=0, tilt=0.0):
    """Records in the layout of `soc.evaluate.pit_histograms`."""
    rng = np.random.default_rng(seed)
    share = 1 + tilt * np.linspace(-1, 1, CELLS)
    n = rng.poisson(items, bins)
    density = np.array([rng.multinomial(k, share / share.sum()) * CELLS / max(k, 1) for k in n])
    return xr.Dataset(
        {"density": (("bin", "p"), density), "n_items": ("bin", n)},
        {"score": ("bin", np.geomspace(0.01, 0.3, bins)), "p": (np.arange(CELLS) + 0.5) / CELLS},
    )


def accuracy_table(grid=True, methods=("VI", "five steps"), bins=8):
    """Records in the layout of `soc.evaluate.accuracy`."""
    rng = np.random.default_rng(0)
    score = np.geomspace(0.01, 0.3, bins) if grid else np.linspace(-2.0, 2.0, bins)
    parts = []
    for method in methods:
        for delta in (0.0, 0.2) if grid else (np.nan,):
            for sigma in (0.1, 0.5) if grid else (np.nan,):
                part = {"method": method, "delta": delta, "sigma": sigma, "bin": np.arange(bins)}
                part |= {"score": score, "items": 100, "true_mean": score, "true_variance": 0.1}
                for name in ("variance", "mean_error", "variance_error", "error_ratio"):
                    part[name] = np.exp(rng.normal(0, 0.2, bins))
                for name in ("mse_t", "mse_true_mean", "mse_mean", "mse_posterior"):
                    part[name] = 1 + rng.exponential(1.0, bins)
                part["mean"] = score + 0.1 * np.abs(score) * rng.normal(size=bins)
                part["error_ratio_se"] = 0.1
                parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def reduction(draws, bins=5):
    """Records in the layout of `soc.quantities.variance_reduction`."""
    rng = np.random.default_rng(0)
    ratio = np.linspace(0.9, 0.4, bins) + rng.normal(0, 0.01, (1, draws, bins))
    return xr.Dataset(
        {
            "ratio": (("chain", "draw"), ratio.mean(axis=-1)),
            "ratio_by_bin": (("chain", "draw", "bin"), ratio),
            "n_items": ("bin", np.full(bins, 200)),
        },
        {"score": ("bin", np.geomspace(0.01, 0.3, bins))},
    )


def bin_table(bayes=True):
    """Records in the layout of `soc.evaluate.compare_bins`."""
    number = pd.Index([20, 50, 200], name="bins")
    table = pd.DataFrame({"items": 4000 / number, "events": 800 / number}, index=number)
    table["spread"], table["most_spread"] = 1.2 / number, 8.0 / number
    table["hidden"], table["no_variance"] = 30.0 / number**2, [0.0, 0.01, 0.2]
    table["mean_noise"], table["variance_noise"] = 0.005 * number**0.5, 0.1 * number**0.5
    for name in ("five_steps", "bayes") if bayes else ("five_steps",):
        table[f"{name}_mean"] = [0.02, 0.01, 0.0]
        table[f"{name}_variance"] = [0.2, 0.1, 0.0]
    return table


def held_table(bins=5):
    """Records in the layout of ``HeldOut.table``."""
    score, rows = np.geomspace(0.01, 0.3, bins), []
    gains = {"t": 0.0, "constant": -13.6, "E(theta | t)": 0.32, "E(theta | t, y)": 0.63}
    for name, gain in gains.items():
        for k in range(-1, bins):
            rows.append(
                {
                    "estimator": name,
                    "bin": k,
                    "score": 0.05 if k < 0 else score[k],
                    "items": 200 * (bins if k < 0 else 1),
                    "exposure": 1e4,
                    "events": 50 * (bins if k < 0 else 1),
                    "gain_percent": gain * (1 + max(k, 0)),
                    "gain_percent_se": 0.1,
                }
            )
    return pd.DataFrame(rows)
