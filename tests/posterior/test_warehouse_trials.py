"""Items with successes in trials as an Ibis expression and as SQL text, run by DuckDB."""

from functools import cache

import ibis
import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.front.cli import main
from tests.thinning import thinned

ROLES = {"score": "p", "successes": "hits", "trials": "at_bats"}
NEW = ["theta_mean", "theta_sd", "theta_var", "theta_a", "theta_b"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    score = rng.beta(2.0, 5.0, 6000).clip(0.005, 0.995)
    trials = np.round(np.exp(rng.uniform(0.0, np.log(300.0), 6000)))
    hits = rng.binomial(trials.astype(int), rng.beta(20.0 * score, 20.0 * (1.0 - score)))
    return pd.DataFrame({"id": np.arange(6000), "p": score, "hits": hits, "at_bats": trials})


@pytest.fixture(scope="module")
def fitted(frame):
    stats = soc.summarize(soc.BinomialItems(frame, **ROLES), progress=False)

    @cache
    def made(scale):
        curve = soc.Spline(scale=scale)
        return soc.fit(stats, soc.Beta(mean=curve, variance=curve), progress=False)

    return made


def _of_expression(fit, table):
    found = soc.posterior_expression(fit, soc.BinomialItems(ibis.memtable(table), **ROLES))
    return found.to_pandas().sort_values("id", ignore_index=True)


def _of_text(fit, table, **names):
    connection = ibis.duckdb.connect().con
    connection.register("items", table)
    text = soc.posterior_sql(fit, "items", columns=["id"], **names)
    return connection.execute(text).df().sort_values("id", ignore_index=True)


@pytest.mark.parametrize("scale", thinned(["logit", "linear", "rank"], ["logit"]))
def test_agrees_with_all_draws(fitted, frame, scale):
    fit, frame = fitted(scale), frame.head(1500)
    exact = soc.item_posteriors(
        fit, soc.BinomialItems(frame, **ROLES), quantiles=(), draws="all", progress=False
    )
    for found in (_of_expression(fit, frame), _of_text(fit, frame)):
        assert list(found.columns[-5:]) == NEW
        mean, sd = exact["theta_mean"], exact["theta_sd"]
        assert (np.abs(found["theta_mean"] - mean) / sd).max() < 1e-4
        assert np.abs(found["theta_sd"] / sd - 1).max() < 1e-3
        a, b = found["theta_a"], found["theta_b"]
        np.testing.assert_allclose(a / (a + b), found["theta_mean"])
        np.testing.assert_allclose(
            a * b / (a + b) ** 2 / (a + b + 1), found["theta_var"], rtol=1e-9
        )


BAD = [
    (None, 1, 9.0), (np.inf, 1, 9.0), (0.0, 1, 9.0), (1.0, 1, 9.0), (-0.1, 1, 9.0),
    (0.1, None, 9.0), (0.1, -1, 9.0), (0.1, 1.5, 9.0), (0.1, 1, None), (0.1, 1, -9.0),
    (0.1, 1, 9.5), (0.1, 10, 9.0), (0.1, 1, 0.0), (0.1, np.nan, 9.0), (0.1, 1, np.inf),
]  # fmt: skip


def test_bad_rows_are_null(fitted):
    good = [(0.1, 0.0, 0.0), (0.999, 9.0, 9.0), (1e-9, 0.0, 2.0**40)]
    rows = [*good, *BAD]
    table = pd.DataFrame(rows, columns=list(ROLES.values()), dtype=float)
    fit = fitted("logit")
    for found in (_of_expression(fit, table.assign(id=range(len(rows)))),
                  _of_text(fit, table.assign(id=range(len(rows))))):  # fmt: skip
        assert np.isfinite(found[NEW].iloc[: len(good)].to_numpy(dtype=float)).all()
        assert found[NEW].iloc[len(good) :].isna().all(axis=None)


def test_names_and_refusals(fitted, frame):
    fit = fitted("logit")
    other = frame.rename(columns={"hits": "wins", "at_bats": "games"})
    found = _of_text(fit, other, successes="wins", trials="games")
    assert list(found.columns) == ["p", "wins", "games", "id", *NEW]
    with pytest.raises(
        soc.ItemsError, match=r"count= is not a column of .* successes= and trials="
    ):
        soc.posterior_sql(fit, "items", count="wins")
    with pytest.raises(soc.ItemsError, match="theta_a"):
        soc.posterior_sql(fit, "items", columns=["theta_a"])
    labels = soc.BinomialItems(
        frame.assign(hits=frame["hits"] > 0.3 * frame["at_bats"], at_bats=1).astype({"hits": int}),
        **ROLES,
    )
    mean_only = soc.fit(soc.summarize(labels, bins=20, progress=False), progress=False)
    with pytest.raises(soc.FitError, match="one trial per item"):
        soc.posterior_sql(mean_only, "items")


def test_command(fitted, tmp_path, capsys):
    fit = fitted("logit")
    fit.save(tmp_path / "fit.nc")
    words = ["sql", str(tmp_path / "fit.nc"), "--table", "games", "--successes", "wins"]
    assert main(words) == 0
    assert capsys.readouterr().out == soc.posterior_sql(fit, "games", successes="wins") + "\n"


@pytest.mark.slow
def test_mixtures_are_refused(frame):
    stats = soc.summarize(soc.BinomialItems(frame, **ROLES), bins=20, joint=True, progress=False)
    fit = soc.fit(stats, soc.BetaMixture(), progress=False)
    with pytest.raises(soc.FitError, match=r"BetaMixture, only soc\.Gamma or soc\.Beta"):
        soc.posterior_sql(fit, "items")
