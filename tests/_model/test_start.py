"""A fit that begins at an earlier one has the same posterior, wherever the earlier one is."""

from dataclasses import replace

import numpy as np
import pytest

import soc_pymc as soc

OVER = ("chain", "draw")


@pytest.fixture(scope="module")
def statistics():
    items = soc.PoissonItems(
        soc.simulation.s1(20_000, seed=0), score="score", count="count", exposure="exposure"
    )
    return soc.summarize(items, bins=50, progress=False)


@pytest.fixture(scope="module")
def plain(statistics):
    """The fit without a start."""
    return soc.fit(statistics, soc.Gamma(), progress=False)


def moved(fit, log_mean=0.0, log_cv2=0.0, bend=0.0):
    """The fit with its curves shifted, and bent by random values at the knots."""
    rng = np.random.default_rng(0)
    tree = fit.data.copy()
    posterior = tree["posterior"].to_dataset()
    for name, shift in (("log_mean", log_mean), ("log_cv2", log_cv2)):
        posterior[name] = (
            posterior[name] + shift + bend * rng.normal(size=posterior[name].shape[-1])
        )
    tree["posterior"] = posterior
    return replace(fit, data=tree)


def assert_same_posterior(fit, other):
    """Curves at scores: means to 0.2 posterior sd, sds to a tenth.

    1,000 draws know a mean to 0.03 sd and an sd to 2%; the rest is the search's tolerance.
    """
    score = np.geomspace(0.01, 0.2, 7)
    ours, theirs = (soc.calibration_curves(f, score) for f in (fit, other))
    for name in ("log_mean", "log_variance"):
        a, b = ours[name], theirs[name]
        assert float((abs(a.mean(OVER) - b.mean(OVER)) / b.std(OVER)).max()) < 0.2
        assert float(abs(a.std(OVER) / b.std(OVER) - 1).max()) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [{"log_mean": 400.0}, {"log_cv2": 8.0, "bend": 3.0}],
    ids=["very far", "bent"],
)
def test_a_start_does_not_change_the_posterior(statistics, plain, start):
    fit = soc.fit(statistics, start=moved(plain, **start), progress=False)
    assert fit.status.converged
    assert_same_posterior(fit, plain)


@pytest.mark.slow
def test_starts_of_other_kinds(statistics, plain, tmp_path):
    """From a saved five-step fit, and from one with other knots and axes."""
    soc.fit(statistics, soc.Gamma(), soc.FiveSteps(), progress=False).save(tmp_path / "fit.nc")
    assert_same_posterior(
        soc.fit(statistics, start=soc.load_fit(tmp_path / "fit.nc"), progress=False), plain
    )
    ranks = soc.Spline(scale="rank", knots=7)
    other = soc.fit(statistics, soc.Gamma(ranks, ranks), start=plain, progress=False)
    assert_same_posterior(soc.fit(statistics, start=other, progress=False), plain)


def test_fits_of_other_items_are_no_start(small_statistics, small_fit):
    for name, value in (("kind", "binomial"), ("roles", '{"score": "other"}')):
        tree = small_fit.data.copy()
        tree.attrs = {**tree.attrs, name: value}
        with pytest.raises(soc.FitError, match=name):
            soc.fit(small_statistics, start=replace(small_fit, data=tree), progress=False)
