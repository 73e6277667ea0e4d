"""Fits with a share of theta that is exactly 0, from items to decisions."""

import json

import numpy as np
import pytest
import sklearn
from scipy import special, stats

import soc_pymc as soc
from soc_pymc.families.components import inverse_trigamma
from soc_pymc.families.mixture_rows import solved
from soc_pymc.inference.stored_fits import as_json, read_record
from soc_pymc.model.splines import knots_in, spline_matrix
from soc_pymc.posterior.curves import curves_at
from soc_pymc.posterior.predictive import posterior_of
from tests.studies.zeros import FAMILY, classes, covered, simulated

SHARE = 0.25


@pytest.fixture(scope="module", params=FAMILY)
def made(request, kept_fit):
    """Kind, fit, items and truth."""
    kind = request.param
    items, truth = simulated(kind, 2000, SHARE, 0)

    def make():
        stats_of = soc.summarize(items, bins=20, joint=True, progress=False)
        prior = getattr(soc, FAMILY[kind])(zero=True)
        return soc.fit(stats_of, prior, soc.VI(draws=200), progress=False)

    return kind, kept_fit(f"zeros_{kind}", make), items, truth


@pytest.fixture(scope="module")
def scored(made):
    _, fit, items, _ = made
    return soc.item_posteriors(fit, items, draws="all", progress=False)


def _columns(made, at):
    _, fit, items, _ = made
    roles = ("score", *(posterior_of(fit).outcome.__dict__[k] for k in ("observed", "size")))
    return {r: items.source[items.roles[r]].to_numpy(dtype=float)[at] for r in roles}


def test_recovers_what_was_simulated(made, scored):
    _, fit, items, truth = made
    assert fit.status.converged, fit.status.reason
    theta = truth["theta"].to_numpy()
    band = soc.bands(soc.calibration_curves(fit, np.quantile(items.source["t"], [0.3, 0.5, 0.7])))
    low, _, high = band["p_zero"].to_numpy()
    assert ((low < SHARE + 0.03) & (high > SHARE - 0.03)).all()
    assert 0.88 < covered(scored, theta) < 0.96
    assert np.abs(classes(scored["p_zero"].to_numpy(), theta == 0.0)["away"]).max() < 4.0
    error = ((scored["theta_mean"] - truth["mean"]) ** 2).mean() / truth["variance"].mean()
    assert error < 0.03  # of 2,000 items


def _by_definition(made, i):
    """Per draw: P(theta = 0 | t), and P(outcome) under theta that is not 0 and that is 0."""
    kind, fit, _, _ = made
    law, one = posterior_of(fit), _columns(made, [i])
    score, y, size = one.values()
    both = np.stack(curves_at(fit, score, None, None), axis=-1)
    values = fit.data["posterior"]["weight_coefficient"]
    knots = knots_in(fit.data, "weight_knot")
    at = np.clip(fit.axis("mean")(score), knots[0], knots[-1])
    rest = spline_matrix(at, knots) @ values.to_numpy().reshape(-1, *values.shape[2:])
    share = special.expit(rest[:, 0, -1])
    base, start = law._weights._base(one)
    constant = fit.data["constant_data"]
    functions = constant["component_function"].to_numpy()
    forms = law.family.components.forms(base, functions, start, False)
    weight = solved(np.concatenate([both, rest], axis=-1), *forms.arrays)[0][:, 0]
    place, width = base.places(constant["component_z"].to_numpy())[0], base.width()[0]
    if kind == "counts":
        shape = inverse_trigamma([width])[0]
        rate = np.exp(special.psi(shape) - place)
        own = stats.nbinom.pmf(y[0], shape, rate / (rate + size[0]))
        zero = stats.poisson.pmf(y[0], 0.0)
        means = (shape + y[0]) / (rate + size[0])
    else:
        own = stats.norm.pdf(y[0], place, np.sqrt(width + size[0] ** 2))
        zero = stats.norm.pdf(y[0], 0.0, size[0])
        means = (place * size[0] ** 2 + y[0] * width) / (size[0] ** 2 + width)
    return share, weight * own, zero, means


def test_one_item_by_its_definition(made, scored):
    """P(theta = 0), the mean, and the log density of every draw."""
    for i in range(0, 2000, 250):
        share, density, zero, means = _by_definition(made, i)
        whole = share * zero + (1.0 - share) * density.sum(axis=1)
        p_zero = (share * zero / whole).mean()
        mean = (((1.0 - share) / whole)[:, None] * density * means).sum(axis=1).mean()
        # weights are interpolated between scores
        assert scored["p_zero"][i] == pytest.approx(p_zero, abs=2e-5)
        assert scored["theta_mean"][i] == pytest.approx(mean, abs=1e-4 * scored["theta_sd"][i])
        law = posterior_of(made[1])
        law._weights._weights = law._weights._solve  # without interpolation
        found = law.log_density(_columns(made, [i]))[:, 0]
        assert found == pytest.approx(np.log(whole), abs=1e-8)


def test_curves_are_of_all_theta(made):
    """The law of total variance over draws of the curves, and before an outcome is known."""
    fit = made[1]
    columns = _columns(made, slice(0, 5))
    law = posterior_of(fit)
    curves = law.curves(columns["score"])
    before = law.scorer((), "all", False)({"score": columns["score"]})
    assert before[0] == pytest.approx(curves["mean"].mean(axis=0), rel=1e-3)
    variance = curves["variance"].mean(axis=0) + curves["mean"].var(axis=0)
    assert before[2] == pytest.approx(variance, rel=1e-2)
    assert ((curves["p_zero"] > 0.0) & (curves["p_zero"] < 1.0)).all()
    first, _ = curves_at(fit, columns["score"], None, None)
    own = np.exp(first) if law.outcome.positive else first
    assert curves["mean"] == pytest.approx((1.0 - curves["p_zero"]) * own, rel=1e-6)


def test_outcomes_agree_with_their_densities(made):
    """Replicates, cdfs and densities are of one distribution."""
    kind, fit, _, _ = made
    law, at = posterior_of(fit), slice(0, 40)
    columns = _columns(made, at)
    below, upto = law.cdf_interval(columns)
    if kind == "counts":
        probability = np.exp(law.log_density(columns)).mean(axis=0)
        assert upto - below == pytest.approx(probability, abs=2e-4)
    rng = np.random.default_rng(0)
    own = columns[law.outcome.observed]
    new = np.vstack([law.simulate(columns, rng) for _ in range(20)])
    error = np.sqrt(np.maximum(upto * (1.0 - upto), 1e-3) / len(new))
    assert (np.abs((new <= own).mean(axis=0) - upto) < 5.0 * error).all()


def test_decisions_know_the_zeros(made, scored):
    kind, fit, items, _ = made
    few = type(items)(items.source.head(150), **items.roles)
    own = scored.head(150)
    above = soc.decisions.probability_above(fit, few, 0.0, progress=False)
    if kind == "counts":
        assert above.to_numpy() == pytest.approx(1.0 - own["p_zero"].to_numpy(), abs=1e-9)
    assert (above.to_numpy() <= 1.0 - own["p_zero"].to_numpy() + 1e-9).all()
    loss = soc.decisions.expected_loss(fit, few, 0.01, progress=False)
    away = loss["loss_if_not"] - loss["loss_if_chosen"]  # E(theta) - threshold
    assert away.to_numpy() == pytest.approx(own["theta_mean"].to_numpy() - 0.01, abs=1e-6)
    low = soc.decisions.risk_adjusted(fit, few, 0.05, progress=False)
    assert low.to_numpy() == pytest.approx(own["theta_q05"].to_numpy(), abs=1e-12)
    drawn = soc.decisions.thompson_draws(fit, few, 400, progress=False)
    share = (drawn == 0.0).mean("draw").to_numpy()
    assert np.abs(share - own["p_zero"].to_numpy()).max() < 5 * 0.5 / np.sqrt(400)
    gain = soc.decisions.value_of_exposure(fit, few, 5.0, threshold=0.01, progress=False)
    assert gain["sd_now"].to_numpy() == pytest.approx(own["theta_sd"].to_numpy(), rel=1e-6)
    assert (gain["sd_after"] <= gain["sd_now"] * (1 + 1e-9)).all()


def test_few_nodes_are_close(made, scored):
    _, fit, items, _ = made
    near = soc.item_posteriors(fit, items, progress=False)
    sd = scored["theta_sd"]
    assert (np.abs(near["theta_mean"] - scored["theta_mean"]) / sd).max() < 1e-3
    assert np.abs(near["p_zero"] - scored["p_zero"]).max() < 1e-3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")  # of a cell left out
def test_check_and_compare(made):
    """The fit passes its check, and predicts outcomes better than without zeros."""
    kind, fit, items, _ = made
    result = soc.check(fit, items, progress=False)
    assert not (result.table["verdict"] == "fail").any()
    stats_of = soc.summarize(items, bins=20, joint=True, progress=False)
    plain = soc.fit(stats_of, getattr(soc, FAMILY[kind])(), soc.VI(draws=200), progress=False)
    table = soc.compare({"zero": fit, "plain": plain}, stats_of, progress=False)
    assert table.index[0] == "zero"
    assert table.loc["plain", "elpd_diff"] < -30
    if kind == "counts":
        advice = " ".join(soc.check(plain, items, progress=False).advice)
        assert "zero=True" in advice or "zero counts" not in advice


def test_files_before_zeros_are_read(made, tmp_path):
    _, fit, _, _ = made
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.prior == fit.prior
    assert "zero=True" in repr(again)
    older = json.loads(as_json(soc.NormalMixture()))
    del older["zero"]
    assert read_record(json.dumps(older), soc.NormalMixture) == soc.NormalMixture()


def test_an_estimator_with_zeros():
    items, truth = simulated("counts", 1500, SHARE, 1)
    frame = items.source
    made = soc.SecondOrderCalibrator(prior=soc.Gamma(zero=True), method=soc.VI(draws=100))
    made.fit(frame["t"], frame["y"], exposure=frame["N"])
    mean = made.predict(frame["t"])
    assert mean.shape == (1500,)
    assert np.corrcoef(mean, truth["theta"])[0, 1] > 0.3
    assert sklearn.base.clone(made).prior.zero


def test_what_cannot_be(made):
    kind, _, items, _ = made
    prior = getattr(soc, FAMILY[kind])
    with pytest.raises(soc.FitError, match=r"zero=.*True or False"):
        prior(zero=1)
    few = soc.summarize(items, bins=10, joint=False, progress=False)
    with pytest.raises(soc.FitError, match=r"zero=True.*joint=True"):
        soc.fit(few, prior(zero=True), progress=False)
    joint = soc.summarize(items, bins=10, joint=True, progress=False)
    with pytest.raises(soc.FitError, match=r"five steps.*zero"):
        soc.fit(joint, prior(zero=True), soc.FiveSteps(), progress=False)
    with pytest.raises(soc.FitError, match=r"zero=.*joint cells"):
        soc.evaluate.compare_bins(items, (10,), prior=prior(zero=True), progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILY)
def test_without_zeros_items_hardly_move(kind):
    items, _ = simulated(kind, 20_000, 0.0, 3)
    stats_of = soc.summarize(items, joint=True, progress=False)
    found, plain = (
        soc.item_posteriors(
            soc.fit(stats_of, getattr(soc, FAMILY[kind])(zero=zero), progress=False),
            items,
            progress=False,
        )
        for zero in (True, False)
    )
    moved = (found["theta_mean"] - plain["theta_mean"]) / plain["theta_sd"]
    assert np.sqrt((moved**2).mean()) < 0.03
    assert np.quantile(np.abs(moved), 0.99) < 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")  # R-hat of 1.010
def test_variational_agrees_with_nuts():
    items, _ = simulated("counts", 4000, 0.2, 2)
    stats_of = soc.summarize(items, bins=40, joint=True, progress=False)
    prior = soc.Gamma(zero=True)
    ours, reference = (
        posterior_of(soc.fit(stats_of, prior, method, progress=False)).curves(
            np.geomspace(0.006, 0.07, 9)
        )
        for method in (soc.VI(), soc.NUTS(draws=1000, tune=500, chains=2, seed=1))
    )
    for name, of in (("log_mean", np.asarray), ("p_zero", special.logit)):
        one, other = (of(x[name]) for x in (ours, reference))
        sd = other.std(axis=0)
        assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) / sd).max() < 0.2
        assert one.std(axis=0) / sd == pytest.approx(1.0, abs=0.2)
