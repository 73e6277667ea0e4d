"""Scores that many items share, and items without a score, with every verb of scored items."""

import dataclasses
import warnings
from functools import partial

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import optimize, stats
from scipy import stats as laws

import soc_pymc as soc
from soc_pymc.__main__ import main
from soc_pymc.posterior.averages import cdf_interval
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import (
    CASES,
    COUNT_ROLES,
    OVER,
    QUIET,
    ROLES,
    SINGLE_FAMILIES,
    SMALL_MIXTURE,
    thinned,
)
from tests.studies import coverage as study
from tests.studies.common import counts

pytestmark = pytest.mark.filterwarnings("ignore:column .* has scores shared by many items")


@pytest.fixture(scope="module")
def frame():
    return study.with_atom(4000, seed=0)


@pytest.fixture(scope="module")
def statistics(frame):
    return soc.summarize(counts(frame), joint=True, **QUIET)


@pytest.fixture(scope="module")
def fit(statistics):
    return soc.fit(statistics, soc.Gamma(), soc.VI(draws=300), **QUIET)


@pytest.mark.slow
def test_curves_beside_an_atom_are_not_bent(fit):
    """A curve bent by it would be near 0.065 and a cv2 of 0.5: 15 and 5 posterior sds off."""
    assert fit.atoms == (study.DEFAULT,)
    assert fit.status.converged
    curves = soc.calibration_curves(fit, [study.BESIDE, study.DEFAULT])
    for drawn, truth in (
        (curves["mean"], (study.BESIDE, study.MEAN)),
        (1.0 / curves["shape"], (study.CV2_BESIDE, study.CV2)),
    ):
        away = (drawn.mean(OVER) - np.array(truth)) / drawn.std(OVER)
        assert np.abs(away).max() < 3.5


@pytest.mark.slow
def test_only_the_score_itself_has_the_shifts(fit):
    atom = study.DEFAULT
    score = [np.nextafter(atom, 0), atom, np.nextafter(atom, 1), atom * (1 + 1e-9)]
    curves = soc.calibration_curves(fit, score)
    for draws, name in (
        (curves["log_mean"], "log_mean_of_atom"),
        (-np.log(curves["shape"]), "log_cv2_of_atom"),
    ):
        draws = draws.to_numpy().reshape(-1, 4)
        np.testing.assert_allclose(draws[:, [0, 2, 3]], draws[:, [0, 0, 0]], atol=1e-6)
        shift = fit.data["posterior"][name].to_numpy().ravel()
        np.testing.assert_allclose(draws[:, 1] - draws[:, 0], shift, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("draws", ["all", "auto"])
def test_item_posteriors_are_those_of_the_draws(fit, frame, draws):
    """Against the closed form, averaged over the draws by hand: 2e-3 posterior sd."""
    some = frame.iloc[:300]
    scored = soc.item_posteriors(fit, counts(some), draws=draws, **QUIET)
    curves = soc.calibration_curves(fit, some["score"])
    shape, rate = (curves[name].to_numpy().reshape(300, -1) for name in ("shape", "rate"))
    mean = (shape + some["count"].to_numpy()) / (rate + some["exposure"].to_numpy())
    away = (scored["theta_mean"].to_numpy() - mean.mean(axis=0)) / scored["theta_sd"].to_numpy()
    assert np.abs(away).max() < 2e-3


@pytest.mark.slow
def test_checks_have_a_slice_for_each_atom(fit, statistics):
    table = soc.check(fit, statistics, **QUIET).table
    assert list(table[table["where"] == "score = 0.05"]["verdict"]) == ["ok"]
    assert "fail" not in set(table["verdict"])


@pytest.mark.slow
def test_an_atom_far_from_other_scores_does_not_bend_the_line(frame):
    """Its shift says nothing of the slope, and the range of scores is that of the others."""
    moved = frame.assign(score=np.where(frame["default"], 1e9, frame["score"]))
    stats = soc.summarize(counts(moved), **QUIET)
    fit = soc.fit(stats, soc.Gamma(), soc.VI(draws=100), **QUIET)
    assert float(soc.calibration_curves(fit)["score"].max()) < 10.0
    mean = soc.calibration_curves(fit, [study.BESIDE, 1e9])["mean"].mean(OVER)
    np.testing.assert_allclose(mean, [study.BESIDE, study.MEAN], rtol=0.12)
    with pytest.warns(soc.ItemsWarning, match="1 of 1"):
        soc.calibration_curves(fit, [1e8])


def test_atoms_can_be_left_out(statistics):
    assert "atom" in soc.model(statistics, soc.Gamma()).coords
    assert "atom" not in soc.model(statistics, soc.Gamma(atoms=False)).coords


@pytest.mark.parametrize("scores", [(0.0,), (0.0, 1.0)])
@pytest.mark.parametrize("scale", thinned(["logit", "rank"], ["logit"]))
def test_items_of_atoms_alone_are_populations(scores, scale):
    rng = np.random.default_rng(0)
    t = rng.choice(scores, 1500)
    rate = rng.beta(4.0 + 8.0 * t, 8.0)
    frame = pd.DataFrame({"t": t, "y": rng.binomial(12, rate), "n": 12})
    items = soc.BinomialItems(frame, score="t", successes="y", trials="n")
    spline = soc.Spline(scale=scale)
    fit = soc.fit(soc.summarize(items), soc.Beta(mean=spline, variance=spline), **QUIET)
    assert fit.atoms == scores
    curves = soc.calibration_curves(fit, scores)
    rates = frame.groupby("t")[["y", "n"]].sum()
    away = (curves["mean"].mean(OVER) - rates["y"] / rates["n"]) / curves["mean"].std(OVER)
    assert np.abs(away).max() < 0.5
    assert curves["mean"].std(OVER).max() < 0.01
    assert "fail" not in set(soc.check(fit, items).table["verdict"])
    others = dataclasses.replace(items, source=frame.assign(t=0.4))
    with pytest.warns(soc.ItemsWarning, match="they get the average of the fit's scores"):
        assert soc.item_posteriors(fit, others)["theta_mean"].notna().all()


@pytest.mark.parametrize("kind", [soc.PoissonItems, soc.AmountItems])
def test_few_rates_of_0_are_an_atom(kind):
    """Last year's rates: 20 of 300 items had no event, a score that the log scale cannot place."""
    rng = np.random.default_rng(0)
    score = rng.gamma(3.0, 0.1, 300)
    score[:20] = 0.0
    n = rng.integers(5, 60, 300)
    theta = np.maximum(score, 0.1) * rng.gamma(8.0, 1.0 / 8.0, 300)
    outcome = rng.poisson(theta * n) if kind is soc.PoissonItems else rng.gamma(n, theta)
    names = list(ROLES[kind])
    items = kind(pd.DataFrame(dict(zip(names, (score, outcome, n), strict=True))), **ROLES[kind])
    with pytest.warns(soc.ItemsWarning, match="'score' has scores without a log: 20 of 300 items"):
        stats = soc.summarize(items, joint=True, **QUIET)
    fit = soc.fit(stats, **QUIET)
    assert fit.atoms == (0.0,)
    assert "fail" not in set(soc.check(fit, items, **QUIET).table["verdict"])
    mean = soc.calibration_curves(fit, [0.0])["mean"]
    assert abs(mean.mean().item() - 0.1) < 3.0 * mean.std().item()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0.0 < soc.quantities.r_squared(fit).mean().item() < 1.0
    linear = soc.Spline(scale="linear")
    plain = soc.fit(stats, type(fit.prior)(mean=linear, variance=linear), **QUIET)
    assert plain.atoms == ()


def pit_of(fit, frame):
    columns = {role: frame[role].to_numpy(dtype=float) for role in COUNT_ROLES}
    low, high = cdf_interval(posterior_of(fit), columns)
    return low + (high - low) * np.random.default_rng(0).random(len(low))


@pytest.mark.slow
def test_mixtures_have_atoms_too(frame, statistics):
    """PIT flat at the score and beside it (800 and 3,200 items), and the curve beside unbent."""
    fit = soc.fit(statistics, soc.GammaMixture(**SMALL_MIXTURE), **QUIET)
    for inside in (frame["default"], ~frame["default"]):
        assert laws.kstest(pit_of(fit, frame[inside]), "uniform").pvalue > 1e-3
    mean = soc.calibration_curves(fit, [study.BESIDE, study.DEFAULT])["mean"].mean(OVER)
    # 800 items know the mean at the score with an sd of 4%
    np.testing.assert_allclose(mean, [study.BESIDE, study.MEAN], rtol=0.12)


@pytest.mark.slow
def test_clusters_widen_atoms_too(frame):
    clusters = frame.assign(c=np.random.default_rng(0).integers(0, 60, len(frame)))
    fit = soc.fit(soc.summarize(counts(clusters, cluster="c"), bins=30, **QUIET), **QUIET)
    assert fit.atoms == (study.DEFAULT,)
    assert fit.widened


FAST = soc.VI(draws=400, seed=1)


@pytest.fixture(scope="module", params=thinned(SINGLE_FAMILIES, ["normal"]))
def unscored(request):
    """Returns items without a score, and the same items with one score for all, of one kind."""
    items = CASES[request.param].items(CASES[request.param].frame().head(800))
    constant = dataclasses.replace(items, source=items.source.assign(score=0.5))
    return dataclasses.replace(items, score=None), constant


@pytest.fixture(scope="module")
def unscored_fit(unscored):
    return soc.fit(soc.summarize(unscored[0], **QUIET), method=FAST, **QUIET)


def test_the_fit_is_that_of_one_score(unscored, unscored_fit):
    constant = soc.fit(soc.summarize(unscored[1], **QUIET), method=FAST, **QUIET)
    for name, values in constant.data["posterior"].data_vars.items():
        np.testing.assert_array_equal(unscored_fit.data["posterior"][name], values)
    assert unscored_fit.curves.one_score
    assert constant.curves.one_score
    assert soc.calibration_curves(unscored_fit).sizes["score"] == 1
    assert "none" in repr(unscored_fit)
    assert "800 in 1 bin\n" in repr(unscored_fit)
    assert "score=None" in repr(unscored[0])


def test_every_way_to_score_gives_the_same(unscored, unscored_fit, tmp_path):
    """Memory, a file, an engine's table, a SELECT and the exported prior, to 1e-9 of an sd.

    Means of values may be near 0, and texts hold the prior in nine digits.
    """
    items = unscored[0]
    outcome, size = items.roles.keys() - {"score"}
    frame = items.source.drop(columns="score")
    scored = soc.item_posteriors(unscored_fit, dataclasses.replace(items, source=frame), **QUIET)
    assert list(scored.columns) == [*frame.columns, *scored.columns[len(frame.columns) :]]
    frame.to_parquet(tmp_path / "items.parquet")
    files = dataclasses.replace(items, source=[str(tmp_path / "items.parquet")])
    folder = soc.item_posteriors(unscored_fit, files, out=f"{tmp_path / 'out'}/", **QUIET)
    table = dataclasses.replace(items, source=ibis.memtable(frame))
    text = soc.posterior_sql(unscored_fit, "frame", quantiles=())
    soc.export_prior(unscored_fit, tmp_path / "prior.json")
    roles = unscored_fit.data.attrs["roles"]
    columns = sorted((outcome, size), key=roles.index)
    by_prior = soc.prior_table.score(tmp_path / "prior.json", None, *(frame[c] for c in columns))
    tables = [
        pd.read_parquet(folder / "items.parquet"),
        soc.posterior_expression(unscored_fit, table, quantiles=()).to_pandas(),
        duckdb.sql(text).df(),
        pd.DataFrame(by_prior),
    ]
    least = 1e-9 * scored["theta_sd"].min()
    for column in ("theta_mean", "theta_sd"):
        expected = np.sort(scored[column])
        for other in tables:
            np.testing.assert_allclose(np.sort(other[column]), expected, rtol=1e-9, atol=least)
        assert len(np.unique(expected)) > 100


def test_new_items_without_any_column_get_the_prior(unscored, unscored_fit, tmp_path):
    """From every kind of table; as an outcome without information, exactly."""
    new = pd.DataFrame({"any": [object(), "b"], "name": ["c", "d"]})[::-1]
    bare = partial(type(unscored[0]), **unscored[0].options)
    outcome = unscored[0].outcome
    columns = {outcome.observed: 0, outcome.size: outcome.no_information}
    informed = bare(new.assign(**columns), score=None, **{name: name for name in columns})
    expected = soc.item_posteriors(unscored_fit, informed, **QUIET).filter(like="theta_")
    new[["name"]].to_csv(tmp_path / "new.csv", index=False)
    tables = (pl.DataFrame(new[["name"]]), pa.table(new[["name"]]), str(tmp_path / "new.csv"))
    for table in (new, *tables, ibis.memtable(new[["name"]])):
        scored = soc.item_posteriors(unscored_fit, bare(table, score=None), **QUIET)
        numbers = [scored[name] for name in expected]
        np.testing.assert_array_equal(np.transpose(numbers), expected)
    with pytest.raises(soc.ItemsError, match="has no rows"):
        soc.item_posteriors(unscored_fit, bare(new[:0], score=None), **QUIET)


def test_results_do_not_show_a_score(unscored, unscored_fit):
    """Held-out gains are over the constant, and R-squared, 0 in every draw, has no row."""
    split = soc.evaluate.split_items(unscored[0], seed=1)
    fit = soc.fit(soc.summarize(split.train, **QUIET), method=FAST, **QUIET)
    held = soc.evaluate.held_out(fit, split, **QUIET)
    assert "gains over constant" in repr(held)
    assert set(held.table["where"].astype(str)) <= {"all items", "exposure >= 25"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        prior = soc.sensitivity(fit, soc.summarize(split.train, **QUIET), **QUIET).table
    assert prior["where"].unique().tolist() == ["E(theta | t)", "log Var(theta | t)"]
    assert prior["value"].notna().all()


@pytest.mark.slow
def test_check_decisions_pictures_and_report(unscored, unscored_fit, tmp_path):
    items = unscored[0]
    check = soc.check(unscored_fit, items, **QUIET)
    assert check.table["where"].str.contains("score").sum() == 0
    assert soc.decisions.probability_above(unscored_fit, items, 0.2, **QUIET).between(0, 1).all()
    top, bottom = soc.plots.plot_curves(unscored_fit)
    assert "all items" in top.get_legend().get_texts()[0].get_text()
    assert len(bottom.patches) == 1
    page = soc.report(unscored_fit, items, out=tmp_path / "report.html", **QUIET).read_text()
    assert "(no score)" not in page
    assert "Theta of all items" in page


def test_level_and_spread_are_those_of_the_marginal_likelihood():
    """Within half a posterior sd of the maximum of the Beta-Binomial's, by SciPy."""
    rng = np.random.default_rng(3)
    n = rng.integers(1, 200, 400)
    y = rng.binomial(n, rng.beta(6, 14, 400))

    def negative(x):
        return -stats.betabinom.logpmf(y, n, *np.exp(x)).sum()

    a, b = np.exp(optimize.minimize(negative, [0.0, 0.0], method="Nelder-Mead").x)
    items = soc.BinomialItems(pd.DataFrame({"y": y, "n": n}), score=None, successes="y", trials="n")
    curves = soc.calibration_curves(soc.fit(soc.summarize(items, **QUIET), **QUIET))
    expected = {"mean": a / (a + b), "log_variance": np.log(a * b / (a + b) ** 2 / (a + b + 1))}
    for name, value in expected.items():
        assert abs(float(curves[name].mean()) - value) < 0.5 * float(curves[name].std())


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_the_level_needs_no_scale_of_scores(unit):
    """Values far from 0, and rates of any size: the level is that of the data."""
    rng = np.random.default_rng(1)
    y = unit * rng.normal(1000.0, 50.0, 300)
    values = pd.DataFrame({"y": y, "s": unit})
    size = rng.lognormal(0.0, 1.0, 300)
    rates = pd.DataFrame({"y": rng.poisson(5 * size), "N": size / unit})
    for items, level, error in (
        (soc.NormalItems(values, score=None, value="y", noise_sd="s"), y.mean(), 50 / 17),
        (
            soc.PoissonItems(rates, score=None, count="y", exposure="N"),
            unit * rates["y"].sum() / size.sum(),
            np.sqrt(5 / 300),
        ),
    ):
        unscored_fit = soc.fit(soc.summarize(items, **QUIET), method=FAST, **QUIET)
        mean = float(soc.calibration_curves(unscored_fit)["mean"].mean())
        assert abs(mean - level) < 0.3 * unit * error  # of a standard error


def test_a_forgotten_score_is_named(unscored_fit, example, unscored):
    frame = example("gamma").frame
    unscored_items = soc.PoissonItems(frame, score=None, count="count", exposure="exposure")
    with pytest.raises(soc.ItemsError, match="give them score="):
        soc.item_posteriors(example("gamma").fit, unscored_items)
    with pytest.raises(soc.ItemsError, match="name no column of counts"):
        soc.summarize(soc.PoissonItems(frame, score=None))
    with pytest.raises(TypeError, match="score"):
        soc.PoissonItems(frame, count="count", exposure="exposure")


@pytest.mark.slow
def test_command_line(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": rng.integers(5, 50, 300)})
    frame["y"] = rng.binomial(frame["n"], rng.beta(3, 7, 300))
    frame.to_parquet(tmp_path / "items.parquet")
    names = ("items.parquet", "stats.nc", "fit.nc", "out.parquet")
    items, statistics, unscored_fit, out = (str(tmp_path / name) for name in names)
    columns = ["--successes", "y", "--trials", "n", "--out", statistics]
    assert main(["summarize", items, *columns]) == 2
    assert "--score (or --no-score)" in capsys.readouterr().err
    assert main(["summarize", items, "--no-score", *columns]) == 0
    assert main(["fit", statistics, "--out", unscored_fit]) == 0
    assert main(["posteriors", unscored_fit, items, "--out", out]) == 0
    assert list(pd.read_parquet(out).columns[:3]) == ["n", "y", "theta_mean"]
