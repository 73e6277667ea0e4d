"""Item posteriors against brute force from the fit's draws, for every family and term."""

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from ibis.expr.types.relations import CachedTable
from scipy import stats

import soc_pymc as soc
from soc_pymc import prior_table
from soc_pymc.data import sources
from soc_pymc.fits import with_draws
from tests.examples import CASES, ROLES, SINGLE_FAMILIES, thinned
from tests.family_records import RECORDS, prior_parameters
from tests.posterior import references as ref
from tests.tables import BACKENDS, source_of

KINDS_OF_TABLES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "duckdb": ibis.Table}


@pytest.mark.parametrize("name", ref.CLOSED_FORM)
def test_all_draws_are_updated_in_closed_form_and_averaged(example, name):
    """Moments to rounding; a root of the averaged cdf is within 1e-5 sd of each quantile."""
    frame = ref.some_rows(example(name), 50)
    scored = ref.score_items(example(name), frame, draws="all")
    law = ref.posterior_law(name, example(name).fit, frame)
    mean, sd = ref.averaged_moments(law.mean(), law.var())
    np.testing.assert_allclose(scored["theta_mean"], mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(scored["theta_sd"], sd, rtol=1e-6)
    np.testing.assert_allclose(scored["theta_var"], scored["theta_sd"] ** 2, rtol=1e-12)
    for column, prob in ref.QUANTILES.items():
        ref.assert_quantile(lambda x: law.cdf(x).mean(axis=0), scored[column], prob, 1e-5 * sd)


def assert_agrees_with_grid(name, fit, frame, scored):
    """Checks scored rows against quadrature over theta, draw by draw: 1e-3 posterior sd."""
    for score, rows in frame.groupby("score"):
        grid = ref.ThetaGrid.at(name, fit, score)
        for row, (outcome, size) in zip(
            rows.index, np.transpose(ref.outcome_and_size(name, rows)), strict=True
        ):
            weight, zero = grid.posterior(outcome, size)
            mean = weight @ grid.theta
            sd = np.sqrt(weight @ (grid.theta - mean) ** 2 + zero * mean**2)
            assert scored["theta_mean"][row] == pytest.approx(mean, abs=1e-3 * sd)
            assert scored["theta_sd"][row] == pytest.approx(sd, rel=1e-3)
            if CASES[name].prior.zero:
                assert scored["p_zero"][row] == pytest.approx(zero, abs=1e-4)
            cdf = np.cumsum(weight) - 0.5 * weight + zero * (grid.theta > 0.0)
            for column, prob in ref.QUANTILES.items():
                # with a spike at zero a quantile may be 0
                quantile = np.interp(prob, cdf, grid.theta) if prob > zero else 0.0
                assert scored[column][row] == pytest.approx(quantile, abs=2e-3 * sd), column


@pytest.mark.parametrize("name", thinned(ref.ON_A_GRID, ref.QUICK))
def test_all_draws_of_mixtures_against_quadrature(example, name):
    """Three items at each of two scores, with 20 draws of the fit."""
    fit, frame = ref.thinned_fit(example(name).fit, 20), ref.some_rows(example(name), 6)
    frame["score"] = np.repeat(example(name).frame["score"].quantile([0.3, 0.8]).to_numpy(), 3)
    scored = ref.score_items(example(name), frame, fit, draws="all")
    assert_agrees_with_grid(name, fit, frame, scored)


@pytest.mark.parametrize("name", thinned(ref.ON_A_GRID, ref.QUICK))
def test_what_was_scored_before_does_not_matter(example, name):
    """Posteriors of two items, bit by bit, before and after those of many."""
    frame = ref.some_rows(example(name), 2)
    fits = [ref.thinned_fit(example(name).fit, 20) for _ in range(2)]
    ref.score_items(example(name), example(name).frame.head(300), fits[1], draws="all")
    before, after = (ref.score_items(example(name), frame, fit, draws="all") for fit in fits)
    for column in before:
        np.testing.assert_array_equal(before[column], after[column])


@pytest.mark.parametrize("log_cv2", [-27.0, -14.0, -1.0, 4.0, 9.0])
def test_extreme_shapes_and_exposures(example, log_cv2):
    """Prior shapes from 1e-4 to 5e11, exposures from 0 to 1e9: SciPy's own quantiles."""
    fit = example("five_steps").fit
    posterior = fit.data["posterior"].to_dataset()
    curves = {"log_mean": np.log(0.05), "log_cv2": log_cv2}
    constants = {name: xr.full_like(posterior[name], value) for name, value in curves.items()}
    fit = with_draws(fit, posterior.assign(constants))
    frame = pd.DataFrame({"score": 0.05, "exposure": [0.0, 1e-3, 1e-3, 10.0, 10.0, 1e9, 1e9]})
    frame["count"] = [0, 0, 3, 0, 8, 0, 50_000_000]
    scored = ref.score_items(example("five_steps"), frame, fit, draws="all")
    shape = np.exp(-log_cv2) + frame["count"]
    law = stats.gamma(shape, scale=1.0 / (np.exp(-log_cv2) / 0.05 + frame["exposure"]))
    np.testing.assert_allclose(scored["theta_mean"], law.mean(), rtol=1e-10)
    np.testing.assert_allclose(scored["theta_sd"], law.std(), rtol=1e-10)
    for column, prob in ref.QUANTILES.items():
        np.testing.assert_allclose(scored[column], law.ppf(prob), rtol=1e-6, atol=1e-290)


def surprising_rows(name, example, number):
    """Returns scores of the data with outcomes that contradict them, and sizes of any magnitude."""
    rng = np.random.default_rng(0)
    score = rng.choice(example.frame["score"], number)
    if name == "gamma":
        outcomes = rng.integers(0, 300, number), np.exp(rng.uniform(-7.0, 12.0, number))
    elif name == "normal":
        outcomes = rng.uniform(-20.0, 20.0, number), np.exp(rng.uniform(-7.0, 7.0, number))
    elif name == "inverse_gamma":
        events = np.ceil(np.exp(rng.uniform(0.0, 12.0, number)))
        outcomes = events * np.exp(rng.uniform(-5.0, 5.0, number)), events
    else:
        trials = np.ceil(np.exp(rng.uniform(0.0, 12.0, number))).astype(int)
        outcomes = rng.integers(0, trials + 1), trials
    return pd.DataFrame(
        dict(zip(ROLES[CASES[name].kind].values(), (score, *outcomes), strict=True))
    )


@pytest.mark.parametrize("name", SINGLE_FAMILIES)
def test_shrinkage_stays_between_the_curve_and_the_items_own_rate(example, name):
    """Holds for one draw of the curves: the posterior mean averages the two with weights above 0.

    The own rate is count / exposure, the value, or successes / trials; 1,000 random items.
    """
    fit, frame = ref.thinned_fit(example(name).fit, 1), surprising_rows(name, example(name), 1000)
    found = ref.score_items(example(name), frame, fit, draws="all")["theta_mean"].to_numpy()
    curve = soc.calibration_curves(fit, frame["score"])["mean"].to_numpy().ravel()
    outcome, size = ref.outcome_and_size(name, frame)
    rate = outcome if name == "normal" else outcome / size
    slack = 1e-9 * (np.abs(curve) + np.abs(rate))
    assert (found >= np.minimum(curve, rate) - slack).all()
    assert (found <= np.maximum(curve, rate) + slack).all()


def new_items(name, frame):
    """Returns rows as items that name the score, the group, and an exposure the prior needs."""
    case = CASES[name]
    roles = {"score": "score"} | case.roles
    if case.prior.exposure is not None:
        roles["exposure"] = "exposure"
    columns = [name for name in roles.values() if name in frame]
    return case.kind(frame[columns], **roles)


@pytest.mark.parametrize("draws", ["all", "auto"])
@pytest.mark.parametrize("name", thinned(CASES, ref.QUICK))
def test_moments_are_those_of_the_curves_over_all_draws(example, name, draws):
    """Total variance over the draws; few nodes are within 2e-3 sd (terms and mixtures 5e-3)."""
    frame, fit = ref.some_rows(example(name), 40), example(name).fit
    scored = soc.item_posteriors(fit, new_items(name, frame), draws=draws, progress=False)
    mean, sd = ref.averaged_moments(*ref.prior_moments(name, fit, frame))
    exact = {*ref.CLOSED_FORM} - {"exposure"}
    bound = 5e-3 if draws == "auto" else 1e-5 if name in exact else 1e-3
    assert (np.abs(scored["theta_mean"] - mean) < bound * sd).all()
    assert (np.abs(scored["theta_sd"] - sd) < bound * sd).all()


@pytest.mark.parametrize("name", ref.CLOSED_FORM)
def test_quantiles_of_a_single_family(example, name):
    frame, fit = ref.some_rows(example(name), 40), example(name).fit
    options = {"quantiles": tuple(ref.QUANTILES.values()), "draws": "all", "progress": False}
    scored = soc.item_posteriors(fit, new_items(name, frame), **options)
    prior = prior_parameters(ref.family_of(name), *ref.prior_moments(name, fit, frame))
    law = RECORDS[ref.family_of(name)].theta(*prior)
    for column, prob in ref.QUANTILES.items():
        slack = 1e-4 * scored["theta_sd"].to_numpy()
        ref.assert_quantile(lambda x: law.cdf(x).mean(axis=0), scored[column], prob, slack)


@pytest.mark.parametrize("name", thinned(["normal_mixture", "zeros"], ["normal_mixture"]))
def test_quantiles_of_a_mixture(example, name):
    fit, frame = ref.thinned_fit(example(name).fit, 20), ref.some_rows(example(name), 3)
    scored = soc.item_posteriors(fit, new_items(name, frame), draws="all", progress=False)
    for row, score in enumerate(frame["score"]):
        grid = ref.ThetaGrid.at(name, fit, score)
        weight, zero = grid.weight.mean(axis=0), grid.zero.mean()
        cdf = np.cumsum(weight) - 0.5 * weight + zero * (grid.theta > 0.0)
        for column, prob in (("theta_q05", 0.05), ("theta_q95", 0.95)):
            expected = np.interp(prob, cdf, grid.theta)
            assert abs(scored[column][row] - expected) < 2e-3 * scored["theta_sd"][row]
        if name == "zeros":
            assert scored["p_zero"][row] == pytest.approx(zero, abs=1e-4)


@pytest.mark.parametrize(
    "members",
    [
        ([1.01, -0.01], [0.3, 0.06], [6.0, 3.0]),
        ([0.9, 0.101, -0.001], [0.3, 0.12, 0.06], [6, 4, 3]),
    ],
)
def test_quantiles_where_nodes_with_negative_weights_leave_no_digits(members):
    """The first guess is far below, where the distribution function of the nodes is below 0."""
    weight, shape, rate = (np.array(values, dtype=float)[:, None] for values in members)
    gamma = prior_table.CONJUGATES["Gamma"]
    averages, _ = prior_table.moments(gamma, (weight, shape, rate), prior_table.ARRAYS)
    mixture = prior_table.Mixture(weight, shape, rate, averages, None)
    found = prior_table.mixture_summaries(gamma, mixture, [0.5, 0.95])[3:, 0]
    levels = [(weight * stats.gamma.cdf(x, shape, scale=1 / rate)).sum() for x in found]
    np.testing.assert_allclose(levels, [0.5, 0.95], atol=2e-4)


def test_intervals_cover_new_items(small_fit):
    """Of 20,000 new items 90% lie inside; three standard errors are 0.6%, the curves' 1%."""
    new = soc.simulation.s1(20_000, seed=11)
    scored = soc.item_posteriors(small_fit, soc.PoissonItems(new, score="score"), progress=False)
    inside = (scored["theta_q05"] <= new["theta"]) & (new["theta"] <= scored["theta_q95"])
    assert abs(inside.mean() - 0.9) < 0.016


def test_quantiles_beside_0_and_1(example):
    found = ref.score_items(
        example("five_steps"), example("five_steps").frame[:3], quantiles=(1e-100, 1 - 1e-12)
    )
    assert list(found.columns[-2:]) == ["theta_q1e-98", "theta_q99_9999999999"]
    assert (found["theta_q1e-98"] < found["theta_mean"]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kind_of_table(example, backend, tmp_path):
    """The same numbers beside the user's columns, in the user's order; files become Arrow."""
    frame = ref.some_rows(example("five_steps"), 60)[["kind", "score", "count", "exposure"]]
    expected = ref.score_items(example("five_steps"), frame)
    beside = frame.assign(count=frame["count"] + 3e-10)  # are read as whole numbers
    source = source_of(backend, pa.Table.from_pandas(beside), tmp_path)
    found = ref.score_items(example("five_steps"), source)
    assert isinstance(found, KINDS_OF_TABLES.get(backend, pa.Table))
    table = found if isinstance(found, pd.DataFrame) else found.to_pandas()
    assert list(table.columns) == list(expected.columns)
    assert list(table["kind"]) == list(frame["kind"])
    np.testing.assert_allclose(table[ref.COLUMNS], expected[ref.COLUMNS], rtol=1e-9)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_tables_in_memory_need_no_database(example, kind, tmp_path, monkeypatch):
    """Scored and checked alike from every kind; bad rows are all described."""
    case = example("five_steps").case
    frame = ref.some_rows(example("five_steps"), 60)[["kind", "score", "count", "exposure"]]
    expected = ref.score_items(example("five_steps"), frame)["theta_mean"]
    source = source_of(kind, pa.Table.from_pandas(frame), tmp_path)
    bad = source_of(kind, pa.Table.from_pandas(frame.assign(count=-1.5)), tmp_path)
    with pytest.raises(soc.ItemsError, match=r"60 of 60 rows are negative(.|\n)*not whole"):
        soc.check(example("five_steps").fit, case.items(bad), progress=False)
    monkeypatch.setattr(sources, "connect", None)
    scored = ref.score_items(example("five_steps"), source)
    np.testing.assert_allclose(scored["theta_mean"].to_numpy(), expected, rtol=1e-12)
    result = soc.check(example("five_steps").fit, case.items(source), progress=False)
    assert result.table["n"][0] == 60


class Places(pd.DataFrame):
    """Items at places, which no engine can read."""

    _metadata = ("crs",)

    @property
    def _constructor(self):
        return Places


class PolarsPlaces(pl.DataFrame):
    def __init__(self, data=None, *, crs=None):
        super().__init__(data)


def places(frame):
    """Returns a table of a subclass with an attribute, an index and a column of objects."""
    table = Places(frame.assign(place=[object() for _ in range(len(frame))]))
    table.crs = "EPSG:4326"
    return table.set_axis(frame["kind"] + "!")


SUBCLASSES = {
    "pandas": places,
    "polars": lambda frame: PolarsPlaces(pl.from_pandas(frame)),
    "ibis": lambda frame: CachedTable(source_of("duckdb", pa.table(frame), "").op()),
}


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_a_table_of_a_subclass_stays_one(example, kind):
    """With its other columns, its index and its attributes; a cached table stays in its engine."""
    frame = ref.some_rows(example("five_steps"), 60)[["kind", "score", "count", "exposure"]]
    expected = ref.score_items(example("five_steps"), frame)
    source = SUBCLASSES[kind](frame)
    found = ref.score_items(example("five_steps"), source)
    assert isinstance(found, ibis.Table if kind == "ibis" else type(source))
    assert list(found.columns) == [*source.columns, *expected.columns[4:]]
    means = found["theta_mean"].to_list()
    np.testing.assert_allclose(means, expected["theta_mean"], rtol=1e-9)
    if kind == "pandas":
        assert found.crs == "EPSG:4326"
        assert found.index.equals(source.index)
        assert found["place"].equals(source["place"])
        above = soc.decisions.probability_above(
            example("five_steps").fit, example("five_steps").case.items(source), 0.02
        )
        assert above.index.equals(source.index)
