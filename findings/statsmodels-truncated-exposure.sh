#!/bin/sh
# statsmodels 0.15.0: `TruncatedLFPoisson(y, X, exposure=N)` is not the model of offset=log N. Of zero-
# truncated counts of rate 0.7 the one finds 0.88, the other 0.70; there is no warning. In the
# untruncated `Poisson` of the same package exposure and offset agree.
# Expected: 0.70 by both. Give offset=np.log(N) to the truncated models.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "statsmodels==0.15.0" "scipy==1.18.1" "numpy==2.5.5" "pandas==3.1.1"
cd "$folder"
venv/bin/python - <<'PYTHON'
import warnings

import numpy as np
import statsmodels.api as sm
from statsmodels.discrete.truncated_model import TruncatedLFPoisson

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
exposure = rng.gamma(2.0, 1.0, 20_000)
count = rng.poisson(0.7 * exposure)
seen = count > 0


def rate(model, chosen, **size):
    ones = np.ones((chosen.sum(), 1))
    return float(np.exp(model(count[chosen], ones, **size).fit(disp=0).params[0]))


both = {
    "truncated": (TruncatedLFPoisson, seen),
    "all": (sm.Poisson, np.ones_like(seen)),
}
found = {}
for name, (model, chosen) in both.items():
    size = exposure[chosen]
    found[name] = rate(model, chosen, exposure=size), rate(model, chosen, offset=np.log(size))
    print(name, "by exposure, by offset:", *found[name])
assert found["truncated"][0] > 0.8 and abs(found["truncated"][1] - 0.7) < 0.02
assert np.allclose(found["all"], 0.7, atol=0.02)
PYTHON
