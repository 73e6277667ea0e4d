"""The command line: chains on real data, errors in one line, the demo."""

import json
import warnings
from argparse import Namespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy.special import gammainc

import soc_pymc as soc
from soc_pymc.front import commands
from soc_pymc.front.cli import _warnings_as_lines, main
from soc_pymc.posterior.curves import curve_draws

CHAINS = {
    "adwords_items.parquet": ("clicks", "impressions"),
    "fremtpl2_items.parquet": ("claims", "exposure_years"),
}


def run(*words):
    assert main([str(w) for w in words]) == 0


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.slow
def test_chain_on_real_data(name, real_data, tmp_path, capsys):
    count, exposure = CHAINS[name]
    stats_file, fit_file = tmp_path / "stats.nc", tmp_path / "fit.nc"
    run("summarize", real_data / name, "--score", "score", "--count", count,
        "--exposure", exposure, "--bins", 200, "--out", stats_file, "--quiet")  # fmt: skip
    run("fit", stats_file, "--seed", 1, "--draws", 200, "--out", fit_file, "--quiet")
    run("curves", fit_file, "--out", tmp_path / "curves.csv", "--quiet")
    # every draw counts; the quantiles of 678,007 items would take a minute
    quantiles = ["--quantiles"] if name.startswith("fremtpl2") else []
    run("posteriors", fit_file, real_data / name, *quantiles, "--draws", "all",
        "--out", tmp_path / "post.parquet", "--quiet")  # fmt: skip
    capsys.readouterr()
    run("check", fit_file, real_data / name, "--quiet")
    printed = capsys.readouterr().out

    frame = pd.read_parquet(real_data / name)
    stats = soc.load_statistics(stats_file)
    assert stats.n_items == len(frame)
    assert stats.total_count == frame[count].sum()
    assert stats.total_exposure == pytest.approx(frame[exposure].sum(), rel=1e-12)
    assert stats.bins == 200

    fit = soc.load_fit(fit_file)
    assert fit.status.converged
    assert json.loads(fit.data.attrs["roles"])["count"] == count
    scored = pq.read_table(tmp_path / "post.parquet").to_pandas()
    assert list(scored[frame.columns]) == list(frame.columns)
    some = np.random.default_rng(0).choice(len(frame), 2000, replace=False)
    _assert_conjugate(fit, scored.iloc[some], count, exposure)
    _assert_curves(fit, pd.read_csv(tmp_path / "curves.csv"))
    assert "CheckResult" in printed
    # exposure says something about theta in both tables, and the check must see it
    assert "exposure" in printed
    assert "fail" in printed


def _assert_conjugate(fit, scored, count, exposure):
    """Posterior mean and variance recomputed from every curve draw, to 1e-6."""
    log_mean, log_cv2 = curve_draws(fit, scored["score"])
    shape = np.exp(-log_cv2) + scored[count].to_numpy()
    rate = np.exp(-log_cv2 - log_mean) + scored[exposure].to_numpy()
    means = shape / rate
    np.testing.assert_allclose(scored["theta_mean"], means.mean(0), rtol=1e-6)
    variance = (shape / rate**2).mean(0) + means.var(0)
    np.testing.assert_allclose(scored["theta_var"], variance, rtol=1e-6)
    for column, prob in (("theta_q05", 0.05), ("theta_q95", 0.95)):
        if column in scored:
            theta = scored[column].to_numpy()
            np.testing.assert_allclose(gammainc(shape, theta * rate).mean(0), prob, atol=1e-6)


def _assert_curves(fit, table):
    curves = soc.calibration_curves(fit, table["score"])
    low, middle, high = np.quantile(curves["log_mean"], [0.05, 0.5, 0.95], axis=(0, 1))
    np.testing.assert_allclose(table["log_mean_lower"], low, rtol=1e-6)
    np.testing.assert_allclose(table["log_mean_median"], middle, rtol=1e-6)
    assert (table["log_mean_upper_simultaneous"] > high).all()


@pytest.mark.slow
def test_held_out_impressions_on_adwords(real_data):
    """E(theta | t, y) predicts held-out impressions better than E(theta | t), and that than t."""
    items = soc.PoissonItems(
        real_data / "adwords_items.parquet", score="score", count="clicks", exposure="impressions"
    )
    split = soc.evaluate.split_items(items, 0.1, seed=0)
    fit = soc.fit(soc.summarize(split.train, bins=200, progress=False), progress=False)
    found = soc.evaluate.held_out(fit, split, bins=10, progress=False).table
    table = found[found["bin"] == -1].set_index("estimator")
    gain = table["gain"]
    assert 20 < gain["E(theta | t)"] < 300
    assert gain["E(theta | t, y)"] > gain["E(theta | t)"] + 500
    assert gain["E(theta | t, y)"] > 5 * table.loc["E(theta | t, y)", "standard_error"]
    # no first-order method can tell keywords of one score apart, and a constant none at all
    assert gain[["isotonic", "platt", "spline"]].between(20, 300).all()
    assert gain["constant"] < -5000


@pytest.mark.slow
def test_quantiles_by_default(small_frame, tmp_path):
    """The command's defaults are the function's: every draw, 5% and 95%."""
    items = tmp_path / "items.parquet"
    small_frame.iloc[:200].to_parquet(items)
    stats, fit_file, out = (tmp_path / n for n in ("s.nc", "f.nc", "p.parquet"))
    run("summarize", items, "--score", "score", "--count", "count", "--exposure", "exposure",
        "--out", stats, "--quiet")  # fmt: skip
    run("fit", stats, "--out", fit_file, "--quiet")
    run("posteriors", fit_file, items, "--out", out, "--quiet")
    roles = soc.PoissonItems(items, score="score", count="count", exposure="exposure")
    again = soc.item_posteriors(soc.load_fit(fit_file), roles, progress=False).to_pandas()
    pd.testing.assert_frame_equal(pq.read_table(out).to_pandas(), again)
    run("summarize", items, "--score", "score", "--count", "count", "--exposure", "exposure",
        "--edges", stats, "--out", tmp_path / "again.nc", "--quiet")  # fmt: skip
    np.testing.assert_array_equal(
        soc.load_statistics(tmp_path / "again.nc").edges, soc.load_statistics(stats).edges
    )


@pytest.mark.slow
def test_groups_ids_folds_and_joint_cells(small_frame, tmp_path):
    """Each option is an argument of `PoissonItems` or `summarize`."""
    items = tmp_path / "items.parquet"
    frame = small_frame.assign(
        country=np.where(small_frame["exposure"] > 9, "A", "B"),
        key=np.arange(len(small_frame)) - 50,
        part=np.arange(len(small_frame)) % 3,
    )
    frame.to_parquet(items)
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    words = ["summarize", items, *(w for role in roles for w in (f"--{role}", role))]
    words += ["--bins", 20, "--out", tmp_path / "s.nc", "--quiet"]
    for more, columns, options in (
        (["--group", "country", "--id", "key"], {"group": "country", "id": "key"}, {}),
        (["--id", "key", "--folds", 4], {"id": "key"}, {"folds": 4}),
        (["--fold", "part", "--joint"], {"fold": "part"}, {"joint": True}),
    ):
        run(*words, *more)
        asked = soc.PoissonItems(frame, **roles, **columns)
        stats = soc.summarize(asked, bins=20, **options, progress=False)
        assert soc.load_statistics(tmp_path / "s.nc").data.equals(stats.data)


@pytest.mark.slow
def test_one_command_does_what_three_do(small_frame, tmp_path):
    small_frame.to_parquet(tmp_path / "items.parquet")
    roles = ["--score", "score", "--count", "count", "--exposure", "exposure"]
    items, keep = str(tmp_path / "items.parquet"), tmp_path / "kept"
    words = ["run", items, *roles, "--bins", "30", "--seed", "3", "--keep", str(keep), "--quiet"]
    assert main([*words, "--out", str(tmp_path / "one.parquet")]) == 0
    fit = soc.load_fit(keep / "fit.nc")
    assert soc.load_statistics(keep / "stats.nc").bins == 30
    out = str(tmp_path / "three.parquet")
    words = ["posteriors", str(keep / "fit.nc"), items, "--draws", "auto", "--out", out]
    assert main([*words, "--quiet"]) == 0
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "one.parquet"), pd.read_parquet(tmp_path / "three.parquet")
    )
    assert fit.method == soc.VI(seed=3)


@pytest.mark.slow
def test_edges_and_bins_exclude_each_other(small_frame, small_statistics, tmp_path, capsys):
    small_frame.to_parquet(tmp_path / "items.parquet")
    small_statistics.save(tmp_path / "stats.nc")
    words = ["summarize", str(tmp_path / "items.parquet"), "--score", "score", "--count", "count"]
    words += ["--exposure", "exposure", "--edges", str(tmp_path / "stats.nc"), "--bins", "5"]
    assert main([*words, "--out", str(tmp_path / "new.nc")]) == 2
    assert "not both" in capsys.readouterr().err


@pytest.mark.slow
def test_a_fit_starts_from_another(small_statistics, small_fit, tmp_path):
    small_statistics.save(tmp_path / "stats.nc")
    small_fit.save(tmp_path / "old.nc")
    run("fit", tmp_path / "stats.nc", "--start", tmp_path / "old.nc", "--out", tmp_path / "new.nc",
        "--quiet")  # fmt: skip
    assert soc.load_fit(tmp_path / "new.nc").status.converged


@pytest.mark.slow
def test_sql_is_that_of_the_function(small_fit, tmp_path, capsys):
    small_fit.save(tmp_path / "fit.nc")
    run("sql", tmp_path / "fit.nc", "--table", "sales.ads", "--count", "clicks",
        "--columns", "key", "day", "--dialect", "bigquery")  # fmt: skip
    expected = soc.posterior_sql(
        small_fit, "sales.ads", count="clicks", columns=("key", "day"), dialect="bigquery"
    )
    assert capsys.readouterr().out == expected + "\n"


def test_sql_of_crossed_groups_reads_no_items():
    """Columns with a comma between them are two; there is no table in which one might be."""
    assert commands._groups_of(Namespace(group=["country,device"])) == {
        "group_1": "country",
        "group_2": "device",
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["fit", "absent.nc", "--out", "fit.nc"], "absent.nc"),
        (["fit", "s.nc", "--start", "absent.nc", "--out", "f.nc"], "absent.nc: there is no such"),
        (["curves", "absent.nc", "--out", "c.csv"], "absent.nc: there is no such file"),
        (["summarize", "absent.parquet", "--out", "s.nc"], "--score, --count, --exposure"),
        (["summarize", "absent.parquet", "--score", "a", "--count", "b", "--exposure", "c",
          "--out", "s.nc"], "absent.parquet: there is no such file"),
        (["demo", "--items", "3"], "at least 1000"),
        (["sql", "absent.nc", "--table", "ads"], "absent.nc: there is no such file"),
        (["compare", "s.nc", "a=f.nc", "f.nc"], "NAME=fit.nc, not 'f.nc'"),
        (["compare", "s.nc", "a=f.nc", "a=g.nc"], "two fits are named 'a'"),
        (["run", "x.parquet", "--score", "a", "--count", "b", "--exposure", "c", "--monotone",
          "--prior", "normal", "--out", "p.parquet"], "not for counts in exposures: use --prior"),
    ],
)  # fmt: skip
def test_errors_are_one_line(words, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err.strip()
    assert text in error
    assert error.startswith("soc-pymc: error: ")
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    ["run", "summarize", "fit", "curves", "posteriors", "sql", "check", "compare", "demo"],
)
def test_help_shows_an_example(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"example: soc-pymc {command}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_demo(tmp_path, capsys):
    """A small demo: errors decrease from t to E(theta | t) to E(theta | t, y), and files exist."""
    run("demo", "--out", tmp_path / "demo", "--items", 20_000)
    printed = capsys.readouterr().out
    assert "E(theta | t, y)" in printed
    names = {p.name for p in (tmp_path / "demo").iterdir()}
    assert names == {
        "items.parquet", "posteriors.parquet", "fit.nc", "curves.png", "pit.png", "shrinkage.png",
    }  # fmt: skip
    scored = pq.read_table(tmp_path / "demo" / "posteriors.parquet").to_pandas()
    theta = scored["theta"]
    error = {k: ((scored[k] - theta) ** 2).mean() for k in ("score", "theta_mean")}
    assert error["theta_mean"] < 0.6 * error["score"]
    inside = (scored["theta_q05"] < theta) & (theta < scored["theta_q95"])
    assert 0.88 < inside.mean() < 0.93  # lognormal truth, Gamma prior: not exactly 90%


def test_warnings_are_lines_and_settings_are_restored(small_frame, small_fit, tmp_path, capsys):
    """One line for each warning of any library; the process's settings are unchanged."""

    def shows(*given, **named):
        raise AssertionError("the command's own way of showing warnings is not in force")

    small_fit.save(tmp_path / "fit.nc")
    far = small_frame.head(20).copy()
    far.loc[far.index[:3], "score"] = 1e6
    far.to_csv(tmp_path / "far.csv", index=False)
    words = ["posteriors", "fit.nc", "far.csv", "--out", "scored.parquet", "--quiet"]
    words = [str(tmp_path / w) if "." in w else w for w in words]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = shows
        filters = list(warnings.filters)
        assert main(words) == 0
        assert main(["posteriors", str(tmp_path / "none.nc"), *words[2:]]) == 2
        assert warnings.showwarning is shows
        assert warnings.filters == filters
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("soc-pymc: warning: 3 of 20 items have scores far outside those")
    assert lines[1].startswith("soc-pymc: error: ")
    assert len(lines) == 2


def test_warnings_of_libraries_are_shown_except_for_developers(capsys):
    with _warnings_as_lines():
        warnings.simplefilter("always")
        warnings.warn("overflow\nencountered", RuntimeWarning, stacklevel=1)
        warnings.warn("this will go", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "soc-pymc: warning: RuntimeWarning: overflow encountered\n"
