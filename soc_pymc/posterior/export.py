"""Files of a fit's prior, for scoring items elsewhere, with its errors on simulated items."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from .._lib.arguments import path_of
from .._lib.errors import FitError
from .._lib.files import replacing
from .._lib.threads import one_blas_thread
from ..fits.curves import Curves
from ..fits.fit import FIT, Fit
from ..prior_table import PriorTable, by_group, checksum, posterior_summaries
from .averages import scorer, table_items
from .predictive import posterior_under
from .prior_build import Nodes, digest_of, table_of

type Meta = dict[str, Any]  # description of the table, as in a file

_MOST_BYTES = 10_000_000
_LEVELS = 0.05, 0.95  # quantiles whose errors are stated
# simulated items, and an error in posterior sd that is too large
_PROBES = 500
_FAR = 0.1
_MOST_ITEMS = 0.99  # share of them whose errors must be smaller
# sizes of these items, in those of their bins
_TIMES = (0.25, 1.0, 4.0, 16.0)


@one_blas_thread
def export_prior(fit: Fit, path: str | os.PathLike[str]) -> Path:
    """Write a fit's prior to a small file, for scoring items without this package.

    Parameters
    ----------
    fit : Fit
        The fit.
    path : str or Path
        File to write, ``*.parquet`` or ``*.json``, which appears when it is complete.

    Returns
    -------
    pathlib.Path
        The file, of at most 10 MB, for `soc_pymc.prior_table.load`, with the day, digest of the fit
        and checksum, and the largest ``errors`` in posterior sd, of simulated items.

    Raises
    ------
    FitError
        If the name has another suffix, the fit has no such table, as the error says, the file would
        be larger, or errors of more than 1% of the simulated items were above 0.1 posterior sd.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = soc.export_prior(fit, pathlib.Path(folder) / "prior.parquet")
    ...     soc.prior_table.load(path).meta["family"]
    'Gamma'
    """
    FIT(fit, "fit")
    target = Path(path_of(path, "path", FitError))
    if target.suffix not in (".parquet", ".json"):
        raise FitError(f"path={str(target)!r} must be named *.parquet or *.json")
    meta, columns = described(fit.curves)
    writer = _write_json if target.suffix == ".json" else _write_parquet
    with replacing(target) as temporary:
        writer(meta, columns, temporary)
        size = temporary.stat().st_size
        if size > _MOST_BYTES:
            what = f"{size / 1e6:.1f} MB in {meta['cells']:,} cells, more than 10 MB"
            remedy = "pool groups or leave out the term in exposure"
            if writer is _write_json:
                remedy += ", or write *.parquet, which is smaller"
            raise FitError(f"the table would be of {what}: {remedy}")
    return target


def _write_json(meta: Meta, columns: Nodes, path: Path) -> None:
    # the shortest digits from which a number is read back exactly
    nodes = {
        name: [json.loads(str(v)) for v in values] for name, values in columns.items()
    }
    content = {"meta": meta, "nodes": nodes}
    path.write_text(json.dumps(content, separators=(",", ":"), allow_nan=False))


def _write_parquet(meta: Meta, columns: Nodes, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # the digest in every row shows SQL whether a text and a table belong to one fit
    digest = pa.array([meta["fit"]] * len(columns["cell"]))
    table = pa.table({**columns, "fit": digest})
    table = table.replace_schema_metadata({"soc_pymc_prior": json.dumps(meta)})
    split = [name for name, values in columns.items() if values.dtype.kind == "f"]
    options = {"use_dictionary": ["cell", "node", "wide", "fit"], "compression": "zstd"}
    pq.write_table(table, path, use_byte_stream_split=split, **options)


def described(curves: Curves) -> tuple[Meta, Nodes]:
    """Description and columns of the prior table, made once; FitError if it is not accurate."""
    return curves.once(_described)


def refuse_estimated_noise(curves: Curves) -> None:
    """Refuse a fit whose noise sds are estimates."""
    if curves.noise_law:
        raise FitError(
            "exported tables and SQL take noise sds as known, and those of this fit are estimates "
            "(noise_df=): use soc.item_posteriors"
        )


def _described(curves: Curves) -> tuple[Meta, Nodes]:
    refuse_estimated_noise(curves)
    table = table_of(curves)
    parts = [table.nodes(label) for label in curves.groups or [""]]
    columns = {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0]
    }
    columns = {k: x for k, x in columns.items() if not k.startswith("way_") or x.any()}
    is_first = columns["node"] == 0
    columns["cell"] = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    meta = dict(table.meta) | {
        "fit": digest_of(curves),
        "made": datetime.now(UTC).date().isoformat(),
        "cells": int(is_first.sum()),
        "columns": [[name, values.dtype.str] for name, values in columns.items()],
    }
    meta["errors"] = _errors(curves, by_group(meta, columns))
    meta["checksum"] = checksum(meta, columns)
    return meta, columns


def _errors(curves: Curves, table: PriorTable) -> dict[str, float]:
    """Largest errors in posterior sd, of simulated items that are not flagged."""
    posterior = posterior_under(curves)
    rng = np.random.default_rng(0)
    outcome = posterior.outcome
    bins = curves.bins
    n = bins["n_items"].to_numpy()
    probes = rng.choice(len(n), _PROBES, p=n / n.sum())
    size = bins[outcome.size].to_numpy() / (n if outcome.sizes_add else 1.0)
    size = size[probes] * rng.choice(_TIMES, _PROBES)
    columns: dict[str, Any] = {"score": bins["score"].to_numpy()[probes]}
    # trials are whole
    columns[outcome.size] = np.where(size < 1.0, size, np.round(size))
    if curves.groups:
        columns["group"] = rng.choice(np.array(curves.groups, dtype=object), _PROBES)
    draw = rng.integers(curves.number, size=_PROBES)
    columns[outcome.observed] = posterior.simulate(columns, rng, drawn_by=draw)
    exact = scorer(posterior, _LEVELS, "all")(columns)
    rows, flagged = posterior_summaries(table, table_items(curves, columns), _LEVELS)
    errors = {
        name: np.abs(rows[k] - exact[k])[~flagged] / exact[1][~flagged]
        for k, name in ((0, "mean"), (1, "sd"), (3, "lower"), (4, "upper"))
    }
    for name, error in errors.items():
        known = np.append(np.nan_to_num(error, nan=np.inf), 0.0)
        bound = float(np.quantile(known, _MOST_ITEMS))
        if bound > _FAR:
            distance = f"its {name} is {bound:.2g} posterior sd from that of every draw"
            items = f"at the {_MOST_ITEMS:.0%} point of {_PROBES:,} simulated items"
            reason = f"{distance} {items}, and may be {_FAR}. Score items by soc.item_posteriors"
            raise FitError(f"a table cannot follow this prior: {reason}")
    return {name: float(error.max(initial=0.0)) for name, error in errors.items()}
