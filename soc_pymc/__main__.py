"""The command line `soc-pymc`: start and end of a command; every error is one line.

The commands are in `soc_pymc.front.commands`, which is imported when one runs.
"""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

_STOPPED = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
# for developers of libraries, not for users of a command
_FOR_DEVELOPERS = (
    DeprecationWarning,
    PendingDeprecationWarning,
    FutureWarning,
    ResourceWarning,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default of the process's own words; returns the exit status.

    It is 0, 2 on an error, 130 after Ctrl-C, 143 after SIGTERM and 141 if a pipe was closed.
    """
    if sys.stderr is None:  # closed: print would write to standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # of the process, to its end
    if sys.stdout is None:
        return _fail("standard output is closed: redirect it to a file")
    arrived: list[int] = []
    with _handlers(arrived):
        try:
            status = _run(arguments)
        # libraries may convert a signal's exception to their own
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                arrived.append(signal.SIGINT)
            elif not arrived:
                raise
    if arrived:
        what = _STOPPED[signal.Signals(arrived[0])]
        return _fail(f"{what}; nothing was left half-written", 128 + arrived[0])
    return status


@contextmanager
def _handlers(arrived: list[int]) -> Iterator[None]:
    """Record signals and raise for them, so that temporary files are removed."""

    def stop(number: int, frame: Any) -> None:
        arrived.append(number)
        if number == signal.SIGTERM:
            raise SystemExit(128 + number)
        raise KeyboardInterrupt

    plain = (signal.SIG_DFL, signal.default_int_handler)
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _STOPPED if in_main}
    replaced = {
        number: handler for number, handler in before.items() if handler in plain
    }
    for number in replaced:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command, as `main`, without handling signals."""
    # matrices are small: threads of BLAS would wait for each other, and are set when it is loaded
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ._lib.arguments import SocError
    from .front.commands import in_options, make_parser, sql

    words = sys.argv[1:] if arguments is None else arguments
    command = "".join(words[:1])
    try:
        chosen, unknown = make_parser(command).parse_known_args(words)
        if unknown:
            chosen.refuse(f"unrecognized arguments: {' '.join(unknown)}")
        if hasattr(sys.stdout, "reconfigure"):
            # characters that cannot be shown become escapes, except in SQL
            sys.stdout.reconfigure(
                errors="strict" if chosen.run is sql else "backslashreplace"
            )
        # only restores how warnings are shown
        with warnings.catch_warnings():
            worded = partial(in_options, command=command)
            warnings.showwarning = partial(_show_warning, set(), worded)
            chosen.run(chosen)
            # a failed write must be an error of this command
            sys.stdout.flush()
    except SocError as error:
        return _fail(f"{in_options(str(error), command)}; {chosen.listing}")
    except UnicodeEncodeError as error:
        lacks = f"{error.encoding} has no {error.object[error.start : error.end]!a}"
        return _fail(f"{lacks}: set PYTHONUTF8=1 or PYTHONIOENCODING=utf-8")
    except BrokenPipeError:  # the reader has closed the pipe, as in `command | head`
        nowhere = os.open(os.devnull, os.O_WRONLY)
        # otherwise the interpreter reports an error at exit
        os.dup2(nowhere, sys.stdout.fileno())
        return 128 + 13  # SIGPIPE, which Windows lacks
    except OSError as error:
        reason = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
        return _fail(f"{reason}; {chosen.listing}" if error.filename else reason)
    return 0


def _fail(text: str, status: int = 2) -> int:
    """Print one line with the error."""
    print("soc-pymc: error: " + "; ".join(text.splitlines()), file=sys.stderr)
    return status


def _show_warning(
    shown: set[str],
    worded: Callable[[str], str],
    message: Warning | str,
    category: type[Warning],
    *_: Any,
) -> None:
    """Print a warning on one line in the words of the command line, once in a command."""
    if issubclass(category, _FOR_DEVELOPERS) or str(message) in shown:
        return
    shown.add(str(message))
    text = " ".join(str(message).split())
    if category.__module__.startswith("soc_pymc"):
        text = worded(text)
    else:
        text = f"{category.__name__}: {text}"
    print(f"soc-pymc: warning: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
