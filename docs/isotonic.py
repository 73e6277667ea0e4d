"""Compare with isotonic regression plus one empirical-Bayes prior: ``python docs/isotonic.py``.

Ten data sets of 20,000 simulated counts, where items differ less at high scores; and ten where
items with much exposure have lower rates besides.
"""

import numpy as np
import pandas as pd
from scipy import optimize, stats
from sklearn.isotonic import IsotonicRegression

import soc_pymc as soc

ROLES = {"score": "score", "count": "count", "exposure": "exposure"}


def isotonic_gamma(items: pd.DataFrame) -> pd.DataFrame:
    """Posteriors under a Gamma around the isotonic curve, with one coefficient of variation."""
    y, n = items["count"], items["exposure"]
    rate = IsotonicRegression(y_min=1e-6).fit_transform(items["score"], y / n, sample_weight=n)

    def loss(log_shape: float) -> float:
        shape = np.exp(log_shape)
        return -stats.nbinom.logpmf(y, shape, shape / (shape + n * rate)).sum()

    shape = np.exp(optimize.minimize_scalar(loss, bounds=(-5, 8), method="bounded").x)
    theta = stats.gamma(shape + y, scale=1 / (shape / rate + n))
    columns = {
        "theta_mean": theta.mean(),
        "theta_q05": theta.ppf(0.05),
        "theta_q95": theta.ppf(0.95),
    }
    return pd.DataFrame(columns)


def ours(items: pd.DataFrame, prior: soc.Gamma) -> pd.DataFrame:
    """Posteriors by the package."""
    source = soc.PoissonItems(items, **ROLES)
    return soc.item_posteriors(soc.fit(soc.summarize(source), prior), source)


def main(sets: int = 10) -> None:
    """Print coverage of 90% intervals by fifth of the score, and root mean squared errors."""
    soc.progress(False)
    rows = []
    for slope in (0.0, -0.15):
        prior = soc.Gamma(exposure=soc.Spline()) if slope else soc.Gamma()
        for seed in range(sets):
            items = soc.simulation.s1(20_000, seed)
            items["theta"] *= (items["exposure"] / 6) ** slope
            items["count"] = np.random.default_rng(seed).poisson(items["theta"] * items["exposure"])
            fifth = pd.qcut(items["score"], 5, labels=False) + 1
            for method, post in {
                "isotonic": isotonic_gamma(items),
                "ours": ours(items, prior),
            }.items():
                theta = items["theta"].to_numpy()
                inside = pd.Series((post["theta_q05"] < theta) & (theta < post["theta_q95"]))
                error = {"rmse": np.sqrt(np.mean((post["theta_mean"] - theta) ** 2))}
                rows.append(
                    {
                        "slope": slope,
                        "method": method,
                        **inside.groupby(fifth.values).mean(),
                        **error,
                    }
                )
    print(pd.DataFrame(rows).groupby(["slope", "method"]).mean().round(4).to_string())


if __name__ == "__main__":
    main()
