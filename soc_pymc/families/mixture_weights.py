"""Maximum likelihood of mixtures from weighted points: fixed components, or free Normals."""

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.optimize import nnls

__all__ = ["fixed_weights", "free_normals", "normals_step"]

Floats = NDArray[np.float64]

_EM_STEPS = 20  # first, as they are cheap and never stray
_NEWTON_STEPS = 100
_RIDGE = 1e-10
_CHECKED = 25  # steps of EM between looks at what they gain


def fixed_weights(
    density: Floats, items: Floats, start: Floats, gap: float
) -> tuple[Floats, float, float]:
    """Weights of fixed components that maximise sum n log(density @ weight).

    A few EM steps, then Newton steps in which the weights stay positive (non-negative least
    squares, Wang 2007), each as long as it gains. EM alone comes to within a nat soon and hardly
    nearer: 3,000 steps accelerated by SQUAREM left 0.3 to 2.8 nats where ten Newton steps leave
    less than 0.001. No weights are better by more than the gap max_r sum n density_r / f - n, by
    which the search stops.

    Parameters
    ----------
    density
        (points, R): each point's density under the components, up to a factor of its own.
    items
        (points,): numbers of items.
    start
        (R,): weights to start from, positive.
    gap
        The search ends where no weights gain more than this, in nats.

    Returns
    -------
    tuple
        Weights (R,), the log likelihood without the points' factors, and the gap.

    Examples
    --------
    >>> weight, _, gap = fixed_weights(np.eye(2), np.array([1.0, 3.0]), np.full(2, 0.5), 1e-6)
    >>> weight.round(6).tolist(), gap < 1e-6
    ([0.25, 0.75], True)
    """
    n, weight = float(items.sum()), start / start.sum()
    for _ in range(_EM_STEPS):
        weight = weight * (density.T @ (items / (density @ weight))) / n
    value, left = -np.inf, np.inf
    for _ in range(_NEWTON_STEPS):
        whole = density @ weight
        value = float(items @ np.log(whole))
        each = density / whole[:, None]
        slope = each.T @ items
        left = float(slope.max()) - n
        if left <= gap:
            break
        step = _newton_target(each, items, slope, n) - weight
        weight, gained = _longest(density, items, weight, step, value, float(slope @ step))
        if not gained:
            break
    return weight, value, left


def _newton_target(each: Floats, items: Floats, slope: Floats, n: float) -> Floats:
    """Weights at which the quadratic around the current ones is highest, none negative."""
    hessian = (each * items[:, None]).T @ each
    hessian[np.diag_indices_from(hessian)] += _RIDGE * np.trace(hessian)
    root = linalg.cholesky(hessian, lower=True)
    target, _ = nnls(
        root.T, linalg.solve_triangular(root, 2.0 * slope - n, lower=True), maxiter=10_000
    )
    return np.asarray(target / target.sum())


def _longest(
    density: Floats, items: Floats, weight: Floats, step: Floats, value: float, slope: float
) -> tuple[Floats, bool]:
    """The first of ever halved steps that gains its share."""
    for halving in range(40):
        factor = 0.5**halving
        tried = weight + factor * step
        # too long a step makes densities 0 or negative: NaN and -inf gain nothing
        with np.errstate(divide="ignore", invalid="ignore"):
            gained = float(items @ np.log(density @ tried)) - value
        if gained >= 1e-3 * factor * slope:
            return tried, True
    return weight, False


@numba.njit(cache=True, nogil=True, error_model="numpy")
def normals_step(value, noise, items, weight, mean, variance):  # type: ignore[no-untyped-def]
    """One EM step, in place, of a mixture of Normals seen with noise; log likelihood before it.

    A point's theta given its component is Normal again, so that every part of the step is a
    weighted mean. The likelihood never falls (Dempster, Laird and Rubin 1977).
    """
    number = len(weight)
    share, centre, width = np.zeros(number), np.zeros(number), np.zeros(number)
    log_p, post_mean, post_var = np.empty(number), np.empty(number), np.empty(number)
    total = 0.0
    for i in range(len(value)):
        top = -np.inf
        for r in range(number):
            whole = variance[r] + noise[i]
            away = value[i] - mean[r]
            log_p[r] = np.log(weight[r]) - 0.5 * (np.log(2.0 * np.pi * whole) + away * away / whole)
            post_mean[r] = mean[r] + away * variance[r] / whole
            post_var[r] = variance[r] * noise[i] / whole
            top = max(top, log_p[r])
        scale = 0.0
        for r in range(number):
            log_p[r] = np.exp(log_p[r] - top)
            scale += log_p[r]
        total += items[i] * (top + np.log(scale))
        for r in range(number):
            own = items[i] * log_p[r] / scale
            away = post_mean[r] - mean[r]  # about the old mean, which costs no digits
            share[r] += own
            centre[r] += own * away
            width[r] += own * (post_var[r] + away * away)
    n = items.sum()
    for r in range(number):
        if share[r] > 1e-12 * n:
            shift = centre[r] / share[r]
            variance[r] = max(width[r] / share[r] - shift * shift, 0.0)
            mean[r] += shift
        weight[r] = max(share[r] / n, 1e-300)
    return total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def free_normals(value, noise, items, weight, mean, variance, gain, most):  # type: ignore[no-untyped-def]
    """EM steps, in place, until 25 of them gain less than `gain` nats.

    Returns the log likelihood and whether it stopped before `most` steps.
    """
    before, now = -np.inf, -np.inf
    for step in range(most):
        now = normals_step(value, noise, items, weight, mean, variance)
        if step % _CHECKED == 0:
            if now - before < gain:
                return now, True
            before = now
    return now, False
