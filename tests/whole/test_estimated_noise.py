"""Noise sds that are themselves estimates: moderation, t likelihoods and posteriors."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytensor.tensor as pt
import pytest
from scipy import integrate, special
from scipy import stats as laws

import soc_pymc as soc
from soc_pymc._model.problem import build
from soc_pymc.families.noise import NoiseLaw, noise_nodes
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import QUIET, thinned
from tests.tables import remote

ROLES = {"score": "t", "value": "y", "noise_sd": "s"}


def table(n, df, seed, prior_df=4.0, sd=0.3, scale=0.5):
    """Returns items with variances from a scaled inverse chi-squared law, and their estimates."""
    rng = np.random.default_rng(seed)
    t = rng.normal(size=n)
    theta = rng.normal(0.5 * t, sd)
    variance = scale**2 * prior_df / rng.chisquare(prior_df, n)
    s = np.sqrt(variance * rng.chisquare(df, n) / df)
    y = rng.normal(theta, np.sqrt(variance))
    return pd.DataFrame({"t": t, "theta": theta, "y": y, "s": s})


def items_of(frame, df=None):
    return soc.NormalItems(frame, **ROLES, noise_df=df)


def fit_of(items, prior=None):
    return soc.fit(soc.summarize(items, joint=True, **QUIET), prior, **QUIET)


@pytest.fixture(scope="module")
def case():
    """A table of 3 degrees of freedom with outliers, and its fit."""
    frame = table(2000, 3.0, 1)
    return frame, fit_of(items_of(frame, 3.0))


@pytest.mark.parametrize("df", [2.0, 3.0, 9.0, 30.0])
@pytest.mark.parametrize("prior_df", [4.0, 20.0])
def test_the_law_of_variances_is_recovered(df, prior_df):
    # the 90% interval of d0 widened by half; s0^2 has an sd of at most 2% here
    frame = table(20_000, df, 3, prior_df, scale=0.5)
    law = NoiseLaw.of(frame.t.round(1), frame.s**2, np.ones(len(frame)), df)
    low, high = law.interval
    assert low - 0.5 * (high - low) < prior_df < high + 0.5 * (high - low)
    assert len(law.score) == 1
    assert np.exp(law.log_variance[0]) == pytest.approx(0.25, rel=0.06)


@pytest.mark.slow
def test_intervals_of_the_law_cover():
    """90% of tables of 200 items, within 3 sds."""
    number = 300
    inside = 0
    for seed in range(number):
        frame = table(200, 4.0, [seed, 3], prior_df=6.0)
        law = NoiseLaw.of(np.zeros(200), frame.s**2, np.ones(200), 4.0)
        inside += law.interval[0] < 6.0 < law.interval[1]
    assert abs(inside - 0.9 * number) < 3 * np.sqrt(0.09 * number)


def test_a_trend_of_variances_in_the_score_is_followed():
    # log s0^2 is a line of slope 1 in Normal scores, whose ranks bend it: within 0.15 between the
    # 5% and 95% points, where a constant would be off by 1.6
    frame = table(20_000, 3.0, 4)
    frame["s"] *= np.exp(0.5 * frame.t)
    law = NoiseLaw.of(frame.t.round(1), frame.s**2, np.ones(len(frame)), 3.0)
    score = np.array([-1.6, -0.5, 0.0, 0.5, 1.6])
    log_prior = np.interp(score, law.score, law.log_variance)
    assert log_prior == pytest.approx(np.log(0.25) + score, abs=0.15)
    assert law.prior_df == pytest.approx(4.0, rel=0.15)


@pytest.mark.parametrize("df", [2.0, 3.0, 4.0, 8.0, 40.0, 1e4])
def test_nodes_give_t_densities(df):
    # 1e-3 relative, so that shares of posteriors are off by less than 1e-3; beyond 8 sds nodes end
    ratio, log_weight = (nodes[:, 0] for nodes in noise_nodes(np.array([df])))
    z = np.linspace(-8.0, 8.0, 41)[:, None] if df < 40 else np.linspace(-4.0, 4.0, 41)[:, None]
    density = special.logsumexp(log_weight + laws.norm.logpdf(z, scale=np.sqrt(ratio)), axis=1)
    assert density == pytest.approx(laws.t.logpdf(z[:, 0], df), abs=3e-3)


def by_quadrature(y, moderated, df, location, variance, probs=(0.05, 0.95)):
    """Returns mean, sd and quantiles of theta, averaged over draws of its Normal prior."""
    sd = np.sqrt(variance.max())
    ends = min(location.min() - 9 * sd, y), max(location.max() + 9 * sd, y)
    theta = np.linspace(*ends, 2001)  # 0.01 sd apart
    prior = laws.norm.pdf(theta[:, None], location, np.sqrt(variance))
    p = prior * laws.t.pdf(theta - y, df, scale=np.sqrt(moderated))[:, None]
    p = (p / p.sum(axis=0)).mean(axis=1)
    mean = p @ theta
    sd = np.sqrt(p @ (theta - mean) ** 2)
    return np.array([mean, sd, *np.interp(probs, np.cumsum(p) - 0.5 * p, theta)])


@pytest.mark.slow
def test_posteriors_are_those_of_quadrature(case):
    """The 5 farthest values and 5 others, to 1e-3 posterior sd, which is what the nodes allow."""
    frame, fit = case
    law = fit.curves.noise_law
    moderated = law.moderated(frame.t, frame.s, 3.0)
    location, dispersion = fit.curves.at(frame.t)
    far = np.abs(frame.y - location.mean(axis=0)) / np.sqrt(moderated)
    chosen = np.r_[np.argsort(-far)[:5], np.arange(0, len(frame), len(frame) // 5)]
    assert far.iloc[chosen[0]] > 6
    columns = ["theta_mean", "theta_sd", "theta_q05", "theta_q95"]
    scored = [
        soc.item_posteriors(fit, items_of(part, 3.0), draws=draws)[columns].to_numpy()
        for part, draws in ((frame.iloc[chosen], "all"), (frame, "auto"))
    ]
    for k, i in enumerate(chosen):
        curves = location[:, i], np.exp(dispersion[:, i])
        exact = by_quadrature(frame.y[i], moderated[i], law.prior_df + 3.0, *curves)
        assert scored[0][k] == pytest.approx(exact, abs=1e-3 * exact[1])
        assert scored[1][i] == pytest.approx(exact, abs=1e-3 * exact[1])


@pytest.mark.slow
def test_densities_and_likelihood_are_those_of_convolved_t(case):
    """Densities to 1e-4 nats; cells of the likelihood to 1/1500 nat an item, as elsewhere."""
    frame, fit = case
    law = fit.curves.noise_law
    posterior = posterior_of(fit)
    columns = {role: frame[name].to_numpy() for role, name in ROLES.items()}
    draws = np.arange(4)
    density = posterior.log_density(columns, draws)
    below = posterior.cdf_by_draw(columns, draws)[0]
    location, dispersion = fit.curves.at(frame.t, draws=draws)
    scale = np.sqrt(law.moderated(frame.t, frame.s, 3.0))
    for i in (0, 1000, int(frame.y.abs().argmax())):
        theta = laws.norm(location[0, i], np.exp(0.5 * dispersion[0, i]))
        noise = laws.t(law.prior_df + 3.0, scale=scale[i])
        points = np.r_[theta.ppf(np.linspace(0.01, 0.99, 9)), frame.y[i]]
        options = {"points": np.sort(points), "limit": 400}
        ends = theta.mean() - 12 * theta.std(), theta.mean() + 12 * theta.std()
        ends = min(ends[0], frame.y[i] - 1), max(ends[1], frame.y[i] + 1)
        for function, ours in ((noise.pdf, np.exp(density[0, i])), (noise.cdf, below[0, i])):
            exact = integrate.quad(
                lambda x, f=function, i=i, law=theta: f(frame.y[i] - x) * law.pdf(x),
                *ends,
                **options,
            )[0]
            assert ours == pytest.approx(exact, rel=1e-3)
    rows = fit.data["log_likelihood"].to_dataset().to_array()[0, 0, :4].to_numpy()
    assert rows.sum(axis=1) == pytest.approx(density.sum(axis=1), abs=2000 / 1500)


def test_cells_of_many_items_are_two_points():
    """20,000 items in some 100 cells: within 0.5 nats, where one point would be off by 3."""
    frame = table(20_000, 30.0, 5, prior_df=1e3)
    items = replace(items_of(frame, 30.0), score=None)
    fit = fit_of(items)
    columns = {"score": np.full(20_000, 0.5), "value": frame.y.to_numpy()}
    columns["noise_sd"] = frame.s.to_numpy()
    density = posterior_of(fit).log_density(columns, np.arange(2)).sum(axis=1)
    rows = fit.data["log_likelihood"].to_dataset().to_array()[0, 0, :2].to_numpy()
    assert rows.sum(axis=1) == pytest.approx(density, abs=0.5)


def test_both_libraries_compute_the_likelihood(case):
    """NumPy and PyTensor, to rounding, in the padded cells of the first rows."""
    frame, _ = case
    data = build(soc.summarize(items_of(frame, 3.0), joint=True, **QUIET), soc.Normal()).pilot.data
    rows = np.arange(20)
    rng = np.random.default_rng(0)
    curves = rng.normal(0.0, 0.5, 20), rng.normal(-2.0, 0.5, 20)
    cells = data.cells(rows)
    symbolic = data.log_marginal(pt, *map(pt.as_tensor, (*curves, *cells)))
    numbers = data.values(*(curve[None] for curve in curves), rows)[0]
    assert symbolic.eval() == pytest.approx(numbers, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("df", [2.0, 3.0, 9.0, 30.0])
def test_intervals_cover(df):
    # 0.88 to 0.92: a fifth has 2,000 items, whose coverage has an sd of 0.007, and the uncertainty
    # of the curves adds as much
    frame = table(10_000, df, 5, sd=0.5)
    items = items_of(frame, df)
    post = soc.item_posteriors(fit_of(items), items)
    inside = (post.theta_q05 < frame.theta) & (frame.theta < post.theta_q95)
    fifth = pd.qcut(frame.s, 5, labels=False)
    assert 0.88 < inside.mean() < 0.92
    assert inside.groupby(fifth).mean().between(0.88, 0.92).all()


@pytest.mark.parametrize("prior", thinned([soc.Normal(), soc.NormalMixture()], [soc.Normal()]))
def test_mixtures_of_genes_are_worth_their_noise(prior):
    """Most effects near 0, from 6 degrees of freedom, judged by precise values of the same theta.

    Under each prior the gain is several times 0.02 nats, about two standard errors.
    """
    n = 4000
    rng = np.random.default_rng(7)
    frame = table(n, 6.0, 7).assign(t=0.0)
    frame["y"] -= frame.theta
    frame["theta"] = rng.normal(size=n) * np.where(rng.random(n) < 0.15, 0.8, 0.08)
    frame["y"] += frame.theta
    precise = frame.theta + 0.1 * rng.normal(size=n)
    nats = []
    for df in (None, 6.0):
        items = replace(items_of(frame, df), score=None)
        post = soc.item_posteriors(fit_of(items, prior), items, draws="auto")
        sd = np.sqrt(post.theta_var + 0.01)
        nats.append(laws.norm.logpdf(precise, post.theta_mean, sd).mean())
        inside = (post.theta_q05 < frame.theta) & (frame.theta < post.theta_q95)
    assert nats[1] > nats[0] + 0.04
    # neither prior is the law of theta
    assert 0.88 < inside.mean() < 0.94


@pytest.fixture(scope="module")
def differing():
    """Items whose noise sds have from 2 to 30 degrees of freedom, with their column."""
    rng = np.random.default_rng(11)
    df = rng.choice([2.0, 3.0, 9.0, 30.0], 4000)
    frame = table(4000, df, 11, sd=0.5)
    return frame.assign(
        df=df,
        group=rng.choice(["a", "b"], 4000),
        day=pd.Timestamp("2026-03-01") + pd.to_timedelta(rng.integers(0, 2, 4000), "D"),
    )


@pytest.mark.slow
def test_a_column_of_degrees_of_freedom(differing):
    """Posteriors to 1e-3 sd of quadrature, and coverage by degrees of freedom: 3 sds of a mean."""
    items = items_of(differing, "df")
    fit = fit_of(items)
    law = fit.curves.noise_law
    assert law.prior_df == pytest.approx(4.0, rel=0.15)
    post = soc.item_posteriors(fit, items)
    inside = (post.theta_q05 < post.theta) & (post.theta < post.theta_q95)
    assert inside.groupby(post.df).mean().between(0.87, 0.93).all()
    moderated = law.moderated(post.t, post.s, post.df)
    location, dispersion = fit.curves.at(post.t)
    columns = ["theta_mean", "theta_sd", "theta_q05", "theta_q95"]
    for i in range(0, 4000, 1000):
        total = law.prior_df + post.df[i]
        exact = by_quadrature(
            post.y[i], moderated[i], total, location[:, i], np.exp(dispersion[:, i])
        )
        assert post.loc[i, columns].to_numpy() == pytest.approx(exact, abs=1e-3 * exact[1])
    for data in (items, soc.summarize(items, joint=True, **QUIET)):
        assert (soc.check(fit, data, subset=100, **QUIET).table["verdict"] != "fail").all()


def test_one_number_and_a_column_of_it_are_the_same(differing):
    """Sums, laws and fits are, as labels of groups hold the column."""
    frame = differing.assign(df=3)
    number, column = (soc.summarize(items_of(frame, df), joint=True, **QUIET) for df in (3.0, "df"))
    assert number.noise_law == column.noise_law
    assert np.array_equal(number.table("noise")["n"], column.table("noise")["n"])
    known, estimated = (soc.fit(stats, **QUIET) for stats in (number, column))
    assert known.data["posterior"].equals(estimated.data["posterior"])


@pytest.mark.slow
def test_days_groups_and_engines(differing):
    grouped = {"group": "group", "date": "day"}
    stats = [
        soc.summarize(replace(items_of(source, "df"), **grouped), joint=True, **QUIET)
        for source in (differing, remote(differing))
    ]
    assert stats[0].groups == ("a", "b")
    assert len(stats[0].days) == 2
    assert stats[0].noise_law == stats[1].noise_law
    for name in ("part", "noise"):
        assert np.array_equal(stats[0].table(name)["n"], stats[1].table(name)["n"])
    assert soc.fit(stats[0].window("1d"), **QUIET).groups == ("a", "b")


@pytest.mark.slow
def test_fits_with_and_without_are_compared(differing):
    known, estimated = (items_of(differing, df) for df in (None, "df"))
    fits = {"known": fit_of(known), "estimated": fit_of(estimated)}
    with warnings.catch_warnings():  # outliers have large Pareto k under known noise
        warnings.simplefilter("ignore", soc.ConvergenceWarning)
        table = soc.compare(fits, known, **QUIET)
    assert table.index[0] == "estimated"
    assert table["elpd_diff"].iloc[1] < -50


@pytest.mark.slow
def test_many_degrees_of_freedom_are_known_noise():
    # sds from 1e7 values are known to 2e-4, and so are posteriors, relative to their sd; draws are
    # those of another likelihood, with coordinates of its own: 0.05 sd
    frame = table(1000, 1e7, 8, prior_df=1e3)
    known, estimated = (
        soc.item_posteriors(fit_of(items_of(frame, df)), items_of(frame, df)) for df in (None, 1e7)
    )
    gap = (known.theta_mean - estimated.theta_mean) / known.theta_sd
    assert gap.abs().max() < 0.05
    assert estimated.theta_sd.to_numpy() == pytest.approx(known.theta_sd, rel=0.03)


@pytest.mark.slow
def test_the_value_of_a_further_observation_is_that_of_known_noise():
    """Of many degrees of freedom: sds to 2%, as curves and nodes are drawn anew; values alike."""
    frame = table(600, 1e4, 12)
    known, estimated = (
        soc.decisions.value_of_exposure(fit_of(items), items, 0.5, threshold=0.3, **QUIET)
        for items in (items_of(frame), items_of(frame, 1e4))
    )
    for name in ("sd_now", "sd_after"):
        np.testing.assert_allclose(estimated[name], known[name], rtol=0.02)
    assert estimated["value"].mean() == pytest.approx(known["value"].mean(), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("df", [3.0, 9.0])
@pytest.mark.parametrize("prior_df", [4.0, 1e3])
def test_the_check_names_estimated_sds(df, prior_df):
    """By what they gain; degrees of freedom to a step of the examined ones."""
    items = items_of(table(4000, df, 9, prior_df))
    first = soc.check(fit_of(items), items, **QUIET).remedies[0]
    assert first.check == "noise sds"
    assert first.nats > 10
    assert first.roles["noise_df"] == pytest.approx(df, rel=0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    thinned(["heavy tails", "small sds too small", "precise vary more"], ["precise vary more"]),
)
def test_the_check_does_not_take_other_faults_for_estimated_sds(fault):
    """The sds are the true ones here, although they vary as those from 4 values do."""
    frame = table(4000, 3.0, 9, prior_df=1e3)
    rng = np.random.default_rng(9)
    sd = {"heavy tails": np.where(rng.random(4000) < 0.15, 0.8, 0.08)}
    sd["precise vary more"] = 0.3 * (0.5 / frame.s) ** 0.5
    noise = frame.s * (1.5 if "too small" in fault else 1.0)
    frame["y"] = rng.normal(rng.normal(0.5 * frame.t, sd.get(fault, 0.3)), noise)
    items = items_of(frame)
    remedies = soc.check(fit_of(items), items, **QUIET).remedies
    names = [remedy.check for remedy in remedies if remedy.nats > 0]
    assert names
    assert "noise sds" not in names


@pytest.mark.slow
def test_saved_fits_and_statistics_keep_the_noise(case, tmp_path):
    frame, fit = case
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.curves.noise_law == fit.curves.noise_law
    assert again.data["log_likelihood"].equals(fit.data["log_likelihood"])
    few = items_of(frame.head(50), 3.0)
    assert soc.item_posteriors(again, few).equals(soc.item_posteriors(fit, few))
    items = items_of(frame, 3.0)
    stats = soc.summarize(items, joint=True, **QUIET)
    stats.save(tmp_path / "stats.nc")
    assert soc.load_statistics(tmp_path / "stats.nc").noise_law == stats.noise_law
    assert (stats + stats).n_items == 4000


def test_what_cannot_be_is_refused(case):
    frame, fit = case
    items = items_of(frame, 3.0)
    stats = soc.summarize(items, joint=True, **QUIET)
    refusals = {
        "noise_df=0 must be": lambda: items_of(frame, 0),
        "noise_df= and cluster=": lambda: replace(items, cluster="theta"),
        "the fit's items have noise_df=3": lambda: soc.item_posteriors(fit, items_of(frame)),
        "known noise sds": lambda: soc.item_posteriors(fit_of(items_of(frame)), items),
        "term in them": lambda: soc.fit(stats, soc.Normal(exposure=soc.Spline())),
        "joint cells": lambda: soc.fit(soc.summarize(items, joint=False)),
        "different noise_df": lambda: stats + soc.summarize(items_of(frame), edges=stats.edges),
        "noise_df=3.0: give these the same": lambda: soc.item_posteriors(fit, items_of(frame, 4.0)),
        "more than 200": lambda: soc.summarize(items_of(frame.assign(df=frame.s + 1), "df")),
        "degrees of freedom of noise sds must": lambda: soc.summarize(
            items_of(frame.assign(df=0), "df")
        ),
        "1 of 2,000 values is more than a million .*'s'.* or leave out noise_df=": (
            lambda: soc.summarize(
                items_of(frame.assign(s=frame.s.where(frame.index > 0, 1e-9)), 3.0)
            )
        ),
        "independent parts": lambda: soc.evaluate.split_items(items),
        "independent parts: fit some": lambda: soc.evaluate.split_items(
            items_of(frame.assign(df=3), "df")
        ),
        "take noise sds as known": lambda: soc.export_prior(fit, "prior.json"),
        "SQL take noise sds as known": lambda: soc.posterior_sql(fit, "t"),
        "as known: leave noise_df": lambda: soc.fit(stats, method=soc.FiveSteps()),
    }
    for words, refused in refusals.items():
        with pytest.raises(soc.SocError, match=words):
            refused()
