"""The groups of a fit that ArviZ reads: they mean what they say, cost a fit nothing, and last."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc.inference import arviz_groups, row_curves
from soc_pymc.inference.draw_densities import draw_densities
from soc_pymc.inference.schema import in_chains, short

QUIET = {"progress": False}
GROUPS = {"prior", "log_prior", "log_likelihood", "prior_predictive", "posterior_predictive"}
ATTRIBUTES = {
    "created_at",
    "creation_library",
    "creation_library_version",
    "creation_library_language",
    "inference_library",
    "inference_library_version",
    "sample_dims",
}


def _frame(n=1500):
    frame = soc.simulation.s1(n, seed=7)
    rng = np.random.default_rng(7)
    frame["trials"] = frame["exposure"].clip(1, 60).astype(int)
    frame["hits"] = rng.binomial(frame["trials"], rng.beta(20 * frame["score"].clip(0, 0.9), 20))
    frame["one"], frame["label"] = 1, rng.random(n) < frame["score"]
    frame["value"] = rng.normal(frame["score"], 0.1 + frame["score"])
    frame["sd"] = rng.uniform(0.05, 0.2, n)
    frame["group"] = rng.choice(list("abc"), n)
    frame["level"] = rng.choice(list("abcdefghij"), n)
    return frame


def _counts(frame, **roles):
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure", **roles)


def _atoms(frame):
    frame.loc[frame.index[:300], "score"] = 0.05
    return _counts(frame)


MADE = {
    "counts": (_counts, soc.Gamma()),
    "groups": (lambda f: _counts(f, group="group"), soc.Gamma()),
    "levels": (lambda f: _counts(f, group="level"), soc.Gamma()),
    "exposure": (_counts, soc.Gamma(exposure=soc.Spline(knots=5))),
    "effects": (_counts, soc.Gamma(bin_effects=True)),
    "atoms": (_atoms, soc.Gamma()),
    "mixture": (_counts, soc.GammaMixture()),
    "monotone": (_counts, soc.Gamma(monotone=True)),
    "labels": (
        lambda f: soc.BinomialItems(f, score="score", successes="label", trials="one"),
        soc.Beta(),
    ),
    "values": (
        lambda f: soc.NormalItems(f, score="score", value="value", noise_sd="sd"),
        soc.Normal(),
    ),
    "trials": (
        lambda f: soc.BinomialItems(f, score="score", successes="hits", trials="trials"),
        soc.Beta(),
    ),
}


ANNEALED = ("groups", "exposure", "effects")  # which takes long
NAMES = [pytest.param(n, marks=[pytest.mark.slow] * (n in ANNEALED), id=n) for n in MADE]


@pytest.fixture(scope="module")
def cases():
    """Fits by name, made when they are first asked for, with their statistics."""
    made = {}

    def of(name):
        if name not in made:
            items, prior = MADE[name]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", soc.ItemsWarning)  # atoms
                warnings.simplefilter("ignore", soc.ConvergenceWarning)  # few items, many terms
                stats = soc.summarize(
                    items(_frame()), bins=25, joint=True, on_leakage="ignore", **QUIET
                )
                made[name] = soc.fit(stats, prior, soc.VI(draws=400), **QUIET), stats
        return made[name]

    return of


@pytest.mark.parametrize("name", NAMES)
def test_densities_are_those_of_the_model(cases, name):
    """Their sums are the log prior and log likelihood that the model's own graph gives.

    Polynomials stand in for rows with an error of about 1e-4 nats in all.
    """
    fit, stats = cases(name)
    prior, likelihood = draw_densities(fit, stats, None)
    found = fit.data["log_prior"].to_dataset().to_dataarray().sum("variable")
    np.testing.assert_allclose(found, prior, rtol=1e-10, atol=1e-9)
    (of_rows,) = fit.data["log_likelihood"].data_vars.values()
    np.testing.assert_allclose(of_rows.sum(of_rows.dims[-1]), likelihood, atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_fit_has_sensitivities(cases, name):
    fit, stats = cases(name)
    found = soc.sensitivity(fit, stats, **QUIET)
    numbers = found.table[["prior", "likelihood", "prior_error", "likelihood_error"]]
    assert len(found.table) == (5 if name == "labels" else 11)
    assert np.isfinite(numbers.to_numpy()).all()
    assert (numbers[["prior", "likelihood"]] > 0).all(axis=None)
    assert found.data["log_prior"]["total"].shape == (4, 100)


@pytest.mark.parametrize("name", [name for name in NAMES if name.id != "mixture"])
def test_replicates_are_of_what_was_observed(cases, name):
    """The totals lie within 5 sd of their replicates, and the sum of all squares is near n."""
    fit, _ = cases(name)
    (seen,) = [v for v in fit.data["observed_data"].data_vars.values() if v.name in
               fit.data["posterior_predictive"].data_vars]  # fmt: skip
    drawn = fit.data["posterior_predictive"][seen.name]
    assert drawn.dtype == seen.dtype
    over = ("chain", "draw")
    z = (drawn.mean(over) - seen) / np.maximum(drawn.std(over), 0.05 * float(drawn.std()))
    assert float(np.abs(z).max()) < 5
    assert float((z**2).mean()) < 2
    assert set(fit.data["prior_predictive"].data_vars) == {seen.name}


@pytest.mark.parametrize("name", NAMES)
def test_every_dim_has_a_coordinate_and_every_group_the_schema(cases, name):
    fit, _ = cases(name)
    for group in fit.data.children.values():
        own = group.to_dataset()
        assert set(own.dims) <= set(own.coords), group.name
        assert set(own.attrs) >= ATTRIBUTES, group.name
        assert own.attrs["inference_library"] == "soc_pymc"
        sampled = [dim for dim in ("chain", "draw") if dim in own.dims]
        assert list(own.attrs["sample_dims"]) == sampled
    assert set(fit.data["prior"].data_vars) <= set(fit.data["posterior"].data_vars)
    missing = set(fit.data["posterior"].data_vars) - set(fit.data["prior"].data_vars)
    assert missing == ({"log_mean_of_bin"} if name == "effects" else set())


@pytest.mark.slow
def test_rows_that_are_no_bins_have_a_dim_of_their_own(cases):
    fit, _ = cases("groups")
    assert fit.data["log_likelihood"]["count_by_row"].dims[-1] == "row"
    seen = fit.data["observed_data"]
    assert int(seen["count_by_row"].sum()) == int(seen["count"].sum())
    assert set(fit.data["constant_data"]["row_group"].to_numpy()) == {"a", "b", "c"}
    assert "count_by_row" not in cases("counts")[0].data["observed_data"]


def test_knots_have_short_labels_and_exact_positions(cases):
    fit, _ = cases("counts")
    label = fit.data["posterior"]["mean_knot"].to_numpy()
    exact = fit.data["constant_data"]["mean_knot_position"].to_numpy()
    assert all(len(f"{abs(x):g}".replace(".", "").lstrip("0")) <= 4 for x in label)
    assert 0 < np.abs(label / exact - 1).max() < 1e-3
    # curves are those of the exact positions: at a knot, the draws at that knot
    curves = soc.calibration_curves(fit, np.exp(exact[[3]]))
    drawn = fit.data["posterior"]["log_mean"].to_numpy()[..., [3]]
    np.testing.assert_allclose(curves["log_mean"], drawn, rtol=1e-12)
    np.testing.assert_array_equal(short(np.array([1.00001, 1.00002, 3.0])), [1.00001, 1.00002, 3.0])


@pytest.mark.parametrize(
    ("draws", "shape"), [(400, (4, 100)), (9, (3, 3)), (10, (2, 5)), (7, (1, 7))]
)
def test_chains_hold_the_draws_in_their_order(draws, shape):
    given = xr.Dataset({"x": (("chain", "draw", "k"), np.arange(2.0 * draws).reshape(1, draws, 2))})
    found = in_chains(given)
    assert found["x"].shape == (*shape, 2)
    np.testing.assert_array_equal(found["x"].to_numpy().ravel(), given["x"].to_numpy().ravel())


def test_groups_are_computed_when_they_are_read(cases, monkeypatch):
    """A fit does not compute them; then they are computed once, and copies have them too."""
    calls = []
    plain = row_curves._in_chunks

    def counting(*args):
        calls.append(1)
        return plain(*args)

    monkeypatch.setattr(row_curves, "_in_chunks", counting)
    _, stats = cases("counts")
    fit = soc.fit(stats, method=soc.VI(draws=100), **QUIET)
    assert repr(fit.data)
    assert not calls
    again = pickle.loads(pickle.dumps(fit))
    copied = copy.deepcopy(fit)
    for one in (fit, again, copied):
        for _ in range(2):
            assert one.data["log_likelihood"]["count"].to_numpy().shape[:2] == (4, 25)
    assert len(calls) == 3
    assert again.data.equals(fit.data)
    assert copied.data.equals(fit.data)


def test_few_numbers_are_kept_of_many_rows(cases, monkeypatch):
    fit, stats = cases("counts")
    monkeypatch.setattr(arviz_groups, "_MOST", 4000)
    small = soc.fit(stats, method=soc.VI(draws=400), **QUIET)
    whole = fit.data["log_likelihood"]["count"]
    blocks = small.data["log_likelihood"]["count_by_block"]
    assert blocks.sizes["block"] == 10
    np.testing.assert_allclose(blocks.sum("block"), whole.sum("bin"), rtol=1e-12)
    drawn = small.data["posterior_predictive"]["count"]
    assert drawn.sizes["draw"] * 4 * drawn.sizes["bin"] <= 4000
    assert set(drawn["draw"].to_numpy()) <= set(range(100))


def test_files_keep_them_and_older_files_do_without(cases, tmp_path):
    """A file of the time before: one chain, exact positions as labels, no further group."""
    fit, _ = cases("counts")
    fit.save(tmp_path / "new.nc")
    assert soc.load_fit(tmp_path / "new.nc").data.equals(fit.data)
    exact = {
        dim: fit.data["constant_data"][f"{dim}_position"].to_numpy()
        for dim in ("mean_knot", "variance_knot")
    }
    posterior = fit.data["posterior"].to_dataset().assign_coords(exact)
    chains = [posterior.isel(chain=k, drop=True) for k in range(4)]
    posterior = xr.concat(chains, "draw").expand_dims("chain")
    constant = fit.data["constant_data"].to_dataset()
    constant = constant.drop_vars([*(f"{dim}_position" for dim in exact), *exact, "bin"])
    older = {
        "posterior": posterior.assign_coords(chain=[0], draw=np.arange(400)),
        "observed_data": fit.data["observed_data"].to_dataset().drop_vars("bin"),
        "constant_data": constant,
    }
    tree = xr.DataTree.from_dict(older)
    tree.attrs = fit.data.attrs
    replace(fit, data=tree).save(tmp_path / "old.nc")
    old = soc.load_fit(tmp_path / "old.nc")
    for name, values in soc.calibration_curves(fit).data_vars.items():
        mine = soc.calibration_curves(old)[name].to_numpy()
        np.testing.assert_allclose(mine.ravel(), values.to_numpy().ravel(), rtol=1e-12)


def test_damaged_positions_are_refused(cases, tmp_path):
    fit, _ = cases("counts")
    constant = fit.data["constant_data"].to_dataset()
    for bad, words in ((constant["mean_knot_position"][::-1].to_numpy(), "does not rise"),
                       (np.full(len(constant["mean_knot"]), np.nan), "not finite")):  # fmt: skip
        tree = fit.data.copy()
        tree["constant_data"] = xr.DataTree(constant.assign(mean_knot_position=("mean_knot", bad)))
        with pytest.raises(soc.FitError, match=words):
            replace(fit, data=tree).save(tmp_path / "bad.nc")


def test_draws_widened_for_clusters_have_no_densities():
    frame = _frame().assign(shop=np.arange(1500) // 10)
    stats = soc.summarize(_counts(frame, cluster="shop"), bins=25, **QUIET)
    fit = soc.fit(stats, **QUIET)
    assert fit.widened
    assert not {"log_prior", "log_likelihood"} & set(fit.data.children)
    assert {"prior", "posterior_predictive"} <= set(fit.data.children)


@pytest.mark.slow
def test_what_a_user_added_has_densities_too(cases):
    """An observation and a potential are log likelihoods, a parameter has a log prior."""
    _, stats = cases("counts")
    with soc.model(stats) as model:
        bias = pm.Normal("bias", 0.0, 0.1)
        curve = model["bin_log_mean"]
        pm.Normal("audit", curve[:3] + bias, 0.05, observed=np.log([0.01, 0.02, 0.02]))
        pm.Potential("flat", -0.5 * (curve[-1] - curve[-2]) ** 2)
    fit = soc.fit(stats, model=model, method=soc.VI(draws=400), **QUIET)
    prior, likelihood = draw_densities(fit, stats, model)
    own = fit.data["log_likelihood"]
    assert own["audit"].sizes["audit_dim_0"] == 3
    total = own["count"].sum("bin") + own["audit"].sum("audit_dim_0") + own["flat"]
    np.testing.assert_allclose(total, likelihood, atol=2e-3)
    found = fit.data["log_prior"].to_dataset().to_dataarray().sum("variable")
    np.testing.assert_allclose(found, prior, rtol=1e-10, atol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")
def test_fits_by_nuts_have_the_same_groups(cases):
    _, stats = cases("counts")
    fit = soc.fit(stats, method=soc.NUTS(draws=100, tune=300, chains=2), **QUIET)
    assert set(fit.data.children) >= GROUPS
    _, likelihood = draw_densities(fit, stats, None)
    np.testing.assert_allclose(
        fit.data["log_likelihood"]["count"].sum("bin"), likelihood, atol=2e-3
    )
