"""`soc.check`: exact PIT, p-values at their level, planted faults, and slices."""

import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

import soc_pymc as soc
from soc_pymc._lib.reprs import code_of
from soc_pymc.checks import _check, pit
from soc_pymc.checks._check import Checks, tail_probabilities
from soc_pymc.checks.advice import mixture_of
from soc_pymc.checks.observations import Observations
from soc_pymc.fits import Status
from soc_pymc.posterior.item_columns import frame_columns
from soc_pymc.posterior.predictive import posterior_of, posterior_under
from tests.checks.hand_made import (
    KINDS,
    as_items,
    columns_of,
    hand_made_fit,
    moments_by_draw,
    simulate,
    true_moments,
)
from tests.examples import QUIET, thinned
from tests.family_records import SHAPE
from tests.studies.common import counts, gamma_counts


@pytest.fixture(autouse=True)
def few_replicates(request, monkeypatch):
    """A tenth of the replicates, which take seconds, unless it is their p-value that is tested."""
    if "dispersion_is_at_its_level" not in request.node.name:
        monkeypatch.setattr(_check, "_MOST_REPLICATES", 1000)


def check_items(fit, frame, kind="counts", **options):
    return soc.check(fit, as_items(frame, kind), **{"subset": 20, **QUIET, **options})


def plain(name):
    """Returns the name of a slice without its range, which differs between sets of items."""
    return name.partition(":")[0]


def p_values_of(result):
    table = result.table[result.table["p"].notna()]
    names = zip(table["what"], table["where"].map(plain), strict=True)
    return pd.Series(table["p"].to_numpy(), pd.Index([", ".join(pair) for pair in names]))


def statistics_of(frame, kind="counts", bins=60):
    return soc.summarize(as_items(frame, kind), bins=bins, on_leakage="ignore", **QUIET)


def exact_ends(law, outcome):
    """Returns P(Y < y) and P(Y <= y) averaged over draws; sums of probabilities, SciPy is slow."""
    if not hasattr(law, "pmf"):
        return (np.atleast_2d(law.cdf(outcome)).mean(axis=0),) * 2
    below = sum(law.pmf(k) * (outcome > k) for k in range(int(outcome.max())))
    below = np.atleast_2d(below)
    return below.mean(axis=0), (below + law.pmf(outcome)).mean(axis=0)


@pytest.mark.parametrize(
    ("kind", "sd"),
    thinned(list(product(KINDS, [1e-6, 0.2])), lambda case: case != ("trials", 1e-6)),
)
def test_pit_lies_between_the_exact_ends(kind, sd):
    """SciPy's marginal, averaged over the draws: to 1e-5, and to 2e-3 where curves are uncertain.

    At an sd of .2 the cdf at the mean curves is off by more than 5e-3.
    """
    fit, frame = hand_made_fit(kind, sd=sd, draws=100), simulate(200, 0, kind)
    frame = frame[frame[KINDS[kind].roles[2]] < 100]
    pit = check_items(fit, frame, kind, subset=200).data["pit_values"]
    outcome, size = (frame[role].to_numpy() for role in KINDS[kind].roles[1:])
    law = KINDS[kind].marginal(*moments_by_draw(fit, frame, kind), size)
    below, upto = exact_ends(law, outcome)
    values = pit[KINDS[kind].roles[1]].to_numpy()
    tolerance = 1e-5 if sd < 0.1 else 2e-3
    assert (values >= below - tolerance).all()
    assert (values <= upto + tolerance).all()
    _, at_truth = exact_ends(KINDS[kind].marginal(*true_moments(frame, kind), size), outcome)
    assert (np.abs(upto - at_truth).max() > 5e-3) == (sd > 0.1)


def pit_of(ends, n=1, seed=0):
    """Returns the PIT of rows of n items in one slice, from the ends of their intervals."""
    n = np.full(ends.shape[1], n)
    pits = pit.slice_pits(ends, n, {"": n > 0}, np.random.default_rng(seed))
    return pit.with_p_values(pits).isel(slice=0)


def test_pit_is_calibrated_on_the_truth():
    """Of 40 sets of counts the KS test rejects 5% at .05, and its p-values are uniform."""
    law, p_values = posterior_of(hand_made_fit()), []
    for seed in range(40):
        ends = pit.cdf_ends(law, columns_of(simulate(1500, 100 + seed)))
        p_values.append(float(pit_of(ends, seed=seed)["p_value"]))
    assert np.sum(np.array(p_values) < 0.05) <= stats.binom(40, 0.05).ppf(0.999)
    assert stats.kstest(p_values, "uniform").pvalue > 0.001


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_test_of_uniformity_is_scipys(values):
    """Distances at points of a grid, corrected between them, to one and a half steps of it."""
    pit = pit_of(np.array([values, values]))
    assert float(pit["distance"]) == pytest.approx(
        stats.kstest(values, "uniform").statistic, abs=0.05
    )
    np.testing.assert_allclose(pit["p_value"], stats.kstwo.sf(pit["distance"], len(values)))


@pytest.mark.parametrize("n", [1, 32, 500])
def test_an_item_is_a_cell_of_one(n):
    """Rows of n items have the PIT of n rows of one item, as closely as chance lets them."""
    ends = np.sort(np.random.default_rng(3).uniform(size=(2, 300)), axis=0)
    cells, items = pit_of(ends, n), pit_of(np.repeat(ends, n, axis=1), seed=1)
    assert cells["n_items"] == items["n_items"] == 300 * n
    np.testing.assert_allclose(cells["averaged"], items["averaged"], atol=1e-12)
    chance = 2.5 * np.sqrt(0.5 / (300 * n))  # of a difference of two ECDFs, at 1e-5
    assert np.abs(cells["randomised"] - items["randomised"]).max() < chance


@given(st.integers(0, 1000), st.integers(1, 30))
def test_the_averaged_ecdf_is_the_mean_of_uniform_cdfs(seed, n):
    ends = np.sort(np.random.default_rng(seed).uniform(size=(2, n)), axis=0)
    ends[:, ::3] = ends[0, ::3]  # values have intervals without width: steps
    grid, (low, high) = pit.GRID, ends[..., None]
    width = np.where(high > low, high - low, 1.0)
    cdfs = np.where(high > low, np.clip((grid - low) / width, 0, 1), grid >= high)
    averaged = pit_of(ends)["averaged"]
    np.testing.assert_allclose(averaged, cdfs.mean(axis=0) - grid, rtol=0, atol=1e-9)


def tail_probability(replicated, observed):
    return tail_probabilities(replicated[None], np.array([observed]))[0]


def test_tail_probabilities_are_two_sided_and_go_beyond_the_replicates():
    draws = np.random.default_rng(0).normal(100.0, 1.0, size=400)
    for shift in (0.5, 1.0, 1.5):
        exact = 2 * stats.norm.sf(shift)
        assert tail_probability(draws, 100.0 + shift) == pytest.approx(exact, rel=0.35)
        assert tail_probability(draws, 100.0 - shift) == pytest.approx(exact, rel=0.35)
    assert 1e-9 < tail_probability(draws, 95.0) < 1e-3
    assert tail_probability(np.zeros(400), 0.0) == 1.0


SKEWED = {
    "lognormal": lambda rng, n: rng.lognormal(0.0, 0.6, n),
    "inverse gamma": lambda rng, n: 1.0 / rng.gamma(3.0, 1.0, n),
    "exponential": lambda rng, n: rng.exponential(size=n),
}


@pytest.mark.parametrize("law", SKEWED)
def test_tails_of_skewed_replicates_are_at_their_level(law):
    """Of 3,000 values among 300 replicates 1% have p < .01, to 1%, and never less than their share.

    Pearson's type III law, whose lower end lies above the smallest values, rejected up to 11%.
    """
    rng = np.random.default_rng(11)
    p = np.empty(3000)
    for k in range(len(p)):
        replicated = SKEWED[law](rng, 300)
        (observed,) = SKEWED[law](rng, 1)
        p[k] = tail_probability(replicated, observed)
        above = np.mean(replicated > observed)
        assert p[k] > 1.999 * min(above, 1.0 - above)
    assert p.min() > 1e-5
    assert np.mean(p < 0.01) < 0.02
    assert abs(np.mean(p < 0.2) - 0.2) < 0.04


NULLS = [(43, "counts", 0.8), (20, "trials", 0.6), (300, "counts", 0.4), (1000, "values", 0.8)]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "kind", "sd"), NULLS)
def test_dispersion_is_at_its_level_on_few_items(n, kind, sd):
    """Of 200 sets of the fit's own outcomes at most 6 have p < .01: 2 are expected.

    The p-values are uniform. Curves this uncertain make sums of squares skewed.
    """
    fit = hand_made_fit(kind, sd=sd, draws=500)
    columns = columns_of(simulate(n, 5, kind), kind)
    rng = np.random.default_rng(n)
    p = []
    for outcome in posterior_of(fit).simulate(columns, rng, rng.integers(1000, size=200)):
        frame = pd.DataFrame(columns | {KINDS[kind].roles[1]: outcome})
        checks = Checks(fit, as_items(frame, kind), seed=len(p))
        dispersion, *_ = checks._summaries(columns_of(frame, kind))
        p.append(dispersion.p)
    assert np.sum(np.array(p) < 0.01) <= 6
    assert stats.kstest(p, "uniform").pvalue > 0.001


@pytest.mark.parametrize("kind", thinned(KINDS, ["counts", "values"]))
def test_summaries_are_observed_over_expected(kind):
    """Closed forms of the expectations: squared standardised values, and numbers of zeros.

    400 replicates of 3,000 items know an expectation to .2%; five standard errors are asked.
    """
    frame = simulate(3000, 1, kind)
    table = check_items(hand_made_fit(kind), frame, kind).table.set_index("what")
    outcome, size = (frame[role].to_numpy() for role in KINDS[kind].roles[1:])
    mean, variance = true_moments(frame, kind)
    law = KINDS[kind].marginal(mean, variance, size)
    if kind == "amounts":  # of logarithms
        a, n = 2.0 + mean**2 / variance, SHAPE * size
        known = stats.norm(
            np.log(mean * (a - 1.0) / n) + special.psi(n) - special.psi(a),
            np.sqrt(special.polygamma(1, n) + special.polygamma(1, a)),
        )
        squares = (np.log(outcome / size) - known.mean()) ** 2 / known.var()
        name, expected = "dispersion", squares.mean()
    elif kind == "values":
        name, expected = "dispersion", ((outcome - law.mean()) ** 2 / law.var()).mean()
    else:
        name = "zero counts" if kind == "counts" else "zero successes"
        expected = (outcome == 0).sum() / law.pmf(0).sum()
    assert table.loc[name, "value"] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("kind", thinned(KINDS, ["counts"]))
def test_the_right_model_passes(kind):
    frame = simulate(1500, 2, kind)
    fit, role = hand_made_fit(kind, sd=0.02, draws=200), KINDS[kind].roles[2]
    result = check_items(fit, frame, kind, by="country", subset=300)
    assert "fail" not in set(result.table["verdict"])
    assert re.search("No evidence against the model|nothing fails", result.advice[0])
    assert {"PIT", "LOO-PIT", "dispersion", "leave-one-out"} <= set(result.table["what"])
    n = result.data["pit"]["n_items"].to_series()
    assert n["all items"] == 1500
    assert n["country = missing"] == frame["country"].isna().sum()
    word = "noise sd" if kind == "values" else role
    for quantity in ("score", word):  # fifths hold every item once
        assert n[n.index.str.match(rf"{quantity} \d/5: ")].sum() == 1500
    if kind != "values":
        assert n[f"{word} >= 50"] == (frame[role] >= 50).sum()


def heavy_tail(rng, mean, variance):
    """Returns theta far above its mean with probability .08: the same mean and variance."""
    far = rng.random(len(mean)) < 0.08
    return mean + np.sqrt(variance) * np.where(far, np.sqrt(0.92 / 0.08), -np.sqrt(0.08 / 0.92))


FAULTS = {  # what the fit's curves are moved by, and the check that must say so
    "narrow prior": ({"second": -np.log(4.0)}, "dispersion"),
    "wide prior": ({"second": np.log(4.0)}, "dispersion"),
    "shifted mean": ({"first": 0.4}, "PIT"),
    "zeros": ({}, "zero .*"),
    "noise": ({}, "dispersion"),
    "tail": ({}, "PIT"),
}


def faulty(fault, kind, seed=3, n=1500):
    case, rng = KINDS[kind], np.random.default_rng(seed)
    frame = simulate(*((3 * n, seed, kind, heavy_tail) if fault == "tail" else (n, seed, kind)))
    name, size = case.roles[1], frame[case.roles[2]]
    if fault == "zeros":
        frame.loc[rng.random(n) < 0.15, name] = 0
    elif fault == "noise" and kind == "values":
        frame[name] = rng.normal(frame["theta"], 1.7 * size)
    elif fault == "noise":  # outcomes that come two at a time
        frame[name] = 2 * case.outcome(rng, frame["theta"], size / 2)
    return hand_made_fit(kind, **FAULTS[fault][0]), frame


DEFAULT = [("counts", "narrow prior"), ("counts", "tail"), ("values", "noise")]
CASES = [
    (kind, fault)
    for kind, fault in product(KINDS, FAULTS)
    if fault != "zeros" or kind in ("counts", "trials")
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fault"), thinned(CASES, DEFAULT))
def test_a_planted_fault_is_rejected(kind, fault):
    table = check_items(*faulty(fault, kind), kind).table
    off = table["what"].str.fullmatch(FAULTS[fault][1])
    assert "fail" in set(table.loc[off, "verdict"])


@pytest.mark.slow
def test_the_right_model_is_rejected_no_more_than_it_should():
    """24 sets of 600 counts, against the truth: each test's rejections at .05 are within the .9999
    quantile of Binomial(24, 0.05). Of all PIT tests, which share items, 0.015 to 0.09 are
    rejected (their standard error is .013 at most), and their median is one half, to .15. The same
    of statistics, whose PIT is taken at points of a grid.
    """
    fit, rows = hand_made_fit(), {"items": [], "statistics": []}
    for seed in range(24):
        frame = simulate(600, 1000 + seed)
        rows["items"].append(p_values_of(check_items(fit, frame, by="country", seed=seed)))
        if seed < 16:
            stats_ = statistics_of(frame, bins=100)
            rows["statistics"].append(p_values_of(soc.check(fit, stats_, seed=seed, **QUIET)))
    for sets in rows.values():
        p = pd.DataFrame(sets)
        rejected = (p < 0.05).sum()
        assert (rejected <= stats.binom(p.notna().sum(), 0.05).ppf(0.9999)).all(), rejected
        pit = p.loc[:, p.columns.str.startswith("PIT")].to_numpy().ravel()
        pit = pit[~np.isnan(pit)]
        assert 0.015 < (pit < 0.05).mean() < 0.09
        assert np.median(pit) == pytest.approx(0.5, abs=0.15)


def test_verdicts_are_holms():
    """Fails below .01 after Holm's correction, looks below .05 without; from the table alone."""
    for seed in (1, 8):
        table = check_items(*faulty("wide prior", "counts", seed, 700)).table
        table = table[table["p"].notna() & (table["what"] != pit.NUMBER)]
        table = table.sort_values("p", kind="stable")
        p = table["p"].to_numpy()
        factor = np.arange(len(p), 0, -1)
        holm = [max(p[: k + 1] * factor[: k + 1]) for k in range(len(p))]
        wanted = np.where(np.array(holm) < 0.01, "fail", np.where(p < 0.05, "warn", "ok"))
        np.testing.assert_array_equal(table["verdict"], wanted)
        assert {"ok", "warn"} <= set(wanted)


@pytest.mark.slow
def test_levels_and_ranges_that_are_off_fail_by_name():
    frame, rng = simulate(3000, 13), np.random.default_rng(0)
    frame["age"] = rng.normal(size=3000)
    for off in (frame["country"] == "fr", frame["age"] > 0.8):
        frame.loc[off, "count"] = rng.poisson(frame.loc[off, "count"] * 2.0)
    result = check_items(hand_made_fit(), frame, by=["country", "age"])
    verdict = result.table.assign(where=result.table["where"].map(plain))
    verdict = verdict.set_index("where")["verdict"]
    assert verdict["country = fr"] == "fail"
    assert verdict["country = de"] != "fail"
    assert verdict["age 5/5"] == "fail"
    assert verdict["age 2/5"] != "fail"
    assert any("'age'" in said for said in result.advice)


def test_columns_are_cut_by_their_kind():
    """Numbers and dates of many values by fifths, other columns by their levels, of which those
    with 20 items are tested;
    a column that bears the name of a slice is told apart.
    """
    n, rng = 2000, np.random.default_rng(0)
    frame = simulate(n, 5).rename(columns={"score": "t"})
    frame["age"] = np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 10, n))
    frame.loc[3, "age"] = np.inf
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n) // 20, unit="D")
    frame["few"], frame["yes"] = np.arange(n) % 3, np.arange(n) % 2 == 0
    frame["name"] = [f"n{k % 30}" for k in range(n)]
    frame["many"] = [f"m{k if k < 180 else k % 30}" for k in range(n)]
    frame["score"] = np.arange(float(n))
    fit = hand_made_fit()
    fit.data.attrs["roles"] = '{"score": "t", "count": "count", "exposure": "exposure"}'
    items = soc.PoissonItems(frame, score="t", count="count", exposure="exposure")
    by = ["age", "day", "few", "yes", "name", "many", "score"]
    result = soc.check(fit, items, by=by, subset=20, **QUIET)
    n_items = result.data["pit"]["n_items"].to_series()
    column = n_items.index.str.extract(r"^(.*?) (?:\d/\d:|=|>=)", expand=False)
    slices = pd.Series(column).value_counts()
    cut = {
        "age": 6,
        "day": 5,
        "few": 3,
        "yes": 2,
        "name": 30,
        "many": 30,
        "score": 5,
        "column score": 5,
    }
    assert slices[list(cut)].to_dict() == cut
    for quantity in ("age", "day", "few", "score", "column score"):
        assert n_items[column == quantity].sum() == n
    assert n_items["age = missing"] == frame["age"].isna().sum()
    assert not any("'name'" in said and "levels" in said for said in result.advice)


def test_names_that_read_alike_are_slices_of_their_own():
    """Each level of each column is tested on its items; so is a label "missing" beside none."""
    n = 600
    frame = simulate(n, 5)
    frame["x"] = np.repeat(["y = c", "z"], [200, 400])
    frame["x = y"] = np.repeat(["c", "d", "e"], [150, 350, 100])
    frame["kind"] = np.repeat(np.array(["missing", "a", None]), [100, 180, 320])
    by = ["x", "x = y", "kind"]
    result = check_items(hand_made_fit(), frame, by=by)
    table = result.table[result.table["what"] == "PIT"].set_index("where")
    expected = {"x = y = c": 200, "x = z": 400}
    expected |= {"column 'x = y' = c": 150, "column 'x = y' = d": 350, "column 'x = y' = e": 100}
    expected |= {"kind = 'missing'": 100, "kind = a": 180, "kind = missing": 320}
    assert table.loc[table.index.str.contains(" = "), "n"].to_dict() == expected
    together = result.table.loc[result.table["what"] == pit.TOGETHER, "where"]
    assert {"x = any of 2", "column 'x = y' = any of 3", "kind = any of 3"} <= set(together)
    assert [len(soc.plots.plot_pit(result, by=name)) for name in by] == [2, 3, 3]


def with_pit(frame, distance, sides=(1, 1, 1, 1, 1)):
    """Returns the check of values whose PIT strays by a known distance by fifth of the noise sd.

    The PIT of any fifth of the scores within a fifth of the noise sd is an even grid raised to a
    power, so which slices fail does not depend on random numbers.
    """
    x = np.linspace(0.0, 1.0, 2001)
    power = optimize.brentq(lambda b: (x ** (1 / b) - x).max() - distance, 1.0, 9.0)
    fifths = [pd.qcut(frame[name], 5, labels=False) for name in ("score", "noise_sd")]
    cells = np.random.default_rng(99).random(len(frame))  # not those that made the scores
    cells = pd.Series(cells).groupby(fifths)
    even = (cells.rank() - 0.5) / cells.transform("size")
    pit = even**power ** np.array(sides)[fifths[1]]
    law = KINDS["values"].marginal(*true_moments(frame, "values"), frame["noise_sd"])
    items = as_items(frame.assign(value=law.ppf(pit)), "values")
    return soc.check(hand_made_fit("values"), items, subset=20, **QUIET)


SIDES = (1, -1, 1, -1, 1)  # so that the items as a whole are right


@pytest.mark.parametrize("seed", thinned(range(3), [0]))
def test_slices_that_are_off_together_fail_together(seed):
    """Each fifth of 600 has p = 0.02, which is no failure among 13 tests; Fisher's test of five is
    far beyond.
    """
    result = with_pit(simulate(3000, seed, "values"), stats.kstwo.isf(0.02, 600), SIDES)
    table = result.table.set_index("where")
    assert set(table.index[table["verdict"] == "fail"]) <= {"noise sd 1/5 to 5/5", "11 slices"}
    assert table.loc["noise sd 1/5 to 5/5", "verdict"] == "fail"
    assert (table.loc[table.index.str.match(r"noise sd \d/5: "), "verdict"] == "warn").all()
    assert table.loc["noise sd 1/5 to 5/5", "p"] < 2e-4
    # a fit to these gains nothing over the truth
    assert "No single remedy" in result.advice[0]


def test_levels_without_a_score_are_advised_as_groups():
    rng = np.random.default_rng(0)
    kind = np.arange(300) % 6
    count = rng.poisson(5.0 + 3.0 * kind)
    table = pd.DataFrame({"count": count, "exposure": 1.0, "kind": [f"spray {k}" for k in kind]})
    items = soc.PoissonItems(table, score=None, count="count", exposure="exposure")
    fit = soc.fit(soc.summarize(items, **QUIET), **QUIET)
    (first, *_) = soc.check(fit, items, by="kind", **QUIET).advice
    assert first.startswith("Levels of 'kind' differ: give the items group='kind'.")


@pytest.mark.slow
def test_advice_on_many_items_says_how_small_the_departure_is():
    """A distance of 0.0075 fails for 120,000 items as a whole, and for none of their fifths."""
    result = with_pit(simulate(120_000, 0, "values"), 0.0075)
    assert list(result.table.loc[result.table["verdict"] == "fail", "where"]) == ["all items"]
    assert "With so many items the smallest departures show" in result.advice[-1]
    assert "off by more than 0.008" in result.advice[-1]


def test_many_small_departures_are_a_finding():
    """Each slice has p of about 0.03, none of which fails among 12; so many have p < 0.001."""
    result = with_pit(simulate(3000, 0, "values"), stats.kstwo.isf(0.03, 600), SIDES)
    number = result.table.set_index("what").loc[pit.NUMBER]
    assert number["value"] >= 5
    assert number["p"] < 0.01
    assert number["verdict"] == "fail"


@pytest.mark.parametrize("seed", thinned(range(6), [0]))
def test_a_score_that_says_nothing_is_named(seed):
    """In 20 of 20 sets; the true score, which explains 45 to 78%, in none."""
    frame = soc.simulation.s1(300, seed=seed)
    mixed = frame["score"].sample(frac=1, random_state=seed).to_numpy()
    for says_nothing, table in ((False, frame), (True, frame.assign(score=mixed))):
        items = as_items(table)
        fit = soc.fit(soc.summarize(items, on_leakage="ignore", **QUIET), **QUIET)
        result = soc.check(fit, items, subset=20, **QUIET)
        said = [text for text in result.advice if "hardly tells theta apart" in text]
        assert len(said) == says_nothing


def test_advice_keeps_the_terms_of_the_fit():
    prior = soc.Gamma(exposure=soc.Spline(knots=8), groups=False)
    code = code_of(mixture_of(prior))
    assert code == "soc.GammaMixture(exposure=soc.Spline(knots=8), groups=False)"
    stiff = code_of(soc.Normal(mean=soc.Spline(knots=40, scale="linear")))
    assert eval(stiff, {"soc": soc}).mean == soc.Spline(knots=40, scale="linear")


@pytest.mark.slow
def test_subset_is_a_seeded_choice_of_the_items():
    frame = simulate(400, 2)
    trees = [check_items(hand_made_fit(), frame, seed=seed, subset=100).data for seed in (3, 3, 4)]
    xr.testing.assert_identical(trees[0], trees[1])
    rows = trees[0]["observed_data"]["item"].to_numpy()
    assert len(np.unique(rows)) == 100
    assert not np.array_equal(rows, trees[2]["observed_data"]["item"])
    np.testing.assert_array_equal(trees[0]["observed_data"]["count"], frame["count"].iloc[rows])


@pytest.mark.parametrize("n", [1, 2, 25])
def test_few_items_are_checked(n):
    result = check_items(hand_made_fit(), simulate(n, 0), subset=n)
    assert "all items" in set(result.table["where"])
    assert result.data["log_likelihood"].sizes["item"] == n


def test_draws_for_arviz_are_made_when_they_are_read(monkeypatch):
    """And once: outcomes that are read twice are the same."""
    fit, frame = hand_made_fit(), simulate(300, 5)
    data = check_items(fit, frame, subset=50).data
    item = data["observed_data"]["item"].to_numpy()
    columns = {name: values[item] for name, values in columns_of(frame).items()}
    expected = posterior_of(fit).log_density(columns)
    made = data["log_likelihood"]["count"].to_numpy()
    np.testing.assert_allclose(made.reshape(expected.shape), expected)
    outcomes = data["posterior_predictive"]["count"]
    assert outcomes.dtype == np.int64
    np.testing.assert_array_equal(outcomes.isel(item=3), outcomes[..., 3])
    monkeypatch.setattr(type(posterior_of(fit)), "simulate", None)
    np.testing.assert_array_equal(data["posterior_predictive"]["count"], outcomes)


def test_inference_that_failed_comes_first():
    status = Status(False, "Pareto k 0.9", 0.9, 0.05, 1.0)
    result = check_items(hand_made_fit(status=status), simulate(500, 1))
    verdict = result.table.set_index("what")["verdict"]
    names = ["converged", "pareto_k", "ess_fraction"]
    assert verdict[names].tolist() == ["fail", "fail", "warn"]
    assert "NUTS" in result.advice[0]


@pytest.mark.slow
def test_trials_taken_for_counts_are_a_matter_of_noise():
    """Successes in 1 to 6 trials: noise of counts is too wide, and no knots or terms mend it."""
    n, rng = 4000, np.random.default_rng(5)
    exposure, rate = rng.integers(1, 7, n), rng.uniform(0.1, 0.8, n)
    count = rng.binomial(exposure, rng.beta(12 * rate, 12 * (1 - rate)))
    items = as_items(pd.DataFrame({"score": rate, "exposure": exposure, "count": count}))
    with pytest.warns(soc.ItemsWarning, match="BinomialItems"):
        statistics = soc.summarize(items, **QUIET)
    fit = soc.fit(statistics, method=soc.FiveSteps(), **QUIET)
    for data in (items, statistics):
        result = soc.check(fit, data, **QUIET)
        noise = result.table.set_index("what").loc["noise"]
        assert noise["verdict"] == "fail"
        assert "soc.BinomialItems" in result.advice[0]


def test_print_is_short_worst_first_and_escaped():
    frame = simulate(1000, 11).assign(ad=np.arange(1000) % 20, g="<script>")
    result = check_items(hand_made_fit(second=np.log(6.0)), frame, by=["ad", "g"])
    lines = repr(result).splitlines()
    assert len(lines) <= 12
    assert [line.split()[-1] for line in lines[2:7]] == ["fail"] * 5
    page = result._repr_html_()
    assert "<script>" not in page
    assert page.count("<tr>") == 6


@pytest.mark.parametrize("kind", thinned(KINDS, ["counts"]))
def test_pit_of_statistics_is_that_of_the_items(kind):
    """Averaged ECDFs within .01: cells of 60 bins blur them by less than chance does."""
    fit, frame = hand_made_fit(kind, sd=0.02), simulate(1500, 1, kind)
    statistics = statistics_of(frame, kind)
    result = soc.check(fit, statistics, **QUIET)
    assert "fail" not in set(result.table["verdict"])
    pit, exact = result.data["pit"], check_items(fit, frame, kind).data["pit"]
    gap = pit["averaged"].sel(slice="all items") - exact["averaged"].sel(slice="all items")
    assert float(np.abs(gap).max()) < 0.01
    n = pit["n_items"].to_series()
    assert n["all items"] == 1500
    assert n[n.index.str.match(r"score \d/\d: ")].sum() == 1500
    table = soc.check(hand_made_fit(kind, second=-1.5), statistics, **QUIET).table
    assert table["what"].str.contains("PIT|slices")[table["verdict"] == "fail"].any()


@pytest.mark.slow
def test_statistics_of_groups(example):
    """Slices by level."""
    groups = example("groups")
    table = soc.check(groups.fit, groups.statistics, **QUIET).table
    assert {"kind = a", "kind = b"} <= set(table["where"])
    assert "fail" not in set(table["verdict"])


def test_a_notebook_shows_verdicts_and_the_picture(small_fit, small_items):
    result = soc.check(small_fit, small_items, subset=50, progress=False)
    page = result._repr_html_()
    assert '<img src="data:image/' in page
    assert all(verdict in page for verdict in result.table["verdict"].unique())


ITEMS = {"gamma": 60_000, "normal": 25_000}  # of few, chance hides the error of the curves


@pytest.mark.parametrize("name", thinned(["gamma", "normal"], []))
def test_items_of_one_draw_of_the_curves_pass(name, example):
    """Of 20 draws as the truth of many items, at most 4 are rejected at 5% (0.3% by chance).

    The test that takes items as independent rejects more than that.
    """
    case, rng = example(name), np.random.default_rng(0)
    fit, truth = case.fit, posterior_under(case.fit.curves.thin(20))
    rows = case.frame.iloc[rng.integers(len(case.frame), size=ITEMS[name])]
    columns = dict(frame_columns(fit.curves, case.case.items(rows)))
    outcomes = truth.simulate(columns, rng)
    ones, p_values = np.ones(ITEMS[name], dtype=int), []
    for own in outcomes:
        items = Observations(columns | {truth.outcome.observed: own}, ones, {}, {})
        ends = pit.cdf_ends(posterior_of(fit), items.columns)
        masks = {pit.Slice("all items"): ones > 0}
        pits = pit.slice_pits(ends, ones, masks, rng)
        independent = pit.with_p_values(pits)
        pits, _ = pit.pit_tests(posterior_of(fit), items, masks, pits, rng)
        p_values.append([float(test["p_value"][0]) for test in (pits, independent)])
    allowed, independent = (np.array(p_values) < 0.05).sum(axis=0)
    assert allowed <= 4 < independent, p_values


def test_without_error_of_the_curves_the_test_is_kolmogorov_and_smirnovs():
    """P-values of 200 and of 20 items agree to 0.01, four standard errors of 2,000 replicates."""
    rng = np.random.default_rng(1)
    for n in (20, 200):
        strayed = pit.replicated_distances(np.zeros((1, 1, 200)), np.array([[n]]), rng)[:, 0]
        for p_value in (0.5, 0.2, 0.05, 0.01):
            distance = stats.kstwo.isf(p_value, n)
            error = pit.distance_p_value(distance, n, strayed) - p_value
            assert abs(error) <= 0.005 + 4 * np.sqrt(p_value / 2000)
        distance = stats.kstwo.isf(1e-4, n)
        assert 1e-5 < pit.distance_p_value(distance, n, strayed) < 1e-3


def simulated(n, seed, factor=1.0):
    rng = np.random.default_rng(seed)
    t, exposure = rng.lognormal(-2.5, 0.8, n), rng.lognormal(4.0, 1.0, n)
    cv2 = 0.3 * (t / 0.08) ** -0.3
    return counts(gamma_counts(rng, t, exposure, 0.9 * factor * t, cv2))


@pytest.fixture(scope="module")
def fits():
    sets = (soc.summarize(simulated(2000, 1000 + seed), bins=50, **QUIET) for seed in range(6))
    return [soc.fit(statistics, soc.Gamma(), soc.VI(draws=300), **QUIET) for statistics in sets]


def checked(fit, seed, factor=1.0):
    return soc.check(fit, simulated(20_000, seed, factor), subset=20, **QUIET).table


@pytest.mark.slow
def test_new_items_of_the_same_truth_pass(fits):
    """Of six fits at most 15% of the slices are rejected at 5%, and one table fails.

    Slices of one fit share its error: the share's standard error is about 4%. At its nominal
    rate a table fails in 1%.
    """
    tables = [checked(fit, 5000 + seed) for seed, fit in enumerate(fits)]
    assert np.mean([(table["p"].dropna() < 0.05).mean() for table in tables]) < 0.15
    assert sum((table["verdict"] == "fail").any() for table in tables) <= 1


@pytest.mark.slow
def test_new_items_with_a_higher_mean_fail(fits):
    """A shift of 10% is found in the new items of each of three fits."""
    for seed, fit in enumerate(fits[:3]):
        assert "fail" in set(checked(fit, seed, factor=1.1)["verdict"])
