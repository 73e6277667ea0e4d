"""What results show of themselves, made by packages above that are imported when asked for."""

from importlib import import_module
from typing import Any

_MODULES = {"summary": "quantities.curves", "pit_image": "plots.results"}


def made_above(name: str, result: Any) -> Any:
    """Return what the function `name` of a package above makes of a result."""
    return getattr(import_module(f"soc_pymc.{_MODULES[name]}"), name)(result)
