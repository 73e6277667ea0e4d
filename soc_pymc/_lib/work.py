"""Long work: on blocks of items in threads, whose results come in order; and its progress.

Blocks are cut by their place in the data, so that no result depends on the number of threads. BLAS
has one thread meanwhile: matrices are small, and two doubled the CPU time of a mixture's fit.
"""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache, partial, wraps
from importlib.util import find_spec
from itertools import chain, islice
from operator import methodcaller
from typing import Any

from .arguments import OrNone, SocError, switch

THREADS = "SOC_PYMC_THREADS"
_worker = threading.local()
PROGRESS = "SOC_PYMC_PROGRESS"
_setting: list[bool | None] = [None]
_asked: ContextVar[bool | None] = ContextVar("progress", default=None)
_bar = threading.Lock()  # held while a bar is on the screen


def threads() -> int:
    """Number of threads that work at once: `SOC_PYMC_THREADS`, or all usable processors."""
    text = os.environ.get(THREADS, "").strip()
    if not text:
        # not on every system
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 1024:
        return int(text)
    raise SocError(
        f"the environment variable {THREADS}={text!r} must be a whole number from 1 to 1,024, the "
        "number of threads: correct it, or remove it to use all processors"
    )


def ordered_map[Block, Result](
    function: Callable[[Block], Result],
    blocks: Iterable[Block],
    ahead: int = 2,
    ended: threading.Event | None = None,
) -> Iterator[Result]:
    """Results of a function of blocks, in the blocks' order, made in threads.

    At most `ahead` blocks beyond one per thread are taken before their turn, which bounds memory.
    Inside another call's thread, and with a single block, the caller does all work. After an error
    or an interrupt no further block is begun; `ended` tells long work on others.
    """
    number = 1 if getattr(_worker, "busy", False) else threads()
    blocks = iter(blocks)
    head = list(islice(blocks, 2))
    # for each block: a suspended generator holds no limit
    function = one_blas_thread(function)
    if number == 1 or len(head) < 2:
        yield from map(function, chain(head, blocks))
        return
    waiting: deque[Future[Result]] = deque()
    begin = partial(setattr, _worker, "busy", True)
    with ThreadPoolExecutor(number, initializer=begin) as pool:
        try:
            for block in chain(head, blocks):
                waiting.append(pool.submit(copy_context().run, function, block))
                if len(waiting) >= number + ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            if ended:
                ended.set()
            for future in waiting:
                future.cancel()


_lock = threading.Lock()
# calls, of all threads, that run with one thread of BLAS
_limited: set[object] = set()
# threads of the libraries of BLAS without a limit, while there is one
_before: list[int] = []


@cache
def _libraries() -> Any:
    import scipy.linalg  # noqa: F401  # whose BLAS is found only if it is loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _limit(call: object, running: bool) -> None:
    """Begin or end a call: BLAS has one thread until the last of overlapping calls has ended."""
    global _before
    with _lock:
        (_limited.add if running else _limited.discard)(call)
        if _limited and not _before:
            _before = [*map(methodcaller("get_num_threads"), _libraries())]
        for library, number in zip(_libraries(), _before, strict=False):
            # newer versions of threadpoolctl let one thread set them, and ignore others silently
            disown = getattr(library, "clear_controlling_thread", lambda force: None)
            disown(force=True)
            library.set_num_threads(1 if _limited else number)
            disown(force=True)
        if not _limited:
            _before = []


def _end_calls() -> None:
    """End, in a forked process, the calls of its parent: their threads do not exist there."""
    global _lock
    _lock = threading.Lock()
    _limited.clear()
    if _before:
        _limit(None, False)


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_end_calls)


def one_blas_thread[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that runs with one thread of BLAS."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        token = object()
        try:
            _limit(token, True)
            return function(*args, **options)
        finally:
            try:
                _limit(token, False)
            finally:
                # where Ctrl-C came within the first
                _limit(token, False)

    return call


@contextmanager
def raising_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C, which `pm.sample` and others swallow or change."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(
        before
    ):
        yield
        return
    arrived: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        arrived.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        if arrived:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if arrived:
        raise KeyboardInterrupt


# --- progress ------------------------------------------------------------------------------------


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


@contextmanager
def showing(show: Any) -> Iterator[None]:
    """Show or hide the progress of a block's work; None: as around it."""
    show = OrNone(switch)(show, "progress")
    token = _asked.set(_asked.get() if show is None else show)
    try:
        yield
    finally:
        _asked.reset(token)


def with_progress[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose ``progress=`` holds for all that it calls."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        with showing(options.get("progress")):
            return function(*args, **options)

    return call


def long_work[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that has a ``progress=`` and runs with one thread of BLAS."""
    return with_progress(one_blas_thread(function))


def is_shown() -> bool:
    """Return whether progress is shown: by an argument, the setting, or the surroundings."""
    variable = os.environ.get(PROGRESS, "").strip()
    if variable not in ("", "0", "1"):
        raise SocError(
            f"the environment variable {PROGRESS}={variable!r} must be 0 or 1"
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
        counter = (
            "{task.completed:,.0f}"
            + (" of {task.total:,.0f} " if total else " ")
            + unit
        )
        texts = ("{task.description}", counter if unit else "", "{task.fields[note]}")
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
