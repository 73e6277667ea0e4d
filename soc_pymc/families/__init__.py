"""Everything that depends on a distribution: closed forms, kernels, priors, sums."""
