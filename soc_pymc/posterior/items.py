"""Posterior of every item's theta given its score and outcome, over the curves' uncertainty.

Given a draw of the curves, at the item's own score, it is a closed form (for counts under a Gamma
prior, Gamma(shape(t) + y, rate(t) + N)); over draws it is an equal mixture.
"""

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from .._lib.arguments import PROBABILITY, OneOf, path_of, shown, switch
from .._lib.errors import FitError, ItemsError
from .._lib.files import remove_stale
from .._lib.progress import Phase, phase
from .._lib.threads import ordered_map
from ..data.groups import MARK, group_roles, is_group
from ..data.items import Items, check_items
from ..data.tables import batches, kind_of, open_table, scan, to_ibis
from ..data.tables.item_files import check_files
from ..data.tables.sources import readable
from ..families.outcomes import OUTCOMES
from ..inference.results import Fit
from ..prior_table import quantile_name
from .curves import P_ZERO
from .extrapolation import Extrapolation
from .interface import Columns, Scorer, own_outcomes
from .item_columns import columns_of, posterior_roles
from .predictive import posterior_of
from .scored_files import (
    file_record,
    fit_digest,
    is_finished,
    is_folder,
    refuse_own_items,
    targets,
    write_scored,
)

_log = logging.getLogger(__name__)
_BATCH, _BATCH_OF_FEW = 100_000, 1 << 18  # items per batch, with all draws and with few nodes
_BATCH_OF_MIXTURES = 1 << 20  # which solve for all draws at cells' points again in every batch
DRAWS = ("auto", "all", "representative")  # the last is an old name of the first
_EXTREME = 1e-10  # smaller probabilities do not show in ten digits of a percent
_LONGEST_NAME = 200  # characters, with room for the temporary name
_WIDE = 32  # columns beyond which batches are smaller


@dataclass(frozen=True)
class _BatchScorer:
    """How to score every batch of items."""

    roles: Mapping[str, str]  # columns to read
    names: list[str]  # of the new columns
    score: Scorer  # makes them
    batch: int  # items per batch
    far: Extrapolation  # counts scores far outside those of the fit
    lock: threading.Lock = field(default_factory=threading.Lock)  # for counts


def item_posteriors(
    fit: Fit,
    items: Items,
    *,
    quantiles: Sequence[float] = (0.05, 0.95),
    draws: Literal["auto", "all"] = "auto",
    plug_in: bool = False,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Any:
    """Posterior mean, sd, variance and quantiles of every item, added to the user's table.

    Parameters
    ----------
    fit
        The fit.
    items
        Items to score: those of the fit or others of the same kind. Items that name no column of
        outcomes get theta given the score alone (and their group, and the exposure or noise sd if
        the prior depends on it), as of items of which nothing is seen yet. If the fit has groups,
        each item is scored with its group's curves; items of a new group with the shared curves and
        the uncertainty of a new group. A new combination of known levels has the effects of both.
    quantiles
        Probabilities of the quantile columns, each between 0 and 1.
    draws
        ``"auto"``: few quadrature points with the draws' moments (4 to 196; for mixtures, second
        moments of the weights) replace the draws of the curves, in compiled loops. Every draw is
        used where that is not accurate: where the curves are hardly known (sd of log cv2 above 0.7)
        or the data contradict them, and for quantiles below 0.025 or above 0.975. Mean, sd and
        quantiles are within 1e-3 posterior sd of ``"all"``, which uses every draw for every item.
        Of mixtures 99 of 100 items are within about 2e-3, and a quantile at the outermost scores
        may be off by 0.01; with ``zero=True``, a quantile whose probability is within 1e-3 of
        ``p_zero`` may be farther, as it jumps there.
        ``"representative"`` is the old name of ``"auto"``.
    plug_in
        Use only the posterior means of the curves (of log mean and log cv2, or of mean and log
        variance), as if they were known.
    out
        Parquet file (``*.parquet``) to stream to, batch by batch; it appears under its name when it
        is complete. Or a folder (an existing one, or a name that ends with a slash): each file of
        items gets a file of the same name there, and a later run makes only what is missing or was
        made from another fit, other options or another version of the file.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    table or pathlib.Path
        The user's columns and ``theta_mean``, ``theta_sd``, ``theta_var`` and, by percent,
        ``theta_q05``, ``theta_q97_5``, in events per unit of exposure or the unit of the values;
        for a prior with ``zero=True`` also ``p_zero`` = P(theta = 0 | t, y). A
        pandas, Polars or Arrow table comes back as its own kind, files as an Arrow table, an Ibis
        table as an Ibis table; with `out`, the path.

    Raises
    ------
    ItemsError
        If the items are not valid, are not of the fit's kind, lack groups for a fit with groups, or
        already have one of the new columns. For a folder the error names the file, and finished
        files stay.
    FitError
        If a quantile is not between 0 and 1, a score has no position on the fit's axis, or items
        without outcomes name no exposure (noise sd) although the prior depends on it.

    Warns
    -----
    ItemsWarning
        If scores are outside the fit's range by more than a tenth of that range: how many, and how
        the curves are extrapolated. Once per call.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> scored = soc.item_posteriors(fit, items, quantiles=(0.5,))
    >>> list(scored.columns[-4:])
    ['theta_mean', 'theta_sd', 'theta_var', 'theta_q50']

    New items, without outcomes:

    >>> new = soc.PoissonItems(items.source[["score"]], score="score")
    >>> before = soc.item_posteriors(fit, new)
    >>> bool(before["theta_var"].mean() > scored["theta_var"].mean())
    True
    """
    probs = probabilities(quantiles)
    _draws_to_use(draws, plug_in)
    if out is not None:
        path_of(out, "out", ItemsError)
    switch(progress, "progress")
    posterior = posterior_of(fit)
    roles = posterior_roles(fit, posterior, items, check_items)
    size = posterior.outcome.size
    if fit.prior.exposure is not None and size not in roles:
        raise FitError(
            f"theta depends on the {posterior.outcome.words.size} in this fit: give the items "
            f"{size}= too, of those to be expected if nothing is seen yet"
        )
    _log.debug("scoring %r with draws=%r, plug_in=%r", items, draws, plug_in)
    zero = fit.prior.zero
    names = ["theta_mean", "theta_sd", "theta_var", *(quantile_name(p) for p in probs)]
    names += [P_ZERO] * zero
    table = _open_checked(items, roles, names)
    few = _BATCH_OF_MIXTURES if fit.prior.mixture else _BATCH_OF_FEW
    batch = few if draws == "auto" else _BATCH
    scorer = _BatchScorer(
        roles,
        names,
        posterior.scorer(probs, draws, plug_in),
        batch,
        Extrapolation(fit),
    )
    if out is not None and is_folder(out):
        made_by = {"quantiles": probs, "draws": draws, "plug_in": plug_in, "roles": roles}
        files = _files_to_score(items, Path(out), made_by | {"fit": fit_digest(fit)})
        try:
            return _score_files(files, items, scorer, Path(out), progress)
        finally:  # after an error too, because finished files stay and are not scored again
            scorer.far.warn()
    target = None if out is None else _target(Path(out), items)
    total = _count(table, items)
    with phase("item posteriors", total=total, unit="items", enabled=progress) as shown:
        scored = _scored_batches(table, items, scorer, shown)
        if target is None:
            found = _attached(items.source, table, scored, names)
        else:
            found = target
            write_scored(scored, target, total, names)
    scorer.far.warn()
    return found


def _draws_to_use(draws: str, plug_in: bool) -> str:
    OneOf(*DRAWS)(draws, "draws")
    if switch(plug_in, "plug_in") and draws != "auto":
        raise FitError(f'plug_in=True uses no draws: leave out draws="{draws}"')
    return draws


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


def _open_checked(items: Items, roles: Mapping[str, str], names: list[str]) -> Any:
    """The table of items, after a check of its columns and of the new names."""
    table = open_table(items.source)
    if any(c not in table.columns or _is_odd(r, table[c].type()) for r, c in roles.items()):
        scan(items, progress=False)  # raises errors about the columns
    clash = [n for n in names if n in table.columns]
    if clash:
        raise ItemsError(
            f"the table already has the columns {', '.join(map(repr, clash))}: "
            "rename or drop them, or ask for other quantiles"
        )
    return table


def _is_odd(role: str, dtype: Any) -> bool:
    if is_group(role):
        return not (dtype.is_string() or dtype.is_integer() or dtype.is_boolean())
    return bool(dtype.is_boolean() or not dtype.is_numeric())


def _count(table: Any, items: Items) -> int:
    with readable():
        total = int(table.count().to_pyarrow().as_py())
    if total == 0:
        scan(items, progress=False)  # raises if there are no rows
    return total


def _scored_batches(table: Any, items: Items, scorer: _BatchScorer, shown: Phase) -> Iterator[Any]:
    """Record batches of the user's columns followed by the new ones, in order."""
    import pyarrow as pa

    size = max(1, scorer.batch * _WIDE // max(_WIDE, len(table.columns)))

    def scored(batch: Any) -> Any:
        columns = _valid_columns(batch, items, scorer.roles)
        found = scorer.score(columns)
        with scorer.lock:
            scorer.far.count(columns["score"])
            shown.advance(batch.num_rows)
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *(pa.array(row) for row in found)],
            names=[*batch.schema.names, *scorer.names],
        )

    yield from ordered_map(scored, batches(table, size=size, source=items.source))


def _valid_columns(batch: Any, items: Items, roles: Mapping[str, str]) -> Columns:
    """Columns of a batch by role; a bad row raises an error about all rows."""
    columns, outcome = columns_of(batch, roles), OUTCOMES[items.kind]
    own = zip((outcome.observed, outcome.size), own_outcomes(outcome, columns), strict=True)
    numbers = (columns.get(role, usual) for role, usual in own)
    good = outcome.validity.are_valid(columns["score"], *numbers)
    crossings = max(len(group_roles(roles)) - 1, 0)
    labels = columns.get("group", ())
    if not good or any(x is None or (crossings and x.count(MARK) != crossings) for x in labels):
        scan(items, progress=False)
        raise ItemsError("some items cannot be scored, but were valid when read again: try again")
    return columns


def _attached(source: Any, table: Any, scored: Iterator[Any], names: list[str]) -> Any:
    """A table of the user's kind with the new columns."""
    import pyarrow as pa

    kind = kind_of(source)
    whole = pa.Table.from_batches(list(scored))
    if kind == "pandas":
        return source.assign(**{name: whole[name].to_numpy() for name in names})
    if kind == "polars":
        import polars as pl

        return source.with_columns(pl.Series(name, whole[name].to_numpy()) for name in names)
    return to_ibis(whole) if kind == "ibis" else whole


# --- files -------------------------------------------------------------------------------------


def _target(path: Path, items: Items) -> Path:
    """The one file to write."""
    if path.suffix not in (".parquet", ".pq"):
        raise ItemsError(
            f"out={str(path)!r} must be named *.parquet, or be a folder (end with a slash)"
        )
    if not path.parent.is_dir():
        raise ItemsError(
            f"out={str(path)!r}: there is no folder {str(path.parent)!r}, make it first"
        )
    if path.is_dir() or len(path.name) > _LONGEST_NAME:
        raise ItemsError(f"out={shown(str(path))} can be no file: give another name")
    if kind_of(items.source) == "files":
        refuse_own_items([path], check_files(items.source).paths)
    return path


def _files_to_score(
    items: Items, folder: Path, made_by: Mapping[str, Any]
) -> list[tuple[str, Path, str]]:
    """Each file of items, the file for its posteriors, and the record of its inputs."""
    if kind_of(items.source) != "files":
        raise ItemsError(
            f"out={str(folder)!r} is a folder, for one file for each file of items, but the items "
            "are no files: name a file *.parquet"
        )
    pairs = targets(check_files(items.source).paths, folder)
    folder.mkdir(parents=True, exist_ok=True)
    for _, target in pairs:
        remove_stale(target)
    return [(path, target, file_record(path, made_by)) for path, target in pairs]


def _score_files(
    files: list[tuple[str, Path, str]],
    items: Items,
    scorer: _BatchScorer,
    folder: Path,
    progress: bool,
) -> Path:
    """Score all files except finished ones, several at once in threads.

    After an error no further file is begun, and the others in work are given up.
    """
    todo = [file for file in files if not is_finished(*file[1:])]
    kept = f", {len(files) - len(todo)} kept as they are" * (len(todo) < len(files))
    stop = threading.Event()

    with phase("item posteriors", unit="items", enabled=progress) as shown:

        def score(file: tuple[str, Path, str]) -> None:
            path, target, record = file
            own = replace(items, source=path)
            try:
                table = open_table(path)
                scored = _until(stop, _scored_batches(table, own, scorer, shown))
                write_scored(scored, target, _count(table, own), scorer.names, record)
            except (ItemsError, FitError) as error:
                text = str(error)
                raise type(error)(text if path in text else f"{path}: {text}") from error

        scores = ordered_map(score, todo, 0, stop)
        shown.note(f"{len(todo)} files to score{kept}")
        for done, _ in enumerate(scores, start=1):
            shown.note(f"{done} of {len(todo)} files scored{kept}")
        if kept and not todo:
            shown.note(f"all {len(files)} files kept as they are")
    return folder


def _until(stop: threading.Event, batches: Iterator[Any]) -> Iterator[Any]:
    """Batches until other work has failed."""
    for batch in batches:
        if stop.is_set():
            raise CancelledError
        yield batch
