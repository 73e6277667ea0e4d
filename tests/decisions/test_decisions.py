"""Decisions from fits: agreement with posteriors, shared curves, laws, and simulated truth."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import integrate, stats

import soc_pymc as soc
from soc_pymc import decisions as dec
from soc_pymc.checks.observations import thin
from soc_pymc.decisions import joint
from soc_pymc.posterior.curves import with_posterior
from tests.examples import CASES, COUNT_ROLES, QUIET
from tests.thinning import thinned

NAMES = ("gamma", "normal", "beta", "normal_mixture", "groups", "zeros")


def with_curves(fit, log_mean, log_cv2):
    """The fit with given draws of curves that do not depend on the score, one a number."""
    posterior = fit.data["posterior"].to_dataset().isel(chain=[0], draw=np.arange(len(log_mean)))
    for name, values in (("log_mean", log_mean), ("log_cv2", log_cv2)):
        posterior[name] = xr.zeros_like(posterior[name]) + xr.DataArray(values, dims="draw")
    return with_posterior(fit, posterior)


def counts(count, exposure):
    n = len(count)
    columns = {"score": np.full(n, 0.05), "count": count, "exposure": np.broadcast_to(exposure, n)}
    return soc.PoissonItems(pd.DataFrame(columns), **COUNT_ROLES)


@pytest.fixture(scope="module")
def some_items(small_frame):
    return soc.PoissonItems(small_frame.head(200), **COUNT_ROLES)


# further exposure, trials, or the noise sd of a further value; and more of that
MORE = {soc.PoissonItems: (100.0, 400.0), soc.BinomialItems: (30, 120), soc.NormalItems: (0.5, 0.2)}


@pytest.mark.parametrize("name", thinned(NAMES, ["gamma"]))
def test_decisions_agree_with_posteriors(example, name):
    """Every decision against mean, sd and quantiles of the same posteriors of 80 items."""
    case, frame = CASES[name], example(name).frame.head(80).copy()
    if name == "groups":
        frame.loc[::2, "kind"] = "new"  # a level that the fit has not seen
    fit, items = thin(example(name).fit, 40), case.items(frame)
    table = soc.item_posteriors(fit, items, quantiles=(0.1, 0.9), draws="all", **QUIET)
    mean, sd = table["theta_mean"].to_numpy(), table["theta_sd"].to_numpy()
    for p, quantile in ((0.1, "theta_q10"), (0.9, "theta_q90")):
        above = dec.probability_above(fit, items, table[quantile], **QUIET)
        known = table[quantile] > 0  # theta may be 0 with some probability
        # quantiles are to 1e-3 sd
        assert above[known].to_numpy() == pytest.approx(1.0 - p, abs=2e-3)
    cut = float(np.median(mean))
    loss = dec.expected_loss(fit, items, cut, cost_above=2.0, cost_below=4.0, **QUIET)
    over, short = loss["loss_if_not"] / 2.0, loss["loss_if_chosen"] / 4.0
    assert (over - short).to_numpy() == pytest.approx(mean - cut, abs=1e-7 * np.abs(mean).max())
    np.testing.assert_array_equal(loss["choose"], loss["loss_if_chosen"] < loss["loss_if_not"])
    theta = dec.thompson_draws(fit, items, 400, **QUIET).to_numpy()
    # of 400 draws: 5 standard errors for 80 items
    assert np.abs((theta.mean(axis=0) - mean) / (sd / 20.0)).max() < 5.0
    direct = np.maximum(theta - cut, 0.0)
    # an excess that is rare has no variance among 400 draws
    error = (direct.std(axis=0) + np.sqrt(over * sd)) / 20
    assert (np.abs(direct.mean(axis=0) - over) < 5 * error + 1e-9).all()
    more, much = MORE[case.kind]
    gain = dec.value_of_exposure(fit, items, more, threshold=cut, **QUIET)
    assert gain["sd_now"].to_numpy() == pytest.approx(sd, rel=1e-6)
    larger = dec.value_of_exposure(fit, items, much, **QUIET)
    assert (larger["sd_after"] < gain["sd_after"]).all()
    assert (gain["sd_after"] < gain["sd_now"]).all()
    assert (gain["value"] >= 0).all()
    best = dec.probability_best(fit, items, 5, draws=400, **QUIET)
    assert best["probability"].sum() == pytest.approx(5.0, abs=1e-3)
    hits = (theta.argsort(axis=1).argsort(axis=1) >= len(mean) - 5).mean(axis=0)
    error = np.sqrt(hits * (1 - hits) / 400 + best["error"] ** 2 + 1e-4)
    assert (np.abs(best["probability"] - hits) < 5 * error).all()


def test_shared_curves_matter_for_the_best(small_fit):
    """Two items whose scores agree: which is better hangs on their own theta alone."""
    shift = np.repeat([-2.0, 2.0], 50)
    fit = with_curves(small_fit, np.log(0.05) + shift, np.full(100, -9.0))
    items = counts([0, 0, 0], [0.0, 0.0, 0.0])
    found = dec.probability_best(fit, items, draws=800, **QUIET)
    assert found["probability"].to_numpy() == pytest.approx(1 / 3, abs=4 * found["error"].max())
    above = dec.probability_above(fit, items, 0.05, **QUIET)
    assert above.to_numpy() == pytest.approx(0.5)
    theta = dec.thompson_draws(fit, items, 100, **QUIET).to_numpy()
    assert ((theta > 0.05).sum(axis=1) % 3 == 0).all()  # all of them or none


@pytest.mark.slow
def test_answers_do_not_depend_on_how_work_is_cut(small_fit, some_items, monkeypatch):
    fit = thin(small_fit, 100)
    draws = dec.thompson_draws(fit, some_items, 70, seed=2, **QUIET)
    best = dec.probability_best(fit, some_items, 3, draws=200, **QUIET)
    monkeypatch.setattr(joint, "_MOST", 64)
    monkeypatch.setattr(joint, "_HELD", 1)
    monkeypatch.setenv("SOC_PYMC_THREADS", "1")
    many = dec.thompson_draws(fit, some_items, 150, seed=2, **QUIET)
    xr.testing.assert_identical(draws, many[:70])
    again = dec.probability_best(fit, some_items, 3, draws=200, **QUIET)
    pd.testing.assert_frame_equal(best, again, rtol=1e-9)
    assert (draws != dec.thompson_draws(fit, some_items, 70, seed=3, **QUIET)).all()


def exact_top(shape, rate, k):
    """Probabilities of three Gammas to be first, or not last, by quadrature."""
    laws = [stats.gamma(a, scale=1 / b) for a, b in zip(shape, rate, strict=True)]

    def density(x, i):
        one, two = (law.cdf(x) for j, law in enumerate(laws) if j != i)
        return laws[i].pdf(x) * (one * two if k == 1 else one + two - one * two)

    ends = [law.ppf(1 - 1e-12) for law in laws]
    return np.array([integrate.quad(density, 0, ends[i], (i,), limit=300)[0] for i in range(3)])


@pytest.mark.parametrize("k", thinned([1, 2], [2]))
def test_probability_best_against_quadrature(small_fit, k):
    fit = with_curves(small_fit, [np.log(0.05)], [np.log(0.25)])
    y, exposure = np.array([3.0, 9.0, 0.0]), np.array([50.0, 100.0, 5.0])
    found = dec.probability_best(fit, counts(y, exposure), k, draws=8000, **QUIET)
    exact = exact_top(4.0 + y, 80.0 + exposure, k)
    error = found["error"].to_numpy()
    assert (np.abs(found["probability"] - exact) < 4.5 * error).all()
    assert (error < 0.3 / np.sqrt(8000)).all()  # counting hits would have up to 0.5
    assert found["probability"].sum() == pytest.approx(k, abs=1e-9)


@pytest.mark.slow
def test_ties_and_order(small_fit):
    """Equal items share, whoever comes first; all items are the best n of n."""
    fit = with_curves(small_fit, [np.log(0.05)], [0.0])
    found = dec.probability_best(fit, counts([0] * 6 + [40], 100.0), 3, draws=4000, **QUIET)
    assert found["probability"].iloc[:6].to_numpy() == pytest.approx(2 / 6, abs=0.02)
    assert found["probability"].iloc[6] == pytest.approx(1.0, abs=1e-6)
    back = dec.probability_best(fit, counts([40] + [0] * 6, 100.0), 3, draws=4000, **QUIET)[::-1]
    spread = 5 * (found["error"] + back["error"].to_numpy()) + 1e-12
    assert (np.abs(found["probability"] - back["probability"].to_numpy()) < spread).all()
    everyone = dec.probability_best(fit, counts([0, 1], 10.0), 2, **QUIET)
    assert (everyone["probability"] == 1).all()
    assert (everyone["error"] == 0).all()


def test_probability_falls_with_the_threshold(small_fit, some_items):
    cuts = [-1.0, 0.0, 0.01, 0.03, 0.1, 50.0]
    found = [dec.probability_above(thin(small_fit, 9), some_items, c, **QUIET) for c in cuts]
    assert (np.diff(found, axis=0) <= 0).all()
    assert (np.array(found[:2]) == 1).all()
    assert (found[-1] < 1e-6).all()


def test_unit_of_exposure_is_of_no_matter(small_fit):
    """Exposure in thousands: curves, thresholds and values a thousand times larger."""
    log_mean, cv2 = np.log([0.03, 0.05, 0.06]), [-1.0, -0.5, -2.0]
    y, exposure = np.array([0, 2, 9]), np.array([10.0, 30.0, 100.0])
    answers = []
    for unit in (1.0, 1000.0):
        fit, items = (
            with_curves(small_fit, log_mean + np.log(unit), cv2),
            counts(y, exposure / unit),
        )
        gain = dec.value_of_exposure(fit, items, 50.0 / unit, threshold=0.06 * unit, **QUIET)
        above = dec.probability_above(fit, items, 0.06 * unit, **QUIET)
        answers.append(np.column_stack([gain / unit, above]))
    np.testing.assert_allclose(*answers, rtol=1e-9)


@pytest.mark.slow
def test_value_grows_with_exposure_and_stays_below_knowing_theta(small_fit, some_items):
    fit = thin(small_fit, 200)
    gains = [
        dec.value_of_exposure(fit, some_items, m, threshold=0.02, **QUIET)["value"]
        for m in (1.0, 30.0, 1000.0, 1e6)
    ]
    assert all((two >= one - 1e-15).all() for one, two in pairwise(gains))
    loss = dec.expected_loss(fit, some_items, 0.02, **QUIET)
    least = loss[["loss_if_chosen", "loss_if_not"]].min(axis=1)
    assert (gains[-1] <= least + 1e-12).all()
    assert gains[-1].sum() == pytest.approx(least.sum(), rel=0.01)  # of perfect information


def test_sd_after_against_simulation(small_fit):
    """Theta, a further count, and the posterior over all three curves given both."""
    log_mean, log_cv2 = np.log([0.03, 0.05, 0.08]), np.array([-1.0, -0.5, -2.0])
    fit = with_curves(small_fit, log_mean, log_cv2)
    y, exposure, more = 4.0, 60.0, 90.0
    found = dec.value_of_exposure(fit, counts([y], [exposure]), more, **QUIET).iloc[0]
    rng = np.random.default_rng(0)
    shape, rate = np.exp(-log_cv2) + y, np.exp(-log_cv2 - log_mean) + exposure
    curve = rng.integers(3, size=200_000)
    theta = rng.gamma(shape[curve], 1 / rate[curve])
    further = rng.poisson(theta * more)
    weight = stats.nbinom.pmf(further, shape[:, None], (rate / (rate + more))[:, None])
    means = (shape[:, None] + further) / (rate + more)[:, None]
    estimate = (weight * means).sum(axis=0) / weight.sum(axis=0)
    least = np.sqrt(np.mean((theta - estimate) ** 2))
    # the best linear estimate is no better, and within 2% here; 200,000 draws know it to 0.3%
    assert 0.994 < found["sd_after"] / least < 1.02
    assert found["sd_now"] == pytest.approx(theta.std(), rel=0.01)


def test_answers_are_indexed_like_the_items(small_fit, small_frame):
    """By the index of the frame, or by ids: numbers in another order, or text."""
    frame = small_frame.head(20).set_index(pd.Index(range(100, 120)))
    ids = [f"ad {k}" for k in range(19, -1, -1)]
    plain = soc.PoissonItems(frame, **COUNT_ROLES)
    named = soc.PoissonItems(frame.assign(ad=ids), **COUNT_ROLES, id="ad")
    by_row = dec.probability_above(small_fit, plain, 0.02, **QUIET)
    by_name = dec.probability_above(small_fit, named, 0.02, **QUIET)
    assert list(by_row.index) == list(frame.index)
    assert by_name.index.name == "ad"
    assert list(by_name.index) == ids
    np.testing.assert_array_equal(by_row, by_name)
    assert list(dec.probability_best(small_fit, named, 2, draws=64, **QUIET).index) == ids
    assert list(dec.thompson_draws(small_fit, named, **QUIET)["item"].to_numpy()) == ids
