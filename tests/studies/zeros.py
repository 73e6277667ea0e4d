"""Shares of theta that are exactly 0: coverage, P(theta = 0 | t, y), and the oracle's error.

    python -m tests.studies.zeros --items 20000 --shares 0 0.05 0.2 0.5 --seeds 0 1

Scores t are correct for theta that is not 0. Counts: theta | t ~ Gamma(2) of mean t, scores
log-normal around 0.02, exposures around 80. Values: theta | t ~ Normal(0.5 + 0.8 t, 0.5^2), noise
sds around 0.4. The share of theta that is 0 is a constant. The oracle knows all of this.

Columns: seconds of fit and scoring; Pareto k; coverage of 90% intervals with the share and without;
regret, the mean of (theta_mean - oracle's)^2 over the oracle's mean variance, in percent, with and
without; the 90% band of the share at the middle score; moved, the root mean square of what the
share does to item means, in posterior sds. Below, by kind and share, ten classes of p_zero over all
seeds: items, expected and seen zeros; away, the difference in standard errors of a class whose
probabilities are known (those of one fit share the error of its curve).
"""

import argparse
import time
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.data.items import Items
from soc_pymc.families.family import FAMILIES, Family

SIMULATED = ("counts", "values")
FAMILY = {"counts": "Gamma", "values": "Normal"}
_SHAPE, _SD = 2.0, 0.5  # of theta that is not 0


def simulated(kind: str, n_items: int, share: float, seed: int) -> tuple[Items, pd.DataFrame]:
    """Items, and a table of theta with its mean, variance and P(theta = 0) given score and outcome.

    Theta of `share` of the items is 0.
    """
    rng = np.random.default_rng(seed)
    zero = rng.random(n_items) < share
    if kind == "counts":
        t = np.exp(rng.normal(np.log(0.02), 0.8, n_items))
        size = np.ceil(np.exp(rng.normal(np.log(80.0), 1.2, n_items)))
        theta = np.where(zero, 0.0, t * rng.gamma(_SHAPE, 1.0 / _SHAPE, n_items))
        y = rng.poisson(theta * size)
        prior = np.full(n_items, _SHAPE), _SHAPE / t
        frame = pd.DataFrame({"t": t, "y": y, "N": size})
        items: Items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    else:
        t, size = rng.normal(size=n_items), np.exp(rng.normal(np.log(0.4), 0.5, n_items))
        theta = np.where(zero, 0.0, 0.5 + 0.8 * t + _SD * rng.normal(size=n_items))
        y = theta + size * rng.normal(size=n_items)
        prior = 0.5 + 0.8 * t, np.full(n_items, _SD**2)
        frame = pd.DataFrame({"t": t, "y": y, "s": size})
        items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    return items, oracle(FAMILIES[FAMILY[kind]], prior, y, size, share).assign(theta=theta)


def oracle(family: Family, prior: Any, y: np.ndarray, size: np.ndarray, share: float) -> Any:
    """Mean, variance and P(theta = 0) given outcomes, where all but theta is known."""
    log_density = family.log_density(y, size, *family.to_curves(*prior))
    at_zero = family.outcome.forms.log_likelihood(y, size, np.zeros(len(y)))
    own, rest = share * np.exp(at_zero - log_density), 1.0 - share
    p_zero = own / (own + rest)
    after = family.update(*prior, y, size)
    mean, variance = family.mean(*after), family.variance(*after)
    whole = (1.0 - p_zero) * mean
    square = (1.0 - p_zero) * (variance + mean**2)
    return pd.DataFrame({"mean": whole, "variance": square - whole**2, "p_zero": p_zero})


def classes(p_zero: np.ndarray, zero: np.ndarray, number: int = 10) -> pd.DataFrame:
    """Expected and seen zeros of items in equal classes of p_zero, and their difference in se."""
    at = np.minimum((p_zero * number).astype(int), number - 1)
    table = pd.DataFrame({"expected": p_zero, "seen": zero, "v": p_zero * (1.0 - p_zero)})
    found = table.groupby(at).agg(
        items=("seen", "size"), expected=("expected", "mean"), seen=("seen", "mean"), v=("v", "sum")
    )
    away = (found["seen"] - found["expected"]) * found["items"]
    return found.assign(away=away / np.sqrt(np.maximum(found["v"], 0.25))).drop(columns="v")


def covered(scored: pd.DataFrame, theta: np.ndarray) -> float:
    """Share of items whose theta lies in its 90% interval."""
    return float(np.mean((theta >= scored["theta_q05"]) & (theta <= scored["theta_q95"])))


def compared(
    kind: str, n_items: int, share: float, seed: int, mixture: bool = False
) -> tuple[dict[str, Any], pd.DataFrame]:
    """One row of figures, and the items' p_zero."""
    items, truth = simulated(kind, n_items, share, seed)
    prior = getattr(soc, FAMILY[kind] + "Mixture" * mixture)
    stats_of = soc.summarize(items, joint=True, progress=False)
    begun = time.perf_counter()
    fit = soc.fit(stats_of, prior(zero=True), progress=False)
    fitted = time.perf_counter()
    how: dict[str, Any] = {"draws": "auto", "progress": False}
    scored = soc.item_posteriors(fit, items, **how)
    done = time.perf_counter()
    plain = soc.item_posteriors(soc.fit(stats_of, prior(), progress=False), items, **how)
    theta = truth["theta"].to_numpy()
    middle = [float(np.median(scored["t"]))]
    band = soc.bands(soc.calibration_curves(fit, middle))["p_zero"].to_numpy()[:, 0]
    moved = (scored["theta_mean"] - plain["theta_mean"]) / plain["theta_sd"]

    def regret(of: pd.DataFrame) -> float:
        error = np.mean((of["theta_mean"] - truth["mean"]) ** 2)
        return float(100.0 * error / np.mean(truth["variance"]))

    row = {
        "kind": kind,
        "share": share,
        "seed": seed,
        "fit_s": fitted - begun,
        "score_s": done - fitted,
        "k": fit.status.pareto_k,
        "good": fit.status.converged,
        "cover": covered(scored, theta),
        "cover_plain": covered(plain, theta),
        "regret": regret(scored),
        "regret_plain": regret(plain),
        "low": band[0],
        "middle": band[1],
        "high": band[2],
        "moved": float(np.sqrt(np.mean(moved**2))),
    }
    kept = pd.DataFrame({"p_zero": scored["p_zero"], "zero": theta == 0.0})
    return row, kept.assign(kind=kind, share=share)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.05, 0.2, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kinds", choices=SIMULATED, nargs="+", default=list(SIMULATED))
    parser.add_argument("--mixture", action="store_true")
    chosen = parser.parse_args()
    cells = product(chosen.kinds, chosen.shares, chosen.seeds)
    rows, items = zip(
        *(compared(k, chosen.items, share, seed, chosen.mixture) for k, share, seed in cells),
        strict=True,
    )
    with pd.option_context("display.width", 200, "display.max_columns", None):
        print(pd.DataFrame(rows).round(4).to_string(index=False))
    for (kind, share), own in pd.concat(items).groupby(["kind", "share"]):
        table = classes(own["p_zero"].to_numpy(), own["zero"].to_numpy())
        print(f"\n{kind}, share {share:g}", table.round(4), sep="\n")


if __name__ == "__main__":
    main()
