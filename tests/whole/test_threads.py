"""Statistics and posteriors are the same bit for bit, whatever the number of threads."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from soc_pymc._lib.threads import VARIABLE
from soc_pymc.data import local
from soc_pymc.posterior import items as posterior_items
from tests.data.cell_references import assert_same
from tests.examples import CASES, SINGLE_FAMILIES
from tests.thinning import thinned

QUIET = {"progress": False, "on_leakage": "ignore"}


def in_files(frame, folder):
    """Writes a frame into files with row groups of several sizes, one too large for a block."""
    paths = []
    for k, (part, rows) in enumerate(
        [(slice(0, 400), 90), (slice(400, 1250), 800), (slice(1250, None), 45)]
    ):
        paths.append(str(folder / f"{k}.parquet"))
        frame.iloc[part].to_parquet(paths[-1], row_group_size=rows)
    return paths


@pytest.mark.parametrize("name", thinned(SINGLE_FAMILIES, ["gamma"]))
def test_statistics(name, example, monkeypatch, tmp_path):
    """Small blocks of items, with labels that first occur late, merged joint cells and folds.

    Blocks round sums differently from one block, so these are compared to 1e-12.
    """
    frame = example(name).frame[:1500]
    late = np.arange(len(frame)) > 1100
    frame = frame.assign(group=np.where(late, "late", frame["kind"]), id=np.arange(len(frame)))
    items = {
        source: CASES[name].kind(table, **CASES[name].items(frame).roles, group="group", id="id")
        for source, table in {
            "files": in_files(frame, tmp_path),
            "pandas": frame,
            "Arrow": pa.Table.from_pandas(frame),
            "Polars": pl.from_pandas(frame),
        }.items()
    }
    joint = len(soc.summarize(items["pandas"], bins=40, joint=True, **QUIET).table("joint")["n"])
    options = {"bins": 40, "folds": 7, "joint": joint - 20}
    in_one_block = soc.summarize(items["pandas"], **options, **QUIET)
    assert in_one_block.coarse > 1
    monkeypatch.setattr(local, "_BLOCK", 120)
    for source in items.values():
        by_number = []
        for number in "123":
            monkeypatch.setenv(VARIABLE, number)
            by_number.append(soc.summarize(source, **options, **QUIET))
        assert_same(by_number[0], in_one_block)
        assert by_number[0].data.identical(by_number[1].data)
        assert by_number[0].data.identical(by_number[2].data)


@pytest.mark.parametrize("name", thinned(["groups", "normal"], ["groups"]))
def test_posteriors(name, example, monkeypatch, tmp_path):
    fit, case = example(name).fit, CASES[name]
    monkeypatch.setattr(posterior_items, "_BATCH_OF_FEW", 100)
    frame = example(name).frame[:350].copy()
    frame.loc[::70, "score"] *= 5.0  # beyond the knots
    frame.to_parquet(tmp_path / "items.parquet")
    scored = []
    for number in "123":
        monkeypatch.setenv(VARIABLE, number)
        scored.append(soc.item_posteriors(fit, case.items(frame), progress=False))
        out = tmp_path / f"{number}.parquet"
        items = case.items(str(tmp_path / "items.parquet"))
        soc.item_posteriors(fit, items, out=out, progress=False)
        scored.append(pq.read_table(out).to_pandas())
    for other in scored[1:]:
        pd.testing.assert_frame_equal(scored[0], other, check_exact=True)
