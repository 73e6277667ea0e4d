"""Models and fits of mixtures: density, inference, saving, errors."""

import numpy as np
import pandas as pd
import pytensor
import pytest
from scipy import special, stats

import soc_pymc as soc
from soc_pymc.checks.findings import _size_advice
from soc_pymc.families import components as parts
from soc_pymc.families.mixture_rows import all_rows, solved
from soc_pymc.inference.density import density, make_space
from soc_pymc.model.likelihood import log_marginal, shared
from soc_pymc.model.mixture_design import _pooled, make_cells
from soc_pymc.model.problem import build
from soc_pymc.model.rows import cells_of
from soc_pymc.posterior.predictive import posterior_of


def log_normal_items(n, seed, sigma=1.0):
    """Counts with log-normal theta, which no Gamma fits."""
    rng = np.random.default_rng(seed)
    score = np.exp(rng.normal(np.log(0.02), 0.8, n))
    exposure = np.ceil(np.exp(rng.normal(np.log(80.0), 1.2, n)))
    theta = score * np.exp(sigma * rng.normal(size=n))
    count = rng.poisson(theta * exposure)
    return pd.DataFrame({"t": score, "y": count, "N": exposure, "theta": theta})


def summarized(frame, joint=True, **more):
    items = soc.PoissonItems(frame[["t", "y", "N"]], score="t", count="y", exposure="N")
    return soc.summarize(items, joint=joint, progress=False, **more)


@pytest.fixture(scope="module")
def stats_of_few():
    return summarized(log_normal_items(4000, 0), bins=20)


@pytest.fixture(scope="module")
def fit_of_few(stats_of_few):
    return soc.fit(stats_of_few, soc.GammaMixture(), progress=False)


def test_model_states_the_prior_and_the_likelihood(stats_of_few):
    """The model's log density equals a plain one, up to the Jacobians of coordinates."""
    built = build(stats_of_few, soc.GammaMixture())
    space = make_space(built.model)
    model, design, pilot = built.model, built.weights, built.coefficients[0].laplace
    blocks = [block.name for block in design.design.blocks]
    assert blocks == ["log_cv2_wiggle", "log_mean_wiggle"]
    names = [f"{b}{end}" for b in blocks for end in ("_sd", "")] + ["line", "bin_predictor"]
    rows, outputs = space.batched(model.replace_rvs_by_values([model[n] for n in names]))
    function = pytensor.function([rows], outputs, mode="FAST_COMPILE")
    rng = np.random.default_rng(0)
    points = space.start + 0.7 * rng.normal(size=(3, space.dim))
    without = model.logp(jacobian=False)
    rows, logp = space.batched(without)
    found = pytensor.function([rows], logp, mode="FAST_COMPILE")(points)
    for d, values in enumerate(zip(*function(points), strict=True)):
        plain, prior = [], 0.0
        for k, block in enumerate(design.design.blocks):
            tau, z = values[2 * k], pilot.blocks[k].rotation @ values[2 * k + 1]
            prior += stats.halfnorm.logpdf(tau, scale=block.scale)
            prior += stats.norm.logpdf(z, 0, tau).sum()
            plain.append(z)
        line = values[-2]
        prior += stats.norm.logpdf(line, design.design.line_mean, design.design.line_sd).sum()
        predictors = design.predictors(np.concatenate([*plain, line]))
        assert values[-1] == pytest.approx(predictors, abs=1e-9)
        weight = solved(predictors[None], *built.data.forms.arrays)[0][0]
        cells, likelihood = built.data, built.data.constant.sum()
        for b, own in enumerate(weight):
            at = slice(cells.start[b], cells.start[b + 1])
            likelihood += cells.items[at] @ np.log(cells.density[at].astype(float) @ own)
        assert found[d] == pytest.approx(prior + likelihood, abs=0.01)  # single precision


@pytest.mark.slow
def test_gradient_and_batches(stats_of_few):
    built = build(stats_of_few, soc.GammaMixture())
    space = make_space(built.model)
    evaluate = density(space)
    points = space.start + 0.5 * np.random.default_rng(0).normal(size=(3, space.dim))
    value, gradient = evaluate(points)
    assert [evaluate(p[None])[0][0] for p in points] == pytest.approx(value, abs=1e-3)
    step = 0.02
    numeric = [
        (evaluate(points[:1] + e)[0][0] - evaluate(points[:1] - e)[0][0]) / (2 * step)
        for e in step * np.eye(space.dim)
    ]
    # single precision in the value: 1e-3 nats over a step of 0.04
    assert gradient[0] == pytest.approx(np.array(numeric), abs=0.05)


@pytest.mark.slow
def test_numba_gives_the_same_as_python(stats_of_few):
    cells = build(stats_of_few, soc.GammaMixture()).data
    predictors = pytensor.tensor.tensor3("predictors")
    value = log_marginal("mixture", predictors, *shared(cells))[0]
    outputs = [value, pytensor.grad(value.sum(), predictors)]
    forms = cells.forms
    at = forms.centre + 0.5 * np.random.default_rng(0).normal(size=(2, *forms.centre.shape))
    at[..., 0] += forms.handle[:, 0]
    slow, fast = (
        pytensor.function([predictors], outputs, mode=mode)(at)
        for mode in ("FAST_COMPILE", "NUMBA")
    )
    for one, other in zip(slow, fast, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.slow
def test_the_fit_converges_and_finds_the_log_normal(fit_of_few):
    """At the start of the path the components give a log-normal, at 1 a Gamma."""
    assert fit_of_few.status.converged, fit_of_few.status.reason
    path = fit_of_few.data["posterior"]["weight_coefficient"].sel(weight_function="path")
    assert float(path.mean()) < 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")  # divergences in heavy tails
def test_variational_agrees_with_nuts(stats_of_few):
    """With a tighter prior of the shape.

    By default the last sd of a log variance is 0.81 of NUTS's: so few items leave it a heavy tail.
    """
    prior = soc.GammaMixture(shape=0.3)
    fit = soc.fit(stats_of_few, prior, progress=False)
    nuts = soc.fit(
        stats_of_few,
        prior,
        # sds of two chains of 4,000 draws still differ by 6%: the tails are heavy at low scores
        soc.NUTS(draws=2500, tune=1000, chains=4, seed=1),
        progress=False,
    )
    score = np.geomspace(0.006, 0.07, 9)
    ours, reference = (posterior_of(f).curves(score) for f in (fit, nuts))
    for name in ("log_mean", "log_variance"):
        # 1 of 32 chains had an excursion into the tail, which made its sd 1.4 times the others'
        sd = np.median(reference[name].reshape(4, 2500, -1).std(axis=1), axis=0)
        away = np.abs(ours[name].mean(axis=0) - reference[name].mean(axis=0)) / sd
        assert away.max() < 0.2  # Monte Carlo: 1,000 draws against an effective 500 or more
        assert ours[name].std(axis=0) / sd == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_same_statistics_same_fit_whatever_the_order(stats_of_few, fit_of_few):
    frame = log_normal_items(4000, 0).sample(frac=1.0, random_state=1)
    again = soc.fit(summarized(frame, edges=stats_of_few.edges), soc.GammaMixture(), progress=False)
    for name in ("log_mean", "log_cv2", "weight_coefficient"):
        one, other = (f.data["posterior"][name].to_numpy() for f in (fit_of_few, again))
        # sums of reals differ by rounding alone, which the optimiser's path may enlarge
        assert other.mean(axis=(0, 1)) == pytest.approx(one.mean(axis=(0, 1)), abs=0.05)


@pytest.mark.slow
def test_save_and_load(fit_of_few, tmp_path):
    fit_of_few.save(tmp_path / "fit.nc")
    loaded = soc.load_fit(tmp_path / "fit.nc")
    assert loaded.prior == fit_of_few.prior
    assert loaded.status == fit_of_few.status
    for group in ("posterior", "constant_data"):
        assert loaded.data[group].to_dataset().equals(fit_of_few.data[group].to_dataset())


def test_statistics_without_joint_cells_are_refused():
    stats = summarized(log_normal_items(500, 0), joint=False)
    with pytest.raises(soc.FitError, match=r"joint=True"):
        soc.fit(stats, soc.GammaMixture(), progress=False)
    with pytest.raises(soc.FitError, match=r"joint=True"):
        soc.model(stats, soc.GammaMixture())


@pytest.mark.slow
def test_fits_start_at_mixtures_and_mixtures_at_fits(stats_of_few, fit_of_few):
    """A base distribution is a start for a family and for a mixture, and changes neither."""
    for prior in (soc.Gamma(), soc.GammaMixture()):
        begun = soc.fit(stats_of_few, prior, start=fit_of_few, progress=False)
        plain = soc.fit(stats_of_few, prior, progress=False)
        at = np.geomspace(0.005, 0.08, 5)
        a, b = (soc.calibration_curves(f, at)["log_mean"] for f in (begun, plain))
        gap = (a.mean(("chain", "draw")) - b.mean(("chain", "draw"))) / b.std(("chain", "draw"))
        assert float(np.abs(gap).max()) < 0.2


def test_advice_is_for_the_mixture(stats_of_few):
    """Mixtures have terms in exposure."""
    fit = soc.fit(stats_of_few, soc.GammaMixture(), soc.FiveSteps(), progress=False)
    advice = _size_advice(fit, posterior_of(fit).outcome)
    assert "soc.GammaMixture(exposure=soc.Spline())" in advice


def test_minibatches_of_a_mixture_are_refused(stats_of_few):
    with pytest.raises(soc.FitError, match="batch"):
        soc.fit(stats_of_few, soc.GammaMixture(), soc.VI(batch=5), progress=False)


def test_a_mixture_of_the_other_kind_is_refused(stats_of_few):
    with pytest.raises(soc.FitError, match="poisson"):
        soc.fit(stats_of_few, soc.NormalMixture(), progress=False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"functions": 2},
        {"knots": 0},
        {"shape": 0.0},
        {"drift": -1.0},
        {"mean": 3},
        {"bin_effects": 1},
    ],
)
def test_configurations_are_checked(wrong):
    (name,) = wrong
    for prior in (soc.GammaMixture, soc.NormalMixture):
        with pytest.raises(soc.FitError, match=name):
            prior(**wrong)


@pytest.mark.slow
def test_two_scores_and_two_bins():
    """With two bins curves have no wiggle, and drift is at most a slope."""
    frame = log_normal_items(3000, 5)
    frame["t"] = np.where(frame["t"] > 0.02, 0.03, 0.02)
    fit = soc.fit(summarized(frame), soc.GammaMixture(), progress=False)
    assert fit.status.converged, fit.status.reason
    assert fit.data["posterior"].sizes["weight_knot"] == 2


def test_items_are_in_the_likelihood_and_the_start_has_their_rate(stats_of_few):
    """Every item is in the likelihood, with its own cell's density."""
    built = build(stats_of_few, soc.GammaMixture())
    assert built.data.items.sum() == pytest.approx(stats_of_few.n_items)
    rows, forms = built.weights.rows, built.data.forms
    assert rows.items.sum() == stats_of_few.n_items
    whole = built.weights.design.line_mean
    assert whole[-1] == 0.0  # all functions but the path begin at 0
    predictors = np.zeros(forms.centre.shape)
    predictors[:, :2], predictors[:, 2] = rows.start, 1.0
    weight = solved(predictors[None], *forms.arrays)[0][0]
    shape = parts.inverse_trigamma(rows.base.width())[:, None]
    location = rows.base.places(built.extras["component_z"].to_numpy())
    mean = (weight * np.exp(location + np.log(shape) - special.psi(shape))).sum(axis=1)
    # the mean of the components is that of the curve
    assert np.log(mean) == pytest.approx(rows.start[:, 0], abs=1e-7)
    part = stats_of_few.table("part")
    seen = np.bincount(rows.of[part["bin"]], part["sum_y"])
    size = np.bincount(rows.of[part["bin"]], part["sum_N"])
    # the start's Gamma has the items' rate, bin by bin, within the noise of 100 items or more
    assert np.average(mean, weights=size) == pytest.approx(seen.sum() / size.sum(), rel=0.1)


def test_pooled_cells_have_the_likelihood_of_their_parts():
    """Cells of equal outcome and size in a merged row are one cell, which changes nothing."""
    statistics = summarized(log_normal_items(4000, 0), bins=400)
    built = build(statistics, soc.GammaMixture())
    rows, components = built.weights.rows, built.family.components
    assert len(rows.items) < 400
    cells = cells_of(statistics, built.family, built.rows, False, False)
    pooled = _pooled(cells, rows)
    assert len(pooled["n"]) < len(cells["n"])
    of = rows.of[cells["row"]]
    for name in ("n", "sum_y", "sum_N", "sum_y2", "sum_yN"):
        total, before = (
            np.bincount(at, own[name], minlength=len(rows.items))
            for at, own in ((pooled["row"], pooled), (of, cells))
        )
        assert total == pytest.approx(before)
    name = next(name for name in cells if name.endswith("_cell"))
    apart = {**cells, name: np.arange(len(cells["n"]))}  # no two cells are of one outcome
    functions = built.weights.functions
    both = [make_cells(components, own, rows, functions) for own in (cells, apart)]
    assert len(both[0].items) < len(both[1].items)
    mode = built.weights.predictors(built.coefficients[0].laplace.state.coefficients)
    at, found = np.stack([mode, mode + 0.2]), []
    for own in both:
        value, slope = np.empty(at.shape[:2]), np.empty(at.shape)
        all_rows(at, value, slope, *own.arrays)
        found.append((value, slope))
    # single precision: 1e-6 of 10 items' log densities
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-3)
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-3)
