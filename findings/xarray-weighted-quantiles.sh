#!/bin/sh
# xarray 2026.9.0: quantiles of `weighted(weights)` depend on the weights up to a factor alone. Weights
# that are numbers of items are no repetitions: the median of 1, 2, 3 and 10 with weights 1, 2, 3 and
# 1 is 2.73, where that of the seven items is 3, and the 90% point 4.68 in place of 5.8.
# Expected: np.quantile of the repeated values. Draws or bins with counts need np.repeat.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "xarray==2026.9.0" "numpy==2.5.5" "pandas==3.1.1"
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
import xarray as xr

value, weight = np.array([1.0, 2.0, 3.0, 10.0]), np.array([1, 2, 3, 1])
levels = [0.25, 0.5, 0.9]
weighted = xr.DataArray(value).weighted(xr.DataArray(weight)).quantile(levels).to_numpy()
tenth = xr.DataArray(value).weighted(xr.DataArray(0.1 * weight)).quantile(levels).to_numpy()
repeated = np.quantile(np.repeat(value, weight), levels)
print("weighted:", weighted, "repeated:", repeated)
assert np.allclose(weighted, tenth)
assert np.allclose(weighted, [2.16666667, 2.73333333, 4.68])
assert np.allclose(repeated, [2.0, 3.0, 5.8])
PYTHON
