"""What the default priors say before any count is seen, as a picture.

    python -m tests.studies.priors [--picture docs/dev/priors.png]

Curves drawn from the prior on the scores and exposures of simulation S1, and the rates of the
bins' counts drawn from those curves.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pymc as pm

import soc_pymc as soc
from tests.studies import sbc

mpl.use("agg")
import matplotlib.pyplot as plt

PRIORS = {"default": soc.Gamma(), "for simulation-based calibration": sbc.PRIOR}


def prior_draws(stats: soc.Statistics, prior: soc.Gamma, draws: int, seed: int):
    """E(theta | t), cv of theta and drawn rate, each (draws, bins), and the bins' scores."""
    names = ["bin_log_mean", "bin_log_cv2", "count"]
    with soc.model(stats, prior) as model:
        tree = pm.sample_prior_predictive(draws, var_names=names, random_seed=seed)
        score = np.asarray(model.coords["bin"])
    mean, cv2 = (tree["prior"][n].to_numpy()[0] for n in names[:2])
    count = tree["prior_predictive"]["count"].to_numpy()[0]
    exposure = stats.data["sum_N"].to_numpy()
    return score, np.exp(mean), np.exp(0.5 * cv2), count / exposure


def picture(path: Path, draws: int = 40) -> None:
    """One row for each prior: curves of the mean, of the cv, and rates of the bins."""
    frame = soc.simulation.s1(20_000, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=50, progress=False)
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), sharex=True, layout="constrained")
    labels = ("E(theta | score)", "cv of theta given the score", "rate of a bin's counts")
    for row, (name, prior) in zip(axes, PRIORS.items(), strict=True):
        score, *values = prior_draws(stats, prior, draws, seed=1)
        for ax, label, value in zip(row, labels, values, strict=True):
            ax.loglog(score, np.where(value > 0, value, np.nan).T, color="#0072B2", alpha=0.35)
            ax.set_ylabel(label)
            ax.set_title(f"Prior {name}" if ax is row[0] else "", loc="left", fontsize=10)
        row[0].loglog(score, score, color="0.2", linestyle="--", label="theta = score")
        row[0].legend(frameon=False)
    for ax in axes[1]:
        ax.set_xlabel("score")
    figure.savefig(path, dpi=90)


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("docs/dev/priors.png"))
    picture(parser.parse_args().picture)


if __name__ == "__main__":
    main()
