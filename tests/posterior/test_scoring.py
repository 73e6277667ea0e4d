"""Scoring with quadrature points against every draw, and compiled functions against SciPy."""

import numpy as np
import pandas as pd
import pytest
from scipy import special

import soc_pymc as soc
from soc_pymc.families.gamma_quantiles import (
    quantile_tables,
    table_cell,
    table_values,
    tail_and_density,
)
from soc_pymc.families.outcomes import OUTCOMES
from soc_pymc.posterior.predictive import posterior_of, select
from soc_pymc.posterior.quadrature import LIMITS, NodeTable
from tests.thinning import thinned

PROBS = (0.05, 0.95, 0.025, 0.975, 0.25, 0.5)
are_valid = OUTCOMES["poisson"].validity.are_valid
ROLES = {"score": "score", "count": "count", "exposure": "exposure"}


def columns_of(frame):
    return [c for c in frame if c.startswith("theta_") and c != "theta_var"]


def worst_error(fit, frame, quantiles=PROBS):
    """Largest error in mean, sd and quantiles, in posterior sd, against every draw."""
    items = soc.PoissonItems(frame, **ROLES)
    every, few = (
        soc.item_posteriors(fit, items, quantiles=quantiles, draws=d, progress=False)
        for d in ("all", "auto")
    )
    names = columns_of(few)
    return float((few - every)[names].abs().div(every["theta_sd"], axis=0).to_numpy().max())


@pytest.fixture(scope="module", params=thinned([300, 3000, 20_000, 200_000], [3000]))
def fit_to_s1(request):
    frame = soc.simulation.s1(request.param, seed=1)
    statistics = soc.summarize(soc.PoissonItems(frame, **ROLES), progress=False)
    return soc.fit(statistics, method=soc.VI(seed=1), progress=False)


def extreme_items():
    """Exposures from nearly 0 to a billion, counts that agree or not, and distant scores."""
    scores = np.array([1e-6, 5e-4, 0.003, 0.05, 0.4, 3.0, 50.0])
    pairs = [(0, 0.0), (0, 1e-3), (3, 1e-3), (0, 40.0), (40, 40.0), (0, 1e6)]
    pairs += [(50_000, 1e6), (50_000_000, 1e9), (0, 1e9)]
    grid = [(t, y, n) for t in scores for y, n in pairs]
    return pd.DataFrame(grid, columns=["score", "count", "exposure"]).astype({"count": int})


def test_within_a_thousandth_of_a_posterior_sd(fit_to_s1):
    """Mean, sd and six quantiles of items of S1, for fits to few and many items."""
    assert worst_error(fit_to_s1, soc.simulation.s1(300, seed=9)[list(ROLES)]) < 1e-3


@pytest.mark.slow
def test_extreme_items(fit_to_s1):
    # where each draw is certain, the cdf is flat at multiples of 1 / 1000: no quantiles there
    assert worst_error(fit_to_s1, extreme_items(), (0.0503, 0.5004, 0.9496)) < 1e-3


def test_most_items_need_few_nodes(small_fit):
    """Others are far from the data."""
    frame = soc.simulation.s1(2000, seed=2)
    columns = {c: frame[c].to_numpy(dtype=float) for c in ROLES}
    table, law = NodeTable(small_fit), posterior_of(small_fit)
    columns["cell"] = table.cells.find(columns)
    most = len(LIMITS) - 1
    table.prepare(most, [columns["cell"]])
    columns["row"] = table.rows(most, columns["cell"])
    near = select(columns, columns["row"] >= 0)
    found = law._score_level(table, most, LIMITS[most], (0.05,), near)
    assert (~np.isnan(found[0])).sum() > 0.95 * len(frame)


@pytest.mark.parametrize("prob", [0.001, 0.05, 0.5, 0.95, 0.999])
def test_quantile_tables(prob):
    """Within 2e-5 sd of scipy for shapes from 1e-3 to 1e12."""
    tables = quantile_tables((prob,))
    for shape in np.geomspace(1.1e-3, 1e12, 200):
        scaled = table_values(tables, 0, *table_cell(np.log(shape)))[0]
        off = shape * np.exp(scaled / np.sqrt(shape)) - special.gammaincinv(shape, prob)
        assert abs(off) < 2e-5 * np.sqrt(shape)
    assert table_cell(np.log(1e-4))[0] == -1


@pytest.mark.parametrize("lower", [True, False])
def test_tails(lower):
    """Tails to 1e-6, and to 1e-5 of themselves, for shapes from 1e-3 to 1e9; densities too."""
    rng = np.random.default_rng(0)
    shape = np.exp(rng.uniform(np.log(1e-3), np.log(1e9), 4000))
    x = np.maximum(special.gammaincinv(shape, rng.uniform(1e-4, 1 - 1e-4, 4000)), 1e-300)
    pairs = zip(shape, x, strict=True)
    found = np.array([tail_and_density(a, b, special.gammaln(a), lower) for a, b in pairs])
    want = (special.gammainc if lower else special.gammaincc)(shape, x)
    np.testing.assert_allclose(found[:, 0], want, rtol=1e-5, atol=1e-12)
    known = shape < 1e4  # scipy's own functions lose digits in the density beyond
    density = np.exp(shape * np.log(x) - x - special.gammaln(shape))[known]
    np.testing.assert_allclose(found[known, 1], density, rtol=1e-6)


@pytest.mark.parametrize(
    ("role", "value"),
    [
        ("score", np.nan),
        ("score", np.inf),
        ("score", -1e101),
        ("count", -1.0),
        ("count", 0.5),
        ("count", 2.0**54),
        ("count", np.nan),
        ("exposure", -1.0),
        ("exposure", np.inf),
        ("exposure", 0.0),
    ],
)
@pytest.mark.parametrize("draws", ["all", "auto"])
def test_bad_rows_are_reported_as_by_a_scan(small_fit, role, value, draws):
    """One bad row late in a table: its column."""
    frame = soc.simulation.s1(50, seed=0)[list(ROLES)].astype(float)
    frame["count"] = 1.0
    frame.loc[37, role] = value
    assert not are_valid(*(frame[c].to_numpy() for c in ROLES))
    named = "count" if (role, value) == ("exposure", 0.0) else role
    with pytest.raises(soc.ItemsError, match=f"column '{named}': 1 of 50 rows"):
        soc.item_posteriors(
            small_fit, soc.PoissonItems(frame, **ROLES), draws=draws, progress=False
        )


def test_valid_items_are_valid():
    """The ends of what is allowed."""
    score = np.array([-1e90, 0.0, 1e90])
    most = 2.0**53 - 1.0
    assert are_valid(score, np.array([0.0, most, 1.0]), np.array([0.0, 1e-300, 1e90]))
    # 2^53 + 1 is read as 2^53
    assert not are_valid(score, np.array([0.0, most + 1.0, 1.0]), np.array([0.0, 1e-300, 1e90]))


def test_tables_that_cannot_be_scored(small_fit):
    frame = soc.simulation.s1(20, seed=0)[list(ROLES)]
    wrong = {
        "no rows": frame.iloc[:0],
        "text": frame.assign(score="a"),
        "missing": frame.drop(columns="exposure"),
    }
    for text, table in wrong.items():
        with pytest.raises(soc.ItemsError, match=text):
            soc.item_posteriors(small_fit, soc.PoissonItems(table, **ROLES), progress=False)
    below = frame.assign(score=-1.0)
    with pytest.raises(soc.FitError, match="0 or below"):
        soc.item_posteriors(
            small_fit,
            soc.PoissonItems(below, **ROLES),
            draws="auto",
            progress=False,
        )
