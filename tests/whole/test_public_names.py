"""The public surface: every name is there, documented, typed, and light to import."""

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import cloudpickle
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.checks._drift import Drift
from soc_pymc.fits import with_draws

ROOT = Path(__file__).parents[2]
MODULES = [name for name in soc.__all__ if isinstance(getattr(soc, name), types.ModuleType)]
PUBLIC = [f"soc.{name}" for name in soc.__all__ if name not in MODULES]
PUBLIC += [f"soc.{name}.{part}" for name in MODULES for part in getattr(soc, name).__all__]


def value_of(path):
    value = soc
    for name in path.split(".")[1:]:
        value = getattr(value, name)
    return value


def modules():
    """Returns every module of the package, imported."""
    names = [module.name for module in pkgutil.walk_packages(soc.__path__, "soc_pymc.")]
    return [importlib.import_module(name) for name in names]


def test_names_survive_the_import_of_every_module():
    """A submodule with a function's name would replace the function when it is imported."""
    before = {path: value_of(path) for path in PUBLIC}
    assert type(soc) is types.ModuleType
    assert modules()
    assert all(value_of(path) is value for path, value in before.items())
    with pytest.raises(AttributeError, match="nonsense"):
        _ = soc.nonsense


@pytest.mark.parametrize("path", PUBLIC)
def test_every_name_is_documented_with_an_example_and_typed(path):
    value = value_of(path)
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception | Warning)):
        return  # a constant, or an error
    assert ">>> " in (inspect.getdoc(value) or "")
    signature = inspect.signature(value)
    bare = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
    assert bare == []


# results by the name of their class, made from two examples and a folder
RESULTS = {
    "Fit": lambda gamma, groups, folder: gamma.fit,
    "Statistics": lambda gamma, groups, folder: gamma.statistics,
    "Grouping": lambda gamma, groups, folder: groups.statistics.groupings[0],
    "PoissonItems": lambda gamma, groups, folder: gamma.items,
    "Split": lambda gamma, groups, folder: soc.evaluate.split_items(gamma.items),
    "CheckResult": lambda gamma, groups, folder: soc.check(gamma.fit, gamma.items, subset=50),
    "Result": lambda gamma, groups, folder: soc.quantities.score_at(gamma.fit, 0.05),
    "Drift": lambda gamma, groups, folder: Drift(pd.DataFrame(), None, fit=gamma.fit),
    "PriorTable": lambda gamma, groups, folder: soc.prior_table.load(
        soc.export_prior(gamma.fit, folder / "prior.json")
    ),
    "CalibrationDisplay": lambda gamma, groups, folder: (
        soc.plots.CalibrationDisplay.from_predictions([0, 1, 1, 0], [0.1, 0.2, 0.3, 0.4])
    ),
    "SecondOrderCalibrator": lambda gamma, groups, folder: soc.SecondOrderCalibrator(),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_equal_to_itself_alone(name, example, tmp_path):
    """Arrays and trees of draws are not compared, and a result is a key of a dictionary."""
    result = RESULTS[name](example("gamma"), example("groups"), tmp_path)
    assert type(result).__name__ == name
    others = [copy.copy(result)]
    if name == "Fit":
        posterior = 1.1 * result.data["posterior"].to_dataset()
        others.append(with_draws(result, posterior))
    assert all(other != result for other in others)
    assert result == result
    assert {result: "first", **dict.fromkeys(others, "other")}[result] == "first"


def test_records_that_are_compared_have_plain_fields():
    """Comparing arrays field by field is ambiguous, and their records have no hash."""
    held = re.compile("^(?!.*Callable).*(ndarray|xarray|pandas|Mapping|Sequence|dict|list)")
    records = {c for m in modules() for c in vars(m).values() if dataclasses.is_dataclass(c)}
    compared = [c for c in records if isinstance(c, type) and c.__dataclass_params__.eq]
    assert soc.Status in compared
    wrong = [
        f"{record.__name__}.{field.name}"
        for record in compared
        for field in dataclasses.fields(record)
        if held.match(str(field.type))
    ]
    assert wrong == []


WORKERS = """
from joblib import Parallel, delayed
import soc_pymc as soc

def fitted(seed):
    table = soc.simulation.s1(400, seed)
    items = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=20, progress=False)
    return soc.fit(stats, method=soc.FiveSteps(), progress=False).status.converged

print(Parallel(n_jobs=2, backend="loky")(delayed(fitted)(seed) for seed in range(2)))
"""


def test_a_function_that_names_the_package_is_sent_by_value():
    assert pickle.loads(cloudpickle.dumps(lambda: soc.fit))() is soc.fit


@pytest.mark.slow
def test_workers_run_functions_of_a_script(tmp_path):
    """As joblib, Dask, Ray and Spark send them: by value, with the package that they refer to."""
    script = tmp_path / "script.py"
    script.write_text(WORKERS)
    process = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert process.stdout.strip() == "[True, True]", process.stderr


USER = """
from typing import assert_type
import soc_pymc as soc
import soc_pymc.quantities

items = soc.PoissonItems("ads.csv", score="t", count="y", exposure="N")
stats = soc.summarize(items, bins=20)
fit = soc.fit(stats, soc.Gamma(mean=soc.Spline(knots=9)), soc.VI(seed=1))
assert_type(stats, soc.Statistics)
assert_type(fit, soc.Fit)
assert_type(fit.status.pareto_k, float | None)
"""
WRONG = ["soc.fit(items)", 'soc.Spline(knots="many")', "soc.NoSuchName"]


@pytest.mark.slow
def test_a_strict_type_checker_knows_every_public_name(tmp_path):
    """In a user's file, where it also refuses what is wrong."""
    script = tmp_path / "script.py"
    # the package is named by its folder, so that nothing else of the checkout is read, and without
    # the libraries beneath, which take longer than the package
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    options.append("--no-site-packages")

    def errors(lines):
        script.write_text(USER + "\n".join(lines) + "\n")
        command = [sys.executable, "-m", "mypy", *options, str(script)]
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"MYPYPATH": str(ROOT), "PATH": ""},
            check=False,
        )
        return [line for line in process.stdout.splitlines() if "script.py" in line]

    wrong = [line for line in errors([*PUBLIC, *WRONG]) if "error" in line]
    assert len(wrong) == len(WRONG), wrong


LIGHT = """
import logging, sys, warnings
filters = list(warnings.filters)
import soc_pymc
same = warnings.filters == filters
import soc_pymc.posterior.scoring, soc_pymc.data.statistics
slow = {"pymc", "arviz", "matplotlib", "sklearn", "ibis", "duckdb"}
heavy = sorted(slow & set(sys.modules))
handlers = [type(h).__name__ for h in logging.getLogger("soc_pymc").handlers]
print(heavy, handlers, logging.root.handlers, same)
"""


def test_importing_is_light_and_configures_nothing():
    process = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert process.stdout.strip() == "[] [] [] True", process.stderr


SMALL = """
import sys
import numpy as np
import soc_pymc as soc
from soc_pymc.__main__ import main
table = soc.simulation.s1(2000, seed=0)
table.to_csv("items.csv")
columns = ["--score", "score", "--count", "count", "--exposure", "exposure"]
main(["run", "items.csv", *columns, "--out", "posteriors.parquet", "--keep", "kept", "--quiet"])
fit = soc.load_fit("kept/fit.nc")
items = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
str(soc.check(fit, items, progress=False))
rng = np.random.default_rng(1)
table["sd"], table["trials"] = 0.1, 20
table["value"] = rng.normal(table["score"], 0.2)
table["wins"] = rng.binomial(20, rng.beta(9 * table["score"], 9 * (1 - table["score"])))
for items in (
    soc.NormalItems(table, score="score", value="value", noise_sd="sd"),
    soc.BinomialItems(table, score="score", successes="wins", trials="trials"),
):
    fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    soc.item_posteriors(fit, items, progress=False)
    soc.check(fit, items, progress=False)
slow = {"numba", "pymc", "pytensor", "arviz_base", "arviz_stats", "ibis", "sklearn"}
print("loaded", sorted((slow | {"rich"}) & set(sys.modules)))
"""


@pytest.mark.slow
def test_small_tables_need_no_compiler_and_no_engine(tmp_path):
    """Each of these libraries takes longer to import, or to compile, than the work itself.

    The picture that `--keep` adds needs Matplotlib.
    """
    command = [sys.executable, "-c", SMALL]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert process.stdout.splitlines()[-1:] == ["loaded []"], process.stdout + process.stderr


def test_nothing_is_printed(small_items, capfd):
    stats = soc.summarize(small_items, bins=20, progress=False)
    soc.fit(stats, method=soc.FiveSteps(), progress=False)
    assert capfd.readouterr() == ("", "")


def test_results_describe_themselves(small_fit, small_statistics, small_items):
    assert "4,000" in repr(small_statistics)
    assert "converged" in repr(small_fit)
    assert repr(small_items).startswith("PoissonItems(<DataFrame>, score='score'")
    for result in (small_fit, small_fit.status, small_statistics):
        html = result._repr_html_()
        assert html.count("<tr>") == html.count("</tr>") > 3
