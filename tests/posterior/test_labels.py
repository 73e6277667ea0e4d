"""Single trials: the curve of the mean with bands, and a refusal of what needs the variance."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc


@pytest.fixture(scope="module")
def items():
    rng = np.random.default_rng(0)
    t = rng.uniform(0.02, 0.98, 4000)
    truth = 1 / (1 + np.exp(-1.5 * np.log(t / (1 - t))))
    frame = pd.DataFrame({"t": t, "y": rng.binomial(1, truth), "n": 1})
    return soc.BinomialItems(frame, score="t", successes="y", trials="n")


@pytest.fixture(scope="module")
def fit(items):
    return soc.fit(soc.summarize(items, progress=False), progress=False)


def test_the_mean_has_a_curve_with_bands(fit):
    score = np.linspace(0.05, 0.95, 19)
    curves = soc.calibration_curves(fit, score)
    assert list(curves) == ["mean", "logit_mean"]
    truth = 1 / (1 + np.exp(-1.5 * np.log(score / (1 - score))))
    low, _, high = soc.bands(curves, prob=0.99, simultaneous=True)["mean"].to_numpy()
    assert ((low < truth) & (truth < high)).all()
    assert (low > 0).all()
    assert (high < 1).all()


@pytest.mark.parametrize(
    "ask",
    [
        lambda fit, items: soc.item_posteriors(fit, items, progress=False),
        lambda fit, items: soc.decisions.probability_above(fit, items, 0.5, progress=False),
        lambda fit, items: soc.quantities.r_squared(fit, soc.summarize(items, progress=False)),
        lambda fit, items: soc.plots.plot_curves(fit),
        lambda fit, items: soc.plots.plot_prior_ribbon(fit),
        lambda fit, items: soc.plots.plot_smoothing(fit),
        lambda fit, items: soc.plots.plot_prior_in_bin(fit, items),
        lambda fit, items: soc.check(fit, items, progress=False),
        lambda fit, items: soc.check(fit, soc.summarize(items, progress=False), progress=False),
        lambda fit, items: soc.report(fit, items, out="labels.html", progress=False),
        lambda fit, items: soc.fit(
            soc.summarize(items, progress=False), method=soc.FiveSteps(), progress=False
        ),
    ],
)
def test_what_needs_the_variance_is_refused_by_name(fit, items, ask):
    with pytest.raises(soc.FitError, match="one trial per item shows the mean of theta"):
        ask(fit, items)


def test_it_is_known_after_saving(fit, tmp_path):
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.mean_only
    with pytest.raises(soc.FitError, match="one trial per item"):
        soc.plots.plot_curves(again)


def test_labels_of_the_estimator(items):
    frame = items.source
    calibrator = soc.SecondOrderCalibrator(prior=soc.Beta())
    found = calibrator.fit(frame["t"], frame["y"] == 1).predict([0.2, 0.5, 0.8])
    truth = 1 / (1 + np.exp(-1.5 * np.log(np.array([0.2, 0.5, 0.8]) / [0.8, 0.5, 0.2])))
    assert found == pytest.approx(truth, abs=0.05)
