"""docs/arviz.md: its blocks run, and every call of its table does what the row says."""

import re
import warnings
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "arviz.md").read_text()
ROWS = re.findall(r"^\| `(az\..*?)` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)


def test_the_table_is_found():
    assert len(ROWS) >= 15
    for call, where, shows in ROWS:
        assert {"fit": "fit.data", "check": "result.data"}[where] in call
        assert shows
    called = " ".join(call for call, *_ in ROWS)
    for name in ("loo(", "summary(", "plot_ppc_pit", "plot_ppc_pava", "psense_summary"):
        assert f"az.{name}" in called


@pytest.mark.slow
def test_the_page_runs_without_warnings():
    """Its blocks in order, then each row of the table."""
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # of an engine's own libraries
        for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
            exec(compile(block, "docs/arviz.md", "exec"), names)
        for call, *_ in ROWS:
            assert eval(call, names) is not None, call
            plt.close("all")
    fit, own = names["fit"], names["own"]
    table = names["az"].summary(fit.data)
    assert table["r_hat"].notna().all()
    assert table["r_hat"].max() < 1.05
    assert own.status.converged
    assert "audit_bias" in own.data["posterior"]
    assert set(own.data["log_likelihood"].data_vars) == {"count", "audit", "flat_end"}
    groups = set(re.findall(r"^\| `(\w+)`(?:, `(\w+)`)? \|", PAGE, re.MULTILINE))
    documented = {name for pair in groups for name in pair if name}
    assert set(fit.data.children) <= documented
