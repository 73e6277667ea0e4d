"""What people use instead of functions: the scikit-learn estimator, the command line, the demo."""
