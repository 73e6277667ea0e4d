"""Labels 0 and 1: is E(theta | t) predicted as well as by known methods, and do its bands cover?

    python -m tests.studies.labels [--seeds 30] [--labels 5000]

Scores are logit-normal probabilities: well calibrated, overconfident, or with a truth that has
kinks or a step. The log loss held out is the expected one of fresh labels at 20,000 other scores,
so that it has no noise of labels. Bands are pointwise at 7 scores and simultaneous at 99, between
the 1% and the 99% point of the scores.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special, stats

import soc_pymc as soc

_SPREAD = 1.5  # sd of the scores' logit
_AT = special.expit(_SPREAD * stats.norm.ppf([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98]))
_CURVE = special.expit(_SPREAD * stats.norm.ppf(np.linspace(0.01, 0.99, 99)))
BASELINES = ("isotonic", "spline", "platt")


def _kinked(t: np.ndarray) -> np.ndarray:
    return np.interp(t, [0.0, 0.3, 0.6, 1.0], [0.1, 0.15, 0.75, 0.9])


TRUTHS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "well calibrated": lambda t: t,
    "overconfident": lambda t: special.expit(0.5 * special.logit(t) - 0.3),
    "kinks": _kinked,
    "step": lambda t: np.where(t < 0.4, 0.2, 0.7),
}
"""Probability of a 1 at a score. No smooth curve has the step, and isotonic regression does."""


@dataclass(frozen=True)
class Outcome:
    """One data set: expected log losses beyond the truth's own, and coverage of 90% bands."""

    loss: dict[str, float]
    pointwise: float
    simultaneous: bool
    converged: bool


def simulated(truth: str, n_labels: int, seed: int) -> pd.DataFrame:
    """Labels y at scores t, one trial each."""
    rng = np.random.default_rng(seed)
    t = special.expit(rng.normal(0.0, _SPREAD, n_labels))
    return pd.DataFrame({"t": t, "y": rng.binomial(1, TRUTHS[truth](t)), "n": 1})


def beyond_truth(p: np.ndarray, truth: np.ndarray) -> float:
    """Expected log loss of probabilities p, less that of the truth."""
    return float(np.mean(special.rel_entr(truth, p) + special.rel_entr(1 - truth, 1 - p)))


def one_seed(truth: str, seed: int, labels: int = 5000) -> Outcome:
    """Simulate, fit and judge."""
    items = soc.BinomialItems(simulated(truth, labels, seed), score="t", successes="y", trials="n")
    fit = soc.fit(soc.summarize(items, progress=False), method=soc.VI(seed=seed), progress=False)
    # the mean over draws interpolated: 2,000 points are far closer than the curve bends
    fresh = special.expit(_SPREAD * stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000))
    grid = fresh[::10]
    with warnings.catch_warnings():  # of the few fresh scores beyond those of the labels
        warnings.simplefilter("ignore", soc.ItemsWarning)
        drawn = soc.calibration_curves(fit, grid)["mean"].mean(("chain", "draw")).to_numpy()
    found = {"E(theta | t)": np.interp(fresh, grid, drawn)}
    found |= {name: soc.evaluate.baseline(name, items)(fresh) for name in BASELINES}
    bands = {
        whole: soc.bands(soc.calibration_curves(fit, at), simultaneous=whole)["mean"].to_numpy()
        for whole, at in ((False, _AT), (True, _CURVE))
    }
    inside = {
        whole: (bands[whole][0] < TRUTHS[truth](at)) & (TRUTHS[truth](at) < bands[whole][2])
        for whole, at in ((False, _AT), (True, _CURVE))
    }
    return Outcome(
        loss={name: beyond_truth(p, TRUTHS[truth](fresh)) for name, p in found.items()},
        pointwise=float(inside[False].mean()),
        simultaneous=bool(inside[True].all()),
        converged=fit.status.converged,
    )


def row(outcomes: list[Outcome]) -> dict[str, float]:
    """Losses in nats per 1,000 labels, differences with standard errors, and coverage."""
    count = len(outcomes) ** 0.5
    loss = 1000 * pd.DataFrame([o.loss for o in outcomes])
    found = {f"loss, {name}": loss[name].mean() for name in loss}
    for name in BASELINES:
        gain = loss[name] - loss["E(theta | t)"]
        found |= {f"gain over {name}": gain.mean(), f"its se, {name}": gain.std(ddof=1) / count}
    pointwise = np.array([o.pointwise for o in outcomes])
    return found | {
        "pointwise bands": pointwise.mean(),
        "their se": pointwise.std(ddof=1) / count,
        "simultaneous bands": np.mean([o.simultaneous for o in outcomes]),
        "converged": np.mean([o.converged for o in outcomes]),
    }


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--labels", type=int, default=5000)
    parser.add_argument("--truths", nargs="+", choices=list(TRUTHS), default=list(TRUTHS))
    chosen = parser.parse_args()
    rows = {}
    for truth in chosen.truths:
        rows[truth] = row([one_seed(truth, s, chosen.labels) for s in range(chosen.seeds)])
    print(pd.DataFrame(rows).to_string(float_format=lambda x: f"{x:.3f}"))


if __name__ == "__main__":
    main()
