#!/bin/sh
# interpret-core 0.7.8: `ExplainableBoostingRegressor(objective="gamma_deviance")` depends on the unit of
# the amounts. The same claims are fitted well with a mean of 1 or 0.01; with a mean of 0.001, as of
# claims in millions, predictions are 1e-90 of them, and with 0.0001 exactly 0, without a warning.
# Gamma deviance has no unit: a factor of y is a factor of the predictions. "poisson_deviance" is right.
# Expected: predicted over observed totals of 0.99 in each unit. Scale amounts to a mean near 1.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "interpret-core==0.7.8" "scikit-learn==1.9.1" \
    "scipy==1.18.1" "numpy==2.5.5" "pandas==3.1.1"
cd "$folder"
venv/bin/python - <<'PYTHON'
import warnings

import numpy as np
from interpret.glassbox import ExplainableBoostingRegressor

warnings.simplefilter("error")  # there are none
rng = np.random.default_rng(0)
x = rng.normal(size=(2000, 1))
amount = rng.gamma(2.0, 0.5, 2000) * np.exp(0.3 * x[:, 0])


def ratio(unit, objective="gamma_deviance"):
    """Predicted over observed total of the training rows."""
    model = ExplainableBoostingRegressor(
        objective=objective, max_rounds=500, outer_bags=4, n_jobs=1, random_state=0
    )
    predicted = model.fit(x, amount * unit).predict(x)
    return float(predicted.sum() / (amount * unit).sum())


found = {unit: ratio(unit) for unit in (1.0, 1e-2, 1e-3, 1e-4)}
poisson = ratio(1e-3, "poisson_deviance")
print("gamma_deviance, ratio of totals by mean amount:", found, "poisson_deviance:", poisson)
assert abs(found[1.0] - 1) < 0.02 and abs(found[1e-2] - 1) < 0.02
assert found[1e-3] < 1e-50 and found[1e-4] == 0.0
assert abs(poisson - 1) < 0.01
PYTHON
