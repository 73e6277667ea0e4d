"""Averages over items and ratios of them, with standard errors from blocks of items."""

from collections.abc import Callable, Mapping

import numpy as np


def ratio_with_error(
    values: Mapping[str, np.ndarray],
    statistic: Callable[..., float],
    *,
    blocks: int = 200,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """A statistic of the items' averages, and its bootstrap standard error over blocks of items.

    The error is that of the items with the fit held fixed. `statistic` takes the averages by name.
    Blocks are runs of neighbouring items: with repeated items put in order of the repetition, whole
    blocks of them keep what they share.
    """
    edges = np.linspace(0, len(next(iter(values.values()))), blocks + 1).astype(int)
    sizes = np.diff(edges)
    sums = {k: np.add.reduceat(np.asarray(v, float), edges[:-1]) for k, v in values.items()}
    whole = statistic(**{k: v.sum() / sizes.sum() for k, v in sums.items()})
    picks = np.random.default_rng(seed).integers(0, blocks, (draws, blocks))
    total = sizes[picks].sum(axis=1)
    drawn = {k: v[picks].sum(axis=1) / total for k, v in sums.items()}
    again = [statistic(**{k: v[i] for k, v in drawn.items()}) for i in range(draws)]
    return float(whole), float(np.std(again, ddof=1))
