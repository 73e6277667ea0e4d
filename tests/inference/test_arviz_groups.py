"""The groups of a fit that ArviZ reads: they mean what they say, cost a fit nothing, and last."""

import copy
import pickle
import warnings
from dataclasses import replace
from functools import cache

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import soc_pymc as soc
from soc_pymc.families.rows import RowSums
from soc_pymc.posterior.calibration import curve_variables
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import OVER, QUIET, ROLES, SMALL_MIXTURE, thinned

GROUPS = {"prior", "log_prior", "log_likelihood", "prior_predictive", "posterior_predictive"}
SCORES, SIZES = np.array([0.03, 0.06, 0.12, 0.25, 0.5]), np.array([2.0, 9.0, 40.0])
FEW = {"mean": soc.Spline(knots=4), "variance": soc.Spline(knots=3)}
LINEAR = {name: soc.Spline(s.knots, "linear") for name, s in FEW.items()}
LOGIT = {name: soc.Spline(s.knots, "logit") for name, s in FEW.items()}
PRIORS = {
    "gamma": (soc.PoissonItems, soc.Gamma(**FEW)),
    "normal": (soc.NormalItems, soc.Normal(**LINEAR)),
    "normal_mixture": (soc.NormalItems, soc.NormalMixture(**LINEAR, **SMALL_MIXTURE)),
    "beta_mixture": (soc.BinomialItems, soc.BetaMixture(**LOGIT, **SMALL_MIXTURE)),
    "zeros": (soc.PoissonItems, soc.Gamma(**FEW, zero=True)),
    "sized": (
        soc.PoissonItems,
        soc.GammaMixture(**FEW, **SMALL_MIXTURE, exposure=soc.Spline(knots=3)),
    ),
    "groups": (soc.PoissonItems, soc.Gamma(**FEW)),
    "exposure": (soc.PoissonItems, soc.Gamma(**FEW, exposure=soc.Spline(knots=3))),
    "atoms": (soc.PoissonItems, soc.Gamma(**FEW)),
}
QUICK = ("gamma",)


def made_frame(name):
    """Items whose scores and sizes take few values, so that rows of bins have one of each.

    For atoms 30 scores have 5 items each, and one has 1,000.
    """
    rng = np.random.default_rng(0)
    score = rng.choice(SCORES, 1500)
    if name == "atoms":
        score = np.concatenate([np.repeat(np.geomspace(0.03, 0.5, 30), 5), np.full(1000, 0.1)])
    n = len(score)
    size = rng.choice(SIZES, n)
    theta = rng.beta(5.0 * score, 5.0 * (1.0 - score))
    return pd.DataFrame(
        {
            "score": score,
            "count": rng.poisson(theta * size),
            "exposure": size,
            "successes": rng.binomial(size.astype(int), theta),
            "trials": size.astype(int),
            "value": rng.normal(theta, 0.01 * size),
            "noise_sd": 0.01 * size,
            "kind": rng.choice(["a", "b"], n),
        }
    )


@cache
def made(name):
    """Items, statistics and a fit."""
    kind, prior = PRIORS[name]
    frame = made_frame(name)
    scores = np.unique(frame["score"])
    items = kind(frame, **ROLES[kind], group="kind" if name == "groups" else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # few scores
        edges = np.sqrt(scores[1:] * scores[:-1])
        stats = soc.summarize(items, edges=edges, joint=True, on_leakage="ignore", **QUIET)
    return items, stats, soc.fit(stats, prior, soc.VI(draws=100), **QUIET)


def columns_of(items):
    """Columns of items by role."""
    roles = ROLES[type(items)]
    return {role: items.source[x].to_numpy(dtype=float) for role, x in roles.items()}


@pytest.mark.parametrize("name", thinned(PRIORS, QUICK))
def test_log_likelihood_is_that_of_the_items(name):
    """In every draw: the items' own log densities at their scores, groups and sizes.

    Grids of components, in single precision, leave 1e-4 nats for each item, in few draws more.
    """
    items, _, fit = made(name)
    (by_row,) = fit.data["log_likelihood"].data_vars.values()
    total = by_row.sum(by_row.dims[-1]).to_numpy().ravel()
    columns = columns_of(items)
    if name == "groups":
        columns["group"] = items.source["kind"].to_numpy(dtype=object)
    assert fit.atoms == ((0.1,) if name == "atoms" else ())
    by_item = posterior_of(fit).log_density(columns)
    error = np.abs(total - by_item.sum(axis=1)) / len(items.source)
    assert np.median(error) < 1e-4
    assert error.max() < 6e-4


# variance of an outcome of this size, from the mean and variance of its theta
VARIANCES = {
    soc.PoissonItems: lambda size, m, v: size * m + size**2 * v,
    soc.NormalItems: lambda size, m, v: size**2 + v,
    soc.BinomialItems: lambda size, m, v: size * m * (1 - m) + size * (size - 1) * v,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal_mixture", "beta_mixture", "zeros", "sized"])
def test_replicates_of_mixtures_have_the_moments_of_their_items(name):
    """In 100 draws at five scores: mean and sd of z are 0 and 1 to five of their errors."""
    items, _, fit = made(name)
    kind = type(items)
    _, outcome, size = ROLES[kind]
    columns = columns_of(items)
    variables = curve_variables(posterior_of(fit), columns)
    mean, variance = variables["mean"], variables["variance"]
    factor = 1.0 if kind is soc.NormalItems else items.source[size].to_numpy()
    variance = VARIANCES[kind](items.source[size].to_numpy(), mean, variance)
    name = f"{outcome}_by_row"
    seen, drawn = (fit.data[x][name] for x in ("observed_data", "posterior_predictive"))
    drawn = drawn.to_numpy().reshape(-1, len(seen))
    row_score = fit.data["constant_data"]["row_score"].to_numpy()
    z = []
    for score in SCORES:
        rows = np.isclose(row_score, score)
        of_score = columns["score"] == score
        assert float(seen[rows].sum()) == pytest.approx(items.source[outcome][of_score].sum())
        expected = (factor * mean)[:, of_score].sum(axis=1)
        z.append((drawn[:, rows].sum(axis=1) - expected) / variance[:, of_score].sum(axis=1) ** 0.5)
    assert abs(np.mean(z)) < 5 / np.sqrt(np.size(z))
    assert abs(np.std(z) - 1) < 5 / np.sqrt(2 * np.size(z))


@pytest.mark.slow
def test_pymc_computes_the_same():
    """PyMC's own functions, on the model of the same statistics: log likelihoods and priors."""
    _, stats, fit = made("gamma")
    with soc.model(stats, fit.prior):
        theirs = pm.compute_log_likelihood(fit.data, progressbar=False, extend_inferencedata=False)
        prior = pm.compute_log_prior(fit.data, progressbar=False, extend_inferencedata=False)
    (ours,) = fit.data["log_likelihood"].data_vars.values()
    np.testing.assert_allclose(ours, theirs[ours.name], atol=1e-3)
    for variable, values in fit.data["log_prior"].data_vars.items():
        same = prior[variable]
        dims = [dim for dim in same.dims if dim not in OVER]
        np.testing.assert_allclose(values.sum(values.dims[2:]), same.sum(dims), atol=1e-8)


@pytest.mark.parametrize(
    "name", thinned(["gamma", "five_steps", "exposure", "gamma_mixture"], ["gamma", "five_steps"])
)
def test_every_dim_has_a_coordinate_and_every_group_the_schema(example, name):
    tree = example(name).fit.data
    for group in tree.children.values():
        data = group.to_dataset()
        assert set(data.dims) <= set(data.coords), group.name
        assert data.attrs["inference_library"] == "soc_pymc"
        sampled = [dim for dim in OVER if dim in data.dims]
        assert list(data.attrs["sample_dims"]) == sampled
    if name != "five_steps":
        assert set(tree["prior"].data_vars) <= set(tree["posterior"].data_vars)
        assert tree["posterior"].sizes["chain"] == 4  # independent draws stand in four chains


@pytest.mark.slow
def test_draws_from_the_prior_are_those_of_pymc(example):
    """Kolmogorov-Smirnov tests of every variable of the model: p above 1e-4."""
    from scipy import stats as laws

    case = example("gamma")
    ours = case.fit.data["prior"]
    with soc.model(case.statistics):
        names = list(ours.data_vars)
        theirs = pm.sample_prior_predictive(1000, var_names=names, random_seed=3)["prior"]
    for name, values in ours.data_vars.items():
        a, b = (x.to_numpy().reshape(-1, int(np.prod(x.shape[2:]))) for x in (values, theirs[name]))
        for k in (0, a.shape[1] - 1):
            assert laws.ks_2samp(a[:, k], b[:, k]).pvalue > 1e-4, name


@pytest.mark.slow
def test_replicates_are_those_of_pymc(example):
    """Means to 5 of their standard errors, sds to a fifth."""
    case = example("gamma")
    with soc.model(case.statistics):
        tree = pm.sample_posterior_predictive(case.fit.data, random_seed=2, progressbar=False)
    theirs, ours = (
        t["posterior_predictive"]["count"].to_numpy().reshape(1000, -1)
        for t in (tree, case.fit.data)
    )
    error = np.hypot(theirs.std(axis=0), ours.std(axis=0)) / np.sqrt(1000)
    assert np.abs((theirs.mean(axis=0) - ours.mean(axis=0)) / error).max() < 5
    assert theirs.std(axis=0) == pytest.approx(ours.std(axis=0), rel=0.2)


def test_curves_at_knots_are_the_draws(small_fit):
    drawn = small_fit.data["posterior"]["log_mean"][..., [3]]
    curves = soc.calibration_curves(small_fit, np.exp(drawn["mean_knot"]))
    np.testing.assert_allclose(curves["log_mean"], drawn, rtol=1e-12)


def test_groups_are_computed_when_read_and_copied(small_fit):
    """What a copy or a pickle computes is what the fit itself computes."""
    again, copied = pickle.loads(pickle.dumps(small_fit)), copy.deepcopy(small_fit)
    for name in GROUPS:
        assert again.data[name].equals(small_fit.data[name])
        assert copied.data[name].equals(small_fit.data[name])


def with_other_draws(tree):
    """Returns a fit's tree with draws that the log likelihood and the replicates are not of."""
    return tree.assign(posterior=tree["posterior"].map_over_datasets(np.negative))


CHANGES = {
    "nothing": lambda tree: tree,
    "values are read": lambda tree: tree.copy(deep=True).load(),
    "fewer draws": lambda tree: tree.isel(draw=slice(None, None, 3), missing_dims="ignore"),
    "fewer bins": lambda tree: tree.isel(bin=slice(4), missing_dims="ignore"),
    "no draws of the prior": lambda tree: tree.drop_nodes("prior"),
    "no replicates": lambda tree: tree.drop_nodes("posterior_predictive"),
    "other draws": with_other_draws,
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_saved_groups_are_computed_when_read(small_fit, change, tmp_path, monkeypatch):
    """They are those of the fit, whatever was changed; only parts of them are computed to save."""
    fit = replace(small_fit, data=CHANGES[change](small_fit.data))
    with monkeypatch.context() as patch:
        if not change.startswith("fewer"):
            patch.setattr(RowSums, "_in_parts", None)
        fit.save(tmp_path / "fit.nc")
        once = soc.load_fit(tmp_path / "fit.nc")
        once.save(tmp_path / "again.nc")
        twice = soc.load_fit(tmp_path / "again.nc")
    assert once.data.equals(fit.data)
    assert twice.data.equals(fit.data)


@pytest.mark.slow
def test_arviz_reads_a_loaded_fit(small_fit, tmp_path):
    small_fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert az.loo(again.data).elpd == az.loo(small_fit.data).elpd


@pytest.mark.slow
def test_added_terms_have_densities_too():
    """An observation and a potential are log likelihoods, a parameter has a log prior."""
    _, stats, _ = made("gamma")
    with soc.model(stats, soc.Gamma(**FEW)) as model:
        bias = pm.Normal("bias", 0.0, 0.1)
        curve = model["bin_log_mean"]
        pm.Normal("audit", curve[:3] + bias, 0.05, observed=np.log([0.01, 0.02, 0.02]))
        pm.Potential("flat", -0.5 * (curve[-1] - curve[-2]) ** 2)
    fit = soc.fit(stats, soc.Gamma(**FEW), soc.VI(draws=100), model=model, **QUIET)
    with model:
        theirs = pm.compute_log_likelihood(fit.data, progressbar=False, extend_inferencedata=False)
    ours = fit.data["log_likelihood"]
    np.testing.assert_allclose(ours["audit"], theirs["audit"], atol=1e-8)
    values = soc.calibration_curves(fit, SCORES)["log_mean"]
    step = (values.isel(score=-1) - values.isel(score=-2)).to_numpy()
    np.testing.assert_allclose(ours["flat"], -0.5 * step**2, atol=1e-8)
    bias = fit.data["posterior"]["bias"]
    normal = -0.5 * (bias / 0.1) ** 2 - np.log(0.1 * np.sqrt(2.0 * np.pi))
    np.testing.assert_allclose(fit.data["log_prior"]["bias"], normal, atol=1e-10)


@pytest.mark.slow
def test_replicates_have_effects_of_bins(example):
    """Observed totals of 20 bins in sds of their replicates: their sd is 1, to three of its own."""
    stats = example("gamma").statistics
    fit = soc.fit(stats, soc.Gamma(**FEW, bin_effects=True), soc.VI(draws=200), progress=False)
    seen, replicated = (
        fit.data[name]["count"] for name in ("observed_data", "posterior_predictive")
    )
    away = (seen - replicated.mean(OVER)) / replicated.std(OVER)
    assert 0.5 < float(away.std()) < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("silent", thinned([[0], [3, 7]], [[3, 7]]))
def test_arviz_takes_bins_without_exposure(silent, tmp_path):
    """They are left out of the groups that leave-one-out reads, and saved fits have them all."""
    rng = np.random.default_rng(len(silent))
    frame = pd.DataFrame({"score": rng.lognormal(-1.0, 0.6, 500)})
    edges = np.quantile(frame["score"], np.arange(1, 10) / 10)
    place = np.searchsorted(edges, frame["score"], side="right")
    frame["exposure"] = np.where(np.isin(place, silent), 0.0, rng.lognormal(2.0, 1.0, 500))
    rate = frame["score"] * rng.gamma(2.0, 0.5, 500)
    frame["count"] = rng.poisson(rate * frame["exposure"])
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    soc.fit(soc.summarize(items, edges=edges, **QUIET), **QUIET).save(tmp_path / "fit")
    fit = soc.load_fit(tmp_path / "fit")
    assert az.loo(fit.data, pointwise=True).elpd_i.sizes["bin"] == 10 - len(silent)
    az.plot_loo_pit(fit.data)
    az.plot_loo_pit(fit.data, method="prit_c")
    assert fit.curves.bins["n_items"].sizes["bin"] == 10
    assert fit.curves.bins["count"].sum() == frame["count"].sum()
    assert len(soc.check(fit, items, subset=20, **QUIET).table)
