"""The paper's method: Muralidharan and Najmi, "Second Order Calibration", Section 3."""
