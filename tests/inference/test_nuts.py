"""Variational inference against the No-U-Turn sampler on the same model."""

import os
import subprocess
import sys
import tempfile
from statistics import NormalDist

import numpy as np
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc._model.problem import build
from tests.examples import CASES, OVER, QUIET, SMALL_MIXTURE, count_frame, value_frame


def gamma_statistics():
    items = CASES["gamma"].items(count_frame(6000, 0))
    return soc.summarize(items, bins=20, **QUIET)


def grouped_statistics():
    """Four groups of different sizes, which shift the values."""
    rng = np.random.default_rng(1)
    frame = value_frame(2000, 1)
    group = np.minimum(rng.geometric(0.4, len(frame)), 4)
    frame["kind"] = [f"g{k:02d}" for k in group]
    frame["value"] += rng.normal(0.0, 0.4, 5)[group]
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd", group="kind")
    return soc.summarize(items, bins=8, **QUIET)


def noisy_statistics():
    """Values whose noise sds are estimates of 4 degrees of freedom."""
    rng = np.random.default_rng(2)
    frame = value_frame(2000, 2)
    sd = frame["noise_sd"]
    frame["noise_sd"] = sd * np.sqrt(rng.chisquare(4, len(frame)) / 4)
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd", noise_df=4)
    return soc.summarize(items, bins=12, joint=True, **QUIET)


def mixture_statistics():
    """Counts whose theta is lognormal, which no Gamma fits."""
    frame = soc.simulation.click_rates(20_000, sigma=1.0, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    return soc.summarize(items, bins=12, joint=True, **QUIET)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")  # divergences in heavy tails
@pytest.mark.parametrize(
    ("make", "prior", "group"),
    [
        (
            gamma_statistics,
            # NumPy's own number is saved as any other
            soc.Gamma(soc.Spline(knots=8, level=(np.float64(-3.0), 1.0)), soc.Spline(knots=6)),
            None,
        ),
        (
            grouped_statistics,
            soc.Normal(soc.Spline(knots=4, scale="linear"), soc.Spline(knots=3, scale="linear")),
            "g03",
        ),
        (
            noisy_statistics,
            soc.Normal(soc.Spline(knots=4, scale="linear"), soc.Spline(knots=3, scale="linear")),
            None,
        ),
        # few items leave the shape's default prior heavy tails, in which both methods err
        (mixture_statistics, soc.GammaMixture(shape=0.3, **SMALL_MIXTURE), None),
    ],
    ids=["gamma", "groups", "noise", "mixture"],
)
def test_agrees_with_nuts(make, prior, group, tmp_path, monkeypatch):
    """Curves at nine scores: widths within 15%, middles within 0.15 sd.

    The width is that of the central 80%, since a chain's excursion into a heavy tail can change an
    sd by a quarter. NUTS has effective samples of 500 or more, which know a width to 5% and a
    median to 0.06 sd; the groups' curves allow 0.25 sd, because the variational draws of groups
    are weighted. Chains leave no temporary files, and come back from a file.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stats = make()
    fast = soc.fit(stats, prior, soc.VI(draws=4000), **QUIET)
    slow = soc.fit(stats, prior, soc.NUTS(draws=700, tune=400, chains=2, seed=1), **QUIET)
    assert fast.status.converged
    assert fast.status.pareto_k < 0.7
    assert slow.status.pareto_k is None
    assert list(tmp_path.iterdir()) == []
    if make is gamma_statistics:
        slow.save(tmp_path / "fit.nc")
        again = soc.load_fit(tmp_path / "fit.nc")
        assert again.data.equals(slow.data)
        assert (again.prior, again.method, again.status) == (slow.prior, slow.method, slow.status)
    score = np.quantile(stats.edges, np.linspace(0.1, 0.9, 9))
    names, fits = ["mean", "log_variance"], (fast, slow)
    for where in ({}, {"group": group}) if group else ({},):
        ours, other = (soc.calibration_curves(fit, score, **where)[names] for fit in fits)
        low, middle, high = (ours.quantile(q, OVER) for q in (0.1, 0.5, 0.9))
        width = other.quantile(0.9, OVER) - other.quantile(0.1, OVER)
        sd = width / (2.0 * NormalDist().inv_cdf(0.9))
        difference = abs(middle - other.quantile(0.5, OVER)) / sd
        ratio = (high - low) / width
        for name in names:
            assert float(difference[name].max()) < (0.25 if group else 0.15), (name, where)
            np.testing.assert_allclose(ratio[name], 1.0, atol=0.15, err_msg=f"{name} {where}")


def other_sampler(monkeypatch, names, make):
    """Make packages look installed, and PyMC's sampler a stand-in; returns its arguments."""
    given = {}

    def sample(**options):
        given.update(options)
        return make(options)

    monkeypatch.setattr("soc_pymc.inference.sampling.find_spec", lambda name: name in names)
    monkeypatch.setattr("pymc.sample", sample)
    return given


def test_the_sampler_is_named_and_its_statistics_have_one_set_of_names(monkeypatch):
    """PyMC would take nutpie by itself where it is installed, with other draws for a seed."""
    fit = CASES["gamma"].fit()
    chains = fit.data["posterior"].to_dataset()
    shape = ("chain", "draw"), np.zeros(tuple(chains.sizes[d] for d in ("chain", "draw")), bool)
    theirs = {"diverging": shape, "depth": shape, "logp": shape, "mean_tree_accept": shape}
    tree = {"posterior": xr.DataTree(chains), "sample_stats": xr.DataTree(xr.Dataset(theirs))}
    given = other_sampler(monkeypatch, ("pymc", "nutpie"), lambda _: tree)
    problem = build(gamma_statistics(), soc.Gamma(), full=True)
    soc.NUTS().draw(problem)
    assert given["nuts_sampler"] == "pymc"
    groups, _ = soc.NUTS(sampler="nutpie").draw(problem)
    assert given["nuts_sampler"] == "nutpie"
    names = {"diverging", "tree_depth", "lp", "acceptance_rate"}
    assert set(groups["sample_stats"]) == names


def test_a_sampler_that_cannot_run_says_so(monkeypatch):
    def fails(options):
        raise TypeError("kernel() got an unexpected argument")

    other_sampler(monkeypatch, ("pymc", "blackjax"), fails)
    stats = gamma_statistics()
    with pytest.raises(soc.FitError, match="numpyro is not installed"):
        soc.fit(stats, soc.Gamma(), soc.NUTS(sampler="numpyro"), **QUIET)
    with pytest.raises(soc.FitError, match=r"does not run with this PyMC.*unexpected"):
        soc.fit(stats, soc.Gamma(), soc.NUTS(sampler="blackjax"), **QUIET)
    with pytest.raises(TypeError):
        soc.fit(stats, soc.Gamma(), soc.NUTS(), **QUIET)
    with pytest.raises(soc.FitError, match="sampler"):
        soc.NUTS(sampler="stan")


SAME = """
import hashlib, sys, soc_pymc as soc
from tests.inference.test_nuts import gamma_statistics
fit = soc.fit(gamma_statistics(), soc.Gamma(), soc.NUTS(50, 50, 2), progress=False)
posterior = fit.data["posterior"].to_dataset()
digest = hashlib.sha256(b"".join(x.to_numpy().tobytes() for x in posterior.values()))
print(digest.hexdigest(), "nutpie" in sys.modules)
"""


@pytest.mark.slow
def test_draws_do_not_depend_on_what_is_installed(tmp_path):
    """The same bits with and without nutpie, which goes to a folder of its own.

    The process that compiles a model rounds otherwise than those that load what was compiled.
    """
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path]
    subprocess.run([*pip, "nutpie>=0.16.10", "arro3-core"], check=True)
    digests = []
    for further in ([], [], [str(tmp_path)]):
        path = os.pathsep.join([os.environ.get("PYTHONPATH", "."), *further])
        environment = os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-c", SAME]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.append(run.stdout)
    assert digests[1] == digests[2]
