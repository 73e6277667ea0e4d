"""From model to fit: variational inference, NUTS, five steps, and the `Fit` they make."""
