"""The scikit-learn estimator, the command line and the demo."""
