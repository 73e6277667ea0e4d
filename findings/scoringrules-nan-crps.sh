#!/bin/sh
# scoringrules 0.11.0: the CRPS of Poisson, negative binomial and Beta predictions in closed form is
# NaN at moderate sizes, since factors overflow: a Poisson of mean 1,000, a Beta(200, 400). A mean over
# items is then NaN, or, by nanmean, that of the small items alone.
# Expected: 7.389 for a Poisson of mean 1,000 at 1,000. Seen: nan.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "scoringrules==0.11.0" "scipy==1.18.1" "numpy==2.5.5"
cd "$folder"
venv/bin/python - <<'PYTHON'
import warnings

import numpy as np
import scoringrules as sr
from scipy import stats

warnings.simplefilter("ignore")
grid = np.arange(5000)
exact = float(((stats.poisson.cdf(grid, 1000.0) - (grid >= 1000)) ** 2).sum())
found = {
    "Poisson(1000)": sr.crps_poisson(1000, 1000.0),
    "Beta(200, 400)": sr.crps_beta(0.3, 200.0, 400.0),
}
print(found, "Poisson by its sum:", exact, "Beta(100, 200):", sr.crps_beta(0.3, 100.0, 200.0))
assert all(np.isnan(value) for value in found.values())
assert abs(exact - 7.389) < 1e-3 and np.isfinite(sr.crps_beta(0.3, 100.0, 200.0))
PYTHON
