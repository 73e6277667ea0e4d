"""Clicks in a Polars frame (`pip install polars`), with 80 campaigns as groups."""

import numpy as np
import polars as pl

import soc_pymc as soc

rng = np.random.default_rng(0)
ads = soc.simulation.s1(8000, seed=0)
campaign = rng.integers(0, 80, len(ads))
rate = ads["theta"] * rng.lognormal(0.0, 0.4, 80)[campaign]
clicks = rng.poisson(rate * ads["exposure"])
ads = pl.from_pandas(ads.assign(campaign=campaign, count=clicks))
items = soc.PoissonItems(ads, score="score", count="count", exposure="exposure", group="campaign")
stats = soc.summarize(items)
fit = soc.fit(stats)
posteriors = soc.item_posteriors(fit, items)  # the Polars frame with further columns
effects = soc.quantities.group_effects(fit, stats)
soc.plots.plot_intervals(effects)[0].figure.savefig("clicks.png")
