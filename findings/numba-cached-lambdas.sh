#!/bin/sh
# Numba 0.68.0 keeps compiled functions on disk (cache=True) under their qualified name, signature
# and a number that counts the functions a process has compiled. Two lambdas of one module have the
# same qualified name. If different processes compiled them, both can have the same number as well,
# and a third function that calls both calls one of them twice: wrong numbers, without a word.
# Expected of plus and times at 1: (2.0, 10.0). Seen: (2.0, 2.0). Named functions are right.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "numba==0.68.0" "numpy==2.5.5"
cd "$folder"
cat > by_lambda.py <<'PYTHON'
from numba import njit

plus = njit(cache=True)(lambda x: x + 1.0)
times = njit(cache=True)(lambda x: x * 10.0)


@njit(cache=True)
def both(x):
    return plus(x), times(x)
PYTHON
cat > by_name.py <<'PYTHON'
from numba import njit


@njit(cache=True)
def plus(x):
    return x + 1.0


@njit(cache=True)
def times(x):
    return x * 10.0


@njit(cache=True)
def both(x):
    return plus(x), times(x)
PYTHON
for module in by_lambda by_name; do
    venv/bin/python -c "import $module; $module.plus(1.0)"
    venv/bin/python -c "import $module; $module.times(1.0); print($module.both(1.0))" > "$module.txt"
    echo "$module: $(cat $module.txt)"
done
test "$(cat by_lambda.txt)" = "(2.0, 2.0)"
test "$(cat by_name.txt)" = "(2.0, 10.0)"
