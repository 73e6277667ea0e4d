"""Sections of the page, each made from the same material."""

from .checking import checks
from .curves import curves
from .data import data
from .deciding import decisions
from .head import head
from .howgood import quantities
from .settings import settings

__all__ = ["checks", "curves", "data", "decisions", "head", "quantities", "settings"]
