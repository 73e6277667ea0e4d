"""A prior as a file, scored with NumPy alone, against every draw of the fit."""

import shutil
import subprocess
import sys
from dataclasses import replace

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import soc_pymc as soc
from soc_pymc.families.family import BETA, GAMMA
from soc_pymc.posterior import prior_export
from soc_pymc.posterior import prior_table as own
from tests.posterior.test_auto import TERMS, items_of

ROLES = {"score": "score", "count": "count", "exposure": "exposure"}
COLUMNS = {"mean": "theta_mean", "sd": "theta_sd", "lower": "theta_q05", "upper": "theta_q95"}
CASES = [
    (f, t) for f in ("Gamma", "Normal", "Beta") for t in ("plain", "exposure", "groups", "bins")
]
# the weights of their components are uncertain: an outcome that says much moves them all
UNCERTAIN = [(f"{f}Mixture", "plain") for f in ("Gamma", "Normal", "Beta")]
UNCERTAIN += [(family, "zero") for family in ("Gamma", "Normal", "Beta")]


def _errors(found, exact):
    """Errors in posterior sd."""
    sd = exact["theta_sd"].to_numpy()
    return {k: np.abs(found[k] - exact[c].to_numpy()) / sd for k, c in COLUMNS.items()}


@pytest.fixture(scope="module")
def table(small_fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("prior") / "prior.parquet"
    return own.load(soc.export_prior(small_fit, path))


def _arrays(frame, n):
    return [frame[c].to_numpy(dtype=float)[:n] for c in ("score", "count", "exposure")]


def test_every_draw_says_the_same(small_fit, small_frame, table):
    """Of a fit to 4,000 items; the outermost scores, whose curves are hardly known, are last."""
    few = soc.PoissonItems(small_frame.head(400), **ROLES)
    exact = soc.item_posteriors(small_fit, few, draws="all", progress=False)
    error = _errors(own.score(table, *_arrays(small_frame, 400)), exact)
    for name in error:
        assert np.quantile(error[name], 0.95) < 1e-3, name
        assert error[name].max() < 0.05, name


@pytest.mark.slow
@pytest.mark.parametrize(("family", "term"), CASES)
def test_by_family_and_term(family, term, kept_fit, tmp_path):
    """Fits to 2,000 items alone: eight items of ten are as close as of a larger fit."""
    items = items_of(family, term)

    def make():
        summed = soc.summarize(items, bins=40, joint=True, progress=False)
        prior = getattr(soc, family)(**TERMS[term])
        return soc.fit(summed, prior, soc.VI(draws=400, seed=0), progress=False)

    fit = kept_fit(f"auto_{family}_{term}", make)
    frame = items.source.head(300)
    exact = soc.item_posteriors(fit, type(items)(frame, **items.roles), draws="all", progress=False)
    path = soc.export_prior(fit, tmp_path / "prior.parquet")
    assert path.stat().st_size <= 1_000_000
    group = frame["group"].to_numpy() if term == "groups" else None
    read = own.load(path)
    found = own.score(read, *(frame[c].to_numpy(dtype=float) for c in "tyn"), group)
    error = _errors(found, exact)
    # polynomials in score and size follow a prior of both less closely
    far = 3.0 if term == "exposure" else 1.0
    for name in error:
        assert np.quantile(error[name], 0.8) < far * 1e-3, (name, np.quantile(error[name], 0.8))
    assert "p_zero" not in found


@pytest.mark.slow
def test_zeros_of_a_larger_fit(tmp_path):
    """A fifth of 40,000 thetas is 0; the weights are known well enough for a table."""
    rng = np.random.default_rng(1)
    t = rng.lognormal(-3.0, 0.5, 40_000)
    theta = np.where(rng.random(len(t)) < 0.2, 0.0, t * rng.gamma(2.0, 0.5, len(t)))
    size = rng.integers(20, 200, len(t))
    frame = pd.DataFrame({"score": t, "count": rng.poisson(theta * size), "exposure": size})
    stats = soc.summarize(soc.PoissonItems(frame, **ROLES), progress=False)
    fit = soc.fit(stats, soc.Gamma(zero=True), soc.VI(draws=1000, seed=0), progress=False)
    few = soc.PoissonItems(frame.head(500), **ROLES)
    exact = soc.item_posteriors(fit, few, draws="all", progress=False)
    table = own.load(soc.export_prior(fit, tmp_path / "prior.parquet"))
    found = own.score(table, *_arrays(frame, 500))
    error = _errors(found, exact)
    for name, close in (("mean", 5e-3), ("sd", 5e-3), ("lower", 1e-2), ("upper", 1e-2)):
        assert np.quantile(error[name], 0.99) < close, name
    assert np.abs(found["p_zero"] - exact["p_zero"]).max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("family", "term"), UNCERTAIN)
def test_priors_with_components(family, term, kept_fit, tmp_path):
    """Nine items of ten are within 0.02 posterior sd, of fits to 2,000 items alone."""
    items = items_of(family, term)

    def make():
        summed = soc.summarize(items, bins=40, progress=False)
        prior = getattr(soc, family)(**TERMS[term])
        return soc.fit(summed, prior, soc.VI(draws=400, seed=0), progress=False)

    fit = kept_fit(f"auto_{family}_{term}", make)
    frame = items.source.head(300)
    exact = soc.item_posteriors(fit, type(items)(frame, **items.roles), draws="all", progress=False)
    read = own.load(soc.export_prior(fit, tmp_path / "prior.parquet"))
    found = own.score(read, *(frame[c].to_numpy(dtype=float) for c in "tyn"))
    if fit.prior.zero:
        assert np.quantile(np.abs(found["p_zero"] - exact["p_zero"]), 0.99) < 5e-3
    for name, error in _errors(found, exact).items():
        # a quantile jumps where its probability is the share of zeros
        share = 0.8 if fit.prior.zero and name in ("lower", "upper") else 0.9
        assert np.quantile(error, share) < 0.02, (name, np.quantile(error, share))


def test_a_table_that_is_wrong_is_refused(small_fit, tmp_path, monkeypatch):
    """Its items are compared with those of every draw before it is written."""
    tables = prior_export.prior_tables

    def off(*given):
        meta, columns = tables(*given)
        return meta, columns | {"first_00": columns["first_00"] + 0.5}

    monkeypatch.setattr(prior_export, "prior_tables", off)
    with pytest.raises(soc.FitError, match="posterior sd from that of every draw"):
        soc.export_prior(small_fit, tmp_path / "prior.json")
    assert not list(tmp_path.iterdir())


def _law(family, a, b, t):
    family = own._FAMILIES[family]
    return family.law(a, b, family.norm(a, b, own._ARRAYS), t, own._ARRAYS)


@pytest.mark.parametrize("shape", [1e-3, 0.1, 0.5, 1.0, 3.0, 100.0, 1e4, 1e9])
def test_distribution_functions(shape):
    """Against SciPy: the approximation for a shape that is larger by 4 is accurate to 2e-4."""
    p, one = np.linspace(0.003, 0.997, 200), np.ones(200)
    x = stats.gamma.ppf(p, shape)
    # where theta underflows, its distribution function is theta^a / Gamma(a + 1)
    t = np.where(
        x > 1e-200,
        np.log(np.maximum(x, 1e-300)),
        (np.log(p) + special.gammaln(shape + 1.0)) / shape,
    )
    found, density = _law("Gamma", shape * one, 2.0 * one, t - np.log(2.0))
    np.testing.assert_allclose(found, p, rtol=0, atol=1e-4)
    exact = np.exp(shape * t - np.exp(t) - special.gammaln(shape))
    np.testing.assert_allclose(density, exact, rtol=1e-5)
    for other in (0.1, 2.0, 1e6) if shape >= 0.1 else ():
        law = stats.beta(shape, other)
        x, rest = law.ppf(p), stats.beta(other, shape).isf(p)
        at = (x > 1e-300) & (rest > 1e-300)
        t = np.log(x[at]) - np.log(rest[at])
        found, density = _law("Beta", shape * one[at], other * one[at], t)
        np.testing.assert_allclose(found, p[at], rtol=0, atol=2e-4)
        exact = np.exp(shape * np.log(x) + other * np.log(rest) - special.betaln(shape, other))[at]
        np.testing.assert_allclose(density, exact, rtol=1e-5)


@pytest.mark.parametrize("family", ["Gamma", "Beta", "Normal"])
def test_moments_of_pearson_families(family):
    """Variance, skewness and kurtosis, against SciPy."""
    a, b = 3.3, 7.7
    law = {"Gamma": stats.gamma(a, scale=1 / b), "Beta": stats.beta(a, b)}.get(family)
    law = stats.norm(a, b**0.5) if law is None else law
    mean, *curve = own._FAMILIES[family].pearson(a, b)
    variance, third, fourth = own._central(*curve)
    found = mean, variance, third / variance**0.5, fourth / variance - 3.0
    np.testing.assert_allclose(found, law.stats("mvsk"), rtol=1e-12, atol=1e-14)


def test_quantiles_of_two_far_components():
    """A valley between them, theta that is 0, and levels within the share of zeros."""
    law, a, b = own._FAMILIES["Gamma"], np.array([4.0, 900.0]), np.array([400.0, 900.0])
    weight, zero, levels = np.array([0.3, 0.7]), 0.1, np.array([0.05, 0.36, 0.371, 0.95])
    start, unit = np.full((4, 1), np.log(0.7)), np.ones((1, 1))
    parts = (v[:, None, None] for v in (weight, a, b))
    found = own._solved(law, levels, start, *parts, np.full((1, 1), zero), unit)[:, 0]
    assert found[0] == 0.0
    own_law = stats.gamma(a, scale=1 / b)
    below = [zero + (1.0 - zero) * weight @ own_law.cdf(q) for q in found[1:]]
    np.testing.assert_allclose(below, levels[1:], rtol=0, atol=2e-4)


def test_one_item_is_as_of_many(table, small_frame):
    """A single item's quantiles are moved by moments where that is enough."""
    given = _arrays(small_frame, 200)
    many = own.score(table, *given)
    for k, row in enumerate(zip(*map(np.ndarray.tolist, given), strict=True)):
        one = own.score(table, *row)
        assert all(isinstance(value, float) for value in one.values())
        for name in ("mean", "sd"):
            assert one[name] == pytest.approx(many[name][k], rel=1e-9)
        for name in ("lower", "upper"):
            assert abs(one[name] - many[name][k]) < 0.03 * one["sd"]


@pytest.mark.parametrize("family", ["Gamma", "Beta", "Normal"])
def test_quantiles_moved_by_moments(family, monkeypatch):
    """Of two near nodes, against their distribution: moving divides the error by four."""
    monkeypatch.setattr(own, "_NEAR", 1.0)
    record, weight = own._FAMILIES[family], (0.4, 0.6)
    nodes = {
        "Gamma": ((8.0, 80.0), (10.0, 82.0)),
        "Beta": ((8.0, 60.0), (10.0, 60.0)),
        "Normal": ((1.0, 0.5), (1.2, 0.7)),
    }[family]
    each = [(u, *record.pearson(a, b)) for u, (a, b) in zip(weight, nodes, strict=True)]
    mean = sum(u * m for u, m, *_ in each)
    variance = sum(u * (own._central(*c)[0] + (m - mean) ** 2) for u, m, *c in each)
    a, b = record.matched(mean, variance)
    law = {"Gamma": lambda a, b: stats.gamma(a, scale=1 / b), "Beta": stats.beta}.get(
        family, lambda a, b: stats.norm(a, b**0.5)
    )
    levels = np.array([0.05, 0.95])
    starts = [record.line(q, own._NUMBERS) for q in law(a, b).ppf(levels).tolist()]
    found = np.array(own._moved(record, each, mean, variance, starts))

    def errors(q):
        below = sum(u * law(*node).cdf(q) for u, node in zip(weight, nodes, strict=True))
        return np.abs(below - levels)

    assert (errors(found) < 0.25 * errors(law(a, b).ppf(levels))).all()


def test_without_an_outcome_it_is_the_prior(table, small_fit, small_frame):
    new = soc.PoissonItems(small_frame[["score"]].head(50), score="score")
    exact = soc.item_posteriors(small_fit, new, draws="all", progress=False)
    error = _errors(own.score(table, _arrays(small_frame, 50)[0]), exact)
    assert np.quantile(error["mean"], 0.9) < 1e-3
    assert np.quantile(error["upper"], 0.9) < 5e-3


def test_json_says_the_same_and_describes_itself(table, small_fit, small_frame, tmp_path):
    read = own.load(small_fit.export_prior(tmp_path / "prior.json"))
    for name, values in own.score(read, *_arrays(small_frame, 200)).items():
        np.testing.assert_allclose(
            values, own.score(table, *_arrays(small_frame, 200))[name], rtol=1e-5
        )
    assert read["format"] == "soc_pymc-prior-3"
    assert len(read["fit"]) == 64
    assert len(read["made"]) == 10
    assert read["axis"]["scale"] == "log"
    assert read["family"] == "Gamma"
    assert read["levels"] == [0.05, 0.95]


def test_the_file_alone_is_enough(small_fit, tmp_path):
    """A copy of it reads JSON where there is neither this package nor SciPy."""
    shutil.copy(own.__file__, tmp_path / "copied.py")
    small_fit.export_prior(tmp_path / "prior.json")
    code = (
        "import sys, copied; table = copied.load('prior.json');"
        "print(copied.score(table, 0.05, 2, 30.0)['mean']);"
        "assert not {'scipy', 'pyarrow', 'pandas', 'soc_pymc'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": "."}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert 0.0 < float(done.stdout) < 1.0


def test_quantiles_of_the_table():
    """Against SciPy, in sd: cubics in cells of log shape, the largest error over the range."""
    rng = np.random.default_rng(0)
    for family, least, close in ((GAMMA, 1e-3, 2e-4), (BETA, 0.3, 1e-3)):
        values = prior_export.quantile_table(family, (0.05, 0.95))
        a, b = np.exp(rng.uniform(np.log(least), np.log(1e6), (2, 5000)))
        made = {"quantiles": values, "shape": list(values.shape)}
        made |= {"low": prior_export._LOW, "step": prior_export._STEP}
        record = own._FAMILIES[family.name]
        mean, *curve = record.pearson(a, b)
        sd = np.sqrt(own._central(*curve)[0])
        starts, _ = own._starts(made, record, mean, sd**2, own._ARRAYS)
        law = stats.gamma(a, scale=1 / b) if family is GAMMA else stats.beta(a, b)
        for level, start in zip((0.05, 0.95), starts, strict=True):
            off = record.theta(start, own._ARRAYS) - law.ppf(level)
            assert (np.abs(off) / sd).max() < close


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-0.1, 1, 9.0), "1 of 1 scores are not above 0"),
        ((np.array([0.1, np.nan]), 1.0, 9.0), "1 of 2 scores"),
        ((0.1, -1, 9.0), "is not possible"),
        ((np.array([0.1, 0.2]), np.array([1.0, 1.0]), np.array([9.0, 0.0])), "1 of 2 outcomes"),
        ((0.1, 1), "give size= too"),
    ],
)
def test_bad_items_are_one_sentence(table, arguments, words):
    with pytest.raises(ValueError, match=words):
        own.score(table, *arguments)


def test_groups_must_be_known(grouped_fit, grouped_items, tmp_path):
    read = own.load(grouped_fit.export_prior(tmp_path / "prior.parquet"))
    with pytest.raises(ValueError, match="group 'z' is not one"):
        own.score(read, 0.1, 1, 9.0, "z")
    with pytest.raises(ValueError, match="give group="):
        own.score(read, np.array([0.1, 0.2]), 1.0, 9.0)
    frame = grouped_items.source.head(200)
    exact = soc.item_posteriors(
        grouped_fit, type(grouped_items)(frame, **grouped_items.roles), draws="all", progress=False
    )
    found = own.score(read, *_arrays(frame, 200), frame["kind"].to_numpy())
    assert np.quantile(_errors(found, exact)["mean"], 0.9) < 1e-3
    swapped = own.score(read, *_arrays(frame, 200), np.where(frame["kind"] == "a", "b", "a"))
    assert np.quantile(_errors(swapped, exact)["mean"], 0.9) > 0.05


def test_files_that_are_none(small_fit, tmp_path):
    with pytest.raises(ValueError, match=r"ends with \.json or \.parquet"):
        own.load(tmp_path / "prior.csv")
    (tmp_path / "other.json").write_text('{"meta": {"format": "soc_pymc-prior-9"}}')
    with pytest.raises(ValueError, match="has format 'soc_pymc-prior-9', this reads"):
        own.load(tmp_path / "other.json")
    (tmp_path / "cut.json").write_text('{"meta": {"for')
    with pytest.raises(ValueError, match=r"cut\.json holds no prior table"):
        own.load(tmp_path / "cut.json")
    mixed = replace(small_fit, prior=soc.Gamma(variance=soc.Spline(scale="rank")))
    with pytest.raises(soc.FitError, match="a prior table has one scale"):
        soc.export_prior(mixed, tmp_path / "prior.json")


def test_nothing_is_left_of_a_table_that_is_too_large(small_fit, tmp_path, monkeypatch):
    monkeypatch.setattr(prior_export, "MOST_BYTES", 1000)
    with pytest.raises(soc.FitError, match="more than 1 MB"):
        soc.export_prior(small_fit, tmp_path / "prior.json")
    assert not list(tmp_path.iterdir())


def test_bins_of_five_steps_are_refused(small_statistics, tmp_path):
    fit = soc.fit(small_statistics, method=soc.FiveSteps(smooth=False), progress=False)
    with pytest.raises(soc.FitError, match="five steps that has steps"):
        soc.export_prior(fit, tmp_path / "prior.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["log", "rank"])
def test_default_scores_and_ranks(scale, small_frame, tmp_path):
    """Default scores are cells of their own, whose curves are constants."""
    frame = small_frame.copy()
    frame.loc[::7, "score"], frame.loc[1::9, "score"] = 0.05, 0.2
    items, curve = soc.PoissonItems(frame, **ROLES), soc.Spline(scale=scale)
    summed = soc.summarize(items, bins=30, on_leakage="ignore", progress=False)
    fit = soc.fit(summed, soc.Gamma(curve, curve), soc.VI(draws=200), progress=False)
    assert fit.atoms == (0.05, 0.2)
    few = frame.head(300)
    exact = soc.item_posteriors(fit, soc.PoissonItems(few, **ROLES), draws="all", progress=False)
    read = own.load(fit.export_prior(tmp_path / "prior.parquet"))
    error = _errors(own.score(read, *_arrays(few, 300)), exact)
    at = few["score"].isin(fit.atoms).to_numpy()
    for which in (at, ~at):
        assert np.quantile(error["mean"][which], 0.9) < 1e-3
        assert np.quantile(error["upper"][which], 0.9) < 5e-3


@mpmath.workdps(50)
@pytest.mark.parametrize("x", [1e-12, 1e-3, 0.7, 8.0, 1e4, 1e9, 4e15, 1e18])
def test_ratios_of_gamma_functions_keep_their_digits(x):
    """Differences of two log gamma functions of 4e15 are wrong by tens."""
    for k in (0.0, 0.5, 1.0, 3.0, 1e3, 1e8, 2.0**53):
        exact = float(mpmath.loggamma(mpmath.mpf(x) + k) - mpmath.loggamma(mpmath.mpf(x)))
        found = float(own._log_rise(np.array(x), k, own._ARRAYS))
        assert abs(found - exact) < 1e-9 * max(1.0, abs(exact)), (x, k)
