"""The choice of a prior by `soc.fit(stats, "auto")`, and the advice of `soc.check`, followed."""

import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from arviz_stats.utils import ELPDDataLOO
from scipy.linalg import hadamard

import soc_pymc as soc
from soc_pymc import _fit
from tests.checks.hand_made import simulate
from tests.examples import (
    COUNT_ROLES,
    FAMILIES,
    QUIET,
    count_frame,
    thinned,
    trial_frame,
    value_frame,
)

FAST = soc.VI(draws=400, seed=1)
COLUMNS = ["prior", "elpd", "elpd_diff", "dse", "trust", "chosen", "reason"]


def statistics_of(name, frame, bins=20, **options):
    return soc.summarize(FAMILIES[name].items(frame), bins=bins, **QUIET, **options)


def busy_frame(n=1500):
    """Returns counts whose rate falls with the exposure, beyond what the score says."""
    rng = np.random.default_rng(0)
    score = rng.lognormal(-3.0, 0.5, n)
    exposure = np.ceil(rng.lognormal(4.0, 1.5, n))
    theta = rng.gamma(4.0, score / 4.0) * (exposure / 50.0) ** -0.3
    return pd.DataFrame(
        {"score": score, "count": rng.poisson(theta * exposure), "exposure": exposure}
    )


def test_a_term_in_exposure_is_chosen_and_saved(tmp_path):
    stats = statistics_of("gamma", busy_frame())
    fit = soc.fit(stats, "auto", FAST, **QUIET)
    table = fit.selection
    assert list(table.columns) == COLUMNS
    assert table["chosen"].tolist() == [False, True, False, False]
    assert table["prior"][1] == "soc.Gamma(exposure=soc.Spline())"
    assert table["elpd_diff"][0] < -2 * table["dse"][0] < 0
    alone = soc.fit(stats, soc.Gamma(exposure=soc.Spline()), FAST, **QUIET)
    assert alone.selection is None
    assert (fit.prior, fit.method) == (alone.prior, FAST)
    assert fit.data.equals(alone.data)  # as if the prior had been named
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    pd.testing.assert_frame_equal(again.selection, table, check_exact=True)
    assert again.data.attrs == fit.data.attrs
    assert "simplest within 2 dse" in repr(again)


def decayed_statistics():
    """Returns statistics of two days, of which the first counts half."""
    frame = count_frame(300).assign(day=["2026-01-01", "2026-01-02"] * 150)
    items = soc.PoissonItems(frame, **COUNT_ROLES, date="day")
    return soc.summarize(items, bins=10, **QUIET).decay("1d")


OBSTACLES = {
    "no joint cells": lambda: statistics_of("gamma", count_frame(300), 10, joint=False),
    "weighted": decayed_statistics,
    "one trial": lambda: statistics_of("beta", trial_frame(300).assign(trials=1, successes=0), 10),
    "one draw": lambda: statistics_of("gamma", count_frame(300), 10),
}


@pytest.mark.parametrize("words", OBSTACLES)
def test_the_plain_prior_where_priors_cannot_be_compared(words):
    method = soc.FiveSteps() if words == "one draw" else FAST
    fit = soc.fit(OBSTACLES[words](), "auto", method, **QUIET)
    [row] = fit.selection.to_dict("records")
    assert fit.prior == type(fit.prior)()
    assert row["chosen"]
    assert row["reason"].startswith("not compared: ")
    assert words in row["reason"]


def test_what_is_no_prior_is_refused(small_statistics):
    with pytest.raises(soc.FitError, match=r"prior='gamma' must be 'auto', or soc.Gamma\("):
        soc.fit(small_statistics, "gamma")
    with pytest.raises(soc.FitError, match="model= was built with one prior"):
        soc.fit(small_statistics, "auto", model=soc.model(small_statistics))


NAMES = ["plain", "exposure", "mixture", "both"]


@pytest.mark.parametrize(
    ("elpd", "doubtful", "chosen"),
    [
        ([-3.9, -5.0, 0.0, -1.0], [0, 0, 0, 0], "plain"),
        ([-4.1, -3.9, 0.0, -1.0], [0, 0, 0, 0], "exposure"),
        ([-40.0, -10.0, -5.0, 0.0], [0, 0, 0, 0], "both"),
        ([-40.0, -10.0, -5.0, 0.0], [99, 0, 0, 10], "both"),
        ([-40.0, -10.0, -5.0, 0.0], [0, 0, 0, 11], "mixture"),
        ([-40.0, np.nan, -5.0, 0.0], [0, 0, 0, 11], "mixture"),
        ([-40.0, -10.0, -5.0, 0.0], [0, 11, 11, 11], "plain"),
        ([-40.0, -10.0, -5.0, 0.0], [11, 11, 11, 11], "plain"),
        ([-40.0, -10.0, None, None], [0, 0, 0, 0], "exposure"),  # two fits did not converge
    ],
)
def test_the_simplest_of_those_near_the_best_that_can_be_trusted(elpd, doubtful, chosen):
    """All differences have a standard error of 2."""
    results = {}
    for name, total, number, sign in zip(NAMES, elpd, doubtful, hadamard(16)[1:], strict=False):
        n = np.ones(1024, dtype=int)
        each = np.nan * n if total is None else total / 1024 + np.sqrt(2.0) / 32 * np.tile(sign, 64)
        k = np.where(np.cumsum(n) <= number, 1.0, 0.1)
        by_row = {
            x: xr.DataArray(v, {"n": ("row", n)}, "row")
            for x, v in (("elpd_i", each), ("pareto_k", k))
        }
        totals = {"elpd": each.sum(), "se": 0.0, "p": 0.0, "scale": "log", "n_samples": 1000}
        loo = ELPDDataLOO(**totals, n_data_points=1024, good_k=2 / 3, warning=False, **by_row)
        results[name] = (None if total is None else loo), ""
    table = _fit._table(results)
    np.testing.assert_allclose(table["dse"].replace(0.0, np.nan).dropna(), 2.0)
    assert table.index.tolist() == NAMES
    assert table.index[table["chosen"]].tolist() == [chosen]


@pytest.mark.slow
def test_a_mixture_where_the_check_asks_for_it():
    """Of heavy tails, with one noise sd, in which there is no term."""
    frame = soc.simulation.laplace_effects(3000, seed=1)
    stats = statistics_of("normal", frame, None, on_leakage="ignore")
    fit = soc.fit(stats, "auto", **QUIET)
    assert fit.selection["prior"].tolist() == ["soc.Normal()", "soc.NormalMixture()"]
    assert fit.prior == soc.NormalMixture()


def plain_truth(kind, seed):
    """Returns statistics of items whose theta given the score is of one family, at any size."""
    n = [2000, 5000, 20_000][seed % 3]
    if kind == "gamma":
        return statistics_of(kind, soc.simulation.s1(n, seed=seed), None)
    frame = {"normal": value_frame, "beta": trial_frame}[kind](min(n, 5000), seed)
    return statistics_of(kind, frame, None)


@pytest.mark.slow
def test_the_plain_prior_where_it_is_true():
    """In at least 9 of 10 simulations."""
    kinds = ["gamma"] * 5 + ["normal"] * 3 + ["beta"] * 2
    fits = [soc.fit(plain_truth(k, 100 + s), "auto", **QUIET) for s, k in enumerate(kinds)]
    plain = [fit.selection["chosen"][0] for fit in fits]
    assert sum(plain) >= 9, [fit.selection for fit in fits if not fit.selection["chosen"][0]]


CODE = re.compile(r"soc\.Gamma\w*\((?:[^()]|\([^()]*\))*\)")
LABEL = re.compile(r"(group|cluster)='(\w+)'")
STIFF = soc.Gamma(mean=soc.Spline(knots=2))


def with_effect(frame, effect):
    """Returns counts whose rates are multiplied by an effect, which no score knows."""
    rng = np.random.default_rng(0)
    return frame.assign(count=rng.poisson(frame["theta"] * effect * frame["exposure"]))


def lognormal(rng, mean, variance):
    """Returns theta with a tail much longer than a Gamma's."""
    return mean * rng.lognormal(-0.72, 1.2, len(mean))


def faulty_frame(fault):
    """Returns counts with one departure from a Gamma that is smooth in the score."""
    if fault == "shape":
        return simulate(6000, 4, theta=lognormal)
    frame, rng = simulate(4000, 4), np.random.default_rng(1)
    shop = rng.integers(0, 200, 4000)
    frame = frame.assign(kind=rng.choice(list("abc"), 4000), shop=[f"shop {k}" for k in shop])
    effects = {
        "exposure": np.exp(0.2 * np.log(frame["exposure"] / 6)),
        "zeros": rng.random(4000) > 0.3,
        "level": np.where(frame["kind"] == "b", 1.6, 0.75),
        "cluster": np.exp(rng.normal(0.0, 0.7, 200))[shop],
        "wiggle": np.exp(0.8 * np.sin(4.0 * np.log(frame["score"]))),
        "bias": 1.3,
    }
    return with_effect(frame, effects[fault])


REMEDIES = [
    ("exposure", "soc.Gamma(exposure=soc.Spline())"),
    ("shape", "soc.GammaMixture()"),
    ("zeros", "soc.Gamma(zero=True)"),
    ("level", "group='kind'"),
    ("cluster", "cluster='shop'"),
    ("wiggle", "more knots"),
    ("bias", "fit again"),
]


@pytest.mark.parametrize(("fault", "first"), thinned(REMEDIES, REMEDIES[3:4]))
def test_the_first_advice_makes_the_check_pass(fault, first):
    roles, prior = dict(COUNT_ROLES), STIFF if fault == "wiggle" else soc.Gamma()
    frame = faulty_frame(fault)

    def fitted(table):
        items = soc.PoissonItems(table, **roles)
        stats = soc.summarize(items, bins=100, on_leakage="ignore", **QUIET)
        return soc.fit(stats, prior, **QUIET), stats, items

    options = {"by": "kind" if fault == "level" else (), "subset": 500, **QUIET}
    old, stats, _ = fitted(simulate(4000, 5) if fault == "bias" else frame)
    before = soc.check(old, soc.PoissonItems(frame, **roles), **options)
    assert ("fail" in set(before.table["verdict"])) == (fault != "cluster")
    advice = before.advice[0]
    assert first in advice
    if label := LABEL.search(advice):
        roles[label[1]] = label[2]
    elif code := CODE.search(advice):
        prior = eval(code[0], {"soc": soc})
    new, _, items = fitted(frame)
    after = soc.check(new, items, **options)
    assert "fail" not in set(after.table["verdict"]), (advice, after)
    if fault == "shape":
        table = soc.compare({"old": old, "new": new}, stats, **QUIET)
        assert table["elpd_diff"]["old"] < -2 * table["dse"]["old"] < 0
