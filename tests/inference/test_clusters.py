"""Fits to items in clusters: how much wider their bands are, on every model."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import special

import soc_pymc as soc
from soc_pymc._model.splines import spline_matrix
from soc_pymc.families.scales import LOG
from soc_pymc.inference.clusters import _with_mean_of, excess_root
from tests.examples import OVER, QUIET, ROLES, SMALL_MIXTURE

SHARE, CLUSTERS = 0.32, 60  # of the normal variance between clusters: an sd of 0.3 in log theta


def made_frame(n=4000, seed=0):
    """Items whose theta is Gamma or Normal given the score, and alike within clusters."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, CLUSTERS, n)
    z = np.sqrt(SHARE) * rng.normal(size=CLUSTERS)[cluster]
    z += np.sqrt(1.0 - SHARE) * rng.normal(size=n)
    score, size = special.expit(rng.normal(-1.5, 0.7, n)), rng.integers(20, 60, n)
    noise = rng.choice([0.3, 0.6], n)
    rate = score * special.gammaincinv(4.0, special.ndtr(z)) / 4.0
    return pd.DataFrame(
        {
            "score": score,
            "count": rng.poisson(rate * size),
            "exposure": size.astype(float),
            "successes": rng.binomial(size, np.minimum(rate, 1.0)),
            "trials": size,
            "value": rng.normal(score + 0.5 * z, noise),
            "noise_sd": noise,
            "cluster": cluster,
            "kind": np.where(np.arange(n) % 3, "a", "b"),
        }
    )


def items_of(frame, kind=soc.PoissonItems, **roles):
    return kind(frame, **ROLES[kind], **roles)


@pytest.fixture(scope="module")
def frame():
    return made_frame()


@pytest.fixture(scope="module")
def fits(frame):
    """Statistics and fits with and without clusters, in the same bins."""
    clustered = soc.summarize(items_of(frame, cluster="cluster"), bins=40, joint=True, **QUIET)
    plain = soc.summarize(items_of(frame), edges=clustered.edges, joint=True, **QUIET)
    return {
        name: (stats, soc.fit(stats, **QUIET))
        for name, stats in (("clusters", clustered), ("plain", plain))
    }


def sds(fit, name="log_mean"):
    return fit.data["posterior"][name].std(OVER).to_numpy()


def test_clusters_do_not_sway_the_choice_of_a_prior(frame):
    """Wider draws cannot leave items out: priors are compared by those of independent items."""
    part = frame[:800]
    clustered = soc.summarize(items_of(part, cluster="cluster"), joint=True, **QUIET)
    plain = soc.summarize(items_of(part), edges=clustered.edges, joint=True, **QUIET)
    with pytest.warns(soc.ItemsWarning, match="independent"):
        wide = soc.fit(clustered, "auto", **QUIET)
    narrow = soc.fit(plain, "auto", **QUIET)
    assert wide.prior == narrow.prior
    assert wide.widened
    pd.testing.assert_frame_equal(wide.selection, narrow.selection)


@pytest.mark.slow
def test_bands_are_as_wide_as_clusters_make_them(fits, tmp_path):
    """The mean of 60 clusters' effects of sd 0.3 has sd 0.039; 60 squares vary by 18%."""
    (_, wide), (_, narrow) = fits["clusters"], fits["plain"]
    between = np.sqrt(np.maximum(np.square(sds(wide)) - np.square(sds(narrow)), 0.0))
    assert 0.025 < np.median(between) < 0.06
    for name in ("log_mean", "log_cv2"):
        assert (sds(wide, name) > 0.97 * sds(narrow, name)).all()
    draws = [fit.data["posterior"] for fit in (wide, narrow)]
    np.testing.assert_allclose(*(np.exp(each["log_mean"]).mean(OVER) for each in draws), rtol=2e-3)
    np.testing.assert_allclose(*(each["log_cv2"].mean(OVER) for each in draws), atol=1e-9)
    factor = wide.data["clusters"]["log_mean"].to_numpy()
    np.testing.assert_allclose(factor, sds(wide) / sds(narrow), rtol=0.05)
    assert wide.widened
    assert not narrow.widened
    assert not {"log_prior", "log_likelihood"} & set(wide.data.children)
    wide.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.widened
    assert again.data["clusters"].equals(wide.data["clusters"])


@pytest.mark.slow
def test_independent_items_keep_their_bands(frame):
    """Chance makes some directions wider: the sum of 60 squares has an sd of 18%."""
    shuffled = frame.assign(cluster=np.random.default_rng(3).permutation(frame["cluster"]))
    stats = soc.summarize(items_of(shuffled, cluster="cluster"), bins=40, **QUIET)
    fit = soc.fit(stats, **QUIET)
    for name in ("log_mean", "log_cv2"):
        assert float(fit.data["clusters"][name].median()) < 1.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "least"),
    # the mean of 60 effects: of sd 0.5 sqrt(share) for values, of 0.3 and more in log odds
    [(soc.NormalItems, 0.5 * np.sqrt(SHARE / 60)), (soc.BinomialItems, 0.3 / np.sqrt(60))],
)
def test_values_and_successes(kind, least, frame):
    stats = soc.summarize(items_of(frame, kind, cluster="cluster"), bins=30, **QUIET)
    fit = soc.fit(stats, **QUIET)
    name = fit.prior.curve_names[0]
    assert 0.7 * least < np.median(sds(fit, name)) < 2.0 * least
    assert float(fit.data["clusters"][name].median()) > 1.6


def test_the_excess_is_the_cluster_robust_covariance_of_a_mean():
    """One coefficient, blocks of 8 items with common effects: the sandwich of a plain mean."""
    rng = np.random.default_rng(0)
    blocks, size = 200, 8
    slope = size * rng.normal(size=(blocks, 1)) + np.sqrt(size) * rng.normal(size=(blocks, 1))
    information = np.full((blocks, 1, 1), float(size))
    total = information.sum(axis=0)
    root = excess_root(slope, information, total, np.array([1e-9]))
    share = size / total[0, 0]
    robust = np.sum((slope - slope.mean()) ** 2) / (1 - share) ** 2 / total[0, 0] ** 2
    ratio = special.stdtrit(199.0, 0.95) / special.ndtri(0.95)
    expected = ((blocks - 1) / blocks * robust - 1.0 / total[0, 0]) * ratio**2
    # the degrees of freedom, from fourth powers, are near the number of blocks
    np.testing.assert_allclose((root @ root.T).item(), expected, rtol=0.02)


def test_few_blocks_widen_by_the_quantile_of_t():
    """Ten blocks whose slopes differ only in sign have nine degrees of freedom."""
    slope = np.where(np.arange(10) % 2, 20.0, -20.0)[:, None]
    information = np.full((10, 1, 1), 8.0)
    root = excess_root(slope, information, np.array([[80.0]]), np.array([1e-12]))
    robust = np.sum(slope**2) / 0.9**2 / 80.0**2
    ratio = special.stdtrit(9.0, 0.95) / special.ndtri(0.95)
    expected = (0.9 * robust - 1.0 / 80.0) * ratio**2
    assert (root @ root.T).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "prior", [soc.GammaMixture(**SMALL_MIXTURE), soc.Gamma(groups=True)], ids=["mixture", "groups"]
)
def test_other_priors_get_wider_bands(prior, frame, fits):
    grouped = prior == soc.Gamma()
    items = items_of(frame, cluster="cluster", group="kind" if grouped else None)
    fit = soc.fit(soc.summarize(items, bins=30, joint=True, **QUIET), prior, **QUIET)
    if grouped:  # the shared curve is less known than the groups'
        wide = fit.data["posterior"]["log_mean_of_group"].std(OVER).sel(group="a").to_numpy()
    else:
        wide = sds(fit)
    middle = slice(3, -3)
    assert 0.7 < np.median(wide[middle]) / np.median(sds(fits["clusters"][1])[middle]) < 1.6


@pytest.mark.slow
def test_results_say_that_items_depend(fits, frame):
    """The check fails without clusters and passes with them; what needs independence refuses."""
    (stats, wide), (_, narrow) = fits["clusters"], fits["plain"]
    items = items_of(frame, cluster="cluster")
    for fit, verdict in ((narrow, "fail"), (wide, "ok")):
        table = soc.check(fit, items, subset=50, **QUIET).table.set_index("what")
        assert table.loc["clusters", "verdict"] == verdict
    with pytest.raises(soc.FitError, match="clusters"):
        soc.sensitivity(wide, stats, **QUIET)
    with pytest.warns(soc.ItemsWarning, match="independent"):
        soc.compare({"a": wide, "b": narrow}, stats, **QUIET)


@pytest.mark.slow
def test_wider_curves_leave_the_dispersion_as_it_is():
    """Where few clusters reach the ends; far draws of the curves there made 1.55 of 1.03."""
    rng = np.random.default_rng(1)
    cluster = rng.integers(0, 20, 3000)
    score = np.exp(rng.normal(-4.0, 1.2, 20)[cluster] + rng.normal(0.0, 0.4, 3000))
    size = rng.lognormal(5.0, 1.5, 3000)
    theta = score * np.exp(rng.normal(0.0, 0.6, 20)[cluster]) * rng.gamma(1.5, 1 / 1.5, 3000)
    columns = {"score": score, "count": rng.poisson(theta * size), "exposure": size}
    frame, values = pd.DataFrame(columns | {"cluster": cluster}), []
    for roles in ({}, {"cluster": "cluster"}):
        items = items_of(frame, **roles)
        table = soc.check(
            soc.fit(soc.summarize(items, **QUIET), **QUIET), items, subset=20, **QUIET
        )
        values.append(table.table.set_index("what").loc["dispersion", "value"])
    assert values[1] == pytest.approx(values[0], rel=0.1)


def test_wider_curves_keep_the_mean_of_theta_between_knots():
    """Of noise with sd 2 at the first knot and 0.1 at the others, within two thirds of an sd; a
    move that suits the knots alone is off by a whole sd between them.
    """
    rng, knots = np.random.default_rng(0), np.arange(8.0)
    narrow, noise = 0.02 * rng.normal(size=(1, 2000, 8)), rng.normal(size=(1, 2000, 8))
    noise[..., 1:4] += 0.5 * noise[..., :3]
    curves = [
        xr.DataArray(draws, {"knot": knots}, ("chain", "draw", "knot"))
        for draws in (narrow, narrow + noise * np.array([2.0] + 7 * [0.1]))
    ]
    wider = _with_mean_of(*curves, LOG)
    between = spline_matrix(np.linspace(0.0, 7.0, 50), knots)
    ratio = np.exp(wider.to_numpy() @ between.T).mean(axis=(0, 1))
    ratio /= np.exp(narrow @ between.T).mean(axis=(0, 1))
    sd = (wider.to_numpy() @ between.T).std(axis=(0, 1))
    assert (np.abs(np.log(ratio)) < sd * 2 / 3).all()


def test_clusters_that_cannot_widen_bands(frame):
    """Five steps have no bands; a single cluster shows nothing of its noise."""
    stats = soc.summarize(items_of(frame, cluster="cluster"), bins=10, **QUIET)
    assert not soc.fit(stats, method=soc.FiveSteps(), **QUIET).widened
    alone = soc.summarize(
        items_of(frame.assign(cluster="one"), cluster="cluster"), bins=10, **QUIET
    )
    with pytest.raises(soc.FitError, match="block"):
        soc.fit(alone, **QUIET)


@pytest.mark.slow
def test_effects_of_bins_are_widened(frame):
    """Curve and effect of a bin together are uncertain by more than without clusters."""
    prior, sd = soc.Gamma(bin_effects=True), {}
    for cluster in (None, "cluster"):
        stats = soc.summarize(items_of(frame, cluster=cluster), bins=15, **QUIET)
        fit = soc.fit(stats, prior, **QUIET)
        scores = frame["score"].quantile([0.2, 0.5, 0.8])
        curves = soc.calibration_curves(fit, scores)
        sd[cluster] = curves["log_mean"].std(OVER).to_numpy()
    assert (sd["cluster"] > 1.2 * sd[None]).all()
