"""One command from the process's words; every error is one line."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ..errors import SocError
from ._commands import sql
from ._ending import fail, reader_gone, show_all_letters
from ._words import make_parser

__all__ = ["run"]


def run(arguments: Sequence[str] | None) -> int:
    """Run one command; as `main`, but for signals."""
    chosen = make_parser().parse_args(arguments)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    show_all_letters(exact=chosen.run is sql)  # which machines read, letter by letter
    try:
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


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if category.__module__.startswith("soc_pymc"):
        print(f"soc-pymc: warning: {message}", file=sys.stderr)
