"""Threads: their number, and work on blocks of items whose results come in the blocks' order.

Blocks are cut by their place in the data, so that no result depends on the number of threads. BLAS
has one thread meanwhile: matrices are small, and two doubled the CPU time of a mixture's fit.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, partial, wraps
from itertools import chain, islice
from operator import methodcaller
from typing import Any

from .errors import SocError

VARIABLE = "SOC_PYMC_THREADS"
_worker = threading.local()


def threads() -> int:
    """Number of threads that work at once: `SOC_PYMC_THREADS`, or all usable processors."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        # not on every system
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 1024:
        return int(text)
    raise SocError(
        f"the environment variable {VARIABLE}={text!r} must be a whole number from 1 to 1,024, the "
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
