"""Labels 0 and 1: is E(theta | t) predicted as well as by known methods, and do its bands cover?

    python -m tests.studies labels [--simulations 30] [--labels 5000]

Scores are logit-normal probabilities: well calibrated, overconfident, or with a truth that has
kinks or a step. The log loss held out is the expected one of fresh labels at 20,000 other scores,
so that it has no noise of labels. Bands are pointwise at 7 scores and simultaneous at 99.
"""

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy import special, stats

import soc_pymc as soc
from soc_pymc.evaluate import baselines, read_frame
from tests.studies.common import Choice, averages, fitted, options, show

_SPREAD = 1.5  # sd of the scores' logit
_AT = special.expit(_SPREAD * stats.norm.ppf([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98]))
_CURVE = special.expit(_SPREAD * stats.norm.ppf(np.linspace(0.01, 0.99, 99)))
BASELINES = ("isotonic", "spline", "platt")


TRUTHS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "well calibrated": lambda t: t,
    "overconfident": lambda t: special.expit(0.5 * special.logit(t) - 0.3),
    "kinks": lambda t: np.interp(t, [0.0, 0.3, 0.6, 1.0], [0.1, 0.15, 0.75, 0.9]),
    "step": lambda t: np.where(t < 0.4, 0.2, 0.7),
}
"""Probability of a 1 at a score. No smooth curve has the step, and isotonic regression does."""


def simulated(truth: str, n_labels: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    t = special.expit(rng.normal(0.0, _SPREAD, n_labels))
    return pd.DataFrame({"t": t, "y": rng.binomial(1, TRUTHS[truth](t)), "n": 1})


def beyond_truth(p: np.ndarray, truth: np.ndarray) -> float:
    """Expected log loss of probabilities p, less that of the truth."""
    return float(np.mean(special.rel_entr(truth, p) + special.rel_entr(1 - truth, 1 - p)))


def one_seed(truth: str, seed: int, labels: int = 5000) -> dict[str, float]:
    """One data set: log losses beyond the truth's own, and coverage of 90% bands."""
    items = soc.BinomialItems(simulated(truth, labels, seed), score="t", successes="y", trials="n")
    model, right = fitted(items, method=soc.VI(seed=seed)), TRUTHS[truth]
    # the mean over draws interpolated: 2,000 points are far closer than the curve bends
    fresh = special.expit(_SPREAD * stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000))
    grid = fresh[::10]
    with warnings.catch_warnings():  # of the few fresh scores beyond those of the labels
        warnings.simplefilter("ignore", soc.ItemsWarning)
        mean = soc.calibration_curves(model, grid)["mean"].mean(("chain", "draw")).to_numpy()
    predicted = {"E(theta | t)": np.interp(fresh, grid, mean)}
    predicted |= baselines(read_frame(items), items.outcome, fresh)

    def inside(score: np.ndarray, simultaneous: bool) -> np.ndarray:
        curves = soc.calibration_curves(model, score)
        low, _, high = soc.bands(curves, simultaneous=simultaneous)["mean"].to_numpy()
        return (low < right(score)) & (right(score) < high)

    return {
        **{name: beyond_truth(p, right(fresh)) for name, p in predicted.items()},
        "pointwise bands": inside(_AT, False).mean(),
        "simultaneous bands": inside(_CURVE, True).all(),
        "converged": model.status.converged,
    }


def row(outcomes: list[dict[str, float]]) -> dict[str, float]:
    """Losses in nats per 1,000 labels, differences with standard errors, and coverage."""
    table = pd.DataFrame(outcomes).astype(float)
    loss = 1000 * table[["E(theta | t)", *BASELINES]]
    cells = loss.mean().add_prefix("loss, ").to_dict()
    gains = averages(loss[list(BASELINES)].sub(loss["E(theta | t)"], axis=0))
    cells |= gains["average"].add_prefix("gain over ").to_dict()
    cells |= gains["standard error"].add_prefix("its se, ").to_dict()
    bands = averages(table[["pointwise bands", "simultaneous bands", "converged"]])
    return cells | bands["average"].to_dict() | {"their se": bands["standard error"].iloc[0]}


def main() -> None:
    small = {"simulations": 2, "labels": 1000, "truths": ["kinks"]}
    chosen = options(__doc__, small, simulations=30, labels=5000, truths=Choice(TRUTHS))
    seeds = range(chosen.simulations)
    rows = {t: row([one_seed(t, seed, chosen.labels) for seed in seeds]) for t in chosen.truths}
    show(pd.DataFrame(rows))
