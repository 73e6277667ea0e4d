"""The Monte Carlo error of leave-one-out, and comparisons of fits that were broken on purpose."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc.checks.cells import make_cells
from soc_pymc.checks.leave_one_out import loo_cells
from soc_pymc.checks.trust import Influence, judge, warning_of
from soc_pymc.inference.departure import Departure, departure, departure_of
from soc_pymc.inference.results import Status

SOUND = Status(True, "made by hand", 0.2, 0.97, 0.0)
NUTS = Status(True, "made by hand", None, None, 0.0)


def influence(values, **changes):
    values = np.atleast_2d(np.asarray(values, dtype=float))
    chains, number = values.shape
    draws = xr.DataArray(values, {"chain": np.arange(chains), "draw": np.arange(number)})
    return replace(Influence(draws, 0.0, 0.0, 0, 0.7, "cells"), **changes)


def test_independent_draws():
    values = np.random.default_rng(0).normal(size=1000)
    found = judge(influence(values), SOUND)
    assert found.words == "ok"
    assert found.mcse == pytest.approx(1000**-0.5, rel=0.15)


def test_copies_count_once():
    values = np.repeat(np.random.default_rng(0).normal(size=100), 10)
    found = judge(influence(np.random.default_rng(1).permutation(values)), SOUND)
    assert found.mcse == pytest.approx(0.1, rel=0.25)


def test_chains_that_disagree():
    values = np.random.default_rng(0).normal(size=(4, 500)) + 3.0 * np.arange(4)[:, None]
    found = judge(influence(values), NUTS)
    assert "effective draws" in found.words
    assert np.isnan(found.mcse) or found.mcse > 1.0


def test_importance_weights_that_were_not_used():
    """Draws of N(0, 1) that stand for N(0.2, 1): the sum is off by 0.2."""
    values = np.random.default_rng(0).normal(size=(1, 4000))
    own = influence(values)
    weight = own.draws.copy(data=0.2 * values)
    assert judge(own, SOUND, None, weight).mcse == pytest.approx(0.2, rel=0.15)
    resampled = replace(SOUND, ess_fraction=0.9)
    assert judge(own, resampled, None, weight).mcse < 0.03


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"converged": False}, "not converged"),
        ({"pareto_k": 0.9}, "Pareto k 0.90 of the fit"),
        ({"ess_fraction": 0.01}, "40 effective draws"),
    ],
)
def test_what_the_status_says(changes, words):
    own = influence(np.random.default_rng(0).normal(size=1000))
    found = judge(own, replace(SOUND, **changes))
    assert found.words == words
    tested = judge(own, replace(SOUND, **changes), Departure(0.1, 1.0))
    assert tested.words == words
    assert tested.mcse > 0
    assert np.isnan(found.mcse) == (words != "40 effective draws")  # draws that nothing vouches for


def test_items_of_doubtful_weights_count_with_their_parameters():
    values = 0.01 * np.random.default_rng(0).normal(size=1000)
    found = judge(influence(values, doubted=0.8, n_doubted=1), SOUND)
    assert found.words == "1 cell with Pareto k above 0.70"
    assert found.mcse == pytest.approx(0.8, abs=1e-3)
    said = warning_of({"a": found, "b": judge(influence(values), SOUND)})
    assert "'a' (1 cell with" in said
    assert "'b'" not in said


def test_draws_that_are_all_one_say_nothing_of_their_error():
    assert np.isnan(judge(influence(np.zeros(1000)), SOUND).mcse)


@pytest.mark.parametrize(
    ("shift", "sd", "sound"), [(0.0, 1.0, True), (1.0, 1.0, False), (0.0, 0.5, False)]
)
def test_departure_of_normal_draws(shift, sd, sound):
    """Draws for N(0, I) in 20 dimensions, of which the gradient is -x, with copies of each."""
    draws = shift + sd * np.random.default_rng(0).normal(size=(300, 20))
    found = departure_of(draws, -draws, np.arange(300) % 2)
    assert found.shift == pytest.approx(shift * sd * 20**0.5, abs=0.3)
    assert found.width == pytest.approx(sd**2, abs=0.05)
    assert found.sound == sound
    copies = np.repeat(draws[:60], 5, axis=0)
    few = departure_of(copies, -copies, np.repeat(np.arange(60) % 2, 5))
    assert few.sound == sound


# --- fits that were broken -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def items():
    frame = soc.simulation.s1(3000, seed=4)
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


@pytest.fixture(scope="module")
def stats(items):
    return soc.summarize(items, bins=60, joint=True, progress=False)


@pytest.fixture(scope="module")
def sound(stats):
    return soc.fit(stats, progress=False)


def with_draws(fit, posterior):
    tree = fit.data.copy()
    tree["posterior"] = xr.DataTree(posterior)
    return replace(fit, data=tree)


def shifted(fit, sds):
    posterior = fit.data["posterior"].to_dataset()
    return with_draws(fit, posterior.map(lambda x: x + sds * x.std(("chain", "draw"))))


def narrowed(fit, factor):
    posterior = fit.data["posterior"].to_dataset()

    def narrow(x):
        return x + (factor - 1.0) * (x - x.mean(("chain", "draw")))

    return with_draws(fit, posterior.map(narrow))


def dominated(fit):
    """One draw for 99 of 100."""
    posterior = fit.data["posterior"].to_dataset()
    at = np.where(np.arange(posterior.sizes["draw"]) % 100, 0, np.arange(posterior.sizes["draw"]))
    one = posterior.isel(chain=np.zeros(posterior.sizes["chain"], dtype=int))
    same = {name: posterior[name] for name in ("chain", "draw")}
    return with_draws(fit, one.isel(draw=at).assign_coords(same))


def first(fit, draws):
    return with_draws(fit, fit.data["posterior"].to_dataset().isel(chain=[0], draw=slice(draws)))


BROKEN = {
    "shifted": (lambda fit: shifted(fit, 3.0), "not those of the model"),
    "shifted curve": (
        lambda fit: with_draws(
            fit,
            fit.data["posterior"]
            .to_dataset()
            .assign(log_mean=shifted(fit, -3.0).data["posterior"]["log_mean"]),
        ),
        "not those of the model",
    ),
    "narrowed": (lambda fit: narrowed(fit, 0.1), "not those of the model"),
    "half as wide": (lambda fit: narrowed(fit, 0.5), "not those of the model"),
    "too wide": (lambda fit: narrowed(fit, 2.0), "not those of the model"),
    "dominated": (dominated, "effective draws|not those of the model"),
    "few": (lambda fit: first(fit, 30), "effective draws"),
    "unfinished": (
        lambda fit: replace(fit, status=replace(fit.status, converged=False)),
        "not converged",
    ),
    "bad weights": (
        lambda fit: replace(fit, status=replace(fit.status, pareto_k=0.95, converged=False)),
        "Pareto k 0.95 of the fit",
    ),
    "few weights": (
        lambda fit: replace(fit, status=replace(fit.status, ess_fraction=0.01)),
        "40 effective draws",
    ),
}


def compared(fits, data, **more):
    """The table, and the text of its one warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = soc.compare(fits, data, progress=False, **more)
    said = [str(w.message) for w in caught if issubclass(w.category, soc.ConvergenceWarning)]
    assert len(said) <= 1
    return table, "".join(said)


_QUICK = ("shifted", "narrowed", "dominated", "few", "unfinished")


@pytest.mark.parametrize(
    "name", [n if n in _QUICK else pytest.param(n, marks=pytest.mark.slow) for n in BROKEN]
)
def test_a_broken_fit_is_named(name, sound, stats):
    make, words = BROKEN[name]
    table, said = compared({"sound": sound, "broken": make(sound)}, stats)
    assert table.loc["sound", "trust"] == "ok"
    assert table.loc["sound", "mcse"] < 0.5
    row = table.loc["broken"]
    assert any(word in row["trust"] for word in words.split("|"))
    assert f"'broken' ({row['trust']})" in said
    assert "'sound'" not in said
    error = abs(row["elpd"] - table.loc["sound", "elpd"])
    assert np.isnan(row["elpd"]) or error < 2 * np.hypot(row["mcse"], table.loc["sound", "mcse"])
    if np.isnan(row["elpd"]):
        assert "is NaN where that is unknown ('broken')" in said
        assert table.index[0] == "sound"
        assert np.isnan(
            table.loc["broken", ["elpd_diff", "dse", "mcse", "mcse_diff"]].to_numpy(dtype=float)
        ).all()
        assert table.loc["sound", "weight"] == 1.0


@pytest.mark.parametrize("name", ["shifted", pytest.param("narrowed", marks=pytest.mark.slow)])
def test_items_show_it_too(name, sound, items):
    """Their statistics are made again, in the bins of the fit."""
    table, said = compared({"sound": sound, "broken": BROKEN[name][0](sound)}, items, subset=300)
    assert table.loc["sound", "trust"] == "ok"
    assert "not those of the model" in table.loc["broken", "trust"]
    assert "'broken'" in said


@pytest.mark.slow
def test_all_fits_broken(sound, stats):
    table, said = compared({"a": shifted(sound, 3.0), "b": shifted(sound, -3.0)}, stats)
    assert np.isnan(table["elpd"].astype(float)).all()
    assert list(table["rank"]) == [0, 1]
    assert "('a', 'b')" in said


def test_statistics_in_other_bins_test_no_draws(sound, items):
    other = soc.summarize(items, bins=20, joint=True, progress=False)
    assert departure(sound, other) is None
    table, _ = compared({"a": sound, "b": sound}, other)
    assert list(table["trust"]) == ["ok", "ok"]


@pytest.mark.slow
@pytest.mark.parametrize("prior", [soc.Gamma(exposure=soc.Spline()), soc.GammaMixture()])
def test_sound_draws_do_not_depart(prior, stats):
    fit = soc.fit(stats, prior, progress=False)
    assert departure(fit, stats).sound
    assert not departure(narrowed(fit, 0.1), stats).sound
    assert not departure(shifted(fit, 3.0), stats).sound


@pytest.mark.slow
def test_error_is_that_of_seeds(stats):
    """The sd of the sum over 12 seeds, known to a fifth, and its stated error."""
    found = []
    for seed in range(12):
        fit = soc.fit(stats, method=soc.VI(seed=seed), progress=False)
        loo = loo_cells(fit, make_cells(fit, stats), progress=False)
        found.append((loo.elpd, judge(loo.influence, fit.status).mcse))
    elpd, mcse = np.transpose(found)
    assert np.sqrt((mcse**2).mean()) == pytest.approx(elpd.std(ddof=1), rel=0.4)
