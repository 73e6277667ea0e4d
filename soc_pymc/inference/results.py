"""The result of a fit: one immutable record of draws, configuration and status.

`Fit.data` is an `xarray.DataTree` in ArviZ's groups. It has all that scoring needs: draws of the
two curves' values at knots, and the axes of the scores.
"""

import json
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .._lib.arguments import A, OneOf, shown
from .._lib.errors import FitError
from .._lib.files import read_saved, save_netcdf
from .._lib.reprs import Rows, groups_row, html_table, lines, score_range, short
from .._model.splines import Axis
from ..data.groups import grouping_dims, has_score, is_label, roles_of
from ..families.priors import PRIORS, Prior, Spline
from ..families.scales import RANK
from .methods import NUTS, VI, FiveSteps, Method

FORMAT = "soc_pymc-fit-1"
PARETO_K = 0.7
"""Above this, the mean of importance weights is unreliable (Vehtari et al. 2024)."""


_CURVE = OneOf("mean", "variance")
_NEXT = (
    "Next: fit.summary() and soc.plots.plot_curves(fit); whether it describes the outcomes, "
    "soc.check(fit, items); every item's theta, soc.item_posteriors(fit, items)."
)


@dataclass(frozen=True)
class Status:
    """Outcome of the search for a fit.

    Attributes
    ----------
    converged
        Whether the fit can be trusted: the optimiser or sampler passed its test, and for VI the
        Pareto k of the approximation is at most 0.7.
    reason
        One sentence with the reason, and the remedy if it did not converge.
    pareto_k
        Pareto shape of the importance weights of the approximation (Yao et al. 2018); None for
        NUTS and FiveSteps.
    ess_fraction
        Effective sample of those weights over their number; None for NUTS and FiveSteps. Below 0.95
        the draws kept are resampled by the weights.
    seconds
        Elapsed time of the fit.
    mc_error
        Largest Monte Carlo standard error of NUTS's posterior means, in posterior sd; None for VI
        and FiveSteps, and where it is unknown.

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
    mc_error: float | None = None

    def _repr_html_(self) -> str:
        known = ((name, value) for name, value in vars(self).items() if value is not None)
        numbers = ((n, f"{v:.3g}" if isinstance(v, float) else v) for n, v in known)
        return html_table("Status", numbers)


@dataclass(frozen=True)
class Fit:
    """A fitted model: draws of the curves, prior, method and status.

    Attributes
    ----------
    data
        `xarray.DataTree` in ArviZ's groups, in which an observation is a bin. ``posterior`` holds
        ``log_mean`` (chain, draw, mean_knot) and ``log_cv2`` (chain, draw, variance_knot), the
        curves at their knots (``mean`` and ``log_variance`` for Normal priors), those of terms
        (``*_of_group``, ``*_by_exposure``, ``*_of_bin``, ``*_of_atom``, ``*_of_exposure_atom``),
        and the model's variables; ``constant_data`` the bins and the exact positions of the knots.
        `FiveSteps` adds ``per_bin``, the bins' own estimates; clusters add ``clusters``, the
        factors by which they widened the bands. What takes long is computed when it is first read,
        and kept: a changed tree needs a new fit, ``dataclasses.replace(fit, data=...)``.
    prior
        The prior's configuration.
    method
        The method's configuration.
    status
        See `Status`.
    selection
        Of ``soc.fit(stats, prior="auto")``, the priors from the simplest on: columns ``prior``,
        ``elpd``, ``elpd_diff``, ``dse`` and ``trust`` as in `compare`, ``chosen`` and ``reason``.
        Else None.

    Examples
    --------
    >>> fit.status.converged
    True
    """

    data: xr.DataTree
    prior: Prior
    method: Method
    status: Status
    selection: pd.DataFrame | None = field(default=None, compare=False)

    def axis(self, curve: str) -> Axis:
        """Axis of ``"mean"`` or ``"variance"``: the map from scores to the knots' positions.

        Parameters
        ----------
        curve
            ``"mean"`` or ``"variance"``.

        Returns
        -------
        Axis
            A callable from scores to positions, with its ``inverse``.

        Raises
        ------
        FitError
            If there is no such curve.

        Examples
        --------
        >>> fit.axis("mean")([1.0]).item()  # the log of the score
        0.0
        """
        scale = getattr(self.prior, _CURVE(curve, "curve")).scale
        if scale != RANK:
            return Axis(scale)

        def find() -> Axis:
            table = (self.data["constant_data"][f"rank_{x}"] for x in ("score", "fraction"))
            return Axis(scale, *(tuple(column.to_numpy()) for column in table))

        return self._once(RANK, find)

    def _once[Found](self, key: Hashable, find: Callable[[], Found]) -> Found:
        """Result of `find`, kept by a key: each look-up in the tree takes a third of a ms."""
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    @cached_property
    def _found(self) -> dict[Hashable, Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:  # copies and pickles make again what is kept
        return {name: value for name, value in self.__dict__.items() if name != "_found"}

    @property
    def one_score(self) -> bool:
        """True if all items have one score, or none."""
        return self.data["posterior"].sizes.get("mean_knot", 0) == 1 and not self.atoms

    @property
    def by_bin(self) -> bool:
        """True if curves are steps, one number for each bin."""
        return isinstance(self.method, FiveSteps) and not self.method.smooth

    @property
    def one_draw(self) -> bool:
        """True if there is only one draw, without uncertainty and leave-one-out."""
        sizes = self.data["posterior"].sizes
        return bool(sizes["chain"] * sizes["draw"] == 1)

    @property
    def mean_only(self) -> bool:
        """True if the items, such as labels, do not inform the variance of theta."""
        return bool(self.data.attrs.get("mean_only", False))

    @property
    def widened(self) -> bool:
        """True if bands of the curves were widened for clusters of items."""
        return "clusters" in self.data.children

    @cached_property
    def atoms(self) -> tuple[float, ...]:
        """Scores with their own shifts of both curves, which many items share, in order."""
        coords = self.data["posterior"].coords
        return tuple(map(float, coords["atom"].to_numpy())) if "atom" in coords else ()

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Groups with their own deviations; combinations of several columns as ``"FR × phone"``."""
        posterior = self.data["posterior"]
        return tuple(map(str, posterior["group"].to_numpy())) if "group" in posterior.coords else ()

    @cached_property
    def groupings(self) -> dict[str, tuple[str, ...]]:
        """Levels with their own deviations, by the dim of their grouping: group_1, group_2, ..."""
        coords = self.data["posterior"].coords
        return {name: tuple(map(str, coords[name].to_numpy())) for name in grouping_dims(coords)}

    def summary(self) -> pd.DataFrame:
        """The fit in a few rows: both curves, R-squared, smoothing and Pareto k.

        Returns
        -------
        pandas.DataFrame
            Columns ``quantity``, ``score`` (NaN for quantities without one), and ``lower``,
            ``median`` and ``upper``, which hold 90% of the draws. E and sd of theta given t are at
            the scores below which 5, 25, 50, 75 and 95% of the items lie; R-squared is the score's
            share of the variance of theta; the sds about a line are the curves' smoothing.

        Examples
        --------
        >>> fit.summary()["quantity"].nunique()
        6
        """
        from ..quantities.curve_values import summary

        return summary(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to one netCDF file, atomically.

        Parameters
        ----------
        path
            Name of the file; an older file of this name is replaced at the end.

        Raises
        ------
        FitError
            If `path` is not the name of a file, or the fit could not be loaded again.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import soc_pymc as soc
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(pathlib.Path(folder) / "fit.nc")
        ...     soc.load_fit(pathlib.Path(folder) / "fit.nc").method.seed
        1
        """
        tree = self.data.copy()
        records = {name: _as_json(getattr(self, name)) for name in ("prior", "method", "status")}
        if self.selection is not None:
            records["selection"] = json.dumps(self.selection.to_dict("list"))
        tree.attrs = {**tree.attrs, **records, "format": FORMAT}
        save_netcdf(tree, path, FitError)

    def __repr__(self) -> str:
        return lines(f"<soc_pymc.{self._head()}>", _fit_rows(self))

    def _repr_html_(self) -> str:
        good = self.status.converged
        rows = [("inference", "ok" if good else "fail"), *_fit_rows(self)]
        return html_table(self._head(), rows, note=_NEXT if good else self.status.reason)

    def _head(self) -> str:
        state = "converged" if self.status.converged else "NOT converged"
        made = f"{type(self.prior).__name__} by {type(self.method).__name__}"
        return f"Fit: {made}, {state}: {self.status.reason}"


def _fit_rows(fit: Fit) -> Rows:
    """Configurations, draws, items, groups and time."""
    sizes = fit.data["posterior"].sizes
    chains = f" in {sizes['chain']} chains" if sizes["chain"] > 1 else ""
    bins = fit.data["constant_data"].to_dataset()
    items = f"{int(bins['n_items'].sum()):,} in {bins.sizes['bin']:,} bins"
    table = fit.selection
    chosen = [] if table is None else [("chosen", table.loc[table["chosen"], "reason"].item())]
    return [
        ("prior", short(fit.prior)),
        *chosen,
        ("method", short(fit.method)),
        ("draws", f"{sizes['chain'] * sizes['draw']:,}{chains}"),
        ("items", items),
        ("scores", score_range(bins) if has_score(fit.data.attrs) else "none"),
        *groups_row(fit.groups),
        ("seconds", f"{fit.status.seconds:.1f}"),
    ]


FIT = A(Fit, "a fit, from soc.fit or soc.load_fit")
"""The rule for an argument that is a fit."""


def outcome_roles(attrs: Mapping[Any, Any]) -> dict[str, str]:
    """Columns of score and outcome, from the attributes of a fit or of statistics."""
    names = roles_of(attrs)
    return {r: c for r, c in names.items() if r not in ("id", "fold") and not is_label(r)}


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """Read a fit that `Fit.save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path
        Name of the netCDF file.

    Returns
    -------
    Fit
        The fit, equal to the saved one.

    Raises
    ------
    FitError
        If `path` is not the name of a file, or the file is missing, is not a saved fit, or has
        another format version.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(pathlib.Path(folder) / "fit.nc")
    ...     again = soc.load_fit(pathlib.Path(folder) / "fit.nc")
    >>> again.prior == fit.prior, again.data.equals(fit.data)
    (True, True)
    """
    tree = read_saved(path, xr.open_datatree, FORMAT, FitError, "a fit", "soc-pymc fit")
    try:
        return _read(tree)
    except (KeyError, TypeError, ValueError) as error:
        text = error.args[0] if error.args else type(error).__name__
        raise FitError(f"{path} is a damaged fit ({text}); fit again and save") from error


_RECORDS: dict[str, Any] = {kind.__name__: kind for kind in (VI, NUTS, FiveSteps, Status, *PRIORS)}


def _read(tree: xr.DataTree) -> Fit:
    """A fit from a file's arrays and attributes."""
    data, attrs = tree.copy(), dict(tree.attrs)
    records = {name: _record(attrs.pop(name)) for name in ("prior", "method", "status")}
    table = attrs.pop("selection", None)
    selection = None if table is None else pd.DataFrame(json.loads(table))
    del attrs["format"]
    data.attrs = attrs
    return Fit(data, **records, selection=selection)


def _as_json(record: Any) -> str:
    """A frozen configuration as JSON, with the name of its class."""
    content = {"name": type(record).__name__, **asdict(record)}
    return json.dumps(content, default=np.generic.item)


def _record(text: str) -> Any:
    """A configuration from the output of `_as_json`."""
    content = json.loads(text)
    kind = _RECORDS[content.pop("name")]
    return kind(**{k: Spline(**v) if isinstance(v, dict) else v for k, v in content.items()})


def named_fits(fits: Fit | Mapping[str, Fit], alone: str) -> dict[str, Fit]:
    """Fits by name; a single fit gets the name `alone`."""
    A(Fit | Mapping, "a fit, or a dict of them by name")(fits, "fits")
    by_name = {alone: fits} if isinstance(fits, Fit) else dict(fits)
    if not by_name:
        raise FitError("no fit was given: give one, or a dict of fits by name")
    for name, fit in by_name.items():
        FIT(fit, f"fits[{shown(name)}]")
    return by_name
