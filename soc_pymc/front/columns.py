"""Columns of items from the arguments of the estimator, and summaries of theta without sizes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .._lib.arguments import shown
from .._lib.arrays import Floats
from .._lib.errors import ItemsError
from ..data.groups import arguments_of
from ..data.items import ITEMS, Items
from ..families.family import family_of
from ..families.outcomes import OUTCOMES, Outcome
from ..families.priors import Prior
from ..inference.results import Fit
from ..posterior.calibration import curves_of
from ..posterior.curves import items_at_once
from ..posterior.extrapolation import warn_of_extrapolation
from ..posterior.interface import in_chunks


def as_column(X: Any) -> Any:
    """A vector of scores as a column; anything else unchanged."""
    try:
        vector = getattr(X, "ndim", None) == 1 or (isinstance(X, list | tuple) and np.ndim(X) == 1)
    except ValueError:
        raise ItemsError(f"X={shown(X)} must be numbers, one for each item") from None
    return np.asarray(X).reshape(-1, 1) if vector else X


def successes(y: Any, pos_label: object) -> Floats:
    """Labels as 1 where they are that of a success, else 0."""
    labels = pd.Series(np.asarray(y).ravel())
    others = pd.unique(labels[(labels != pos_label).to_numpy()])
    if len(others) > 1 or labels.isna().any():
        raise ItemsError(
            f"y has the labels {shown(others.tolist())} besides pos_label={shown(pos_label)}: give "
            "two labels, none missing"
        )
    return np.asarray(labels == pos_label, dtype=np.float64)


def as_items(outcome: Outcome, columns: Mapping[str, Any], labels: Mapping[str, Any]) -> Items:
    """Items in an Arrow table with a column for each role."""
    import pyarrow as pa

    names = {"score": "t", outcome.observed: "y", outcome.size: outcome.size}
    roles = {role: names[role] for role in columns} | {name: name for name in labels}
    values = {names[role]: column for role, column in columns.items()} | dict(labels)
    items: Items = ITEMS[outcome.kind](pa.table(values), **arguments_of(roles))
    return items


def label_columns(name: str, labels: Any, score: Floats) -> list[Any]:
    """Arrow columns of the labels of groups or clusters; the items check them."""
    import pyarrow as pa

    array = np.asarray(labels)
    if array.ndim not in (1, 2) or len(array) != len(score) or not array.size:
        raise ItemsError(
            f"{name} has the shape {array.shape}: give {len(score):,} labels, as X has, or of "
            "several groups a column of them for each"
        )
    try:
        return [pa.array(column.tolist()) for column in array.reshape(len(score), -1).T]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ItemsError(f"{name} holds labels that are not of one type ({error})") from error


def per_item(name: str, values: Any, score: Floats) -> Floats:
    """Exposures or noise sds, one for each item; the items check their values."""
    expected = "a number, or one for each item"
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ItemsError(f"{name}={shown(values)} must be {expected}") from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape not in ((), score.shape):
        raise ItemsError(f"{name} has the shape {array.shape}: give {expected}, {len(score):,}")
    return np.broadcast_to(array, score.shape).copy()


def kind_of(prior: Any, sizes: Mapping[str, Any], labels: bool) -> Outcome:
    """The kind of outcomes: by their sizes, by the prior, by being labels, else counts."""
    kinds = [kind for kind in OUTCOMES.values() if sizes[kind.size] is not None]
    if len(kinds) > 1:
        names = ", ".join(f"{kind.size}= ({kind.words.outcomes})" for kind in kinds)
        raise ItemsError(f"outcomes must be of one kind, but there are {names}: give one of them")
    suited = family_of(prior).outcome if isinstance(prior, Prior) else None
    if not kinds and suited is not None and suited.usual_size is not None:
        return suited
    outcome = kinds[0] if kinds else OUTCOMES["binomial" if labels else "poisson"]
    if suited not in (None, outcome):
        raise ItemsError(
            f"soc.{type(prior).__name__} is a prior for {suited.words.items}: give {suited.size}="
        )
    return outcome


def over_sizes(fit: Fit, columns: Mapping[str, Any]) -> Floats:
    """Mean, sd and variance of theta given t over the sizes of items with similar scores."""
    warn_of_extrapolation(fit, columns["score"])

    def summarized(part: Any) -> Floats:
        curves, draws = curves_of(fit, part["score"], part.get("group")), ("chain", "draw")
        mean = curves["mean"].mean(draws)
        variance = curves["variance"].mean(draws) + curves["mean"].var(draws)
        return np.array([mean, variance**0.5, variance])

    return in_chunks(summarized, items_at_once(fit), columns)
