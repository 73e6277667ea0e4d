"""Shares of theta that are exactly 0: coverage, P(theta = 0 | t, y), and the oracle's error.

    python -m tests.studies zeros --items 20000 --shares 0 0.05 0.2 0.5 --seeds 0 1

Scores t are correct for theta that is not 0; the share of theta that is 0 is a constant. The oracle
knows all of this. Columns: coverage of 90% intervals with the share and without; regret, the mean
of (theta_mean - oracle's)^2 over the oracle's mean variance, in percent; the 90% band of the share
at the middle score; moved, the root mean square of what the share does to item means, in posterior
sds. Below are classes of p_zero: away is the difference of seen and expected zeros in se.
"""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.data.items import Items
from soc_pymc.families import FAMILIES
from soc_pymc.families.family import Family
from tests.studies import common

FAMILY = {"counts": "Gamma", "values": "Normal"}
SHARES = (0.0, 0.05, 0.2, 0.5)
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
        frame = pd.DataFrame({"score": t, "count": y, "exposure": size})
        items: Items = common.counts(frame)
    else:
        t, size = rng.normal(size=n_items), np.exp(rng.normal(np.log(0.4), 0.5, n_items))
        theta = np.where(zero, 0.0, 0.5 + 0.8 * t + _SD * rng.normal(size=n_items))
        y = theta + size * rng.normal(size=n_items)
        prior = 0.5 + 0.8 * t, np.full(n_items, _SD**2)
        items = common.values(pd.DataFrame({"score": t, "value": y, "noise_sd": size}))
    return items, oracle(FAMILIES[FAMILY[kind]], prior, y, size, share).assign(theta=theta)


def oracle(family: Family, prior: Any, y: np.ndarray, size: np.ndarray, share: float) -> Any:
    """Mean, variance and P(theta = 0) given outcomes, where all but theta is known."""
    log_density = family.log_density(y, size, *family.to_curves(*prior))
    at_zero = family.outcome.log_likelihood(y, size, np.zeros(len(y)))
    own, rest = share * np.exp(at_zero - log_density), 1.0 - share
    p_zero = own / (own + rest)
    after = family.update(*prior, y, size)
    mean, variance = family.mean(*after), family.variance(*after)
    whole = (1.0 - p_zero) * mean
    square = (1.0 - p_zero) * (variance + mean**2)
    return pd.DataFrame({"mean": whole, "variance": square - whole**2, "p_zero": p_zero})


def classes(p_zero: np.ndarray, zero: np.ndarray, number: int = 10) -> pd.DataFrame:
    """Expected and seen zeros of items in equal classes of p_zero, and their difference in se."""
    class_of = np.minimum((p_zero * number).astype(int), number - 1)
    table = pd.DataFrame({"expected": p_zero, "seen": zero, "v": p_zero * (1.0 - p_zero)})
    by_class = table.groupby(class_of)
    found = by_class[["expected", "seen"]].mean().assign(items=by_class.size())
    away = (found["seen"] - found["expected"]) * found["items"]
    return found.assign(away=away / np.sqrt(np.maximum(by_class["v"].sum(), 0.25)))


def compared(
    kind: str, n_items: int, share: float, seed: int, mixture: bool = False
) -> tuple[dict[str, Any], pd.DataFrame]:
    """One row of figures, and the items' p_zero."""
    items, truth = simulated(kind, n_items, share, seed)
    prior = getattr(soc, FAMILY[kind] + "Mixture" * mixture)
    stats = common.summarize(items, joint=True)
    model = common.fit(stats, prior(zero=True))
    scored = common.posteriors(model, items)
    plain = common.posteriors(common.fit(stats, prior()), items)
    theta = truth["theta"].to_numpy()
    middle = [float(np.median(scored["score"]))]
    low, median, high = soc.bands(soc.calibration_curves(model, middle))["p_zero"].to_numpy()[:, 0]
    moved = (scored["theta_mean"] - plain["theta_mean"]) / plain["theta_sd"]

    row = common.quality(model)
    for name, table in (("", scored), ("_plain", plain)):
        error = np.mean((table["theta_mean"] - truth["mean"]) ** 2)
        row[f"cover{name}"] = common.items_covered(table, theta).mean()
        row[f"regret{name}"] = 100.0 * error / np.mean(truth["variance"])
    row |= {"low": low, "middle": median, "high": high, "moved": np.sqrt(np.mean(moved**2))}
    labels = {"kind": kind, "share": share, "seed": seed}
    probabilities = pd.DataFrame({"p_zero": scored["p_zero"], "zero": theta == 0.0})
    return labels | row, probabilities.assign(**labels)


def main() -> None:
    small = {"items": 2000, "shares": [0.2]}
    kinds = common.Choice(FAMILY)
    chosen = common.options(
        __doc__, small, items=20_000, shares=SHARES, seeds=(0,), kinds=kinds, mixture=False
    )
    cells = product(chosen.kinds, chosen.shares, chosen.seeds)
    pairs = (compared(k, chosen.items, *cell, chosen.mixture) for k, *cell in cells)
    rows, items = zip(*pairs, strict=True)
    common.show(pd.DataFrame(rows))
    for (kind, share), part in pd.concat(items).groupby(["kind", "share"]):
        table = classes(part["p_zero"].to_numpy(), part["zero"].to_numpy())
        common.show(table, f"{kind}, share {share:g}")
