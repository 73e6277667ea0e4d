"""Single trials: the curve of the mean with bands, and a refusal of what needs the variance."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

pytestmark = pytest.mark.slow
SCORE = np.linspace(0.05, 0.95, 19)


def true_mean(score):
    """The mean of theta in the simulation below: logit(mean) = 1.5 logit(score)."""
    return 1 / (1 + np.exp(-1.5 * np.log(score / (1 - score))))


@pytest.fixture(scope="module")
def items():
    rng = np.random.default_rng(0)
    score = rng.uniform(0.02, 0.98, 4000)
    frame = pd.DataFrame({"t": score, "y": rng.binomial(1, true_mean(score)), "n": 1})
    return soc.BinomialItems(frame, score="t", successes="y", trials="n")


@pytest.fixture(scope="module")
def fit(items, kept_fit):
    statistics = soc.summarize(items, progress=False)
    return kept_fit("labels", lambda: soc.fit(statistics, progress=False))


def test_the_mean_has_a_curve_with_bands(fit):
    curves = soc.calibration_curves(fit, SCORE)
    assert "variance" not in curves
    low, _, high = soc.bands(curves, prob=0.99, simultaneous=True)["mean"].to_numpy()
    assert ((low > 0) & (low < true_mean(SCORE)) & (true_mean(SCORE) < high) & (high < 1)).all()
    assert (high - low).mean() < 0.25


@pytest.mark.parametrize(
    "ask",
    [
        lambda fit, items: soc.item_posteriors(fit, items, progress=False),
        lambda fit, items: soc.export_prior(fit, "prior.json"),
        lambda fit, items: soc.decisions.probability_above(fit, items, 0.5, progress=False),
        lambda fit, items: soc.plots.plot_curves(fit),
        lambda fit, items: soc.check(fit, items, progress=False),
    ],
)
def test_what_needs_the_variance_is_refused(fit, items, ask):
    with pytest.raises(soc.FitError, match="one trial per item"):
        ask(fit, items)


def test_it_is_known_after_saving(fit, items, tmp_path):
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    with pytest.raises(soc.FitError, match="one trial per item"):
        soc.item_posteriors(again, items, progress=False)
    expected = soc.calibration_curves(fit, SCORE)["mean"]
    np.testing.assert_array_equal(soc.calibration_curves(again, SCORE)["mean"], expected)
