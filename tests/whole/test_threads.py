"""Statistics and posteriors are the same bit for bit, whatever the number of threads."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import soc_pymc as soc
from soc_pymc._lib.threads import VARIABLE
from soc_pymc.data.tables import streaming
from soc_pymc.posterior import items as posterior_items
from soc_pymc.posterior import predictive
from tests.thinning import thinned

N = 3000
ROLES = {
    "PoissonItems": {"count": "y", "exposure": "x"},
    "NormalItems": {"value": "v", "noise_sd": "x"},
    "BinomialItems": {"successes": "y", "trials": "m"},
}
OPTIONS = {
    "plain": ({}, {}),
    "groups and folds": ({"group": "g", "id": "id"}, {"folds": 7}),
    "clusters": ({"cluster": "c"}, {}),
    "merged joint cells": ({"group": "g"}, {"bins": 150, "joint": 700}),
    "equal amounts": ({}, {"equal": "amount"}),
    "known edges": ({"group": "g"}, {"edges": [0.2, 0.5], "joint": True}),
}
QUIET = {"progress": False, "on_leakage": "ignore"}


def items_frame(seed):
    rng = np.random.default_rng(seed)
    x = rng.lognormal(size=N)
    labels = np.array(["u", "é", "a", "zz"])
    return pd.DataFrame(
        {
            "t": np.where(rng.random(N) < 0.1, 0.25, rng.uniform(0.01, 0.9, N)),
            "y": rng.poisson(0.3 * x),
            "v": rng.normal(size=N),
            "x": x,
            "m": rng.poisson(9.0, N) + 40,
            "g": labels[np.minimum(rng.integers(0, 4, N), 1 + np.arange(N) // 700)],
            "c": rng.integers(0, 200, N).astype(str),
            "id": rng.permutation(N),
        }
    )


def sources(frame, folder):
    """The same items in files with row groups of several sizes, one too large, and in memory."""
    paths = []
    for k, (part, rows) in enumerate(
        [(slice(0, 900), 170), (slice(900, 2600), 1700), (slice(2600, N), 90)]
    ):
        paths.append(str(folder / f"{k}.parquet"))
        frame.iloc[part].to_parquet(paths[-1], row_group_size=rows)
    return {
        "files": paths,
        "pandas": frame,
        "Arrow": pa.Table.from_pandas(frame),
        "Polars": pl.from_pandas(frame),
    }


@pytest.fixture
def small_blocks(monkeypatch):
    for name, size in (("_READ", 61), ("_BLOCK", 250), ("_LARGEST", 1000)):
        monkeypatch.setattr(streaming, name, size)


@pytest.mark.filterwarnings("ignore::soc_pymc.ItemsWarning")
@pytest.mark.parametrize(
    ("kind", "task"),
    thinned(
        [(kind, task) for kind in ROLES for task in OPTIONS],
        [("PoissonItems", "groups and folds"), ("NormalItems", "merged joint cells")],
    ),
)
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_statistics(kind, task, seed, small_blocks, tmp_path):
    roles, options = OPTIONS[task]
    if "equal" in options:
        amount = {"PoissonItems": "exposure", "NormalItems": "items", "BinomialItems": "trials"}
        options = {"equal": amount[kind]}
    if kind == "NormalItems" and options.get("joint") == 700:
        options = options | {"joint": 2800}  # a single bin has many
    for source in sources(items_frame(seed), tmp_path).values():
        items = getattr(soc, kind)(source, score="t", **ROLES[kind], **roles)
        found = []
        for number in "123":
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(VARIABLE, number)
                found.append(soc.summarize(items, **options, **QUIET).data)
        assert found[0].identical(found[1])
        assert found[0].identical(found[2])
        assert (found[0].attrs["coarse"] > 1) == (task == "merged joint cells")


@pytest.mark.parametrize(
    ("name", "draws"),
    thinned(
        [(n, d) for n in ("small_fit", "grouped_fit", "exposure_fit") for d in ("auto", "all")],
        [("grouped_fit", "auto")],
    ),
)
def test_posteriors(name, draws, request, monkeypatch, tmp_path):
    fit = request.getfixturevalue(name)
    for module, batch, size in (
        (posterior_items, "_BATCH_OF_FEW", 300),
        (posterior_items, "_BATCH", 60),
        (predictive, "_MANY", 50),
    ):
        monkeypatch.setattr(module, batch, size)
    frame = soc.simulation.s1(1000 if draws == "auto" else 200, seed=8).assign(kind="b")
    frame.loc[::5, "kind"] = "a"
    frame.loc[::70, "score"] *= 5.0  # beyond the knots
    frame.to_parquet(tmp_path / "items.parquet")
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    roles |= {"group": "kind"} if fit.groups else {}
    found = []
    for number in "123":
        monkeypatch.setenv(VARIABLE, number)
        for source in (frame, str(tmp_path / "items.parquet")):
            items = soc.PoissonItems(source, **roles)
            out = tmp_path / f"{number}.parquet" if isinstance(source, str) else None
            scored = soc.item_posteriors(fit, items, draws=draws, out=out, progress=False)
            found.append(scored if out is None else pq.read_table(out).to_pandas())
    for other in found[1:]:
        pd.testing.assert_frame_equal(found[0], other, check_exact=True)
