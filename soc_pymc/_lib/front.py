"""What methods of results show of themselves, by the room above all others.

A result knows its numbers; tables, pictures and predictions of it are made in rooms that import the
result's own. They are looked up when a method is called, so that no room imports one above it.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def shown_by_front(name: str) -> Callable[..., Any]:
    """A function of `front.views`."""
    found: Callable[..., Any] = getattr(import_module("soc_pymc.front.views"), name)
    return found
