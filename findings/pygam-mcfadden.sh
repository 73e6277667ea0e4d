#!/bin/sh
# pyGAM 0.12.0: McFadden's pseudo R-squared in `statistics_["pseudo_r2"]` is the ratio of the log
# likelihoods itself, not 1 minus it: it falls as a model gets better. A Poisson model of a strong effect
# has 0.27, a model of noise 1.00; "McFadden_adj" and "explained_deviance" beside it are right.
# Expected: 0.73 and 0.00. Take 1 - McFadden.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "pygam==0.12.0" "scipy==1.16.3" "numpy==2.5.5"
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
from pygam import PoissonGAM, s
from scipy import stats

rng = np.random.default_rng(0)
x = rng.uniform(0.0, 1.0, (3000, 1))
found = {}
for name, effect in (("strong effect", 4.0), ("noise", 0.0)):
    count = rng.poisson(np.exp(effect * x[:, 0]))
    model = PoissonGAM(s(0)).fit(x, count)
    means = model.predict(x), np.full(3000, count.mean())
    fitted, null = (float(stats.poisson.logpmf(count, mean).sum()) for mean in means)
    values = model.statistics_["pseudo_r2"]
    found[name] = float(values["McFadden"]), float(values["McFadden_adj"]), 1.0 - fitted / null
    print(name, "McFadden, adjusted, by hand:", *found[name])
for reported, adjusted, by_hand in found.values():
    assert abs(reported - (1.0 - by_hand)) < 1e-6 and abs(adjusted - by_hand) < 0.01
assert found["strong effect"][0] < 0.3 and found["noise"][0] > 0.98
PYTHON
