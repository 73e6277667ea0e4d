"""Amounts over events: quadrature, simulated truth, engines, maximum likelihood, and refusals."""

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special, stats

import soc_pymc as soc
from soc_pymc._model.rows import rows_of
from soc_pymc.data.shapes import estimated_shape, moments
from soc_pymc.families import FAMILIES
from soc_pymc.inference.polynomials import NearRows
from soc_pymc.posterior.prior_build import table_of
from tests.examples import AMOUNT_ROLES, QUIET
from tests.posterior import references as ref

OVER = ("chain", "draw")


def simulated(n, shape, seed, cv2=0.25):
    """Returns amounts of 1 to 1,000 events whose theta varies more at larger scores."""
    rng = np.random.default_rng(seed)
    score = rng.lognormal(0.0, 0.6, n)
    a = 2.0 + 1.0 / (cv2 * score**0.3)
    theta = 1.1 * score**0.9 * (a - 1.0) / rng.standard_gamma(a)
    events = np.minimum(np.ceil(rng.lognormal(1.2, 1.6, n)), 1000.0)
    amount = theta / shape * rng.standard_gamma(shape * events)
    columns = {"score": score, "amount": amount, "events": events, "theta": theta}
    return pd.DataFrame(columns)


def items_of(frame, shape=1.0, **options):
    return soc.AmountItems(frame, **AMOUNT_ROLES, shape=shape, **options)


@pytest.mark.parametrize("shape", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("curves", [(0.4, -1.0), (-3.0, 0.8), (2.0, -9.0)])
def test_closed_forms_are_quadrature_over_theta(shape, curves):
    """The trapezoid rule in log theta: marginal, P(Y < y), mean and sd given y, to 1e-9."""
    family = FAMILIES["InverseGamma"].given({"shape": shape})
    a, b = (float(x) for x in family.to_parameters(*map(np.array, curves)))
    prior = stats.invgamma(a, scale=b)
    spread = np.sqrt(special.polygamma(1, a))
    log_theta = np.log(b) - special.psi(a) + spread * np.linspace(-30.0, 60.0, 60_001)
    theta = np.exp(log_theta)
    log_weight = prior.logpdf(theta) + log_theta + np.log(log_theta[1] - log_theta[0])
    for events in (1.0, 7.0, 400.0):
        law = stats.gamma(shape * events, scale=theta / shape)
        for y in events * np.exp(curves[0]) * np.array([0.2, 1.0, 3.0]):
            log_joint = log_weight + law.logpdf(y)
            log_marginal = special.logsumexp(log_joint)
            joint = np.exp(log_joint - log_marginal)
            result = family.log_marginal(y, events, a, b)
            assert result == pytest.approx(log_marginal, abs=1e-9, rel=1e-11)
            below = family.below(y, events, a, b)
            assert below == pytest.approx(np.exp(log_weight) @ law.cdf(y), abs=1e-9)
            after = family.update(a, b, y, events)
            mean = joint @ theta
            assert family.mean(*after) == pytest.approx(mean, rel=1e-9)
            variance = joint @ (theta - mean) ** 2
            assert family.variance(*after) == pytest.approx(variance, rel=1e-8)


def test_rows_of_many_amounts_are_nearly_their_items():
    """5,000 items a bin, by a hundred nodes of a lattice, to 1e-3 nats at any variance."""
    frame = simulated(20_000, 1.0, 5)
    statistics = soc.summarize(items_of(frame), bins=4, on_leakage="ignore", **QUIET)
    sums = rows_of(statistics, FAMILIES["InverseGamma"])[1]
    assert np.diff(sums.points.start).max() < 110
    row = np.searchsorted(statistics.edges, frame["score"], side="right")
    y, n = (frame[name].to_numpy() for name in ("amount", "events"))
    mean = np.log(np.bincount(row, y) / np.bincount(row, n))
    for log_cv2 in (-9.0, -2.0, 1.5):
        each = FAMILIES["InverseGamma"].log_density(y, n, mean[row], np.full(len(y), log_cv2))
        result = sums.values(mean[None], np.full((1, 4), log_cv2))[0]
        assert np.abs(result - np.bincount(row, each)).max() < 1e-3


def test_residual_squares_of_equal_theta_are_noise():
    """Means and variances over 40,000 groups of seven items; thinned parts are independent."""
    rng, shape, groups = np.random.default_rng(2), 0.8, 40_000
    kind = FAMILIES["InverseGamma"].given({"shape": shape}).outcome
    events = np.array([4.0, 5.0, 6.0, 7.0, 4.0, 7.0, 5.0])
    y = rng.standard_gamma(shape * events, (groups, 7))
    powers = {"sum_N": events, "sum_N2": events**2, "sum_y": y, "sum_yN": y * events}
    powers |= {"sum_y2": y**2, "n": np.ones(7)}
    sums = {name: np.broadcast_to(x, y.shape).sum(axis=1) for name, x in powers.items()}
    _, excess, variance, _ = kind.excess_squares(sums, {})
    assert abs(excess.mean()) < 4.0 * np.sqrt(variance[0] / groups)
    np.testing.assert_allclose(excess.var(), variance[0], rtol=0.1)
    size = np.full(groups, 7.0)
    total = rng.standard_gamma(shape * size)
    held = kind.thinned(total, size, 0.3, rng)
    rest = kind.remainder(total, size, held, 0.3)
    share = [stats.gamma(shape * np.maximum(n, 1.0)).cdf(part) for part, n in (held, rest)]
    both = (held[1] > 0) & (rest[1] > 0)
    assert all(stats.kstest(x[both], "uniform").pvalue > 1e-3 for x in share)
    assert abs(np.corrcoef(share[0][both], share[1][both])[0, 1]) < 4.0 / np.sqrt(both.sum())
    four = np.full(groups, 4.0)
    contrast, weight = kind.contrast(y[:, 0], four, y[:, 4], four)
    np.testing.assert_allclose((contrast**2).mean(), weight.mean(), rtol=0.2)


def covered(n, shape, seeds):
    """Returns whether 90% intervals hold theta, with fifths of score and events."""
    parts = []
    for seed in seeds:
        frame = simulated(n, shape, seed)
        items = items_of(frame, shape)
        fit = soc.fit(soc.summarize(items, on_leakage="ignore", **QUIET), **QUIET)
        assert fit.status.pareto_k < 0.7
        scored = soc.item_posteriors(fit, items, **QUIET)
        inside = scored["theta"].between(scored["theta_q05"], scored["theta_q95"])
        fifths = {
            name: pd.qcut(frame[name].rank(method="first"), 5, labels=False)
            for name in ("score", "events")
        }
        parts.append(pd.DataFrame({"inside": inside, "seed": seed, **fifths}))
    return pd.concat(parts)


def assert_covers(table):
    """Within 4 standard errors of 0.9, or between 0.88 and 0.92 where these are smaller.

    Items of one set share its curves: errors are those between sets where these are larger.
    """
    for name in ("score", "events"):
        groups = table.groupby(name)["inside"]
        sets = table.groupby([name, "seed"])["inside"].mean().groupby(name)
        between = (sets.std() / np.sqrt(sets.size())).fillna(0.0)
        error = np.maximum(np.sqrt(0.09 / groups.size()), between)
        assert (np.abs(groups.mean() - 0.9) < np.maximum(0.02, 4.0 * error)).all(), groups.mean()


def test_intervals_cover():
    assert_covers(covered(4000, 0.7, [1]))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.6, 1.0, 5.0])
@pytest.mark.parametrize(("n", "sets"), [(20, 60), (200, 20), (2000, 6), (20_000, 2)])
def test_intervals_cover_at_every_size(n, sets, shape):
    assert_covers(covered(n, shape, range(sets)))


@pytest.mark.slow
@pytest.mark.parametrize("prior", [soc.InverseGamma(), soc.InverseGammaMixture()])
def test_variational_fits_agree_with_nuts(prior):
    """Means within 0.15 sd (0.3 of mixtures) and sds within 0.88 to 1.12 (0.84 to 1.19)."""
    stats_ = soc.summarize(items_of(simulated(2000, 2.0, 3), 2.0), bins=20, joint=True, **QUIET)
    draws = [
        soc.calibration_curves(soc.fit(stats_, prior, method, **QUIET), [0.4, 1.0, 2.5])
        for method in (soc.VI(), soc.NUTS(draws=1500))
    ]
    shift, ratio = (0.3, 1.19) if prior.mixture else (0.15, 1.0 / 0.88)
    for name in ("log_mean", "log_cv2"):
        vi, nuts = (
            x[name] if name in x else np.log(x["variance"]) - 2 * np.log(x["mean"]) for x in draws
        )
        sd = nuts.std(OVER)
        assert (np.abs(vi.mean(OVER) - nuts.mean(OVER)) < shift * sd).all()
        assert (np.abs(np.log(vi.std(OVER) / sd)) < np.log(ratio)).all()


@pytest.mark.slow
def test_a_cv2_without_bound_flags_no_items(tmp_path):
    """Theta of a Gamma takes cv2 to 1e4: all forms agree, and err by 5e-3 posterior sd.

    A third of the items have no events, whose cells have many nodes; those of others have few.
    """
    frame = soc.simulation.s1(20_000, 1)
    shape = np.maximum(frame["exposure"], 1.0)
    noise = np.random.default_rng(1).standard_gamma(shape)
    frame = frame.assign(amount=frame["theta"] * noise, events=shape)
    frame = frame[frame["score"] < np.quantile(frame["score"], 0.3)]
    fit = soc.fit(soc.summarize(items_of(frame), bins=40, **QUIET), **QUIET)
    few = frame.assign(amount=frame["amount"] * (np.arange(len(frame)) % 3 > 0))
    few = few.assign(events=few["events"] * (few["amount"] > 0))[::20]
    few = few[[*AMOUNT_ROLES.values()]].assign(id=np.arange(len(few)))
    forms, _ = ref.scored_in_every_form(fit, items_of(few), tmp_path)
    exact, batch = forms["exact"].reset_index(), forms["batch"].reset_index()
    close = ~forms["parquet"]["flagged"]
    assert close.mean() > 0.97
    for name in ("theta_mean", "theta_sd", "theta_q05", "theta_q95"):
        gap = np.abs(batch[name] - exact[name]) / exact["theta_sd"]
        assert gap[close].max() < 5e-3
        rtol = 1e-6 if "_q" in name else 1e-12
        for form in ("parquet", "json", "sql"):
            np.testing.assert_allclose(forms[form][name][close], batch[name][close], rtol=rtol)
    nodes = table_of(fit.curves).nodes("")["node"]
    number = np.diff(np.flatnonzero(np.append(nodes == 0, True)))
    assert np.median(number[::2]) < 0.5 * np.median(number[1::2])


@pytest.mark.parametrize(
    ("n", "reach", "least", "most"),
    [(3000, 0.1, (-1.0, 6.0), (1.0, 16.0)), (20_000, 3.0, (-2.0, 3.0), (1.0, 12.0))],
)
def test_polynomials_hold_where_cv2_has_no_bound(n, reach, least, most):
    """In every row, of log cv2 to 16, also of wide boxes: values to 1e-3 nats, slopes to 0.02."""
    stats_ = soc.summarize(items_of(simulated(n, 1.0, 3)), bins=12, **QUIET)
    data = rows_of(stats_, stats_.family)[1]
    centre = np.log(data.total / data.number)
    low = np.stack([centre - reach, np.linspace(*least, len(centre))])
    high = np.stack([centre + reach, np.linspace(*most, len(centre))])
    near = NearRows.of(data, low, high)
    assert near.surrogates.reach.min() > 0
    assert 0 < len(near.bent) < len(centre)
    place = np.random.default_rng(4).uniform(-0.2, 1.2, (2, 12, 300))
    curves = low[..., None] + place * (high - low)[..., None]
    exact = data.value_and_gradient(*curves.mT).mT
    value, slopes = near.values_and_slopes(*curves)
    np.testing.assert_allclose(value, exact[0], rtol=0, atol=1e-3)
    np.testing.assert_allclose(slopes, exact[1:], rtol=1e-5, atol=0.02)


def test_without_a_score_estimates_are_those_of_maximum_likelihood():
    """A Gamma-Gamma model: mean and cv2 by Nelder and Mead, posteriors to half a sd."""
    frame = simulated(1500, 1.5, 8).assign(score=1.0)
    family = FAMILIES["InverseGamma"].given({"shape": 1.5})
    y, n = (frame[name].to_numpy() for name in ("amount", "events"))

    def loss(curves):
        return -family.log_density(y, n, *curves).sum()

    best = optimize.minimize(loss, [0.0, -1.0], method="Nelder-Mead").x
    items = soc.AmountItems(frame, score=None, amount="amount", events="events", shape=1.5)
    fit = soc.fit(soc.summarize(items, **QUIET), **QUIET)
    curves = soc.calibration_curves(fit)
    log_cv2 = np.log(curves["variance"]) - 2.0 * np.log(curves["mean"])
    for draws, known in ((np.log(curves["mean"]), best[0]), (log_cv2, best[1])):
        assert (np.abs(draws.mean(OVER) - known) < 0.5 * draws.std(OVER)).all()
    after = family.update(*family.to_parameters(*best), y, n)
    scored = soc.item_posteriors(fit, items, **QUIET)
    gap = np.abs(scored["theta_mean"] - family.mean(*after)) / np.sqrt(family.variance(*after))
    assert gap.max() < 0.5


@pytest.mark.slow
def test_a_wrong_shape_is_named():
    """Amounts of shape 0.6 taken for 1.5: the first remedy is a shape within a fifth of 0.6."""
    frame = simulated(4000, 0.6, 1)
    remedies = {}
    for shape in (0.6, 1.5):
        items = items_of(frame, shape)
        fit = soc.fit(soc.summarize(items, **QUIET), **QUIET)
        remedies[shape] = soc.check(fit, items, **QUIET).remedies
    first = remedies[1.5][0]
    assert first.check == "shape of amounts"
    assert 0.48 < first.roles["shape"] < 0.72
    assert first.nats > 5.0 * first.error
    assert first.check not in [remedy.check for remedy in remedies[0.6]]
    with pytest.raises(soc.ItemsError, match=r"\(or shape= is too small\)"):
        soc.summarize(items_of(frame, 0.2), **QUIET)


def singles(n, shape, seed):
    """Returns items of 1 or more amounts each, with the sums of their squares."""
    rng = np.random.default_rng(seed)
    events = 1 + rng.poisson(2.0, n)
    item = np.repeat(np.arange(n), events)
    theta = rng.lognormal(3.0, 1.0, n)
    amount = theta[item] * rng.gamma(shape, 1.0 / shape, len(item))
    columns = {"score": theta, "events": events, "amount": np.bincount(item, amount)}
    return pd.DataFrame({**columns, "squares": np.bincount(item, amount**2)})


def test_estimated_shapes_are_within_their_errors():
    """Standardised errors of 160 tables of 300 items: mean 0 and sd 1, to 4 standard errors."""
    errors = []
    for shape in (0.4, 1.0, 3.0, 100.0):
        for seed in range(40):
            table = singles(300, shape, seed).query("events > 1")
            share = table["squares"] / table["amount"] ** 2
            sums = share.groupby(table["events"]).agg(["size", "sum"])
            n = sums.index.to_numpy(float)
            items, shares = sums.to_numpy(float).T
            estimate = estimated_shape(n, items, shares, "squares")
            _, variance = moments(n, shape)
            slope = (n - 1.0) / (n * shape + 1.0) ** 2
            errors.append((estimate - shape) * np.sqrt((items * slope**2 / variance).sum()))
    assert abs(np.mean(errors)) < 4.0 / np.sqrt(len(errors))
    assert abs(np.std(errors) - 1.0) < 4.0 / np.sqrt(2.0 * len(errors))


@pytest.mark.parametrize("k", [1e-3, 1.0, 1e6])
def test_moments_of_squared_shares(k):
    """Two amounts, whose first share is Beta(k, k): raw moments of the sum of squares."""
    with mp.workdps(60):
        x = mp.mpf(k)
        raw = [mp.beta(x + i, x + j) / mp.beta(x, x) for i, j in ((2, 0), (4, 0), (2, 2))]
        mean = 2 * raw[0]
        variance = 2 * raw[1] + 2 * raw[2] - mean**2
    assert moments(np.array([2.0]), k) == pytest.approx((float(mean), float(variance)), rel=1e-12)


def test_a_shape_is_estimated_from_squares(tmp_path):
    """Sums, averages and files give one shape, which the items keep; what lacks is named."""
    frame = singles(4000, 1.7, 0)
    frame["average"] = frame["amount"] / frame["events"]
    frame.to_parquet(tmp_path / "items.parquet")
    roles = {"score": "score", "events": "events", "squares": "squares", "shape": "estimate"}
    items = soc.AmountItems(frame, amount="amount", **roles)
    assert items.shape == pytest.approx(1.7, abs=0.15)  # 4 standard errors
    assert soc.summarize(items, **QUIET).family.attrs["shape"] == items.shape
    assert f"shape={items.shape!r})" in repr(items)
    for source, amount in ((frame, "average"), (str(tmp_path / "items.parquet"), "amount")):
        other = soc.AmountItems(source, **{amount: amount}, **roles)
        assert other.shape == pytest.approx(items.shape, rel=1e-9)
    equal = frame.assign(squares=frame["amount"] ** 2 / frame["events"])
    several = frame[frame["events"] > 1]
    wrong = several.assign(squares=several["squares"].where(several.index != several.index[0]))
    text = frame.assign(squares="many")
    for table, words in (
        (frame[frame["events"] < 2], "'events' has none"),
        (equal, "differ hardly"),
        (wrong, f"1 of {len(several):,} items of 2 or more events are beyond"),
        (text, "'squares' must hold numbers, not string"),
    ):
        with pytest.raises(soc.ItemsError, match=words):
            soc.AmountItems(table, amount="amount", **roles)
    with pytest.raises(soc.ItemsError, match='squares= is for shape="estimate"'):
        soc.AmountItems(frame, amount="amount", **roles | {"shape": 2.0})


def test_what_is_not_supported_is_refused(example):
    frame, stats_ = example("inverse_gamma").frame, example("inverse_gamma").statistics
    for shape, words in (("estimate", "needs squares=, the column"), (0.0, "number between")):
        with pytest.raises(soc.ItemsError, match=words):
            items_of(frame, shape)
    with pytest.raises(soc.StatisticsError, match="different shape"):
        stats_ + soc.summarize(items_of(frame), edges=stats_.edges, **QUIET)
    with pytest.raises(soc.FitError, match="zero=True is not for amounts"):
        soc.fit(stats_, soc.InverseGamma(zero=True), **QUIET)
    with pytest.raises(soc.FitError, match="five steps have no moments"):
        soc.fit(stats_, method=soc.FiveSteps(), **QUIET)
    with pytest.raises(soc.ItemsError, match="these have shape=1: give both the same"):
        soc.item_posteriors(example("inverse_gamma").fit, items_of(frame), **QUIET)
