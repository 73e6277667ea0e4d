"""An own term in PyMC: the model, sampling, ArviZ's comparison and predictive checks."""

import arviz as az
import pymc as pm

import soc_pymc as soc

roles = {"score": "score", "count": "count", "exposure": "exposure"}
items = soc.PoissonItems(soc.simulation.s1(2000, seed=0), **roles)
stats = soc.summarize(items, bins=40, joint=True)
with soc.model(stats) as model:  # an audit of the rate at the middle scores, perhaps biased
    pm.Normal("audit", model["bin_log_mean"][20] + pm.Normal("bias", 0, 0.1), 0.05, observed=-3)
    draws = pm.sample(500, tune=500, chains=4, random_seed=0, progressbar=False)
print(az.summary(draws, var_names=["bias"]))
checks = {"plain": soc.fit(stats), "audited": soc.fit(stats, model=model)}
checks = {name: soc.check(fit, items) for name, fit in checks.items()}
print(az.compare({name: x.elpd for name, x in checks.items()})[["elpd_diff", "dse", "weight"]])
labels = {"title": {"text": "by its expectation"}, "ylabel": {"text": "mean (isotonic)"}}
az.plot_ppc_pava(checks["audited"].data, visuals=labels).savefig("pava.png")
