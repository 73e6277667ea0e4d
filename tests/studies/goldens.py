"""Numbers of the public interface, recorded and compared.

    python -m tests.studies.goldens --write
    python -m tests.studies.goldens --check
    python -m tests.studies.goldens --check --only gamma five_normal

The safety net of changes that must not change a number. Only public names are used, so that the
modules below may move. Integers and texts must be the same, real numbers within a tolerance of the
largest of their array; posteriors of items, where they are positive, each of its own size. Of a
large array some entries are kept, with its sum, and its sum with weights that tell its entries
apart; both are held against the sum of absolute values. Times are left out.

The numbers hold for the versions that made them, which the file names. Those of most fits hold for
its processor too: compiled kernels round differently on others, and draws chosen by weights differ.
"""

import argparse
import json
import platform
import re
import sys
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc

from .golden_fits import ASKED, CASES, fit_of
from .golden_others import OTHERS

FILE = Path(__file__).parent.parent / "goldens.json"
TOLERANCE = 1e-10
# By the beginning of a key, case/part/name, the first that fits: a chain is chaotic, and a
# tolerance can only tell its noise of rounding from another chain; the systems of smoothing splines
# have condition numbers of 1e7, so that BLAS kernels of other processors differ by up to 8e-9.
TOLERANCES = {"nuts/": 1e-6, "five_": 1e-8, "stored/five_": 1e-8, "estimators/": 1e-8}
WHOLE = ("items all", "items representative", "sql duckdb")  # each item is kept
OWN = ("items", "sql")  # where all are positive, each item is held against itself
COUNTERS = ("chain", "draw", "coordinate", "_basis", "_term", "bound")
# groups of a fit that follow from its posterior and its statistics, or are drawn from the prior
FOR_ARVIZ = ("prior", "prior_predictive", "posterior_predictive", "log_prior", "log_likelihood")
# the model's own data, which define the coordinates of inference
MODEL = (
    *("_prior_scale", "_prior_mean", "_prior_sd", "_sd_shape", "_pull", "_precision"),
    *("_coupling", "_centre", "_root", "_shift", "_shares"),
)
DIM = re.compile(r"row|.*_dim_\d")
TIMES = ("perf_counter", "process_time")
LIBRARIES = ("numpy", "scipy", "pandas", "xarray", "pymc", "pytensor", "numba", "arviz-stats")
NAMES = (*CASES, *OTHERS)
CHEAP = ("five_gamma", "five_normal", "engines", "stored", "simulations", "formulas", "estimators")


def summary(array: Any, whole: int) -> Any:
    """Numbers that stand for an array: all of a small one, some and sums of a large one."""
    array = np.asarray(array)
    flat = array.ravel()
    if flat.dtype.kind not in "biuf":
        texts = [str(x) for x in flat.tolist()]
        kept = texts if len(texts) <= whole else [texts[0], texts[-1]]
        return {"of": list(array.shape), "at": kept, "sum": zlib.crc32("\n".join(texts).encode())}
    real = flat.dtype.kind == "f"
    flat = flat.astype(float if real else np.int64)
    if flat.size <= whole:
        return flat.tolist() if array.ndim else flat.tolist()[0]
    at = np.unique(np.linspace(0, flat.size - 1, 3).astype(int))
    found = {"of": list(array.shape), "at": flat[at].tolist()}
    if not real:
        return found | {"sum": int(flat.sum()), "code": zlib.crc32(flat.tobytes())}
    fine = np.isfinite(flat)
    flat = np.where(fine, flat, 0.0)
    sums = [flat.sum(), (flat * np.cos(np.arange(flat.size))).sum()]
    sizes = [np.abs(flat).max(), np.abs(flat).sum()]  # by which departures are divided
    found |= {"sums": [float(x) for x in sums], "sizes": [float(f"{x:.3g}") for x in sizes]}
    return found if fine.all() else found | {"odd": int((~fine).sum())}


def _left_out(name: str) -> bool:
    left = name.endswith((*COUNTERS, *MODEL)) or name.startswith(TIMES)
    return left or DIM.fullmatch(name) is not None


def inside(value: Any) -> Any:
    """What a result holds, by name; an array or a number as it is."""
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value) if f.name != "seconds"}
    if isinstance(value, tuple):
        return dict(enumerate(value))
    if isinstance(value, xr.DataTree):
        own = FOR_ARVIZ if "prior" in value.children else ()
        nodes = (node for node in value.subtree if node.name not in own)
        return {node.path: node.to_dataset(inherit=False) for node in nodes}
    if isinstance(value, xr.Dataset):
        names = (key for key in value.variables if not _left_out(str(key)))
        return {str(key): _in_one_chain(value[key]) for key in names}
    if isinstance(value, pd.DataFrame):
        index = {} if isinstance(value.index, pd.RangeIndex) else {"index": value.index}
        return {**index, **{str(key): value[key].to_numpy() for key in value}}
    if isinstance(value, xr.DataArray):
        return _in_one_chain(value)
    return value.to_numpy() if isinstance(value, pd.Series) else value


def _in_one_chain(values: xr.DataArray) -> Any:
    """Values with the draws of all chains one after the other."""
    array = values.to_numpy()
    if values.dims[:2] != ("chain", "draw"):
        return array
    return array.reshape(-1, *array.shape[2:])


def numbers(name: str, value: Any, whole: int = 7) -> Iterator[tuple[str, Any]]:
    """Summaries of all that a result holds, by name."""
    value = inside(value)
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from numbers(f"{name}.{key}", part, whole)
    elif value is not None:
        yield name, summary(value, 30 if name.startswith(WHOLE) else whole)


def found(case: str) -> dict[str, Any]:
    """All numbers of a case, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)
        warnings.simplefilter("ignore", soc.ConvergenceWarning)
        if case in OTHERS:
            parts = list(OTHERS[case]())
        else:
            asked, fit = CASES[case], fit_of(case)
            parts = [part for ask in ASKED for part in ask(asked, fit)]
        return {key: kept for name, value in parts for key, kept in numbers(name, value)}


# ---- comparing


def departure(old: Any, new: Any, own: bool = False) -> float:
    """Largest difference, as a share of the largest number; infinite of other kinds and shapes."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        if any(old[key] != new[key] for key in ("of", "odd", "code", "sum") if key in old):
            return np.inf
        if "sizes" not in old:
            return departure(old["at"], new["at"], own)
        largest, whole = np.maximum(old["sizes"], new["sizes"])
        return max(
            departure(old["at"], new["at"], True) if own else 0.0,
            _difference(old["at"], new["at"], largest),
            _difference(old["sums"], new["sums"], whole),
        )
    old, new = (list(x) if isinstance(x, list) else [x] for x in (old, new))
    if len(old) != len(new) or [type(x) for x in old] != [type(x) for x in new]:
        return np.inf
    if not old or not isinstance(old[0], float):
        return 0.0 if old == new else np.inf
    if own and min(*old, *new) > 0:
        return _difference(old, new, np.maximum(old, new))
    return _difference(old, new, np.nanmax(np.abs([*old, *new, 0.0])))


def _difference(old: list[float], new: list[float], size: Any) -> float:
    a, b = np.array(old), np.array(new)
    fine = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~fine], b[~fine], equal_nan=True):
        return np.inf
    size = np.broadcast_to(size, a.shape)
    size = np.where(np.isfinite(size), size, np.maximum(np.abs(a), np.abs(b)))
    off = np.abs(a[fine] - b[fine])
    return float(np.divide(off, size[fine], out=off.copy(), where=off > 0).max(initial=0.0))


def departures(case: str, kept: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each number of a case that is not what it was."""
    lines = []
    for key in [*kept, *(key for key in now if key not in kept)]:
        name = f"{case}/{key}"
        if key not in kept or key not in now:
            lines.append(f"{name}: {'gone' if key in kept else 'new'}")
            continue
        off = departure(kept[key], now[key], key.startswith(OWN))
        bound = next((tol for head, tol in TOLERANCES.items() if name.startswith(head)), TOLERANCE)
        if not off <= bound:
            lines.append(f"{name}: {off:.2g}")
    return lines


def versions() -> dict[str, str]:
    made = {"machine": platform.machine(), "python": ".".join(platform.python_version_tuple()[:2])}
    return made | {name: version(name) for name in LIBRARIES}


def processor() -> str:
    """The processor that kernels are compiled for, as LLVM names it."""
    return str(llvmlite.binding.get_host_cpu_name())


def read() -> dict[str, Any]:
    """The file of numbers: ``versions``, ``processor`` and ``cases``."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"cases": {}}


def write(cases: Mapping[str, Mapping[str, Any]]) -> None:
    blocks = []
    for name in (name for name in NAMES if name in cases):
        rows = [
            f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}"
            for k, v in cases[name].items()
        ]
        blocks.append(f"{json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n}")
    body = ",\n".join(blocks)
    made = f'"versions": {json.dumps(versions())},\n"processor": {json.dumps(processor())}'
    text = f'{{{made},\n"cases": {{\n{body}\n}}}}\n'
    FILE.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="record the numbers")
    action.add_argument("--check", action="store_true", help="compare with those recorded")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    given = parser.parse_args()
    kept, lines = read(), []
    if given.check and kept.get("versions") != versions():
        print(f"recorded with {kept.get('versions')}, this is {versions()}")
    for name in given.only:
        start = time.process_time()
        now = json.loads(json.dumps(found(name)))
        print(f"{name}: {len(now)} entries, {time.process_time() - start:.1f} s", flush=True)
        if given.check:
            lines += departures(name, kept["cases"].get(name, {}), now)
        else:
            kept["cases"][name] = now
            write(kept["cases"])
    print("\n".join([*lines, f"{len(lines)} departures"] if given.check else [str(FILE)]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
