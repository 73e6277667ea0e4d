"""One command from the process's words; every error is one line."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..._lib.errors import SocError
from ._commands import sql
from ._ending import fail, reader_gone, show_all_letters
from ._words import make_parser

__all__ = ["run"]

# of a library's own future, which no user of a command can change
_FOR_DEVELOPERS = (
    DeprecationWarning,
    PendingDeprecationWarning,
    FutureWarning,
    ImportWarning,
    ResourceWarning,
)


def run(arguments: Sequence[str] | None) -> int:
    """Run one command; as `main`, but for signals."""
    chosen = make_parser().parse_args(arguments)
    show_all_letters(exact=chosen.run is sql)  # which machines read, letter by letter
    try:
        with _warnings_as_lines():
            chosen.run(chosen)
            sys.stdout.flush()  # where it cannot be written, that is an error of this command
    except SocError as error:
        return fail(str(error))
    except UnicodeEncodeError as error:
        return fail(_unwritable(error))
    except BrokenPipeError:
        return reader_gone()
    except OSError as error:
        return fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
    return 0


def _unwritable(error: UnicodeEncodeError) -> str:
    letters = error.object[error.start : error.end]
    return f"{error.encoding} has no {letters!a}: set PYTHONUTF8=1 or PYTHONIOENCODING=utf-8"


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Warnings are lines of standard error, as errors are; afterwards all is as it was found."""
    with warnings.catch_warnings():  # hides none: it puts back how they are shown
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        yield


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, _FOR_DEVELOPERS):
        return
    own = category.__module__.startswith("soc_pymc")
    text = " ".join(str(message).split())
    print(f"soc-pymc: warning: {text if own else f'{category.__name__}: {text}'}", file=sys.stderr)
