"""Fits to items in clusters: how much wider their bands are, on every model."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import special

import soc_pymc as soc
from soc_pymc.inference.clusters import Blocks, cluster_factor, excess, make_blocks
from soc_pymc.model.problem import build
from tests.tables import KINDS
from tests.studies import clusters as study

OVER = ("chain", "draw")
SHARE = 0.32  # of the normal variance between clusters: an sd of 0.3 in log theta


def items_of(frame, kind="counts", **more):
    make, roles = KINDS[kind]
    return make(frame, **roles, **more)


def table_of(n=4000, clusters=60, seed=0, share=SHARE):
    """Items whose theta is Gamma, Normal or Beta given the score, and alike within clusters."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, clusters, n)
    z = np.sqrt(share) * rng.normal(size=clusters)[cluster]
    z += np.sqrt(1.0 - share) * rng.normal(size=n)
    t, size = special.expit(rng.normal(-1.5, 0.7, n)), rng.integers(20, 60, n)
    noise = rng.choice([0.3, 0.6], n)
    rate = t * special.gammaincinv(4.0, special.ndtr(z)) / 4.0
    return pd.DataFrame(
        {
            "t": t,
            "N": size,
            "y": rng.binomial(size, np.minimum(rate, 1.0)),
            "v": rng.normal(t + 0.5 * z, noise),
            "s": noise,
            "c": cluster,
        }
    )


@pytest.fixture(scope="module")
def counts():
    frame = table_of().assign(g=lambda d: np.where(np.arange(len(d)) % 3, "a", "b"))
    return frame.assign(y=lambda d: np.random.default_rng(1).poisson(d["y"]))


@pytest.fixture(scope="module")
def fits(counts):
    """Statistics and fits with and without clusters, in the same bins."""
    with_clusters = soc.summarize(items_of(counts), bins=40, cluster="c", progress=False)
    without = soc.summarize(items_of(counts), edges=with_clusters.edges, progress=False)
    both = {"with": with_clusters, "without": without}
    return {name: (stats, soc.fit(stats, progress=False)) for name, stats in both.items()}


def sds(fit, name="log_mean"):
    return fit.data["posterior"][name].std(OVER).to_numpy()


def test_bands_are_as_wide_as_clusters_make_them(fits):
    (_, wide), (_, narrow) = fits["with"], fits["without"]
    # the mean of 60 clusters' effects of sd 0.3 has sd 0.039; that of 60 squares an sd of 18%, and
    # t quantiles and the merging of two clusters in one block add a few percent
    between = np.sqrt(np.maximum(np.square(sds(wide)) - np.square(sds(narrow)), 0.0))
    assert 0.025 < np.median(between) < 0.06
    for name in ("log_mean", "log_cv2"):
        assert (sds(wide, name) > 0.97 * sds(narrow, name)).all()
    factor = wide.data["clusters"]["log_mean"].to_numpy()
    np.testing.assert_allclose(factor, sds(wide) / sds(narrow), rtol=0.05)
    assert wide.widened
    assert not narrow.widened
    assert "widened for" in wide.status.reason
    assert "widened" not in narrow.status.reason


def test_curves_and_items_get_the_wider_bands(fits, counts):
    (_, wide), (_, narrow) = fits["with"], fits["without"]
    score = counts["t"].quantile([0.3, 0.7]).to_numpy()
    both = [soc.calibration_curves(fit, score=score)["mean"].std(OVER) for fit in (wide, narrow)]
    assert (both[0] > 2.0 * both[1]).all()
    np.testing.assert_allclose(
        *(fit.data["posterior"]["log_mean"].mean(OVER) for fit in (wide, narrow)), atol=1e-9
    )
    # clusters are not read; without exposure the curves' uncertainty adds to the variance of theta
    items = items_of(counts[:50].assign(c=0.5, N=1e-6, y=0), cluster="c")
    known, all_draws = (
        [
            soc.item_posteriors(fit, items, plug_in=plug_in, progress=False)["theta_var"]
            for fit in (wide, narrow)
        ]
        for plug_in in (True, False)
    )
    more = [(b / a).mean() - 1.0 for a, b in zip(known, all_draws, strict=True)]
    # a relative sd of 0.04 of the mean adds 0.6% to one of 0.5, as cv2 is 0.25
    assert more[0] - more[1] > 0.003


def test_independent_items_keep_their_bands(counts):
    rng = np.random.default_rng(3)
    frame = counts.assign(c=rng.permutation(counts["c"]))
    stats = soc.summarize(items_of(frame), bins=40, cluster="c", progress=False)
    fit = soc.fit(stats, progress=False)
    # chance makes some directions wider: the sum of 60 squares has an sd of 18%
    assert float(fit.data["clusters"]["log_mean"].median()) < 1.25
    assert float(fit.data["clusters"]["log_cv2"].median()) < 1.25


@pytest.mark.parametrize("kind", ["values", "successes"])
def test_values_and_successes(kind):
    frame = table_of(3000)
    stats = soc.summarize(items_of(frame, kind), bins=30, cluster="c", progress=False)
    fit = soc.fit(stats, progress=False)
    wide = fit.data["posterior"][fit.prior.curve_names[0]].std(OVER)
    # the mean of 60 effects: of sd 0.5 sqrt(share) for values, 0.3 and more in log odds
    least = {"values": 0.5 * np.sqrt(SHARE / 60), "successes": 0.3 / np.sqrt(60)}[kind]
    assert 0.7 * least < float(wide.median()) < 2.0 * least
    assert float(fit.data["clusters"][fit.prior.curve_names[0]].median()) > 1.6


def test_the_excess_is_the_cluster_robust_covariance_of_a_mean():
    # one coefficient, blocks of 8 items with common effects: the sandwich of a plain mean
    rng = np.random.default_rng(0)
    blocks, own = 200, 8
    slope = own * rng.normal(size=(blocks, 1)) + np.sqrt(own) * rng.normal(size=(blocks, 1))
    information = np.full((blocks, 1, 1), float(own))
    whole = information.sum(axis=0)
    found = excess(Blocks(slope, information, whole, np.array([1e-9])))
    share = own / whole[0, 0]
    robust = np.sum((slope - slope.mean()) ** 2) / (1 - share) ** 2 / whole[0, 0] ** 2
    ratio = special.stdtrit(199.0, 0.95) / special.ndtri(0.95)
    expected = ((blocks - 1) / blocks * robust - 1.0 / whole[0, 0]) * ratio**2
    # the degrees of freedom, from fourth powers, are near the number of blocks
    np.testing.assert_allclose((found @ found.T).item(), expected, rtol=0.02)


def test_slopes_of_blocks_add_up_to_those_of_all_data(fits):
    stats, fit = fits["with"]
    built = build(stats, fit.prior)
    blocks = make_blocks(built, stats)
    assert len(blocks.slope) == stats.blocks
    # at the mode the data's slope is the prior's, and information adds up, except for floors
    states = [of.laplace.state for of in built.coefficients]
    pulls = [s.prior(of.design) for s, of in zip(states, built.coefficients, strict=True)]
    wanted = np.concatenate(
        [p * (s.coefficients - m) for s, (m, p) in zip(states, pulls, strict=True)]
    )
    sd = 1.0 / np.sqrt(np.diag(blocks.whole) + blocks.precision)
    np.testing.assert_allclose(blocks.slope.sum(axis=0) * sd, wanted * sd, atol=0.02)
    size = len(states[0].coefficients)
    mean = np.s_[:size, :size]
    total = blocks.information.sum(axis=0)[mean]
    np.testing.assert_allclose(total, blocks.whole[mean], rtol=0.05, atol=0.05 * total.max())


def test_a_fit_with_clusters_comes_back_from_a_file(fits, tmp_path):
    _, fit = fits["with"]
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.widened
    assert again.data["clusters"].equals(fit.data["clusters"])


def test_clusters_of_one_block_show_nothing(counts):
    stats = soc.summarize(items_of(counts.assign(c="one")), bins=40, cluster="c", progress=False)
    with pytest.raises(soc.FitError, match="all clusters are in one block"):
        soc.fit(stats, progress=False)


def test_the_check_says_when_clusters_matter(fits, counts):
    (stats, wide), (_, narrow) = fits["with"], fits["without"]
    items = items_of(counts, cluster="c")
    told = soc.check(narrow, items, subset=50, progress=False)
    row = told.table.set_index("check").loc["clusters"]
    assert row["verdict"] == "fail"
    assert "soc.summarize(items, cluster=...)" in told.advice[0]
    assert row["statistic"] == pytest.approx(cluster_factor(wide, stats), rel=0.1)
    told = soc.check(wide, items, subset=50, progress=False)
    assert told.table.set_index("check").loc["clusters", "verdict"] == "ok"
    assert "as the fit allows for" in told.advice[0]
    told = soc.check(wide, items_of(counts), subset=50, progress=False)
    assert "clusters" in set(told.table["check"])
    alone = soc.check(narrow, items_of(counts), subset=50, progress=False)
    assert "clusters" not in set(alone.table["check"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ItemsWarning")
def test_each_of_many_groups_has_the_noise_of_its_own_clusters():
    """12 groups of 5 clusters, whose mean effect has an sd of 0.13 in each.

    With the noise of the shared curve alone sds were 0.06, and half of the bands covered.
    """
    found = pd.concat(study.of_levels(seed, 12, 5) for seed in range(2))
    assert found["covers"].mean() > 0.75
    assert 0.11 < found["sd"].median() < 0.22
    alone = study.of_levels(0, 12, 5, clustered=False)
    assert alone["sd"].median() < 0.06


def test_clusters_that_do_not_matter_are_ok(counts):
    frame = counts.assign(c=np.random.default_rng(3).permutation(counts["c"]))
    fit = soc.fit(soc.summarize(items_of(frame), bins=40, progress=False), progress=False)
    told = soc.check(fit, items_of(frame, cluster="c"), subset=50, progress=False)
    assert told.table.set_index("check").loc["clusters", "verdict"] == "ok"


def test_what_reads_the_models_own_draws_is_refused(fits):
    stats, fit = fits["with"]
    with pytest.raises(soc.FitError, match="widened for clusters"):
        soc.sensitivity(fit, stats, progress=False)


def test_five_steps_have_no_bands_to_widen(fits):
    stats, _ = fits["with"]
    assert not soc.fit(stats, method=soc.FiveSteps(), progress=False).widened


@pytest.mark.slow
@pytest.mark.parametrize(
    "prior",
    [
        soc.Gamma(exposure=soc.Spline(knots=5)),
        soc.GammaMixture(),
        soc.Gamma(zero=True),
        soc.Gamma(bin_effects=True),
        soc.Gamma(monotone=True),
        soc.Gamma(groups=True),
    ],
    ids=["exposure", "mixture", "zero", "bin effects", "monotone", "groups"],
)
def test_every_model_gets_wider_bands(prior, counts, fits):
    items = items_of(counts, cluster="c", group="g" if prior == soc.Gamma() else None)
    stats = soc.summarize(items, bins=30, joint=True, progress=False)
    fit = soc.fit(stats, prior, progress=False)
    plain = fits["with"][1]
    middle = slice(3, -3)
    if fit.groups:  # the shared curve is less known than the groups'
        wide = fit.data["posterior"]["log_mean_of_group"].std(OVER).sel(group="a").to_numpy()
    else:
        wide = sds(fit)
    assert 0.7 < np.median(wide[middle]) / np.median(sds(plain)[middle]) < 1.6


def test_comparisons_say_that_items_depend(fits, counts):
    """By statistics or by items, where any of them has clusters, and only there."""
    (wide_stats, wide), (stats, narrow) = fits["with"], fits["without"]
    two = {"one": narrow, "other": narrow}
    with pytest.warns(soc.ItemsWarning, match="take items as independent"):
        soc.compare({"one": wide, "other": narrow}, wide_stats, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", soc.ItemsWarning)
        soc.compare(two, stats, progress=False)
        with pytest.raises(soc.ItemsWarning, match="cross_validate"):
            soc.compare(two, wide_stats, progress=False)
