"""The prior table: batch, files and SQL score alike, closely to all draws; and its files."""

import functools
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from soc_pymc import prior_table
from soc_pymc.posterior import export
from soc_pymc.posterior.prior_build import table_of
from soc_pymc.posterior.weights import _with_moments
from tests.examples import CASES, ROLES, SINGLE_FAMILIES, SMALL_MIXTURE, Case, count_frame, thinned
from tests.posterior import references as ref

LIMITS = ["theta_q05", "theta_q95"]
COLUMNS = [*ref.MOMENTS, *LIMITS]


def count_frame_with_areas():
    """Returns counts whose areas have from a quarter to half of the items."""
    frame = count_frame(3000, 5)
    return frame.assign(area=np.resize(list("xyxz"), len(frame)))


def count_frame_with_atom():
    """Returns counts a fifth of which share a default score."""
    frame = count_frame()
    return frame.assign(score=frame["score"].where(frame.index % 5 > 0, 0.05))


COUNTS = partial(Case, count_frame, soc.PoissonItems, method=soc.VI(draws=200))
FITS = CASES | {
    "crossed": replace(
        CASES["groups"], frame=count_frame_with_areas, roles={"group": ("kind", "area")}
    ),
    "bin_effects": COUNTS(soc.Gamma(bin_effects=True)),
    "gamma_mixture_groups": COUNTS(soc.GammaMixture(**SMALL_MIXTURE), roles={"group": "kind"}),
}
FITS["atoms"] = replace(COUNTS(soc.Gamma()), frame=count_frame_with_atom)
QUICK = ("groups",)


@pytest.fixture(scope="module")
def scored(kept_fit, tmp_path_factory):
    """Returns 400 rows of a fit of `FITS` by name, scored in every form.

    Half of them have hostile sizes, the others are `usual`; `clear` ones are not flagged.
    """

    @functools.cache
    def by_name(name):
        case = FITS[name]
        key = f"example_{name}" if name in CASES else f"scored_{name}"
        fit, frame = kept_fit(key, case.fit), case.frame()
        frame = frame.iloc[:: len(frame) // 400].head(400).reset_index(drop=True)
        size = list(ROLES[case.kind].values())[2]
        hostile = ref.hostile_sizes(frame, case.kind).assign(id=np.arange(400))
        items = case.items(hostile)
        forms, paths = ref.scored_in_every_form(fit, items, tmp_path_factory.mktemp(name))
        return SimpleNamespace(
            fit=fit,
            frame=hostile,
            usual=(hostile[size] == frame[size]).to_numpy(),
            clear=~forms["parquet"]["flagged"].to_numpy(),
            arguments=ref.row_arguments(hostile, items.roles),
            path=paths["parquet"],
            **forms,
        )

    return by_name


# --- the same numbers everywhere -----------------------------------------------------------------


@pytest.mark.parametrize("name", thinned(FITS, QUICK))
def test_batch_files_and_sql_agree(scored, name):
    """Moments to rounding of sums (1e-9), quantiles to the square of the last step's size (1e-6).

    Both are relative to the number, or to the posterior sd if that is larger. Few steps of SQL may
    not reach a quantile: it is NULL and flagged then, for at most 1% of the rows that are not
    flagged. Under mixtures outcomes of hostile sizes say much of the weights, which flags them.
    """
    rows = scored(name)
    for form in (rows.parquet, rows.json):
        np.testing.assert_array_equal(form["flagged"], ~rows.clear)
    null = rows.sql[LIMITS].isna().any(axis=1).to_numpy()
    assert null[rows.clear].mean() <= 0.01
    np.testing.assert_array_equal(rows.sql["flagged"], ~rows.clear | null)
    assert rows.clear[rows.usual].mean() > 0.94
    for form in (rows.parquet, rows.json, rows.sql):
        for column in COLUMNS:
            expected = rows.batch[column]
            unit = np.maximum(np.abs(expected), rows.batch["theta_sd"])
            apart = ((form[column] - expected).abs() / unit)[rows.clear & ~null]
            assert apart.max() < (1e-9 if column in ref.MOMENTS else 1e-6), column
        np.testing.assert_allclose(form["theta_var"], form["theta_sd"] ** 2, rtol=1e-9)
        assert ("p_zero" in form) == FITS[name].prior.zero
        if FITS[name].prior.zero:
            zero = form["p_zero"][rows.clear]
            np.testing.assert_allclose(zero, rows.batch["p_zero"][rows.clear], atol=1e-9)


@pytest.mark.parametrize("name", thinned(["normal", "crossed", "gamma_mixture"], ["normal"]))
def test_a_row_alone_is_the_same_as_among_others(scored, name):
    """Numbers in, numbers out; 1e-12, as NumPy adds up the nodes of one row in another order."""
    rows = scored(name)
    table = prior_table.load(rows.path)
    for row in np.flatnonzero(rows.clear)[::160]:
        alone = prior_table.score(table, *(values[row] for values in rows.arguments))
        assert {type(value) for value in alone.values()} == {float, bool}
        item = FITS[name].items(rows.frame.iloc[[row]])
        found = soc.item_posteriors(rows.fit, item, progress=False).iloc[0]
        for column in COLUMNS:
            slack = 1e-12 * rows.batch["theta_sd"][row]
            expected = pytest.approx(rows.batch[column][row], rel=1e-12, abs=slack)
            assert alone[column] == expected, column
            assert found[column] == expected, column


# --- close to all draws --------------------------------------------------------------------------


@pytest.mark.parametrize("name", thinned(FITS, QUICK))
def test_rows_that_are_not_flagged_are_close_to_all_draws(scored, name):
    """Usual sizes: 99% within 2e-3 posterior sd (others than plain families 5e-3, quantiles 1e-2).

    None is off by more than 0.05. A term in exposure is a cubic by class of sizes, whose error is
    up to twice as large. Sizes that are multiplied are beyond those that the table was made for:
    99% within 3e-2 and none above 0.15. A 90% interval is 3 sd wide, so none of these can be seen.
    """
    rows = scored(name)
    errors = ref.errors_in_sd(rows.batch, rows.exact, COLUMNS)
    for column, error in errors.items():
        usual, hostile = error[rows.clear & rows.usual], error[rows.clear & ~rows.usual]
        bound = 1e-2 if column in LIMITS else 2e-3 if name in SINGLE_FAMILIES else 5e-3
        bound *= 2 if name == "exposure" else 1
        assert np.quantile(usual, 0.99) < bound, column
        assert usual.max() < 0.05, column
        assert np.quantile(hostile, 0.99) < 3e-2, column
        assert hostile.max() < 0.15, column
    if FITS[name].prior.zero:
        apart = (rows.batch["p_zero"] - rows.exact["p_zero"])[rows.clear].abs()
        assert apart.max() < 5e-3


@pytest.mark.parametrize("name", thinned(["normal", "gamma", "beta"], ["normal"]))
def test_flagged_rows_are_scored_over_all_draws(example, name):
    """Curves known five times worse, and as many rows as make a grid of quantiles worth while.

    Moments are the sums over all draws; quantiles are interpolated on a grid that is proven to 0.02
    of the interval's width on some rows, which then holds for 99% of the others.
    """
    case = example(name).case
    fit = ref.widened_fit(ref.thinned_fit(example(name).fit, 100), 5.0)
    frame = case.frame(8000, 11)
    items = case.items(frame)
    flagged = prior_table.score(table_of(fit.curves), *ref.row_arguments(frame, items.roles))[
        "flagged"
    ]
    assert flagged.sum() > 500
    exact = soc.item_posteriors(fit, items, draws="all", progress=False)[flagged]
    found = soc.item_posteriors(fit, items, progress=False)[flagged]
    for column, error in ref.errors_in_sd(found, exact, ref.MOMENTS).items():
        assert error.max() < 1e-3, column
    width = exact["theta_q95"] - exact["theta_q05"]
    for column in LIMITS:
        apart = (found[column] - exact[column]).abs() / width
        assert np.quantile(apart, 0.99) < 0.02, column


def test_outcomes_beyond_all_components_are_flagged(example, tmp_path):
    """Components that could explain them have weights without digits, or below 0."""
    zeros = example("zeros")
    frame = zeros.frame.head(40)
    outliers = frame.assign(count=[40, 100, 1000, 10**6] * 10, exposure=5)
    items = zeros.case.items(outliers)
    path = soc.export_prior(zeros.fit, tmp_path / "prior.json")
    table = prior_table.score(path, *(outliers[role] for role in ("score", "count", "exposure")))
    far = outliers["count"].to_numpy() > 40
    assert table["flagged"][far].all()
    assert table["p_zero"].max() < 1e-50
    few, every = (
        soc.item_posteriors(zeros.fit, items, draws=draws, progress=False)["theta_mean"]
        for draws in ("auto", "all")
    )
    np.testing.assert_allclose(few[far], every[far], rtol=1e-9)


def test_outer_levels_and_rows_without_outcomes(example, scored):
    """Levels beyond the table's are of all draws; without an outcome theta follows the score."""
    frame, rows = ref.some_rows(example("normal"), 50), scored("normal")
    options = {"quantiles": (0.001, 0.999)}
    exact = ref.score_items(example("normal"), frame, draws="all", **options)
    found = ref.score_items(example("normal"), frame, **options)
    pd.testing.assert_frame_equal(found, exact)
    new = soc.NormalItems(frame[["score"]], score="score")
    exact = soc.item_posteriors(example("normal").fit, new, draws="all", progress=False)
    found = pd.DataFrame(prior_table.score(rows.path, frame["score"]))
    clear = ~found["flagged"]
    assert clear.mean() > 0.9
    for column, error in ref.errors_in_sd(found[clear], exact[clear], COLUMNS).items():
        assert error.max() < 5e-3, column


# --- the file ------------------------------------------------------------------------------------


def test_the_file_says_what_it_is(scored, tmp_path):
    """Its description is that of the fit; the order of its columns, and others, do not matter."""
    rows = scored("normal")
    meta = prior_table.load(rows.path).meta
    assert (meta["family"], meta["axis"]["scale"], meta["zero"]) == ("Normal", "linear", False)
    assert 0.0 < max(meta["errors"].values()) < 0.05
    assert meta == prior_table.load(str(rows.path).replace("parquet", "json")).meta
    assert rows.path.stat().st_size < 1_000_000

    table = pq.read_table(rows.path)
    turned = table.select(table.column_names[::-1]).append_column("note", [["x"] * len(table)])
    pq.write_table(turned, tmp_path / "turned.parquet")
    again = prior_table.score(tmp_path / "turned.parquet", *rows.arguments)
    pd.testing.assert_frame_equal(pd.DataFrame(again), rows.parquet)


DAMAGE = {
    "number": lambda whole: whole["nodes"].update(second_00=whole["nodes"]["second_00"][::-1]),
    "description": lambda whole: whole["meta"]["edges"].insert(3, 1e-3),
    "cut column": lambda whole: whole["nodes"]["weight_00"].pop(),
    "no column": lambda whole: whole["nodes"].pop("weight_00"),
    "no description": lambda whole: whole.pop("meta"),
    "list": lambda whole: whole.update(meta=[1]),
    "no edges": lambda whole: whole["meta"].pop("edges"),
    "old format": lambda whole: whole["meta"].update(format="soc_pymc-prior-3"),
    "words": lambda whole: whole["nodes"].update(weight_00=["x"]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_changed_files_are_refused(scored, tmp_path, damage):
    """A file that could give other numbers is a ValueError, whatever was changed."""
    path = tmp_path / "prior.json"
    with open(str(scored("normal").path).replace("parquet", "json")) as file:
        whole = json.load(file)
    DAMAGE[damage](whole)
    path.write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=r"prior\.json|could not convert"):
        prior_table.score(path, 0.1, 1.0, 1.0)


def test_other_files_are_refused(tmp_path):
    """Among them Parquet without a description, and one that is damaged."""
    pd.DataFrame({"cell": [1]}).to_parquet(tmp_path / "other.parquet")
    (tmp_path / "no.parquet").write_bytes(b"no Parquet")
    (tmp_path / "no.json").write_text("{")
    (tmp_path / "prior.txt").write_text("{}")
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError, match=path.name):
            prior_table.load(path)


BAD_ROWS = [
    (0.1, 1, 9.0, "z"), (0.1, 1, 9.0, None), (0.1, 1, 9.0, ["a", "b"]), (-0.1, 1, 9.0, "a"),
    (0.0, 1, 9.0, "a"), (np.nan, 1, 9.0, "a"), (np.inf, 1, 9.0, "a"), (0.1, -1, 9.0, "a"),
    (0.1, 2.5, 9.0, "a"), (0.1, np.nan, 9.0, "a"), (0.1, 1, 0.0, "a"), (0.1, 1, -1.0, "a"),
    (0.1, 1, np.nan, "a"), (0.1, 1, np.inf, "a"), (0.1, 1, None, "a"),
]  # fmt: skip


def test_an_infinite_noise_sd_says_nothing(example, tmp_path):
    path = soc.export_prior(example("normal").fit, tmp_path / "prior.json")
    alone = prior_table.score(path, [0.0, 0.5])
    told = prior_table.score(path, [0.0, 0.5], [3.0, 3.0], np.inf)
    for name, values in alone.items():
        np.testing.assert_allclose(told[name], values, rtol=1e-12)
    with pytest.raises(ValueError, match="outcomes"):
        prior_table.score(path, 0.0, 3.0, np.nan)


def test_impossible_rows_are_refused(scored):
    table = prior_table.load(scored("groups").path)
    assert prior_table.score(table, 0.1, 1, 9.0, "a")["theta_mean"] > 0
    for row in BAD_ROWS:
        with pytest.raises(ValueError, match=r"group|score|outcomes"):
            prior_table.score(table, *row)
    for level in (0.001, 1.0, np.nan):
        with pytest.raises(ValueError, match=r"0\.005"):
            prior_table.score(table, 0.1, 1, 9.0, "a", quantiles=(level,))


@pytest.mark.slow
def test_a_copy_of_the_module_needs_numpy_alone(scored, tmp_path):
    """Neither SciPy, pandas or Arrow nor this package."""
    rows = scored("groups")
    shutil.copy(prior_table.__file__, tmp_path / "copied.py")
    shutil.copy(str(rows.path).replace("parquet", "json"), tmp_path / "prior.json")
    code = (
        "import sys, copied; print(copied.score('prior.json', 0.05, 2, 30.0, 'a')['theta_q95']);"
        "assert not {'scipy', 'pyarrow', 'pandas', 'soc_pymc'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": "."}, capture_output=True, text=True, check=True
    )
    expected = prior_table.score(rows.path, 0.05, 2, 30.0, "a")
    assert float(done.stdout) == expected["theta_q95"]


def test_a_prior_that_no_table_follows_is_refused_and_leaves_no_file(
    example, tmp_path, monkeypatch
):
    """Five-step mixtures are scored without a table, all others are compared with all draws."""
    stats = example("gamma_mixture").statistics
    by_bin = soc.fit(stats, soc.GammaMixture(), soc.FiveSteps(), progress=False)
    monkeypatch.setattr(export, "_FAR", 1e-9)
    for fit in (by_bin, ref.thinned_fit(example("normal").fit, 50)):
        with pytest.raises(soc.FitError):
            soc.export_prior(fit, tmp_path / "prior.json")
    assert not list(tmp_path.iterdir())


def test_few_draws_are_moved_to_the_moments_of_all():
    """Means and covariances of the predictors of two items."""
    rng = np.random.default_rng(0)
    draws = 3.0 + rng.normal(size=(500, 2, 3)) @ rng.normal(size=(3, 3))
    few = _with_moments(draws[::25], draws)
    for item in range(2):
        np.testing.assert_allclose(few[:, item].mean(axis=0), draws[:, item].mean(axis=0))
        covariances = (np.cov(x[:, item].T, bias=True) for x in (few, draws))
        np.testing.assert_allclose(*covariances, rtol=1e-8)
