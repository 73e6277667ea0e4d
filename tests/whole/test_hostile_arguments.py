"""Every argument of every public function, replaced by things that it was not made for.

Each call must give an answer or one of the package's own errors, on one line.
"""

import importlib
import inspect
import warnings
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import soc_pymc as soc

QUIET = {"progress": False}
COUNTS = {"score": "score", "count": "count", "exposure": "exposure"}
VALUES = {"score": "score", "value": "value", "noise_sd": "noise_sd"}
MODULES = ("", "decisions", "evaluate", "plots", "quantities", "simulation", "theory")


class _Odd:
    """An object of no use, whose text has two lines."""

    def __repr__(self):
        return "odd\nthing"


class _Mute:
    """An object that cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no words")


HOSTILE = {
    "None": None,
    "True": True,
    "-1": -1,
    "0": 0,
    "2.5": 2.5,
    "10**30": 10**30,
    "10**400": 10**400,
    "10**5000": 10**5000,
    "NaN": np.nan,
    "infinity": np.inf,
    "text": "x",
    "no text": "",
    "bytes": b"x",
    "empty list": [],
    "list of text": ["x", "y"],
    "ragged list": [[1, 2], [3]],
    "matrix": np.ones((2, 3)),
    "NaNs": np.full(3, np.nan),
    "empty array": np.empty(0),
    "complex": 1 + 2j,
    "date": np.datetime64("2026-01-01"),
    "dict": {"x": 1},
    "empty dict": {},
    "frame": pd.DataFrame({"x": [1]}),
    "empty frame": pd.DataFrame(),
    "dataset": xr.Dataset(),
    "class": soc.Gamma,
    "prior": soc.Gamma(),
    "object": _Odd(),
    "object without words": _Mute(),
    "function": lambda *_: np.float64(1.0),
}


@pytest.fixture(scope="module")
def made():
    """Good arguments, and small fits."""
    frame = soc.simulation.click_rates(300, seed=1)
    mean, variance = soc.simulation.lognormal_oracle(
        frame["score"], frame["count"], frame["exposure"], 0.1, 0.5
    )
    frame = frame.assign(true_variance=variance, oracle_mean=mean, oracle_variance=variance)
    frame["kind"] = np.arange(300) % 2
    items = soc.PoissonItems(frame, **COUNTS)
    rng = np.random.default_rng(0)
    score = rng.normal(size=300)
    values = pd.DataFrame({"score": score, "value": score + rng.normal(size=300), "noise_sd": 0.5})
    value_items = soc.NormalItems(values, **VALUES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # few bins
        options = {"bins": 6, "joint": True, "folds": 3, **QUIET}
        stats = soc.summarize(
            soc.PoissonItems(frame.assign(id=frame.index), **COUNTS, id="id"), **options
        )
        fit = soc.fit(stats, method=soc.VI(draws=30), **QUIET)
        wide = soc.fit(stats, method=soc.VI(draws=100), **QUIET)
        grouped_stats = soc.summarize(soc.PoissonItems(frame, **COUNTS, group="kind"), **options)
        dated = soc.summarize(
            soc.PoissonItems(
                frame.assign(day=pd.date_range("2026-03-01", periods=3).repeat(len(frame) // 3)),
                **COUNTS, date="day"), bins=6, **QUIET)  # fmt: skip
        grouped = soc.fit(grouped_stats, method=soc.VI(draws=30), **QUIET)
        five = soc.fit(stats, method=soc.FiveSteps(smooth=False), **QUIET)
        split = soc.evaluate.split_items(items)
        own = soc.fit(soc.summarize(split.train, bins=6, **QUIET), method=soc.FiveSteps(), **QUIET)
        held = soc.evaluate.held_out(own, split, bins=2, **QUIET)
        scored = soc.item_posteriors(fit, items, **QUIET)
        result = soc.check(fit, items, **QUIET)
        return SimpleNamespace(
            frame=frame, items=items, values=value_items, stats=stats, fit=fit, five=five,
            wide=wide, dated=dated, drift=soc.drift(dated, **QUIET),
            sensitivity=soc.sensitivity(wide, stats, **QUIET),
            drawn=soc.prior_predictive(soc.Gamma(), stats, draws=3, items=5),
            grouped=grouped, grouped_stats=grouped_stats,
            effects=soc.quantities.group_effects(grouped, grouped_stats),
            split=split, own=own, held=held, scored=scored, result=result,
            accuracy=soc.evaluate.accuracy(fit, items, bins=2, **QUIET),
            histograms=soc.evaluate.pit_histograms(fit, items, bins=2, **QUIET),
            explained=soc.quantities.r_squared(fit),
            left=soc.quantities.variance_reduction(fit, stats, bins=2, **QUIET),
            bins=soc.evaluate.compare_bins(items, (4, 6), bayes=False, **QUIET),
            pairs={"a": (fit, items), "b": (fit, items)},
            compared=soc.quantities.compare_scores(
                {"a": (fit, items), "b": (fit, items)}, sample=50, **QUIET),
            curves=soc.calibration_curves(fit),
        )  # fmt: skip


def calls(g, folder):
    """Good arguments of every public function, by name."""
    one, log_pmf = np.array([1.0, 2.0, 0.0]), (lambda y: -y * np.log(2.0))
    fi = {"fit": g.fit, "items": g.items}
    names = {"score": "score", "count": "count", "exposure": "exposure"}
    marginal = -np.ones((2, 3))
    return {
        "NUTS": {}, "VI": {}, "FiveSteps": {}, "Gamma": {}, "Normal": {}, "GammaMixture": {},
        "NormalMixture": {}, "Beta": {}, "BetaMixture": {}, "Spline": {},
        "PoissonItems": {"source": g.frame, **names},
        "NormalItems": {"source": g.values.source, **VALUES},
        "BinomialItems": {"source": g.frame, "score": "score", "successes": "count",
        "trials": "exposure"}, "Statistics": {"data": g.stats.data},
        "bands": {"curves": g.curves}, "calibration_curves": {"fit": g.fit, "score": [0.1, 0.2]},
        "check": {**fi, "subset": 20, "by": "kind"}, "compare": {"fits": {"a": g.fit, "b": g.five},
        "data": g.items, "subset": 20}, "fit": {"stats": g.stats, "method": soc.FiveSteps()},
        "drift": {"stats": g.dated}, "plots.plot_drift": {"result": g.drift},
        "export_prior": {"fit": g.fit, "path": str(folder / "prior.json")},
        "item_posteriors": dict(fi), "load_fit": {"path": "none.nc"},
        "load_statistics": {"path": "none.nc"}, "model": {"stats": g.stats},
        "posterior_expression": dict(fi), "posterior_sql": {"fit": g.fit, "table": "t", **names},
        "prior_predictive": {"prior": soc.Gamma(), "stats": g.stats, "draws": 3, "items": 5},
        "report": {**fi, "out": str(folder / "r.html")},
        "sensitivity": {"fit": g.wide, "stats": g.stats, "score": [0.1, 0.2]},
        "summarize": {"items": g.items, "bins": 6},
        "evaluate.accuracy": {"fits": g.fit, "items": g.items, "bins": 2},
        "evaluate.baseline": {"name": "platt", "items": g.items},
        "evaluate.compare_bins": {"items": g.items, "bins": (4,), "bayes": False},
        "evaluate.cross_fit": {"regressor": _regressor(), "X": g.frame[["score"]],
        "y": g.frame["count"], "exposure": g.frame["exposure"]},
        "evaluate.cross_validate": {"stats": g.stats, "method": soc.FiveSteps()},
        "evaluate.held_out": {"fits": g.own, "split": g.split, "bins": 2, "baselines": ("platt",)},
        "evaluate.leakage": {"items": g.items},
        "evaluate.pit_histograms": {**fi, "bins": 2},
        "evaluate.poisson_log_likelihood": {"count": one, "expected": one},
        "evaluate.split_items": {"items": g.items},
        "evaluate.thin": {"count": one, "exposure": one},
        "evaluate.thin_values": {"value": one, "noise_sd": one + 1},
        "quantities.compare_scores": {"scores": g.pairs, "sample": 20},
        "quantities.group_effects": {"fit": g.grouped, "stats": g.grouped_stats},
        "quantities.r_squared": {"fit": g.fit}, "quantities.variance_parts": {"fit": g.fit},
        "quantities.shrinkage": {"fit": g.fit, "items": g.stats, "bins": 2},
        "quantities.variance_reduction": {"fit": g.fit, "items": g.stats, "bins": 2},
        "decisions.expected_loss": {**fi, "threshold": 0.1},
        "decisions.probability_above": {**fi, "threshold": 0.1},
        "decisions.probability_best": {**fi, "draws": 50}, "decisions.risk_adjusted": dict(fi),
        "decisions.thompson_draws": dict(fi), "decisions.total": {**fi, "by": "kind"},
        "decisions.value_of_exposure": {**fi, "more": 1.0},
        "plots.plot_accuracy": {"table": g.accuracy},
        "plots.plot_adjusted_prior": {"fit": g.fit}, "plots.plot_bin_choice": {"table": g.bins},
        "plots.plot_bin_spread": {"source": g.stats},
        "plots.plot_calibration": {"y": np.arange(60) % 2, "p": np.linspace(0.1, 0.9, 60)},
        "plots.plot_calibration_illustration": {"fit": g.fit}, "plots.plot_curves": {"fit": g.fit},
        "plots.plot_error_ratio": {"table": g.accuracy},
        "plots.plot_forest": {"table": g.scored, "score": "score"},
        "plots.plot_gain_by_bin": {"held": g.held}, "plots.plot_pit": {"result": g.result},
        "plots.plot_group_effects": {"effects": g.effects},
        "plots.plot_pit_histograms": {"histograms": g.histograms},
        "plots.plot_prior_in_bin": dict(fi), "plots.plot_prior_ribbon": {"fit": g.fit},
        "plots.plot_r_squared": {"draws": g.explained}, "plots.plot_regret": {"table": g.accuracy},
        "plots.plot_rootogram": {"result": g.result},
        "plots.plot_score_comparison": {"compared": g.compared},
        "plots.plot_prior_predictive": {"result": g.drawn},
        "plots.plot_sensitivity": {"result": g.sensitivity},
        "plots.plot_shrinkage": {"table": g.scored, **names},
        "plots.plot_smoothing": {"fit": g.fit, "per_bin": g.five},
        "plots.plot_variance_gain": {"reduction": g.left},
        "simulation.click_rates": {"n_items": 20}, "simulation.laplace_effects": {"n_items": 20},
        "simulation.laplace_oracle": {"table": soc.simulation.laplace_effects(20)},
        "simulation.lognormal_oracle": {"score": one + 1, "count": one, "exposure": one + 1,
        "delta": 0.0, "sigma": 0.5},
        "simulation.lognormal_rates": {"score": one + 1, "exposure": one + 1},
        "simulation.s1": {"n_items": 20}, "simulation.s1_curves": {"score": one + 1},
        "theory.choose_rho": {"estimate": lambda rho: one + rho,
        "log_likelihood": lambda x: -(x**2)},
        "theory.cumulants_from_moments": {"moments": one},
        "theory.moments_from_cumulants": {"cumulants": one},
        "theory.gamma_base": {"value": one + 1, "shape": one + 1},
        "theory.normal_base": {"value": one, "noise_sd": one + 1},
        "theory.log_derivatives": {"log_density": lambda y: -y * y, "value": one, "reach": 1.0},
        "theory.nef_cumulants": {"base": marginal, "marginal": marginal},
        "theory.poisson_bound": {"true": log_pmf, "estimate": log_pmf, "exposure": 1.0,
        "rho": 0.1, "highest": 10},
        "theory.poisson_cumulants": {"count": one, "exposure": 1.0, "log_pmf": log_pmf},
        "theory.poisson_moment": {"count": one, "exposure": 1.0, "log_pmf": log_pmf},
        "theory.poisson_umvu": {"count": one, "exposure": 1.0},
        "theory.regularised_nef_cumulants": {"base": marginal, "marginal": marginal,
        "log_density": one, "rho": 0.1},
        "theory.regularised_poisson_moment": {"count": one, "exposure": 1.0, "log_pmf": log_pmf,
        "rho": 0.1},
        "theory.tweedie": {"value": one, "noise_sd": 1.0, "marginal": marginal},
    }  # fmt: skip


def _regressor():
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


# results, and functions without arguments; datasets ask the network
_NOT_CALLED = {
    "CheckResult", "Drift", "Fit", "Sensitivity", "Status", "SecondOrderCalibrator",
    "evaluate.Baseline", "evaluate.HeldOut", "evaluate.Leakage", "evaluate.Split",
    "theory.PoissonBound", "quantities.GroupEffects", "theory.RhoChoice",
    "plots.CalibrationDisplay",
}  # fmt: skip


def public():
    """Every public function, by name."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"soc_pymc.{name}" if name else "soc_pymc")
        for each in module.__all__:
            thing = getattr(module, each)
            known = not callable(thing) or (
                isinstance(thing, type) and issubclass(thing, Exception | Warning)
            )
            full = f"{name}.{each}" if name else each
            if not known and full not in _NOT_CALLED:
                found[full] = thing
    return found


def verdict(call, allowed=(), foreign=()):
    """What is wrong with a call that was answered or refused; empty where nothing is.

    `allowed` are further errors, and warnings of `foreign` kinds are another library's own.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except soc.SocError as error:
            text = str(error)
            # of several columns each has its line
            of_columns = all(line.startswith("column ") for line in text.split("\n"))
            if not text or ("\n" in text and not of_columns) or len(text) > 1000:
                return f"not one line: {text!r}"
        except allowed:
            pass
        except Exception as error:  # whatever it is, it is what is looked for
            return f"{type(error).__name__}: {str(error)[:100]!r}"
        finally:
            plt.close("all")
    # other libraries' deprecations are theirs
    own = soc.ItemsWarning | soc.ConvergenceWarning | DeprecationWarning
    others = [w for w in caught if not issubclass(w.category, own)]
    others = [w for w in others if not issubclass(w.category, foreign)]
    return "; ".join(f"{w.category.__name__}: {w.message}" for w in others)


@pytest.mark.slow
def test_every_public_function_is_asked(made, tmp_path):
    assert set(calls(made, tmp_path)) == set(public())


@pytest.mark.parametrize("name", sorted(public()))
@pytest.mark.slow
def test_hostile_arguments(name, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, good = public()[name], calls(made, tmp_path)[name]
    parameters = inspect.signature(function).parameters
    if "progress" in parameters:
        good = {**good, **QUIET}
    wrong = []
    if not name.startswith("load_"):
        plain = verdict(lambda: function(**good))
        wrong += [f"as it should be: {plain}"] if plain else []
    for argument in parameters:
        for label, value in HOSTILE.items():
            found = verdict(lambda a=argument, v=value: function(**{**good, a: v}))
            wrong += [f"{argument}={label}: {found}"] if found else []
    assert not wrong, "\n".join(wrong)


def methods(g, folder):
    """Methods of results by name, each with good arguments."""
    grouped = soc.PoissonItems(g.frame, **COUNTS, group="kind")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # few bins
        stats = soc.summarize(grouped, bins=6, **QUIET)
    path = {"path": str(folder / "saved.nc")}
    return {
        "Statistics.of_fold": (g.stats.of_fold, {"fold": 1}),
        "Statistics.without_fold": (g.stats.without_fold, {"fold": 1}),
        "Statistics.of_group": (stats.of_group, {"label": "0"}),
        "Statistics.save": (g.stats.save, path),
        "Fit.save": (g.five.save, path),
        "Baseline": (soc.evaluate.baseline("platt", g.items).__call__, {"score": [0.1, 0.2]}),
    }


def test_hostile_arguments_of_methods(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = []
    for name, (method, good) in methods(made, tmp_path).items():
        plain = verdict(lambda m=method, g=good: m(**g))
        wrong += [f"{name} as it should be: {plain}"] if plain else []
        for argument in good:
            for label, value in HOSTILE.items():
                found = verdict(lambda m=method, a=argument, v=value: m(**{a: v}))
                wrong += [f"{name} {argument}={label}: {found}"] if found else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_hostile_arguments_of_the_estimator(made):
    """Objects that are no numbers are a TypeError, as scikit-learn asks of its estimators."""
    rows, few = made.frame, made.frame.iloc[:5]
    good = {"t": few["score"], "y": few["count"], "exposure": few["exposure"]}
    method = soc.FiveSteps()
    fitted = soc.SecondOrderCalibrator(method=method)
    fitted.fit(rows["score"], rows["count"], rows["exposure"])
    calls = {
        name: getattr(fitted, name)
        for name in ("predict", "predict_std", "predict_interval", "score")
    }
    calls["fit"] = lambda **given: soc.SecondOrderCalibrator(method=method).fit(**given)
    wrong = []
    for name, call in calls.items():
        own = {k: rows[x.name] for k, x in good.items()} if name == "fit" else good
        extra = {"predict_interval": ("prob",), "score": ("sample_weight",)}.get(name, ())
        for argument in (*good, "noise_sd", *extra):
            for label, value in HOSTILE.items():
                # names of columns and columns of y are scikit-learn's to speak of
                found = verdict(
                    lambda c=call, o=own, a=argument, v=value: c(**{**o, a: v}),
                    (TypeError,), UserWarning,
                )  # fmt: skip
                wrong += [f"{name} {argument}={label}: {found}"] if found else []
    for argument in inspect.signature(soc.SecondOrderCalibrator).parameters:
        for label, value in HOSTILE.items():
            options = {"method": method, argument: value}
            found = verdict(
                lambda o=options: soc.SecondOrderCalibrator(**o).fit(
                    rows["score"], rows["count"], rows["exposure"]
                )
            )
            wrong += [f"{argument}={label}: {found}"] if found else []
    assert not wrong, "\n".join(wrong)
