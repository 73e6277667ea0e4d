"""Posterior of every item's theta given its score and outcome, over the curves' uncertainty.

Given a draw of the curves, at the item's score, it is a closed form (for counts under a Gamma
prior, Gamma(shape(t) + y, rate(t) + N)); over draws it is an equal mixture.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from .._lib.arguments import PROBABILITY, PROGRESS, OneOf, path_of, shown
from .._lib.errors import FitError, ItemsError
from .._lib.progress import Phase, is_shown, phase
from .._lib.threads import ordered_map
from ..data.groups import MARK, NO_SCORE, group_roles
from ..data.items import Items, check_items
from ..data.sources import batches, column_names, kind_of, open_table, readable, to_ibis
from ..data.validation import check_types, scan
from ..families.outcomes import OUTCOMES
from ..inference.results import Fit
from ..prior_table import quantile_name
from .curves import P_ZERO, Extrapolation
from .files import (
    file_record,
    is_finished,
    is_folder,
    targets_in_folder,
    the_target,
    write_scored,
)
from .item_columns import Columns, Scorer, columns_of, own_outcomes, posterior_roles
from .predictive import posterior_of
from .prior_build import fit_digest

_log = logging.getLogger(__name__)
_BATCH, _BATCH_OF_FEW = 100_000, 1 << 18  # items per batch, with all draws and with few nodes
_WIDE = 32  # columns beyond which batches are smaller
_COPIED = ("files", "ibis", "stream")  # kinds of tables that come back as new ones
DRAWS = ("auto", "all")


def item_posteriors(
    fit: Fit,
    items: Items,
    *,
    quantiles: Sequence[float] = (0.05, 0.95),
    draws: Literal["auto", "all"] = "auto",
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Any:
    """Posterior mean, sd, variance and quantiles of every item, added to the user's table.

    Parameters
    ----------
    fit
        The fit.
    items
        Items to score: those of the fit or others of the same kind. Without a column of outcomes
        they get theta given the score alone (and the group, and the exposure or noise sd if the
        prior depends on it). A new group gets the shared curves with the uncertainty of a group.
    quantiles
        Probabilities of the quantile columns, each between 0 and 1.
    draws
        ``"all"`` uses every draw of the curves for every item. ``"auto"`` scores by the prior table
        of `export_prior`, and over all draws where the table flags an item and for quantiles beyond
        0.005 and 0.995: within 2e-3 posterior sd of ``"all"`` for 99 of 100 items (for mixtures and
        terms 5e-3, quantiles 1e-2), except quantiles that are about to jump to a spike at zero.
    out
        Parquet file (``*.parquet``) to stream to; it appears under its name when it is complete. Or
        a folder (an existing one, or a name that ends with a slash): each file of items gets a file
        of the same name there, and a later run makes only what is missing or was made from another
        fit, other options or another version of the file.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    table or pathlib.Path
        The user's columns and ``theta_mean``, ``theta_sd``, ``theta_var`` and, by percent,
        ``theta_q05``, ``theta_q97_5``, in the unit of theta; for a prior with ``zero=True`` also
        ``p_zero`` = P(theta = 0 | t, y). A pandas, Polars, Arrow or Ibis table comes back as its
        kind, others as an Arrow table; with `out`, the path.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind, lack its groups, or have one of the
        new columns. For a folder the error names the file, and finished files stay.
    FitError
        If a quantile is not between 0 and 1, a score has no position on the fit's axis, or items
        without outcomes name no exposure (noise sd) although the prior depends on it.

    Warns
    -----
    ItemsWarning
        Once, if scores are outside the fit's range by more than a tenth of that range.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> scored = soc.item_posteriors(fit, items, quantiles=(0.5,))
    >>> list(scored.columns[-4:])
    ['theta_mean', 'theta_sd', 'theta_var', 'theta_q50']
    """
    probs = probabilities(quantiles)
    OneOf(*DRAWS)(draws, "draws")
    if out is not None:
        path_of(out, "out", ItemsError)
    PROGRESS(progress, "progress")
    posterior = posterior_of(fit)
    roles = posterior_roles(fit, items, check_items)
    size = posterior.outcome.size
    if fit.prior.exposure is not None and size not in roles:
        raise FitError(
            f"theta depends on the {posterior.outcome.words.size} in this fit: give the items "
            f"{size}= too, expected ones if nothing is observed yet"
        )
    _log.debug("scoring %r with draws=%r", items, draws)
    names = ["theta_mean", "theta_sd", "theta_var", *map(quantile_name, probs)]
    names += [P_ZERO] * fit.prior.zero
    group = items.group if fit.groups else None
    items = replace(items, group=group, id=None, fold=None, cluster=None, date=None)
    copied = out is not None or kind_of(items.source) in _COPIED
    table = _open_checked(items, names, copied)
    score = posterior.scorer(probs, draws)
    batch = (_BATCH_OF_FEW if draws == "auto" else _BATCH) * _WIDE
    scoring = _Scoring(names, score, batch // max(_WIDE, len(table.columns)), Extrapolation(fit))
    try:
        if out is not None and is_folder(out):
            options = {"quantiles": probs, "draws": draws, "roles": roles}
            record = partial(file_record, {**options, "fit": fit_digest(fit)})
            return _score_folder(items, Path(out), scoring, record, progress)
        target = None if out is None else the_target(Path(out), items.source)
        with readable(items.source):
            total = int(table.count().to_pyarrow().as_py()) if is_shown(progress) else None
        with phase("item posteriors", total=total, unit="items", enabled=progress) as running:
            scored = scoring.batches(table, items, running)
            if target is None:
                return _attached(items.source, scored, names)
            write_scored(scored, target, names)
            return target
    finally:  # after an error too, because finished files of a folder are not scored again
        scoring.far.warn()


def probabilities(quantiles: Sequence[float]) -> tuple[float, ...]:
    """Checked probabilities of quantiles."""
    if isinstance(quantiles, str | bytes | Mapping) or not isinstance(quantiles, Iterable):
        raise FitError(
            f"quantiles={shown(quantiles)} must be a list of numbers between 0 and 1, such as "
            "(0.05, 0.95)"
        )
    probs = tuple(PROBABILITY(p, "one of quantiles") for p in quantiles)
    if len({quantile_name(p) for p in probs}) < len(probs):
        raise FitError(f"quantiles={shown(probs)}: two of them are the same, leave one out")
    return probs


# --- tables ------------------------------------------------------------------------------------


def _open_checked(items: Items, names: Sequence[str], copied: bool) -> Any:
    """The table of items, after a check of its columns' types and of the new names.

    Unless all columns are `copied`, it has only the needed ones.
    """
    needed = list(items.roles.values())
    table = open_table(items.source, _all_columns(items) if copied else needed)
    existing = table.columns if copied else column_names(items.source)
    if not set(needed) <= set(existing):
        open_table(items.source, needed)  # raises an error about the missing columns
    with readable(items.source):
        check_types(items, table)
    if clash := [name for name in names if name in existing]:
        raise ItemsError(
            f"the table already has the columns {', '.join(map(repr, clash))}: "
            "rename or drop them, or ask for other quantiles"
        )
    return table


def _all_columns(items: Items) -> list[str] | None:
    """All columns of the table, and the constant one of items without a score."""
    return None if items.score else [*column_names(items.source), NO_SCORE]


@dataclass(frozen=True)
class _Scoring:
    """Scores the batches of any table."""

    names: Sequence[str]  # of the new columns
    score: Scorer
    size: int  # items per batch
    far: Extrapolation  # counts scores far outside those of the fit
    lock: threading.Lock = field(default_factory=threading.Lock)  # for counts
    stop: threading.Event = field(default_factory=threading.Event)  # after an error elsewhere

    def batches(self, table: Any, items: Items, running: Phase) -> Iterator[Any]:
        """Record batches of the table's columns followed by the new ones, in order."""
        import pyarrow as pa

        def score(batch: Any) -> Any:
            columns = _valid_columns(batch, items)
            added = [pa.array(row) for row in self.score(columns)]
            with self.lock:
                self.far.count(columns["score"])
                running.advance(batch.num_rows)
            if items.score is None:
                batch = batch.drop_columns([NO_SCORE])
            names = [*batch.schema.names, *self.names]
            return pa.RecordBatch.from_arrays([*batch.columns, *added], names=names)

        empty = True
        for scored in ordered_map(score, batches(table, size=self.size, source=items.source)):
            empty = False
            if self.stop.is_set():
                raise CancelledError
            yield scored
        if empty:
            _refuse(items)


def _valid_columns(batch: Any, items: Items) -> Columns:
    """Columns of a batch by role; a bad row raises an error about all rows."""
    columns, outcome = columns_of(batch, items.roles), OUTCOMES[items.kind]
    usual = own_outcomes(outcome, {"score": columns["score"]})
    roles = zip((outcome.observed, outcome.size), usual, strict=True)
    numbers = (columns.get(role, values) for role, values in roles)
    crossings = max(len(group_roles(items.roles)) - 1, 0)
    bad = any(
        label is None or (crossings and label.count(MARK) != crossings)
        for label in columns.get("group", ())
    )
    if bad or not outcome.validity.are_valid(columns["score"], *numbers):
        _refuse(items)
    return columns


def _refuse(items: Items) -> None:
    """Raise the full error about the items."""
    scan(items, progress=False)
    raise ItemsError("some items cannot be scored, but were valid when read again: try again")


def _attached(source: Any, scored: Iterator[Any], names: Sequence[str]) -> Any:
    """The user's table, or all else as an Arrow table, with the new columns."""
    import pyarrow as pa

    kind, table = kind_of(source), pa.Table.from_batches(list(scored))
    if kind in _COPIED:
        return to_ibis(table) if kind == "ibis" else table
    if kind == "arrow":
        for name in names:
            source = source.append_column(name, table[name])
        return source
    columns = {name: table[name].to_numpy() for name in names}
    if kind == "pandas":
        return source.assign(**columns)
    import polars as pl

    return source.with_columns(pl.Series(*column) for column in columns.items())


# --- folders -----------------------------------------------------------------------------------


def _score_folder(
    items: Items,
    folder: Path,
    scoring: _Scoring,
    record_of: Callable[[str], str],
    progress: bool | None,
) -> Path:
    """Score each file of items to a file in a folder, except finished ones, several at once.

    After an error no further file is begun, and the others in work are given up.
    """
    pairs = targets_in_folder(items.source, folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = [(path, target, record_of(path)) for path, target in pairs]
    todo = [file for file in files if not is_finished(*file[1:])]
    with phase("item posteriors", unit="items", enabled=progress) as running:

        def score(file: tuple[str, Path, str]) -> None:
            path, target, record = file
            try:
                part = replace(items, source=path)
                table = open_table(path, _all_columns(part))
                scored = scoring.batches(table, part, running)
                write_scored(scored, target, scoring.names, record)
            except (ItemsError, FitError) as error:
                text = str(error)
                raise type(error)(text if path in text else f"{path}: {text}") from error

        for done, _ in enumerate(chain([None], ordered_map(score, todo, 0, scoring.stop))):
            unchanged = len(files) - len(todo)
            running.note(f"{done} of {len(todo)} files scored, {unchanged} kept as they are")
    return folder
