"""Five steps: bins, a prior for each, smoothing over the bins, and the resulting fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import xarray as xr

from .._lib.arguments import OneOf, convert_fields
from .._lib.arrays import Bools, Columns, Floats, Ints, Pair
from .._lib.errors import FitError
from .._lib.progress import phase
from .._lib.reprs import short
from .._model.pilot import check_joint_cells
from .._model.rows import Rows, positions, rows_of
from .._model.splines import Axis
from .._model.terms import axis_of
from ..data.statistics import Statistics
from ..families import FAMILIES
from ..families.family import Family
from ..families.priors import Prior, Spline
from ..families.rows import RowSums
from ..fits.curves import Curves
from ..fits.fit import Method, Status
from ..inference.density import SAMPLED
from ..inference.fit_tree import bin_table
from ..posterior.weights import ComponentWeights, moment_variables
from ..prior_table import ARRAYS, moments
from .bins import Maxima, maximise, search
from .smoothing import (
    Parts,
    Smoothing,
    has_log_moments,
    mixture_curves,
    moments_of_log,
    place_moments,
    smooth_mixtures,
)

_KNOT_DIMS = "mean_knot", "variance_knot"
_BIN_ESTIMATES = ("mean", "variance", "log_likelihood", "mean_log", "variance_log")
# dispersion where EM begins, relative to the level
_NARROWEST = 2.0 * float(np.log(1e-3))
COMPONENTS = ("weight", "component_place", "component_sd")
"""Variables of the posterior: weights, places and sds of the components of each bin."""


class BinWeights(ComponentWeights):
    """One draw: components of a score's bin, shifted along the curve of the mean."""

    no_table: ClassVar[str] = (
        "components by bin, of a mixture of five steps, have no prior table: use soc.VI(), or "
        "soc.FiveSteps() with one family"
    )

    def __init__(self, curves: Curves) -> None:
        self._curves = curves
        self._family = curves.family
        self._weight, self._place, sd = (curves.draws(name)[0] for name in COMPONENTS)
        self._variance = sd**2
        self.number = self._weight.shape[1]

    def parameters(self, columns: Columns) -> Pair:
        """Conjugate parameters of the components, each (n, R)."""
        bins = self._curves.bin(columns["score"])
        middle = self._curves.at(columns["score"])[0][0]
        spread = np.broadcast_to(columns.get("spread", 0.0), len(bins))[:, None]
        components = middle[:, None] + self._place[bins], self._variance[bins] + spread
        return self._family.component_parameters(*components)

    def by_draw(self, columns: Columns, draws: Ints) -> Floats:
        """Weights (draws, n, R), the same under each draw."""
        weight = self._weight[self._curves.bin(columns["score"])]
        return np.broadcast_to(weight, (len(draws), *weight.shape))

    def curve_variables(
        self, columns: Columns, draws: Ints | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves`, each (1, n)."""
        (weight,) = self.by_draw(columns, np.zeros(1, dtype=int))
        nodes = (values.T for values in (weight, *self.parameters(columns)))
        (mean, within, between), *_ = moments(self._family, nodes, ARRAYS)
        variables = moment_variables(mean[None], (within + between)[None], {})
        if self._family.outcome.positive:
            variables["log_mean"] = np.log(mean)[None]
        return variables


@dataclass(frozen=True)
class FiveSteps(Method):
    """The paper's method: each bin's prior by maximum likelihood, then smoothed over the bins.

    The result is one draw, so bands have no width. Of a prior, only the scales of the curves and
    ``monotone`` are used; groups are pooled, with ``groups=False``.

    Parameters
    ----------
    moments : {"plain", "log"}
        Moments that are smoothed: ``"plain"``, E(theta | t) and Var(theta | t) (for counts, log
        E(theta | t) and the squared coefficient of variation); or ``"log"``, E(log theta | t) and
        Var(log theta | t), as in Section 5.1 of Muralidharan and Najmi, "Second Order Calibration",
        for counts in bins with hundreds of events: with few these moments are mostly noise.

    Raises
    ------
    FitError
        If `moments` is another word.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> FiveSteps(moments="log").moments
    'log'
    """

    moments: str = "plain"

    def __post_init__(self) -> None:
        convert_fields(self, moments=OneOf("log", "plain"))

    @property
    def weights(self) -> type[BinWeights]:
        """Those of the components of bins."""
        return BinWeights

    def run(
        self,
        stats: Statistics,
        prior: Prior,
        model: object,
        progress: bool | None,
    ) -> tuple[xr.DataTree, Status]:
        """Return one draw of the curves, with the estimates of the bins."""
        if model is not None:
            raise FitError(
                "soc.FiveSteps() fits each bin by itself: leave model= out, or use soc.VI()"
            )
        if stats.noise_df:
            raise FitError(
                "soc.FiveSteps() takes noise sds as known: leave noise_df= out, or use soc.VI()"
            )
        with phase("fit: five steps", enabled=progress):
            _check_arguments(stats, prior, self)
            return _fit_bins(stats, prior, self.moments)


class _Estimates(NamedTuple):
    """Smooth curves, and the estimates of bins that they go through."""

    # knots and values of location and dispersion
    curves: tuple[Pair, Pair]
    location: Floats
    variance: Floats  # exp of the dispersion
    log_likelihood: Floats
    log_moments: Pair | tuple[()]  # of theta, where they can be matched
    failed: Bools
    parts: Parts | tuple[()] = ()


@dataclass(frozen=True, eq=False)
class _Bins:
    """Bins of statistics with what five steps need to know of them."""

    family: Family
    prior: Prior
    moments: str
    rows: Rows
    data: RowSums
    smoothing: Smoothing

    def singles(self, maxima: Maxima) -> _Estimates:
        """Curves through the priors of single bins."""
        pair = maxima[:2]
        logs = moments_of_log(*pair) if has_log_moments(self.family) else ()
        return _Estimates(
            curves=self.smoothing(*pair, self.moments, self.prior.monotone),
            location=maxima.location,
            variance=np.where(maxima.at_zero, 0.0, np.exp(maxima.dispersion)),
            log_likelihood=maxima.log_likelihood,
            log_moments=logs,
            failed=self.data.can_fit & np.isnan(maxima.location),
        )

    def mixtures(self, maxima: Maxima, cells: Columns) -> _Estimates:
        """Curves through mixtures of bins, and components that have the curves' moments."""
        family = self.family
        # EM begins at smooth curves, because estimates of single bins are noisy
        smooth = self.smoothing.at_bins(self.smoothing(*maxima[:2], "plain"))
        least = self.data.level()[1] + _NARROWEST
        start = smooth[0], np.maximum(smooth[1], least)
        parts, log_likelihood, ended = search(family, cells, self.rows.bin, start)
        location, variance = mixture_curves(family, *parts)
        options = self.moments, self.prior.monotone
        curves, moved = smooth_mixtures(family, self.smoothing, parts, *options)
        return _Estimates(
            curves=curves,
            location=location,
            variance=variance,
            log_likelihood=log_likelihood,
            log_moments=place_moments(*parts) if has_log_moments(family) else (),
            failed=~ended,
            parts=moved,
        )


def _fit_bins(
    stats: Statistics, prior: Prior, moments: str
) -> tuple[xr.DataTree, Status]:
    family = FAMILIES[prior.family]
    rows, data = rows_of(stats, family, most_bins=stats.bins)
    data.refuse_mean_only("soc.FiveSteps()")
    axes = [axis_of(x, stats, rows.items) for x in (prior.mean, prior.variance)]
    on_axes = [positions(axis, rows)[0] for axis in axes]
    smoothing = Smoothing(axes, on_axes, rows.n, data.information)
    bins = _Bins(
        family=family,
        prior=prior,
        moments=moments,
        rows=rows,
        data=data,
        smoothing=smoothing,
    )
    maxima = maximise(family, data)
    notes = _notes(family, data, maxima)
    if prior.mixture:
        estimates = bins.mixtures(maxima, stats.cells("joint"))
        notes.append(f"{int((~estimates.failed).sum()):,} bins by EM")
    else:
        estimates = bins.singles(maxima)
    reason = ", ".join([*notes, "smoothed"])
    number = int(estimates.failed.sum())
    if number:
        reason += f"; the search failed in {number:,} bins: use fewer bins, or soc.VI()"
    tree = _tree(stats, axes, bins, estimates)
    return tree, Status(not number, reason)


def _tree(
    stats: Statistics, axes: Sequence[Axis], bins: _Bins, estimates: _Estimates
) -> xr.DataTree:
    """The fit's `DataTree`, with the estimates of occupied bins."""
    posterior = xr.Dataset(coords={name: [0] for name in SAMPLED})
    curves = zip(bins.prior.curve_names, _KNOT_DIMS, estimates.curves, strict=True)
    for name, dim, (knots, curve) in curves:
        posterior[name] = xr.DataArray(curve[None, None], {dim: knots}, (*SAMPLED, dim))
    for name, part in zip(COMPONENTS, estimates.parts, strict=False):
        posterior[name] = (*SAMPLED, "bin", "component"), part[None, None]
    constant, observed = bin_table(stats, axes)
    # an empty bin belongs to its nearer neighbour
    occupied = bins.rows.bin
    constant["edge"] = "edge", stats.edges[(occupied[:-1] + occupied[1:] - 1) // 2]
    natural = bins.family.natural_moments(estimates.location, estimates.variance)
    values = *natural, estimates.log_likelihood, *estimates.log_moments
    per_bin = constant[["n_items"]]
    for name, value in zip(_BIN_ESTIMATES, values, strict=False):
        per_bin[name] = "bin", value
    groups = {
        "posterior": posterior,
        "observed_data": observed,
        "constant_data": constant,
        "per_bin": per_bin,
    }
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    return tree


def _notes(family: Family, data: RowSums, maxima: Maxima) -> list[str]:
    """Numbers of bins for the status, or an error if none could be fitted."""
    unfit = int((~data.can_fit).sum())
    lacks = f"without {family.outcome.words.unfit}"
    fitted = int(np.isfinite(maxima.location).sum())
    zeros = int(maxima.at_zero.sum())
    if not fitted:
        raise FitError(
            f"none of the {len(maxima.location):,} bins could be fitted ({unfit:,} {lacks}): five "
            "steps estimate each bin by itself, so use fewer bins, or soc.VI()"
        )
    notes = {
        f"{fitted:,} bins by maximum likelihood": fitted,
        f"{zeros:,} at variance 0": zeros,
        f"{unfit:,} more {lacks} left to their neighbours": unfit,
    }
    return [note for note, number in notes.items() if number]


def _check_arguments(stats: Statistics, prior: Prior, method: FiveSteps) -> None:
    """Refuse options that five steps cannot use."""
    name = type(prior).__name__
    log = method.moments == "log"
    usable = type(prior)(
        mean=Spline(scale=prior.mean.scale),
        variance=Spline(scale=prior.variance.scale),
        monotone=prior.monotone,
        groups=prior.groups,
    )
    refusals = {
        "five steps match moments of all outcomes, and truncated=True says that those of 0 are "
        "absent: use soc.VI()": stats.truncated,
        f"five steps read only scale= and monotone= of a prior, and cannot use soc.{short(prior)}: "
        "leave the rest out, or use soc.VI()": prior != usable,
        f"FiveSteps fits one curve for all items, and the statistics have {len(stats.groups):,} "
        f"groups: use method=soc.VI() for groups, pool them with soc.{name}(groups=False), or fit "
        "each group by itself": prior.groups and stats.groups,
        f'soc.{name}() has no moments of log theta: use moments="plain"': (
            log and not has_log_moments(FAMILIES[prior.family])
        ),
        f'soc.{name}() cannot be made monotone with moments="log": use moments="plain"': (
            log and prior.mixture and prior.monotone
        ),
    }
    for message, refused in refusals.items():
        if refused:
            raise FitError(message)
    if prior.mixture:
        check_joint_cells(stats, f"soc.{name}")
