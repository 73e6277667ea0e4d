"""No NaN and no infinity leaves simulations, theory, evaluation and decisions unannounced."""

import warnings

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from scipy.special import psi

import soc_pymc as soc
from soc_pymc.families import poisson_gamma as pg
from soc_pymc.families.components import count_log_density, inverse_trigamma
from tests.extreme_references import log_count
from tests.whole.test_extremes_public import COUNTS, VALUES, _answered, _items, _public

QUIET = {"progress": False}
_SCORES, _SIZES = np.array([1e-9, 0.01, 1.0, 100.0]), np.array([1e-6, 1.0, 1e3, 1e6])


def _finite(*found):
    for each in found:
        each = each.to_numpy() if hasattr(each, "to_numpy") else each
        assert np.isfinite(np.asarray(each, dtype=float)).all(), each


# --- simulation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [1e-12, 0.5, 10.0])
def test_lognormal_oracle_up_to_the_widest(sigma):
    count, size = np.array([0.0, 0.0, 5.0, 1e9]), np.array([0.0, 1e12, 1e3, 1e6])
    _finite(*soc.simulation.lognormal_oracle(_SCORES, count, size, 0.1, sigma))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.lognormal_oracle(_SCORES, _SIZES, _SIZES, 0.0, 10.1), "at most 10"),
        (lambda s: s.lognormal_oracle([0.0], [0], [1], 0.0, 1.0), "1 of 1 are not finite"),
        (
            lambda s: s.lognormal_rates(_SCORES, _SIZES, 50.0, 0.5),
            "3 of 4 items would have",
        ),
        (lambda s: s.lognormal_rates(_SCORES, _SIZES, 1e3, 0.5), "between -100 and 100"),
        (lambda s: s.click_rates(20, 0.0, 100.0), "at most 10"),
        (lambda s: s.s1_curves([0.1, 0.0, -1.0]), "2 of 3 are not finite"),
        (lambda s: s.laplace_effects(19), "at least 20"),
        (
            lambda s: s.laplace_oracle(s.laplace_effects(20).assign(value=1e6)),
            "20 of 20 are more than 1,000",
        ),
    ],
)
def test_simulations_refuse_what_has_no_numbers(call, words):
    with pytest.raises(soc.SocError, match=words):
        call(soc.simulation)


def test_small_simulations_are_numbers():
    effects = soc.simulation.laplace_effects(20)
    _finite(effects, *soc.simulation.laplace_oracle(effects))
    _finite(soc.simulation.s1(1), soc.simulation.click_rates(1), *soc.simulation.s1_curves(1e-300))


# --- theory --------------------------------------------------------------------------------------


def test_gamma_base_next_to_0():
    """A power of a value may be 0 where its quotient is a number."""
    assert (soc.theory.gamma_base(1e-200, 1.0, 4) == 0).all()
    found = soc.theory.gamma_base(1e-90, 1.5, 3)
    np.testing.assert_allclose(found, [0.5e90, -0.5e180, 1e270], rtol=1e-12)


_ONES, _TWO = np.ones((2, 1)), np.array([[1.0], [np.inf]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.nef_cumulants(_ONES, _TWO), "marginal: 1 rows are not finite"),
        (lambda t: t.nef_cumulants(_TWO, _ONES), "base: 1 rows are not finite"),
        (lambda t: t.tweedie([1.0], 1.0, _ONES, log_density=[-np.inf]), "with rho above 0"),
        (
            lambda t: t.regularised_nef_cumulants(_ONES, _ONES, [np.nan], rho=0.1),
            "log_density: 1 rows are not numbers",
        ),
        (
            lambda t: t.log_derivatives(lambda y: np.where(y > 0, -y, -np.inf), [0.1, 2.0], 1.0),
            "log_density: 1 rows are not finite within reach",
        ),
    ],
)
def test_theory_refuses_densities_of_0(call, words):
    with pytest.raises(soc.ItemsError, match=words):
        call(soc.theory)


def test_a_density_of_0_below_rho_is_the_unbiased_estimate():
    found = soc.theory.tweedie([2.0], 1.0, _ONES, log_density=[-np.inf], rho=1e-3)
    np.testing.assert_allclose(found[:, 0], [2.0, 1.0])


def test_bound_of_hardly_any_rho():
    """The square of rho is below all numbers."""

    def log_pmf(y):
        return pg.log_pmf(y, 1e-6, 0.0, 0.0)

    found = soc.theory.poisson_bound(log_pmf, log_pmf, 1e-6, rho=1e-200, highest=10)
    assert found.error <= found.bound + 1e-12
    assert np.isfinite(found.bound)


# --- evaluation ----------------------------------------------------------------------------------


def test_likelihood_of_what_was_not_expected():
    got = soc.evaluate.poisson_log_likelihood([0, 1, 3, 0], [0.0, 0.0, np.inf, 2.0])
    assert got.tolist() == [0.0, -np.inf, -np.inf, -2.0]
    with pytest.raises(soc.ItemsError, match="expected: 1 of 2 are negative"):
        soc.evaluate.poisson_log_likelihood([1, 1], [1.0, -1.0])


def test_leakage_of_huge_counts():
    """The square of a sum of counts is beyond whole numbers."""
    items = _items("counts", COUNTS["huge counts"])
    found = soc.evaluate.leakage(items)
    _finite(found.table[["effect", "z", "p_value"]])
    assert not found.found


def _fits():
    """Fits of extreme items."""
    for kind, name in (("counts", "mixed exposures"), ("counts", "huge counts"),
                       ("values", "huge noise"), ("values", "no variance")):  # fmt: skip
        items = _items(kind, (COUNTS if kind == "counts" else VALUES)[name])
        stats = soc.summarize(items, joint=True, **QUIET)
        yield items, stats, soc.fit(stats, method=soc.FiveSteps(), **QUIET)


def test_quantities_and_evaluation_of_extreme_items():
    for items, stats, fit in _fits():
        _finite(soc.quantities.r_squared(fit), soc.quantities.r_squared(fit, stats))
        for found in (
            soc.quantities.variance_parts(fit),
            soc.quantities.variance_reduction(fit, items, weight="items", **QUIET),
            soc.quantities.variance_reduction(fit, stats, weight="items", **QUIET),
            soc.quantities.shrinkage(fit, items, **QUIET),
            soc.quantities.shrinkage(fit, stats, **QUIET),
            soc.evaluate.pit_histograms(fit, items, bins=2, **QUIET),
        ):
            _finite(*found.data_vars.values())


@pytest.mark.slow
def test_thresholds_beyond_all_scores():
    for items, _, fit in _fits():
        for cut in (1e90, -1e90):
            above = soc.decisions.probability_above(fit, items, cut, **QUIET)
            loss = soc.decisions.expected_loss(fit, items, cut, **QUIET)
            more = soc.decisions.value_of_exposure(fit, items, 1.0, threshold=cut, **QUIET)
            _finite(above, loss, more.select_dtypes("number"))
            np.testing.assert_array_equal(above, 0.0 if cut > 0 else 1.0)
        for call in (
            lambda i=items, f=fit: soc.decisions.expected_loss(f, i, 1e91, **QUIET),
            lambda i=items, f=fit: soc.decisions.value_of_exposure(f, i, 1e91, **QUIET),
        ):
            with pytest.raises(soc.FitError, match=r"up to 1e\+90 in size, not 1e\+91"):
                call()


@pytest.mark.slow
def test_a_fit_compared_with_itself(small_fit, small_items):
    stats = soc.summarize(small_items, bins=20, joint=True, **QUIET)
    for data in (small_items, stats):
        table = soc.compare({"one": small_fit, "same": small_fit}, data, **QUIET)
        assert np.isnan(table["p_worse"].iloc[0])  # of the best itself, as documented
        assert table["p_worse"].iloc[1] == 0.5
        _finite(table[["elpd", "elpd_diff", "se", "dse", "p", "weight"]])


def _judged(items, stats, fit):
    """What is said of a fit, by name, without what its documentation says may be NaN."""

    def checked(data):
        table = soc.check(fit, data, **QUIET).table
        tests = table["check"].isin(["PIT", "LOO-PIT", "dispersion", "zero counts"])
        kept = table.loc[table["check"] != "leave-one-out", "statistic"]  # its k may be infinite
        return pd.concat([kept, table.loc[tests, "p_value"]])

    def held_out():
        split = soc.evaluate.split_items(items, 0.3)
        own = soc.summarize(split.train, on_leakage="ignore", **QUIET)
        options = {"bins": 3, "over": "constant", **QUIET}
        table = soc.evaluate.held_out(soc.fit(own, **QUIET), split, **options).table
        single = table["items"] == 1  # whose gains have no standard error
        errors = ["standard_error", "gain_percent_se"]
        return table.drop(columns="estimator").mask(
            pd.DataFrame({c: single & (c in errors) for c in table.columns.drop("estimator")}), 0.0
        )

    pairs, compared = {"a": (fit, items), "b": (fit, items)}, {"a": fit, "b": fit}
    numbers = ["elpd", "elpd_diff", "se", "dse", "p", "weight"]
    return {
        "r2": lambda: soc.quantities.r_squared(fit),
        "parts": lambda: soc.quantities.variance_parts(fit),
        "parts of statistics": lambda: soc.quantities.variance_parts(fit, stats),
        "parts by exposure": lambda: soc.quantities.variance_parts(fit, stats, weight="exposure"),
        "reduction": lambda: soc.quantities.variance_reduction(fit, stats, weight="items", **QUIET),
        "shrinkage": lambda: soc.quantities.shrinkage(fit, stats, **QUIET),
        "pit": lambda: soc.evaluate.pit_histograms(fit, items, bins=3, **QUIET),
        "leakage": lambda: soc.evaluate.leakage(items).table[["z", "p_value"]],
        "check": lambda: checked(items),
        "check of statistics": lambda: checked(stats),
        "held out": held_out,
        "compare": lambda: soc.compare(compared, stats, **QUIET)[numbers],
        "compare items": lambda: soc.compare(compared, items, subset=50, **QUIET)[numbers],
        "scores": lambda: soc.quantities.compare_scores(pairs, sample=60, **QUIET),
        "bins": lambda: soc.evaluate.compare_bins(items, (4, 8), bayes=False, **QUIET)[
            ["items", "spread", "hidden", "no_variance", "five_steps_mean"]
        ],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [("counts", name) for name in COUNTS if name not in ("one item", "one score")]
    + [("values", name) for name in ("huge noise", "no variance", "two items")],
)
def test_judgements_of_bayesian_fits_of_extreme_items(kind, name):
    """A number or one clear error, and no warning of another library about numbers."""
    items = _items(kind, (COUNTS if kind == "counts" else VALUES)[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # few bins
        warnings.simplefilter("ignore", soc.ConvergenceWarning)
        warnings.simplefilter("error", RuntimeWarning)
        stats = soc.summarize(items, joint=True, **QUIET)
        fit = soc.fit(stats, **QUIET)
        answered = _answered(name, _judged(items, stats, fit))
    assert answered > 11


def test_statistics_without_items_are_refused():
    items = _items("values", VALUES["two items"].assign(id=[1, 1]))
    items = soc.NormalItems(items.source, **items.roles, id="id")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # few bins
        stats = soc.summarize(items, folds=2, **QUIET)
    with pytest.raises(soc.FitError, match="the statistics hold no items"):
        soc.evaluate.cross_validate(stats, **QUIET)


# --- mixtures ------------------------------------------------------------------------------------


def test_a_component_far_below_the_one_in_the_middle():
    """What its mean is short of the middle's has no digits left for the mean itself."""
    location = np.array([[-60.0, 0.0, 1.0]])
    found = count_log_density(np.array([2.0]), np.array([1e12]), location, np.array([50.0]))
    shape = float(inverse_trigamma(np.array([50.0]))[0])
    log_mean = location[0] + np.log(shape) - psi(shape)
    want = [float(log_count(2.0, shape, mp.mpf(1e12) * mp.exp(mp.mpf(m)))) for m in log_mean]
    np.testing.assert_allclose(found[0], want, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [("counts", "mixed exposures"), ("counts", "huge counts"), ("counts", "no event"),
     ("values", "huge noise"), ("values", "no variance")],
)  # fmt: skip
def test_mixtures_under_variational_inference(kind, name):
    """Everything that a mixture says of extreme items and of scores far away is a number."""
    frame = (COUNTS if kind == "counts" else VALUES)[name]
    items = _items(kind, frame)
    prior = soc.GammaMixture() if kind == "counts" else soc.NormalMixture()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # few bins, and far scores
        warnings.simplefilter("ignore", soc.ConvergenceWarning)
        fit = soc.fit(soc.summarize(items, joint=True, **QUIET), prior, **QUIET)
        answered = _answered(name, _public(kind, fit, items, frame))
    assert answered > 12
