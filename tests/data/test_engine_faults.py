"""Engines that lose a worker, die, or have no disk space."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pytest

import soc_pymc as soc
from tests.inference.test_determinism import assert_same

ROOT = Path(soc.__file__).parents[1]

needs_spark = pytest.mark.skipif(
    not (os.environ.get("JAVA_HOME") or shutil.which("java")),
    reason="no Java, in which Spark runs",
)
needs_mount = pytest.mark.skipif(
    not hasattr(os, "getuid")
    or os.getuid() != 0
    or shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
    reason="only root may mount a small disk",
)


def in_a_process(case, folder, *before):
    """Result of a case of `tests.engine_faults`, run in a process."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    words = [*before, sys.executable, "-m", "tests.engine_faults", case, str(folder)]
    # Spark writes its workers' folders there
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_WORKER_DIR": str(folder / "work")}
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=600, env=env, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@needs_spark
def test_spark_gives_the_same_numbers_after_losing_a_worker(tmp_path):
    """Other workers repeat its tasks, and no item is counted twice or lost."""
    found = in_a_process("lost", tmp_path)
    assert len(found["workers"]) == 2
    assert found["killed"] == found["workers"][:1]
    assert found["killed"][0] not in found["left"]
    before, after = (soc.load_statistics(tmp_path / f"{name}.nc") for name in ("before", "lost"))
    assert_same(before, after)
    for kind, text in (found["ended"], found["again"]):
        assert kind == "ItemsError"
        assert text.startswith("the items cannot be read: ")
        assert "\n" not in text


@pytest.mark.slow
@needs_spark
@needs_mount
def test_spark_without_disk_space_is_one_error(tmp_path):
    kind, text = in_a_process("full", tmp_path, "unshare", "-m")["full"]
    assert kind == "ItemsError"
    assert "\n" not in text
    assert "No space left on device" in text


@pytest.mark.slow
def test_duckdb_without_memory_is_one_error(tmp_path):
    """A query that does not fit into memory, and can hardly spill to disk."""
    rng = np.random.default_rng(1)
    n = 400_000
    made = pa.table(
        {"t": rng.lognormal(-3, 1, n), "y": rng.poisson(1.0, n), "N": rng.lognormal(3, 2, n)}
    )
    settings = {"memory_limit": "24MB", "threads": 1, "temp_directory": str(tmp_path / "spill")}
    with duckdb.connect(str(tmp_path / "items.duckdb")) as connection:
        connection.register("made", made)
        connection.execute("CREATE TABLE items AS SELECT * FROM made")
    connection = ibis.duckdb.connect(str(tmp_path / "items.duckdb"), **settings)
    connection.raw_sql("SET max_temp_directory_size = '256KB'")
    items = soc.PoissonItems(connection.table("items"), score="t", count="y", exposure="N")
    with pytest.raises(soc.ItemsError, match=r"cannot be read: .*[Oo]ut of [Mm]emory") as caught:
        soc.summarize(items, joint=True, bins=2_000, on_leakage="ignore", progress=False)
    assert "\n" not in str(caught.value)
    connection.raw_sql("SET memory_limit = '1GB'")  # the connection goes on
    assert soc.summarize(items, bins=20, on_leakage="ignore", progress=False).n_items == n
