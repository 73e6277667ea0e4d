#!/bin/sh
# PyMC 6.4.0: log probabilities of `pm.Truncated` counts subtract log(1 - P(0)) from rounded numbers.
# Where a count of 1 or more is rare, the probability of 1 given that is wrong, and beyond 1 at last:
# of a zero-truncated Poisson of mean 1e-12 its logarithm is 2e-5, of mean 1e-18 infinity, and of a
# negative binomial NaN. Exposures this small occur in tables that list only what happened.
# Expected: -mean / 2, practically 0. Seen: 2.2e-05, inf and nan.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "pymc==6.4.0"
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
import pymc as pm


def log_of_one(counts):
    return float(pm.logp(pm.Truncated.dist(counts, lower=1), 1).eval())


poisson = {mean: log_of_one(pm.Poisson.dist(mu=np.float64(mean))) for mean in (1.0, 1e-12, 1e-18)}
binomial = log_of_one(pm.NegativeBinomial.dist(mu=np.float64(1e-18), alpha=2.3))
print("Poisson:", poisson, "negative binomial at 1e-18:", binomial)
assert abs(poisson[1.0] - np.log(np.exp(-1.0) / -np.expm1(-1.0))) < 1e-12
assert poisson[1e-12] > 1e-6
assert poisson[1e-18] == np.inf and np.isnan(binomial)
PYTHON
