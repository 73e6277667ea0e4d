"""The command line `soc-pymc`: each command a thin layer over one function."""

from collections.abc import Sequence

from ._ending import until_stopped

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 on success and 2 on an error.

    It is 130 after Ctrl-C, 143 after SIGTERM and 141 where the reader of a pipe has gone.

    Parameters
    ----------
    arguments
        Words of the command line; None takes the process's own.
    """

    def work() -> int:
        from ._main import run  # within: it takes a second or two, in which Ctrl-C may come

        return run(arguments)

    return until_stopped(work)
