"""Decisions from fits: agreement with posteriors, shared curves, laws, and simulated truth."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import integrate, stats

import soc_pymc as soc
from soc_pymc import decisions as dec
from soc_pymc._lib import arguments
from soc_pymc.checks.predictive import thin
from soc_pymc.evaluate.decisions import choices, ranking
from soc_pymc.families.family import family_of
from soc_pymc.inference.results import Fit
from soc_pymc.posterior.predictive import posterior_of

QUIET = {"progress": False}
LIKE_COUNTS = {"score": "t", "count": "y", "exposure": "N"}
LIKE_VALUES = {"score": "t", "value": "y", "noise_sd": "s"}


def with_curves(fit, log_mean, log_cv2):
    """The fit with given draws of curves that do not depend on the score, one a number."""
    whole = fit.data["posterior"].to_dataset()
    chains = [whole.isel(chain=k, drop=True) for k in range(whole.sizes["chain"])]
    at = np.arange(len(log_mean))
    posterior = xr.concat(chains, "draw").isel(draw=at).assign_coords(draw=at)
    posterior = posterior.expand_dims(chain=[0])
    for name, values in (("log_mean", log_mean), ("log_cv2", log_cv2)):
        knots = posterior[name].sizes[posterior[name].dims[-1]]
        whole = np.repeat(np.asarray(values, dtype=float)[None, :, None], knots, axis=2)
        posterior[name] = (posterior[name].dims, whole)
    groups = {name: node.to_dataset() for name, node in fit.data.children.items()}
    tree = xr.DataTree.from_dict({**groups, "posterior": posterior})
    tree.attrs = fit.data.attrs
    return Fit(tree, fit.prior, fit.method, fit.status)


def counts(count, exposure):
    n = len(count)
    frame = pd.DataFrame({"t": np.full(n, 0.05), "y": count, "N": np.broadcast_to(exposure, n)})
    return soc.PoissonItems(frame, **LIKE_COUNTS)


@pytest.fixture(scope="module")
def some_items(small_frame):
    frame = small_frame.head(300)
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


def count_frame(n=1500):
    rng = np.random.default_rng(3)
    t = np.exp(rng.normal(np.log(0.02), 0.8, n))
    exposure = np.ceil(np.exp(rng.normal(np.log(80.0), 1.2, n)))
    theta = t * np.exp(0.7 * rng.normal(size=n))
    group = rng.choice(["a", "b"], n)
    return pd.DataFrame({"t": t, "y": rng.poisson(theta * exposure), "N": exposure, "g": group})


def value_frame(n=1500):
    rng = np.random.default_rng(4)
    t, noise = rng.normal(size=n), rng.choice([0.5, 1.0], n)
    value = rng.normal(t + rng.laplace(scale=0.7, size=n), noise)
    return pd.DataFrame({"t": t, "y": value, "s": noise})


def five_steps(kind):
    prior = {"Normal": soc.Normal(), "mixed counts": soc.GammaMixture()}
    prior |= {"mixed values": soc.NormalMixture()}
    values = kind in ("Normal", "mixed values")
    frame = value_frame() if values else count_frame()
    roles = LIKE_VALUES if values else LIKE_COUNTS
    roles = {**roles, "group": "g"} if kind == "groups" else roles
    make = soc.NormalItems if values else soc.PoissonItems
    items = make(frame, **roles)
    stats_ = soc.summarize(items, bins=20, joint="mixed" in kind, **QUIET)
    method = soc.FiveSteps(smooth=False) if kind == "by bin" else soc.FiveSteps()
    own = soc.Gamma(groups=True) if kind == "groups" else prior.get(kind, soc.Gamma())
    return soc.fit(stats_, own, method=method, **QUIET), make(frame.head(200), **roles)


def agree_with_posteriors(fit, items, more):
    """Every decision against mean, sd and quantiles of the same posteriors."""
    table = soc.item_posteriors(fit, items, quantiles=(0.1, 0.9), draws="all", **QUIET)
    mean, sd = table["theta_mean"].to_numpy(), table["theta_sd"].to_numpy()
    for p, name in ((0.1, "theta_q10"), (0.9, "theta_q90")):
        above = dec.probability_above(fit, items, table[name], **QUIET)
        assert above.to_numpy() == pytest.approx(1.0 - p, abs=2e-3)  # quantiles are to 1e-3 sd
    assert dec.risk_adjusted(fit, items, **QUIET).to_numpy() == pytest.approx(table["theta_q10"])
    cut = float(np.median(mean))
    loss = dec.expected_loss(fit, items, cut, cost_above=2.0, cost_below=4.0, **QUIET)
    over, short = loss["loss_if_not"] / 2.0, loss["loss_if_chosen"] / 4.0
    assert (over - short).to_numpy() == pytest.approx(mean - cut, abs=1e-9 * np.abs(mean).max())
    theta = dec.thompson_draws(fit, items, 400, **QUIET).to_numpy()
    # mean of 400 draws: 5 standard errors for 200 items
    assert np.abs((theta.mean(axis=0) - mean) / (sd / 20.0)).max() < 5.0
    gain = dec.value_of_exposure(fit, items, more, threshold=cut, **QUIET)
    assert gain["sd_now"].to_numpy() == pytest.approx(sd, rel=1e-6)
    larger = dec.value_of_exposure(fit, items, 4 * more if "N" in table else more / 2, **QUIET)
    assert (larger["sd_after"] < gain["sd_after"]).all()
    assert (gain["sd_after"] < gain["sd_now"]).all()
    assert (gain["value"] >= 0).all()
    best = dec.probability_best(fit, items, 5, draws=400, **QUIET)
    assert best["probability"].sum() == pytest.approx(5.0, abs=1e-3)
    hits = (theta.argsort(axis=1).argsort(axis=1) >= len(mean) - 5).mean(axis=0)
    spread = np.sqrt(hits * (1 - hits) / 400 + best["error"] ** 2 + 1e-4)
    assert (np.abs(best["probability"] - hits) < 5 * spread).all()


@pytest.mark.parametrize(
    "kind", ["Gamma", "Normal", "groups", "by bin", "mixed counts", "mixed values"]
)
@pytest.mark.slow
def test_one_draw_fits_agree_with_posteriors(kind):
    fit, items = five_steps(kind)
    agree_with_posteriors(fit, items, 100.0 if "N" in items.source else 0.5)


def test_draws_agree_with_posteriors(small_fit, some_items):
    fit = thin(small_fit, 400)
    items = soc.PoissonItems(some_items.source.assign(N=0), **some_items.roles)
    agree_with_posteriors(fit, items, 100.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixed counts", "mixed values", "groups", "exposure", "effects"])
def test_other_fits_agree_with_posteriors(kind):
    values = kind == "mixed values"
    frame, make = (value_frame(), soc.NormalItems) if values else (count_frame(), soc.PoissonItems)
    roles = LIKE_VALUES if values else LIKE_COUNTS
    roles = {**roles, "group": "g"} if kind == "groups" else roles
    priors = {
        "mixed counts": soc.GammaMixture(),
        "mixed values": soc.NormalMixture(),
        "groups": soc.Gamma(groups=True),
        "exposure": soc.Gamma(exposure=soc.Spline()),
        "effects": soc.Gamma(bin_effects=True),
    }
    joint = "mixed" in kind or kind == "exposure"
    stats = soc.summarize(make(frame, **roles), joint=joint, **QUIET)
    fit = soc.fit(stats, priors[kind], soc.VI(draws=400), **QUIET)
    some = frame.head(200).assign(g="new") if kind == "groups" else frame.head(200)
    agree_with_posteriors(fit, make(some, **roles), 0.5 if values else 100.0)


# --- curves are shared -------------------------------------------------------------------------


def test_items_move_together(small_fit, some_items):
    """The mean over items varies as much as its mean given the curves, which all of them share."""
    theta = dec.thompson_draws(small_fit, some_items, 2000, seed=5, **QUIET)
    law = posterior_of(small_fit)
    columns = {
        role: some_items.source[name].to_numpy(dtype=float)
        for role, name in some_items.roles.items()
    }
    means, variances, _ = law.moments(columns)
    n = len(some_items.source)
    own = variances.mean() / n
    together = means.mean(axis=1).var() + own
    found = theta.mean("item").to_numpy()
    assert found.var() == pytest.approx(together, rel=0.12)  # sd of a variance of 2,000: 3%
    assert together > 1.25 * (own + means.var(axis=0).mean() / n)  # apart they would vary less
    given_curve = means.mean(axis=1)[theta["curve"].to_numpy()]
    assert np.corrcoef(found, given_curve)[0, 1] > 0.5


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


def test_draws_do_not_depend_on_how_work_is_cut(small_fit, small_items, monkeypatch):
    few = dec.thompson_draws(small_fit, small_items, 70, seed=2, **QUIET)
    monkeypatch.setattr(ranking, "_MOST", ranking.LANE)
    monkeypatch.setenv("SOC_PYMC_THREADS", "1")
    many = dec.thompson_draws(small_fit, small_items, 150, seed=2, **QUIET)
    xr.testing.assert_identical(few, many[:70])
    assert (few != dec.thompson_draws(small_fit, small_items, 70, seed=3, **QUIET)).all()
    assert len(np.unique(many["curve"])) == 150


def test_ranking_does_not_depend_on_how_work_is_cut(small_fit, some_items, monkeypatch):
    whole = dec.probability_best(small_fit, some_items, 3, draws=300, **QUIET)
    monkeypatch.setattr(ranking, "_TOP", 1)  # groups of 64 draws
    monkeypatch.setattr(ranking, "_KEPT", 1)  # and both passes make their draws
    monkeypatch.setenv("SOC_PYMC_THREADS", "1")
    pd.testing.assert_frame_equal(
        whole, dec.probability_best(small_fit, some_items, 3, draws=300, **QUIET), rtol=1e-9
    )


# --- ranking -----------------------------------------------------------------------------------


def exact_top(shape, rate, k):
    """Probabilities of three Gammas to be first, or not last, by quadrature."""
    laws = [stats.gamma(a, scale=1 / b) for a, b in zip(shape, rate, strict=True)]
    found = []
    for i, own in enumerate(laws):
        one, two = (law for j, law in enumerate(laws) if j != i)

        def inside(x, own=own, one=one, two=two):
            below = one.cdf(x) * two.cdf(x)
            some = one.cdf(x) + two.cdf(x) - below
            return own.pdf(x) * (below if k == 1 else some)

        found.append(integrate.quad(inside, 0, own.ppf(1 - 1e-12), limit=300)[0])
    return np.array(found)


@pytest.mark.parametrize("k", [1, 2])
def test_probability_best_against_quadrature(small_fit, k):
    fit = with_curves(small_fit, [np.log(0.05)], [np.log(0.25)])
    y, exposure = np.array([3.0, 9.0, 0.0]), np.array([50.0, 100.0, 5.0])
    found = dec.probability_best(fit, counts(y, exposure), k, draws=20_000, **QUIET)
    exact = exact_top(4.0 + y, 80.0 + exposure, k)
    error = found["error"].to_numpy()
    assert (np.abs(found["probability"] - exact) < 4.5 * error).all()
    assert (error < 0.3 / np.sqrt(20_000)).all()  # counting hits would have up to 0.5
    assert found["probability"].sum() == pytest.approx(k, abs=1e-9)


@pytest.mark.slow
def test_stated_error_is_that_of_repeats(small_fit, some_items):
    some = soc.PoissonItems(some_items.source.head(30), **some_items.roles)
    runs = [dec.probability_best(small_fit, some, 2, draws=300, seed=s, **QUIET) for s in range(20)]
    found = np.array([run["probability"] for run in runs])
    stated = np.array([run["error"] for run in runs]).mean(axis=0)
    matter = stated > 1e-4
    ratio = found.std(axis=0, ddof=1)[matter] / stated[matter]
    assert 0.7 < np.sqrt(np.mean(ratio**2)) < 1.3  # 20 runs of a few items


def test_ties_and_order(small_fit):
    """Equal items share, whoever comes first; all items are the best n of n."""
    fit = with_curves(small_fit, [np.log(0.05)], [0.0])
    found = dec.probability_best(fit, counts([0] * 6 + [40], 100.0), 3, draws=4000, **QUIET)
    assert found["probability"].iloc[:6].to_numpy() == pytest.approx(2 / 6, abs=0.02)
    assert found["probability"].iloc[6] == pytest.approx(1.0, abs=1e-6)
    back = dec.probability_best(fit, counts([40] + [0] * 6, 100.0), 3, draws=4000, **QUIET)
    spread = 5 * (found["error"] + back["error"][::-1].to_numpy()) + 1e-12
    assert (np.abs(found["probability"] - back["probability"][::-1].to_numpy()) < spread).all()
    everyone = dec.probability_best(fit, counts([0, 1], 10.0), 2, **QUIET)
    assert (everyone["probability"] == 1).all()
    assert (everyone["error"] == 0).all()


def test_theta_that_cannot_be_told_apart_share_the_top():
    """Normals whose sd is lost in rounding are equal in every draw."""
    frame = pd.DataFrame({"t": [0.0] * 4, "y": [5.0, 5.0, 5.0, 1.0], "s": [1e-30] * 4})
    fit, _ = five_steps("Normal")
    found = dec.probability_best(fit, soc.NormalItems(frame, **LIKE_VALUES), 2, draws=64, **QUIET)
    assert found["probability"].to_numpy() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0.0])


# --- laws --------------------------------------------------------------------------------------


def test_probability_falls_with_the_threshold(small_fit, some_items):
    cuts = [-1.0, 0.0, 0.01, 0.03, 0.1, 50.0]
    found = np.array([dec.probability_above(small_fit, some_items, c, **QUIET) for c in cuts])
    assert (np.diff(found, axis=0) <= 0).all()
    assert (found[:2] == 1).all()
    assert (found[-1] < 1e-6).all()
    each = dec.probability_above(small_fit, some_items, np.linspace(0.0, 0.1, 300), **QUIET)
    assert each.iloc[0] == 1.0


def test_unit_of_exposure_is_of_no_matter(small_fit):
    """Exposure in thousands: curves, thresholds and values a thousand times larger."""
    log_mean, cv2 = np.log([0.03, 0.05, 0.06]), [-1.0, -0.5, -2.0]
    plain = with_curves(small_fit, log_mean, cv2)
    scaled = with_curves(small_fit, log_mean + np.log(1000.0), cv2)
    y, exposure = np.array([0, 2, 9]), np.array([10.0, 30.0, 100.0])
    one = dec.value_of_exposure(plain, counts(y, exposure), 50.0, threshold=0.06, **QUIET)
    two = dec.value_of_exposure(scaled, counts(y, exposure / 1e3), 0.05, threshold=60.0, **QUIET)
    assert (1000.0 * one).to_numpy() == pytest.approx(two.to_numpy(), rel=1e-9)
    above = dec.probability_above(plain, counts(y, exposure), 0.06, **QUIET)
    other = dec.probability_above(scaled, counts(y, exposure / 1e3), 60.0, **QUIET)
    assert above.to_numpy() == pytest.approx(other.to_numpy(), rel=1e-10)


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


# --- simulated truth ---------------------------------------------------------------------------


def test_stated_probabilities_are_kept(small_fit, small_frame, small_items):
    """Among items of a like probability to be above, so many are."""
    cut = float(small_frame["theta"].median())
    above = dec.probability_above(small_fit, small_items, cut, **QUIET)
    true = (small_frame["theta"] > cut).to_numpy()
    tenth = pd.qcut(above, 10, labels=False)
    for part in range(10):
        at = (tenth == part).to_numpy()
        stated = above[at].mean()
        noise = np.sqrt((above[at] * (1 - above[at])).sum()) / at.sum()
        assert abs(true[at].mean() - stated) < 4 * noise + 0.01


def play(fit, theta, rounds, choose):
    """Mean theta of the arms chosen in the last rounds, ten arms with exposure 20 a round."""
    rng = np.random.default_rng(7)
    y, exposure, last = np.zeros(len(theta)), np.zeros(len(theta)), []
    for r in range(rounds):
        arms = np.argsort(-choose(fit, counts(y, exposure), r))[:10]
        y[arms] += rng.poisson(theta[arms] * 20.0)
        exposure[arms] += 20.0
        last.append(theta[arms].mean())
    return np.mean(last[-5:])


@pytest.mark.slow
def test_thompson_sampling_beats_greedy(small_fit):
    """Greedy choice stays with arms that were lucky early; draws go on to find better ones."""
    fit = with_curves(small_fit, [np.log(0.05)], [0.0])
    theta = np.random.default_rng(1).gamma(1.0, 0.05, 150)

    def greedy(fit, items, r):
        frame = items.source
        return ((1.0 + frame["y"]) / (20.0 + frame["N"])).to_numpy()

    def thompson(fit, items, r):
        return dec.thompson_draws(fit, items, seed=r, **QUIET).to_numpy()[0]

    assert play(fit, theta, 40, thompson) > 1.1 * play(fit, theta, 40, greedy)


# --- answers and refusals ----------------------------------------------------------------------


def test_answers_are_indexed_like_the_items(small_fit, small_frame):
    frame = small_frame.head(20).set_index(pd.Index(range(100, 120)))
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    plain = soc.PoissonItems(frame, **roles)
    named = soc.PoissonItems(frame.assign(key=np.arange(20)[::-1]), **roles, id="key")
    assert list(dec.probability_above(small_fit, plain, 0.02, **QUIET).index) == list(frame.index)
    found = dec.probability_best(small_fit, named, 2, draws=64, **QUIET)
    assert found.index.name == "key"
    assert list(found.index) == list(range(19, -1, -1))
    theta = dec.thompson_draws(small_fit, named, **QUIET)
    assert list(theta["item"].to_numpy()) == list(range(19, -1, -1))
    same = dec.expected_loss(small_fit, plain, 0.02, **QUIET).to_numpy(dtype=float)
    other = dec.expected_loss(small_fit, named, 0.02, **QUIET).to_numpy(dtype=float)
    assert same == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, i: dec.probability_above(f, i, np.nan), "threshold must be finite"),
        (lambda f, i: dec.probability_above(f, i, [0.1, 0.2]), "one for each of 300"),
        (lambda f, i: dec.probability_above(f, i, "much"), "must be a number"),
        (lambda f, i: dec.expected_loss(f, i, 0.1, cost_below=0.0), "cost_below must be finite"),
        (lambda f, i: dec.risk_adjusted(f, i, 1.0), "between 0 and 1"),
        (lambda f, i: dec.thompson_draws(f, i, 0), "draws=0"),
        (lambda f, i: dec.thompson_draws(f, i, seed=-1), "seed=-1"),
        (lambda f, i: dec.probability_best(f, i, 0), "k=0"),
        (lambda f, i: dec.probability_best(f, i, draws=1), "draws=1"),
        (lambda f, i: dec.value_of_exposure(f, i, 0.0), "more must be finite and > 0"),
    ],
)
def test_refusals(small_fit, some_items, call, words):
    with pytest.raises(soc.FitError, match=words):
        call(small_fit, some_items)


def test_items_of_another_kind_are_refused(small_fit):
    items = soc.NormalItems(value_frame(20), **LIKE_VALUES)
    with pytest.raises(soc.ItemsError, match="items of the kind that made the fit"):
        dec.probability_above(small_fit, items, 0.1, **QUIET)


@pytest.mark.parametrize("threshold", [1e17, 1e30, 1e90])
@pytest.mark.slow
def test_absurd_thresholds_come_to_an_end(small_fit, some_items, threshold):
    """The cut-off is then a count beyond 2^53, where bisection by whole numbers never ends."""
    found = dec.value_of_exposure(small_fit, some_items, 1.0, threshold=threshold, **QUIET)
    assert (found["value"] == 0).all()


def test_thresholds_beyond_all_scores_are_refused(small_fit, some_items):
    with pytest.raises(soc.FitError, match=r"up to 1e\+90 in size, not 1e\+300"):
        dec.value_of_exposure(small_fit, some_items, 1.0, threshold=1e300, **QUIET)


def test_draws_larger_than_memory_are_refused_before_they_are_made(
    small_fit, some_items, monkeypatch
):
    monkeypatch.setattr(arguments, "_memory", lambda: 8.0 * 300 * 1000)
    assert dec.thompson_draws(small_fit, some_items, 1000, **QUIET).shape == (1000, 300)
    monkeypatch.setattr(np, "empty", lambda *_: pytest.fail("made"))
    with pytest.raises(soc.FitError, match=r"1,001 draws of 300 items take .* ask for fewer"):
        dec.thompson_draws(small_fit, some_items, 1001, **QUIET)


@pytest.mark.parametrize("prior", [soc.Gamma(), soc.Normal(), soc.Beta()])
def test_losses_are_those_of_both_tails(prior):
    """One tail for each draw, and the mean, give what both tails give."""
    family, rng = family_of(prior), np.random.default_rng(0)
    a, b = rng.uniform(0.5, 20.0, (2, 30, 40))
    cut = np.linspace(0.02, 0.98, 40)
    short, over = choices._losses(family, np.broadcast_arrays(cut, a, b))
    np.testing.assert_allclose(short, family.shortfall(cut, a, b), rtol=1e-7, atol=1e-15)
    np.testing.assert_allclose(over, family.excess(cut, a, b), rtol=1e-7, atol=1e-15)
    assert (short >= 0).all()
    assert (over >= 0).all()
