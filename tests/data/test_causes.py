"""Outcomes that vary less than their noise allows: the cause is named with what speaks for it."""

from dataclasses import replace

import ibis
import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.data.causes import Evidence, cause_of
from tests.examples import QUIET, thinned
from tests.tables import KINDS, simulated

WITH_SCORE = "around their scores"
COLUMN = "as many observations as column 'k' says"
FACTOR = r"as means of about \d+ observations"


def single_noise(seed, n=1000, score="t", column="k"):
    """Means of 5 to 60 observations with the sds of one, and unrelated whole numbers.

    The column gains 10 nats or more over one factor.
    """
    rng = np.random.default_rng(seed)
    t = rng.normal(0.0, 0.3, n)
    k = rng.integers(5, 60, n)
    sd = rng.lognormal(0.0, 0.4, n)
    x = t + 0.1 * rng.normal(size=n) + sd / np.sqrt(k) * rng.normal(size=n)
    frame = pd.DataFrame({"t": t, "x": x, "sd": sd, "age": rng.integers(20, 70, n)})
    if column:
        frame[column] = k
    return soc.NormalItems(frame, score=score, value="x", noise_sd="sd")


def with_df(items):
    """Items whose only numbers of observations are the degrees of freedom of their noise sds."""
    frame = items.source.assign(df=items.source["k"] - 1).drop(columns="k")
    return replace(items, source=frame, noise_df="df")


def percentages(seed, score="t"):
    """Rounded percentages of 20 to 400 trials, as counts without an exposure."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.2, 0.8, 600)
    trials = rng.integers(100, 400, 600)
    share = np.round(100 * rng.binomial(trials, t) / trials)
    frame = pd.DataFrame({"t": 100 * t, "share": share, "one": 1})
    return soc.PoissonItems(frame, score=score, count="share", exposure="one")


def regular(seed):
    """Counts with less noise than Poisson's."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"y": np.round(rng.normal(50.0, 2.0, 500)), "N": 1.3})
    return soc.PoissonItems(frame, score=None, count="y", exposure="N")


def weighted(seed):
    frame = simulated("counts", seed)
    frame["w"] = np.random.default_rng(seed).integers(1, 9, len(frame))
    return replace(KINDS["counts"][0](frame, **KINDS["counts"][1]), weight="w")


@pytest.mark.parametrize("seed", thinned([11, 12], [11]))
@pytest.mark.parametrize(
    ("make", "evidence", "remedy"),
    [
        (single_noise, COLUMN, "square root"),
        (lambda seed: single_noise(seed, score=None), COLUMN, "square root"),
        (lambda seed: with_df(single_noise(seed)), "'df' says", "square root"),
        (lambda seed: single_noise(seed, column=None), FACTOR, "Otherwise the scores"),
        (lambda seed: single_noise(seed, score=None, column=None), FACTOR, "square root"),
        (percentages, "no count is above 100", "Otherwise the scores"),
        (weighted, "column 'w' repeats counts", "Leave out weight="),
        (regular, "do not have this noise", "upper limits"),
    ],
)
def test_the_first_cause_with_evidence_is_named(make, evidence, remedy, seed):
    """Scores are blamed only where there are scores and they may be at fault."""
    items = make(seed)
    with pytest.raises(soc.ItemsError, match=f"vary far less.*{evidence}.*{remedy}") as caught:
        soc.summarize(items, **QUIET)
    text = str(caught.value)
    assert (WITH_SCORE in text) == (items.score is not None)
    assert "Score every item" not in text


@pytest.mark.parametrize("kind", [soc.PoissonItems, soc.BinomialItems])
def test_percentages_with_fractions_are_named(kind):
    """Where a single number is not whole its row is at fault."""
    items = percentages(13)
    _, outcome, size = kind("items.parquet", score="t").outcome.bounds
    roles = {"score": "t", outcome: "share", size: "one"}
    shares = items.source.assign(share=items.source["share"] / 100)
    with pytest.raises(
        soc.ItemsError, match=r"not whole.*percentages and (events|successes) shared out"
    ):
        soc.summarize(kind(shares, **roles), **QUIET)
    one = items.source.assign(share=(items.source.index == 5) / 2)
    with pytest.raises(soc.ItemsError, match=r"not whole.*fix or drop this row"):
        soc.summarize(kind(one, **roles), **QUIET)


@pytest.mark.parametrize("kind", [soc.PoissonItems, soc.BinomialItems])
@pytest.mark.parametrize("score", ["t", None])
@pytest.mark.parametrize("n", [400, 4000])
def test_percentages_beside_their_trials_are_named(kind, score, n, recwarn):
    """They do not rise with trials; counts do, and so do scores that are expected counts."""
    rng = np.random.default_rng([14, n])
    t = rng.uniform(0.2, 0.8, n)
    theta = np.clip(t * np.exp(0.2 * rng.normal(size=n)), 0.0, 1.0)
    trials = np.ceil(np.exp(rng.uniform(4.7, 7.0, n))).astype(int)
    frame = pd.DataFrame({"t": t, "trials": trials, "expected": 0.1 * t * trials})
    frame["share"] = np.round(100 * rng.binomial(trials, theta) / trials)
    frame["events"] = np.minimum(rng.poisson(0.1 * theta * trials), 100)
    _, outcome, size = kind("items.parquet", score="t").outcome.bounds
    for column, of, named in (("share", score, 1), ("events", score, 0), ("events", "expected", 0)):
        items = kind(frame, **{"score": of, outcome: column, size: "trials"})
        soc.summarize(items, on_leakage="warn", **QUIET)
        told = [x for x in recwarn if "as of percentages" in str(x.message)]
        assert len(told) == named
        recwarn.clear()


def test_odd_tables_get_a_sentence_too():
    """Values that do not vary, exposures of 0, and rows with weights whose scores saw outcomes."""
    equal = pd.DataFrame({"t": np.arange(40.0), "x": 1.0, "sd": 1.0})
    assert "scores" in _cause(soc.NormalItems(equal, score="t", value="x", noise_sd="sd"))
    nothing = regular(1).source.assign(N=np.r_[0.0, np.full(499, 1.3)])
    nothing.loc[0, "y"] = 0.0
    assert "do not have this noise" in _cause(replace(regular(1), source=nothing))
    leak = simulated("counts", 3)
    leak["t"] = (leak["y"] + 1) / (leak["N"] + 20)
    assert "scores" in _cause(replace(weighted(3), source=leak.assign(w=2)))


def _cause(items):
    return cause_of(Evidence.of(items))


def test_evidence_is_the_same_from_files_and_engines(tmp_path):
    items = single_noise(3)
    expected = _cause(items)
    items.source.to_parquet(tmp_path / "items.parquet")
    mixed = items.source.assign(mixed=[object()] * len(items.source))
    assert _cause(replace(items, source=mixed)) == expected
    for source in (str(tmp_path / "items.parquet"), ibis.memtable(items.source)):
        assert _cause(replace(items, source=source)) == expected


@pytest.mark.parametrize("score", ["t", None])
def test_forty_items_are_too_few_to_refuse_and_the_check_says_what_to_do(score):
    items = single_noise(5, n=40, score=score)
    stats = soc.summarize(items, joint=True, **QUIET)
    fit = soc.fit(stats, method=soc.VI(draws=400, seed=1), **QUIET)
    result = soc.check(fit, items, **QUIET)
    assert result.remedies[0].check == "noise"
    assert "Values vary less than their noise allows" in result.advice[0]
    assert "observations" in result.advice[0]


def test_right_standard_errors_are_not_doubted():
    items = single_noise(6, n=40)
    frame = items.source.assign(se=items.source["sd"] / np.sqrt(items.source["k"]))
    right = soc.NormalItems(frame, score="t", value="x", noise_sd="se")
    stats = soc.summarize(right, joint=True, **QUIET)
    fit = soc.fit(stats, method=soc.VI(draws=400, seed=1), **QUIET)
    assert all(remedy.check != "noise" for remedy in soc.check(fit, right, **QUIET).remedies)
