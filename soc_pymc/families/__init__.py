"""Everything that knows a distribution: closed forms, kernels, priors, sums."""
