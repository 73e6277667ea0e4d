"""Fits beside the truth of a simulation, bin by bin, as in the paper's Sections 5.2 and 5.3."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arguments import real, shown
from .._lib.errors import ItemsError
from ..data.items import NormalItems, PoissonItems, check_items
from ..inference.results import Fit, named_fits
from ..posterior.items import item_posteriors
from ._given_score import given_score
from .gains import score_bins

__all__ = ["TRUTH", "accuracy", "accuracy_by_bin"]

Floats = NDArray[np.float64]

TRUTH = ("theta", "true_mean", "true_variance", "oracle_mean", "oracle_variance")
"""Columns of simulated truth that `accuracy` reads."""


def accuracy(
    fits: Fit | Mapping[str, Fit],
    items: PoissonItems | NormalItems,
    *,
    bins: int = 20,
    delta: float = np.nan,
    sigma: float = np.nan,
    progress: bool = True,
) -> pd.DataFrame:
    """How near a fit comes to the truth of a simulation, by bin of score.

    Parameters
    ----------
    fits
        A fit, or fits by the name of their method.
    items
        Items over a pandas table that also has the columns of the truth: ``theta``; ``true_mean``
        and ``true_variance``, E(theta|t) and Var(theta|t); ``oracle_mean`` and ``oracle_variance``,
        E(theta|t,y) and Var(theta|t,y).
    bins
        Number of bins of score, of equal numbers of items (fewer where scores are tied); they need
        not be those of the fit.
    delta, sigma
        Parameters of the simulation, copied to the table; NaN where they are not given.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    pandas.DataFrame
        One row for each method and bin, with Monte Carlo standard errors (over items, the fit held
        fixed) under the names' ``_se``:

        - ``method``, ``delta``, ``sigma``, ``bin``, ``score`` (its mean), ``items``;
        - ``true_mean``, ``mean``, ``true_variance``, ``variance``: in-bin averages, of theta given
          t, true and fitted;
        - ``mean_error``: of (E(theta|t,y) - fitted)^2 / E(theta|t)^2; ``variance_error``: of
          (Var(theta|t,y) - fitted)^2 / E(theta|t)^4. Values may have a mean of 0: theirs are over
          Var(theta|t) and Var(theta|t)^2;
        - ``mse_t``, ``mse_true_mean``, ``mse_mean``, ``mse_posterior``, and ``mse_y`` for values:
          in-bin mean squared errors, over that of the oracle E(theta|t,y), of the score, the true
          and the fitted E(theta|t), the fitted E(theta|t,y), and y;
        - ``error_ratio``: of (fitted E(theta|t,y) - theta)^2 / fitted Var(theta|t,y);
        - ``regret`` and ``expected_ratio``: ``mse_posterior`` less 1 and ``error_ratio`` with the
          oracle's posterior in place of theta, without the luck of the draw.

        Ratios to an oracle without error are infinite or NaN, as are standard errors of one item.

    Raises
    ------
    ItemsError
        If the items are no pandas table, lack columns of the truth, or are fewer than the bins.

    Notes
    -----
    Figures of the paper's Sections 5.2 and 5.3. Where theta is far from Normal a mean of squares
    over few items has a standard error that is too small itself.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> roles = {"score": "score", "count": "count", "exposure": "exposure"}
    >>> stats = soc.summarize(soc.PoissonItems(frame, **roles), progress=False)
    >>> fit = soc.fit(stats, soc.Gamma(), soc.FiveSteps(), progress=False)
    >>> shape = 1 / frame["true_cv2"]                     # of S1's own Gamma
    >>> rate = shape / frame["true_mean"]
    >>> truth = frame.assign(
    ...     true_variance=frame["true_mean"] ** 2 * frame["true_cv2"],
    ...     oracle_mean=(shape + frame["count"]) / (rate + frame["exposure"]),
    ...     oracle_variance=(shape + frame["count"]) / (rate + frame["exposure"]) ** 2)
    >>> items = soc.PoissonItems(truth, **roles)
    >>> table = soc.evaluate.accuracy(fit, items, bins=4, progress=False)
    >>> bool((table["mse_posterior"] < table["mse_t"]).all())
    True
    """
    check_items(items)
    source = _truth(items, bins)
    for name, number in (("delta", delta), ("sigma", sigma)):
        if not (isinstance(number, float) and np.isnan(number)):
            real(number, name)
    named = named_fits(fits, type(fits.prior).__name__ if isinstance(fits, Fit) else "fit")
    tables = []
    for method, fit in named.items():
        draws: Literal["all", "representative"] = "all" if fit.one_draw else "representative"
        scored = item_posteriors(fit, items, quantiles=(), draws=draws, progress=progress)
        columns = {role: source[name].to_numpy() for role, name in items.roles.items()}
        mean, variance = given_score(fit, columns)
        table = source[list(TRUTH)].assign(
            score=columns["score"],
            mean=mean,
            variance=variance,
            theta_mean=scored["theta_mean"],
            theta_var=scored["theta_var"],
        )
        if isinstance(items, NormalItems):
            table["value"] = columns["value"]
        found = accuracy_by_bin(table, bins)
        tables.append(_labelled(found, method=method, delta=delta, sigma=sigma))
    return pd.concat(tables, ignore_index=True)


def accuracy_by_bin(table: pd.DataFrame, bins: int) -> pd.DataFrame:
    """Rows of `accuracy` from items already scored.

    Parameters
    ----------
    table
        Items: ``score``, the columns of `TRUTH`, ``mean`` and ``variance`` of theta given t as
        fitted, ``theta_mean`` and ``theta_var`` as fitted, and ``value`` where y has its unit.
    bins
        Number of bins of score.
    """
    number, mean_score = score_bins(table["score"].to_numpy(dtype=float), bins)
    own = {str(c): table[c].to_numpy(dtype=float) for c in table}
    rows = [
        {"bin": k, **_one_bin({c: v[number == k] for c, v in own.items()})}
        for k in range(len(mean_score))
    ]
    return pd.DataFrame(rows)


def _one_bin(own: Mapping[str, Floats]) -> dict[str, float]:
    """One row: averages, ratios to the oracle, and their standard errors."""
    theta, best, spread = own["theta"], own["oracle_mean"], own["oracle_variance"]
    mean, variance = own["theta_mean"], own["theta_var"]
    scale = own["true_variance"] if "value" in own else own["true_mean"] ** 2
    row: dict[str, float] = {"score": float(own["score"].mean()), "items": len(theta)}
    for name in ("true_mean", "mean", "true_variance", "variance"):
        row[name] = float(own[name].mean())
    away = (mean - best) ** 2
    averages = {
        "mean_error": away / scale,
        "variance_error": (variance - spread) ** 2 / scale**2,
        "error_ratio": (mean - theta) ** 2 / variance,
        "expected_ratio": (spread + away) / variance,
    }
    for name, values in averages.items():
        row |= _ratio(name, values, np.ones(len(values)))
    estimates = {"t": "score", "true_mean": "true_mean", "mean": "mean", "posterior": "theta_mean"}
    estimates |= {"y": "value"} if "value" in own else {}
    for name, column in estimates.items():
        row |= _ratio(f"mse_{name}", (own[column] - theta) ** 2, (best - theta) ** 2)
    return row | _ratio("regret", away, spread)


def _ratio(name: str, over: Floats, under: Floats) -> dict[str, float]:
    """Ratio of averages over items, with its standard error (delta method)."""
    ratio = over.mean() / under.mean()
    error = (over - ratio * under).std() / under.mean() / np.sqrt(len(over))
    return {name: float(ratio), f"{name}_se": float(error)}


def _labelled(table: pd.DataFrame, **labels: object) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(labels, index=table.index), table], axis=1)


def _truth(items: PoissonItems | NormalItems, bins: int) -> pd.DataFrame:
    """The items' table, once it has what is needed."""
    source = items.source
    if not isinstance(source, pd.DataFrame):
        raise ItemsError(
            f"the items are a {type(source).__name__}: beside the truth of a simulation they must "
            "be a pandas table"
        )
    missing = [c for c in TRUTH if c not in source]
    if missing:
        raise ItemsError(
            f"the table lacks {len(missing)} columns of the truth: {', '.join(missing)} (see "
            "soc.evaluate.accuracy)"
        )
    is_whole = isinstance(bins, int | np.integer) and not isinstance(bins, bool)
    if not is_whole or not 1 <= bins <= len(source):
        raise ItemsError(
            f"bins={shown(bins)} must be from 1 to the number of items, {len(source):,}"
        )
    return source
