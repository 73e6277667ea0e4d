"""An engine that loses a worker, and then ends."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import soc_pymc as soc
from tests.data.cell_references import assert_same

ROOT = Path(soc.__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(
    not (os.environ.get("JAVA_HOME") or shutil.which("java")),
    reason="no Java, in which Spark runs",
)
def test_spark_gives_the_same_numbers_after_losing_a_worker(tmp_path):
    """Another worker repeats its tasks, no item is lost or counted twice; then Spark ends."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    environment = {"PYTHONPATH": str(ROOT), "SPARK_WORKER_DIR": str(tmp_path / "work")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine_faults", str(tmp_path)],
        capture_output=True, text=True, timeout=600, env=os.environ | environment, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["workers"]) == 2
    assert told["killed"] == told["workers"][:1]
    assert told["killed"][0] not in told["left"]
    before, after = (soc.load_statistics(tmp_path / f"{name}.nc") for name in ("before", "lost"))
    assert_same(before, after)
    name, text = told["ended"]
    assert name == "ItemsError"
    assert "cannot be read" in text
    assert "\n" not in text
