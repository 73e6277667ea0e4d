#!/bin/sh
# PyTensor 3.3.8: threads that call one compiled function at the same time get each other's values.
# With the C virtual machine a tenth to a fifth of calls from four threads return a wrong array without
# an error, and a few raise; compiled by Numba, the default, it is rare. Values between the nodes of a
# graph are stored with the function, once. So a log density of PyMC that a pool of threads evaluates
# is silently wrong now and then. Expected: the value of the call's own input, or a refusal.
# A lock around the calls, or a copy of the function for each thread, is needed.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "pytensor==3.3.8" "numpy==2.5.5"
cd "$folder"
venv/bin/python - <<'PYTHON'
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x")
output = pt.sort(pt.exp(-x / 10.0) * x)[::-1].cumsum()
function = pytensor.function([x], output, mode=pytensor.compile.mode.Mode(linker="cvm"))
inputs = [np.full(300_000, 1.0 + k) for k in range(8)]
expected = [function(values) for values in inputs]
lock = threading.Lock()


def alone(values):
    with lock:
        return function(values)


def outcomes(call):
    """Numbers of calls that gave another array, and that raised."""

    def outcome(k):
        try:
            found = call(inputs[k])
        except Exception:
            return "raised"
        return "right" if np.array_equal(found, expected[k]) else "wrong"

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(outcome, 60 * list(range(8))))
    return found.count("wrong"), found.count("raised")


shared = outcomes(function)
locked = outcomes(alone)
print("of 480 calls wrong and raised:", shared, "with a lock:", locked)
assert shared[0] > 0
assert locked == (0, 0)
PYTHON
