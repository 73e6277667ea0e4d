"""Several columns of groups: statistics, main effects, scoring, checks, effects of levels."""

import json
from dataclasses import replace

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import soc_pymc as soc
from soc_pymc._lib import arguments
from soc_pymc.front.cli import main
from soc_pymc.posterior.curves import curve_draws
from tests.studies import crossed

COUNTS = {"score": "score", "count": "count", "exposure": "exposure"}
GROUP = ("country", "device")
SIZES = 4, 2
PRIOR = soc.Gamma(mean=soc.Spline(knots=4), variance=soc.Spline(knots=2))
pytestmark = pytest.mark.filterwarnings("ignore:exposures are whole numbers")
QUIET = {"progress": False}


@pytest.fixture(scope="module")
def frame():
    """400 items without the last combination."""
    table = crossed.simulate(1, items=50, sizes=SIZES)[0]
    last = (table["country"] == "c03") & (table["device"] == "d01")
    return table[~last].reset_index(drop=True)


@pytest.fixture(scope="module")
def items(frame):
    return soc.PoissonItems(frame, **COUNTS, group=GROUP)


@pytest.fixture(scope="module")
def stats(items):
    return soc.summarize(items, bins=12, on_leakage="ignore", **QUIET)


@pytest.fixture(scope="module")
def fit(stats, kept_fit):
    return kept_fit("crossed", lambda: soc.fit(stats, PRIOR, soc.VI(draws=200), **QUIET))


def tables_of(stats):
    return {name: stats.table(name) for name in ("part", "exposure", "count")}


def assert_same(one, other):
    for name, table in tables_of(one).items():
        for column, values in other.table(name).items():
            whole = values.dtype.kind in "iu"
            np.testing.assert_allclose(table[column], values, rtol=0 if whole else 1e-12)


# --- statistics ----------------------------------------------------------------------------------


def on_engine(engine, frame, folder):
    """The table as each engine reads it, in two parts where it is files."""
    if engine == "polars":
        return pl.from_pandas(frame)
    if engine == "arrow":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if engine == "duckdb":
        connection = ibis.duckdb.connect()
        connection.con.register("items", pa.Table.from_pandas(frame))
        return connection.table("items")
    if engine == "ibis on polars":
        return ibis.polars.connect(tables={"items": pl.from_pandas(frame)}).table("items")
    for k, part in enumerate(np.array_split(np.arange(len(frame)), 2)):
        getattr(frame.iloc[part], f"to_{engine}")(folder / f"{k}.{engine}", index=False)
    return str(folder / f"*.{engine}")


@pytest.mark.parametrize(
    "engine", ["polars", "arrow", "duckdb", "ibis on polars", "parquet", "csv"]
)
def test_statistics_are_equal_on_every_engine(engine, frame, stats, tmp_path):
    items = soc.PoissonItems(on_engine(engine, frame, tmp_path), **COUNTS, group=GROUP)
    found = soc.summarize(items, edges=stats.edges, on_leakage="ignore", **QUIET)
    assert found.groups == stats.groups
    assert_same(found, stats)


def test_statistics_add_up(frame, stats):
    parts = (frame.iloc[:150], frame.iloc[150:])
    made = [
        soc.summarize(
            soc.PoissonItems(part, **COUNTS, group=GROUP),
            edges=stats.edges,
            on_leakage="ignore",
            **QUIET,
        )
        for part in parts
    ]
    assert_same(made[0] + made[1], stats)


def test_groups_are_the_combinations_that_occur(frame, stats):
    assert stats.groups == tuple(sorted({f"{c} × {d}" for c, d in frame[list(GROUP)].to_numpy()}))
    assert [(g.name, g.column, g.levels) for g in stats.groupings] == [
        ("group_1", "country", ("c00", "c01", "c02", "c03")),
        ("group_2", "device", ("d00", "d01")),
    ]
    for label, *of in zip(stats.groups, *(g.of for g in stats.groupings), strict=True):
        assert label == f"c0{of[0]} × d0{of[1]}"
    own = stats.of_group(("c01", "d00"))
    assert own.n_items == stats.of_group("c01 × d00").n_items == 50


def test_statistics_are_saved(stats, tmp_path):
    stats.save(tmp_path / "stats.nc")
    found = soc.load_statistics(tmp_path / "stats.nc")
    assert found.groups == stats.groups
    assert_same(found, stats)


@pytest.mark.parametrize("group", ["country", ["country"], ("country",)])
def test_one_column_in_a_list_is_that_column(frame, group):
    items = soc.PoissonItems(frame, **COUNTS, group=group)
    assert items.roles["group"] == "country"
    assert "group_1" not in items.roles


def test_labels_may_be_whole_numbers_or_truth_values(frame):
    table = frame.assign(year=frame["country"].str[1:].astype(int), new=frame["device"] == "d01")
    items = soc.PoissonItems(table, **COUNTS, group=["year", "new"])
    found = soc.summarize(items, bins=12, on_leakage="ignore", **QUIET)
    assert found.groups[:2] == ("0 × false", "0 × true")


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ((), "names no column: leave it out"),
        (("country", "country"), "group= names the column 'country' twice"),
        (("country", "score"), "score and group both name the column 'score'"),
        (("country", 3), "group=3 must be the name of a column"),
        (("country", "nation"), "column 'nation' is missing"),
        (("country", "gap"), "column 'gap': 3 of 350 rows are missing"),
        (("country", "half"), "column 'half' holds numbers with fractions; groups must be labels"),
        (("country", "times"), "column 'times': 2 of 350 rows are labelled with '×'"),
    ],
)
def test_bad_columns_of_groups_are_refused_in_a_sentence(frame, group, text):
    table = frame.assign(half=0.5, gap="a", times="a")
    table.loc[:2, "gap"], table.loc[:1, "times"] = None, "a×b"
    for source in (table, pa.Table.from_pandas(table), ibis.memtable(table)):
        with pytest.raises(soc.ItemsError, match="(?s)" + text.replace("(", r"\(")):
            soc.summarize(soc.PoissonItems(source, **COUNTS, group=group), bins=12, **QUIET)


def test_a_fit_is_applied_to_items_of_a_group_each(fit, frame):
    """To learn from such groups is refused; to read them by a fit that is there is not."""
    few = frame.head(60).assign(country=[f"new {k}" for k in range(60)])
    items = soc.PoissonItems(few, **COUNTS, group=GROUP)
    with pytest.raises(soc.ItemsError, match=r"'country': every item is a group of its own \(60"):
        soc.summarize(items, **QUIET)
    share = soc.quantities.shrinkage(fit, items, **QUIET)["share"]
    assert bool(np.isfinite(share).all())


def test_levels_beyond_memory_are_refused(frame, monkeypatch):
    monkeypatch.setattr(arguments, "_memory", lambda: 16e9)
    table = pd.concat([frame] * 60, ignore_index=True)
    table["name"] = np.maximum(np.arange(len(table)) - 1, 0)  # every item but two has its own
    items = soc.PoissonItems(table, **COUNTS, group=("country", "name"))
    stats = soc.summarize(items, bins=12, on_leakage="ignore", **QUIET)
    with pytest.raises(soc.FitError, match=r"20,999 levels of 'name' take .* fewer levels"):
        soc.fit(stats, **QUIET)


# --- the fit -------------------------------------------------------------------------------------


def test_levels_have_variables_of_their_own(fit, stats, tmp_path):
    posterior = fit.data["posterior"]
    for name, sizes in (("group_1", 4), ("group_2", 2)):
        for curve in ("log_mean", "log_cv2"):
            assert posterior[f"{curve}_of_{name}"].sizes[name] == sizes
            assert {f"{curve}_{name}_level_sd", f"{curve}_{name}_slope_sd"} <= set(posterior)
    assert fit.groups == stats.groups
    assert fit.groupings == {"group_1": ("c00", "c01", "c02", "c03"), "group_2": ("d00", "d01")}
    assert json.loads(fit.data.attrs["roles"])["group_2"] == "device"
    fit.save(tmp_path / "fit.nc")
    assert soc.load_fit(tmp_path / "fit.nc").groupings == fit.groupings


def test_effects_of_a_combination_add_up(fit):
    """Also of the combination that the fit has not seen."""
    score = [0.02, 0.05, 0.3]

    def curve(*levels):
        return np.array(
            curve_draws(fit, score, group=[" × ".join(x or "×" for x in levels)] * len(score))
        )

    shared = np.array(curve_draws(fit, score))
    np.testing.assert_allclose(curve(None, None), shared)
    for country in ("c01", "c03"):
        both = curve(country, None) + curve(None, "d01") - shared
        np.testing.assert_allclose(curve(country, "d01"), both, rtol=1e-12)
    assert not np.allclose(curve("c01", None), shared)


def test_curves_of_groups_are_asked_for_by_their_levels(fit):
    one = soc.calibration_curves(fit, [0.05], group=("c01", "d00"))
    np.testing.assert_array_equal(
        one["mean"], soc.calibration_curves(fit, [0.05], group="c01 × d00")["mean"]
    )
    known = soc.calibration_curves(fit, [0.05], group=("c01", None))["log_mean"]
    with pytest.warns(soc.ItemsWarning, match="never saw a group 'd07'.*'d00', 'd01'"):
        new = soc.calibration_curves(fit, [0.05], group=("c01", "d07"))["log_mean"]
    assert float(new.std()) > float(known.std())
    for wrong, text in (("c01", "one level of each of country × device"), (("c01", 1.5), "label")):
        with pytest.raises(soc.FitError, match=text):
            soc.calibration_curves(fit, [0.05], group=wrong)


def test_the_same_new_label_in_two_columns_is_not_one_draw(fit):
    shared = np.array(curve_draws(fit, [0.05]))
    labels = ["new × ×", "× × new"]
    one, other = (np.array(curve_draws(fit, [0.05], group=[x])) - shared for x in labels)
    assert abs(np.corrcoef(one[0].ravel(), other[0].ravel())[0, 1]) < 0.3


def test_items_are_scored_with_both_effects(fit, items, frame):
    scored = [soc.item_posteriors(fit, items, draws=draws, **QUIET) for draws in ("all", "auto")]
    error = np.abs(scored[0]["theta_mean"] - scored[1]["theta_mean"]) / scored[0]["theta_sd"]
    assert error.max() < 1e-3
    assert scored[0]["theta"].between(scored[0]["theta_q05"], scored[0]["theta_q95"]).mean() > 0.8
    new = soc.PoissonItems(frame[:20].assign(device="new"), **COUNTS, group=GROUP)
    wider = soc.item_posteriors(fit, new, **QUIET)["theta_sd"]
    assert wider.mean() > scored[0]["theta_sd"][:20].mean()


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (("device", "country"), "these are of 'device' and 'country': give the items group="),
        ("country", "the fit's groups are of 'country' and 'device', and these are of 'country'"),
        (None, "the items name no column of groups"),
    ],
)
def test_other_columns_of_groups_are_refused(fit, frame, group, text):
    items = soc.PoissonItems(frame, **COUNTS, group=group)
    with pytest.raises(soc.ItemsError, match=text):
        soc.item_posteriors(fit, items, **QUIET)
    stats = soc.summarize(items, bins=12, on_leakage="ignore", **QUIET)
    text = text.replace("the items name no column of groups", "statistics have none")
    with pytest.raises(soc.StatisticsError, match=text):
        soc.quantities.r_squared(fit, stats)


def test_groups_can_be_pooled(stats):
    pooled = soc.fit(stats, soc.Gamma(groups=False), soc.VI(draws=50), **QUIET)
    assert pooled.groups == ()
    assert pooled.groupings == {}


def test_five_steps_fit_combinations_by_themselves(stats):
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    assert fit.groupings == {"group": stats.groups}
    found = soc.calibration_curves(fit, [0.05], group=("c00", "d01"))["mean"]
    assert float(found[0, 0, 0]) > 0
    with pytest.raises(soc.FitError, match="single draw"):
        soc.quantities.group_effects(fit, stats)


# --- checks, effects of levels, other places -----------------------------------------------------


def test_checks_slice_by_every_column(fit, items):
    table = soc.check(fit, items, subset=50, **QUIET).table
    assert {"country = c00", "device = d01"} <= set(table["slice"])
    joint = soc.summarize(items, bins=12, joint=True, on_leakage="ignore", **QUIET)
    table = soc.check(fit, joint, **QUIET).table
    assert {"country = c00", "device = d01"} <= set(table["slice"])


def test_effects_of_levels(fit, stats):
    effects = soc.quantities.group_effects(fit, stats, prob=0.8)
    table = effects.table
    assert effects.effect == "factor"
    assert list(table["column"]) == ["country"] * 4 + ["device"] * 2
    for _, own in table.groupby("column"):
        assert (np.diff(own["effect"]) <= 0).all()
        assert (own["low"] < own["effect"]).all()
        assert (own["effect"] < own["high"]).all()
        assert own["n_items"].sum() == 350
        assert abs(own["n_items"] @ np.log(own["effect"])) / 350 < 0.02
    np.testing.assert_array_equal(table["differs"], (table["low"] > 1) | (table["high"] < 1))
    assert effects.by_chance.loc["country", "by_chance"] == pytest.approx(0.8)
    assert effects.by_chance["differ"].sum() == table["differs"].sum()
    assert "of 4 levels of 'country' differ" in repr(effects)
    curves = (
        soc.calibration_curves(fit, [0.05], group=(None, label))["log_mean"].median()
        for label in ("d01", "d00")
    )
    own = table[table["column"] == "device"].set_index("level")["effect"]
    assert np.log(own["d01"] / own["d00"]) == pytest.approx(
        float(next(curves)) - float(next(curves)), abs=0.1
    )


def test_effects_of_levels_need_groups(small_statistics):
    fit = soc.fit(small_statistics, method=soc.FiveSteps(), **QUIET)
    with pytest.raises(soc.FitError, match="has no groups"):
        soc.quantities.group_effects(fit, small_statistics)


def test_effects_are_drawn(fit, stats):
    effects = soc.quantities.group_effects(fit, stats)
    ax = soc.plots.plot_group_effects(effects)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["country", *effects.table["level"][:4], "device", *effects.table["level"][4:]]
    few = soc.plots.plot_group_effects(effects, levels=2)
    assert len(few.get_yticklabels()) == 6
    assert "farthest" in few.get_title(loc="left")


def test_the_report_shows_levels(fit, items, tmp_path):
    soc.report(fit, items, out=tmp_path / "page.html", **QUIET)
    page = (tmp_path / "page.html").read_text()
    assert "Levels at equal score" in page
    assert "of 2 levels of &#39;device&#39; differ" in page
    assert "country = c03" in page


def test_a_split_keeps_both_columns(items):
    split = soc.evaluate.split_items(items)
    assert split.train.group == ("group_1", "group_2")
    stats = soc.summarize(split.train, bins=12, on_leakage="ignore", **QUIET)
    assert len(stats.groups) == 7


def test_the_estimator_takes_a_frame_of_groups(frame):
    calibrator = soc.SecondOrderCalibrator(bins=12, method=soc.FiveSteps(), on_leakage="ignore")
    data, groups = (frame["score"], frame["count"], frame["exposure"]), frame[list(GROUP)]
    calibrator.fit(*data, group=groups)
    assert len(calibrator.fit_.groups) == 7
    both = calibrator.predict(frame["score"], group=groups.to_numpy())
    np.testing.assert_allclose(both, calibrator.predict(frame["score"], group=groups))
    assert calibrator.score(*data, group=groups) < 0
    for group, text in ((None, "given 2 columns of groups"), (frame["country"][:3], "shape")):
        with pytest.raises(soc.ItemsError, match=text):
            calibrator.predict(frame["score"], group=group)


@pytest.mark.parametrize(
    "flags", [("--group", "country", "--group", "device"), ("--group", "country,device")]
)
def test_the_command_line_takes_several_columns(flags, frame, fit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.to_parquet("items.parquet")
    fit.save("fit.nc")
    roles = ("--score", "score", "--count", "count", "--exposure", "exposure")
    own = ("--bins", "12", "--out", "stats.nc", "--quiet")
    assert main(["summarize", "items.parquet", *roles, *flags, *own]) == 0
    assert len(soc.load_statistics("stats.nc").groupings) == 2
    assert main(["posteriors", "fit.nc", "items.parquet", "--out", "p.parquet", "--quiet"]) == 0
    assert len(pd.read_parquet("p.parquet")) == len(frame)
    for level in (("--group", "c01,d00"), ("--group", "c01", "--group", "d00")):
        assert main(["curves", "fit.nc", *level, "--out", "c.csv", "--quiet"]) == 0


def test_a_column_whose_name_has_a_comma_is_one_column(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.rename(columns={"country": "a,b"}).to_parquet("items.parquet")
    roles = ("--score", "score", "--count", "count", "--exposure", "exposure", "--group", "a,b")
    own = ("--bins", "12", "--out", "stats.nc", "--quiet")
    assert main(["summarize", "items.parquet", *roles, *own]) == 0
    assert soc.load_statistics("stats.nc").groupings[0].column == "a,b"


# --- accuracy ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bands_cover_the_truth():
    """Three sets of a smaller design than the study's."""
    rows = pd.DataFrame([crossed.coverage(seed, bins=40, sizes=(6, 2)) for seed in range(3)])
    mean = rows.mean()
    assert 0.89 < mean["items"] < 0.915
    assert mean["mean"] > 0.84
    assert mean["cv2"] > 0.84
    assert mean["effects"] > 0.8


@pytest.mark.slow
def test_effects_agree_with_nuts():
    """Of a smaller design than the study's."""
    table = crossed.against_nuts(sizes=(4, 2), bins=40)
    assert table["apart"].abs().max() < 0.3
    assert table["ratio"].between(0.8, 1.2).all()
    assert abs(table["ratio"].mean() - 1) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("prior", [replace(PRIOR, monotone=True), soc.GammaMixture()])
def test_other_priors_take_crossed_groups(prior, frame, items):
    joint = soc.summarize(items, bins=12, joint=True, on_leakage="ignore", **QUIET)
    fit = soc.fit(joint, prior, soc.VI(draws=50), **QUIET)
    scored = soc.item_posteriors(fit, items, **QUIET)
    assert scored["theta"].between(scored["theta_q05"], scored["theta_q95"]).mean() > 0.8
    effects = soc.quantities.group_effects(fit, joint)
    assert len(effects.table) == 6
    if prior.mixture:
        return
    curve = curve_draws(fit, np.geomspace(0.01, 0.5, 20), group=["c03 × d01"] * 20)[0]
    assert (np.diff(curve, axis=1) > -1e-9).all()
