"""Inconsistent fits are refused when read, with the name of the bad part."""

import json
import warnings
from dataclasses import make_dataclass
from functools import cache

import numpy as np
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc.inference.stored_fits import PRIORS, as_json, check_tree, read_record
from tests.thinning import thinned

QUIET = {"progress": False}
COLUMNS = {"score": "score", "count": "count", "exposure": "exposure"}


def _fit(prior, method, **options):
    frame = soc.simulation.s1(600, seed=2)
    frame["g"] = np.where(frame.index % 2, "a", "b")
    grouped = {"group": "g"} if options.pop("grouped", False) else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few bins, few draws
        items = soc.PoissonItems(frame, **COLUMNS, **grouped)
        stats = soc.summarize(items, bins=8, joint=True, **QUIET)
        return soc.fit(stats, prior, method, **QUIET)


FEW, RANKS = soc.VI(draws=20), soc.Spline(scale="rank")
# fits with each part that a file may hold
MAKE = {
    "curves": lambda: _fit(soc.Gamma(mean=RANKS, variance=RANKS), FEW),
    "steps": lambda: _fit(soc.Gamma(), soc.FiveSteps(smooth=False)),
    "components": lambda: _fit(soc.GammaMixture(), soc.FiveSteps(smooth=False)),
    "weights": lambda: _fit(soc.GammaMixture(), FEW),
    "terms": lambda: _fit(soc.GammaMixture(exposure=soc.Spline()), FEW, grouped=True),
    "effects": lambda: _fit(soc.Gamma(bin_effects=True), FEW),
    "exposure": lambda: _fit(soc.Gamma(exposure=soc.Spline()), FEW),
    "groups": lambda: _fit(soc.Gamma(), FEW, grouped=True),
}
QUICK = ("curves", "steps")


@pytest.fixture(scope="module")
def fit_with():
    return cache(lambda which: MAKE[which]())


def _changed(group, name, change):
    """A tree in which one variable's numbers are others."""

    def make(tree):
        data = tree[group].to_dataset()
        values = change(data[name].to_numpy().copy())
        if name in data.coords:
            data = data.assign_coords({name: (data[name].dims, values)})
        else:
            data[name] = (data[name].dims, values)
        tree[group] = xr.DataTree(data)

    return make


def _cut(group, dim, keep):
    """A tree in which one group has part of a dim."""

    def make(tree):
        tree[group] = xr.DataTree(tree[group].to_dataset().isel({dim: keep}))

    return make


def _other_roles(tree):
    tree.attrs = {**tree.attrs, "kind": "normal"}


def _without(group):
    def make(tree):
        del tree[group]

    return make


def _lacking(name):
    """A tree whose constant data lack a variable."""

    def make(tree):
        constant = tree["constant_data"].to_dataset()
        tree["constant_data"] = xr.DataTree(constant.drop_vars(name))

    return make


def _sampled(tree):
    """One chain of draws, two of diagnostics."""
    draws = tree["posterior"].sizes["draw"]
    stats = xr.Dataset({"diverging": (("chain", "draw"), np.zeros((2, draws), dtype=bool))})
    tree["sample_stats"] = xr.DataTree(stats)


def _negative_first(values):
    values.flat[0] = -1.0 - abs(values.flat[0])
    return values


CASES = [
    ("curves", _other_roles, "a Gamma prior of 'normal' items"),
    ("curves", _without("observed_data"), "there is no group 'observed_data'"),
    ("curves", _cut("posterior", "draw", slice(0, 0)), "posterior has no draws"),
    ("curves", _cut("observed_data", "bin", slice(0, 5)), "bin"),
    ("curves", _changed("constant_data", "n_items", lambda x: x * 0), "n_items is not positive"),
    ("curves", _changed("observed_data", "count", _negative_first), "count is below 0"),
    ("curves", _changed("constant_data", "rank_score", lambda x: x[::-1]), "rank_score falls"),
    ("curves", _changed("posterior", "mean_knot", lambda x: x[::-1]), "mean_knot does not rise"),
    ("curves", _changed("posterior", "log_mean", lambda x: x * np.nan), "that are not finite"),
    ("steps", _changed("constant_data", "edge", lambda x: x[::-1]), "edge does not rise"),
    ("steps", _cut("constant_data", "edge", slice(1, None)), "8 bins with 6 edges"),
    ("steps", _changed("posterior", "shape", _negative_first), "shape is not positive"),
    ("components", _changed("posterior", "weight", _negative_first), "weight is no distribution"),
    ("components", _changed("posterior", "component_sd", lambda x: x * 0), "sd is not positive"),
    (
        "weights",
        _changed("constant_data", "component_z", lambda x: x[::-1]),
        "component_z does not",
    ),
    ("weights", _changed("constant_data", "mean_knot", lambda x: x + 1.0), "mean_knot"),
    ("weights", _changed("posterior", "weight_knot", lambda x: x[::-1]), "weight_knot does not"),
    ("weights", _changed("posterior", "weight_coefficient", lambda x: x * np.nan), "not finite"),
    ("weights", _lacking("component_function"), "no 'component_function'"),
    ("weights", _lacking("pilot_log_cv2"), "no 'pilot_log_cv2'"),
    ("terms", _lacking("pilot_log_mean_of_group"), "no 'pilot_log_mean_of_group'"),
    ("terms", _lacking("pilot_log_cv2_by_exposure"), "no 'pilot_log_cv2_by_exposure'"),
    ("effects", _changed("posterior", "effect_bin", lambda x: x - x[0] - 1), "out of range"),
    ("effects", _changed("posterior", "effect_bin", lambda x: x * 1.0), "out of range"),
    ("effects", _changed("posterior", "log_mean_bin_effect_sd", _negative_first), "is below 0"),
    ("exposure", _changed("constant_data", "share", _negative_first), "share is no distribution"),
    ("exposure", _changed("constant_data", "share_position", lambda x: x[::-1]), "position falls"),
    ("groups", _changed("posterior", "group", lambda x: x[::-1]), "labels of groups are not text"),
    ("groups", _changed("posterior", "group", lambda x: np.arange(len(x))), "not text that rises"),
    ("groups", _lacking("mean_group_function"), "no 'mean_group_function'"),
    ("curves", _sampled, "chain"),
]


@pytest.mark.parametrize("which", thinned(MAKE, QUICK))
def test_complete_fits_pass(which, fit_with):
    fit = fit_with(which)
    check_tree(fit.data, fit.prior, fit.method)


@pytest.mark.parametrize(
    ("which", "change", "words"),
    thinned(CASES, lambda case: case[0] in QUICK),
    ids=[words for *_, words in CASES],
)
def test_inconsistent_parts_are_refused(which, change, words, fit_with, tmp_path):
    fit = fit_with(which)
    tree = fit.data.copy(deep=True)
    change(tree)
    with pytest.raises((ValueError, KeyError), match=words):
        check_tree(tree, fit.prior, fit.method)
    # such a fit is not even written
    path = tmp_path / "odd.nc"
    with pytest.raises(soc.FitError, match=r"odd\.nc"):
        soc.Fit(tree, fit.prior, fit.method, fit.status).save(path)
    assert not path.exists()


def test_configurations_are_read_as_they_were_written():
    prior = soc.Gamma(mean=soc.Spline(level=(np.float64(0.0), 1.0)))
    assert read_record(as_json(prior), *PRIORS) == prior
    for text, words in (
        (as_json(prior).replace("[0.0, 1.0]", "[0.0]"), "level="),
        (as_json(prior).replace('"knots": 20', '"knots": "20"'), "knots='20'"),
        (as_json(prior).replace('"knots": 20', '"knots": true'), "knots=True"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            read_record(text, *PRIORS)
    odd = make_dataclass("Odd", ["value"])(object())
    with pytest.raises(TypeError, match="has no form in a file"):
        as_json(odd)


def test_fields_that_older_files_lack_have_their_defaults():
    older = json.loads(as_json(soc.NUTS(draws=7)))
    del older["target_accept"]
    assert read_record(json.dumps(older), soc.NUTS) == soc.NUTS(draws=7)
