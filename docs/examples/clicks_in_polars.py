"""Clicks in a Polars frame, with 80 campaigns as groups."""

import numpy as np
import polars as pl

import soc_pymc as soc

rng = np.random.default_rng(0)
ads = pl.from_pandas(soc.simulation.s1(8000, seed=0))
ads = ads.with_columns(pl.Series("campaign", rng.integers(0, 80, len(ads))))
roles = {"score": "score", "count": "count", "exposure": "exposure"}
items = soc.PoissonItems(ads, **roles, group="campaign")
stats = soc.summarize(items)
fit = soc.fit(stats)
posteriors = soc.item_posteriors(fit, items)  # the Polars frame with further columns
soc.plots.plot_intervals(soc.quantities.group_effects(fit, stats))
soc.plots.plot_shrinkage(posteriors, **roles).figure.savefig("clicks.png")
