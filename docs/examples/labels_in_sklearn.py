"""The calibrator beside scikit-learn's, on labels of 0 and 1, with scores of a pipeline."""

from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import soc_pymc as soc

X, y = make_classification(4000, n_informative=6, flip_y=0.2, random_state=0)
model = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=50))
raw = cross_val_predict(model, X, y, method="predict_proba")[:, 1:]
ours = cross_val_predict(soc.SecondOrderCalibrator(pos_label=1), raw, y)
theirs = cross_val_predict(CalibratedClassifierCV(model), X, y, method="predict_proba")[:, 1]
first = CalibrationDisplay.from_predictions(y, ours, n_bins=10, name="soc_pymc")
CalibrationDisplay.from_predictions(y, theirs, n_bins=10, name="sigmoid", ax=first.ax_)
first.figure_.savefig("labels.png")
