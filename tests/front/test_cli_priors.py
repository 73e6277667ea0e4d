"""Further priors on the command line: values, mixtures, groups, exposure, comparison."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.families.family import reads_joint
from soc_pymc.front.cli import main
from soc_pymc.front.commands import make_parser, prior_of
from soc_pymc.posterior.curves import curve_draws


def run(*words):
    assert main([str(w) for w in words]) == 0


@pytest.fixture(scope="module")
def effects(tmp_path_factory):
    """Values with known noise: the table, its file, and statistics with joint cells.

    One effect in ten scatters five times as far as the others, which no Normal describes.
    """
    folder = tmp_path_factory.mktemp("effects")
    rng = np.random.default_rng(0)
    t, sd = rng.normal(size=2000), rng.uniform(0.3, 1.0, 2000)
    theta = t + np.where(rng.random(2000) < 0.1, 2.0, 0.4) * rng.normal(size=2000)
    frame = pd.DataFrame({"t": t, "effect": theta + sd * rng.normal(size=2000), "se": sd})
    frame.to_parquet(folder / "effects.parquet")
    run("summarize", folder / "effects.parquet", "--score", "t", "--value", "effect",
        "--noise-sd", "se", "--bins", 20, "--joint", "--out", folder / "s.nc",
        "--quiet")  # fmt: skip
    run("fit", folder / "s.nc", "--draws", 200, "--out", folder / "normal.nc", "--quiet")
    run("fit", folder / "s.nc", "--prior", "normal-mixture",
        "--out", folder / "mixture.nc", "--quiet")  # fmt: skip
    return frame, folder


@pytest.fixture(scope="module")
def both_kinds(effects, small_items, small_statistics, small_fit, tmp_path_factory):
    """A folder with statistics and fits of counts, without joint cells, and of values."""
    folder = tmp_path_factory.mktemp("both")
    edges = small_statistics.edges
    plain = soc.summarize(small_items, edges=edges, joint=False, progress=False)
    plain.save(folder / "counts.nc")
    small_fit.save(folder / "fit.nc")
    shutil.copy(effects[1] / "s.nc", folder / "values.nc")
    shutil.copy(effects[1] / "normal.nc", folder / "normal.nc")
    return folder


@pytest.mark.slow
def test_values_from_items_to_check(effects, tmp_path, capsys):
    """Columns and prior are those of the statistics; posteriors are conjugate, draw by draw."""
    frame, folder = effects
    fit = soc.load_fit(folder / "normal.nc")
    assert fit.prior == soc.Normal()
    run("posteriors", folder / "normal.nc", folder / "effects.parquet", "--quantiles",
        "--draws", "all", "--out", tmp_path / "p.parquet", "--quiet")  # fmt: skip
    scored = pd.read_parquet(tmp_path / "p.parquet")
    mean, log_variance = curve_draws(fit, frame["t"])
    keep = np.exp(log_variance) / (np.exp(log_variance) + frame["se"].to_numpy() ** 2)
    expected = (mean + keep * (frame["effect"].to_numpy() - mean)).mean(axis=0)
    np.testing.assert_allclose(scored["theta_mean"], expected, rtol=0, atol=1e-9)
    run("curves", folder / "normal.nc", "--out", tmp_path / "c.csv", "--quiet")
    table = pd.read_csv(tmp_path / "c.csv")
    middle = soc.calibration_curves(fit, table["score"])["mean"].median(("chain", "draw"))
    np.testing.assert_allclose(table["mean_median"], middle, rtol=1e-9)
    capsys.readouterr()
    run("check", folder / "normal.nc", folder / "effects.parquet", "--quiet")
    printed = capsys.readouterr().out
    assert re.search(r"^fail +distribution of outcomes \(PIT\) +all items", printed, re.MULTILINE)


@pytest.mark.slow
def test_mixture_from_items_to_check(effects, tmp_path, capsys):
    """A mixture fits where a Normal does not, on items and on statistics."""
    _, folder = effects
    fit = soc.load_fit(folder / "mixture.nc")
    assert fit.prior == soc.NormalMixture()
    items = folder / "effects.parquet"
    run("posteriors", folder / "mixture.nc", items, "--out", tmp_path / "p.parquet", "--quiet")
    roles = soc.NormalItems(items, score="t", value="effect", noise_sd="se")
    again = soc.item_posteriors(fit, roles, progress=False).to_pandas()
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "p.parquet"), again)
    capsys.readouterr()
    for data in (items, folder / "s.nc"):
        run("check", folder / "mixture.nc", data, "--quiet")
        printed = capsys.readouterr().out
        assert printed.startswith("<soc_pymc.CheckResult")
        # one of a dozen tests is below .05 about every other time
        assert re.search(r"[01] look, 0 fail>", printed.split("\n")[0]), printed


@pytest.mark.slow
def test_compare_prints_the_table_of_the_function(effects, capsys):
    _, folder = effects
    names = {"plain": folder / "normal.nc", "mixed": folder / "mixture.nc"}
    capsys.readouterr()
    run("compare", folder / "s.nc", *(f"{k}={v}" for k, v in names.items()), "--quiet")
    lines = capsys.readouterr().out.splitlines()
    fits = {name: soc.load_fit(path) for name, path in names.items()}
    table = soc.compare(fits, soc.load_statistics(folder / "s.nc"), progress=False)
    assert [line.split()[0] for line in lines[1:]] == list(table.index) == ["mixed", "plain"]
    assert f"{table.loc['plain', 'elpd_diff']:.4g}" in lines[2].split()
    assert table.loc["plain", "elpd_diff"] < -50  # over 6 of its standard errors


@pytest.mark.parametrize(
    ("words", "prior"),
    [
        ([], soc.Gamma()),
        (["--prior", "gamma", "--pool-groups"], soc.Gamma(groups=False)),
        (["--monotone", "--bin-effects"], soc.Gamma(monotone=True, bin_effects=True)),
        (["--exposure-term", "--knots", 7], soc.Gamma(*[soc.Spline(knots=7)] * 2, soc.Spline())),
        (["--scale", "rank"], soc.Gamma(*[soc.Spline(scale="rank")] * 2)),
        (["--prior", "gamma-mixture"], soc.GammaMixture()),
        (["--zero", "--monotone"], soc.Gamma(zero=True, monotone=True)),
        (["--prior", "gamma-mixture", "--zero"], soc.GammaMixture(zero=True)),
        (
            ["--prior", "gamma-mixture", "--exposure-term", "--monotone", "--pool-groups"],
            soc.GammaMixture(exposure=soc.Spline(), monotone=True, groups=False),
        ),
    ],
)
def test_each_option_is_a_field_of_the_prior(words, prior):
    words = ["fit", "s.nc", *map(str, words), "--out", "f.nc"]
    assert prior_of(make_parser().parse_args(words), "poisson", grouped=True) == prior


def test_curves_of_values_keep_their_own_scale():
    words = make_parser().parse_args(["fit", "s.nc", "--knots", "9", "--out", "f.nc"])
    assert prior_of(words, "normal", False).mean == soc.Spline(knots=9, scale="linear")
    words = make_parser().parse_args(["fit", "s.nc", "--exposure-term", "--out", "f.nc"])
    assert reads_joint(prior_of(words, "normal", False))


@pytest.mark.slow
def test_groups_and_exposures(small_frame, tmp_path, capsys):
    """Groups have their own curves at an exposure; scoring and check use their column."""
    items, stats, fit_file = (tmp_path / n for n in ("i.parquet", "s.nc", "f.nc"))
    frame = small_frame.iloc[:2000].assign(country=np.where(np.arange(2000) % 3 > 0, "A", "B"))
    frame.to_parquet(items)
    roles = ["--score", "score", "--count", "count", "--exposure", "exposure"]
    run("summarize", items, *roles, "--group", "country", "--bins", 20, "--joint", "--out", stats,
        "--quiet")  # fmt: skip
    run("fit", stats, "--exposure-term", "--draws", 200, "--out", fit_file, "--quiet")
    fit = soc.load_fit(fit_file)
    assert fit.groups == ("A", "B")
    run("curves", fit_file, "--group", "B", "--exposure", 4, "--out", tmp_path / "c.csv")
    table = pd.read_csv(tmp_path / "c.csv")
    own = soc.calibration_curves(fit, table["score"], group="B", exposure=4.0)["log_mean"]
    np.testing.assert_allclose(table["log_mean_median"], own.median(("chain", "draw")), rtol=1e-6)
    shared = soc.calibration_curves(fit, table["score"])["log_mean"].median(("chain", "draw"))
    assert np.abs(table["log_mean_median"] - shared).max() > 1e-3
    known = soc.PoissonItems(items, score="score", count="count", exposure="exposure",
                             group="country")  # fmt: skip
    expected = soc.item_posteriors(fit, known, progress=False).to_pandas()
    for more in ([], ["--group", "country"]):
        run("posteriors", fit_file, items, *more, "--out", tmp_path / "p.parquet", "--quiet")
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "p.parquet"), expected)
    capsys.readouterr()
    run("check", fit_file, items, "--quiet")
    result = soc.check(fit, known, progress=False)
    assert "country = A" in set(result.table["slice"])
    assert capsys.readouterr().out == f"{result}\n"


@pytest.mark.slow
def test_run_keeps_the_joint_cells_that_a_prior_reads(effects, tmp_path):
    _, folder = effects
    run("run", folder / "effects.parquet", "--score", "t", "--value", "effect", "--noise-sd", "se",
        "--bins", 20, "--prior", "normal-mixture", "--keep", tmp_path, "--quantiles",
        "--out", tmp_path / "p.parquet", "--quiet")  # fmt: skip
    assert soc.load_statistics(tmp_path / "stats.nc").coarse
    assert soc.load_fit(tmp_path / "fit.nc").prior == soc.NormalMixture()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["fit", "values.nc", "--prior", "gamma", "--out", "x"], "--prior normal or --prior"),
        (["fit", "values.nc", "--pool-groups", "--out", "x"], "no groups"),
        (["fit", "values.nc", "--knots", "0", "--out", "x"], "knots=0"),
        (["fit", "counts.nc", "--exposure-term", "--out", "x"], "summarize ... --joint"),
        (["fit", "counts.nc", "--prior", "gamma-mixture", "--out", "x"], "summarize ... --joint"),
        (["curves", "fit.nc", "--group", "A", "--out", "x"], "has no groups"),
        (["curves", "fit.nc", "--exposure", "2", "--out", "x"], "no term in exposure"),
        (["posteriors", "fit.nc", "items.parquet", "--group", "a", "--out", "x"], "has no groups"),
        (["check", "fit.nc", "values.nc", "--by", "a"], "statistics have no columns"),
        (["check", "fit.nc", "values.nc"], "roles"),
        (["compare", "values.nc", "a=fit.nc", "b=normal.nc"], "other columns"),
        (["compare", "counts.nc", "a=fit.nc", "b=fit.nc"], "joint"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_options_that_do_not_apply(words, text, both_kinds, monkeypatch, capsys):
    monkeypatch.chdir(both_kinds)
    before = set(both_kinds.iterdir())
    assert main([*words, "--quiet"]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("soc-pymc: error: ")
    assert text in error
    assert "\n" not in error
    assert set(both_kinds.iterdir()) == before
