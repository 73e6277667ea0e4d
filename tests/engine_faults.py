"""What an engine may do to us: lose a worker, end, or find no room. Run in a process of its own.

python -m tests.engine_faults lost FOLDER     Spark loses a worker in the middle, then ends
python -m tests.engine_faults full FOLDER     Spark has no room for what it sorts
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import soc_pymc as soc

_FILES, _ROWS = 8, 20_000
_OPTIONS = {"joint": True, "bins": 10, "progress": False}
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.files.openCostInBytes": "100m",  # a task for each file
    "spark.shuffle.io.retryWait": "200ms",  # what a lost worker had is given up soon
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


def _session(master: str, **more: str) -> Any:
    import pyspark
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return SparkSession.builder.master(master).config(map=_SETTINGS | more).getOrCreate()


def _items(session: Any, folder: Path) -> Any:
    import ibis

    for k in range(_FILES):
        frame = soc.simulation.s1(_ROWS, seed=k)[["score", "count", "exposure"]]
        frame.to_parquet(folder / f"{k}.parquet")
    session.read.parquet(str(folder)).createOrReplaceTempView("items")
    table = ibis.pyspark.connect(session).table("items")
    return soc.PoissonItems(table, score="score", count="count", exposure="exposure")


def _workers(session: Any) -> list[int]:
    """Process numbers of the session's executors, which are children of the driver's machine."""
    driver, found = session.sparkContext._gateway.proc.pid, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        if parent == driver and b"CoarseGrainedExecutorBackend" in words:
            found.append(int(folder.name))
    return found


def _busy(session: Any, completed: int) -> bool:
    """Whether tasks run, and so many of their stage have been done."""
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(k) for k in tracker.getActiveStageIds()]
    return any(s and s.numActiveTasks and s.numCompletedTasks >= completed for s in stages)


def _while_busy(session: Any, completed: int, work: Any) -> threading.Thread:
    """Do something, once, in the middle of a stage."""

    def wait() -> None:
        while not _busy(session, completed):
            time.sleep(0.002)
        work()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def _said(items: Any) -> list[str]:
    try:
        soc.summarize(items, **_OPTIONS)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def lost(folder: Path) -> dict[str, Any]:
    """Statistics before and while a worker is killed, and after the whole of Spark is."""
    session = _session("local-cluster[2,1,1024]", **{"spark.worker.dir": str(folder / "work")})
    (folder / "items").mkdir()
    items = _items(session, folder / "items")
    soc.summarize(items, **_OPTIONS).save(folder / "before.nc")
    workers, killed = _workers(session), []

    def kill() -> None:
        os.kill(workers[0], signal.SIGKILL)
        killed.append(workers[0])

    thread = _while_busy(session, 1, kill)
    soc.summarize(items, **_OPTIONS).save(folder / "lost.nc")
    thread.join(1.0)
    driver = session.sparkContext._gateway.proc.pid
    _while_busy(session, 1, lambda: os.kill(driver, signal.SIGKILL))
    found = {"workers": workers, "killed": killed, "left": _workers(session)}
    return found | {"ended": _said(items), "again": _said(items)}


def full(folder: Path) -> dict[str, Any]:
    """What is said where the folder for what is sorted has no room."""
    disk = folder / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=256k tmpfs '{disk}'"):
        raise SystemExit("no disk was mounted")
    session = _session("local[2]", **{"spark.local.dir": str(disk)})
    (folder / "items").mkdir()
    items = _items(session, folder / "items")
    return {"full": _said(items)}


if __name__ == "__main__":
    result = {"lost": lost, "full": full}[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(result), flush=True)
    os._exit(0)  # what is left of Spark would wait for what has been killed
