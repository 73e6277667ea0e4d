"""Draws of the model's variables given their parameters: one compiled rule for each.

A draw in plain Python makes PyMC's compiled graphs warn, keeps them out of the cache, and so costs
seconds of compiling at every call. A `Forward` is given to `pm.CustomDist` as its ``random``:
PyTensor then finds the compiled rule, and so does Python.
"""

from functools import cache, partial
from hashlib import sha256
from typing import Any

import numba
import numpy as np
from pymc.distributions.custom import CustomDistRV
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from ..families.row_sums import RowSums
from .likelihood import version_of_kernels

_jit = numba.njit(error_model="numpy")


class Forward:
    """The draw of one variable, ``compiled(rng, *parameters)``, over batches of parameters.

    `signature` is the variable's. PyTensor's cache knows the rule by its name and the sources.
    """

    def __init__(self, name: str, signature: str, compiled: Any) -> None:
        self.signature, self.compiled = signature, compiled
        text = f"{name} {signature} {version_of_kernels()}"
        self.version = int.from_bytes(sha256(text.encode()).digest()[:8], "big")

    def __call__(self, *parameters: Any, rng: np.random.Generator, size: Any = None) -> Any:
        """Draws (*size, *core), as `pm.CustomDist` calls its ``random``."""
        values = [np.asarray(p) for p in parameters]
        cores = self.signature.split("->")[0][1:-1].split("),(")
        core = [values[k].ndim - len([x for x in c.split(",") if x]) for k, c in enumerate(cores)]
        if size:
            values[0] = np.broadcast_to(values[0], (*size, *values[0].shape[core[0] :]))
        # compiling takes a process far longer than one draw, such as a model's first, in Python
        rule = self.compiled if size or any(core) else self.compiled.py_func
        return np.vectorize(partial(rule, rng), signature=self.signature)(*values)


@numba_core_rv_funcify.register(CustomDistRV)
def _compiled_rule(op: Any, node: Any) -> tuple[Any, int]:
    """The rule of a variable that is drawn by a `Forward`; others are as without this."""
    rule = vars(type(op)).get("_random_fn")
    if not isinstance(rule, Forward):
        # the signal to PyTensor, which catches it, that a user's own variable is drawn in Python
        raise NotImplementedError
    return rule.compiled, rule.version


# --- rules ---------------------------------------------------------------------------------------


@_jit
def _half_normal(rng, scale, shape):  # type: ignore[no-untyped-def]
    return abs(rng.normal()) * scale


@_jit
def _normals(rng, scale, precision, pull):  # type: ignore[no-untyped-def]
    return rng.normal(0.0, 1.0, len(precision)) * scale


@_jit
def _line(rng, mean, sd, centre, shift, root, before):  # type: ignore[no-untyped-def]
    return mean + sd * rng.normal(0.0, 1.0, len(mean))


SCALE = Forward("scale", "(),(s)->()", _half_normal)
BLOCK = Forward("block", "(),(k),(k)->(k)", _normals)
LINE = Forward("line", "(l),(l),(l),(l,k),(l,l),(k)->(l)", _line)


@cache
def totals(sums: type[RowSums], dimensions: tuple[int, ...]) -> Forward:
    """Observed totals of rows, whose cells have these numbers of dimensions."""
    cores = [",".join(f"c{k}_{axis}" for axis in range(n - 1)) for k, n in enumerate(dimensions)]
    return Forward(f"{sums.__name__} totals", f"(),(),({'),('.join(cores)})->()", sums.draw_row)
