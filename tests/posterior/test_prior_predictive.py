"""Curves and outcomes of items under a prior."""

import numpy as np
import pytest

import soc_pymc as soc

QUIET = {"progress": False}
LEVEL = np.log(0.05)
TIGHT = {
    "mean": soc.Spline(level=(LEVEL, 0.1), slope=(1.0, 0.01), wiggle=0.01),
    "variance": soc.Spline(level=(np.log(0.3), 0.1), slope=(0.0, 0.01), wiggle=0.01),
}


def _stats(**roles):
    frame = soc.simulation.s1(3000, seed=0)
    frame["group"] = np.resize(list("abcdefghij"), 3000)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure", **roles)
    return frame, soc.summarize(items, bins=60, joint=True, **QUIET)


def test_draws_are_those_of_the_documented_prior():
    """E(theta | t) at the average score is exp(N(level, 0.1)): mean and sd of its log to 4 errors.

    The mean count is that of the items' exposures.
    """
    frame, stats = _stats()
    found = soc.prior_predictive(soc.Gamma(**TIGHT), stats, draws=400, items=3000, seed=1)
    curves = found["prior"].to_dataset()
    centre = np.exp(np.log(frame["score"]).mean())
    drawn = np.log(curves["mean"]).interp(score=centre).to_numpy().ravel()
    assert drawn.mean() == pytest.approx(LEVEL, abs=4 * 0.1 / np.sqrt(400))
    assert drawn.std() == pytest.approx(0.1, rel=4 / np.sqrt(800))
    count = found["prior_predictive"]["count"]
    at = found["constant_data"]
    expected = 0.05 * (at["exposure"] * at["score"]).mean() / centre
    assert float(count.mean()) == pytest.approx(float(expected), rel=0.05)
    # items are drawn from the bins and sizes of all
    assert float(at["exposure"].mean()) == pytest.approx(frame["exposure"].mean(), rel=0.15)
    assert float(np.log(at["score"]).mean()) == pytest.approx(np.log(centre), abs=0.05)


def test_outcomes_do_not_matter():
    """Statistics of other counts in the same exposures give the same draws."""
    frame, stats = _stats()
    frame["count"] = np.random.default_rng(1).poisson(0.2 * frame["exposure"])
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    other = soc.summarize(items, edges=stats.edges, joint=True, **QUIET)
    a, b = (soc.prior_predictive(None, s, draws=20, seed=3) for s in (stats, other))
    for group in ("prior", "prior_predictive"):
        for name, values in a[group].data_vars.items():
            np.testing.assert_allclose(values, b[group][name], rtol=1e-9)


@pytest.mark.parametrize(
    "prior",
    [
        soc.GammaMixture(),
        soc.Gamma(zero=True),
        soc.Gamma(monotone=True),
        soc.Gamma(exposure=soc.Spline(knots=5)),
        soc.Gamma(bin_effects=True, groups=False),
        soc.Gamma(),
    ],
    ids=["mixture", "zero", "monotone", "exposure", "effects", "levels"],
)
def test_every_prior(prior):
    _, stats = _stats(group="group")
    found = soc.prior_predictive(prior, stats, draws=10, items=50)
    assert found["prior_predictive"]["count"].shape == (1, 10, 50)
    assert np.isfinite(found["prior"]["mean"]).all()
    if prior.monotone:
        assert float(found["prior"]["mean"].diff("score").min()) > -1e-12
    if prior.groups:
        assert set(found["constant_data"]["group"].to_numpy()) <= set("abcdefghij")


def test_other_kinds():
    frame = soc.simulation.laplace_effects(1000, seed=0)
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    found = soc.prior_predictive(None, soc.summarize(items, **QUIET), draws=10)
    assert found["prior_predictive"]["value"].dtype == float
    frame["n"], frame["y"] = 5, 2
    items = soc.BinomialItems(frame, score="score", successes="y", trials="n")
    stats = soc.summarize(items, on_leakage="ignore", **QUIET)
    prior = soc.Beta(mean=soc.Spline(scale="linear"), variance=soc.Spline(scale="linear"))
    found = soc.prior_predictive(prior, stats, draws=10)
    assert int(found["prior_predictive"]["successes"].max()) <= 5


def test_a_prior_of_other_items_is_refused():
    with pytest.raises(soc.FitError, match=r"not for these statistics"):
        soc.prior_predictive(soc.Normal(), _stats()[1])
    with pytest.raises(soc.FitError, match="stats must be statistics"):
        soc.prior_predictive(soc.Gamma(), "stats.nc")
