"""CPU seconds of work, of this process or with its children, and one printed line for each."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Report", "Spent", "cpu", "spent"]


@dataclass(frozen=True)
class Spent:
    """Wall seconds, and CPU seconds of this process and of the children that ended meanwhile."""

    wall: float
    cpu: float
    result: Any


def cpu(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Least CPU seconds of several runs in this process, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def spent(work: Callable[[], Any]) -> Spent:
    """Wall and CPU seconds of one run, children included."""
    wall, before = time.perf_counter(), _with_children()
    result = work()
    return Spent(time.perf_counter() - wall, _with_children() - before, result)


def _with_children() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@dataclass(frozen=True)
class Report:
    """Prints CPU seconds as multiples of a plain scan of the same columns."""

    scan: float

    def section(self, title: str) -> None:
        """Print a heading."""
        print(f"\n{title}", flush=True)

    def line(self, what: str, seconds: float, note: str = "") -> None:
        """Print one line of CPU seconds."""
        scans = f"{seconds / self.scan:9.1f} scans"
        print(f"  {what:58s} {seconds:8.3f} CPU s {scans}  {note}".rstrip(), flush=True)

    def say(self, text: str) -> None:
        """Print a line without seconds."""
        print(f"  {text}", flush=True)
