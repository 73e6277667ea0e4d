#!/bin/sh
# PyMC 6.4.0 drives BlackJAX through functions that BlackJAX 1.7.1 has changed: with both newest
# versions, which no requirement keeps apart, nuts_sampler="blackjax" is a TypeError from the inside
# of a compiled loop, where an engineer would look for a fault of the model.
# Expected: draws. Seen: build_kernel.<locals>.kernel() got an unexpected keyword argument
# 'progress_bar'. PyMC's own sampler, nutpie 0.16.11 and NumPyro 0.22.0 run.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "pymc==6.4.0" "blackjax==1.7.1"
cd "$folder"
venv/bin/python - <<'PYTHON'
import pymc as pm

options = {"draws": 20, "tune": 20, "chains": 1, "progressbar": False, "random_seed": 1}
with pm.Model():
    pm.Normal("mean")
    own = pm.sample(nuts_sampler="pymc", **options)
    try:
        pm.sample(nuts_sampler="blackjax", **options)
    except TypeError as error:
        message = str(error)
print(own.posterior.sizes, message)
assert "progress_bar" in message
PYTHON
