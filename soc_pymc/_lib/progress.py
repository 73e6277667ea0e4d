"""Progress of long work: a setting, and one bar on standard error that clears itself."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from importlib.util import find_spec
from typing import Any

from .arguments import OrNone, switch
from .errors import SocError

VARIABLE = "SOC_PYMC_PROGRESS"
_setting: list[bool | None] = [None]
_asked: ContextVar[bool | None] = ContextVar("progress", default=None)
_bar = threading.Lock()  # held while a bar is on the screen


def progress(show: bool | None = None) -> None:
    """Show or hide the progress of long work, in all calls that do not say ``progress=``.

    Parameters
    ----------
    show : bool or None
        True, False, or None for the default: the environment variable ``SOC_PYMC_PROGRESS`` (1 or
        0), else progress is shown in terminals, and in notebooks that have ``ipywidgets``. In a log
        file True writes one line at the end of each phase of the work.

    Raises
    ------
    FitError
        If `show` is something else.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.progress(False)
    """
    _setting[0] = OrNone(switch)(show, "show")


def with_progress[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose ``progress=`` holds for all that it calls."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        show = OrNone(switch)(options.get("progress"), "progress")
        token = _asked.set(_asked.get() if show is None else show)
        try:
            return function(*args, **options)
        finally:
            _asked.reset(token)

    return call


def is_shown() -> bool:
    """Return whether progress is shown: by an argument, the setting, or the surroundings."""
    variable = os.environ.get(VARIABLE, "").strip()
    if variable not in ("", "0", "1"):
        raise SocError(
            f"the environment variable {VARIABLE}={variable!r} must be 0 or 1"
        )
    for choice in (
        _asked.get(),
        _setting[0],
        bool(int(variable)) if variable else None,
    ):
        if choice is not None:
            return choice
    if "ipykernel" in sys.modules:  # without ipywidgets rich warns at every bar
        return find_spec("ipywidgets") is not None
    return sys.stderr is not None and sys.stderr.isatty()


@dataclass
class Phase:
    """A named phase of work, perhaps with a bar."""

    bar: Any = None

    def advance(self, amount: float = 1) -> None:
        """Add `amount` finished units."""
        if self.bar:
            self.bar.advance(0, amount)

    def note(self, text: str) -> None:
        """Replace the text shown behind the bar."""
        if self.bar:
            self.bar.update(0, note=text)


@contextmanager
def phase(title: str, *, total: float | None = None, unit: str = "") -> Iterator[Phase]:
    """Run a block as a phase, with a bar if it has a title and no other phase has one."""
    if not (title and is_shown()) or not _bar.acquire(blocking=False):
        yield Phase()
        return
    try:
        from rich import progress as rich
        from rich.console import Console

        console = Console(stderr=True)
        clears = console.is_terminal or console.is_jupyter
        done = (
            "{task.completed:,.0f}"
            + (" of {task.total:,.0f} " if total else " ")
            + unit
        )
        texts = ("{task.description}", done if unit else "", "{task.fields[note]}")
        title_column, *text_columns = (
            rich.TextColumn(text, markup=False) for text in texts
        )
        columns = title_column, rich.BarColumn(20), *text_columns
        time_left = rich.TimeRemainingColumn(elapsed_when_finished=True)
        with rich.Progress(
            *columns,
            time_left,
            console=console,
            transient=clears,
            redirect_stdout=False,
        ) as bar:
            bar.add_task(title, total=total, note="")
            yield Phase(bar)
    finally:
        _bar.release()


def parts(title: str, n: int, step: int, unit: str = "items") -> Iterator[slice]:
    """Yield slices of `step` that make up n, with progress."""
    with phase(title, total=n, unit=unit) as bar:
        for start in range(0, n, step):
            stop = min(start + step, n)
            yield slice(start, stop)
            bar.advance(stop - start)
