"""Items that importance weights cannot leave out, which are left out by a refit."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import special

import soc_pymc as soc
from soc_pymc._model.problem import build
from soc_pymc.checks.comparison import bridged, leave_one_out, left_out
from soc_pymc.checks.observations import observe
from soc_pymc.inference import fitting, variational
from soc_pymc.inference.density import near_densities
from soc_pymc.inference.fitting import refits_of
from soc_pymc.posterior.averages import _ends_without, cdf_without
from soc_pymc.posterior.item_columns import select
from soc_pymc.posterior.predictive import posterior_of, posterior_under
from tests.examples import QUIET, ROLES, thinned

KINDS = {"normal": soc.NormalItems, "gamma": soc.PoissonItems, "beta": soc.BinomialItems}
PRIORS = {"normal": soc.Normal, "gamma": soc.Gamma, "beta": soc.Beta}
TERM = {"exposure": soc.Spline()}


def statistics_of(kind, n=34):
    """Returns statistics of few items, of which that with the largest score is an outlier."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, n)
    last = np.argmax(x)
    if kind == "normal":
        sd = np.exp(rng.normal(-0.5, 0.5, n))
        value = rng.normal(rng.normal(0.8 * x, 0.3), sd)
        value[last] += 4
        frame = {"score": x, "value": value, "noise_sd": sd}
    elif kind == "gamma":
        exposure = np.ceil(np.exp(rng.normal(3, 1, n)))
        count = rng.poisson(np.exp(0.8 * x) * rng.gamma(8, 1 / 8, n) * exposure)
        count[last] *= 4
        frame = {"score": np.exp(x), "count": count, "exposure": exposure}
    else:
        trials = np.ceil(np.exp(rng.normal(3, 1, n))).astype(int)
        mean = special.expit(x)
        successes = rng.binomial(trials, rng.beta(15 * mean, 15 * (1 - mean)))
        successes[last] = 0
        frame = {"score": mean, "successes": successes, "trials": trials}
    items = KINDS[kind](pd.DataFrame(frame), **ROLES[KINDS[kind]])
    return soc.summarize(items, joint=True, **QUIET)


def log_marginal(kind, outcome, size, location, dispersion):
    """Returns the log marginal of one item in PyTensor, up to what does not depend on curves."""
    import pytensor.tensor as pt

    if kind == "normal":
        variance = pt.exp(dispersion) + size**2
        return -0.5 * pt.log(variance) - 0.5 * (outcome - location) ** 2 / variance
    if kind == "gamma":
        shape, odds = pt.exp(-dispersion), size * pt.exp(location + dispersion)
        rising = pt.gammaln(outcome + shape) - pt.gammaln(shape)
        return rising + outcome * pt.log(odds) - (outcome + shape) * pt.log1p(odds)
    a = pt.exp(-dispersion) * (1 + pt.exp(location))
    b = pt.exp(-dispersion) * (1 + pt.exp(-location))
    ratios = [(a, a + outcome), (b, b + size - outcome), (a + b + size, a + b)]
    return sum(pt.gammaln(above) - pt.gammaln(below) for below, above in ratios)


def brute_force(kind, stats, prior, item, line):
    """Returns log densities of an item under draws of PyMC's model without it."""
    import pymc as pm

    rows = build(stats, prior).pilot.rows
    cell = {name: values[[line]] for name, values in stats.table("joint").items()}
    row = int(np.searchsorted(rows.key, rows.keys(cell))[0])
    model = soc.model(stats, prior)
    names = [name for name in model.named_vars if name.startswith("bin_")]
    location, dispersion = (model[name][row] for name in names)
    outcome, size = (item[role][0] for role in list(ROLES[KINDS[kind]])[1:])
    with model:
        pm.Potential("without", -log_marginal(kind, outcome, size, location, dispersion))
    fit = soc.fit(stats, prior, soc.VI(draws=4000, seed=1), model=model, **QUIET)
    assert fit.status.converged
    assert refits_of(fit, stats) is None  # of a posterior that is not the prior's
    return posterior_of(fit).log_density(item)[:, 0]


CASES = [("gamma", {}, 0), ("gamma", TERM, 14), ("normal", {}, 32), ("beta", {}, 0)]


@pytest.mark.parametrize(("kind", "term", "line"), thinned(CASES, []))
def test_refits_agree_with_those_of_a_model_without_the_item(kind, term, line):
    """Within 0.25 nats: draws of fit, refit and model err by 0.1 each; weights are 0.5 off."""
    stats = statistics_of(kind)
    prior = PRIORS[kind](**term)
    fit = soc.fit(stats, prior, **QUIET)
    rows = observe(fit.curves, stats)
    item = select(rows.columns, np.array([line]))
    refit = refits_of(fit, stats).without(line, 0.67)
    density = posterior_under(refit.curves).log_density(item)[:, 0]
    with_item = posterior_of(fit).log_density(item)[:, 0]
    assert refit.pareto_k < 0.7
    exact = bridged(with_item, brute_force(kind, stats, prior, item, line), np.full(4000, 1 / 4000))
    assert bridged(with_item, density, refit.weight) == pytest.approx(exact, abs=0.25)


@pytest.mark.parametrize("kind", thinned(KINDS, ["normal"]))
def test_cells_that_weights_cannot_leave_out_are_refitted(kind):
    """Without an outlier the posterior is where weights cannot reach, and it is less likely."""
    stats = statistics_of(kind)
    fit = soc.fit(stats, **QUIET)
    weighted = leave_one_out(posterior_of(fit), observe(fit.curves, stats))
    loo, trust = left_out("fit", fit, stats, 1, 0)
    doubtful = weighted.pareto_k > weighted.good_k
    assert loo.refitted == doubtful.sum() > 0
    assert (loo.pareto_k[doubtful] < weighted.pareto_k[doubtful]).all()
    np.testing.assert_array_equal(loo.elpd_i[~doubtful], weighted.elpd_i[~doubtful])
    assert loo.elpd < weighted.elpd
    assert loo.p - weighted.p == pytest.approx(weighted.elpd - loo.elpd)
    assert trust == "ok"


@pytest.fixture
def evaluated(monkeypatch):
    """A list whose one number counts the points at which log densities are evaluated."""
    points = [0]

    def counting(*arguments):
        densities = near_densities(*arguments)

        def counted(function):
            def call(rows):
                points[0] += len(np.atleast_2d(rows))
                return function(rows)

            return call

        bound, weights = counted(densities.bound), counted(densities.weights)
        return dataclasses.replace(densities, bound=bound, weights=weights)

    for module in (variational, fitting):
        monkeypatch.setattr(module, "near_densities", counting)
    return points


@pytest.mark.slow
def test_ten_refits_evaluate_as_much_as_four_fits(evaluated):
    """Of 34 values, of which four are annealed: 18,700 points, 4,700 of a fit, in larger sets."""
    stats = statistics_of("normal")
    fit = soc.fit(stats, **QUIET)
    of_fit = evaluated[0]
    refits = refits_of(fit, stats)
    for line in range(24, 34):
        refits.without(line, 0.67)
    assert evaluated[0] - of_fit < 4.5 * of_fit


def test_nodes_of_negative_weight_leave_no_item_out():
    """1 / p made a node of weight -0.0003 rule a PIT, which was 0: draws take its place, by NaN."""
    log_density, ends = np.array([[-3.0, -3.0], [-13.0, -13.0]]), np.full((2, 2, 2), 0.5)
    weight = np.array([[1.0003, 0.9997], [-0.0003, 0.0003]])
    without = _ends_without(log_density, lambda: ends, weight, ())
    np.testing.assert_allclose(without, [[np.nan, 0.5], [np.nan, 0.5]])


@pytest.mark.slow
def test_an_item_that_sways_a_mixture_has_a_tail_when_it_is_left_out():
    """To first order its upper tail was 0, not 0.001, and LOO-PIT failed with p = 2e-14."""
    rng = np.random.default_rng(1)
    score = rng.normal(0.0, 1.0, 800)
    noise_sd = np.exp(rng.normal(-1.2, 0.4, 800))
    value = rng.normal(score, np.hypot(0.5, noise_sd))
    score[0] = 3.0
    noise_sd[0] = 0.8 * noise_sd.min()
    value[0] = 5.0
    frame = pd.DataFrame({"score": score, "value": value, "noise_sd": noise_sd})
    items = soc.NormalItems(frame, **ROLES[soc.NormalItems])
    fit = soc.fit(soc.summarize(items, joint=True, **QUIET), soc.NormalMixture(), **QUIET)
    posterior = posterior_of(fit)
    columns = observe(fit.curves, items).columns
    upper_tail = 1.0 - cdf_without(posterior, columns)[1]
    item = select(columns, np.array([0]))
    weight = special.softmax(-posterior.log_density(item)[:, 0])
    by_draw = 1.0 - weight @ posterior.cdf_by_draw(item)[1][:, 0]
    assert by_draw / 2.0 < upper_tail[0] < 2.0 * by_draw
    table = soc.check(fit, items, **QUIET).table
    assert table.loc[table["what"] == "LOO-PIT", "p"].item() > 0.05


def test_an_item_that_draws_cannot_leave_out_does_not_fail_the_check():
    """The lowest of 280 scores: one draw of 250 had all the weight (k 0.96), and LOO-PIT failed."""
    rng = np.random.default_rng(0)
    score = rng.gamma(3.0, 0.1, 300)
    score[:20] = 0.0
    events = rng.integers(5, 60, 300)
    theta = np.maximum(score, 0.1) * rng.gamma(8.0, 1.0 / 8.0, 300)
    amount = rng.gamma(events, theta)
    frame = pd.DataFrame({"score": score, "amount": amount, "events": events})
    items = soc.AmountItems(frame, **ROLES[soc.AmountItems])
    with pytest.warns(soc.ItemsWarning, match="without a log"):
        fit = soc.fit(soc.summarize(items, joint=True, **QUIET), **QUIET)
    table = soc.check(fit, items, **QUIET).table
    assert table.loc[table["what"] == "LOO-PIT", "p"].item() > 0.05


def in_shops(number, fault, n=4000):
    """Returns counts of a Gamma in shops of other levels, with one fault or none."""
    rng = np.random.default_rng([3, number])
    score, exposure = rng.lognormal(-3.0, 0.5, n), rng.lognormal(5.0, 1.0, n)
    ratio = {
        "": rng.gamma(3.0, 1 / 3, n),
        "two kinds": np.where(rng.random(n) < 0.25, 2.6, 0.47) * rng.gamma(40.0, 1 / 40, n),
        "exposure": rng.gamma(3.0, 1 / 3, n) * (exposure / 150) ** -0.3,
    }
    shop = np.arange(n) % number
    theta = score * ratio[fault] * np.exp(rng.normal(0.0, 0.5, number))[shop]
    columns = {"score": score, "exposure": exposure, "count": rng.poisson(theta * exposure)}
    frame = pd.DataFrame(columns | {"shop": [f"shop {k}" for k in shop]})
    return soc.PoissonItems(frame, **ROLES[soc.PoissonItems], group="shop")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "two kinds", "exposure"])
@pytest.mark.parametrize("number", [20, 80, 200])
def test_levels_do_not_hide_or_feign_faults_of_their_own_items(number, fault):
    """Right fits of 40 sets each of these sizes had no p < 0.05; wrong ones are far beyond.

    Against draws of levels that follow their items, the dispersion of 200 had p 2e-4. Cells say the
    same as items, to 0.0004 (all share their bin's mean score); not left out, 0.003 to 0.017 less.
    """
    items = in_shops(number, fault)
    stats = soc.summarize(items, joint=True, **QUIET)
    fit = soc.fit(stats, **QUIET)
    result = soc.check(fit, items, **QUIET)
    table = result.table
    of_all = table[table["what"].isin(["PIT", "dispersion", "LOO-PIT"]) & (table["n"] == 4000)]
    assert len(of_all) == 3
    if fault:
        assert "fail" in set(table["verdict"])
    else:
        assert (of_all["p"] > 0.01).all()
        assert "fail" not in set(table["verdict"])
        results = result, soc.check(fit, stats, **QUIET)
        pits = [x.data["pit"]["averaged"].sel(slice="all items") for x in results]
        np.testing.assert_allclose(*pits, atol=1e-3)
