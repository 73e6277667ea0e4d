"""Configurations of a fit as JSON; the checksum of a file covers its numbers."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, get_args

import numpy as np

from ..families.priors import Prior, Spline
from .methods import NUTS, VI, FiveSteps

METHODS = (VI, NUTS, FiveSteps)
PRIORS = get_args(Prior)


def as_json(record: Any) -> str:
    """A frozen configuration as JSON, with the name of its class."""
    content = {"name": type(record).__name__, **asdict(record)}
    return json.dumps(content, default=_plain_number)


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored in a file")


def read_record(text: str, *kinds: type[Any]) -> Any:
    """A configuration of one of the classes from the output of `as_json`."""
    content = json.loads(text)
    known = {kind.__name__: kind for kind in kinds}
    return _made(known[content.pop("name")], content)


def _made(kind: type[Any], content: Mapping[str, Any]) -> Any:
    names = {field.name for field in fields(kind)}
    if odd := sorted(names ^ content.keys()):
        what = "lacks" if odd[0] in names else "has an unknown"
        raise ValueError(f"{kind.__name__} {what} {odd[0]!r}")
    return kind(**{k: _made(Spline, v) if isinstance(v, dict) else v for k, v in content.items()})
