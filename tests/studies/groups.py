"""Groups of given sizes that share the curves of S1 but for deviations of their own.

Of log mean in level (sd .2) and slope (sd .1), of log cv2 in level (sd .3).
"""

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.oracles import s1_curves
from tests.studies import common

SIZES = np.rint(np.geomspace(200, 200_000, 12)).astype(int)
SCORES = np.exp(np.log(0.05) + 0.8 * np.linspace(-1.645, 1.645, 11))


def simulate(seed: int, sizes: np.ndarray = SIZES) -> tuple[pd.DataFrame, np.ndarray]:
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


def summarize(frame: pd.DataFrame, group: str | None = "group") -> soc.Statistics:
    """Statistics with or without groups."""
    return common.summarize(common.counts(frame, group=group))
