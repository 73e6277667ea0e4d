"""soc_pymc: honest posteriors from any model's point scores.

A model gives every item a score t, and we saw a noisy outcome: a count y ~ Poisson(theta N) with
known exposure N, a value y ~ Normal(theta, s^2) with known noise sd s, or successes
y ~ Binomial(n, theta) in n trials. Calibration estimates E(theta | t); *second order calibration*
(Muralidharan and Najmi) estimates the distribution of theta given t, and so E and Var(theta | t)
and the posterior of every item's theta given t and y. Here one hierarchical model does this for all
scores together, so that the curves and all posteriors include their uncertainty.

>>> import soc_pymc as soc
>>> table = soc.simulation.s1(2000, seed=0)           # a pandas table of items
>>> items = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
>>> stats = soc.summarize(items)                      # one pass over the items
>>> fit = soc.fit(stats)                              # the fit never sees an item
>>> curves = soc.calibration_curves(fit)              # draws of E and Var(theta | t)
>>> posteriors = soc.item_posteriors(fit, items)      # the table, with columns added
>>> result = soc.check(fit, items)                    # does the model fit the counts?

Modules: `decisions` (thresholds, ranking, totals), `evaluate` (held-out exposure, cross-validation,
leakage), `quantities` (R-squared, comparison of scores), `plots`, `simulation`, `datasets`,
`theory`, and `prior_table` (posteriors with NumPy alone).
"""

import lazy_loader

__version__ = "0.1.0"

# PyMC, DuckDB and matplotlib take seconds to import, so every name is loaded when first used
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
