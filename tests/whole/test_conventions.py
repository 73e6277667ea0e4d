"""Conventions of the field: ArviZ reads fits, names are documented and typed, logs are quiet."""

import dataclasses
import inspect
import logging
import os
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import xarray as xr

import soc_pymc as soc
from tests.thinning import thinned

ROOT = Path(__file__).parents[2]


# --- documentation: every public name ------------------------------------------------------------


def _public() -> Iterator[tuple[str, object]]:
    """Public functions and classes by dotted name, and public methods of the classes."""
    for name in soc.__all__:
        value = getattr(soc, name)
        inside = value.__all__ if isinstance(value, types.ModuleType) else [""]
        for part in inside:
            found = getattr(value, part) if part else value
            path = f"soc.{name}.{part}".rstrip(".")
            if not callable(found):
                continue  # constants
            yield path, found
            if isinstance(found, type):
                yield from _members(path, found)


def _members(path: str, cls: type) -> Iterator[tuple[str, object]]:
    for base in cls.__mro__:
        if base.__module__.startswith("soc_pymc"):
            for name, value in vars(base).items():
                if not name.startswith("_") and isinstance(
                    value, types.FunctionType | property | classmethod | staticmethod
                ):
                    yield f"{path}.{name}", getattr(value, "__func__", value)


PUBLIC = dict(_public())


def _section(doc: str, name: str) -> str:
    """Text under a numpydoc heading, empty where there is none."""
    found = re.search(rf"^{name}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def _documented(section: str) -> set[str]:
    """Names that head the entries of a section."""
    heads = re.findall(r"^(\*{0,2}\w[^\n]*)$", section, re.MULTILINE)
    return {part.strip("* ") for head in heads for part in head.split(" : ")[0].split(",")}


def _faults(value: object) -> list[str]:
    doc = inspect.getdoc(value) or ""
    if isinstance(value, property):
        return [] if doc and value.fget.__doc__ else ["no docstring"]
    own = value.__doc__ or ""
    if not own or own.startswith(f"{getattr(value, '__name__', '')}("):  # a dataclass's own
        return ["no docstring"]
    faults = [] if ">>> " in _section(doc, "Examples") else ["no example"]
    if isinstance(value, type):
        named = _documented(_section(doc, "Parameters")) | _documented(_section(doc, "Attributes"))
        if dataclasses.is_dataclass(value):
            fields = {f.name for f in dataclasses.fields(value) if not f.name.startswith("_")}
            faults += [f"{name} not documented" for name in sorted(fields - named)]
        return faults
    signature = inspect.signature(value)
    parameters = set(signature.parameters) - {"self", "cls"}
    named = _documented(_section(doc, "Parameters"))
    faults += [f"{name} not documented" for name in sorted(parameters - named)]
    if str(signature.return_annotation) not in ("None", "<class 'NoneType'>"):
        faults += [] if _section(doc, "Returns") or _section(doc, "Yields") else ["no Returns"]
    return faults


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_with_an_example(name):
    """Sections by numpydoc: parameters, what is returned, and an example that doctest runs."""
    assert _faults(PUBLIC[name]) == []


def test_the_walk_finds_faults():
    def half(a, b):
        """Half.

        Parameters
        ----------
        a
            A number.
        """

    assert _faults(half) == ["no example", "b not documented", "no Returns"]
    assert "soc.Statistics.of_group" in PUBLIC
    assert "soc.SecondOrderCalibrator.predict" in PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_typed(name):
    """Every parameter and every result of functions and methods has its type."""
    value = PUBLIC[name]
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, type):
        value = value.__init__
        if not isinstance(value, types.FunctionType):
            return  # an exception's
    found = inspect.signature(value)
    bare = [
        p.name
        for p in found.parameters.values()
        if p.annotation is p.empty and p.name not in ("self", "cls")
    ]
    assert bare == []
    assert found.return_annotation is not found.empty


def test_dir_shows_public_names_alone():
    shown = [name for name in dir(soc) if not name.startswith("__")]
    assert shown == sorted(soc.__all__)
    assert "__version__" in dir(soc)


# --- types ---------------------------------------------------------------------------------------

USER = """
from typing import assert_type
import pandas as pd
import soc_pymc as soc

items = soc.PoissonItems(pd.DataFrame(), score="t", count="y", exposure="N")
stats = soc.summarize(items, bins=20)
assert_type(stats, soc.Statistics)
fit = soc.fit(stats, soc.Gamma(mean=soc.Spline(knots=9)), soc.VI(seed=1))
assert_type(fit, soc.Fit)
assert_type(fit.status.pareto_k, float | None)
low: float = soc.bands(soc.calibration_curves(fit))["mean"].min().item()
calibrator = soc.SecondOrderCalibrator(soc.Gamma()).fit([0.1, 0.2], [0, 1], exposure=[3.0, 4.0])
print(calibrator.predict([0.1]).shape, soc.check(fit, items).table)
"""
WRONG = """
soc.fit(items)
soc.Spline(knots="many")
calibrator.predict_interval([0.1], probability=0.9)
soc.NoSuchName
"""


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "soc_pymc" / "py.typed").exists()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["soc_pymc"]


@pytest.mark.slow
def test_a_strict_type_checker_takes_a_users_script(tmp_path):
    """And refuses what is wrong in it."""
    script = tmp_path / "script.py"
    where = {**os.environ, "MYPYPATH": str(ROOT)}
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, str(script)]

    def errors(code):
        script.write_text(code)
        run = subprocess.run(command, capture_output=True, text=True, env=where, cwd=tmp_path)
        return [line for line in run.stdout.splitlines() if "script.py" in line and "error" in line]

    assert errors(USER) == []
    found = errors(USER + WRONG)
    assert len(found) == 4, found
    assert {re.search(r"\[([\w-]+)\]$", line)[1] for line in found} == {
        "arg-type",
        "attr-defined",
        "call-arg",
    }


# --- ArviZ ---------------------------------------------------------------------------------------


def _scales(fit):
    """Two variables without dims of their own."""
    posterior = fit.data["posterior"]
    return [name for name in posterior.data_vars if posterior[name].dims == ("chain", "draw")][:2]


def _takes(fit, path):
    """What ArviZ's functions do with a fit."""
    import arviz as az
    from matplotlib import pyplot as plt

    names = _scales(fit)
    assert len(names) == 2
    table = az.summary(fit.data, var_names=names)
    assert list(table.index) == names
    draws = fit.data["posterior"][names[0]]
    assert float(table["mean"].iloc[0]) == pytest.approx(draws.mean().item(), rel=0.05)
    total = draws.size
    ess = az.ess(fit.data, var_names=names)
    assert 0.05 * total < float(ess[names[0]]) < 3 * total
    for draw in (az.plot_trace, az.plot_trace_dist, az.plot_forest, az.plot_dist, az.plot_pair):
        collection = draw(fit.data, var_names=names, backend="matplotlib")
        assert plt.get_fignums(), draw
        assert collection is not None
        plt.close("all")
    fit.data.to_netcdf(path / "data.nc")
    with xr.open_datatree(path / "data.nc") as again:
        assert again.load().identical(fit.data)
        assert list(az.summary(again, var_names=names).index) == names


@pytest.mark.slow
def test_arviz_takes_a_variational_fit(small_fit, tmp_path):
    _takes(small_fit, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")  # few draws will do here
def test_arviz_takes_chains(small_statistics, tmp_path):
    """Two chains: R-hat too."""
    import arviz as az

    method = soc.NUTS(draws=300, tune=500, chains=2)
    fit = soc.fit(small_statistics, method=method, progress=False)
    _takes(fit, tmp_path)
    rhat = az.rhat(fit.data, var_names=_scales(fit))
    assert all(float(rhat[name]) < 1.1 for name in _scales(fit))


@pytest.mark.parametrize(
    "prior", thinned([None, soc.GammaMixture()], [None]), ids=["gamma", "mixture"]
)
def test_one_draw_is_kept_as_it_is(prior, small_items, tmp_path):
    """Five steps: what one draw has no use for is left out of it, and the file holds the rest."""
    stats = soc.summarize(small_items, bins=20, joint=True, progress=False)
    fit = soc.fit(stats, prior, soc.FiveSteps(), progress=False)
    fit.data.to_netcdf(tmp_path / "data.nc")
    with xr.open_datatree(tmp_path / "data.nc") as again:
        assert again.load().identical(fit.data)


# --- what results say of themselves --------------------------------------------------------------


def test_results_describe_themselves(small_fit, small_statistics, small_items):
    text = repr(small_fit)
    assert text.startswith("<soc_pymc.Fit: Gamma by VI, converged: Pareto k")
    assert "\n  items    4,000 in " in text
    assert "method   VI(seed=1)" in text
    assert repr(small_statistics).startswith("<soc_pymc.Statistics: 4,000 items in 20 bins, ")
    for shown in (small_fit, small_fit.status, small_statistics, small_items):
        html = shown._repr_html_()
        assert html.startswith("<div><strong>")
        assert html.count("<tr>") == html.count("</tr>") > 3
    assert "<td>4,000</td>" in small_statistics._repr_html_()
    assert "NOT" not in text
    failed = dataclasses.replace(small_fit.status, converged=False, reason="Pareto k 0.9")
    assert "NOT converged: Pareto k 0.9" in repr(dataclasses.replace(small_fit, status=failed))


def test_html_is_escaped():
    items = soc.PoissonItems("<i>.parquet", score="<b>t", count="y", exposure="N")
    html = items._repr_html_()
    assert "<b>" not in html
    assert "<i>" not in html
    assert "&lt;b&gt;t" in html


# --- logging -------------------------------------------------------------------------------------


def test_logs_say_what_was_done_and_nothing_is_printed(small_items, caplog, capfd):
    with caplog.at_level(logging.INFO, "soc_pymc"):
        stats = soc.summarize(small_items, bins=20, progress=False)
        soc.fit(stats, method=soc.FiveSteps(), progress=False)
    said = [r.getMessage() for r in caplog.records if r.name.startswith("soc_pymc")]
    assert any("4000 items in 20 bins" in line for line in said)
    assert any(line.startswith("fitting Gamma(") for line in said)
    assert any(line.startswith("the fit converged after") for line in said)
    assert capfd.readouterr() == ("", "")


def test_importing_configures_nothing():
    """Only a handler that does nothing, on the package's own logger."""
    code = (
        "import logging, warnings; before = list(warnings.filters); import soc_pymc;"
        "own = logging.getLogger('soc_pymc'); assert not logging.root.handlers;"
        "assert [type(h).__name__ for h in own.handlers] == ['NullHandler'];"
        "assert own.level == 0; assert warnings.filters == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_printed_but_by_the_command_line():
    for path in (ROOT / "soc_pymc").rglob("*.py"):
        if path.parent.name == "front":
            continue
        code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
        assert not re.search(r"^\s*print\(", code, re.MULTILINE), path
