"""Minibatches of bins: the log density at a cost that the number of bins does not touch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray

from .._lib.arrays import Floats
from ..model.likelihood import log_marginal, shared
from ..model.problem import Problem
from .density import Evaluate, Space, finite, mode, rest_log_density


def systematic(bins: int, batch: int, draws: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """One minibatch, systematic over the score, for a draw and its mirror image.

    Over the draws every bin is seen equally often.
    """
    stride = -(-bins // batch)
    offsets = rng.permutation(np.arange(draws) % stride)
    return np.array([(o + stride * np.arange(batch)) % bins for o in offsets])


def minibatch_density(built: Problem, space: Space, bins: Any) -> Evaluate:
    """`density` with draw s seeing only the minibatch in row s (modulo) of `bins`.

    Each bin's log marginal is its quadratic at the mode plus a small remainder. The quadratics of
    all bins add up to one in the curves' coefficients, which costs nothing; the remainder is summed
    over the minibatch and scaled up (a control variate: Quiroz et al. 2019), so that minibatches
    add next to no noise, and a draw costs the same for any number of bins.
    """
    designs, names = [], []
    for of in built.coefficients:
        turned = [
            block.design @ laplace.rotation
            for block, laplace in zip(of.design.blocks, of.laplace.blocks, strict=True)
        ]
        designs.append(np.hstack([*turned, of.design.line]))
        names.append(of.names)
    variables = space.model.replace_rvs_by_values([space.model[n] for own in names for n in own])
    rows, (*parts, rest) = space.batched([*variables, rest_log_density(built, space.model)])
    start = pytensor.function([rows], parts, mode=mode())(space.start[None])
    away = pt.concatenate([p - s for p, s in zip(parts, start, strict=True)], axis=1)
    split = designs[0].shape[1]
    here = np.hstack([s[0] for s in start])
    m0, c0 = designs[0] @ here[:split], designs[1] @ here[split:]
    value, slopes, hessian = _quadratic(built, m0, c0)
    total = _quadratic_form(designs, value, slopes, hessian)

    chosen = pt.as_tensor(bins)[pt.arange(rows.shape[0]) % bins.shape[0]]
    dm = (pt.as_tensor(designs[0])[chosen] * away[:, None, :split]).sum(axis=-1)
    dc = (pt.as_tensor(designs[1])[chosen] * away[:, None, split:]).sum(axis=-1)
    at = [pt.as_tensor(x)[chosen] for x in (m0, c0, value, *slopes, *hessian)]
    arrays = shared(built.data)
    exact = log_marginal(built.kernel, at[0] + dm, at[1] + dc, bins, *arrays)[0]
    near = at[2] + at[3] * dm + at[4] * dc
    near += 0.5 * at[5] * dm**2 + at[6] * dm * dc + 0.5 * at[7] * dc**2
    remainder = len(m0) / bins.shape[1] * (exact - near).sum(axis=1)
    logp = rest + total(away) + remainder
    return finite(pytensor.function([rows], [logp, pt.grad(logp.sum(), rows)], mode=mode()))


def _quadratic_form(
    designs: list[Floats],
    value: Floats,
    slopes: tuple[Floats, Floats],
    hessian: tuple[Floats, Floats, Floats],
) -> Callable[[Any], Any]:
    """Sum over bins of quadratics in the curves as a function of all coefficients' changes."""
    (x, z), (mm, mc, cc) = designs, (h[:, None] for h in hessian)
    linear = np.concatenate([x.T @ slopes[0], z.T @ slopes[1]])
    square = np.block([[x.T @ (mm * x), x.T @ (mc * z)], [z.T @ (mc * x), z.T @ (cc * z)]])

    def total(away: Any) -> Any:
        return value.sum() + pt.dot(away, linear) + 0.5 * (pt.dot(away, square) * away).sum(axis=1)

    return total


def _quadratic(
    built: Problem, m: Floats, c: Floats, step: float = 1e-3
) -> tuple[Floats, tuple[Floats, Floats], tuple[Floats, Floats, Floats]]:
    """Value, gradient and Hessian of the log marginal of every row."""
    rows = np.arange(len(m))

    def at(dm: float, dc: float) -> Floats:
        return built.data.value_and_gradient((m + dm)[None], (c + dc)[None], rows)[:, 0]

    value, slope_m, slope_c = at(0.0, 0.0)
    by_m = (at(step, 0.0) - at(-step, 0.0)) / (2.0 * step)
    by_c = (at(0.0, step) - at(0.0, -step)) / (2.0 * step)
    return value, (slope_m, slope_c), (by_m[1], 0.5 * (by_m[2] + by_c[1]), by_c[2])
