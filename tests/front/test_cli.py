"""The command line: each command does what its function does; errors are one line, status 2."""

import argparse
import functools
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc import _report
from soc_pymc.__main__ import main
from soc_pymc.front import commands
from soc_pymc.front.arguments import prior_of
from soc_pymc.front.commands import COMMANDS, make_parser


def run(*words):
    assert main([*map(str, words), "--quiet"]) == 0


def flags(roles):
    return [word for role, name in roles.items() for word in (f"--{role.replace('_', '-')}", name)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def files(example, tmp_path_factory):
    """A folder with items, statistics without and with joint cells, and a fit."""
    folder = tmp_path_factory.mktemp("files")
    gamma, normal = example("gamma"), example("normal")
    gamma.frame.to_parquet(folder / "items.parquet")
    gamma.frame[["score", "exposure"]].to_csv(folder / "scores.csv")
    share = np.linspace(0.1, 0.9, 60)
    labels = pd.DataFrame({"p": share, "y": np.arange(60) % 3 == 0, "n": 1})
    labels.to_csv(folder / "labels.csv", index=False)
    for name, joint in (("plain", False), ("joint", True)):
        stats = soc.summarize(gamma.items, bins=20, joint=joint, progress=False)
        stats.save(folder / f"{name}.nc")
    normal.statistics.save(folder / "values.nc")
    gamma.fit.save(folder / "gamma_fit.nc")
    example("five_steps").fit.save(folder / "steps.nc")  # a single draw is read at once
    return folder


@pytest.fixture(scope="module")
def readers():
    """Readers of saved files that read each of them once: what they return has its own tests."""
    return {name: functools.cache(getattr(soc, name)) for name in ("load_fit", "load_statistics")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gamma", "inverse_gamma"])
def test_chain_from_items_to_check(name, example, folder, capsys):
    """Statistics, curves, posteriors and check are those of the functions."""
    known = example(name)
    known.frame.to_parquet("items.parquet")
    known.frame.head(300).to_parquet("few.parquet")
    few = known.case.items(known.frame.head(300))
    roles = flags(known.items.roles | known.items.options)
    run("summarize", "items.parquet", *roles, "--bins", 20, "--out", "stats.nc")
    assert soc.load_statistics("stats.nc").data.equals(known.statistics.data)
    run("fit", "stats.nc", "--draws", 100, "--seed", 3, "--out", "fit.nc")
    fit = soc.load_fit("fit.nc")
    assert fit.prior == known.case.prior
    assert fit.method == soc.VI(draws=100, seed=3)
    assert fit.status.converged
    run("curves", "fit.nc", "--prob", 0.8, "--out", "curves.csv")
    table = pd.read_csv("curves.csv")
    draws = soc.calibration_curves(fit, table["score"])["mean"]
    expected = np.quantile(draws, [0.1, 0.5, 0.9], axis=(0, 1)).T
    columns = ["mean_lower", "mean_median", "mean_upper"]
    # quantiles are interpolated between draws on the scale of the curve
    np.testing.assert_allclose(table[columns], expected, rtol=1e-3, atol=1e-3)
    run("posteriors", "fit.nc", "few.parquet", "--draws", "all", "--out", "scored.parquet")
    scored = soc.item_posteriors(fit, few, draws="all", progress=False)
    pd.testing.assert_frame_equal(pd.read_parquet("scored.parquet"), scored)
    capsys.readouterr()
    run("check", "fit.nc", "few.parquet", "--by", "kind")
    result = soc.check(fit, few, by="kind", progress=False)
    assert capsys.readouterr().out == f"{result}\n"
    words = ["--prior", name.replace("_", "-"), "--bins", 20]
    run("run", "few.parquet", *roles, *words, "--keep", "kept", "--out", "all.parquet")
    expected = soc.item_posteriors(soc.load_fit("kept/fit.nc"), few, progress=False)
    pd.testing.assert_frame_equal(pd.read_parquet("all.parquet"), expected)


@pytest.mark.slow
def test_one_command_does_what_three_do(example, folder, capsys, monkeypatch):
    """It keeps the joint cells that a prior reads, and ends with the check and its advice.

    The page is made without a further pass over the items, and is that of `soc.report`.
    """
    known = example("normal")
    known.frame.assign(key=np.arange(len(known.frame))).to_parquet("items.parquet")
    words = ["run", "items.parquet", *flags(known.items.roles), "--id", "key", "--seed", 3]
    words += ["--bins", 20, "--prior", "normal-mixture", "--keep", "kept"]
    run(*words, "--out", "scored.parquet")
    said = capsys.readouterr().out.splitlines()
    summary = dict(line.split(maxsplit=1) for line in said)
    assert len(said) < 13
    stats, fit = soc.load_statistics("kept/stats.nc"), soc.load_fit("kept/fit.nc")
    assert stats.has_joint
    assert stats.folds == 10  # by the ids
    assert fit.prior == soc.NormalMixture()
    assert fit.method == soc.VI(seed=3)
    expected = soc.item_posteriors(fit, known.items, progress=False)
    scored = pd.read_parquet("scored.parquet").drop(columns="key")
    pd.testing.assert_frame_equal(scored, expected)
    result = soc.check(fit, known.items, progress=False)
    assert (f"check: {summary['check']}", summary["next"]) == (result.title, result.advice[0])
    assert all((folder / file).exists() for file in summary["files"].split(", "))
    monkeypatch.setattr(_report, "scorer", None)
    words = ["run", "items.parquet", *flags(known.items.roles), "--keep", "auto"]
    assert main([*words, "--out", "auto.parquet", "--page", "page.html"]) == 0
    assert soc.load_fit("auto/fit.nc").prior == soc.Normal()
    told = capsys.readouterr()
    assert "a nat of log likelihood" in told.out
    lines = told.err.splitlines()
    assert all(line.startswith("soc-pymc: ") for line in lines)
    told_of = "reading", "summarized", "fitting soc.Normal() by soc.VI()", "the fit converged"
    assert [sum(text in line for line in lines) for text in told_of] == [1] * len(told_of)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    soc.report(soc.load_fit("auto/fit.nc"), known.items, out="again.html", progress=False)
    texts = [(folder / name).read_text() for name in ("page.html", "again.html")]
    parts = [text.partition('id="check"')[2].partition('id="next"')[0] for text in texts]
    assert parts[0].replace("row, from 0", "index") == parts[1]
    assert told.out.split("check")[1].split("\n")[0].strip() in parts[1]
    with pytest.raises(SystemExit):
        main(["run", "items.parquet"])
    assert "soc-pymc run --help" in capsys.readouterr().err
    assert main(["run", "items.parquet", "--out", "new.parquet"]) == 2
    assert "soc-pymc run --help" in capsys.readouterr().err


@pytest.mark.slow
def test_options_of_summarize(example, folder):
    """Each option is an argument of the items or of `summarize`."""
    numbers = np.arange(1000)
    frame = example("gamma").frame.head(1000).assign(key=numbers - 50, part=numbers % 3)
    frame.to_parquet("items.parquet")
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    for words, columns, folds in (
        (["--group", "kind", "--id", "key", "--folds", 4], {"group": "kind", "id": "key"}, 4),
        (["--fold", "part", "--joint"], {"fold": "part"}, None),
        (["--cluster", "part"], {"cluster": "part"}, None),
    ):
        run("summarize", "items.parquet", *flags(roles), "--bins", 10, "--out", "s.nc", *words)
        items = soc.PoissonItems(frame, **roles, **columns)
        stats = soc.summarize(
            items, bins=10, folds=folds, joint="--joint" in words or "auto", progress=False
        )
        assert soc.load_statistics("s.nc").data.equals(stats.data)
    run("summarize", "items.parquet", *flags(roles), "--edges", "s.nc", "--out", "again.nc")
    np.testing.assert_array_equal(soc.load_statistics("again.nc").edges, stats.edges)


@pytest.mark.slow
def test_curves_of_a_group_and_at_an_exposure(example, folder):
    for name, words, options in (
        ("groups", ["--group", "b"], {"group": "b"}),
        ("exposure", ["--exposure", "4"], {"exposure": 4.0}),
    ):
        example(name).fit.save("fit.nc")
        run("curves", "fit.nc", *words, "--out", "curves.csv")
        table = pd.read_csv("curves.csv")
        draws = soc.calibration_curves(example(name).fit, table["score"], **options)["log_mean"]
        expected = draws.median(("chain", "draw"))
        np.testing.assert_allclose(table["log_mean_median"], expected, rtol=1e-6)
        shared = soc.calibration_curves(example(name).fit, table["score"])["log_mean"]
        assert np.abs(expected - shared.median(("chain", "draw"))).max() > 1e-3


@pytest.mark.slow
def test_posteriors_of_groups_and_of_scores_alone(files, example, folder):
    known = example("groups")
    frame = known.frame.head(300)
    frame.to_parquet("items.parquet")
    expected = soc.item_posteriors(known.fit, known.case.items(frame), progress=False)
    known.fit.save("fit.nc")
    run("posteriors", "fit.nc", "items.parquet", "--out", "scored.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet("scored.parquet"), expected)
    words = ["posteriors", files / "gamma_fit.nc", "items.parquet", "--score-only"]
    run(*words, "--quantiles", 0.2, 0.8, "--out", "alone.parquet")
    alone = soc.PoissonItems(frame, score="score")
    options = {"quantiles": (0.2, 0.8), "progress": False}
    expected = soc.item_posteriors(example("gamma").fit, alone, **options)
    pd.testing.assert_frame_equal(pd.read_parquet("alone.parquet"), expected)


@pytest.mark.slow
def test_items_have_the_truncation_of_a_fit(folder, small_frame):
    """A fit to items of 1 or more says that those of 0 are absent; scores need no such word."""
    listed = small_frame[small_frame["count"] > 0].reset_index(drop=True)
    listed.to_parquet("items.parquet")
    items = soc.PoissonItems(listed, **{x: x for x in ROLES[1::2]}, truncated=True)
    stats = soc.summarize(items, bins=5, progress=False)
    fit = soc.fit(stats, method=soc.VI(draws=100), progress=False)
    fit.save("fit.nc")
    alone = soc.PoissonItems(listed, score="score")
    for words, expected in ([], items), (["--score-only"], alone):
        run("posteriors", "fit.nc", "items.parquet", *words, "--out", "scored.parquet")
        expected = soc.item_posteriors(fit, expected, progress=False)
        pd.testing.assert_frame_equal(pd.read_parquet("scored.parquet"), expected)


@pytest.mark.slow
def test_sql_and_exported_prior_are_those_of_the_functions(files, example, folder, capsys):
    example("five_steps").fit.save("fit.nc")
    words = ["sql", "fit.nc", "--table", "sales.ads", "--count", "clicks"]
    run(*words, "--columns", "key", "day", "--dialect", "postgres", "--prior", "sales.prior")
    options = {"count": "clicks", "columns": ("key", "day"), "dialect": "postgres"}
    options["prior"] = "sales.prior"
    expected = soc.posterior_sql(example("five_steps").fit, "sales.ads", **options)
    assert capsys.readouterr().out == expected + "\n"
    run("export-prior", files / "gamma_fit.nc", "--out", "prior.parquet")
    soc.export_prior(example("gamma").fit, folder / "direct.parquet")
    tables = (pd.read_parquet(f"{name}.parquet") for name in ("prior", "direct"))
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize(
    ("words", "prior"),
    [
        ("fit", soc.Gamma()),
        ("fit --pool-groups", soc.Gamma(groups=False)),
        ("fit --monotone --bin-effects", soc.Gamma(monotone=True, bin_effects=True)),
        ("fit --exposure-term --knots 7", soc.Gamma(*[soc.Spline(knots=7)] * 2, soc.Spline())),
        ("fit --scale rank", soc.Gamma(*[soc.Spline(scale="rank")] * 2)),
        ("fit --prior gamma-mixture --zero", soc.GammaMixture(zero=True)),
        ("run", "auto"),
        ("run --prior auto", "auto"),
        ("run --monotone", soc.Gamma(monotone=True)),
        ("run --prior gamma", soc.Gamma()),
    ],
)
def test_each_option_is_a_field_of_the_prior(words, prior):
    """Unless options describe one, ``run`` chooses the prior."""
    chosen = make_parser().parse_args([*words.split(), "file", "--out", "new"])
    default = "auto" if words.startswith("run") else None
    assert prior_of(chosen, "poisson", grouped=True, default=default) == prior


class Recorded(argparse.Namespace):
    """Options that remember which of them were read."""

    def __getattribute__(self, name):
        super().__getattribute__("__dict__").setdefault("read", set()).add(name)
        return super().__getattribute__(name)


WORDS = {  # of each command, with the fewest options
    "run": "items.parquet --score score --count count --exposure exposure --out new.parquet",
    "summarize": "items.parquet --score score --count count --exposure exposure --out new.nc",
    "fit": "joint.nc --out new.nc",
    "curves": "steps.nc --out new.csv",
    "posteriors": "steps.nc items.parquet --out new.parquet",
    "export-prior": "steps.nc --out new.json",
    "sql": "steps.nc --table ads",
    "check": "steps.nc items.parquet",
    "report": "steps.nc items.parquet --out new.html",
    "compare": "joint.nc a=steps.nc b=steps.nc",
    "drift": "joint.nc --out new.csv",
    "demo": "--out new",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_reads_every_option_that_it_takes(
    command, example, files, readers, monkeypatch, tmp_path
):
    """The functions that it calls are replaced by their results; all show progress but a few."""
    gamma, table = example("gamma"), pd.DataFrame({"value": [1.0]})
    result = soc.quantities.score_at(gamma.fit, 0.05)
    results = {"summarize": gamma.statistics, "fit": gamma.fit, "check": result, "compare": table}
    results |= {"item_posteriors": table, "report": "", "drift": result, "posterior_sql": ""}
    for name, value in results.items():
        replaced = functools.partial(lambda *_, value, **options: value, value=value)
        replaced = functools.update_wrapper(replaced, getattr(soc, name))
        monkeypatch.setattr(soc, name, replaced)
    for name, reader in readers.items():
        monkeypatch.setattr(soc, name, reader)
    monkeypatch.setattr(commands, "run_demo", lambda *_, **options: None)
    monkeypatch.chdir(tmp_path)
    for path in files.iterdir():
        (tmp_path / path.name).symlink_to(path)
    chosen = make_parser().parse_args([command, *WORDS[command].split()], Recorded())
    options = {name for name in vars(chosen) if name not in ("run", "listing", "refuse", "read")}
    chosen.read.clear()
    COMMANDS[command][0](chosen)
    if command in ("curves", "export-prior", "sql"):  # too quick to show any
        options.remove("progress")
    assert options - chosen.read == set()


ROLES = ["--score", "score", "--count", "count", "--exposure", "exposure"]
VALUES = ["--score", "score", "--value", "count", "--noise-sd", "exposure"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["fit", "absent.nc", "--out", "new.nc"], "absent.nc"),
        (["summarize", "items.parquet", "--out", "new.nc"], "--score, --count, --exposure"),
        (["summarize", "items.parquet", *ROLES, "--edges", "plain.nc", "--bins", "5",
          "--out", "new.nc"], "give --edges, or --bins and --equal, not both"),
        (["summarize", "items.parquet", *ROLES, "--bins", "0", "--out", "new.nc"], "--bins 0 must"),
        (["summarize", "none.csv", *ROLES, "--out", "new.nc"], "none.csv"),
        (["summarize", "items.parquet", *ROLES, "--out", "no/s.nc"], "no/s.nc"),
        (["fit", "items.parquet", "--out", "new.nc"], "soc-pymc summarize"),
        (["curves", "plain.nc", "--out", "new.csv"], "soc-pymc fit"),
        (["posteriors", "values.nc", "items.parquet", "--out", "p.parquet"], "soc-pymc fit"),
        (["posteriors", "steps.nc", "scores.csv", "--out", "p.parquet"], "'count' is missing"),
        (["compare", "joint.nc", "a=steps.nc"], "two fits or more"),
        (["demo", "--items", "3"], "1000"),
        (["sql", "absent.nc", "--table", "ads"], "absent.nc"),
        (["compare", "joint.nc", "a=steps.nc", "steps.nc"], "NAME=fit.nc"),
        (["compare", "joint.nc", "a=steps.nc", "a=steps.nc"], "'a'"),
        (["compare", "plain.nc", "a=gamma_fit.nc", "b=gamma_fit.nc"], "joint"),
        (["fit", "values.nc", "--prior", "gamma", "--out", "new.nc"], "--prior normal"),
        (["fit", "values.nc", "--pool-groups", "--out", "new.nc"], "no groups"),
        (["fit", "values.nc", "--knots", "0", "--out", "new.nc"], "--knots 0 must"),
        (["fit", "values.nc", "--window", "7d", "--out", "new.nc"], "with --date a column"),
        (["fit", "plain.nc", "--exposure-term", "--out", "new.nc"], "--joint"),
        (["fit", "plain.nc", "--prior", "auto", "--zero", "--out", "new.nc"], "--prior auto"),
        (["curves", "steps.nc", "--group", "A", "--out", "new.csv"], "no groups"),
        (["curves", "steps.nc", "--exposure", "2", "--out", "new.csv"], "exposure"),
        (["check", "steps.nc", "values.nc", "--by", "a"], "no columns"),
        (["check", "steps.nc", "values.nc", "--cluster", "a"], "--cluster: statistics"),
        (["check", "steps.nc", "values.nc", "--noise-df", "3"], "--noise-df: statistics"),
        (["summarize", "items.parquet", *VALUES, "--truncated", "--out", "new.nc"],
         "--truncated is not for values"),
        (["summarize", "items.parquet", *VALUES, "--noise-df", "0", "--out", "new.nc"],
         "--noise-df 0.0 must be a finite number > 0"),
        (["check", "steps.nc", "joint.nc", "--no-score"], "--no-score: statistics"),
        (["report", "steps.nc", "items.parquet", "--no-score", "--score", "a"],
         "leave out --score"),
        (["run", "items.parquet", *ROLES[:-1], "none", "--out", "p.parquet"], "'none' is missing"),
        (["run", "plain.nc", "items.parquet", *ROLES, "--out", "p.parquet"], "plain.nc"),
        (["run", "items.parquet", *ROLES, "--out", "p.csv"], "--out p.csv must be named *.parquet"),
        (
            ["run", "items.parquet", *ROLES, "--out", "p.parquet", "--page", "page.txt"],
            "--page page.txt must be named *.html",
        ),
        (
            ["run", "items.parquet", *ROLES, "--out", "p.parquet", "--keep", "items.parquet"],
            "--keep items.parquet is a file: name a folder",
        ),
        (["run", "labels.csv", "--score", "p", "--successes", "y", "--trials", "n", "--out",
          "p.parquet"], "every item has one trial (--trials n)"),
    ],
)  # fmt: skip
def test_errors_are_one_line(words, text, files, readers, monkeypatch, capsys):
    monkeypatch.chdir(files)
    for name, reader in readers.items():
        monkeypatch.setattr(soc, name, reader)
    before = set(files.iterdir())
    assert main([*words, "--quiet"]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("soc-pymc: error: ")
    assert text in error
    assert error.endswith(f"; soc-pymc {words[0]} --help-all lists all options")
    assert "\n" not in error
    assert set(files.iterdir()) == before


@pytest.mark.parametrize(
    ("in_python", "in_options"),
    [
        ("by='', or knots=(0.05, 2.0).", "--by '', or --knots 0.05 2.0."),
        ("fit soc.Gamma(exposure=soc.Spline()) on soc.summarize(items, joint=True), or model=m",
         "fit --prior gamma --exposure-term on soc-pymc summarize --joint, or model=m"),
        ("prior=soc.Beta(...): take method=soc.NUTS() or VI(draws=)",
         "--prior beta: take --method nuts or --draws"),
        ("give score=None, or summarize with date= and atoms=False, joint=number",
         "give --no-score, or summarize with --date and --no-atoms, joint=number"),
        ("by=1/a.csv, x/by=1, 'by=1', E(theta | by=1), soc.bands(draws, prob=0.8)",) * 2,
    ],
)  # fmt: skip
def test_arguments_of_python_are_told_as_options(in_python, in_options):
    """Those that no option gives stay, and so do names of files and calls of other functions."""
    assert commands.in_options(in_python, "fit") == in_options


@pytest.mark.slow
def test_a_reader_that_stops_is_no_fault():
    words = [sys.executable, "-m", "soc_pymc", "--version"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_and_has_an_example(command, capsys, monkeypatch):
    """Of 80 columns and 40 lines; the others are shown on request."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as end:
            main([command, flag])
        assert end.value.code == 0
        lines[flag] = capsys.readouterr().out.splitlines()
    assert len(lines["--help"]) <= 40
    assert max(map(len, lines["--help-all"])) <= 80
    assert any(line.startswith(f"example: soc-pymc {command} ") for line in lines["--help"])
    if command in ("run", "summarize", "check"):
        assert any("--cluster" in line for line in lines["--help-all"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "--help"),
        ("frobnicate", "choose from"),
        ("fit s.nc --out f.nc --colour", "--colour; soc-pymc fit --help"),
        ("sql f.nc --table ads --no-score", "--no-score; soc-pymc sql --help"),
    ],
)
def test_unknown_words_are_one_line_after_the_usage(words, text, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    last = capsys.readouterr().err.splitlines()[-1]
    assert (end.value.code, last.startswith("soc-pymc: error: "), text in last) == (2, True, True)


def test_warnings_are_lines_and_settings_are_restored(files, small_frame, folder, capsys):
    small_frame.head(20).assign(score=1e6).to_csv("far.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown, filters = warnings.showwarning, list(warnings.filters)
        run("posteriors", files / "steps.nc", "far.csv", "--out", "scored.parquet")
        assert warnings.showwarning is shown
        assert warnings.filters == filters
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("soc-pymc: warning: 20 of 20 items")


@pytest.mark.filterwarnings("always")
def test_a_warning_is_shown_once_in_a_command(files, folder, capsys, monkeypatch):
    def load_with_warnings(path, load=soc.load_fit):
        for text in ("twice", "once", "twice"):
            warnings.warn(text, soc.ItemsWarning, stacklevel=1)
        return load(path)

    monkeypatch.setattr(soc, "load_fit", load_with_warnings)
    run("curves", files / "steps.nc", "--out", "curves.csv")
    lines = [f"soc-pymc: warning: {text}" for text in ("twice", "once")]
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.slow
def test_demo(folder, capsys):
    """The check passes after its advice is followed, and errors fall from t to E(theta | t, y).

    Of 8,000 items the share of 90% intervals that hold the truth has a standard error of 0.3%.
    """
    assert main(["demo", "--out", "demo", "--items", "8000"]) == 0
    printed = capsys.readouterr().out
    _, after = printed.split("a mixture of Gammas:")
    assert " 0 fail>" in after
    assert "elpd_diff" in after
    assert printed.count("\n- ", printed.index("What you gain:")) == 3
    names = {"demo.png", "fit.nc", "items.parquet", "posteriors.parquet"}
    assert names == {path.name for path in (folder / "demo").iterdir()}
    scored = pd.read_parquet("demo/posteriors.parquet")
    error = {name: ((scored[name] - scored["theta"]) ** 2).mean() for name in scored}
    assert error["theta_mean"] < 0.7 * error["score"]
    assert 0.88 < scored["theta"].between(scored["theta_q05"], scored["theta_q95"]).mean() < 0.93
