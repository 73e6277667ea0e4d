"""A curve as a linear model: terms, their priors, coefficients, and what a pilot knows of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Block",
    "BlockPilot",
    "CurveDesign",
    "CurvePilot",
    "CurveState",
    "curve_state",
    "flat_state",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """Penalised coefficients N(0, tau^2) of one term of a curve.

    Attributes
    ----------
    name
        Of the term, such as ``"wiggle"``.
    design
        Values of its functions at the rows, shape (rows, k).
    scale
        Scale of the half-normal prior of tau.
    """

    name: str
    design: Floats
    scale: float


@dataclass(frozen=True)
class CurveDesign:
    """One curve's linear model at the rows (bins, or cells of bins) and its prior.

    Attributes
    ----------
    line
        Values of the line's functions at the rows, shape (rows, 1 or 2).
    line_mean, line_sd
        Normal prior of the line's coefficients.
    blocks
        Penalised terms, the most local first: in this order they get coordinates, each given
        those before it.
    """

    line: Floats
    line_mean: Floats
    line_sd: Floats
    blocks: tuple[Block, ...]

    @cached_property
    def whole(self) -> Floats:
        """All functions at the rows: those of the blocks in order, then the line's."""
        return np.column_stack([*(block.design for block in self.blocks), self.line])

    @property
    def ends(self) -> NDArray[np.intp]:
        """Column of `whole` at which each block ends."""
        return np.cumsum([block.design.shape[1] for block in self.blocks], dtype=np.intp)


@dataclass(frozen=True)
class CurveState:
    """Coefficients of one curve, in the order of `CurveDesign.whole`, and its smoothing scales."""

    coefficients: Floats
    taus: tuple[float, ...]

    def at(self, design: CurveDesign) -> Floats:
        """Values at the rows."""
        return np.asarray(design.whole @ self.coefficients)

    def prior(self, design: CurveDesign) -> tuple[Floats, Floats]:
        """Prior means and precisions of the coefficients given the smoothing scales."""
        sizes = [block.design.shape[1] for block in design.blocks]
        mean = np.concatenate([np.zeros(sum(sizes)), design.line_mean])
        precision = [np.full(k, tau**-2) for k, tau in zip(sizes, self.taus, strict=True)]
        return mean, np.concatenate([*precision, design.line_sd**-2])

    def log_prior(self, design: CurveDesign) -> float:
        """Log prior density of the coefficients given the taus, up to a constant."""
        mean, precision = self.prior(design)
        return float(-0.5 * precision @ (self.coefficients - mean) ** 2)

    def moved(self, step: Floats, factor: float) -> "CurveState":
        """Coefficients a multiple of a step away."""
        return CurveState(self.coefficients + factor * step, self.taus)


@dataclass(frozen=True)
class BlockPilot:
    """What the pilot knows of one block, in coordinates that its information diagonalises.

    Attributes
    ----------
    rotation
        Orthogonal matrix (k, k): coefficients = rotation @ rotated ones z.
    precision, pull, coupling
        Of z given the rotated coefficients e of the blocks before it: data precision d >= 0 and d
        times the data's own centre, which is pull - coupling @ e, so that given tau each is about
        N((pull - coupling @ e) s^2, s^2) with s^2 = tau^2 / (1 + d tau^2).
    here
        The same product at the pilot's own e.
    """

    rotation: Floats
    precision: Floats
    pull: Floats
    coupling: Floats
    here: Floats


@dataclass(frozen=True)
class CurvePilot:
    """What the pilot knows of one curve.

    Attributes
    ----------
    blocks
        Of its penalised terms, in their order.
    line_centre, line_shift, line_root
        Line coefficients are about ``line_centre - line_shift @ z + line_root @ N(0, I)`` given
        the rotated coefficients z of all blocks.
    state
        The coefficients themselves where the search ended.
    """

    blocks: tuple[BlockPilot, ...]
    line_centre: Floats
    line_shift: Floats
    line_root: Floats
    state: CurveState


def flat_state(design: CurveDesign, level: float) -> CurveState:
    """A curve of one level everywhere."""
    line = np.concatenate([[level], np.zeros(design.line.shape[1] - 1)])
    return _state(design, line, np.zeros(0))


def curve_state(design: CurveDesign, line: Floats, wiggle: Floats, values: Floats) -> CurveState:
    """The curve through values at the knots, where the basis functions are `line` and `wiggle`.

    Other terms than the wiggle, which is the last block, begin at 0.
    """
    coefficients = np.linalg.solve(np.column_stack([line, wiggle]), values)
    lines = line.shape[1]
    return _state(design, coefficients[:lines], coefficients[lines:])


def _state(design: CurveDesign, line: Floats, wiggle: Floats) -> CurveState:
    zeros = np.zeros(design.whole.shape[1] - len(line) - len(wiggle))
    # a step begins by finding the taus, so that any will do here
    taus = tuple(0.5 * block.scale for block in design.blocks)
    return CurveState(np.concatenate([zeros, wiggle, line]), taus)
