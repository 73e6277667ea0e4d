#!/bin/sh
# scikit-learn 1.9.1: `PoissonRegressor` stops early where rates are small, since `tol` bounds the
# gradient itself, which shrinks with the rate. With 100,000 rows, exposures as weights and no penalty,
# rates near 0.001 end after one step with totals 4% off; rates near 0.0001 end after none, with a
# coefficient of exactly 0; there is no warning. `solver="newton-cholesky"` stops as early.
# Expected: totals of expected and observed events agree, as maximum likelihood with an intercept has it,
# in any unit of time. Give rates per 1,000 units, or tol=1e-9.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "scikit-learn==1.9.1" "scipy==1.18.1" "numpy==2.5.5"
cd "$folder"
venv/bin/python - <<'PYTHON'
import warnings

import numpy as np
from sklearn.linear_model import PoissonRegressor

warnings.simplefilter("error")  # there are none
rng = np.random.default_rng(0)
n = 100_000
x = rng.normal(size=(n, 1))
years = rng.gamma(2.0, 0.5, n)
found = {}
for rate in (0.1, 0.001, 0.0001):
    events = rng.poisson(rate * np.exp(0.3 * x[:, 0]) * years)
    for tol in (1e-4, 1e-9):
        model = PoissonRegressor(alpha=0.0, tol=tol).fit(x, events / years, sample_weight=years)
        ratio = float(model.predict(x) @ years / events.sum())
        found[rate, tol] = ratio, float(model.coef_[0]), int(model.n_iter_)
        print(f"rate {rate}, tol {tol}: expected/observed, coefficient, steps:", *found[rate, tol])
assert abs(found[0.1, 1e-4][0] - 1) < 0.001
assert abs(found[0.001, 1e-4][0] - 1) > 0.02
assert found[0.0001, 1e-4][1:] == (0.0, 0)
assert all(abs(ratio - 1) < 1e-4 for (_, tol), (ratio, *_) in found.items() if tol == 1e-9)
PYTHON
