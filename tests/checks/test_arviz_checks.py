"""Results of checks as ArviZ takes them."""

from pathlib import Path

import arviz as az
import matplotlib as mpl
import numpy as np
import pytest

import soc_pymc as soc

mpl.use("agg")


@pytest.mark.slow
def test_mixtures_are_taken_too(example):
    case = example("gamma_mixture")
    result = soc.check(case.fit, case.items, subset=200, progress=False)
    assert {"LOO-PIT", "leave-one-out"} <= set(result.table["what"])
    assert np.isfinite(float(az.loo(result.data).elpd))
    assert len(az.compare({"a": result.data, "b": result.data})) == 2


@pytest.mark.slow
def test_the_page_on_checks_runs():
    """Every block of docs/dev/checks.md, in order; each call does what the page says."""
    page = (Path(__file__).parents[2] / "docs" / "dev" / "checks.md").read_text()
    names = {}
    for block in page.split("```python\n")[1:]:
        exec(compile(block.split("```")[0], "docs/dev/checks.md", "exec"), names)
    result = names["result"]
    assert result.data["pit_values"].sizes["item"] == 1000
    assert {"device = phone", "device = desk"} <= set(result.table["where"])
