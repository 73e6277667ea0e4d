"""The front door: names, lazy loading, import time, and the README's first code block."""

import importlib
import inspect
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import soc_pymc as soc
from soc_pymc.front.commands import make_parser
from tests.thinning import thinned

ROOT = Path(__file__).parents[2]


def test_names_survive_every_submodule():
    """A submodule of the same name would replace a function when it is imported."""
    for module in pkgutil.walk_packages(soc.__path__, "soc_pymc."):
        importlib.import_module(module.name)
    for name in soc.__all__:
        value = getattr(soc, name)
        assert getattr(soc, name) is value
        if name not in soc._DOORS:
            assert callable(value), name
            assert value.__doc__, name
    assert set(soc.__all__) <= set(dir(soc))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = soc.nonsense


def test_every_name_is_explained():
    """The package's docstring lists it, and its own docstring has an example (doctest runs it)."""
    for name in soc.__all__:
        assert f"`{name}`" in soc.__doc__, name
        value = getattr(soc, name)
        if isinstance(value, type) and issubclass(value, Exception):
            continue
        for shown in [value] if callable(value) else [getattr(value, n) for n in value.__all__]:
            assert "\n>>> " in inspect.getdoc(shown), shown


def test_import_is_light():
    """Nothing heavy is loaded by the import itself, nor by what scoring needs."""
    code = (
        "import sys, soc_pymc, soc_pymc.posterior.items, soc_pymc.data.statistics;"
        "print([m for m in ('pymc', 'arviz', 'matplotlib', 'ibis', 'duckdb') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def _blocks(name, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


@pytest.mark.parametrize("kind", thinned(["pandas", "polars", "arrow", "path"], ["path"]))
def test_readme_example_on_every_kind_of_table(kind, tmp_path, monkeypatch):
    """The README's first block as written, on a Parquet path; `ads` replaced for tables."""
    import polars as pl

    frame = soc.simulation.s1(3000, seed=1).rename(
        columns={"score": "t", "count": "clicks", "exposure": "impressions"}
    )
    frame = frame[["t", "clicks", "impressions"]]
    frame.to_parquet(tmp_path / "ads.parquet")
    monkeypatch.chdir(tmp_path)
    code, *_ = _blocks("README.md", "python")
    source = {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "arrow": pa.Table.from_pandas(frame),
        "path": None,
    }[kind]
    names = {"ads": source}
    if source is not None:
        code = code.replace('"ads.parquet"', "ads")
    exec(code, names)
    assert names["fit"].status.converged
    expected = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(kind, pa.Table)
    assert isinstance(names["post"], expected)
    assert isinstance(names["result"], soc.CheckResult)
    assert names["curves"]["mean"].dims == ("chain", "draw", "score")


@pytest.fixture
def documented(tmp_path, monkeypatch):
    """The files that the documents name, and names that a block takes from those before it."""
    ads = soc.simulation.s1(3000, seed=1).rename(
        columns={"score": "t", "count": "clicks", "exposure": "impressions"}
    )
    country = np.where(np.arange(3000) % 3 > 0, "DE", "FR")
    ads = ads.assign(country=country, device=np.where(np.arange(3000) % 5 > 1, "phone", "desk"))
    ads.to_parquet(tmp_path / "ads.parquet")
    rng = np.random.default_rng(0)
    effects = pd.DataFrame({"t": rng.normal(size=2000), "se": rng.uniform(0.3, 1.0, 2000)})
    sd = np.sqrt(0.25 + effects["se"] ** 2)
    effects.assign(effect=rng.normal(effects["t"], sd)).to_parquet(tmp_path / "effects.parquet")
    players = pd.DataFrame({"p": rng.uniform(0.2, 0.35, 500), "at_bats": rng.integers(9, 600, 500)})
    players["hits"] = rng.binomial(players["at_bats"], players["p"])
    players.to_parquet(tmp_path / "players.parquet")
    monkeypatch.chdir(tmp_path)
    items = soc.PoissonItems("ads.parquet", score="t", count="clicks", exposure="impressions")
    return {"soc": soc, "items": items}


@pytest.mark.slow
def test_page_on_choices(documented):
    """Its blocks run in turn as they are written."""
    for code in _blocks("docs/choose.md", "python"):
        exec(code, documented)
    assert set(documented["table"].index) == {"gamma", "exposure", "mixture"}
    assert documented["effects_fit"].prior == soc.Normal()
    assert documented["players_fit"].prior == soc.Beta()
    assert "p_zero" in documented["scored"].column_names


@pytest.mark.slow
def test_page_on_priors(documented):
    for code in _blocks("docs/dev/priors.md", "python"):
        exec(code, documented)
    assert documented["fit"].groups == ("DE", "FR")


@pytest.mark.slow
def test_days_of_the_page_on_scale():
    [code] = [c for c in _blocks("docs/scale.md", "python") if "soc.drift(" in c]
    names = {}
    exec(code, names)
    assert names["found"].alarms[0] == "2026-03-21"  # the day on which counts rise by 30%
    assert names["month"].n_items == 112_000


@pytest.mark.parametrize("name", ["README.md", "docs/choose.md", "docs/dev/priors.md"])
def test_command_lines_of_documents_are_understood(name):
    lines = [line for block in _blocks(name, "sh") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("soc-pymc ")]
    assert commands
    for words in commands:
        assert callable(make_parser().parse_args(words).run)
