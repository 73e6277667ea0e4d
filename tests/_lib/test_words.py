"""Words for people: numbers, verdicts and advice, in their rarer forms."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc._lib.reprs import of_items
from soc_pymc.checks import findings
from soc_pymc.paper import datasets
from soc_pymc.posterior.predictive import posterior_of
from soc_pymc.report import formats

QUIET = {"progress": False}


def test_numbers_in_reports():
    assert formats.number(3e-9, digits=1) == "3e−9"
    assert formats.number(np.inf) == "infinite"
    shown = [formats.number(x) for x in (0.012345, 1234567.0, -2.5, 3e-9, np.nan)]
    assert shown == ["0.0123", "1,234,567", "−2.50", "3e−9", "not known"]
    assert [formats.exact(x) for x in (0.05, 1000.0, -1.5)] == ["0.05", "1,000", "−1.5"]
    shown = [formats.percent(x) for x in (0.5, 0.98765, 0.0123, 0.0, 1e-5)]
    assert shown == ["50%", "98.8%", "1.23%", "0%", "less than 0.01%"]
    assert formats.counted(2000, "item") == "2,000 items"
    assert formats.counted(2, "is", "are") == "2 are"
    assert formats.central(np.arange(101.0)) == pytest.approx((5, 50, 95))
    assert formats.clean("a" + chr(0x202E) + "b") == "a" + chr(0xFFFD) + "b"
    assert formats.percent(np.nan) == "not known"
    assert formats.percent(np.inf) == "not known"
    label = formats.Label("x" * 1000).__html__()
    assert label.startswith("<bdi>" + "x" * 20)
    assert "(1,000 characters)" in label


def test_p_values():
    shown = [findings._p(p) for p in (np.nan, 1e-13, 0.5, 0.01, 0.0)]
    assert shown == ["-", "< 1e-12", "0.50", "0.01", "< 1e-12"]


def test_sources_of_items():
    roles = {"score": "t", "count": "y", "exposure": "N"}
    sources = {
        "a.parquet": "a.parquet",
        ("a.parquet", "b.parquet"): "2 files, a.parquet first",
        (): "no files",
    }
    for source, shown in sources.items():
        assert of_items(soc.PoissonItems(source, **roles))[0] == ("source", shown)


@pytest.fixture(scope="module")
def fit():
    frame = soc.simulation.s1(600, seed=2)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=8, **QUIET)
    return soc.fit(stats, method=soc.FiveSteps(), **QUIET)


def _failed(check, statistic):
    columns = {"check": [check], "slice": ["all items"], "statistic": [statistic]}
    return pd.DataFrame(columns | {"p_value": [1e-9], "verdict": ["fail"]})


@pytest.mark.parametrize(
    ("check", "statistic", "expected"),
    [
        ("zero counts", 1.3, "more zero counts than the model says (1.3 times)"),
        ("zero counts", 0.7, "fewer zero counts than the model says (0.7 times)"),
        ("dispersion", 1.3, "Counts scatter more than the model says (1.3 times)"),
        ("dispersion", 0.7, "Counts scatter less than the model says (0.7 times)"),
    ],
)
def test_advice_on_summaries(fit, check, statistic, expected):
    outcome = posterior_of(fit).outcome
    (text,) = findings._summary_advice(_failed(check, statistic), fit, outcome, True)
    assert expected in text
    assert ("two kinds of items" in text) == (check == "zero counts" and statistic > 1)


def test_advice_on_doubts_about_the_noise(fit):
    table = _failed("noise", 1.5).assign(p_value=np.nan)
    found = list(findings.advise(table, fit, posterior_of(fit).outcome, 100, ()))
    assert found[0].startswith("These counts look like successes in trials")
    assert "1.50 times as wide" in found[0]


def test_advice_on_large_samples():
    small = _failed("PIT", 0.001)
    (text,) = findings._size_of_sample(small, 200_000)
    assert text.startswith("With 200,000 items the smallest departures show")
    assert list(findings._size_of_sample(small, 1000)) == []
    assert list(findings._size_of_sample(_failed("PIT", 0.2), 200_000)) == []


@pytest.mark.parametrize(
    ("system", "variables", "end"),
    [
        ("win32", {"LOCALAPPDATA": "/data"}, "/data/soc_pymc/Cache"),
        ("win32", {}, "AppData/Local/soc_pymc/Cache"),
        ("darwin", {}, "Library/Caches/soc_pymc"),
        ("linux", {"XDG_CACHE_HOME": "/cache"}, "/cache/soc_pymc"),
        ("linux", {}, ".cache/soc_pymc"),
    ],
)
def test_folders_of_caches(system, variables, end, monkeypatch):
    for name in ("LOCALAPPDATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(datasets.sys, "platform", system)
    assert soc.datasets.cache_folder().as_posix().endswith(end)
