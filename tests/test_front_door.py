"""The front door: names, lazy loading, import time, and the README's first code block."""

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import soc_pymc as soc

ROOT = Path(__file__).parent.parent


def test_names_survive_every_submodule():
    """A submodule of the same name would replace a function when it is imported."""
    for module in pkgutil.walk_packages(soc.__path__, "soc_pymc."):
        importlib.import_module(module.name)
    for name in soc.__all__:
        value = getattr(soc, name)
        assert getattr(soc, name) is value
        if name not in ("evaluate", "plots", "simulation"):
            assert callable(value), name
            assert value.__doc__, name
    assert set(soc.__all__) <= set(dir(soc))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = soc.nonsense


def test_import_is_light():
    """Nothing heavy is loaded by the import itself, nor by what scoring needs."""
    code = (
        "import sys, soc_pymc, soc_pymc.posteriors, soc_pymc.statistics;"
        "print([m for m in ('pymc', 'arviz', 'matplotlib', 'ibis', 'duckdb') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def _readme_code():
    text = (ROOT / "README.md").read_text()
    return re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "path"])
def test_readme_example_on_every_kind_of_table(kind, tmp_path, monkeypatch):
    """The README's first block as written, on a Parquet path; `ads` replaced for tables."""
    import polars as pl

    frame = soc.simulation.s1(3000, seed=1).rename(
        columns={"score": "t", "count": "clicks", "exposure": "impressions"}
    )
    frame = frame[["t", "clicks", "impressions"]]
    frame.to_parquet(tmp_path / "ads.parquet")
    monkeypatch.chdir(tmp_path)
    code = _readme_code()
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
