"""Compiled kernels say what their source says: Python, running it, gives the same numbers."""

import importlib
import math
import pkgutil
import types
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numba.core.dispatcher import Dispatcher
from numba.np.ufunc.dufunc import DUFunc

import soc_pymc as soc
from soc_pymc.data.kernels import KERNELS
from soc_pymc.families import (
    beta_forms,
    beta_tails,
    bin_effects,
    bin_mixtures,
    mixture_rows,
    poisson_rows,
    special_forms,
    surrogates,
)
from soc_pymc.model import problem
from soc_pymc.posterior.predictive import posterior_of
from tests.families.test_mixture_parts import KINDS, cells_of, drawn

REAL = 1e-9  # relative: compiled code contracts products and sums, and sums in another order

# compiled code takes a whole number that an array of reals holds, Python's own `ldexp` does not
LENIENT = types.SimpleNamespace(**vars(math))
LENIENT.ldexp = lambda x, power: math.ldexp(x, int(power))


def _modules():
    for found in pkgutil.walk_packages(soc.__path__, "soc_pymc."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _chosen(choose):
    """A function that the compiler chooses by its arguments' types."""
    return lambda *args: choose(*args)(*args)


def _plain(compiled):
    """The function that was compiled; of a generated one, with what it calls interpreted too."""
    function = compiled.py_func
    if "__file__" in function.__globals__:  # a module's, which is patched itself
        return function
    names = {
        name: _plain(value)
        if isinstance(value, Dispatcher)
        else LENIENT
        if value is math
        else value
        for name, value in function.__globals__.items()
    }
    return types.FunctionType(function.__code__, names)


@contextmanager
def interpreted():
    """Every compiled function of the package is the Python function that it was made of."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        for module in _modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, Dispatcher):
                    patch.setattr(module, name, value.py_func)
                elif value is math:
                    patch.setattr(module, name, LENIENT)
                elif isinstance(value, DUFunc):
                    plain = np.vectorize(value._dispatcher.py_func)
                    plain.types = value.types  # by which it is seen to have been compiled
                    patch.setattr(module, name, plain)
        for kind, kernel in KERNELS.items():
            plain = {k: _plain(v) for k, v in vars(kernel).items() if isinstance(v, Dispatcher)}
            patch.setitem(KERNELS, kind, replace(kernel, **plain))
        patch.setattr(bin_effects, "_row", _chosen(bin_effects._choose_row))
        patch.setattr(bin_effects, "_line", _chosen(bin_effects._choose_line))
        yield


def assert_both_the_same(work, rtol=REAL):
    """What `work` returns, arrays or tuples of them, compiled and interpreted."""
    compiled = work()
    with interpreted():
        plain = work()
    several = isinstance(compiled, tuple)
    for one, two in zip(*((x if several else (x,)) for x in (compiled, plain)), strict=True):
        one, two = np.asarray(one, dtype=float), np.asarray(two, dtype=float)
        assert one.size
        assert np.isfinite(one).all()
        np.testing.assert_allclose(two, one, rtol=rtol, atol=rtol * np.abs(one).max())


def test_kernels_are_replaced():
    compiled = poisson_rows.one_row
    assert isinstance(compiled, Dispatcher)
    with interpreted():
        assert poisson_rows.one_row is compiled.py_func
    assert poisson_rows.one_row is compiled


# ---------------------------------------------------------------- items


def counts(n=250, **roles):
    frame = soc.simulation.s1(n, seed=3)
    frame["country"] = np.where(np.arange(n) % 3 == 0, "a", "b")
    frame.loc[::40, "count"] = 5000  # beyond the counts that have a cell each
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure", **roles)


def values(n=250, **roles):
    frame = counts(n).source
    rng = np.random.default_rng(5)
    frame = frame.assign(sd=rng.uniform(0.5, 3.0, n))
    frame["y"] = frame["score"] + np.hypot(1.0, frame["sd"]) * rng.normal(size=n)
    return soc.NormalItems(frame, score="score", value="y", noise_sd="sd", **roles)


@pytest.mark.parametrize("items", [counts, values])
def test_sums_of_items(items):
    """Bit for bit, whole numbers and real ones."""
    made = items(group="country")

    def work():
        return soc.summarize(
            made, bins=6, joint=True, folds=2, on_leakage="ignore", progress=False
        ).data

    compiled = work()
    with interpreted():
        assert work().identical(compiled)


def test_sums_of_bad_items_are_refused_alike():
    frame = counts().source
    frame.loc[[3, 7], "exposure"] = -1.0
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    said = []
    for context in (np.errstate, interpreted):
        with context(), pytest.raises(soc.ItemsError) as caught:
            soc.summarize(items, bins=6, progress=False)
        said.append(str(caught.value))
    assert said[0] == said[1]


def extreme(items):
    """Items far from the fit's and near them, with little, much and contradictory evidence."""
    if isinstance(items, soc.PoissonItems):
        pairs = [(0, 0.0), (0, 1e6), (5000, 10.0), (1, 30.0), (300, 3e3)]
        rows = [(t, y, n) for t in (1e-6, 0.01, 0.05, 0.3, 50.0) for y, n in pairs]
        frame = pd.DataFrame(rows, columns=["score", "count", "exposure"])
        return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    pairs = [(-40.0, 0.1), (0.1, 1e-6), (0.0, 1e6), (9.0, 1.0), (0.3, 0.5)]
    rows = [(t, y, s) for t in (1e-6, 0.05, 0.3, 50.0) for y, s in pairs]
    frame = pd.DataFrame(rows, columns=["score", "y", "sd"])
    return soc.NormalItems(frame, score="score", value="y", noise_sd="sd")


@pytest.mark.parametrize(
    ("items", "prior"),
    [(counts, soc.Gamma()), (counts, soc.GammaMixture()), (values, soc.NormalMixture())],
    ids=["gamma", "mixture of gammas", "mixture of normals"],
)
# few bins and draws, far scores; and compiled code divides by 0 without a word
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.slow
def test_posteriors_of_items(items, prior):
    """As `draws="auto"` makes them, which is compiled from end to end."""
    # of so many items that nearly all are scored by tables
    stats = soc.summarize(items(5000), bins=20, joint=True, on_leakage="ignore", progress=False)
    fit = soc.fit(stats, prior, method=soc.VI(draws=50), progress=False)
    few = extreme(items())

    def work():
        found = soc.item_posteriors(fit, few, progress=False)
        return found.iloc[:, few.source.shape[1] :].to_numpy(dtype=float)

    assert_both_the_same(work, rtol=1e-6)  # searches end within 1e-5 sd
    law = posterior_of(fit)
    own = {role: few.source[name].to_numpy(dtype=float) for role, name in few.roles.items()}
    own = {role: column[own["score"] < 1.0] for role, column in own.items()}
    assert_both_the_same(
        lambda: law.further_cdf_interval(own, own[law.outcome.observed], own[law.outcome.size]),
        rtol=1e-6,
    )


# ---------------------------------------------------------------- likelihoods


@pytest.fixture(scope="module")
def histogram():
    items = counts(600)
    stats = soc.summarize(items, bins=5, on_leakage="ignore", progress=False)
    return problem.build(stats, soc.Gamma()).data


@pytest.fixture(scope="module")
def cells():
    stats = soc.summarize(values(600), bins=5, on_leakage="ignore", progress=False)
    return problem.build(stats, soc.Normal()).data


@pytest.fixture(scope="module")
def curves():
    rng = np.random.default_rng(2)
    first, second = rng.normal(-3.0, 0.3, (3, 5)), rng.normal(-1.0, 0.5, (3, 5))
    second[0, 0], second[1, 0] = -35.0, 4.0  # all but no variance, and much
    return first, second


def test_bins_of_counts(histogram, curves):
    bins = np.arange(5)
    low, high = (np.full(5, -3.2), np.full(5, -1.4)), (np.full(5, -2.8), np.full(5, -0.6))
    made = surrogates.make_surrogates(histogram, low, high)

    def near():
        out = np.empty((3, 3, 5))
        poisson_rows.near_rows(*curves, bins[None], out, *made.arrays, *histogram.arrays)
        return out

    assert_both_the_same(lambda: histogram.value_and_gradient(*curves, bins))
    assert_both_the_same(near)
    assert_both_the_same(lambda: histogram.curvature(curves[0][2], curves[1][2], bins))


def test_bins_of_values(cells, curves):
    bins = np.arange(5)
    assert_both_the_same(lambda: cells.value_and_gradient(*curves, bins))
    assert_both_the_same(lambda: cells.curvature(curves[0][2], curves[1][2], bins))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["counts", "values"])
def test_effects_of_bins(kind, histogram, cells, curves):
    data = histogram if kind == "counts" else cells
    curves = tuple(curve[:2] for curve in curves)
    log_tau = np.log([0.05, 1.0])
    assert_both_the_same(
        lambda: bin_effects.value_and_gradient(*curves, log_tau, *data.arrays), rtol=1e-7
    )
    assert_both_the_same(
        lambda: bin_effects.draw_effects(*curves, log_tau, data, np.random.default_rng(1)),
        rtol=1e-7,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_cells_of_mixtures(kind):
    """Also where Newton's method fails from the first guess, and follows the line."""
    cells, predictors = cells_of(kind), drawn(kind, 2, 3)
    guess = cells.forms.guess.copy()
    guess[:, :, 1:] = 1e4

    def work(cells):
        value, slope = np.empty(predictors.shape[:2]), np.empty(predictors.shape)
        mixture_rows.all_rows(predictors, value, slope, *cells.arrays)
        return value, slope

    far = replace(cells, forms=replace(cells.forms, guess=guess))
    for own in (cells, far):
        # densities are in single precision
        assert_both_the_same(lambda own=own: work(own), rtol=1e-5)


def test_weights_of_mixtures():
    forms = cells_of("Beta").forms
    assert_both_the_same(lambda: mixture_rows.solved(drawn("Beta", 2, 4), *forms.arrays), rtol=1e-6)


def test_free_mixtures_of_normals():
    rng = np.random.default_rng(4)
    value, noise = rng.normal(size=40), rng.uniform(0.1, 1.0, 40)

    def work():
        mixture = np.full(3, 1 / 3), np.array([-1.0, 0.0, 1.0]), np.full(3, 0.5)
        ends = bin_mixtures.free_normals(value, noise, np.ones(40), *mixture, 1e-3, 60)
        return *mixture, *ends

    assert_both_the_same(work)


def test_special_forms():
    count = np.array([0.0, 1.0, 15.0, 16.0, 300.0, 1e9])[:, None, None]
    shape = np.array([1e-8, 0.3, 15.0, 1e4, 1e12])[:, None]
    expected = np.array([1e-6, 1.0, 250.0, 1e9])
    assert_both_the_same(lambda: special_forms.log_negative_binomial(count, shape, expected))


def test_tails_of_betas():
    x = np.array([1e-6, 0.3, 0.5001, 0.97])[:, None, None]
    a, b = np.array([1e-2, 4.0, 3e3, 1e14])[:, None], np.array([0.7, 50.0, 4e3])
    for of in (beta_tails.beta_lower, beta_tails.beta_upper, beta_tails.beta_kernel):
        assert_both_the_same(lambda of=of: of(x, a, b))
    assert_both_the_same(lambda: beta_tails.beta_excess(x, 1.0 - x, a, b))
    y = np.array([0.0, 3.0, 40.0])[:, None, None]
    assert_both_the_same(lambda: beta_forms.log_beta_binomial(y, 40.0, a, b))
