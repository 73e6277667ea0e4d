"""Scores far outside those of a fit give one warning for any number of batches and files."""

import warnings

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.examples import COUNT_ROLES, QUIET


@pytest.fixture(scope="module")
def frame(example):
    return example("five_steps").frame[list(COUNT_ROLES)]


@pytest.fixture(scope="module")
def fit(example):
    return example("five_steps").fit


def with_scores(frame, *scores):
    """Returns 500 rows of the frame, of which the first have these scores."""
    moved = frame.iloc[:500].copy()
    moved.iloc[: len(scores), 0] = scores
    return moved


def items_of(source):
    return soc.PoissonItems(source, **COUNT_ROLES)


def warned(call):
    """Returns the texts of the ItemsWarnings of a call, which name the caller's own line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    warned = [w for w in caught if w.category is soc.ItemsWarning]
    assert {w.filename for w in warned} <= {__file__}
    return [str(w.message) for w in warned]


def test_far_is_a_tenth_of_the_range_away(fit, frame):
    """The range of log scores of the fit; the warning counts the items beyond."""
    low, high = frame["score"].min(), frame["score"].max()
    tenth = (high / low) ** 0.1
    near = items_of(with_scores(frame, low / tenth * 1.001, high * tenth * 0.999))
    assert warned(lambda: soc.item_posteriors(fit, near, **QUIET)) == []
    far = items_of(with_scores(frame, low / tenth * 0.999, high, high * tenth * 1.001))
    (text,) = warned(lambda: soc.item_posteriors(fit, far, **QUIET))
    assert text.startswith("2 of 500 ")
    assert f"{low:.6g} to {high:.6g}" in text


@pytest.mark.slow
@pytest.mark.parametrize("draws", ["all", "auto"])
def test_once_for_a_table_and_for_a_streamed_file(fit, frame, draws, tmp_path):
    far = pd.concat([frame] * 30, ignore_index=True)
    far.loc[far.index[::24_000], "score"] = 1e6
    in_memory = warned(lambda: soc.item_posteriors(fit, items_of(far), draws=draws, **QUIET))
    assert len(in_memory) == 1
    assert in_memory[0].startswith("5 of 120,000 ")
    path, out = tmp_path / "items.parquet", tmp_path / "scored.parquet"
    far.to_parquet(path)
    options = {"draws": draws, "out": out, **QUIET}
    streamed = warned(lambda: soc.item_posteriors(fit, items_of(str(path)), **options))
    assert streamed == in_memory


def test_once_for_a_folder_even_if_a_later_file_is_bad(fit, frame, tmp_path):
    paths = [str(tmp_path / f"{k}.parquet") for k in range(3)]
    for path in paths:
        with_scores(frame, 1e6).to_parquet(path)
    items, folder = items_of(paths), f"{tmp_path / 'scored'}/"
    (text,) = warned(lambda: soc.item_posteriors(fit, items, out=folder, **QUIET))
    assert text.startswith("3 of 1,500 ")
    # finished files are not scored again, so that there is nothing to say
    assert warned(lambda: soc.item_posteriors(fit, items, out=folder, **QUIET)) == []
    with_scores(frame).assign(count=-1).to_parquet(paths[2])
    with_scores(frame, 1e6, 1e6).to_parquet(paths[1])

    def fails():
        with pytest.raises(soc.ItemsError):
            soc.item_posteriors(fit, items, out=folder, **QUIET)

    (text,) = warned(fails)
    assert text.startswith("2 of 500 ")


RANKS = soc.Spline(scale="rank")


def test_curves_without_a_line_keep_their_outermost_value(example, frame):
    """Far scores get the posterior of the fit's outermost score."""
    fit = soc.fit(
        example("five_steps").statistics, soc.Gamma(RANKS, RANKS), soc.FiveSteps(), **QUIET
    )
    far, edge = (with_scores(frame, score) for score in (50.0, frame["score"].max()))
    assert len(warned(lambda: soc.item_posteriors(fit, items_of(far), **QUIET))) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)
        found, expected = (soc.item_posteriors(fit, items_of(f), **QUIET) for f in (far, edge))
    assert found["theta_mean"].iloc[0] == pytest.approx(expected["theta_mean"].iloc[0], rel=1e-9)


def test_every_use_of_items_and_curves_warns_once(example, fit, frame):
    items = items_of(with_scores(frame, 1e6))
    score = np.append(np.full(499, 0.05), 1e6)
    calls = [
        lambda: soc.decisions.probability_above(fit, items, 0.1, **QUIET),
        lambda: soc.calibration_curves(fit, score),
        lambda: soc.check(fit, items, **QUIET),
    ]
    for call in calls:
        (text,) = warned(call)
        assert text.startswith("1 of 500 ")
    assert warned(lambda: soc.calibration_curves(fit)) == []
    own = example("five_steps").items
    assert warned(lambda: soc.decisions.probability_above(fit, own, 0.1, **QUIET)) == []


def test_statistics_of_other_items_warn_about_bins(example, fit, frame):
    """Also of a bin with a single far score, whose mean score is not far."""
    moved = with_scores(frame)
    moved.loc[moved.index[:20], "score"] = 1e6  # a bin and more of 10 bins
    many = soc.summarize(items_of(moved), bins=10, joint=True, **QUIET)
    single = soc.summarize(items_of(with_scores(frame, 5.0)), bins=4, joint=True, **QUIET)
    assert (single.data["sum_t"] / single.data["n"]).max() < frame["score"].max()
    for statistics, start in ((many, "1 of 10 bins"), (single, "1 of 4 bins")):
        calls = (
            lambda statistics=statistics: soc.quantities.r_squared(fit, statistics),
            lambda statistics=statistics: soc.quantities.shrinkage(fit, statistics, **QUIET),
            lambda statistics=statistics: soc.check(fit, statistics, **QUIET),
        )
        for call in calls:
            (text,) = warned(call)
            assert text.startswith(start)
    assert warned(lambda: soc.quantities.r_squared(fit, example("five_steps").statistics)) == []


def test_scores_without_a_position_are_refused_by_column(fit, frame, tmp_path):
    """A score of 0 has no logarithm, in tables and files, with outcomes and without."""
    bad = with_scores(frame, 0.0, -1.0)
    bad.to_parquet(tmp_path / "bad.parquet")
    new = soc.PoissonItems(bad, score="score")
    for call in (
        lambda: soc.item_posteriors(fit, items_of(bad), **QUIET),
        lambda: soc.item_posteriors(fit, items_of(str(tmp_path / "bad.parquet")), **QUIET),
        lambda: soc.item_posteriors(fit, new, draws="all", **QUIET),
        lambda: soc.check(fit, items_of(bad), **QUIET),
        lambda: soc.decisions.probability_above(fit, items_of(bad), 0.1, **QUIET),
    ):
        with pytest.raises(soc.ItemsError, match=r"'score': 2 of 500 scores .* no logarithm"):
            call()


def test_items_with_scores_are_refused_by_a_fit_without(frame):
    flat = soc.PoissonItems(frame, **{**COUNT_ROLES, "score": None})
    fit = soc.fit(soc.summarize(flat, **QUIET), soc.Gamma(), **QUIET)
    with pytest.raises(soc.ItemsError, match="give these score=None"):
        soc.item_posteriors(fit, items_of(frame), **QUIET)
