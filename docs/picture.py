"""Draw docs/front.png, the picture of README and home: ``python docs/picture.py``.

5,000 simulated ads: curve with its band on the left, shrinkage of their own rates on the right.
Prints the first ad without a click in 11 impressions, before and after.
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np

import soc_pymc as soc
from soc_pymc.plots.style import CURVE, OBSERVED, REFERENCE


def main() -> None:
    """Fit the ads, draw both panels, and print one ad."""
    names = {"score": "t", "count": "clicks", "exposure": "impressions"}
    ads = soc.simulation.s1(5000, seed=0).rename(columns=names)
    items = soc.PoissonItems(ads, score="t", count="clicks", exposure="impressions")
    fit = soc.fit(soc.summarize(items))
    post = soc.item_posteriors(fit, items)
    own = post["clicks"] / post["impressions"]
    low, high = 0.008, 0.6

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    many = (post["impressions"] >= 20) & (own > 0)
    left.scatter(
        post["t"][many],
        own[many],
        s=3,
        color=OBSERVED,
        alpha=0.8,
        linewidths=0,
        label="own rate, 20 impressions or more",
    )
    grid = np.geomspace(*post["t"].quantile([0.005, 0.995]), 100)
    lower, middle, upper = soc.bands(soc.calibration_curves(fit, grid))["mean"].to_numpy()
    left.fill_between(grid, lower, upper, color=CURVE, alpha=0.35, linewidth=0, label="90% band")
    left.plot(grid, middle, color=CURVE, label="E(theta | t)")
    left.plot(grid, grid, color=REFERENCE, linewidth=0.8, linestyle="--", label="score as it is")
    left.set(
        xlabel="score t: predicted click rate", ylabel="click rate", title="The curve and its band"
    )

    some = post[(own > 0) & (own < 0.6)].sample(400, random_state=1)
    rate = some["clicks"] / some["impressions"]
    dots = right.scatter(
        rate,
        some["theta_mean"],
        s=14,
        c=np.log10(some["impressions"]),
        cmap="viridis",
        linewidths=0,
    )
    right.plot(
        [low, high],
        [low, high],
        color=REFERENCE,
        linewidth=0.8,
        linestyle="--",
        label="no shrinkage",
    )
    bar = figure.colorbar(dots, ax=right, label="impressions")
    ticks = np.arange(1, int(np.log10(some["impressions"].max())) + 1)
    bar.set_ticks(ticks, labels=[f"{10**k:,}" for k in ticks])
    right.set(
        xlabel="own rate: clicks / impressions",
        ylabel="posterior mean of theta",
        title="Shrinkage: 400 of the ads",
    )
    for axis in (left, right):
        axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(Path(__file__).parent / "front.png", dpi=110)
    one = post.query("clicks == 0 and impressions == 11").iloc[0]
    print(one.round(3).to_string())


if __name__ == "__main__":
    main()
