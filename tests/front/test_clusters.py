"""Clusters on the command line and in the estimator."""

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.front.cli import main
from tests.data.test_clusters import table_of


def test_the_command_line_keeps_clusters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = table_of(600)
    frame.to_parquet("items.parquet")
    columns = ["--score", "t", "--count", "y", "--exposure", "N", "--cluster", "c", "--quiet"]
    words = ["summarize", "items.parquet", *columns, "--bins", "20", "--out", "stats.nc"]
    assert main(words) == 0
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N", cluster="c")
    stats = soc.summarize(items, bins=20, progress=False)
    assert soc.load_statistics("stats.nc").data.equals(stats.data)


def test_the_estimator_takes_clusters():
    frame = table_of(600)
    known = frame["t"], frame["y"], frame["N"]
    found = soc.SecondOrderCalibrator(bins=20).fit(*known, cluster=frame["c"])
    assert found.fit_.widened
    assert found.predict([0.3]).shape == (1,)
    with pytest.raises(soc.ItemsError, match=r"cluster has the shape \(2,\)"):
        soc.SecondOrderCalibrator().fit(*known, cluster=np.arange(2))
