"""What the model needs to know of one kind of items: counts with exposures, values with noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.errors import FitError
from ..data.statistics import Statistics
from ..families import histograms as hist
from ..families import normal_cells
from ..families.priors import Gamma, Normal
from .designs import Weak
from .pilot import Target
from .rows import Columns, Rows, make_rows
from .splines import Axis, Basis

__all__ = ["OUTCOMES", "Outcome", "outcome_of"]

Floats = NDArray[np.float64]
Data = hist.Histograms | normal_cells.NormalCells

_CV2_LEVEL = (float(np.log(0.3)), 2.0)
_VARIANCE_SHARE = 0.3  # of the values' own scale, squared: the prior's centre of Var(theta|t)
_COUNT_SUMS = ("n", "sum_y", "sum_y2", "sum_y3")
_EXPOSURE_SUMS = ("n", "sum_N", "sum_N2", "sum_N3", "sum_y", "sum_yN", "sum_yN2", "sum_yN3")
_NOISE_SUMS = tuple(
    tuple(of + power for power in powers)
    for of, powers in (
        ("", ("n", "sum_w", "sum_w2", "sum_w3")),
        ("sum_y", ("", "w", "w2", "w3")),
        ("sum_y2", ("", "w", "w2", "w3")),
    )
)


@dataclass(frozen=True)
class Outcome:
    """One kind of items as the model sees it.

    Attributes
    ----------
    observed
        Name of the observed variable.
    variables
        Names of the two curves.
    prior
        Its prior's class.
    kernel
        Of `likelihood.BinLogMarginal`.
    signature
        Dimensions of the arrays of its data.
    rows
        (statistics, grouped, by size) -> rows and their data.
    value
        Log marginal with its slopes, as `families.histograms.value_and_gradient`.
    target
        Data -> what the pilot sees.
    start
        Data -> levels of both curves to start from.
    weak
        (curve, statistics) -> priors where the configuration leaves them open.
    draw
        (both curves at the rows, arrays of the data, generator) -> what is observed, drawn anew.
    """

    observed: str
    variables: tuple[str, str]
    prior: type
    kernel: str
    signature: str
    rows: Callable[[Statistics, bool, bool], tuple[Rows, Any]]
    value: Callable[..., Floats]
    target: Callable[[Any], Target]
    start: Callable[[Any], tuple[float, float]]
    weak: Callable[[str, Statistics], Callable[[Axis, Basis], Weak]]
    draw: Callable[[Floats, Floats, Sequence[Any], np.random.Generator], Floats]


def outcome_of(stats: Statistics) -> Outcome:
    """The kind of items of statistics."""
    return OUTCOMES[stats.data.attrs["kind"]]


# --- counts --------------------------------------------------------------------------------------


def _poisson_rows(stats: Statistics, grouped: bool, by_size: bool) -> tuple[Rows, hist.Histograms]:
    if not float(stats.data["sum_N"].sum()) > 0:
        raise FitError("every exposure is 0: nothing was observed, so nothing can be fitted")
    tables = ("joint",) if by_size else ("count", "exposure")
    rows, cells = make_rows(stats, tables, "N", grouped, by_size)
    counts, exposures = cells[tables[0]], cells[tables[-1]]
    if by_size:
        size = exposures["sum_N"] / exposures["n"]
        y_log_n = np.bincount(exposures["row"], exposures["sum_y"] * np.log(size), rows.number)
    else:
        part = cells["part"]
        y_log_n = np.bincount(part["row"], part["sum_y_log_N"], rows.number)
    return rows, hist.make_histograms(
        rows.number, _columns(counts, _COUNT_SUMS), _columns(exposures, _EXPOSURE_SUMS), y_log_n
    )


def _columns(table: Columns, names: tuple[str, ...]) -> Any:
    return (table["row"], *(table[name].astype(float) for name in names))


def _poisson_target(data: hist.Histograms) -> Target:
    bins = np.arange(len(data.total))
    # beyond these sizes cells cannot resolve the curves
    return Target(
        lambda m, c: hist.value_and_gradient(m[None], c[None], bins, *data.arrays)[:, 0],
        lambda m, c: hist.information(m, c, data),
        most=(300.0, 60.0),
        farthest=(3.0, 3.0),
    )


def _poisson_start(data: hist.Histograms) -> tuple[float, float]:
    exposure = float(data.exposure @ data.items)
    return float(np.log((data.total.sum() + 0.5) / exposure)), _CV2_LEVEL[0]


def _poisson_weak(curve: str, stats: Statistics) -> Callable[[Axis, Basis], Weak]:
    if curve == "variance":
        return lambda axis, basis: Weak(_CV2_LEVEL, (0.0, 1.0))

    def mean(axis: Axis, basis: Basis) -> Weak:
        if axis.scale == "log":  # scores that are rates
            return Weak((basis.centre, 5.0), (1.0, 1.0))
        return Weak((0.0, 10.0), (0.0, 2.0))

    return mean


def _draw_counts(
    log_mean: Floats, log_cv2: Floats, arrays: Sequence[Any], rng: np.random.Generator
) -> Floats:
    """Total count of each row: a sum of equal negative binomials is negative binomial."""
    h = hist.Histograms(*arrays)
    own = np.exp(log_cv2)
    cv2 = own + h.spread * (1.0 + own)
    mean, cv2 = np.broadcast_arrays(np.exp(log_mean + 0.5 * h.spread), cv2)
    bin_of = np.repeat(np.arange(mean.shape[-1]), np.diff(h.start))
    theta = rng.gamma(h.items / cv2[..., bin_of], h.exposure * (mean * cv2)[..., bin_of])
    counts = rng.poisson(theta).astype(float)
    return np.add.reduceat(counts, h.start[:-1], axis=-1)


# --- values --------------------------------------------------------------------------------------


def _normal_rows(
    stats: Statistics, grouped: bool, by_size: bool
) -> tuple[Rows, normal_cells.NormalCells]:
    name = "joint" if by_size else "noise"
    rows, cells = make_rows(stats, (name,), "w", grouped, by_size)
    table = cells[name]
    sums = _joint_sums(table) if by_size else _noise_sums(table)
    return rows, normal_cells.make_normal_cells(rows.number, table["row"], sums)


def _noise_sums(table: Columns) -> Floats:
    return np.stack(
        [np.stack([table[name].astype(float) for name in of], axis=1) for of in _NOISE_SUMS], axis=1
    )


def _joint_sums(table: Columns) -> Floats:
    """Sums of joint cells, over which values and noise hardly vary together."""
    n = table["n"].astype(float)
    w1, w2 = table["sum_w"] / n, table["sum_w2"] / n
    # the third moment of a narrow cell about its mean is next to nothing
    powers = np.stack([np.ones(len(n)), w1, w2, w1 * (3.0 * w2 - 2.0 * w1**2)], axis=1)
    of = np.stack([n, table["sum_y"], table["sum_y2"]], axis=1)
    return np.asarray(of[:, :, None] * powers[:, None, :])


def _normal_target(data: normal_cells.NormalCells) -> Target:
    rows = np.arange(len(data.centre))
    return Target(
        lambda m, c: normal_cells.value_and_gradient(m[None], c[None], rows, *data.arrays)[:, 0],
        lambda m, c: normal_cells.information(m, c, data),
        most=(np.inf, 600.0),
        farthest=(np.inf, 3.0),
    )


def _normal_start(data: normal_cells.NormalCells) -> tuple[float, float]:
    n = data.items
    level = float(np.average(data.centre, weights=n))
    squares = float(data.moments[:, 2, 0].sum() + n @ (data.centre - level) ** 2)
    noise = float(np.average(data.noise, weights=data.moments[:, 0, 0]))
    return level, float(np.log(max(squares / n.sum() - noise, 0.1 * noise)))


def _normal_weak(curve: str, stats: Statistics) -> Callable[[Axis, Basis], Weak]:
    data = stats.data
    n = float(data["n"].sum())
    centre = float(data["sum_t"].sum()) / n
    scatter = max(float(data["sum_t2"].sum()) / n - centre**2, 0.0)
    scale2 = scatter + float(data["sum_s2"].sum()) / n
    scale = float(np.sqrt(scale2))
    if curve == "variance":
        weak = Weak((float(np.log(_VARIANCE_SHARE * scale2)), 3.0), (0.0, 1.0))
    else:
        weak = Weak((centre, 10.0 * scale + abs(centre)), (0.0, 3.0 * scale), scale)
    return lambda axis, basis: weak


def _draw_values(
    mean: Floats, log_variance: Floats, arrays: Sequence[Any], rng: np.random.Generator
) -> Floats:
    """Mean value of each row."""
    cells = normal_cells.NormalCells(*arrays)
    row_of = np.repeat(np.arange(len(cells.centre)), np.diff(cells.start))
    n = cells.moments[:, 0, 0]
    own = np.exp(log_variance) + cells.spread
    noise = np.bincount(row_of, n * cells.noise) / cells.items
    return rng.normal(mean, np.sqrt((own + noise) / cells.items))


OUTCOMES: Mapping[str, Outcome] = {
    "poisson": Outcome(
        "count",
        ("log_mean", "log_cv2"),
        Gamma,
        "exact",
        "(b,c),(s),(w),(w),(s),(e),(e),(e),(b),(b),(b)",
        _poisson_rows,
        hist.value_and_gradient,
        _poisson_target,
        _poisson_start,
        _poisson_weak,
        _draw_counts,
    ),
    "normal": Outcome(
        "value",
        ("mean", "log_variance"),
        Normal,
        "normal",
        "(s),(c),(c,a,k),(b),(b)",
        _normal_rows,
        normal_cells.value_and_gradient,
        _normal_target,
        _normal_start,
        _normal_weak,
        _draw_values,
    ),
}
"""By `Statistics.data.attrs["kind"]`."""
