#!/bin/sh
# netcal 1.4.0: temperature, logistic and beta calibration fitted to float32 scores return the scores as
# they are, without a warning. Labels of share t^2: at 0.1, 0.5, 0.9 beta calibration of float64 scores
# gives about 0.01, 0.26, 0.81, of the same scores in float32 0.1, 0.5, 0.9.
# Expected: the same curve to about 1e-6. Convert the scores that a network returns to float64.
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
from netcal.scaling import BetaCalibration, LogisticCalibration, TemperatureScaling

rng = np.random.default_rng(0)
scores = rng.uniform(0.02, 0.98, 5000).astype(np.float32)
labels = rng.binomial(1, scores.astype(float) ** 2)
at = np.array([0.1, 0.5, 0.9], dtype=np.float32)
for method in (TemperatureScaling, LogisticCalibration, BetaCalibration):
    found = {}
    for kind in (np.float64, np.float32):
        model = method()
        model.fit(scores.astype(kind), labels)
        found[kind] = model.transform(at.astype(kind))
    print(method.__name__, "float64:", found[np.float64], "float32:", found[np.float32])
    assert np.allclose(found[np.float32], at, atol=1e-6)
    if method is BetaCalibration:
        assert np.allclose(found[np.float64], at.astype(float) ** 2, atol=0.03)
PYTHON
