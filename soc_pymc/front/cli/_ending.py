"""How a command ends when it is stopped, when nobody reads on, or when letters cannot be shown.

Nothing but the standard library is imported: this must be there before the seconds in which a
command is loaded.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["fail", "reader_gone", "show_all_letters", "until_stopped"]

_STOPPED = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def until_stopped(work: Callable[[], int]) -> int:
    """Status of some work, or 130 after Ctrl-C and 143 after SIGTERM, as of any other command.

    Both are exceptions to the work, so that it removes its temporary files.
    """
    arrived: list[int] = []
    with _handlers(arrived):
        try:
            status = work()
        except KeyboardInterrupt:
            arrived.append(signal.SIGINT)
        except BaseException:  # libraries may turn what the signal raised into errors of their own
            if not arrived:
                raise
    if arrived:
        what = _STOPPED[signal.Signals(arrived[0])]
        return fail(f"{what}; nothing was left half-written", 128 + arrived[0])
    return status


@contextmanager
def _handlers(arrived: list[int]) -> Iterator[None]:
    """Note which signals arrive, and raise for them; where there are handlers, they stay."""

    def stop(number: int, frame: Any) -> None:
        arrived.append(number)
        if number == signal.SIGTERM:
            raise SystemExit(128 + number)
        raise KeyboardInterrupt

    plain = (signal.SIG_DFL, signal.default_int_handler)
    ours = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _STOPPED if ours}
    taken = {number: handler for number, handler in before.items() if handler in plain}
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def show_all_letters(exact: bool) -> None:
    """Let standard output write letters that its encoding lacks as escapes, or refuse them."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="strict" if exact else "backslashreplace")


def reader_gone() -> int:
    """Status of a command whose output nobody reads any more, as of `command | head`; quietly."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # or the interpreter would complain at its end
    return 128 + 13


def fail(text: str, status: int = 2) -> int:
    """Say in one line what went wrong."""
    print("soc-pymc: error: " + "; ".join(text.splitlines()), file=sys.stderr)
    return status
