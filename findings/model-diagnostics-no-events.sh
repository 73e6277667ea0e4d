#!/bin/sh
# model-diagnostics 1.5.0: the p-value of a bias is 0 where all outcomes are equal. 50 labels of 0 under
# a predicted probability of 0.01 happen in 60% of samples of a right model, and have p-value 0; so has
# every group of few events in `compute_bias(feature=)` in which none happened.
# Expected: no evidence against the predictions. It tests with the sd of the observed residuals, which
# is 0 there; judge groups without events by the exact probability, (1 - p)^n.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "model-diagnostics==1.5.0" "numpy==2.5.5" "pandas==3.1.1"
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
from model_diagnostics.calibration import compute_bias

labels, predicted = np.zeros(50), np.full(50, 0.01)
found = compute_bias(y_obs=labels, y_pred=predicted)
p_value = float(found["p_value"][0])
print("p-value:", p_value, "exact probability of no event:", 0.99**50)
assert p_value == 0.0 and 0.99**50 > 0.6
labels[0] = 1  # one event, where half of one is expected
one = float(compute_bias(y_obs=labels, y_pred=predicted)["p_value"][0])
print("p-value with one event:", one)
assert one > 0.5
PYTHON
