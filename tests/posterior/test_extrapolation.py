"""Scores far outside those of a fit give one warning for any number of batches and files."""

import warnings

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.posterior import items as posteriors

QUIET = {"progress": False}
COLUMNS = {"score": "score", "count": "count", "exposure": "exposure"}


def _five(frame, prior=None, **options):
    stats = soc.summarize(soc.PoissonItems(frame, **COLUMNS), **QUIET)
    return soc.fit(stats, prior, soc.FiveSteps(**options), **QUIET)


@pytest.fixture(scope="module")
def frame():
    return soc.simulation.s1(2000, seed=3)[["score", "count", "exposure"]]


@pytest.fixture(scope="module")
def fit(frame):
    return _five(frame)


@pytest.fixture(scope="module")
def ends(frame):
    """The least and largest score, and how far a tenth of their range (of logarithms) is."""
    low, high = frame["score"].min(), frame["score"].max()
    return low, high, (high / low) ** 0.1


def _at(frame, *scores):
    """Items of the frame, the first of them with these scores."""
    moved = frame.iloc[:500].copy()
    moved.iloc[: len(scores), 0] = scores
    return moved


def _said(call):
    """Texts of the ItemsWarnings of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    own = [w for w in caught if w.category is soc.ItemsWarning]
    assert {w.filename for w in own} <= {__file__}  # the user's line, not one of the package
    return [str(w.message) for w in own]


def test_a_tenth_of_the_range_is_not_far(fit, frame, ends):
    low, high, tenth = ends
    near = _at(frame, low / tenth * 1.001, high * tenth * 0.999)
    items = soc.PoissonItems(near, **COLUMNS)
    assert _said(lambda: soc.item_posteriors(fit, items, **QUIET)) == []
    far = soc.PoissonItems(_at(frame, low / tenth * 0.999, high, high * tenth * 1.001), **COLUMNS)
    (text,) = _said(lambda: soc.item_posteriors(fit, far, **QUIET))
    assert text.startswith("2 of 500 items have scores far outside those that the fit saw")
    assert f"({low:.6g} to {high:.6g}; these: " in text
    assert "straight lines there, which no item supports" in text


def test_clipped_curves_are_reported(fit, frame):
    items = soc.PoissonItems(_at(frame, 1e-300, 1e90), **COLUMNS)
    (text,) = _said(lambda: soc.item_posteriors(fit, items, **QUIET))
    assert "these: 1e-300 to 1e+90" in text
    assert "kept between 1e-100 and 1e100" in text


@pytest.mark.parametrize("draws", ["all", "auto"])
@pytest.mark.slow
def test_once_for_many_batches(fit, frame, draws, monkeypatch, tmp_path):
    for name in ("_BATCH", "_BATCH_OF_FEW"):
        monkeypatch.setattr(posteriors, name, 50)
    far = _at(frame)
    far.loc[far.index[::100], "score"] = 1e6  # in batches 0, 2, 4, 6 and 8
    items = soc.PoissonItems(far, **COLUMNS)
    whole = _said(lambda: soc.item_posteriors(fit, items, draws=draws, **QUIET))
    assert len(whole) == 1
    assert whole[0].startswith("5 of 500 ")
    assert "these: 1e+06)" in whole[0]
    path = tmp_path / "items.parquet"
    far.to_parquet(path)
    streamed = soc.PoissonItems(str(path), **COLUMNS)
    out = tmp_path / "scored.parquet"
    said = _said(lambda: soc.item_posteriors(fit, streamed, draws=draws, out=out, **QUIET))
    assert said == whole
    assert len(pd.read_parquet(out)) == 500


def test_once_for_a_folder_even_where_a_later_file_is_bad(fit, frame, tmp_path):
    paths = [str(tmp_path / f"{k}.parquet") for k in range(3)]
    for path in paths:
        _at(frame, 1e6).to_parquet(path)
    items = soc.PoissonItems(paths, **COLUMNS)
    folder = f"{tmp_path / 'scored'}/"
    (text,) = _said(lambda: soc.item_posteriors(fit, items, out=folder, **QUIET))
    assert text.startswith("3 of 1,500 ")
    # finished files are not scored again, so that there is nothing to say
    assert _said(lambda: soc.item_posteriors(fit, items, out=folder, **QUIET)) == []
    _at(frame).assign(count=-1).to_parquet(paths[2])
    _at(frame, 1e6, 1e6).to_parquet(paths[1])

    def fails():
        with pytest.raises(soc.ItemsError):
            soc.item_posteriors(fit, items, out=folder, **QUIET)

    (text,) = _said(fails)
    assert text.startswith("2 of 500 ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"smooth": False}, "count as scores of the outermost bins"),
        ({"prior": "rank"}, "count as the outermost scores of the fit"),
    ],
)
def test_messages_for_other_curves(frame, options, words):
    if options.pop("prior", None):
        ranks = soc.Spline(scale="rank")
        options = {"prior": soc.Gamma(mean=ranks, variance=ranks)}
    fit = _five(frame, **options)
    items = soc.PoissonItems(_at(frame, 50.0), **COLUMNS)
    (text,) = _said(lambda: soc.item_posteriors(fit, items, **QUIET))
    assert words in text
    # truly so: the outermost score of the fit gets the same posterior
    edge = soc.PoissonItems(_at(frame, frame["score"].max()), **COLUMNS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # which was looked at
        far, near = (soc.item_posteriors(fit, i, **QUIET) for i in (items, edge))
    assert far["theta_mean"].iloc[0] == pytest.approx(near["theta_mean"].iloc[0], rel=1e-9)


def test_decisions_and_curves_warn_once(fit, frame):
    items = soc.PoissonItems(_at(frame, 1e6), **COLUMNS)
    calls = {
        "items have scores": lambda: soc.decisions.probability_above(fit, items, 0.1, **QUIET),
        "scores are": lambda: soc.calibration_curves(fit, np.append(np.full(499, 0.05), 1e6)),
    }
    for what, call in calls.items():
        (text,) = _said(call)
        assert text.startswith(f"1 of 500 {what} far outside")
    own = soc.PoissonItems(frame, **COLUMNS)
    assert _said(lambda: soc.decisions.probability_above(fit, own, 0.1, **QUIET)) == []
    assert _said(lambda: soc.calibration_curves(fit)) == []


def test_an_error_counts_scores_without_a_position(fit, frame):
    items = soc.PoissonItems(_at(frame, -1.0, 0.0, -2.0), **COLUMNS)
    for call in (
        lambda: soc.item_posteriors(fit, items, **QUIET),
        lambda: soc.decisions.probability_above(fit, items, 0.1, **QUIET),
        lambda: soc.calibration_curves(fit, [-1.0, 0.0, -2.0, 0.1]),
    ):
        with pytest.raises(soc.FitError, match=r"^3 scores are 0 or below"):
            call()


def test_values_on_a_linear_axis():
    rng = np.random.default_rng(0)
    score = rng.normal(size=500)
    noisy = pd.DataFrame({"score": score, "value": score + rng.normal(size=500), "noise_sd": 0.5})
    names = {"score": "score", "value": "value", "noise_sd": "noise_sd"}
    stats = soc.summarize(soc.NormalItems(noisy, **names), **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    width = score.max() - score.min()
    for away, expected in ((0.099, []), (0.101, ["1 of 500 items"])):
        moved = noisy.copy()
        moved.loc[0, "score"] = score.min() - away * width
        items = soc.NormalItems(moved, **names)
        said = _said(lambda items=items: soc.item_posteriors(fit, items, **QUIET))
        assert [text[:14] for text in said] == expected


@pytest.mark.slow
def test_an_estimator_with_a_term_in_exposure_warns_once(frame):
    from soc_pymc import SecondOrderCalibrator

    few = frame.iloc[:300]
    learner = SecondOrderCalibrator(
        prior=soc.Gamma(exposure=soc.Spline()), progress=False, draws="all"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few bins
        learner.fit(few["score"], few["count"], exposure=few["exposure"])
    t = np.append(np.full(3000, 0.05), 1e6)
    (text,) = _said(lambda: learner.predict(t))
    assert text.startswith("1 of 3,001 items have scores far outside")


def test_quantities_and_checks_of_other_statistics_warn_about_bins(fit, frame):
    moved = _at(frame)
    moved.loc[moved.index[:20], "score"] = 1e6  # a bin and more of 10 bins
    stats = soc.summarize(soc.PoissonItems(moved, **COLUMNS), bins=10, joint=True, **QUIET)
    calls = (
        lambda: soc.quantities.r_squared(fit, stats),
        lambda: soc.quantities.variance_reduction(fit, stats, **QUIET),
        lambda: soc.quantities.shrinkage(fit, stats, **QUIET),
        lambda: soc.check(fit, stats, **QUIET),
    )
    for call in calls:
        (text,) = _said(call)
        assert text.startswith("1 of 10 bins of the statistics hold scores far outside")
    own = soc.summarize(soc.PoissonItems(frame, **COLUMNS), bins=10, joint=True, **QUIET)
    assert _said(lambda: soc.quantities.r_squared(fit, own)) == []


def test_a_single_far_score_within_a_bin_is_detected(fit, frame):
    """The bin's mean score is not far."""
    stats = soc.summarize(soc.PoissonItems(_at(frame, 5.0), **COLUMNS), bins=4, **QUIET)
    assert (stats.data["sum_t"] / stats.data["n"]).max() < frame["score"].max()
    (text,) = _said(lambda: soc.quantities.r_squared(fit, stats))
    assert text.startswith("1 of 4 bins")
    assert "to 5)" in text


@pytest.mark.slow
def test_held_out_items_and_compared_scores_warn_about_items(frame):
    split = soc.evaluate.split_items(soc.PoissonItems(frame, **COLUMNS))
    fit = soc.fit(soc.summarize(split.train, **QUIET), method=soc.FiveSteps(), **QUIET)
    far = soc.evaluate.split_items(soc.PoissonItems(_at(frame, 1e6, 2e6), **COLUMNS))
    judge = {"baselines": (), "bins": 2, **QUIET}
    (text,) = _said(lambda: soc.evaluate.held_out(fit, far, **judge))
    assert text.startswith("2 of 500 items have scores far outside")
    assert _said(lambda: soc.evaluate.held_out(fit, split, **judge)) == []


def test_compared_scores_count_all_items_not_the_sample(frame):
    few = soc.PoissonItems(frame.iloc[:600], **COLUMNS)
    fit = soc.fit(soc.summarize(few, bins=10, **QUIET), method=soc.VI(draws=20), **QUIET)
    far = soc.PoissonItems(_at(frame, 1e6), **COLUMNS)
    pairs = {"one": (fit, far), "same": (fit, far)}
    said = _said(lambda: soc.quantities.compare_scores(pairs, sample=10, **QUIET))
    assert len(said) == 2  # one for each score
    assert all(text.startswith("1 of 500 items have scores far outside") for text in said)


@pytest.mark.slow
def test_a_report_warns_once_and_on_its_page(fit, frame, tmp_path):
    items = soc.PoissonItems(_at(frame, 1e6), **COLUMNS)
    page = tmp_path / "r.html"
    (text,) = _said(lambda: soc.report(fit, items, out=page, threshold=0.1, **QUIET))
    assert text.startswith("1 of 500 items have scores far outside")
    assert "1 of 500 items have scores far outside" in page.read_text(encoding="utf-8")
    own = soc.PoissonItems(frame, **COLUMNS)
    assert _said(lambda: soc.report(fit, own, out=page, **QUIET)) == []
    assert "far outside" not in page.read_text(encoding="utf-8")


def test_quantities_of_few_bins_do_not_warn():
    """Quantities of a mixture take at most 200 bins, of few scores fewer."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"score": rng.integers(1, 30, 600) / 100.0, "exposure": 50.5})
    frame["count"] = rng.poisson(frame["score"] * 50.5)
    items = soc.PoissonItems(frame, **COLUMNS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # few bins
        stats = soc.summarize(items, joint=True, **QUIET)
    fit = soc.fit(stats, soc.GammaMixture(), soc.FiveSteps(), **QUIET)
    calls = (
        lambda: soc.quantities.variance_reduction(fit, items, **QUIET),
        lambda: soc.quantities.shrinkage(fit, items, **QUIET),
    )
    for call in calls:
        assert _said(call) == []
