#!/bin/sh
# CatBoost 1.2.10: a model of Poisson loss starts from a rate of 1 for every row, whatever the data are,
# and `boost_from_average` is refused for this loss. At 100 rounds and the default learning rate
# predictions of rates near 0.01 are 5.8 times too high, near 0.001 they are 49 times too high; there is
# no warning. After 1,000 rounds they are right.
# Expected: the start is the mean rate, as in LightGBM and XGBoost without offsets. Give the log of the
# mean rate as `baseline` of the pool, also when predicting.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "catboost==1.2.10" "numpy==2.5.5" "pandas==3.1.1"
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
from catboost import CatBoostRegressor, Pool

rng = np.random.default_rng(0)
n = 20_000
x = rng.normal(size=(n, 1))


def excess(rate, rounds, start=None):
    """Mean prediction over mean outcome."""
    y = rng.poisson(50 * rate * np.exp(0.3 * x[:, 0])) / 50
    base = None if start is None else np.full(n, np.log(start(y)))
    model = CatBoostRegressor(loss_function="Poisson", iterations=rounds, verbose=0, thread_count=1)
    model.fit(Pool(x, y, baseline=base))
    return float(model.predict(Pool(x, baseline=base), prediction_type="Exponent").mean() / y.mean())


rare, rarer, long = excess(0.01, 100), excess(0.001, 100), excess(0.001, 1000)
mended = excess(0.001, 100, np.mean)
print("100 rounds, rate 0.01 and 0.001:", rare, rarer)
print("1,000 rounds, rate 0.001:", long, "100 rounds from the mean:", mended)
assert rare > 4 and rarer > 30
assert abs(long - 1) < 0.05 and abs(mended - 1) < 0.05
PYTHON
