"""The recipe of the documentation that makes a prior table a model of MLflow's."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def recipe():
    """The block of code."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if "mlflow" in block)


def test_it_is_short():
    assert len(recipe().splitlines()) <= 40


def test_it_scores_as_the_table_does(small_fit, small_frame, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.chdir(tmp_path)
    # files do for a test, where MLflow has no database
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    path = soc.export_prior(small_fit, tmp_path / "prior.json")
    space = {"__name__": "__main__"}  # so that the class is saved with the model
    exec(compile(recipe(), str(PAGE), "exec"), space)
    logged = space["log_prior"](path)
    names = {"score": "score", "count": "outcome", "exposure": "size"}
    frame = pd.DataFrame(small_frame[list(names)].rename(columns=names).head(20))
    found = mlflow.pyfunc.load_model(logged.model_uri).predict(frame)
    given = {name: frame[name].to_numpy() for name in frame}
    want = soc.prior_table.score(soc.prior_table.load(path), **given)
    np.testing.assert_allclose(found["mean"], want["mean"])
