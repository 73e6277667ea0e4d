"""The paper's own method, step by step: bins, a prior for each, smoothing, and what a fit keeps.

Source: Muralidharan and Najmi, "Second Order Calibration", Section 3.
"""

from .running import run_five_steps

__all__ = ["run_five_steps"]
