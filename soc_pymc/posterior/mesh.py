"""Quantiles of many items that are alike, interpolated on a mesh of score, size and outcome."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.interpolate import RegularGridInterpolator

from .._lib.arrays import Columns, Floats, Ints
from ..fits.curves import Curves
from .item_columns import Scorer, own_outcomes, select

# points along each axis of a mesh of 1, 2 or 3 (score, size, outcome), and least number of items
_POINTS = (0, 20, 20, 12)
_LEAST_ITEMS = 80
# least size, and least quantile as a share of the mean
_TINY = 1e-300
_SMALL = 1e-4
# items that prove a mesh; error allowed, in widths of the interval
_SAMPLE = 40
_WITHIN = 0.02


def interpolated(
    curves: Curves, score: Scorer, moments: Scorer, columns: Columns, items: Ints
) -> Iterator[tuple[Ints, Floats]]:
    """Yield alike items among some, and their rows: of all draws, with quantiles of a mesh.

    Alike are items of one atom, group and count; of several counts if these are not close enough.
    """
    keys = pd.DataFrame({"atom": curves.atom(columns["score"][items])})
    keys["group"] = columns["group"][items] if curves.groups else ""
    roles = [["atom", "group"]]
    if curves.outcome.positive:
        keys["outcome"] = own_outcomes(curves.outcome, columns)[0][items]
        roles = [["atom", "group", "outcome"], *roles]
    keys.index = pd.Index(items)
    for by in roles:
        done: list[Ints] = []
        for alike in keys.groupby(by).groups.values():
            part = alike.to_numpy()
            rows = _on_mesh(curves, score, moments, select(columns, part))
            if rows is not None:
                yield part, rows
                done.append(part)
        if done:
            keys = keys.drop(np.concatenate(done))


def _on_mesh(
    curves: Curves, score: Scorer, moments: Scorer, columns: Columns
) -> Floats | None:
    """Rows with interpolated quantiles; None if items are few or these are not close enough."""
    if len(columns["score"]) < _LEAST_ITEMS:
        return None
    positive = curves.outcome.positive
    outcome, size = own_outcomes(curves.outcome, columns)
    centre, unit = _expected(curves, columns)
    surprise = ((np.log1p(outcome) if positive else outcome) - centre) / unit
    position = curves.position("mean", columns["score"])
    at_items = np.column_stack([position, np.log(size + _TINY), surprise])
    axes_values = columns["score"], size, outcome
    varied = [k for k, values in enumerate(axes_values) if np.ptp(values) > 0.0]
    points = at_items[:, varied]
    axes = [np.linspace(x.min(), x.max(), _POINTS[len(varied)]) for x in points.T]
    mesh = np.meshgrid(*axes, indexing="ij")
    if not axes or 2 * mesh[0].size + _SAMPLE > len(points):
        return None
    at_mesh = dict(zip(varied, map(np.ravel, mesh), strict=True))
    shape = _shape(score(_at_places(curves, columns, at_mesh)), positive)
    if not np.isfinite(shape).all():
        return None
    on_mesh = shape.T.reshape(*mesh[0].shape, -1)
    shape = RegularGridInterpolator(axes, on_mesh, "cubic")(points).T
    sample = np.linspace(0, len(points) - 1, _SAMPLE).astype(int)
    proof = score(select(columns, sample))
    width = np.ptp(proof[3:], axis=0) if len(proof) > 4 else proof[1]
    gap = _quantiles(proof, shape[:, sample], positive) - proof[3:]
    if not (np.abs(gap) <= _WITHIN * width).all():
        return None
    rows = moments(columns)
    return np.vstack([rows, _quantiles(rows, shape, positive)])


def _at_places(curves: Curves, columns: Columns, places: dict[int, Floats]) -> Columns:
    """Items at places of a mesh, which share all else with these."""
    outcome = curves.outcome
    number = len(next(iter(places.values())))
    items = {name: np.repeat(values[:1], number) for name, values in columns.items()}
    if 0 in places:
        items["score"] = curves.axis("mean").inverse(places[0])
    if 1 in places:
        items[outcome.size] = np.exp(places[1])
    if 2 in places:
        centre, unit = _expected(curves, items)
        values = centre + unit * places[2]
        if outcome.positive:
            most = items[outcome.size] if curves.family.name == "Beta" else np.inf
            values = np.clip(np.expm1(values), 0.0, most)
        items[outcome.observed] = values
    return items


def _expected(curves: Curves, columns: Columns) -> tuple[Floats, Floats]:
    """Expected outcome, of counts as log(1 + y), and the unit of departures from it."""
    size = own_outcomes(curves.outcome, columns)[1]
    average = curves.average(columns["score"], columns.get("group"), size)
    theta = curves.family.curve_variables(*average)
    if curves.outcome.positive:
        return np.log1p(size * theta["mean"]), np.ones(len(size))
    return theta["mean"], np.hypot(size, np.sqrt(theta["variance"]))


def _shape(rows: Floats, positive: bool) -> Floats:
    """Quantiles without the scale of the posterior."""
    mean, sd, _, *quantiles = rows
    if positive:
        return np.log(np.maximum(np.array(quantiles) / mean, _SMALL))
    return (np.array(quantiles) - mean) / sd


def _quantiles(rows: Floats, shape: Floats, positive: bool) -> Floats:
    """Inverse of `_shape`."""
    return rows[0] * np.exp(shape) if positive else rows[0] + rows[1] * shape
