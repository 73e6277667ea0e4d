"""Hand-made records in the layouts of evaluations, for tests of the pictures that draw them."""

import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc
from soc_pymc.quantities.group_effects import GroupEffects

SCORES = np.geomspace(0.01, 0.3, 5)


def histograms(seed=0):
    """Returns p-histograms of five bins, as `soc.evaluate.pit_histograms` does."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(400, len(SCORES))
    density = np.array([rng.multinomial(k, np.full(10, 0.1)) * 10 / k for k in n])
    return xr.Dataset(
        {"density": (("bin", "p"), density), "n_items": ("bin", n)},
        {"score": ("bin", SCORES), "p": np.arange(0.05, 1.0, 0.1)},
    )


def accuracy_table(*methods):
    """Returns a table of two values of delta and of sigma, as `soc.evaluate.accuracy` does."""
    rng = np.random.default_rng(0)
    parts = []
    for method in methods:
        for delta, sigma in ((0.0, 0.1), (0.0, 0.5), (0.2, 0.1), (0.2, 0.5)):
            part = {"method": method, "delta": delta, "sigma": sigma, "bin": np.arange(5)}
            part |= {"score": SCORES, "items": 100, "true_mean": SCORES, "true_variance": 0.1}
            for name in ("mean", "variance", "mean_error", "variance_error", "error_ratio"):
                part[name] = np.exp(rng.normal(0, 0.2, 5))
            for name in ("mse_t", "mse_true_mean", "mse_mean", "mse_posterior"):
                part[name] = 1 + rng.exponential(1.0, 5)
            parts.append(pd.DataFrame(part | {"error_ratio_se": 0.1}))
    return pd.concat(parts, ignore_index=True)


def reduction(draws):
    """Returns draws of the variance that outcomes leave, as `soc.quantities` does."""
    rng = np.random.default_rng(0)
    ratio = np.linspace(0.9, 0.4, 5) + rng.normal(0, 0.01, (1, draws, 5))
    return xr.Dataset(
        {
            "ratio": (("chain", "draw"), ratio.mean(axis=-1)),
            "ratio_by_bin": (("chain", "draw", "bin"), ratio),
            "n_items": ("bin", np.full(5, 200)),
        },
        {"score": ("bin", SCORES)},
    )


def bin_table():
    """Returns a table of three numbers of bins, as `soc.evaluate.compare_bins` does."""
    bins = pd.Index([20, 50, 200], name="bins")
    table = pd.DataFrame({"items": 4000 / bins, "events": 800 / bins}, index=bins)
    table["spread"], table["most_spread"] = 1.2 / bins, 8.0 / bins
    table["hidden"], table["no_variance"] = 30.0 / bins**2, [0.0, 0.01, 0.2]
    table["mean_noise"], table["variance_noise"] = 0.005 * bins**0.5, 0.1 * bins**0.5
    for name in ("five_steps", "bayes"):
        table[f"{name}_mean"], table[f"{name}_variance"] = [0.02, 0.01, 0.0], [0.2, 0.1, 0.0]
    return table


def held_table(name):
    """Returns gains of two estimators of one fit by bin, as ``HeldOut.table`` has them."""
    rows = []
    for estimator in ("t", f"{name}: E(theta | t)", f"{name}: E(theta | t, y)"):
        for bin, score in zip(range(-1, 5), (0.05, *SCORES), strict=True):
            row = {"estimator": estimator, "bin": bin, "score": score, "items": 200}
            row |= {"exposure": 1e4, "events": 50, "gain_percent": 0.3 * bin}
            rows.append(row | {"gain_percent_se": 0.1})
    return pd.DataFrame(rows)


def share_draws(middle):
    """Returns 400 draws, as `soc.quantities.r_squared` does."""
    draws = middle + 0.02 * np.random.default_rng(0).normal(size=(2, 200))
    return xr.DataArray(draws, dims=("chain", "draw"))


def compared_scores(name):
    """Returns draws of the differences from one score, as `soc.quantities.compare_scores` does."""
    more = np.array([[0.05], [-0.01]]) + 0.01 * np.random.default_rng(0).normal(size=(2, 1000))
    return xr.Dataset(
        {"r_squared": (("score", "draw"), more), "unexplained": (("score", "draw"), -3 * more)},
        {"score": ["new", name]},
        {"reference": f"{name} before"},
    )


def group_effects(name):
    """Returns effects of two levels, as `soc.quantities.group_effects` does."""
    levels = {"column": name, "level": [f"{name} 1", f"{name} 2"], "n_items": [40, 30]}
    levels |= {"effect": [1.3, 0.9], "low": [1.1, 0.7], "high": [1.5, 1.2]}
    table = pd.DataFrame(levels | {"p_above": [0.99, 0.2], "differs": [True, False]})
    numbers = {"levels": [2], "differ": [1], "by_chance": [0.2], "wrong_side": [0.0]}
    numbers |= {"sd": [1.2], "sd_low": [1.1], "sd_high": [1.4]}
    return GroupEffects(table, pd.DataFrame(numbers, index=[name]), "factor", 1.0, 0.9)


def drift_of_counts(frame, items_of):
    """Follows ten days of counts; `items_of` makes items of a table."""
    days = pd.date_range("2026-03-01", periods=10).repeat(len(frame) // 10)
    items = items_of(frame.assign(day=days))
    stats = soc.summarize(items, bins=10, date="day", progress=False)
    return soc.drift(stats, progress=False)
