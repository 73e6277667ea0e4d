#!/bin/sh
# netcal 1.4.0: histogram binning learns the bin of a score at an edge from one side and reads it from
# the other. With 10 equal bins and scores of 0.1, 0.2 and 0.5, 200 labels each, of shares 0.3, 0.1 and
# 0.7, the scores 0.1 and 0.5 get the middle of an empty bin, and 0.2 gets the share of 0.1; scores lower
# by 1e-9 are right.
# Expected: each score gets the share of its own labels. Round scores, and edges fall on them: give
# scores that are not multiples of the width of a bin.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "netcal==1.4.0" "numpy==2.5.5" "scipy==1.18.1" "scikit-learn==1.9.1"
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
from netcal.binning import HistogramBinning

rng = np.random.default_rng(0)
levels = np.array([0.1, 0.2, 0.5])
labels = rng.binomial(1, np.repeat([0.3, 0.1, 0.7], 200))
shares = labels.reshape(3, 200).mean(axis=1)


def calibrated(scores):
    model = HistogramBinning(bins=10)
    model.fit(np.repeat(scores, 200), labels)
    return model.transform(scores)


at_edges, lower = calibrated(levels), calibrated(levels - 1e-9)
print("shares of labels:", shares)
print("at the edges of bins:", at_edges, "a little lower:", lower)
assert np.allclose(lower, shares)
assert np.allclose(at_edges, [0.05, shares[0], 0.45])
PYTHON
