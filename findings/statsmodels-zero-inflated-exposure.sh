#!/bin/sh
# statsmodels 0.15.0: probabilities of counts from a zero-inflated Poisson model forget its exposures.
# predict(which="prob") of a model with exposure= takes every exposure for 1, though the coefficients,
# the means and which="prob-zero" of the same results are right; with offset=log N all are. The test of
# fit built on them, `test_chisquare_prob`, rejects the model that made the counts.
# Expected of the two, with exposures of mean 2: 0.331 zeros, as seen, and p-values that are not small.
# Seen: by exposure 0.383 zeros, one probability for all rows, and p-value 0. Give offset=np.log(N).
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
from statsmodels.discrete.count_model import ZeroInflatedPoisson

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
n = 5000
exposure = rng.gamma(2.0, 1.0, n)
count = rng.poisson(1.5 * exposure) * (rng.random(n) > 0.2)
print("share of zeros seen:", (count == 0).mean())
found = {}
for name, size in {"exposure": exposure, "offset": np.log(exposure)}.items():
    fit = ZeroInflatedPoisson(count, np.ones((n, 1)), **{name: size}).fit(disp=0)
    inflated, log_rate = fit.params
    share = 1.0 / (1.0 + np.exp(-inflated))
    by_hand = share + (1.0 - share) * np.exp(-np.exp(log_rate) * exposure)
    zero, of_zero = fit.predict(which="prob")[:, 0], fit.predict(which="prob-zero")
    p_value = fit.get_diagnostic().test_chisquare_prob(bin_edges=np.arange(7)).pvalue
    found[name] = float(zero.mean()), float(np.ptp(zero)), float(p_value)
    print(name, "prob, by hand:", zero.mean(), by_hand.mean(), "range:", np.ptp(zero), "p:", p_value)
    assert np.allclose(of_zero, by_hand)
    assert np.allclose(zero, by_hand) == (name == "offset")
assert found["exposure"][0] > 0.37 and found["exposure"][1:] == (0.0, 0.0)
assert abs(found["offset"][0] - 0.331) < 0.005 and found["offset"][2] > 0.1
PYTHON
