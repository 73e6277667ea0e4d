"""Several columns of groups: main effects, scoring, checks, effects of levels, other places."""

from dataclasses import replace

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.__main__ import main
from tests.examples import COUNT_ROLES, CROSSED, QUIET, part_of
from tests.studies import coverage

GROUP = ("country", "device")
PRIOR = CROSSED.prior
OPTIONS = {"bins": 12, "on_leakage": "ignore", **QUIET}
pytestmark = pytest.mark.filterwarnings("ignore:exposures are whole numbers")

frame = part_of("crossed", "frame")
items = part_of("crossed", "items")
stats = part_of("crossed", "statistics")
fit = part_of("crossed", "fit")


@pytest.mark.slow
def test_effects_of_a_combination_add_up(fit):
    """Also of the combination that the fit has not seen."""
    score = [0.02, 0.05, 0.3]

    def curve(country, device):
        label = f"{country or '×'} × {device or '×'}"
        return np.array(fit.curves.at(score, group=[label] * len(score)))

    shared = np.array(fit.curves.at(score))
    np.testing.assert_allclose(curve(None, None), shared)
    for country in ("c01", "c03"):
        both = curve(country, None) + curve(None, "d01") - shared
        np.testing.assert_allclose(curve(country, "d01"), both, rtol=1e-12)
    assert not np.allclose(curve("c01", None), shared)


@pytest.mark.slow
def test_curves_of_groups_are_asked_for_by_their_levels(fit, stats, tmp_path):
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.curves.groupings == {
        "group_1": ("c00", "c01", "c02", "c03"),
        "group_2": ("d00", "d01"),
    }
    words = ["curves", str(tmp_path / "fit.nc"), "--group", "c01", "--group", "d00", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "curves.csv")]) == 0
    by_levels = soc.calibration_curves(fit, [0.05], group=("c01", "d00"))
    by_label = soc.calibration_curves(again, [0.05], group="c01 × d00")
    np.testing.assert_array_equal(by_levels["mean"], by_label["mean"])
    known = soc.calibration_curves(fit, [0.05], group=("c01", None))["log_mean"]
    with pytest.warns(soc.ItemsWarning, match="'d07'"):
        new = soc.calibration_curves(fit, [0.05], group=("c01", "d07"))["log_mean"]
    assert float(new.std()) > float(known.std())
    with pytest.raises(soc.FitError, match="country × device"):
        soc.calibration_curves(fit, [0.05], group="c01")


@pytest.mark.slow
def test_the_same_new_label_in_two_columns_has_two_effects(fit):
    """Correlation of 200 independent draws: sd 0.07."""
    shared = np.array(fit.curves.at([0.05]))
    labels = ["new × ×", "× × new"]
    one, other = (np.array(fit.curves.at([0.05], group=[x])) - shared for x in labels)
    assert abs(np.corrcoef(one[0].ravel(), other[0].ravel())[0, 1]) < 0.3


@pytest.mark.slow
def test_items_are_scored_with_both_effects(fit, items, frame):
    every, auto = (
        soc.item_posteriors(fit, items, draws=draws, **QUIET) for draws in ("all", "auto")
    )
    error = np.abs(every["theta_mean"] - auto["theta_mean"]) / every["theta_sd"]
    assert error.max() < 1e-3
    # 90% intervals of 420 items: sd 0.016
    assert every["theta"].between(every["theta_q05"], every["theta_q95"]).mean() > 0.83
    new = soc.PoissonItems(frame[:20].assign(device="new"), **COUNT_ROLES, group=GROUP)
    wider = soc.item_posteriors(fit, new, **QUIET)["theta_sd"]
    assert wider.mean() > every["theta_sd"][:20].mean()
    # items of a group each cannot be learnt from, but can be read by a fit
    few = frame.head(60).assign(country=[f"new {k}" for k in range(60)])
    share = soc.quantities.shrinkage(fit, replace(items, source=few), **QUIET).data["share"]
    assert bool(np.isfinite(share).all())


@pytest.mark.slow
@pytest.mark.parametrize("group", [("device", "country"), "country", None])
def test_other_columns_of_groups_are_refused(fit, frame, group):
    other = soc.PoissonItems(frame, **COUNT_ROLES, group=group)
    with pytest.raises(soc.ItemsError, match="group"):
        soc.item_posteriors(fit, other, **QUIET)
    with pytest.raises(soc.StatisticsError, match="group"):
        soc.quantities.r_squared(fit, soc.summarize(other, **OPTIONS))


@pytest.mark.slow
def test_effects_of_levels(fit, stats):
    """At equal score: ordered, about 1 on average over items, and the difference of the curves."""
    effects = soc.quantities.group_effects(fit, stats, prob=0.8)
    table = effects.table[effects.table["where"] != "all levels"]
    assert list(table["what"]) == ["factor of country"] * 4 + ["factor of device"] * 2
    for _, levels in table.groupby("what"):
        n, effect = levels["n"].to_numpy(dtype=float), levels["value"].to_numpy()
        assert (np.diff(effect) <= 0).all()
        assert n.sum() == 420
        assert abs(n @ np.log(effect)) / 420 < 0.02
    assert ((table["low"] < table["value"]) & (table["value"] < table["high"])).all()
    excludes = (table["low"] > 1) | (table["high"] < 1)
    np.testing.assert_array_equal(table["verdict"] == "warn", excludes)
    number = excludes[table["what"] == "factor of country"].sum()
    sentence = "At most about 0.8 would differ by chance" if number else "None of the 4 levels"
    assert sentence in effects.advice[0]
    d01, d00 = (
        float(soc.calibration_curves(fit, [0.05], group=(None, label))["log_mean"].median())
        for label in ("d01", "d00")
    )
    factor = table[table["what"] == "factor of device"].set_index("where")["value"]
    assert np.log(factor["d01"] / factor["d00"]) == pytest.approx(d01 - d00, abs=0.1)


@pytest.mark.slow
def test_checks_splits_and_the_estimator_take_several_columns(fit, items, frame):
    table = soc.check(fit, items, subset=50, **QUIET).table
    assert {"country = c00", "device = d01"} <= set(table["where"])
    assert len(soc.summarize(soc.evaluate.split_items(items).train, **OPTIONS).groups) == 7
    calibrator = soc.SecondOrderCalibrator(bins=12, on_leakage="ignore")
    groups = frame[list(GROUP)]
    calibrator.fit(frame["score"], frame["count"], frame["exposure"], group=groups)
    predicted = calibrator.predict(frame["score"], group=groups)
    np.testing.assert_allclose(
        calibrator.predict(frame["score"], group=groups.to_numpy()), predicted
    )
    assert not np.allclose(calibrator.predict(frame["score"], group=groups[::-1]), predicted)


@pytest.mark.parametrize("columns", [("country", "device"), ("a,b", "device")])
def test_the_command_line_takes_several_columns(columns, frame, tmp_path, monkeypatch):
    """A column whose name has a comma is one column."""
    monkeypatch.chdir(tmp_path)
    frame.assign(**{"a,b": frame["country"]}).to_parquet("items.parquet")
    roles = ["--score", "score", "--count", "count", "--exposure", "exposure"]
    roles += [word for column in columns for word in ("--group", column)]
    words = ["summarize", "items.parquet", *roles, "--bins", "12", "--out", "stats.nc", "--quiet"]
    assert main(words) == 0
    groupings = soc.load_statistics("stats.nc").groupings
    assert [grouping.column for grouping in groupings] == list(columns)


@pytest.mark.slow
def test_bands_cover_the_truth():
    """One set of a smaller design than the study's, whose nominal coverage is 90%."""
    prior = soc.Gamma(mean=soc.Spline(knots=6), variance=soc.Spline(knots=4))
    found = coverage.of_crossed(0, bins=40, sizes=(6, 2), prior=prior)
    assert 0.88 < found["items"] < 0.92
    assert min(found["mean"], found["cv2"]) > 0.75
    assert found["effects"] > 0.7


@pytest.mark.slow
def test_rising_curves_take_crossed_groups(items, stats):
    prior = replace(PRIOR, monotone=True)
    fit = soc.fit(stats, prior, soc.VI(draws=50), **QUIET)
    scored = soc.item_posteriors(fit, items, **QUIET)
    assert scored["theta"].between(scored["theta_q05"], scored["theta_q95"]).mean() > 0.8
    curve = fit.curves.at(np.geomspace(0.01, 0.5, 20), group=["c03 × d01"] * 20)[0]
    assert (np.diff(curve, axis=1) > -1e-9).all()
