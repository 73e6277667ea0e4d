"""One command from the process's words; every error is one line."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ..errors import SocError
from ._words import make_parser

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 on success and 2 on an error.

    Parameters
    ----------
    arguments
        Words of the command line; None takes the process's own.
    """
    chosen = make_parser().parse_args(arguments)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        chosen.run(chosen)
    except SocError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was left half-written")
    return 0


def _fail(text: str) -> int:
    print("soc-pymc: error: " + "; ".join(text.splitlines()), file=sys.stderr)
    return 2


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if category.__module__.startswith("soc_pymc"):
        print(f"soc-pymc: warning: {message}", file=sys.stderr)
