"""Items without a score: one level and one spread, with every verb that scored items have."""

import dataclasses

import duckdb
import ibis
import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

import soc_pymc as soc
from soc_pymc.front.cli import main
from tests.examples import CASES, QUIET

FAST = soc.VI(draws=400, seed=1)


@pytest.fixture(scope="module", params=["gamma", "normal", "beta"])
def unscored(request):
    """Returns items without a score, and the same items with one score for all, of one kind."""
    items = CASES[request.param].items(CASES[request.param].frame().head(800))
    constant = dataclasses.replace(items, source=items.source.assign(score=0.5))
    return dataclasses.replace(items, score=None), constant


@pytest.fixture(scope="module")
def fit(unscored):
    return soc.fit(soc.summarize(unscored[0], **QUIET), method=FAST, **QUIET)


def test_the_fit_is_that_of_one_score(unscored, fit):
    constant = soc.fit(soc.summarize(unscored[1], **QUIET), method=FAST, **QUIET)
    for name, values in constant.data["posterior"].data_vars.items():
        np.testing.assert_array_equal(fit.data["posterior"][name], values)
    assert soc.calibration_curves(fit).sizes["score"] == 1
    assert "none" in repr(fit)
    assert "score=None" in repr(unscored[0])


def test_every_way_to_score_gives_the_same(unscored, fit, tmp_path):
    """Memory, a file, an engine's table, a SELECT and the exported prior."""
    items = unscored[0]
    outcome, size = items.roles.keys() - {"score"}
    frame = items.source.drop(columns="score")
    scored = soc.item_posteriors(fit, dataclasses.replace(items, source=frame), **QUIET)
    assert list(scored.columns) == [*frame.columns, *scored.columns[len(frame.columns) :]]
    frame.to_parquet(tmp_path / "items.parquet")
    files = dataclasses.replace(items, source=[str(tmp_path / "items.parquet")])
    folder = soc.item_posteriors(fit, files, out=f"{tmp_path / 'out'}/", **QUIET)
    table = dataclasses.replace(items, source=ibis.memtable(frame))
    text = soc.posterior_sql(fit, "frame")
    soc.export_prior(fit, tmp_path / "prior.json")
    roles = fit.data.attrs["roles"]
    columns = sorted((outcome, size), key=roles.index)
    by_prior = soc.prior_table.score(tmp_path / "prior.json", None, *(frame[c] for c in columns))
    tables = [
        pd.read_parquet(folder / "items.parquet"),
        soc.posterior_expression(fit, table).to_pandas(),
        duckdb.sql(text).df(),
        pd.DataFrame(by_prior),
    ]
    for column in ("theta_mean", "theta_sd"):
        expected = np.sort(scored[column])
        for other in tables:
            np.testing.assert_allclose(np.sort(other[column]), expected, rtol=1e-9)
        assert len(np.unique(expected)) > 100


def test_check_decisions_pictures_and_report(unscored, fit, tmp_path):
    items = unscored[0]
    check = soc.check(fit, items, **QUIET)
    assert check.table["where"].str.contains("score").sum() == 0
    assert soc.decisions.probability_above(fit, items, 0.2, **QUIET).between(0, 1).all()
    top, bottom = soc.plots.plot_curves(fit)
    assert "all items" in top.get_legend().get_texts()[0].get_text()
    assert len(bottom.patches) == 1
    page = soc.report(fit, items, out=tmp_path / "report.html", **QUIET).read_text()
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
        fit = soc.fit(soc.summarize(items, **QUIET), method=FAST, **QUIET)
        mean = float(soc.calibration_curves(fit)["mean"].mean())
        assert abs(mean - level) < 0.3 * unit * error  # of a standard error


def test_a_forgotten_score_is_named(fit, example, unscored):
    frame = example("gamma").frame
    unscored_items = soc.PoissonItems(frame, score=None, count="count", exposure="exposure")
    with pytest.raises(soc.ItemsError, match="give them score="):
        soc.item_posteriors(example("gamma").fit, unscored_items)
    with pytest.raises(soc.ItemsError, match="need columns"):
        soc.PoissonItems(frame, score=None)
    with pytest.raises(TypeError, match="score"):
        soc.PoissonItems(frame, count="count", exposure="exposure")


def test_command_line(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": rng.integers(5, 50, 300)})
    frame["y"] = rng.binomial(frame["n"], rng.beta(3, 7, 300))
    frame.to_parquet(tmp_path / "items.parquet")
    names = ("items.parquet", "stats.nc", "fit.nc", "out.parquet")
    items, statistics, fit, out = (str(tmp_path / name) for name in names)
    columns = ["--successes", "y", "--trials", "n", "--out", statistics]
    assert main(["summarize", items, *columns]) == 2
    assert "--score (or --no-score)" in capsys.readouterr().err
    assert main(["summarize", items, "--no-score", *columns]) == 0
    assert main(["fit", statistics, "--out", fit]) == 0
    assert main(["posteriors", fit, items, "--out", out]) == 0
    assert list(pd.read_parquet(out).columns[:3]) == ["n", "y", "theta_mean"]
