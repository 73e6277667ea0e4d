"""Posterior of every item's theta given its score and outcome, over the curves' uncertainty.

Given a draw of the curves, at the item's score, it is a closed form (for counts under a Gamma
prior, Gamma(shape(t) + y, rate(t) + N)); over draws it is an equal mixture. Intervals of the next
outcome follow from it.
"""

import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._lib.arguments import (
    PROBABILITY,
    FitError,
    ItemsError,
    OneOf,
    path_of,
    per_item,
    shown,
)
from .._lib.arrays import Columns, Floats
from .._lib.files import replacing
from .._lib.work import Phase, is_shown, long_work, ordered_map, phase
from ..data import sources
from ..data.engines import check_types
from ..data.items import Items, check_items
from ..fits import Curves, Fit
from ..prior_table import quantile_name, summary_names
from .averages import further_quantiles, scorer
from .item_columns import (
    Extrapolation,
    Scorer,
    arrays_of,
    in_chunks,
    posterior_roles,
    read_items,
    refuse_invalid,
    refuse_taken,
    refuse_unplaced,
    refuse_weighted,
    without,
)
from .predictive import posterior_of
from .prior_build import digest_of

_ITEMS_AT_ONCE = 10_000
_NEXT_SIZE = "next size"

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
# items per batch, with all draws and with few nodes
_BATCH = 100_000
_BATCH_OF_FEW = 1 << 18
# columns beyond which batches are smaller
_WIDE = 32
# kinds of tables that come back as new ones
_COPIED = ("files", "ibis", "stream")
# version of scoring; files of another version are made again
_VERSION = 10
_RECORD = b"soc_pymc"  # key of the record in a file's description
_ENDINGS = re.compile(r"\.(parquet|pq|csv|tsv|csv\.gz|tsv\.gz)$", re.IGNORECASE)


@long_work
def item_posteriors(
    fit: Fit,
    items: Items,
    *,
    quantiles: Sequence[float] = (0.05, 0.95),
    draws: Literal["auto", "all"] = "auto",
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Any:
    """Add the posterior mean, sd, variance and quantiles of every item to the user's table.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        Items of the fit's kind; without outcomes they get theta given the score alone (and the
        group, and what else the prior depends on). A new group gets the shared curves with the
        uncertainty of a group.
    quantiles : Sequence[float]
        Probabilities of the quantile columns, each between 0 and 1.
    draws : {"auto", "all"}
        Whether to average over all draws of the curves, or over few quadrature points wherever
        these are accurate. ``"auto"`` scores by the prior table of `export_prior`, except items
        that it flags and quantiles beyond 0.005 and 0.995: within 2e-3 posterior sd of ``"all"``
        for 99 of 100 items (mixtures and terms 5e-3, quantiles 1e-2), except quantiles that are
        about to jump to a spike at zero. Flagged items get the moments of all draws, and quantiles
        within 0.02 of the interval's width for 99 of 100; they take 30 to 300 microseconds each.
    out : str, Path or None
        Parquet file to write, or a folder. A file is streamed to, and appears when it is complete.
        A folder (an existing one, or a name that ends with a slash) gets a file of the same name
        for each file of items; a later run makes only what is missing or was made from another fit,
        options or file.
    progress : bool or None
        Whether to show progress on standard error.

    Returns
    -------
    table or pathlib.Path
        The user's columns and ``theta_mean``, ``theta_sd``, ``theta_var``, quantiles by percent
        (``theta_q05``), and with ``zero=True`` ``p_zero`` = P(theta = 0 | t, y). A pandas or Polars
        table (or one of a subclass, such as a GeoDataFrame) comes back as its class, an Ibis table
        as one, and others as an Arrow table; with `out`, the path.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind, lack its groups, or have one of the
        new columns. For a folder the error names the file, and finished files stay.
    FitError
        If a quantile is not between 0 and 1, or a score has no position, or a size is missing.

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
    OneOf("auto", "all")(draws, "draws")
    target = "" if out is None else path_of(out, "out", ItemsError)
    posterior = posterior_of(fit)
    curves = posterior.curves
    roles = posterior_roles(curves, items, check_items)
    outcome = posterior.outcome
    if fit.prior.exposure is not None and outcome.size not in roles:
        remedy = f"give the items {outcome.size}= too, expected ones if nothing is observed yet"
        raise FitError(
            f"theta depends on the {outcome.words.size} in this fit: {remedy}"
        )
    _log.debug("scoring %r with draws=%r", items, draws)
    group = items.group if curves.groups else None
    items = replace(items, group=group, id=None, fold=None, cluster=None, date=None)
    items = replace(items, weight=None)
    names = summary_names(probs, fit.prior.zero)
    batch = _BATCH_OF_FEW if draws == "auto" else _BATCH
    score = scorer(posterior, probs, draws)
    far = Extrapolation(curves)
    scoring = _Scoring(curves, items, names, score, batch=batch, out=target, far=far)
    try:
        if is_folder(target):
            made_by = {"quantiles": probs, "draws": draws, "roles": roles}
            return scoring.to_folder(made_by | {"fit": digest_of(curves)})
        return scoring.to_one_table()
    finally:  # after an error too, because finished files of a folder are not scored again
        scoring.far.warn()


def probabilities(quantiles: Sequence[float]) -> tuple[float, ...]:
    """Checked probabilities of quantiles."""
    is_list = isinstance(quantiles, Iterable)
    if not is_list or isinstance(quantiles, str | bytes | Mapping):
        rule = "a list of numbers between 0 and 1, such as (0.05, 0.95)"
        raise FitError(f"quantiles={shown(quantiles)} must be {rule}")
    probs = tuple(PROBABILITY(p, "one of quantiles") for p in quantiles)
    if len({quantile_name(p) for p in probs}) < len(probs):
        raise FitError(
            f"quantiles={shown(probs)}: two of them are the same, leave one out"
        )
    return probs


@dataclass(frozen=True, eq=False)
class _Scoring:
    """The scoring of a table of items, or of several, batch by batch."""

    curves: Curves
    items: Items
    names: Sequence[str]  # of the new columns
    score: Scorer
    # largest number of items in a batch
    batch: int
    # file or folder; "" for a table in memory
    out: str
    # counter of scores far outside those of the fit
    far: Extrapolation
    # held while items are counted
    lock: threading.Lock = field(default_factory=threading.Lock)
    # set after an error in another file
    stop: threading.Event = field(default_factory=threading.Event)

    def to_one_table(self) -> Any:
        """Score the items to a table, or to one file."""
        table = self._checked_table()
        files = self._files() if self.out else []
        with sources.readable(self.items.source):
            total = sources.count_of(table) if is_shown() else None
        with phase("item posteriors", total=total, unit="items") as running:
            scored = self._batches(table, running)
            if files:
                return _write_batches(scored, files[0][1], self.names)
            return self._attached(scored)

    def to_folder(self, made_by: Mapping[str, object]) -> Path:
        """Score each file of items to a file in a folder, except finished ones, several at once."""
        self._checked_table(hold=False)
        files = self._files()
        folder = Path(self.out)
        folder.mkdir(parents=True, exist_ok=True)
        records = [(path, target, _digest(made_by, path)) for path, target in files]
        todo = [file for file in records if not _is_finished(*file[1:])]
        with phase("item posteriors", unit="items") as running:

            def score(file: tuple[str, Path, str]) -> None:
                path, target, record = file
                part = replace(self, items=replace(self.items, source=path))
                try:
                    scored = part._batches(part._table(), running)
                    _write_batches(scored, target, self.names, record)
                except (ItemsError, FitError) as error:
                    text = str(error)
                    words = text if path in text else f"{path}: {text}"
                    raise type(error)(words) from error

            unchanged = f"{len(files) - len(todo)} kept as they are"
            written = ordered_map(score, todo, 0, self.stop)
            for finished, _ in enumerate(chain([None], written)):
                running.note(f"{finished} of {len(todo)} files scored, {unchanged}")
        return folder

    @property
    def _extends(self) -> bool:
        """True if the user's own table gets the new columns, so that only some are read."""
        return not self.out and sources.kind_of(self.items.source) not in _COPIED

    def _table(self, hold: bool = True) -> Any:
        """Ibis table or `Rows` of the items, with all columns if they are copied."""
        columns = self.items.roles.columns if self._extends else None
        return sources.opened(self.items.source, columns, hold)

    def _checked_table(self, hold: bool = True) -> Any:
        """The table, after a check of its columns and of the new names."""
        source = self.items.source
        table = self._table(hold)
        # missing columns are refused
        sources.chosen(table.columns, self.items.roles.columns)
        with sources.readable(source):
            check_types(self.items, table)
        columns = sources.column_names(source) if self._extends else table.columns
        refuse_taken(self.names, columns)
        return table

    def _batches(self, table: Any, running: Phase) -> "Iterator[pa.RecordBatch]":
        """Record batches of the table's columns followed by the new ones, in order."""
        import pyarrow as pa

        def scored(batch: "pa.RecordBatch") -> "pa.RecordBatch":
            columns = arrays_of(batch, self.items.roles)
            refuse_invalid(columns, self.items)
            refuse_unplaced(self.curves, self.items, columns["score"])
            added = [pa.array(row) for row in self.score(columns)]
            with self.lock:
                self.far.count(columns["score"])
                running.advance(batch.num_rows)
            names = [*batch.schema.names, *self.names]
            return pa.RecordBatch.from_arrays([*batch.columns, *added], names=names)

        size = self.batch * _WIDE // max(_WIDE, len(table.columns))
        empty = True
        parts = sources.batches(table, size=size, source=self.items.source)
        for batch in ordered_map(scored, parts):
            empty = False
            if self.stop.is_set():
                raise CancelledError
            yield batch
        if empty:
            refuse_invalid({"score": np.empty(0)}, self.items)

    def _attached(self, scored: "Iterator[pa.RecordBatch]") -> Any:
        """The user's table, or all else as an Arrow table, with the new columns."""
        import pyarrow as pa

        source = self.items.source
        table = pa.Table.from_batches(list(scored))
        kind = sources.kind_of(source)
        if kind in _COPIED:
            return sources.open_table(table) if kind == "ibis" else table
        new = {name: table[name] for name in self.names}
        if kind == "arrow":
            for name, column in new.items():
                source = source.append_column(name, column)
            return source
        if kind == "pandas":
            return source.assign(**{name: x.to_numpy() for name, x in new.items()})
        import polars as pl

        return source.hstack(pl.DataFrame(table.select(self.names)))

    def _files(self) -> list[tuple[Any, Path]]:
        """Each source with the file for its posteriors, which must not be a file of items."""
        source = self.items.source
        target = Path(self.out)
        paths = sources.paths_of(source) if sources.kind_of(source) == "files" else []
        refusal = ""
        if is_folder(self.out):
            stems = [_ENDINGS.sub("", os.path.basename(path)) for path in paths]
            targets = [target / f"{stem}.parquet" for stem in stems]
            files = list(zip(paths, targets, strict=True))
            if not paths:
                refusal = (
                    " is a folder, and the items are not files: name a file *.parquet"
                )
        else:
            files = [(source, target)]
            if target.suffix not in (".parquet", ".pq"):
                refusal = " must be named *.parquet, or be a folder (end with a slash)"
            elif not target.parent.is_dir():
                refusal = f": there is no folder {str(target.parent)!r}, make it first"
        if refusal:
            raise ItemsError(f"out={self.out!r}{refusal}")
        real_paths = {os.path.realpath(path) for path in paths}
        names = source if isinstance(source, list | tuple) else [source]
        sources_of = dict[str, Any]()
        for path, target in files:
            if (key := target.name.lower()) in sources_of:
                clash = f"{sources_of[key]} and {path} would both be scored to {target}"
                raise ItemsError(
                    f"{clash}: name them differently, or score them to two folders"
                )
            if os.path.realpath(target) in real_paths:
                raise ItemsError(
                    f"{target} holds the items: give another name or folder to out="
                )
            if paths and any(sources.will_match(name, target) for name in names):
                raise ItemsError(
                    f"{target} would be read as items from now on: give another name or folder "
                    "to out="
                )
            sources_of[key] = path
        return files


def is_folder(name: str) -> bool:
    """Return True if a name is that of an existing folder, or ends with a slash."""
    return os.path.isdir(name) or name.endswith(("/", os.sep))


def _digest(made_by: Mapping[str, object], path: str) -> str:
    """Digest of the options of scoring and a file of items (name, size, modification time)."""
    stat = os.stat(path)
    source = [os.path.basename(path), stat.st_size, stat.st_mtime_ns]
    record = {**made_by, "version": _VERSION, "input": source}
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _is_finished(target: Path, record: str) -> bool:
    """Return True if a file exists, has this record, and each of its pages has its checksum."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(target, page_checksum_verification=True) as file:
            if (file.metadata.metadata or {}).get(_RECORD) != record.encode():
                return False
            for _ in file.iter_batches():
                pass
    except (OSError, pa.ArrowException):
        return False
    return True


def _write_batches(
    scored: "Iterator[pa.RecordBatch]",
    target: Path,
    names: Sequence[str],
    record: str = "",
) -> Path:
    """Write record batches (at least one) to one Parquet file, atomically, with a record."""
    import pyarrow.parquet as pq

    with replacing(target) as temporary:
        head = next(scored)
        users = [name for name in head.schema.names if name not in names]
        options = {"use_dictionary": users, "write_page_checksum": True}
        with pq.ParquetWriter(temporary, head.schema, **options) as writer:
            for batch in chain([head], scored):
                writer.write_batch(batch)
            writer.add_key_value_metadata({_RECORD: record})
    return target


@long_work
def predictive_intervals(
    fit: Fit,
    items: Items,
    *,
    exposure: ArrayLike | None = None,
    quantiles: Sequence[float] = (0.05, 0.95),
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return quantiles of the next outcome of every item, in a new exposure.

    The next outcome has theta given the score, and the item's outcome if it has one, averaged over
    the curves' uncertainty, and noise of its own.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        Items of the fit's kind, with outcomes or without. Those without exposures have the next
        one.
    exposure : float, array_like, shape (n,), or None
        Exposure (noise sd, trials) of the next outcome. None is that of the item's own outcome.
    quantiles : Sequence[float]
        Probabilities of the quantiles, each between 0 and 1.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        A row for each item, in order: its quantiles, such as ``count_q05``, and ``p_inside``, the
        probability of an outcome from the smallest to the largest of them, both included. A
        quantile of counts is the smallest whose cumulative probability is at least the one asked
        for, so an interval of counts holds more than its nominal probability.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid or not of the fit's kind, or an exposure is missing or not valid.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> ahead = soc.predictive_intervals(fit, items, exposure=100.0)
    >>> list(ahead.columns)
    ['count_q05', 'count_q95', 'p_inside']
    >>> bool((ahead["p_inside"] >= 0.9).all())
    True
    """
    probs = probabilities(quantiles)
    posterior = posterior_of(fit)
    posterior.check_distribution()
    outcome = posterior.outcome
    columns, _ = read_items(posterior.curves, items, check=check_items)
    refuse_weighted(items)
    n = len(columns["score"])
    if exposure is not None:
        size = per_item(exposure, "exposure", n)
    elif outcome.size in columns:
        size = columns[outcome.size]
    else:
        raise FitError(
            f"the {outcome.words.size} of the next outcome is missing: give exposure="
        )
    if not outcome.validity.size.hold(size):
        raise FitError(f"exposure= of next outcomes: {outcome.validity.size.needs}")
    columns = {outcome.size: size, **columns, _NEXT_SIZE: size}

    def rows(part: Columns) -> Floats:
        known = without(part, _NEXT_SIZE)
        values, inside = further_quantiles(posterior, known, part[_NEXT_SIZE], probs)
        return np.vstack([values, inside])

    *values, inside = in_chunks(rows, _ITEMS_AT_ONCE, columns, "next outcomes")
    names = [quantile_name(p).replace("theta", outcome.observed) for p in probs]
    return pd.DataFrame(dict(zip(names, values, strict=True)) | {"p_inside": inside})
