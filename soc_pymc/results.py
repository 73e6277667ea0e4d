"""The result of a fit: one immutable record of draws, configuration and status.

`Fit.data` is an `xarray.DataTree` in ArviZ's groups. All that scoring needs is in it: the values at
knots of the two curves, draw by draw, and the axes that place a score among the knots.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

from .errors import FitError
from .files import read_saved, save_netcdf
from .methods import NUTS, VI, FiveSteps
from .priors import Gamma, GammaMixture, Normal, NormalMixture, Spline
from .splines import Axis

__all__ = [
    "COMPONENTS",
    "CURVES",
    "CURVES_BY_BIN",
    "FORMAT",
    "FRAME",
    "PARETO_K",
    "Fit",
    "Method",
    "Prior",
    "Status",
    "load_fit",
    "outcome_roles",
]

FORMAT = "soc_pymc-fit-1"
_OUTCOME_ROLES = ("score", "count", "exposure", "value", "noise_sd")
PARETO_K = 0.7
"""Above it importance weights have no reliable mean (Vehtari et al. 2024)."""
Method = VI | NUTS | FiveSteps
_METHODS: dict[str, type[Method]] = {m.__name__: m for m in (VI, NUTS, FiveSteps)}
Prior = Gamma | Normal | GammaMixture | NormalMixture
_PRIORS: dict[str, type[Prior]] = {
    p.__name__: p for p in (Gamma, Normal, GammaMixture, NormalMixture)
}
CURVES = {"Gamma": ("log_mean", "log_cv2"), "Normal": ("mean", "log_variance")}
"""Names of a prior's two curves in the posterior."""
CURVES_BY_BIN = {"Gamma": ("shape", "rate"), "Normal": ("mean", "variance")}
"""The same where curves are steps, a number for each bin (``soc.FiveSteps(smooth=False)``)."""
COMPONENTS = ("weight", "component_place", "component_sd")
"""Names of what five-step mixtures keep of each bin's components, dims bin and component.

Their places are those of E(log theta) less log E(theta|t), or of E(theta) less E(theta|t)."""
FRAME = ("frame_first", "frame_second")
"""Names of the two curves of a mixture's frame, on the scales of its own family."""


@dataclass(frozen=True)
class Status:
    """How a fit ended.

    Attributes
    ----------
    converged
        Whether the fit may be trusted: the optimiser or sampler met its own test, and for VI the
        Pareto k of the approximation is at most 0.7.
    reason
        One sentence that says why, and what to do where it did not converge.
    pareto_k
        Pareto shape of the importance weights of the approximation (Yao et al. 2018); None for
        NUTS and FiveSteps.
    ess_fraction
        Effective sample of those weights over their number; None for NUTS and FiveSteps. Below 0.8
        the draws kept are resampled by the weights.
    seconds
        Wall time of the fit.

    Examples
    --------
    >>> Status(False, "it stopped early", None, None, 1.5).converged
    False
    """

    converged: bool
    reason: str
    pareto_k: float | None
    ess_fraction: float | None
    seconds: float


@dataclass(frozen=True)
class Fit:
    """A fitted model: draws of the curves, the prior and method that made them, and the status.

    Attributes
    ----------
    data
        `xarray.DataTree` in ArviZ's groups. ``posterior`` holds ``log_mean`` (chain, draw,
        mean_knot) and ``log_cv2`` (chain, draw, variance_knot), the curves' values at their knots
        (``mean`` and ``log_variance`` for Normal priors), those of groups (``*_of_group``), of a
        term in exposure (``*_by_exposure``) and of bins (``*_of_bin``) where there are such, and
        the model's own variables; ``constant_data`` the bins; ``observed_data`` their outcomes.
        `FiveSteps` adds ``per_bin``, the bins' own estimates.
    prior
        The prior's configuration.
    method
        The method's configuration.
    status
        See `Status`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
    >>> fit.status.converged
    True
    """

    data: xr.DataTree
    prior: Prior
    method: Method
    status: Status

    def axis(self, curve: str) -> Axis:
        """Axis of ``"mean"`` or ``"variance"``: the map from scores to the knots' positions."""
        scale = getattr(self.prior, curve).scale
        if scale != "rank":
            return Axis(scale)
        bins = self.data["constant_data"]
        return Axis(
            scale, tuple(bins["rank_score"].to_numpy()), tuple(bins["rank_fraction"].to_numpy())
        )

    @property
    def by_bin(self) -> bool:
        """Whether curves are steps, one number for each bin."""
        return isinstance(self.method, FiveSteps) and not self.method.smooth

    @property
    def one_draw(self) -> bool:
        """Whether there is but one draw: it knows no uncertainty, and no item to leave out."""
        sizes = self.data["posterior"].sizes
        return bool(sizes["chain"] * sizes["draw"] == 1)

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups with deviations of their own; none where groups were pooled or there are none."""
        posterior = self.data["posterior"]
        return tuple(map(str, posterior["group"].to_numpy())) if "group" in posterior.coords else ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to one netCDF file, whole or not at all.

        Parameters
        ----------
        path
            Name of the file; an older file of this name is replaced at the end.
        """
        tree = self.data.copy()
        tree.attrs = {
            **tree.attrs,
            "format": FORMAT,
            "prior": json.dumps({"name": type(self.prior).__name__, **asdict(self.prior)}),
            "method": json.dumps({"name": type(self.method).__name__, **asdict(self.method)}),
            "status": json.dumps(asdict(self.status)),
        }
        save_netcdf(tree, path)

    def __repr__(self) -> str:
        sizes = self.data["posterior"].sizes
        state = "converged" if self.status.converged else "NOT converged"
        return (
            f"<soc_pymc.Fit: {type(self.prior).__name__} by {type(self.method).__name__}, "
            f"{sizes['chain'] * sizes['draw']:,} draws, {state}: {self.status.reason}>"
        )


def outcome_roles(attrs: Mapping[Any, Any]) -> dict[str, str]:
    """Columns of score and outcome, from the attributes of a fit or of statistics.

    Groups, ids and folds may differ between a fit and statistics that it is used with.
    """
    names: dict[str, str] = json.loads(attrs.get("roles", "{}"))
    return {role: names[role] for role in _OUTCOME_ROLES if role in names}


def _spline(fields: Mapping[str, Any]) -> Spline:
    pairs: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return Spline(**pairs)


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """Read a fit that `Fit.save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path
        Name of the netCDF file.

    Raises
    ------
    FitError
        If the file is missing, is not a saved fit, or has another format version.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, progress=False)
    >>> fit = soc.fit(stats, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(pathlib.Path(folder) / "fit.nc")
    ...     again = soc.load_fit(pathlib.Path(folder) / "fit.nc")
    >>> again.prior == fit.prior, again.data.equals(fit.data)
    (True, True)
    """
    tree = read_saved(path, xr.open_datatree, FORMAT, FitError, "a fit", "soc-pymc fit")
    try:
        prior = json.loads(tree.attrs["prior"])
        method = json.loads(tree.attrs["method"])
        status = Status(**json.loads(tree.attrs["status"]))
        made_of = _prior(prior)
        made_by = _METHODS[method.pop("name")](**method)
        _check_curves(tree, type(made_of).__name__, made_by)
    except (KeyError, TypeError, ValueError) as error:
        raise FitError(f"{path} is a damaged fit ({error}); fit again and save") from error
    for name in ("format", "prior", "method", "status"):
        del tree.attrs[name]
    return Fit(tree, made_of, made_by, status)


def _prior(fields: dict[str, Any]) -> Prior:
    """A prior's configuration from what was saved of it."""
    kind = _PRIORS[fields.pop("name")]
    splines: dict[str, Any] = {
        k: _spline(v) if isinstance(v, dict) else v for k, v in fields.items()
    }
    return kind(**splines)


def _check_curves(tree: xr.DataTree, prior: str, method: Method) -> None:
    posterior = tree["posterior"]
    for name, own in _kept(prior, method).items():
        if posterior[name].dims != ("chain", "draw", *own):
            raise ValueError(f"{name} has dims {posterior[name].dims}")
        if not np.isfinite(posterior[name].to_numpy()).all():
            raise ValueError(f"{name} has values that are not finite")


def _kept(prior: str, method: Method) -> dict[str, tuple[str, ...]]:
    """Variables without which nothing can be scored, with their own dims."""
    first, second = CURVES.get(prior, FRAME)
    kept: dict[str, tuple[str, ...]] = {first: ("mean_knot",), second: ("variance_knot",)}
    if isinstance(method, FiveSteps):
        if not method.smooth:
            kept = dict.fromkeys(CURVES_BY_BIN[prior.removesuffix("Mixture")], ("bin",))
        if prior not in CURVES:
            kept |= dict.fromkeys(COMPONENTS, ("bin", "component"))
    elif prior not in CURVES:
        kept["tilt"] = ("tilt_knot", "tilt_function")
    return kept
