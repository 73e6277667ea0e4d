#!/bin/sh
# LightGBM 4.7.0: `Booster.refit` on the very rows that a Poisson model was trained on changes its
# level. New outputs of leaves are calculated from a start at a rate of 1, not from the mean rate at
# which training began, and mixed with the old ones. At the default decay rate of 0.9 rates near 0.01
# become 31% too high and rates near 0.001 54%; at decay_rate=0 the latter are 5 times too high. There
# is no warning, and regression is unchanged.
# Expected: leaf_output = decay_rate * old + (1 - decay_rate) * new, as documented, where new is old.
# Train anew, or divide by the ratio of expected to observed totals.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "lightgbm==4.7.0" "scipy==1.18.1" "numpy==2.5.5"
cd "$folder"
venv/bin/python - <<'PYTHON'
import lightgbm as lgb
import numpy as np

rng = np.random.default_rng(0)
n, exposure = 20_000, 500.0
x = rng.normal(size=(n, 1))


def ratios(objective, rate):
    """Expected over observed totals of the training rows: as trained, then refitted to them."""
    y = rng.poisson(rate * exposure * np.exp(0.3 * x[:, 0])) / exposure
    options = {"objective": objective, "num_leaves": 8, "verbose": -1, "num_threads": 1}
    model = lgb.train(options, lgb.Dataset(x, label=y), 100)
    models = [model, model.refit(x, y), model.refit(x, y, decay_rate=0.0)]
    return [round(float(m.predict(x).sum() / y.sum()), 3) for m in models]


found = {case: ratios(*case) for case in (("poisson", 0.01), ("poisson", 0.001), ("regression", 0.01))}
for case, found_ratios in found.items():
    print(*case, "trained, refitted by 0.9 and by 0:", *found_ratios)
assert all(abs(trained - 1) < 0.01 for trained, *_ in found.values())
assert found["poisson", 0.01][1] > 1.2
assert found["poisson", 0.001][1] > 1.4 and found["poisson", 0.001][2] > 4
assert np.allclose(found["regression", 0.01], 1.0, atol=0.01)
PYTHON
