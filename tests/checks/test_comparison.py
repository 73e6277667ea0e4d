"""Fits compared by items left out in turn, and advice, followed."""

from dataclasses import replace

import arviz as az
import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.special import logsumexp

import soc_pymc as soc
from soc_pymc._lib.laws import uniform_p_value
from soc_pymc.checks import comparison
from soc_pymc.checks.comparison import leave_one_out, mixture_weights
from soc_pymc.fits import Status
from soc_pymc.posterior.predictive import posterior_of
from tests.checks.hand_made import (
    KINDS,
    as_items,
    faulty_frame,
    hand_made_fit,
    moments_by_draw,
    simulate,
)
from tests.checks.test_checks import exact_ends, statistics_of
from tests.examples import COUNT_ROLES, QUIET, thinned
from tests.posterior.references import log_probability


def laws(fit, frame, kind="counts"):
    """Returns SciPy's laws of the items' outcomes under each draw of the curves, (draws, n)."""
    size = frame[KINDS[kind].roles[2]].to_numpy()
    return KINDS[kind].marginal(*moments_by_draw(fit, frame, kind), size)


def densities(fit, frame, kind="counts"):
    law, outcome = laws(fit, frame, kind), frame[KINDS[kind].roles[1]].to_numpy()
    return log_probability(law, outcome)


def left_out(log_density):
    return np.log(len(log_density)) - logsumexp(-log_density, axis=0)


@pytest.mark.parametrize("kind", thinned(KINDS, ["values"]))
def test_items_left_out_are_those_of_plain_weights(kind):
    """Pareto smoothing moves a sum over 300 items by next to nothing.

    The cdf of an item left out is moved as plain weights over all draws move it: up to more than
    .01, and to within two thirds of that, as 32 draws say it.
    """
    fit, frame = hand_made_fit(kind, sd=0.15, draws=400), simulate(300, 4, kind)
    frame = frame[frame[KINDS[kind].roles[2]] < 100]
    data = soc.check(fit, as_items(frame, kind), subset=300, **QUIET).data
    each = densities(fit, frame, kind)
    loo = az.loo(data, pointwise=True)
    assert float(loo.elpd) == pytest.approx(left_out(each).sum(), abs=0.1)
    assert float(loo.p) == pytest.approx(
        (logsumexp(each, axis=0) - np.log(len(each)) - left_out(each)).sum(), abs=0.2
    )
    law, outcome = laws(fit, frame, kind), frame[KINDS[kind].roles[1]].to_numpy()
    pit = data["loo_pit"][KINDS[kind].roles[1]]
    if not hasattr(law, "pmf"):
        cdf, weight = law.cdf(outcome), np.exp(-each - logsumexp(-each, axis=0))
        moved = (weight * cdf).sum(axis=0) - cdf.mean(axis=0)
        shift = (pit - data["pit_values"][KINDS[kind].roles[1]]).to_numpy()
        assert np.abs(moved).max() > 0.01
        np.testing.assert_allclose(shift, moved, atol=np.abs(moved).max() * 2 / 3)
        assert np.corrcoef(shift, moved)[0, 1] > 0.9
        # ArviZ's own weights 1,000 predictive draws: .065 is four sds of a share of so many
        assert np.abs(az.loo_pit(data)[KINDS[kind].roles[1]] - pit).max() < 0.065
    else:
        below, upto = exact_ends(law, outcome)
        assert (pit > below - 0.03).all()
        assert (pit < upto + 0.03).all()


@pytest.mark.parametrize("kind", thinned(KINDS, ["counts"]))
def test_leave_one_out_of_statistics_is_that_of_the_items(kind):
    """A sum within .004 an item, as 150 scores stand for all; what leaving out costs, to .3."""
    fit, frame = hand_made_fit(kind, sd=0.05, draws=100), simulate(1500, 1, kind)
    record = soc.check(fit, statistics_of(frame, kind, 150), **QUIET).elpd
    each = densities(fit, frame, kind)
    exact = left_out(each)
    inside = logsumexp(each, axis=0) - np.log(len(each))
    assert record.n_data_points == len(frame)
    assert record.elpd == pytest.approx(exact.sum(), abs=0.004 * len(frame))
    assert record.p == pytest.approx((inside - exact).sum(), abs=0.3)
    assert record.se == pytest.approx(exact.std() * np.sqrt(len(frame)), rel=0.03)


def test_repeated_draws_are_not_vouched_for():
    """Few draws, each many times: the tail of the weights has no shape, and its k is infinite."""
    fit = hand_made_fit(sd=0.3, draws=5)
    posterior = fit.data["posterior"].to_dataset()
    again = np.random.default_rng(0).integers(5, size=200)
    posterior = posterior.isel(draw=again).assign_coords(draw=np.arange(200))
    repeated = replace(fit, data=xr.DataTree.from_dict({"posterior": posterior}))
    repeated.data.attrs = fit.data.attrs
    table = soc.check(repeated, as_items(simulate(200, 4)), **QUIET).table.set_index("what")
    row = table.loc["leave-one-out"]
    assert np.isinf(row["value"])
    assert row["verdict"] == "warn"


@pytest.fixture(scope="module")
def fits(example):
    """Two fits of the same counts; the log cv2 of the second is held far from the data's."""
    narrow = soc.Gamma(variance=soc.Spline(knots=1, level=(-4.0, 0.01)))
    statistics = example("gamma").statistics
    return {"good": example("gamma").fit, "narrow": soc.fit(statistics, narrow, **QUIET)}


@pytest.fixture(scope="module")
def exact(fits, small_frame):
    columns = {c: small_frame[c].to_numpy(dtype=float) for c in ("score", "count", "exposure")}
    return {name: left_out(posterior_of(fit).log_density(columns)) for name, fit in fits.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:draws support leave-one-out")
def test_fits_are_compared_on_statistics(fits, small_items, exact, monkeypatch):
    """ArviZ's table of all items, against plain weights item by item: cells of 150 bins blur a sum
    by 3e-3 of itself, and differences by a few percent. Draws made by hand cannot be refitted.
    """
    monkeypatch.setattr(comparison, "refits_of", lambda fit, stats: None)
    statistics = soc.summarize(small_items, bins=150, **QUIET)
    table = soc.compare(fits, statistics, **QUIET)
    assert list(table.index) == ["good", "narrow"]
    records = {name: soc.check(fit, statistics, **QUIET).elpd for name, fit in fits.items()}
    arvizs = az.compare(records, round_to="none")
    for name in ("elpd_diff", "dse", "p_worse", "p", "elpd", "se"):
        np.testing.assert_allclose(table[name], arvizs[name].astype(float), rtol=1e-9)
    np.testing.assert_allclose(table["weight"], arvizs["weight"].astype(float), atol=1e-3)
    n = len(exact["good"])
    for name, each in exact.items():
        assert table.loc[name, "elpd"] == pytest.approx(each.sum(), rel=3e-3)
        assert table.loc[name, "se"] == pytest.approx(each.std() * np.sqrt(n), rel=0.03)
    away, row = exact["narrow"] - exact["good"], table.loc["narrow"]
    assert row["elpd_diff"] == pytest.approx(away.sum(), rel=0.06)
    assert row["dse"] == pytest.approx(away.std() * np.sqrt(n), rel=0.25)
    assert table.loc["good", "weight"] > 0.8
    assert 2 < table.loc["good", "p"] < 30


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:draws support leave-one-out")
def test_fits_are_compared_on_items(fits, small_items, exact):
    """Random items: of 600 the difference is their share of all, within 4 standard errors."""
    away = (exact["narrow"] - exact["good"]).mean()
    row = soc.compare(fits, small_items, subset=600, **QUIET).loc["narrow"]
    assert abs(row["elpd_diff"] - 600 * away) < 4 * row["dse"]


def test_fits_that_did_not_converge_have_no_numbers():
    failed = hand_made_fit(status=Status(False, "Pareto k 0.9", 0.9, 0.05, 1.0))
    fits = {"failed": failed, "wide": hand_made_fit(second=1.0), "true": hand_made_fit()}
    with pytest.warns(soc.ConvergenceWarning, match=r"'failed' \(Pareto k 0.90 of the fit\)"):
        table = soc.compare(fits, as_items(simulate(300, 4)), **QUIET)
    assert list(table.index) == ["true", "wide", "failed"]
    assert table.loc["failed", ["elpd", "se", "weight"]].isna().all()
    assert table.loc["true", ["elpd", "weight"]].notna().all()


def test_fits_whose_draws_cannot_leave_items_out_have_no_numbers(monkeypatch):
    """One item of log density -inf makes a sum over items undefined."""

    def undefined(posterior, *args):
        loo = leave_one_out(posterior, *args)
        return replace(loo, elpd_i=loo.elpd_i - np.inf) if posterior.curves is wild.curves else loo

    monkeypatch.setattr(comparison, "leave_one_out", undefined)
    wild = hand_made_fit(second=1.0)
    with pytest.warns(soc.ConvergenceWarning, match=r"'wild' \(draws differ too much"):
        table = soc.compare({"wild": wild, "true": hand_made_fit()}, as_items(simulate(300, 4)))
    assert list(table.index) == ["true", "wild"]
    assert table.loc["wild", ["elpd", "se", "weight"]].isna().all()


@pytest.mark.slow
def test_fits_of_other_items_are_not_compared(fits, small_frame, small_statistics):
    frame = small_frame[:2000]
    half = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    statistics = soc.summarize(half, bins=20, **QUIET)
    with pytest.raises(soc.FitError, match="different items"):
        soc.compare(fits, statistics, **QUIET)
    with pytest.raises(soc.FitError, match="different items"):
        soc.compare(fits, half, **QUIET)


@pytest.mark.slow
def test_items_are_left_out_of_the_fit_that_they_made(example):
    """New items have no place in the fit. The test of the PIT sees both ends, ArviZ's only one."""
    fit, items = example("normal").fit, example("normal").items
    result = soc.check(fit, items, subset=200, **QUIET)
    row = result.table.set_index("what").loc["LOO-PIT"]
    pit = result.data["loo_pit"]["value"]
    assert row["p"] == pytest.approx(uniform_p_value(pit.to_numpy()))
    for values in (pit, 1.0 - pit):
        p, *_ = values.azstats.uniformity_test("item", method="prit_c")
        assert row["p"] < 1.2 * float(p)
    new = items.source.assign(value=items.source["value"].sample(frac=1.0, random_state=0) + 1.0)
    new = soc.check(fit, example("normal").case.items(new), subset=200, **QUIET)
    assert "LOO-PIT" not in set(new.table["what"])


def test_arviz_takes_items_that_say_nothing(example):
    """ArviZ's leave-one-out of all items stops at one whose likelihood is the same in all draws."""
    case = example("gamma")
    frame = case.items.source.head(300).copy()
    silent = frame.index[[3, 8]]
    frame["exposure"] = frame["exposure"].astype(float)
    frame.loc[silent, "count"] = 0
    frame.loc[silent, "exposure"] = [0.0, 1e-14]
    result = soc.check(case.fit, case.case.items(frame), subset=10**6, **QUIET)
    densities = result.data["log_likelihood"]
    assert densities.attrs["items_that_say_nothing"] == 2
    assert densities.sizes["item"] == len(frame) - 2
    assert np.isfinite(float(az.loo(result.data).elpd))
    assert np.isfinite(az.loo_score(result.data).mean)  # which copies the draws
    assert result.elpd.n_data_points == len(frame)


@pytest.mark.slow
def test_arviz_takes_checks_of_mixtures(example):
    case = example("gamma_mixture")
    result = soc.check(case.fit, case.items, subset=200, **QUIET)
    assert {"LOO-PIT", "leave-one-out"} <= set(result.table["what"])
    assert np.isfinite(float(az.loo(result.data).elpd))
    assert len(az.compare({"a": result.elpd, "b": result.elpd})) == 2


@pytest.mark.parametrize("spread", [0.05, 1.0, 30.0, "heavy tails", "outliers"])
def test_no_mixture_is_better(spread):
    """No density gains on average over the mixture, and those with a weight are on a par."""
    rng = np.random.default_rng(0)
    n = rng.integers(1, 5, 500)
    if isinstance(spread, str):
        value = rng.standard_t(3, 500) if spread == "heavy tails" else rng.normal(size=500)
        value[:3] = [40.0, -30.0, 25.0]
        log_density = stats.norm.logpdf(value, 0.0, np.geomspace(0.1, 30.0, 32)[:, None])
    else:
        log_density = spread * rng.normal(size=(8, 500)) + 0.1 * np.arange(8)[:, None]
        log_density[7] = log_density[6]
    weight = mixture_weights(log_density, n)
    assert weight.sum() == pytest.approx(1.0)
    mixed = logsumexp(log_density, axis=0, b=weight[:, None])
    slope = np.exp(log_density - mixed) @ n / n.sum()
    assert slope.max() < 1.0 + 1e-8
    np.testing.assert_allclose(slope[weight > 1e-3], 1.0, atol=1e-5)


STIFF = soc.Gamma(mean=soc.Spline(knots=2))


REMEDIES = [
    ("exposure", "soc.Gamma(exposure=soc.Spline())"),
    ("shape", "soc.GammaMixture()"),
    ("zeros", "soc.Gamma(zero=True)"),
    ("level", "group='kind'"),
    ("cluster", "group='shop'"),
    ("wiggle", "more knots"),
    ("bias", "fit again with these"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "first"), thinned(REMEDIES, REMEDIES[5:6]))
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
    roles |= before.remedies[0].roles
    prior = before.remedies[0].prior or prior
    new, *_ = fitted(frame)
    after = soc.check(new, soc.PoissonItems(frame, **roles), **options)
    assert "fail" not in set(after.table["verdict"]), (advice, after)
    if fault in {"exposure", "shape", "zeros", "wiggle"}:
        table = soc.compare({"old": old, "new": new}, stats, **QUIET)
        assert table["elpd_diff"]["old"] < -2 * table["dse"]["old"] < 0
        # quick fits err by some nats, and leave out items of other bins
        gain = -table["elpd_diff"]["old"]
        assert before.remedies[0].nats == pytest.approx(gain, rel=0.1, abs=4.0)
