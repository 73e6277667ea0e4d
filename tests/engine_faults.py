"""Spark loses a worker in the middle of a summary, then ends. Run in a process of its own.

python -m tests.engine_faults FOLDER
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ibis

import soc_pymc as soc

FILES, ROWS = 8, 20_000
SETTINGS = {
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


def session_of_workers(folder: Path) -> Any:
    """Starts a Spark session with two workers, which are processes."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = SETTINGS | {"spark.worker.dir": str(folder / "work")}
    return SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()


def items_in_files(session: Any, folder: Path) -> Any:
    """Writes items into a folder and returns them as the session reads them."""
    folder.mkdir()
    for k in range(FILES):
        frame = soc.simulation.s1(ROWS, seed=k)[["score", "count", "exposure"]]
        frame.to_parquet(folder / f"{k}.parquet")
    session.read.parquet(str(folder)).createOrReplaceTempView("items")
    table = ibis.pyspark.connect(session).table("items")
    return soc.PoissonItems(table, score="score", count="count", exposure="exposure")


def workers_of(session: Any) -> list[int]:
    """Returns process numbers of the session's executors, children of the driver's machine."""
    driver, numbers = session.sparkContext._gateway.proc.pid, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        if parent == driver and b"CoarseGrainedExecutorBackend" in words:
            numbers.append(int(folder.name))
    return numbers


def kill_when_busy(session: Any, process: int) -> threading.Thread:
    """Kills a process in the middle of a stage, when one of its tasks is done."""
    tracker = session.sparkContext.statusTracker()

    def is_busy() -> bool:
        stages = [tracker.getStageInfo(k) for k in tracker.getActiveStageIds()]
        return any(s and s.numActiveTasks and s.numCompletedTasks for s in stages)

    def wait_and_kill() -> None:
        while not is_busy():
            time.sleep(0.002)
        os.kill(process, signal.SIGKILL)

    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    return thread


def lose_a_worker(folder: Path) -> dict[str, Any]:
    """Saves statistics before and while a worker is killed; returns what happens without Spark."""
    session = session_of_workers(folder)
    items = items_in_files(session, folder / "items")
    options: dict[str, Any] = {"joint": True, "bins": 10, "progress": False}
    soc.summarize(items, **options).save(folder / "before.nc")
    workers = workers_of(session)
    thread = kill_when_busy(session, workers[0])
    soc.summarize(items, **options).save(folder / "lost.nc")
    thread.join(1.0)
    killed = [] if thread.is_alive() else workers[:1]
    told = {"workers": workers, "killed": killed, "left": workers_of(session)}
    kill_when_busy(session, session.sparkContext._gateway.proc.pid)
    try:
        soc.summarize(items, **options)
    except Exception as error:
        return told | {"ended": [type(error).__name__, str(error)]}
    return told | {"ended": ["nothing", ""]}


if __name__ == "__main__":
    print(json.dumps(lose_a_worker(Path(sys.argv[1]))), flush=True)
    os._exit(0)  # what is left of Spark would wait for what has been killed
