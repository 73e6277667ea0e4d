"""Scores that many items share, from the fit to posteriors and checks."""

import numpy as np
import pytest
from scipy import stats as laws

import soc_pymc as soc
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import COUNT_ROLES, OVER, QUIET, SMALL_MIXTURE
from tests.studies import coverage as study
from tests.studies.common import counts

pytestmark = pytest.mark.filterwarnings("ignore:column .* has scores shared by many items")


@pytest.fixture(scope="module")
def frame():
    return study.with_atom(4000, seed=0)


@pytest.fixture(scope="module")
def statistics(frame):
    return soc.summarize(counts(frame), joint=True, **QUIET)


@pytest.fixture(scope="module")
def fit(statistics):
    return soc.fit(statistics, soc.Gamma(), soc.VI(draws=300), **QUIET)


@pytest.mark.slow
def test_curves_beside_an_atom_are_not_bent(fit):
    """A curve bent by it would be near 0.065 and a cv2 of 0.5: 15 and 5 posterior sds off."""
    assert fit.atoms == (study.DEFAULT,)
    assert fit.status.converged
    curves = soc.calibration_curves(fit, [study.BESIDE, study.DEFAULT])
    for drawn, truth in (
        (curves["mean"], (study.BESIDE, study.MEAN)),
        (1.0 / curves["shape"], (study.CV2_BESIDE, study.CV2)),
    ):
        away = (drawn.mean(OVER) - np.array(truth)) / drawn.std(OVER)
        assert np.abs(away).max() < 3.5


@pytest.mark.slow
def test_only_the_score_itself_has_the_shifts(fit):
    atom = study.DEFAULT
    score = [np.nextafter(atom, 0), atom, np.nextafter(atom, 1), atom * (1 + 1e-9)]
    curves = soc.calibration_curves(fit, score)
    for draws, name in (
        (curves["log_mean"], "log_mean_of_atom"),
        (-np.log(curves["shape"]), "log_cv2_of_atom"),
    ):
        draws = draws.to_numpy().reshape(-1, 4)
        np.testing.assert_allclose(draws[:, [0, 2, 3]], draws[:, [0, 0, 0]], atol=1e-6)
        shift = fit.data["posterior"][name].to_numpy().ravel()
        np.testing.assert_allclose(draws[:, 1] - draws[:, 0], shift, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("draws", ["all", "auto"])
def test_item_posteriors_are_those_of_the_draws(fit, frame, draws):
    """Against the closed form, averaged over the draws by hand: 2e-3 posterior sd."""
    some = frame.iloc[:300]
    scored = soc.item_posteriors(fit, counts(some), draws=draws, **QUIET)
    curves = soc.calibration_curves(fit, some["score"])
    shape, rate = (curves[name].to_numpy().reshape(300, -1) for name in ("shape", "rate"))
    mean = (shape + some["count"].to_numpy()) / (rate + some["exposure"].to_numpy())
    away = (scored["theta_mean"].to_numpy() - mean.mean(axis=0)) / scored["theta_sd"].to_numpy()
    assert np.abs(away).max() < 2e-3


@pytest.mark.slow
def test_checks_have_a_slice_for_each_atom(fit, statistics):
    table = soc.check(fit, statistics, **QUIET).table
    assert list(table[table["where"] == "score = 0.05"]["verdict"]) == ["ok"]
    assert "fail" not in set(table["verdict"])


@pytest.mark.slow
def test_an_atom_far_from_other_scores_does_not_bend_the_line(frame):
    """Its shift says nothing of the slope, and the range of scores is that of the others."""
    moved = frame.assign(score=np.where(frame["default"], 1e9, frame["score"]))
    stats = soc.summarize(counts(moved), **QUIET)
    fit = soc.fit(stats, soc.Gamma(), soc.VI(draws=100), **QUIET)
    assert float(soc.calibration_curves(fit)["score"].max()) < 10.0
    mean = soc.calibration_curves(fit, [study.BESIDE, 1e9])["mean"].mean(OVER)
    np.testing.assert_allclose(mean, [study.BESIDE, study.MEAN], rtol=0.12)
    with pytest.warns(soc.ItemsWarning, match="1 of 1"):
        soc.calibration_curves(fit, [1e8])


def test_atoms_can_be_left_out(statistics):
    assert "atom" in soc.model(statistics, soc.Gamma()).coords
    assert "atom" not in soc.model(statistics, soc.Gamma(atoms=False)).coords


def pit_of(fit, frame):
    columns = {role: frame[role].to_numpy(dtype=float) for role in COUNT_ROLES}
    low, high = posterior_of(fit).cdf_interval(columns)
    return low + (high - low) * np.random.default_rng(0).random(len(low))


@pytest.mark.slow
def test_mixtures_have_atoms_too(frame, statistics):
    """PIT flat at the score and beside it (800 and 3,200 items), and the curve beside unbent."""
    fit = soc.fit(statistics, soc.GammaMixture(**SMALL_MIXTURE), **QUIET)
    for inside in (frame["default"], ~frame["default"]):
        assert laws.kstest(pit_of(fit, frame[inside]), "uniform").pvalue > 1e-3
    mean = soc.calibration_curves(fit, [study.BESIDE, study.DEFAULT])["mean"].mean(OVER)
    # 800 items know the mean at the score with an sd of 4%
    np.testing.assert_allclose(mean, [study.BESIDE, study.MEAN], rtol=0.12)


@pytest.mark.slow
def test_clusters_widen_atoms_too(frame):
    clusters = frame.assign(c=np.random.default_rng(0).integers(0, 60, len(frame)))
    fit = soc.fit(soc.summarize(counts(clusters, cluster="c"), bins=30, **QUIET), **QUIET)
    assert fit.atoms == (study.DEFAULT,)
    assert fit.widened
