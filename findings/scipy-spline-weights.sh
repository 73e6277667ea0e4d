#!/bin/sh
# SciPy 1.18.1: weights of splines mean two things in one module. `make_smoothing_spline(w=)` minimises
# sums of w times squared residuals; `make_lsq_spline(w=)` and `UnivariateSpline(w=)` square the
# weights first. Numbers of items or inverse variances, given to the second kind, count twice: at
# weights of 1 and 4 its curve is that of weights 1 and 16.
# Expected: one meaning. Give the square roots to make_lsq_spline and UnivariateSpline.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "scipy==1.18.1" "numpy==2.5.5"
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
from scipy.interpolate import BSpline, make_lsq_spline, make_smoothing_spline

rng = np.random.default_rng(0)
x = np.linspace(0.0, 1.0, 50)
y = np.sin(6.0 * x) + rng.normal(0.0, 0.3, 50)
n = np.where(x < 0.5, 4.0, 1.0)  # items behind each point
knots = np.concatenate([[0.0] * 4, [0.2, 0.4, 0.6, 0.8], [1.0] * 4])
design = BSpline.design_matrix(x, knots, 3).toarray()


def least_squares(weight):
    root = np.sqrt(weight)
    return np.linalg.lstsq(design * root[:, None], y * root)[0]


found = make_lsq_spline(x, y, knots, w=n).c
off = {power: np.abs(found - least_squares(n**power)).max() for power in (1, 2)}
print("make_lsq_spline: coefficients differ from those of w by", off[1], "of w squared by", off[2])
assert off[1] > 0.1 and off[2] < 1e-10

# a smoothing spline: doubling both w and lam changes nothing, so w is not squared
one = make_smoothing_spline(x, y, w=n, lam=1e-3)(x)
two = make_smoothing_spline(x, y, w=2.0 * n, lam=2e-3)(x)
print("make_smoothing_spline: curves of (w, lam) and (2 w, 2 lam) differ by", np.abs(one - two).max())
assert np.abs(one - two).max() < 1e-8
PYTHON
