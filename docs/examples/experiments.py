"""300 experiments with standard errors: first without a score, then with one."""

import soc_pymc as soc

experiments = soc.simulation.laplace_effects(300, seed=0)
value = {"value": "value", "noise_sd": "noise_sd"}
alone = soc.NormalItems(experiments, score=None, **value)
scored = soc.NormalItems(experiments, score="score", **value)
fit_alone = soc.fit(soc.summarize(alone, joint=True))
fit = soc.fit(soc.summarize(scored, joint=True))
print(soc.check(fit, scored))
soc.plots.plot_curves(fit_alone)[0].figure.savefig("level.png")
soc.plots.plot_curves(fit)[0].figure.savefig("curve.png")
