"""Items to decide on, with the index of the answer, and joint draws of their theta.

Each joint draw takes one draw of the curves for all items. Random numbers belong to blocks of 512
items, draw by draw, so that they depend neither on the number of processors nor on that of the
draws.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._lib.arguments import digits, numbers_of
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..checks.observations import each_part, in_batches
from ..data.items import Items, check_outcomes
from ..families.family import NEAR_ZERO
from ..families.validity import LARGEST
from ..inference.results import Fit
from ..posterior.curves import items_at_once
from ..posterior.item_columns import Columns, ThetaMixture, read_items, select
from ..posterior.predictive import Posterior, posterior_of

BLOCK = 512  # items that share random numbers

_MOST = 1024  # draws of a block of items that are made at once
_AT_ONCE = 5000  # items whose posteriors are held at once by a thread, at most


@dataclass(frozen=True)
class DecisionItems:
    """A fit, and items to decide on."""

    fit: Fit
    posterior: Posterior
    columns: Columns
    index: pd.Index
    labels: Mapping[str, pd.Series]  # further columns of the table

    def __len__(self) -> int:
        return len(self.index)

    @property
    def draws(self) -> int:
        """Number of draws of the curves."""
        sizes = self.fit.data["posterior"].sizes
        return int(sizes["chain"] * sizes["draw"])

    def each(
        self,
        title: str,
        answer: Callable[[Columns, ThetaMixture], Sequence[Floats]],
        progress: bool | None,
        **extra: Floats,
    ) -> Floats:
        """Rows of an answer on every item's posterior, (rows, n); it reads `extra` columns too."""

        def rows(part: Columns) -> Sequence[Floats]:
            return answer(part, self.posterior.theta(part))

        step = max(1, min(_AT_ONCE, items_at_once(self.fit)))
        return in_batches(title, {**self.columns, **extra}, step, progress, rows)

    def rows(self, chosen: Ints) -> "DecisionItems":
        """Some of the items."""
        return replace(self, columns=select(self.columns, chosen), index=self.index[chosen])

    def numbers(
        self, values: ArrayLike, name: str, least: float = -np.inf, per_item: bool = False
    ) -> Floats:
        """A number, or one for `per_item` item, as an array (n,) of numbers > `least`."""
        n = len(self)
        array = numbers_of(values, name, expected="a number or an array of numbers")
        if array.shape != (n,) and (per_item or array.shape != ()):
            scalar = "" if per_item else "one number, or "
            raise FitError(
                f"{name} has the shape {array.shape}: give {scalar}one number for each of {n:,} "
                "items"
            )
        # larger numbers leave none to compare with
        bad = ~((np.abs(array) <= LARGEST) & (array > least))
        if bad.any():
            bound = "" if least == -np.inf else f" and > {least:g}"
            raise FitError(
                f"{name} must be finite{bound}, up to {LARGEST:g} in size, not "
                f"{digits(array[bad].flat[0])}"
            )
        return np.array(np.broadcast_to(array, (n,)))


def read_decision(
    fit: Fit, items: Items, progress: bool | None, also: Sequence[str] = ()
) -> DecisionItems:
    """Read and check the items of a decision, and further columns of their table."""
    posterior = posterior_of(fit)
    check_outcomes(items)
    name = items.roles.get("id")
    names = [*([name] if name else []), *also]
    columns, labels = read_items(fit, items, names, progress)
    if name:
        index = pd.Index(labels[name], name=name)
    elif isinstance(items.source, pd.DataFrame):
        index = items.source.index
    else:
        index = pd.RangeIndex(len(columns["score"]))
    return DecisionItems(fit, posterior, columns, index, labels)


# --- joint draws ---------------------------------------------------------------------------------


def joint_draws(
    items: DecisionItems, curves: Ints, seed: int, progress: bool | None = False
) -> Floats:
    """Draws of theta of all items, (draws, n), under the draws `curves` of the curves."""
    number, least = len(curves), NEAR_ZERO if items.fit.prior.zero else 0.0
    theta = np.empty((number, len(items)))

    def draw(block_items: slice) -> None:
        block = Block(items, block_items.start // BLOCK, seed)
        for start in range(0, number, _MOST):
            rows = slice(start, start + _MOST)
            natural = items.posterior.family.natural(block.draw(curves[rows])[0])
            theta[rows, block_items] = np.where(np.abs(natural) < least, 0.0, natural)

    for _ in each_part("joint draws", len(items), BLOCK, progress, draw):
        pass
    return theta


def curve_numbers(total: int, draws: int, seed: int) -> Ints:
    """Index of the curve draw used by each draw: all in random order, over and over."""
    rounds = -(-draws // total)
    orders = (np.random.default_rng([seed, i]).permutation(total) for i in range(rounds))
    return np.concatenate(list(orders))[:draws]


class Block:
    """Items whose next draws come from random numbers of their own."""

    def __init__(self, items: DecisionItems, number: int, seed: int) -> None:
        self._columns = select(items.columns, slice(number * BLOCK, (number + 1) * BLOCK))
        self._posterior, self._n = items.posterior, len(self._columns["score"])
        self._rngs = tuple(np.random.default_rng([seed, stream, number]) for stream in range(3))

    def draw(self, curves: Ints) -> tuple[Floats, Floats, Floats]:
        """Next draws on the scale of the family, (draws, n), and theta's parameters behind them."""
        uniform = self._rngs[0].random((len(curves), self._n))
        a, b = self._posterior.theta_given(self._columns, curves, uniform)
        return self._posterior.family.draw(a, b, self._rngs[1:]), a, b


def blocks_of(items: DecisionItems, seed: int) -> list[Block]:
    """Blocks that make up the items."""
    return [Block(items, number, seed) for number in range(-(-len(items) // BLOCK))]
