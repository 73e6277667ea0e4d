"""Cross-fitting, leakage, and statistics in fewer bins."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import soc_pymc as soc
from soc_pymc.data.statistics import coarsened, equal_edges
from soc_pymc.evaluate import compare_bins, cross_fit, leakage
from tests.studies.leakage import fresh_of, items_of, one, world
from tests.thinning import thinned

# ---------------------------------------------------------------- cross-fitting


class Recorder(RegressorMixin, BaseEstimator):
    """Predicts whether it has seen a row; its first feature is the row's number."""

    def fit(self, X, y, sample_weight=None):
        self.seen_, self.y_, self.weight_ = set(np.asarray(X)[:, 0]), y, sample_weight
        return self

    def predict(self, X):
        return np.array([row in self.seen_ for row in np.asarray(X)[:, 0]], dtype=float)


def test_no_score_is_trained_on_its_own_row():
    X = np.arange(103.0)[:, None]
    for frame in (X, pd.DataFrame({"row": X[:, 0]})):
        score, fold = cross_fit(Recorder(), frame, np.ones(103), folds=5)
        assert not score.any()
        assert np.bincount(fold).tolist() == [21, 21, 21, 20, 20]
    again = cross_fit(Recorder(), X, np.ones(103), folds=5)[1]
    np.testing.assert_array_equal(fold, again)
    assert (cross_fit(Recorder(), X, np.ones(103), folds=5, seed=1)[1] != fold).any()


def test_groups_stay_together():
    """Duplicates of an item would leak its outcome from one fold into another."""
    rng = np.random.default_rng(0)
    groups = rng.choice(list("abcdefghijkl"), 400, p=np.array([0.3] + 11 * [0.7 / 11]))
    code = np.unique(groups, return_inverse=True)[1].astype(float)
    score, fold = cross_fit(Recorder(), code[:, None], np.ones(400), groups=groups, folds=3)
    assert not score.any()
    assert all(len(set(fold[groups == g])) == 1 for g in set(groups))
    # the largest group has 30%, so that folds need not differ by more than a small one
    assert np.bincount(fold).max() < 0.45 * 400


def test_rates_with_exposure_are_counts_with_an_offset():
    """A constant model predicts sum y / sum N of the other folds."""
    rng = np.random.default_rng(1)
    exposure = rng.uniform(1, 50, 200)
    count = rng.poisson(0.2 * exposure)
    X = np.zeros((200, 1))
    for model in (PoissonRegressor(), LinearRegression()):
        score, fold = cross_fit(model, X, count, exposure=exposure, folds=4)
        for k in range(4):
            others = fold != k
            expected = count[others].sum() / exposure[others].sum()
            np.testing.assert_allclose(score[~others], expected, rtol=1e-4)
    items = pd.DataFrame({"t": score, "y": count, "N": exposure, "f": fold})
    items["t"] += 1e-3 * np.arange(200)
    stats = soc.summarize(
        soc.PoissonItems(items, score="t", count="y", exposure="N", fold="f"), progress=False
    )
    assert stats.folds == 4


def test_predictions_are_clipped_only_if_asked():
    X, y = np.arange(40.0)[:, None], np.arange(40.0) - 20
    assert cross_fit(LinearRegression(), X, y)[0].min() < 0
    assert cross_fit(LinearRegression(), X, y, least=1e-6)[0].min() == 1e-6


class Broken(Recorder):
    def predict(self, X):
        return np.full(len(X), np.nan)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": np.ones(9)}, "X has 10 rows and y has 9"),
        ({"y": np.full(10, np.nan)}, "y: 10 of 10 are not finite"),
        ({"exposure": np.ones(9)}, "exposure has the shape"),
        ({"exposure": np.zeros(10)}, "are not > 0"),
        ({"y": -np.ones(10), "exposure": np.ones(10)}, "are negative"),
        ({"regressor": KNeighborsRegressor(), "exposure": np.ones(10)}, "takes no sample_weight"),
        ({"regressor": Broken()}, "of fold 0 that are not finite"),
        ({"folds": 11}, "from 2 to the 10 rows"),
        ({"folds": 3, "groups": np.repeat([0, 1], 5)}, "from 2 to the 2 groups"),
        ({"groups": np.ones(3)}, "groups has the shape"),
    ],
)
def test_what_cannot_be_cross_fitted(change, words):
    given = {"regressor": Recorder(), "X": np.arange(10.0)[:, None], "y": np.ones(10), **change}
    with pytest.raises(soc.ItemsError, match=words):
        cross_fit(given.pop("regressor"), given.pop("X"), given.pop("y"), **given)


# ---------------------------------------------------------------- leakage


@pytest.mark.parametrize(
    "kind",
    thinned(["s1", "informative", "coarse", "sure", "trials", "values"], ["informative", "values"]),
)
def test_honest_scores_raise_no_alarm(kind):
    """P-values of 5%: none of three seeds that are fixed, on any evidence."""
    for seed in (3, 4, 5):
        frame = world(2000, seed, kind)
        found = leakage(items_of(frame), fresh=items_of(fresh_of(frame)))
        assert not found.found, found
        assert "no sign" in found.words


def test_heavy_leaks_show_in_outcomes_alone():
    """Half of the score is the outcome; variation by octaves of exposure tells, at 2,000 items."""
    frame = world(2000, 0)
    rate = frame["count"] / frame["exposure"]
    leaky = leakage(items_of(frame.assign(score=0.5 * rate + 0.5 * frame["score"])))
    assert leaky.table.loc["outcomes alone", "z"] > 4
    assert leaky.table.loc["outcomes alone", "effect"] < 0.8
    assert "cross_fit" in leaky.words
    values = world(2000, 0, "values")
    mixed = 0.5 * values["value"] + 0.5 * values["score"]
    assert leakage(items_of(values.assign(score=mixed))).found


def test_leaks_of_small_exposures_show_beside_large_ones():
    """Half of the score is the outcome, of small exposures alone: `summarize` lets it pass."""
    frame = world(3000, 0)
    rate, few = frame["count"] / frame["exposure"], frame["exposure"] <= 8
    frame["score"] = np.where(few, 0.5 * rate + 0.5 * frame["score"], frame["score"])
    items = items_of(frame)
    assert leakage(items).found
    assert soc.summarize(items, on_leakage="ignore", progress=False).leakage_z > -4


def test_light_leaks_show_in_fresh_outcomes():
    """A tenth of the score is the outcome: nothing alone, much against fresh outcomes."""
    frame = world(3000, 1)
    rate = frame["count"] / frame["exposure"]
    frame["score"] = 0.1 * rate + 0.9 * frame["score"]
    found = leakage(items_of(frame), fresh=items_of(fresh_of(frame))).table
    assert not found.loc["outcomes alone", "leaks"]
    assert found.loc["fresh outcomes", "leaks"]
    assert found.loc["fresh outcomes", "effect"] < 0.97
    # fresh rates that are all twice as high are no leak's doing, nor is exposure that moves to t
    honest = world(3000, 1)
    rng = np.random.default_rng(0)
    moved = honest["exposure"] * np.where(honest["score"] > 0.05, 1.0, 0.2)
    later = honest.assign(count=rng.poisson(2 * honest["theta"] * moved), exposure=moved)
    assert not leakage(items_of(honest), fresh=items_of(later)).found


def test_a_common_factor_hides_no_leak():
    """Fresh rates twenty times as high, at exposures that shrink with t: z is 5 with the
    factor allowed for and -5 without it.
    """
    frame = world(3000, 0)
    rate = frame["count"] / frame["exposure"]
    frame["score"] = 0.1 * rate + 0.9 * frame["score"]
    moved = frame["exposure"] * np.where(frame["score"] > 0.05, 0.2, 1.0)
    rng = np.random.default_rng(0)
    later = frame.assign(count=rng.poisson(20 * frame["theta"] * moved), exposure=moved)
    found = leakage(items_of(frame), fresh=items_of(later)).table
    assert found.loc["fresh outcomes", "z"] > 3


def test_in_sample_scores_against_out_of_fold_ones():
    """Leaves of 20 items hide from outcomes alone; a line of few coefficients hides nothing."""
    assert one("leaves of 20", 3000, 0)["out-of-fold scores"]
    assert not one("linear", 3000, 0)["out-of-fold scores"]


def test_other_rows_are_refused():
    frame = world(500, 0)
    items = items_of(frame)
    with pytest.raises(soc.ItemsError, match="rows have another score"):
        leakage(items, fresh=items_of(frame.iloc[::-1]))
    with pytest.raises(soc.ItemsError, match="500"):
        leakage(items, fresh=items_of(frame.iloc[1:]))
    with pytest.raises(soc.ItemsError, match="another outcome"):
        leakage(items, out_of_fold=items_of(fresh_of(frame)))
    stats = soc.summarize(items, progress=False)
    assert not leakage(stats).found
    with pytest.raises(soc.FitError, match="no rows"):
        leakage(stats, fresh=items)


# ---------------------------------------------------------------- fewer bins


@pytest.mark.parametrize("kind", ["s1", "values"])
def test_bins_put_together(kind):
    """The same sums as those of items put into the wider bins."""
    items = items_of(world(3000, 2, kind))
    fine = soc.summarize(items, bins=60, folds=3, joint=False, progress=False)
    edges = equal_edges(fine, 7)
    assert len(edges) == 6
    wide, direct = (
        coarsened(fine, edges),
        soc.summarize(items, edges=edges, folds=3, joint=False, progress=False),
    )
    for name in direct.data:
        np.testing.assert_allclose(wide.data[name], direct.data[name], rtol=1e-9, err_msg=name)
    assert np.ptp(wide.data["n"].to_numpy()) < 100
    with pytest.raises(soc.StatisticsError, match="none of the statistics'"):
        coarsened(fine, [edges[0] * 1.0001])
    with pytest.raises(soc.StatisticsError, match="from 1 to the 60"):
        equal_edges(fine, 61)


def test_too_few_and_too_many_bins_show():
    """Wide bins hide variance, narrow ones are noise; the smoothed curves of both move."""
    frame = world(6000, 7)
    table = compare_bins(items_of(frame), (4, 30, 300), bayes=False, progress=False)
    assert table.index.tolist() == [4, 30, 300]
    assert table["hidden"].is_monotonic_decreasing
    assert table.loc[4, "hidden"] > 0.1 > table.loc[30, "hidden"]
    assert table["items"].tolist() == [1500, 200, 20]
    # a tenth of the items have noise of root 10 times the size; what curves do from bin to bin,
    # which is no noise, hardly depends on their number
    assert table.loc[300, "mean_noise"] > 2.0 * table.loc[30, "mean_noise"]
    assert table.loc[300, "variance_noise"] > 2.5 * table.loc[30, "variance_noise"]
    assert table.loc[300, "no_variance"] > table.loc[30, "no_variance"]
    assert (table.loc[300, ["five_steps_mean", "five_steps_variance"]] == 0).all()
    expected = frame["count"].groupby(pd.qcut(frame["score"], 4)).sum()
    assert table.loc[4, "least_events"] == pytest.approx(expected.min(), rel=0.05)


def test_the_share_that_wide_bins_hide_is_the_true_one():
    """Within a third of it, the finest bins of 20 items notwithstanding: their own noise is 15%."""
    frame = soc.simulation.s1(20_000, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    table = compare_bins(items, (5, 1000), bayes=False, progress=False)
    variance = frame["true_cv2"] * frame["true_mean"] ** 2
    bins = pd.qcut(frame["score"], 5, labels=False)
    within = frame["true_mean"].groupby(bins).var(ddof=0)
    true = within.mean() / variance.mean()
    assert abs(np.log(table.loc[5, "hidden"] / true)) < np.log(4 / 3)


def test_values_and_options_of_bins():
    items = items_of(world(2000, 3, "values"))
    table = compare_bins(items, (5, 20), soc.Normal(), bayes=False, progress=False)
    assert table.loc[5, "hidden"] > table.loc[20, "hidden"]
    assert "events" not in table
    with pytest.raises(soc.FitError, match="empty"):
        compare_bins(items, ())
    with pytest.raises(soc.FitError, match="NormalMixture"):
        compare_bins(items, (5,), soc.NormalMixture())
    with pytest.raises(soc.FitError, match="bayes=False"):
        compare_bins(items, (5,), method=soc.VI(), bayes=False)


@pytest.mark.slow
def test_bayesian_fits_hardly_mind():
    """From 25 to 100 bins the posterior's curves move by well under their own sds."""
    table = compare_bins(items_of(world(6000, 7)), (25, 100), progress=False)
    assert table.loc[25, "bayes_mean_sds"] < 0.5
    assert table.loc[25, "bayes_variance_sds"] < 0.5


@pytest.mark.slow
def test_false_alarms_and_power():
    """Of 20 honest sets at most 3 alarms in all on 5% tests (P < .08); trees are always caught."""
    honest = [one(kind, 2000, seed) for kind in ("s1", "informative") for seed in range(10, 20)]
    assert sum(found["any of them"] for found in honest) <= 3
    assert all(one("tree", 2000, seed)["outcomes alone"] for seed in range(5))


def test_a_tree_learns_by_heart():
    """In-sample leaves of one item are their outcomes; summarize refuses such scores as well."""
    frame = world(1500, 8)
    X = np.column_stack([frame["score"], np.arange(1500)])
    rate = frame["count"] / frame["exposure"]
    tree = DecisionTreeRegressor(random_state=0).fit(X, rate)
    leaky = items_of(frame.assign(score=tree.predict(X) + 1e-4))
    assert leakage(leaky).found
    honest, _ = cross_fit(tree, X, frame["count"], exposure=frame["exposure"], least=1e-4)
    assert not leakage(items_of(frame.assign(score=honest + 1e-4))).found


def test_missing_labels_are_one_group():
    """None, NaN and pandas' NA: rows without a label are kept together."""
    from soc_pymc.evaluate.honest_scores import _folds

    labels = np.array(["a", None, "b", float("nan"), "a", pd.NA, "c", "d"], dtype=object)
    found = _folds(len(labels), 5, labels, 0)
    assert len(set(found[[1, 3, 5]])) == 1
    assert found[0] == found[4]
    assert len(set(found)) == 5
