"""Mixtures against an oracle, and against the EM algorithm of ash, on ten truths.

    python -m tests.studies effects [--items 300 1000 3000 30000] [--seeds 8 6 4 1]

Values theta = 0.7 t + e and counts of mean t e, where the oracle knows the curve and the
distribution of e. Mean squared errors of posterior means, over those of the oracle and of ash
(Stephens 2017: scales of Normals, by EM with its penalty on 0, on the residuals of a regression).
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

import soc_pymc as soc
from tests.studies.common import fit, items_covered, options, quality, show, summarize

_NODES = np.linspace(-7.0, 7.0, 4001)  # quantiles of these normals stand for a distribution
_PENALTY = 10.0  # of ash, on the component at 0
Law = Sequence[tuple[float, Callable[[np.ndarray], np.ndarray]]]


def _lognormal(sigma: float) -> Callable[[np.ndarray], np.ndarray]:
    return stats.lognorm(sigma, scale=np.exp(-0.5 * sigma**2)).ppf  # mean 1


VALUES: dict[str, Law] = {
    "70% on the curve": [(0.7, np.zeros_like), (0.3, stats.norm(0, 0.03).ppf)],
    "t3": [(1.0, stats.t(3, 0, 0.01).ppf)],
    "Laplace": [(1.0, stats.laplace(0, 0.012).ppf)],
    "Normal": [(1.0, stats.norm(0, 0.017).ppf)],
    "exponential": [(1.0, stats.expon(-0.017, 0.017).ppf)],
}
COUNTS: dict[str, Law] = {
    "Gamma, cv2 0.3": [(1.0, stats.gamma(1 / 0.3, scale=0.3).ppf)],
    "lognormal, sigma 0.5": [(1.0, _lognormal(0.5))],
    "lognormal, sigma 1": [(1.0, _lognormal(1.0))],
    "70% on the curve": [(0.7, np.ones_like), (0.3, _lognormal(1.0))],
    "0.5 or 2.17": [
        (0.7, lambda p: np.full_like(p, 0.5)),
        (0.3, lambda p: np.full_like(p, 2.1667)),
    ],
}
"""Parts of the distribution of e: their shares and quantile functions."""


def drawn(law: Law, n: int, rng: np.random.Generator) -> np.ndarray:
    part = rng.choice(len(law), n, p=[share for share, _ in law])
    u = rng.random(n)
    return np.choose(part, [quantile(u) for _, quantile in law])


def oracle(law: Law, log_likelihood: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Posterior means of e by item, from log likelihoods (items, nodes)."""
    nodes = np.concatenate([quantile(stats.norm.cdf(_NODES)) for _, quantile in law])
    weight = np.concatenate([share * stats.norm.pdf(_NODES) for share, _ in law])
    log = log_likelihood(nodes)
    posterior = weight * np.exp(log - log.max(axis=1, keepdims=True))
    return (posterior @ nodes) / posterior.sum(axis=1)


def ash(t: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Posterior means of theta by ash on the residuals of a weighted regression."""
    design = np.column_stack([np.ones_like(t), t])
    line = design @ np.linalg.lstsq(design / s[:, None], x / s, rcond=None)[0]
    r, least = x - line, s.min() / 10
    most = 2 * np.sqrt(max((r**2 - s**2).max(), least**2))
    sd = np.r_[0.0, np.geomspace(least, most, int(2 * np.log2(most / least)) + 2)]
    density = stats.norm.pdf(r[:, None], 0, np.hypot(s[:, None], sd))
    share, penalty = np.full(len(sd), 1 / len(sd)), np.r_[_PENALTY, np.ones(len(sd) - 1)] - 1
    for _ in range(2000):
        member = density * share
        member /= member.sum(axis=1, keepdims=True)
        share = (member.sum(axis=0) + penalty) / (len(x) + penalty.sum())
    return line + (member * sd**2 / (sd**2 + s[:, None] ** 2)).sum(axis=1) * r


def compared(kind: str, law: Law, n: int, seed: int) -> dict[str, float]:
    """Errors, coverage and Pareto k of one data set."""
    rng, estimates = np.random.default_rng(seed), {}
    if kind == "values":
        t, s = rng.normal(0, 0.02, n), rng.lognormal(np.log(0.02), 0.3, n)
        theta = 0.7 * t + drawn(law, n, rng)
        x = rng.normal(theta, s)
        parts = np.array_split(np.arange(n), max(1, n // 1000))
        means = [
            oracle(
                law, lambda e, k=k: -0.5 * ((x[k] - 0.7 * t[k])[:, None] - e) ** 2 / s[k, None] ** 2
            )
            for k in parts
        ]
        estimates["oracle"], estimates["ash"] = 0.7 * t + np.concatenate(means), ash(t, x, s)
        frame = pd.DataFrame({"t": t, "x": x, "s": s, "theta": theta})
        items = soc.NormalItems(frame, score="t", value="x", noise_sd="s")
        prior = soc.NormalMixture()
    else:
        t, size = rng.lognormal(np.log(0.05), 0.8, n), rng.lognormal(np.log(60), 1.0, n)
        theta = t * drawn(law, n, rng)
        y = rng.poisson(theta * size)
        parts = np.array_split(np.arange(n), max(1, n // 1000))
        means = [
            oracle(law, lambda e, k=k: stats.poisson.logpmf(y[k, None], (t * size)[k, None] * e))
            for k in parts
        ]
        estimates["oracle"] = t * np.concatenate(means)
        frame = pd.DataFrame({"t": t, "y": y, "N": size, "theta": theta})
        items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
        prior = soc.GammaMixture()
    fitted = fit(summarize(items, joint=True, on_leakage="ignore"), prior)
    scored = soc.item_posteriors(fitted, items, quantiles=(0.05, 0.95), progress=False)
    errors = {name: float(((mean - theta) ** 2).mean()) for name, mean in estimates.items()}
    ours = float(((scored["theta_mean"].to_numpy() - theta) ** 2).mean())
    return {
        "ours": ours,
        **errors,
        "covered": items_covered(scored, theta).mean(),
        **quality(fitted),
    }


def main() -> None:
    small = {"items": (300,), "seeds": (1,), "truths": 1}
    chosen = options(__doc__, small, items=(300, 1000, 3000, 30_000), seeds=(8, 6, 4, 1), truths=5)
    for kind, laws in {"values": VALUES, "counts": COUNTS}.items():
        rows = {}
        for name, law in list(laws.items())[: chosen.truths]:
            for n, seeds in zip(chosen.items, chosen.seeds, strict=True):
                runs = pd.DataFrame([compared(kind, law, n, 100 + k) for k in range(seeds)])
                mean = runs.astype(float).mean()
                rows[name, n] = {
                    "over the oracle's": mean["ours"] / mean["oracle"],
                    "over ash's": mean["ours"] / mean["ash"] if "ash" in mean else np.nan,
                    "90% intervals cover": mean["covered"],
                    "largest Pareto k": runs["Pareto k"].max(),
                }
        show(pd.DataFrame(rows).T, kind, digits=4)
