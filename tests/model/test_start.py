"""A fit that begins at an earlier one: the same posterior, fewer steps, clear refusals."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import soc_pymc as soc
from soc_pymc.inference import variational
from soc_pymc.model import laplace, problem
from tests.studies import hard_cases
from tests.thinning import thinned


def _stats(frame, **options):
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    return soc.summarize(items, progress=False, **options)


@pytest.fixture(scope="module")
def days():
    """A large first day, and the first day with a second one a tenth of its size."""
    first = _stats(soc.simulation.s1(50_000, seed=0), bins=50)
    second = _stats(soc.simulation.s1(5_000, seed=1), edges=first.edges)
    return first, first + second


@pytest.fixture(scope="module")
def yesterday(days):
    return soc.fit(days[0], progress=False)


@pytest.fixture(scope="module")
def plain(days):
    """The fit of both days without a start."""
    return soc.fit(days[1], progress=False)


@pytest.fixture
def steps(monkeypatch):
    """A list that grows by one at every step of the Laplace start."""
    taken, search = [], laplace._line_search

    def counted(*args):
        taken.append(1)
        return search(*args)

    monkeypatch.setattr(laplace, "_line_search", counted)
    return taken


def _curves(built):
    """The Laplace start's curves at the bins, one after the other."""
    return np.concatenate(
        [
            p.state.at(c.design)
            for p, c in zip([c.laplace for c in built.coefficients], built.curves, strict=True)
        ]
    )


def _built(stats, steps, start=None, prior=None):
    """The Laplace start's curves and its number of steps."""
    steps.clear()
    curves = _curves(problem.build(stats, prior or soc.Gamma(), start))
    return curves, len(steps)


def _sds(stats, fit):
    """Posterior sd of both curves at the bins of `stats`, one after the other."""
    draws = soc.calibration_curves(fit, problem.build(stats, fit.prior).score)
    log_cv2 = draws["log_variance"] - 2.0 * draws["log_mean"]
    return np.concatenate([x.std(("chain", "draw")) for x in (draws["log_mean"], log_cv2)])


def _moved(fit, log_mean=0.0, log_cv2=0.0, bend=0.0):
    """The fit with its curves shifted, and bent by random values at the knots."""
    rng = np.random.default_rng(0)
    tree = fit.data.copy()
    posterior = tree["posterior"].to_dataset()
    for name, shift in (("log_mean", log_mean), ("log_cv2", log_cv2)):
        away = shift + bend * rng.normal(size=posterior[name].shape[-1])
        posterior[name] = posterior[name] + away
    tree["posterior"] = posterior
    return replace(fit, data=tree)


def _assert_same_posterior(fit, other, of_mean=0.1, of_sd=0.05):
    for name in ("log_mean", "log_cv2"):
        a, b = (f.data["posterior"][name] for f in (fit, other))
        over = ("chain", "draw")
        assert float((abs(a.mean(over) - b.mean(over)) / b.std(over)).max()) < of_mean
        assert float(abs(a.std(over) / b.std(over) - 1).max()) < of_sd


@pytest.mark.slow
def test_the_same_posterior_in_fewer_steps(days, yesterday, plain, steps):
    _, without = _built(days[1], steps)
    steps.clear()
    fit = soc.fit(days[1], start=yesterday, progress=False)
    assert len(steps) <= without - 3
    assert fit.status.converged
    _assert_same_posterior(fit, plain)


def test_a_saved_fit_is_a_start(days, yesterday, steps, tmp_path):
    yesterday.save(tmp_path / "fit.nc")
    curves, number = _built(days[1], steps, yesterday)
    again, as_many = _built(days[1], steps, soc.load_fit(tmp_path / "fit.nc"))
    assert number == as_many
    np.testing.assert_array_equal(again, curves)


@pytest.mark.slow
def test_nuts_begins_at_the_start(days, yesterday):
    """4,000 draws each: sd ratio has standard error 0.016 and more, 40 of them are compared."""
    method = soc.NUTS(draws=2000, chains=2)  # R-hat of chains half as long may pass 1.01 by chance
    plain, fit = (
        soc.fit(days[1], method=method, start=s, progress=False) for s in (None, yesterday)
    )
    assert fit.status.converged
    _assert_same_posterior(fit, plain, 0.15, 0.12)


@pytest.mark.parametrize(
    "prior",
    [
        soc.Gamma(soc.Spline(knots=7), soc.Spline(knots=4)),
        soc.Gamma(soc.Spline(knots=30), soc.Spline(knots=2)),
        soc.Gamma(soc.Spline(scale="rank"), soc.Spline(scale="linear")),
    ],
)
@pytest.mark.slow
def test_other_knots_axes_and_bins(yesterday, steps, prior):
    """From the default's knots and axes to others, and back."""
    stats = _stats(soc.simulation.s1(50_000, seed=3), bins=80)
    new = soc.fit(stats, prior, progress=False)
    for its, start, like in ((prior, yesterday, new), (soc.Gamma(), new, yesterday)):
        flat, without = _built(stats, steps, prior=its)
        curves, number = _built(stats, steps, start, its)
        assert np.all(np.abs(curves - flat) < 0.1 * _sds(stats, like))
        assert number <= without


def test_a_curve_is_its_own_state(days, yesterday):
    """Projected on the same knots, the mean curve comes back."""
    built = problem.build(days[0], soc.Gamma())
    for curve, name in zip(built.curves, built.family.curves, strict=True):
        state = problem._state_of(yesterday, curve)
        mean = yesterday.data["posterior"][name].mean(("chain", "draw"))
        wiggle, line = np.split(state.coefficients, curve.design.ends)
        at_knots = curve.basis.line @ line + curve.basis.wiggle @ wiggle
        np.testing.assert_allclose(at_knots, mean, rtol=1e-9)


_FAR = [
    {"log_mean": np.log(10), "log_cv2": -np.log(20)},
    {"log_mean": -np.log(10), "log_cv2": np.log(20)},
    {"log_mean": np.log(10), "log_cv2": np.log(20)},
    {"log_mean": 400.0},
    {"log_cv2": 8.0},
    {"log_cv2": -10.0},
    {"bend": 3.0},
]


@pytest.mark.parametrize("far", thinned(_FAR, [_FAR[0], _FAR[3]]), ids=str)
def test_a_far_start_does_no_harm(days, yesterday, steps, far):
    flat, without = _built(days[1], steps)
    curves, number = _built(days[1], steps, _moved(yesterday, **far))
    assert number <= without + 3
    assert np.all(np.abs(curves - flat) < 0.1 * _sds(days[1], yesterday))


@pytest.mark.slow
def test_a_start_from_very_different_data(days, plain, steps):
    """Means ten times larger and cv2 twenty times smaller, as a fit of such items has them."""
    frame = soc.simulation.s1(20_000, seed=4)
    log_mean, log_cv2 = soc.simulation.s1_curves(frame["score"])
    cv2 = np.exp(log_cv2) / 20
    theta = np.random.default_rng(4).gamma(1 / cv2, 10 * np.exp(log_mean) * cv2)
    frame["count"] = np.random.default_rng(5).poisson(theta * frame["exposure"])
    start = soc.fit(_stats(frame, bins=50), progress=False)
    _, without = _built(days[1], steps)
    steps.clear()
    fit = soc.fit(days[1], start=start, progress=False)
    assert len(steps) <= without + 3
    assert fit.status.converged
    _assert_same_posterior(fit, plain)


@pytest.mark.slow
def test_a_start_that_did_not_converge(days, yesterday, plain):
    failed = replace(
        _moved(yesterday, log_mean=2.0, bend=1.0), status=replace(yesterday.status, converged=False)
    )
    fit = soc.fit(days[1], start=failed, progress=False)
    assert fit.status.converged
    _assert_same_posterior(fit, plain)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")
@pytest.mark.parametrize("case", hard_cases.CASES)
def test_hard_cases_end_at_the_same_curves(case, steps):
    """From their own fit, and from that fit shifted both ways."""
    stats = hard_cases.summarized(case)
    flat, without = _built(stats, steps)
    own = soc.fit(stats, progress=False)
    sd = _sds(stats, own)
    for far in ({}, *_FAR[:3]):
        curves, number = _built(stats, steps, _moved(own, **far))
        assert number <= without + 3
        assert np.all(np.abs(curves - flat) < 0.2 * sd)


def _audited(stats, name="audit_bias"):
    with soc.model(stats) as model:
        bias = pm.Normal(name, 0.0, 0.1)
        pm.Normal("audit", model["bin_log_mean"][10] + bias, 0.05, observed=np.log(0.03))
        far = pm.Normal("far", 1000.0, 100.0, shape=(2, 2))
        pm.Normal("far_seen", far, 1.0, observed=np.full((2, 2), 1200.0))
        pm.LogNormal("scale", 0.0, 0.5, dims="mean_line_term")
    return model


@pytest.mark.slow
def test_added_parameters_begin_at_the_start(days, monkeypatch):
    """Fewer evaluations, the same posterior, and the user's model as it was."""
    evaluations, search = [], variational._maximise_bound

    def counted(evaluate, *args, **options):
        def one(rows):
            evaluations.append(1)
            return evaluate(rows)

        return search(one, *args, **options)

    monkeypatch.setattr(variational, "_maximise_bound", counted)
    before = soc.fit(days[0], model=_audited(days[0]), progress=False)
    evaluations.clear()
    plain = soc.fit(days[1], model=_audited(days[1]), progress=False)
    without = len(evaluations)
    evaluations.clear()
    model = _audited(days[1])
    initial = dict(model.rvs_to_initial_values)
    fit = soc.fit(days[1], start=before, model=model, progress=False)
    assert len(evaluations) <= without - 5
    assert model.rvs_to_initial_values == initial
    _assert_same_posterior(fit, plain)
    for name in ("audit_bias", "far", "scale"):
        a, b = (f.data["posterior"][name] for f in (fit, plain))
        over = ("chain", "draw")
        assert float((abs(a.mean(over) - b.mean(over)) / b.std(over)).max()) < 0.1


def test_only_matching_parameters_begin_at_the_start(days, yesterday):
    """Parameters of another name or shape, and those of a failed fit, begin at PyMC's start."""
    model = _audited(days[0], "another_bias")
    built = problem.extended(problem.build(days[0], soc.Gamma()), model)
    over = ("chain", "draw")

    def begun(start):
        with problem.started(built, start):
            initial = model.rvs_to_initial_values
            return {v.name for v, x in initial.items() if isinstance(x, np.ndarray)}

    def with_far(shape):
        tree = yesterday.data.copy()
        tree["posterior"] = tree["posterior"].to_dataset().assign(
            audit_bias=(over, np.zeros((4, 250))),
            far=((*over, "a", "b"), np.zeros((4, 250, *shape))),
            scale=((*over, "mean_line_term"), np.ones((4, 250, 2))),
        )  # fmt: skip
        return replace(yesterday, data=tree)

    assert begun(None) == begun(yesterday) == set()
    assert begun(with_far((2, 2))) == {"far", "scale"}
    assert begun(with_far((1, 2))) == {"scale"}
    failed = replace(yesterday.status, converged=False)
    assert begun(replace(with_far((2, 2)), status=failed)) == set()


def test_refusals(small_statistics, small_fit):
    with pytest.raises(soc.FitError, match=r"must be a fit that .* returned, not DataTree"):
        soc.fit(small_statistics, start=small_fit.data, progress=False)
    for name, its in (("kind", "binomial"), ("roles", '{"score": "other"}')):
        tree = small_fit.data.copy()
        tree.attrs = {**tree.attrs, name: its}
        with pytest.raises(soc.FitError, match=f"a fit of other {name} than stats: .*(bino|other)"):
            soc.fit(small_statistics, start=replace(small_fit, data=tree), progress=False)


@pytest.mark.slow
def test_scores_without_a_position_on_its_axis(small_frame, small_fit):
    """Scores at or below 0 have no position on the log axis; on the rank axis all have one."""
    stats = _stats(small_frame.assign(score=small_frame["score"] - 0.05), bins=20)
    prior = soc.Gamma(soc.Spline(scale="linear"), soc.Spline(scale="linear"))
    with pytest.raises(soc.FitError, match=r"start= does not reach these scores \(.* logarithm"):
        soc.fit(stats, prior, start=small_fit, progress=False)
    ranked = soc.Gamma(soc.Spline(scale="rank"), soc.Spline(scale="rank"))
    start = soc.fit(stats, ranked, progress=False)
    assert soc.fit(stats, prior, start=start, progress=False).status.converged
