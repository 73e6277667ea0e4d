"""Fits bin by bin of the score: PIT histograms, and errors beside the truth of a simulation.

Figures of the paper's Sections 5.1 (p-histograms), 5.2 and 5.3.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import SEED, Real, Whole, checked, refuse_beyond_memory
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsError
from ..checks.predictive import in_batches, predictive_cdf, randomised_pit
from ..data.items import Items, check_outcomes
from ..families.outcomes import OUTCOMES, Outcome
from ..inference.results import Fit, named_fits
from ..posterior.curves import is_plain, items_at_once
from ..posterior.interface import Columns
from ..posterior.item_columns import frame_columns, read_items
from ..posterior.items import item_posteriors
from ..posterior.predictive import posterior_of
from .thinning import stream

TRUTH = ("theta", "true_mean", "true_variance", "oracle_mean", "oracle_variance")
"""Columns of simulated truth that `accuracy` reads."""
_GRID = 2000  # scores at which draws of curves are evaluated; they are smooth between them


def score_bins(score: Floats, bins: int) -> tuple[Ints, Floats]:
    """Bins of scores with equal numbers of items, fewer where scores are tied.

    Returns the bin of each item, (n,), and the mean score of each bin.
    """
    bins = min(bins, len(score))
    cuts = np.unique(np.quantile(score, np.arange(1, bins) / bins, method="higher"))
    _, bin_of = np.unique(np.searchsorted(cuts, score, side="right"), return_inverse=True)
    return bin_of, np.bincount(bin_of, score) / np.bincount(bin_of)


def given_score(fit: Fit, columns: Mapping[str, NDArray[np.generic]]) -> tuple[Floats, Floats]:
    """Fitted E(theta | t) and Var(theta | t) of items by role, averaged over the draws, each (n,).

    Many draws of curves that depend on the score alone are evaluated on a grid and joined by lines.
    """
    posterior = posterior_of(fit)
    score = np.asarray(columns["score"], dtype=float)
    step = items_at_once(fit)
    if is_plain(fit) and len(score) > step:
        axis = fit.axis("mean")
        position = axis(score)
        quantiles = np.quantile(position, np.linspace(0, 1, _GRID))
        even = np.linspace(position.min(), position.max(), _GRID // 4)
        grid = np.unique(np.concatenate([quantiles, even]))
        curves = posterior.curves(axis.inverse(grid))
        mean, variance = (curves[c].mean(axis=0) for c in ("mean", "variance"))
        scale = posterior.outcome.theta
        mean = scale.score(np.interp(position, grid, scale.position(mean)))
        return mean, np.exp(np.interp(position, grid, np.log(variance)))

    def averages(part: Columns) -> list[Floats]:
        curves = posterior.curves(part["score"], part.get("group"), part["size"])
        return [curves[c].mean(axis=0) for c in ("mean", "variance")]

    own = {"score": score, "size": np.asarray(columns[posterior.outcome.size], dtype=float)}
    if "group" in columns:
        own["group"] = np.asarray(columns["group"], dtype=object)
    mean, variance = in_batches("curves", own, step, False, averages)
    return mean, variance


# --- PIT histograms ------------------------------------------------------------------------------


@checked(bins=Whole(1), cells=Whole(1), seed=SEED, least_size=Real(above=-1))
def pit_histograms(
    fit: Fit,
    items: Items,
    *,
    bins: int = 20,
    least_size: float = 0.0,
    cells: int = 20,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Histograms of the randomised PIT of outcomes, by bin of the score (Section 5.1).

    PIT are averaged over the curves' uncertainty and randomised between P(Y < y) and P(Y <= y). If
    the model is right each histogram is flat up to noise: its cells have variance cells / n_items.
    Small exposures make flat histograms whatever the model is: `least_size` leaves them out.

    Parameters
    ----------
    fit, items
        The fit, and items of its kind: those of the fit or others.
    bins
        Bins of the score, with equal numbers of items; fewer where scores are tied.
    least_size
        Items with a smaller exposure are left out; of counts alone. Bins do not depend on it.
    cells
        Cells of each histogram, from 0 to 1.
    seed, progress
        Seed of the randomisation, and whether to show progress.

    Returns
    -------
    xarray.Dataset
        ``density`` (bin, p), 1 where flat and NaN in bins without items; ``n_items`` (bin); and
        coordinates ``score`` (bin), the mean score, and ``p``, the middles of the cells.

    Raises
    ------
    FitError
        If `least_size` is given for values, `bins` or `cells` is not positive, or there are more
        cells than memory holds.
    ItemsError
        If the items are not valid or not of the fit's kind.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> found = soc.evaluate.pit_histograms(fit, items, bins=5, cells=10)
    >>> dict(found["density"].sizes)
    {'bin': 5, 'p': 10}
    """
    posterior = posterior_of(fit)
    outcome = posterior.outcome
    if least_size and not outcome.sizes_add:
        raise FitError(
            f"least_size={least_size} is of exposures, and these items have "
            f"{outcome.words.outcomes} with {outcome.words.sizes}: choose among them before"
        )
    columns, _ = read_items(fit, posterior, items, (), progress)
    ends = predictive_cdf(posterior, columns, progress=progress)
    pit = randomised_pit(*ends, stream(seed, "PIT"))
    bin_of, score = score_bins(columns["score"], bins)
    refuse_beyond_memory(24.0 * cells * len(score), f"cells={cells:,}", "ask for fewer")
    kept = columns[outcome.size] >= least_size
    density, n_items = pit_densities(pit[kept], bin_of[kept], len(score), cells)
    coords = {"score": ("bin", score), "p": (np.arange(cells) + 0.5) / cells}
    return xr.Dataset(
        {"density": (("bin", "p"), density), "n_items": ("bin", n_items)},
        {"bin": np.arange(len(score)), **coords},
    )


def pit_densities(pit: Floats, bin_of: Ints, bins: int, cells: int) -> tuple[Floats, Ints]:
    """Densities of histograms of PIT values, (bins, cells), and the number of items in each."""
    cell = np.minimum((pit * cells).astype(np.int64), cells - 1)
    number = np.bincount(bin_of * cells + cell, minlength=bins * cells).reshape(bins, cells)
    n_items = number.sum(axis=1)
    density = np.full((bins, cells), np.nan)
    some = n_items > 0
    density[some] = cells * number[some] / n_items[some, None]
    return density, n_items


# --- the truth of a simulation -------------------------------------------------------------------


def accuracy(
    fits: Fit | Mapping[str, Fit],
    items: Items,
    *,
    bins: int = 20,
    delta: float = np.nan,
    sigma: float = np.nan,
    progress: bool | None = None,
) -> pd.DataFrame:
    """How near a fit comes to the truth of a simulation, by bin of score.

    Parameters
    ----------
    fits
        A fit, or fits by the name of their method.
    items
        Items over a pandas table that also has the columns of the truth: ``theta``; ``true_mean``
        and ``true_variance`` given t; ``oracle_mean`` and ``oracle_variance`` given t and y.
    bins, progress
        As of `pit_histograms`.
    delta, sigma
        Parameters of the simulation, copied to the table; NaN where they are not given.

    Returns
    -------
    pandas.DataFrame
        One row for each method and bin, with Monte Carlo standard errors (over items, the fit held
        fixed) under the names' ``_se``:

        - ``method``, ``delta``, ``sigma``, ``bin``, ``score`` (its mean), ``items``;
        - ``true_mean``, ``mean``, ``true_variance``, ``variance``: in-bin averages, of theta given
          t, true and fitted;
        - ``mean_error``: of (E(theta | t, y) - fitted)^2 / E(theta | t)^2; ``variance_error``: of
          (Var(theta | t, y) - fitted)^2 / E(theta | t)^4. Values may have a mean of 0: theirs are
          over Var(theta | t) and Var(theta | t)^2;
        - ``mse_t``, ``mse_true_mean``, ``mse_mean``, ``mse_posterior``, and ``mse_y`` for values:
          in-bin mean squared errors, over that of the oracle E(theta | t, y), of the score, the
          true and the fitted E(theta | t), the fitted E(theta | t, y), and y;
        - ``error_ratio``: of (fitted E(theta | t, y) - theta)^2 / fitted Var(theta | t, y);
        - ``regret`` and ``expected_ratio``: ``mse_posterior`` minus 1 and ``error_ratio`` with the
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
    >>> stats = soc.summarize(soc.PoissonItems(frame, **roles))
    >>> fit = soc.fit(stats, soc.Gamma(), soc.FiveSteps())
    >>> shape = 1 / frame["true_cv2"]                     # of S1's own Gamma
    >>> rate = shape / frame["true_mean"]
    >>> truth = frame.assign(
    ...     true_variance=frame["true_mean"] ** 2 * frame["true_cv2"],
    ...     oracle_mean=(shape + frame["count"]) / (rate + frame["exposure"]),
    ...     oracle_variance=(shape + frame["count"]) / (rate + frame["exposure"]) ** 2)
    >>> items = soc.PoissonItems(truth, **roles)
    >>> table = soc.evaluate.accuracy(fit, items, bins=4)
    >>> bool((table["mse_posterior"] < table["mse_t"]).all())
    True
    """
    check_outcomes(items)
    source = _truth(items, bins)
    for name, number in (("delta", delta), ("sigma", sigma)):
        if not (isinstance(number, float) and np.isnan(number)):
            Real()(number, name)
    named = named_fits(fits, type(fits.prior).__name__ if isinstance(fits, Fit) else "fit")
    outcome = OUTCOMES[items.kind]
    tables = []
    for method, fit in named.items():
        scored = item_posteriors(fit, items, quantiles=(), progress=progress)
        columns = frame_columns(fit, posterior_of(fit), items)
        mean, variance = given_score(fit, columns)
        table = source[list(TRUTH)].assign(mean=mean, variance=variance)
        table[["theta_mean", "theta_var"]] = scored[["theta_mean", "theta_var"]].to_numpy()
        for role in ("score", outcome.observed):
            table[role] = columns[role]
        found = accuracy_by_bin(table, bins, outcome)
        labels = pd.DataFrame({"method": method, "delta": delta, "sigma": sigma}, found.index)
        tables.append(pd.concat([labels, found], axis=1))
    return pd.concat(tables, ignore_index=True)


def accuracy_by_bin(table: pd.DataFrame, bins: int, outcome: Outcome) -> pd.DataFrame:
    """Rows of `accuracy` from items already scored.

    The table has ``score``, the columns of `TRUTH`, ``mean`` and ``variance`` of theta given t as
    fitted, ``theta_mean`` and ``theta_var`` as fitted, and outcomes by their role.
    """
    number, mean_score = score_bins(table["score"].to_numpy(dtype=float), bins)
    own = {str(c): table[c].to_numpy(dtype=float) for c in table}
    rows = [
        {"bin": k, **_one_bin({c: v[number == k] for c, v in own.items()}, outcome)}
        for k in range(len(mean_score))
    ]
    return pd.DataFrame(rows)


def _one_bin(own: Mapping[str, Floats], outcome: Outcome) -> dict[str, float]:
    """One row: averages, ratios to the oracle, and their standard errors."""
    theta, best, spread = own["theta"], own["oracle_mean"], own["oracle_variance"]
    mean, variance = own["theta_mean"], own["theta_var"]
    unit = outcome.forms.unit(own["true_mean"], own["true_variance"])
    row: dict[str, float] = {"score": float(own["score"].mean()), "items": len(theta)}
    for name in ("true_mean", "mean", "true_variance", "variance"):
        row[name] = float(own[name].mean())
    away = (mean - best) ** 2
    averages = {
        "mean_error": away / unit,
        "variance_error": (variance - spread) ** 2 / unit**2,
        "error_ratio": (mean - theta) ** 2 / variance,
        "expected_ratio": (spread + away) / variance,
    }
    for name, values in averages.items():
        row |= _ratio(name, values, np.ones(len(values)))
    estimates = {"t": "score", "true_mean": "true_mean", "mean": "mean", "posterior": "theta_mean"}
    estimates |= {"y": outcome.observed} if outcome.direct else {}
    for name, column in estimates.items():
        row |= _ratio(f"mse_{name}", (own[column] - theta) ** 2, (best - theta) ** 2)
    return row | _ratio("regret", away, spread)


def _ratio(name: str, over: Floats, under: Floats) -> dict[str, float]:
    """Ratio of averages over items, with its standard error (delta method)."""
    ratio = over.mean() / under.mean()
    error = (over - ratio * under).std() / under.mean() / np.sqrt(len(over))
    return {name: float(ratio), f"{name}_se": float(error)}


def _truth(items: Items, bins: int) -> pd.DataFrame:
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
    Whole(1, len(source))(bins, "bins", ItemsError)
    return source
