"""Laws that DESIGN and the documentation state, on examples that hypothesis chooses.

Elsewhere: parts add up to the whole in any partition, order and grouping (test_statistics,
test_normal_items); cells hold their numbers and are the same in kernels (test_binning); bins are
those of searchsorted (test_binning); densities under change of unit (test_poisson_gamma,
test_normal_normal); cdfs, quantiles and uniformity (test_checks, test_normal_normal); monotone
projections (test_monotone); rules of nodes keep moments (test_nodes); decisions' losses
(test_decisions_forms). Examples are the same every time (conftest).
"""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

import soc_pymc as soc
from soc_pymc._lib.files import content_digest
from soc_pymc.data.statistics import coarsened
from soc_pymc.families import normal_normal as nn
from soc_pymc.families import poisson_gamma as pg
from soc_pymc.inference.results import Fit
from soc_pymc.model.splines import spline_matrix

SEED = st.integers(0, 2**32 - 1)
POSITIVE = st.floats(1e-3, 1e3)
OUTCOMES = st.lists(st.tuples(st.integers(0, 1000), st.floats(1e-3, 1e4)), min_size=1, max_size=8)
VALUES = st.lists(st.tuples(st.floats(-50, 50), st.floats(1e-2, 1e2)), min_size=1, max_size=8)


def drawn_items(seed, n=400, factor=1.0):
    rng = np.random.default_rng(seed)
    score = rng.lognormal(-3.0, 0.8, n)
    exposure = np.exp2(rng.integers(0, 8, n)) if seed % 2 else rng.lognormal(3.0, 1.0, n)
    theta = score * rng.gamma(5.0, 0.2, n)
    count = rng.poisson(theta * exposure)
    return pd.DataFrame({"t": score, "y": count, "N": exposure * factor, "ad": np.arange(n)})


def summed(frame, **options):
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    return soc.summarize(items, progress=False, on_leakage="ignore", **options)


def assert_close(one, two):
    """The same statistics: whole numbers bit for bit, sums up to rounding."""
    assert one.data.sizes == two.data.sizes
    for name, values in one.data.variables.items():
        mine, its = values.to_numpy(), two.data[name].to_numpy()
        if mine.dtype.kind == "f":
            # 400 items: 1e-12 is a hundred times their sums' rounding
            np.testing.assert_allclose(mine, its, rtol=1e-12, err_msg=name)
        else:
            np.testing.assert_array_equal(mine, its, err_msg=name)


# ---------------------------------------------------------------- statistics


@settings(max_examples=6)
@given(SEED, st.booleans())
def test_the_order_of_items_does_not_matter(seed, joint):
    frame = drawn_items(seed)
    mixed = frame.sample(frac=1.0, random_state=seed)
    one, two = (summed(f, bins=7, joint=joint, folds=3) for f in (frame, mixed))
    assert_close(one, two)


@settings(max_examples=6)
@given(SEED, st.integers(2, 12), st.data())
def test_wider_bins_are_sums_of_narrow_ones(seed, bins, data):
    """Adding edges and taking them away again: the same as the wide bins from the items."""
    frame = drawn_items(seed)
    fine = summed(frame, bins=bins, folds=2, joint=False)
    kept = data.draw(st.lists(st.sampled_from(fine.edges.tolist()), unique=True).map(sorted))
    coarse = summed(frame, edges=kept, folds=2, joint=False)
    assert_close(coarsened(fine, kept), coarse)
    assert fine.n_items == coarse.n_items == len(frame)
    assert fine.total_count == coarse.total_count == frame["y"].sum()


@settings(max_examples=5)
@given(SEED, st.integers(-12, 12))
def test_units_of_exposure_are_free(seed, octaves):
    """In another unit (a power of 2) counts and bins stay; sums of N take on its powers."""
    factor = 2.0**octaves
    one, two = (summed(drawn_items(seed, factor=f), bins=6) for f in (1.0, factor))
    np.testing.assert_array_equal(one.edges, two.edges)
    for name in one.data.variables:
        power = 0
        if name in ("sum_N", "part_sum_N"):
            power = 1
        elif name.endswith(("cell", "label", "above", "log_N")):
            continue
        elif name.startswith(("exposure_sum_", "joint_sum_")) and "N" in name:
            power = int(name[-1]) if name[-1].isdigit() else 1
        np.testing.assert_array_equal(
            one.data[name].to_numpy() * factor**power, two.data[name].to_numpy(), err_msg=name
        )


@settings(max_examples=5)
@given(SEED, st.integers(-6, 6))
def test_fits_are_equivariant_in_exposure(seed, octaves):
    """Rates of events in another unit of exposure: E(theta | t) takes it on, cv2 does not."""
    factor = 2.0**octaves
    method = soc.FiveSteps(smooth=False)
    one, two = (
        soc.fit(
            summed(drawn_items(seed, 600, f), edges=[0.03, 0.06, 0.1]),
            method=method,
            progress=False,
        ).data["posterior"]
        for f in (1.0, factor)
    )
    # a bin's maximum is found to about 1e-8 of its flat log likelihood: 1e-4 in the shape
    means = [(p["shape"] / p["rate"]).to_numpy() for p in (one, two)]
    np.testing.assert_allclose(means[0], means[1] * factor, rtol=1e-4)
    shapes = [p["shape"].to_numpy() for p in (one, two)]
    clear = np.minimum(*shapes) < 1e3  # all but Poisson: the shape may be any large number
    np.testing.assert_allclose(shapes[0][clear], shapes[1][clear], rtol=1e-3)


# ---------------------------------------------------------------- conjugate laws


@given(POSITIVE, POSITIVE, OUTCOMES, st.randoms(use_true_random=False))
def test_gamma_updates_in_any_order_and_at_once(shape, rate, outcomes, random):
    mixed = list(outcomes)
    random.shuffle(mixed)
    whole = pg.update(shape, rate, sum(y for y, _ in outcomes), sum(x for _, x in outcomes))
    for some in (outcomes, mixed):
        now = (shape, rate)
        for y, x in some:
            now = pg.update(*now, y, x)
        np.testing.assert_allclose(now, whole, rtol=1e-14)


@given(st.floats(-50, 50), POSITIVE, VALUES, st.randoms(use_true_random=False))
def test_normal_updates_in_any_order_and_at_once(mean, variance, outcomes, random):
    mixed = list(outcomes)
    random.shuffle(mixed)
    precision = 1 / variance + sum(1 / w for _, w in outcomes)
    centre = (mean / variance + sum(y / w for y, w in outcomes)) / precision
    size = (abs(mean) / variance + sum(abs(y) / w for y, w in outcomes)) / precision
    for some in (outcomes, mixed):
        now = (mean, variance)
        for y, w in some:
            now = nn.update(*now, y, w)
        assert now[1] == pytest.approx(1 / precision, rel=1e-12)
        assert abs(now[0] - centre) <= 1e-12 * size  # what cancels counts before it does


@given(POSITIVE, POSITIVE, st.integers(0, 1000), st.floats(1e-3, 1e4))
def test_gamma_posterior_lies_between_prior_and_data(shape, rate, count, exposure):
    prior, data = shape / rate, count / exposure
    post = pg.mean(*pg.update(shape, rate, count, exposure))
    slack = 1e-12 * max(prior, data)
    assert min(prior, data) - slack <= post <= max(prior, data) + slack
    assert pg.update(shape, rate, 0, 0.0) == (shape, rate)


@given(st.floats(-50, 50), POSITIVE, st.floats(-50, 50), st.floats(1e-2, 1e2))
def test_normal_posterior_lies_between_prior_and_value(mean, variance, value, noise):
    centre, spread = nn.update(mean, variance, value, noise)
    slack = 1e-12 * (abs(mean) + abs(value))
    assert min(mean, value) - slack <= centre <= max(mean, value) + slack
    assert spread <= min(variance, noise) * (1 + 1e-12)


@settings(max_examples=40)
@given(st.floats(-5, 1), st.floats(-6, 2), st.floats(0.1, 50))
def test_law_of_total_variance_of_counts(log_mean, log_cv2, exposure):
    """E Var(theta | y) + Var E(theta | y) over the counts' own law is the prior's variance."""
    shape, rate = pg.shape_rate(log_mean, log_cv2)
    top = int(scipy_stats.nbinom.isf(1e-13, shape, rate / (rate + exposure))) + 50
    assume(top < 200_000)
    y = np.arange(top + 1.0)
    p = np.exp(pg.log_pmf(y, exposure, log_mean, log_cv2))
    after = pg.update(shape, rate, y, exposure)
    mean, variance = pg.mean(*after), pg.variance(*after)
    assert p.sum() == pytest.approx(1.0, abs=1e-10)
    assert p @ mean == pytest.approx(shape / rate, rel=1e-8)
    total = p @ variance + p @ (mean - shape / rate) ** 2
    assert total == pytest.approx(float(pg.variance(shape, rate)), rel=1e-6)


@given(st.floats(-50, 50), POSITIVE, st.floats(1e-2, 1e2))
def test_law_of_total_variance_of_values(mean, variance, noise):
    """The posterior mean is linear in y, whose variance is the prior's plus the noise's."""
    slope = nn.update(0.0, variance, 1.0, noise)[0]
    after = nn.update(mean, variance, mean, noise)[1]
    outcome = nn.moments(mean, variance, noise)[1]
    assert after + slope**2 * outcome == pytest.approx(variance, rel=1e-12)


@settings(max_examples=40)
@given(st.floats(-4, 1), st.floats(-5, 1), st.floats(0.1, 30), st.floats(0.01, 0.99))
def test_pit_of_counts_is_uniform_under_the_model(log_mean, log_cv2, exposure, at):
    """A share u of the probability of all counts lies below u, when steps are spread evenly."""
    shape, rate = pg.shape_rate(log_mean, log_cv2)
    top = int(scipy_stats.nbinom.isf(1e-13, shape, rate / (rate + exposure))) + 50
    assume(top < 100_000)
    y = np.arange(top + 1.0)
    high = pg.cdf(y, exposure, log_mean, log_cv2)
    low = np.concatenate([[0.0], high[:-1]])
    p = np.exp(pg.log_pmf(y, exposure, log_mean, log_cv2))
    wide = np.where(high > low, high - low, 1.0)
    below = np.where(high > low, np.clip((at - low) / wide, 0.0, 1.0), low < at)
    assert p @ below == pytest.approx(at, abs=1e-8)


# ---------------------------------------------------------------- curves


KNOTS = st.lists(st.integers(-50, 50), min_size=2, max_size=9, unique=True).map(sorted)


@given(KNOTS, st.floats(-3, 3), st.floats(-3, 3), st.floats(0.1, 10), st.floats(-20, 20))
def test_splines_keep_lines_and_know_no_units(knots, level, slope, factor, shift):
    """Straight lines are reproduced, beyond the knots too; a change of unit changes nothing."""
    at = np.linspace(knots[0] - 5, knots[-1] + 5, 23)
    knots = np.array(knots, dtype=float)
    matrix = spline_matrix(at, knots)
    line = level + slope * at
    size = 1 + np.abs(line).max() * np.abs(matrix).sum(axis=1).max()
    np.testing.assert_allclose(matrix @ (level + slope * knots), line, atol=1e-10 * size)
    moved = spline_matrix(factor * at + shift, factor * knots + shift)
    np.testing.assert_allclose(moved, matrix, atol=1e-8 * (1 + np.abs(matrix).max()))


@given(SEED, st.floats(0.05, 0.95), st.floats(0.01, 0.04))
def test_bands_are_nested(seed, prob, more):
    """Wider for more probability, simultaneous ones widest, free of the order of draws."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(1, 60, 5)).cumsum(axis=2)
    curves = xr.Dataset({"mean": (("chain", "draw", "score"), values)}, {"score": np.arange(5.0)})
    narrow, wide = (soc.bands(curves, p)["mean"].to_numpy() for p in (prob, prob + more))
    whole = soc.bands(curves, prob, simultaneous=True)["mean"].to_numpy()
    axis = next(i for i, n in enumerate(narrow.shape) if n != 5)
    low, high = (lambda b: b.min(axis=axis)), (lambda b: b.max(axis=axis))
    assert (low(wide) <= low(narrow) + 1e-12).all()
    assert (high(wide) >= high(narrow) - 1e-12).all()
    assert (low(whole) <= low(narrow) + 1e-12).all()
    assert (high(whole) >= high(narrow) - 1e-12).all()
    mixed = curves.isel(draw=rng.permutation(60))
    np.testing.assert_allclose(soc.bands(mixed, prob)["mean"].to_numpy(), narrow, atol=1e-12)


# ---------------------------------------------------------------- files


LABELS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=5)
@given(
    SEED, st.lists(LABELS, min_size=1, max_size=3, unique=True), st.booleans(), st.integers(0, 1)
)
@example(3, ["<b>", "a\x1b[2J", "\u202e"], True, 1)
@pytest.mark.slow
def test_statistics_come_back_bit_for_bit(tmp_path_factory, seed, labels, joint, folds):
    path = tmp_path_factory.mktemp("saved") / "s.nc"
    frame = drawn_items(seed, 120).assign(g=[labels[k % len(labels)] for k in range(120)])
    frame = frame[frame["g"] != ""]
    assume(len(frame) > 30)
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N", group="g")
    options = {"bins": 4, "joint": joint, "folds": 2 * folds, "on_leakage": "ignore"}
    stats = soc.summarize(items, progress=False, **options)
    stats.save(path)
    again = soc.load_statistics(path)
    assert again.data.identical(stats.data)
    assert again.groups == stats.groups
    assert_close(again + stats, stats + again)


@settings(max_examples=5)
@given(
    SEED,
    st.sampled_from([soc.FiveSteps(), soc.FiveSteps(smooth=False), soc.FiveSteps(every=2)]),
    st.builds(
        soc.Spline,
        knots=st.integers(1, 9) | st.integers(1, 9).map(np.int64),
        scale=st.sampled_from(["log", "linear", "rank"]),
    ),
)
def test_fits_come_back_bit_for_bit(tmp_path_factory, seed, method, mean):
    path = tmp_path_factory.mktemp("saved") / "f.nc"
    stats = summed(drawn_items(seed, 300), bins=6)
    try:
        fit = soc.fit(stats, soc.Gamma(mean=soc.Spline(scale=mean.scale)), method, progress=False)
    except soc.FitError:
        assume(False)
    fit = Fit(fit.data, soc.Gamma(mean=mean), fit.method, fit.status)
    fit.save(path)
    again = soc.load_fit(path)
    assert again.data.identical(fit.data)
    assert (again.prior, again.method, again.status) == (fit.prior, fit.method, fit.status)


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.lists(st.floats(width=64), min_size=2, max_size=2)
        | st.lists(LABELS, min_size=2, max_size=2),
        min_size=1,
    ),
    st.data(),
)
def test_digests_tell_every_change_of_a_value(columns, data):
    def of(values):
        return xr.Dataset({k: ("row", np.array(v)) for k, v in values.items()})

    whole = of(columns)
    assert content_digest(whole) == content_digest(of(dict(reversed(columns.items()))))
    name = data.draw(st.sampled_from(sorted(columns)))
    first, second = columns[name]
    other = "x" + first if isinstance(first, str) else np.nextafter(first, 1.0)
    assume(first == first)
    assert content_digest(of({**columns, name: [other, second]})) != content_digest(whole)
    assert content_digest(of({f"{k}_": v for k, v in columns.items()})) != content_digest(whole)
