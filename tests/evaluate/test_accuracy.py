"""Fits beside simulated truth: `soc.evaluate.accuracy`."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.evaluate import by_bin
from soc_pymc.families.outcomes import OUTCOMES
from soc_pymc.posterior.predictive import posterior_of

COUNTS, VALUES = OUTCOMES["poisson"], OUTCOMES["normal"]


def gamma_items(n, seed):
    """Gamma rates around a score, with the oracle's posterior; the score is half of the mean."""
    rng = np.random.default_rng(seed)
    mean, shape = rng.uniform(0.5, 2.0, n), 3.0
    theta = rng.gamma(shape, mean / shape)
    exposure = np.full(n, 4.0)
    count = rng.poisson(exposure * theta)
    rate = shape / mean
    return pd.DataFrame(
        {
            "score": mean / 2,
            "count": count,
            "exposure": exposure,
            "theta": theta,
            "true_mean": mean,
            "true_variance": mean**2 / shape,
            "oracle_mean": (shape + count) / (rate + exposure),
            "oracle_variance": (shape + count) / (rate + exposure) ** 2,
        }
    )


def as_scored(frame, factor=1.0):
    """A fit that knows all, but takes every posterior variance for `factor` times what it is."""
    return frame.assign(
        mean=frame["true_mean"],
        variance=frame["true_variance"],
        theta_mean=frame["oracle_mean"],
        theta_var=frame["oracle_variance"] * factor,
    ).drop(columns=["count", "exposure"])


def test_figures_by_hand():
    table = pd.DataFrame(
        {
            "score": [4.0, 1.0, 2.0, 3.0],
            "theta": [3.0, 1.0, 2.0, 4.0],
            "true_mean": [2.0, 1.0, 2.0, 4.0],
            "true_variance": [1.0, 2.0, 4.0, 3.0],
            "oracle_mean": [2.0, 2.0, 1.0, 2.0],
            "oracle_variance": [1.0, 1.0, 3.0, 2.0],
            "mean": [1.0, 3.0, 1.0, 3.0],
            "variance": [2.0, 2.0, 2.0, 4.0],
            "theta_mean": [1.0, 3.0, 1.0, 4.0],
            "theta_var": [2.0, 4.0, 1.0, 1.0],
        }
    )
    low, high = by_bin.accuracy_by_bin(table, 2, COUNTS).to_dict("records")
    assert (low["bin"], low["items"], low["score"]) == (0, 2, 1.5)
    assert (high["score"], high["true_mean"], high["mean"]) == (3.5, 3.0, 2.0)
    assert (low["true_variance"], low["variance"]) == (3.0, 2.0)
    # items 1 and 2: the oracle errs by 1 and 1, the fit by 2 and 1
    assert low["mean_error"] == pytest.approx((1 / 1 + 0 / 4) / 2)
    assert low["variance_error"] == pytest.approx((9 / 1 + 4 / 16) / 2)
    assert low["error_ratio"] == pytest.approx((4 / 4 + 1 / 1) / 2)
    assert low["expected_ratio"] == pytest.approx(((1 + 1) / 4 + 3 / 1) / 2)
    assert low["mse_posterior"] == pytest.approx(5 / 2)
    assert low["mse_mean"] == pytest.approx(5 / 2)
    assert low["mse_t"] == 0
    assert low["mse_true_mean"] == 0
    assert low["regret"] == pytest.approx(1 / 4)
    # deviations of 4 - 2.5 and 1 - 2.5, over the mean 1 and the root of 2
    assert low["mse_posterior_se"] == pytest.approx(1.5 / np.sqrt(2))
    assert "mse_y" not in low
    values = by_bin.accuracy_by_bin(table.assign(value=[3.0, 2.0, 4.0, 4.0]), 2, VALUES).iloc[0]
    assert values["mse_y"] == pytest.approx(5 / 2)
    assert values["mean_error"] == pytest.approx((1 / 2 + 0) / 2)  # over Var(theta | t)
    assert values["variance_error"] == pytest.approx((9 / 4 + 4 / 16) / 2)


def test_perfect_fit_has_no_regret():
    perfect = by_bin.accuracy_by_bin(as_scored(gamma_items(40_000, 1)), 4, COUNTS)
    for name in ("mean_error", "variance_error", "regret"):
        assert (perfect[name] == 0).all()
    assert (perfect["mse_posterior"] == 1).all()
    assert (np.abs(perfect["error_ratio"] - 1) < 4 * perfect["error_ratio_se"]).all()
    assert (perfect["mse_true_mean"] > 1 + 4 * perfect["mse_true_mean_se"]).all()
    assert (perfect["mse_t"] > perfect["mse_true_mean"]).all()
    narrow = by_bin.accuracy_by_bin(as_scored(gamma_items(40_000, 1), 1 / 1.1), 4, COUNTS)
    np.testing.assert_allclose(narrow["error_ratio"], 1.1 * perfect["error_ratio"])


def test_standard_errors():
    """Sd over 200 simulations, known to 5%, against what one simulation says of itself."""
    tables = [
        by_bin.accuracy_by_bin(as_scored(gamma_items(500, seed)), 1, COUNTS).iloc[0]
        for seed in range(200)
    ]
    found = pd.DataFrame(tables)
    for name in ("error_ratio", "mse_t", "mse_mean"):
        assert found[f"{name}_se"].mean() == pytest.approx(found[name].std(), rel=0.15)


@pytest.fixture(scope="module")
def scored_counts():
    frame = gamma_items(20_000, 7)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, progress=False)
    five = soc.fit(stats, soc.Gamma(), soc.FiveSteps(), progress=False)
    return frame, items, {"Bayes": soc.fit(stats, progress=False), "five steps": five}


@pytest.mark.parametrize("method", ["Bayes", "five steps"])
@pytest.mark.slow
def test_fits_to_counts(scored_counts, method):
    """Their prior is the true one: within 1% of the oracle, and wrong if the variance is."""
    _, items, fits = scored_counts
    found = soc.evaluate.accuracy(fits, items, bins=5, delta=0.5, sigma=0.1, progress=False)
    assert list(found["method"].unique()) == ["Bayes", "five steps"]
    found = found[found["method"] == method]
    assert list(found["bin"]) == [0, 1, 2, 3, 4]
    assert (found["delta"] == 0.5).all()
    assert (found["sigma"] == 0.1).all()
    assert (found["items"] == 4000).all()
    assert (found["regret"] < 0.01).all()
    assert (np.abs(found["mean"] / found["true_mean"] - 1) < 0.04).all()
    assert (np.abs(found["variance"] / found["true_variance"] - 1) < 0.25).all()
    assert (np.abs(found["error_ratio"] - 1) < 0.05 + 4 * found["error_ratio_se"]).all()
    assert (found["mse_posterior"] < found["mse_mean"]).all()


def test_curves_at_items_are_those_of_every_item(scored_counts):
    """The grid and the lines between: to 1e-4 of the exact averages over draws."""
    frame, _, fits = scored_counts
    fit = fits["Bayes"]
    columns = {c: frame[c].to_numpy() for c in ("score", "count", "exposure")}
    mean, variance = (v[:300] for v in by_bin.given_score(fit, columns))
    exact = posterior_of(fit).curves(columns["score"][:300])
    np.testing.assert_allclose(mean, exact["mean"].mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(variance, exact["variance"].mean(axis=0), rtol=1e-4)


@pytest.mark.slow
def test_a_fit_to_values():
    rng = np.random.default_rng(3)
    score = rng.uniform(-1, 1, 5000)
    theta = rng.normal(score + 0.5, 0.8)
    value = rng.normal(theta, 1.0)
    share = 0.64 / 1.64
    frame = pd.DataFrame(
        {
            "score": score,
            "value": value,
            "noise_sd": 1.0,
            "theta": theta,
            "true_mean": score + 0.5,
            "true_variance": 0.64,
            "oracle_mean": score + 0.5 + share * (value - score - 0.5),
            "oracle_variance": share,
        }
    )
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    found = soc.evaluate.accuracy({"Bayes": fit}, items, bins=2, progress=False)
    assert list(found["method"]) == ["Bayes", "Bayes"]
    assert found["delta"].isna().all()
    assert (found["regret"] < 0.02).all()
    # y alone errs by the noise: 1 over a posterior variance of share
    assert (np.abs(found["mse_y"] * share - 1) < 4 * found["mse_y_se"] * share + 0.05).all()
    assert (np.abs(found["mean"] - found["true_mean"]) < 0.1).all()


def test_what_is_refused(scored_counts):
    frame, items, fits = scored_counts
    fit = fits["Bayes"]
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    lacking = soc.PoissonItems(frame.drop(columns=["theta", *by_bin.TRUTH[2:]]), **roles)
    with pytest.raises(soc.ItemsError, match="lacks 4 columns of the truth: theta"):
        soc.evaluate.accuracy(fit, lacking)
    with pytest.raises(soc.ItemsError, match="bins=0 must be a whole number from 1"):
        soc.evaluate.accuracy(fit, items, bins=0)
    with pytest.raises(soc.ItemsError, match="are a str"):
        soc.evaluate.accuracy(fit, soc.PoissonItems("x.parquet", **roles))
