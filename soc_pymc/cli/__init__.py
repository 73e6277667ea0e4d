"""The command line `soc-pymc`: each command a thin layer over one function."""

from ._main import main

__all__ = ["main"]
