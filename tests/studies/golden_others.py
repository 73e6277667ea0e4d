"""What is asked of more than one fit or of none, for `tests.studies.goldens`."""

import html
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from sklearn.linear_model import LinearRegression

import soc_pymc as soc
from soc_pymc import evaluate, plots, quantities, simulation, theory

from .golden_fits import (
    CASES,
    COUNTS,
    FRAMES,
    QUIET,
    chosen,
    counts,
    fit_of,
    items_of,
    on_engines,
    statistics_of,
    values,
)

mpl.use("agg")


def engines() -> Iterator[tuple[str, Any]]:
    """Statistics of the same items in memory, on DuckDB and on Polars."""
    ties = {"group": "group", "id": "id"}
    for kind, frame in ((kind, make()) for kind, make in FRAMES.items()):
        tables = {
            **on_engines(frame),
            "polars frame": pl.from_pandas(frame),
            "pandas": frame,  # the last, which is used below: engines add in any order
        }
        for engine, table in tables.items():
            items = items_of(kind, table, **ties)
            stats = soc.summarize(items, bins=8, folds=3, joint=True, **QUIET)
            yield f"{kind} {engine}", stats.data
        yield f"{kind} bound", {"z": stats.leakage_z, "bound": stats.error_bound}
        yield f"{kind} group", stats.of_group("b").data
        both = stats.of_fold(0) + stats.without_fold(0)
        yield f"{kind} folds", both.table("part")
        yield (
            f"{kind} bins",
            soc.summarize(items_of(kind, frame), folds=2, joint=False, **QUIET).data,
        )
    for equal in ("count", "exposure"):
        stats = soc.summarize(
            items_of("counts", counts()), bins=9, equal=equal, joint=False, **QUIET
        )
        yield f"equal {equal}", {"edges": stats.edges, **stats.table("part")}
    joint = soc.summarize(items_of("counts", counts()), joint=500, **QUIET)
    yield "coarse", {"coarse": joint.coarse, **joint.cells("joint")}
    with tempfile.TemporaryDirectory() as folder:
        stats.save(Path(folder) / "stats.nc")
        yield "loaded", soc.load_statistics(Path(folder) / "stats.nc").data.identical(stats.data)


def stored() -> Iterator[tuple[str, Any]]:
    """Fits by way of a file."""
    for name in ("five_gamma", "five_mixture", "five_normal"):
        with tempfile.TemporaryDirectory() as folder:
            fit_of(name).save(Path(folder) / "fit.nc")
            fit = soc.load_fit(Path(folder) / "fit.nc")
        items = CASES[name].items(chosen(CASES[name].kind))
        yield name, soc.item_posteriors(fit, items, **QUIET).filter(like="theta_")


def comparisons() -> Iterator[tuple[str, Any]]:
    """Fits of the same items, by leave-one-out and by what their scores explain."""
    for kind in ("gamma", "normal"):
        fits = {name: fit_of(name) for name in (kind, f"{kind}_exposure", f"{kind}_mixture")}
        case = CASES[kind]
        stats, items = statistics_of(case.kind), case.items(FRAMES[case.kind]())
        yield f"{kind} cells", soc.compare(fits, stats, **QUIET).sort_index()
        yield f"{kind} items", soc.compare(fits, items, subset=200, **QUIET).sort_index()
    pairs = {name: (fit_of(name), CASES[name].items(counts())) for name in ("gamma", "gamma_rank")}
    yield "scores", quantities.compare_scores(pairs, sample=500, **QUIET)


def evaluations() -> Iterator[tuple[str, Any]]:
    five = soc.FiveSteps()
    for kind, frame in ((kind, make()) for kind, make in FRAMES.items()):
        items = items_of(kind, frame, id="id")
        split = evaluate.split_items(items, 0.3, seed=2)
        fit = soc.fit(soc.summarize(split.train, bins=20, **QUIET), method=five, **QUIET)
        over = {} if kind == "counts" else {"over": "spline"}
        found = evaluate.held_out(fit, split, bins=3, **over, **QUIET)
        yield f"{kind} held out", {"table": found.table, "data": found.data}
        for name in ("constant", "isotonic", "platt", "spline"):
            yield f"{kind} {name}", evaluate.baseline(name, items)(frame["t"].to_numpy()[:20])
        stats = soc.summarize(items, bins=40, folds=3, **QUIET)
        yield f"{kind} folds", evaluate.cross_validate(stats, method=five, **QUIET)
        yield f"{kind} bins", evaluate.compare_bins(stats, (10, 40), bayes=False, **QUIET)
        yield f"{kind} leakage", evaluate.leakage(items)
        yield f"{kind} pit", evaluate.pit_histograms(fit, items, bins=3, cells=5, **QUIET)
    yield "thin", evaluate.thin(counts()["y"], counts()["N"], 0.4, seed=1)
    yield "thin values", evaluate.thin_values(values()["y"], values()["s"], 0.4, seed=1)
    yield "cross fit", evaluate.cross_fit(LinearRegression(), values()[["t"]], values()["y"])
    yield "likelihood", evaluate.poisson_log_likelihood([0, 3, 900], [0.1, 4.0, 1000.0])
    s1 = simulation.s1(1500, seed=4)
    shape, oracle = 1 / s1["true_cv2"], s1["count"] + 1 / s1["true_cv2"]
    rate = shape / s1["true_mean"] + s1["exposure"]
    truth = s1.assign(true_variance=s1["true_mean"] ** 2 / shape)
    truth = truth.assign(oracle_mean=oracle / rate, oracle_variance=oracle / rate**2)
    items = soc.PoissonItems(truth, score="score", count="count", exposure="exposure")
    fit = soc.fit(soc.summarize(items, bins=30, **QUIET), method=five, **QUIET)
    yield "accuracy", evaluate.accuracy(fit, items, bins=3, **QUIET)


def simulations() -> Iterator[tuple[str, Any]]:
    s1, effects = simulation.s1(300, seed=1), simulation.laplace_effects(300, seed=1)
    yield "s1", s1
    yield "s1 curves", simulation.s1_curves([0.01, 0.05, 0.4])
    yield "clicks", simulation.click_rates(300, seed=1)
    rates = simulation.lognormal_rates(s1["score"], s1["exposure"], 0.1, 0.7, seed=1)
    yield "lognormal", rates
    items = (rates[name] for name in ("score", "count", "exposure"))
    yield "lognormal oracle", simulation.lognormal_oracle(*items, 0.1, 0.7)
    yield "effects", effects
    yield "effects oracle", simulation.laplace_oracle(effects)


def formulas() -> Iterator[tuple[str, Any]]:
    """Theory: geometric marginals of counts, Normal and Gamma ones of values."""

    def geometric(mean: float) -> Callable[[Any], Any]:
        return lambda y: y * np.log(mean / (1 + mean)) - np.log(1 + mean)

    y, pmf, value = np.array([0, 1, 5, 40]), geometric(2.0), np.array([-1.0, 0.5, 3.0])
    yield "moment", theory.poisson_moment(y, 1.0, pmf, 3)
    yield "cumulants", theory.poisson_cumulants(y, 1.0, pmf, 4)
    yield "umvu", theory.poisson_umvu(y, 2.0, 2)
    yield "regularised", theory.regularised_poisson_moment(y, 1.0, pmf, 2, rho=0.01)
    bound = theory.poisson_bound(pmf, geometric(2.2), 1.0, rho=0.01, highest=90)
    yield "bound", bound
    yield "moments", theory.moments_from_cumulants([0.3, 1.0, 0.2, 0.1])
    yield "back", theory.cumulants_from_moments([1.0, 2.0, 6.0, 24.0])
    slope = theory.log_derivatives(lambda x: -(x**2) / 4 + np.cos(x) / 9, value, 0.7, 3)
    density = -(value**2) / 4 + np.cos(value) / 9
    yield "derivatives", slope
    base = theory.normal_base(value, 0.8, 3)
    yield "normal", theory.nef_cumulants(base, slope)
    yield "small", theory.regularised_nef_cumulants(base, slope, density, rho=0.2)
    yield "tweedie", theory.tweedie(value, 0.8, slope, log_density=density, rho=0.2)
    yield "gamma", theory.gamma_base([0.1, 2.0], 3.0, 3)
    choice = theory.choose_rho(
        lambda rho: theory.regularised_poisson_moment(y, 1.0, geometric(0.5), rho=rho),
        lambda rate: y * np.log(rate) - rate,
        [0.001, 0.01, 0.1],
    )
    yield "choice", choice


def pictures() -> Iterator[tuple[str, Any]]:
    """What is drawn: lines, areas and points."""
    import matplotlib.pyplot as plt

    five, fit, items = fit_of("five_gamma"), fit_of("five_normal"), items_of("counts", counts())
    result = soc.check(five, items, subset=200, **QUIET)
    some = counts().head(300)
    scored = soc.item_posteriors(five, items_of("counts", some), **QUIET)
    drawings = {
        "curves": lambda: plots.plot_curves(five),
        "normal curves": lambda: plots.plot_curves(fit),
        "prior": lambda: plots.plot_adjusted_prior(five),
        "ribbon": lambda: plots.plot_prior_ribbon(fit),
        "spread": lambda: plots.plot_bin_spread(five),
        "illustration": lambda: plots.plot_calibration_illustration(five),
        "pit": lambda: plots.plot_pit(result),
        "rootogram": lambda: plots.plot_rootogram(result),
        "smoothing": lambda: plots.plot_smoothing(five),
        "in bin": lambda: plots.plot_prior_in_bin(five, items, 20),
        "shrinkage": lambda: plots.plot_shrinkage(scored, score="t", **COUNTS),
        "forest": lambda: plots.plot_forest(scored, id="id", score="t", **COUNTS, items=5),
    }
    for name, draw in drawings.items():
        axes = np.atleast_1d(np.asarray(draw(), dtype=object)).ravel()
        parts = [np.asarray(line.get_xydata(), float) for ax in axes for line in ax.lines]
        for area in (area for ax in axes for area in ax.collections):
            parts += [path.vertices for path in area.get_paths()[:50]]
            parts += [np.ma.getdata(area.get_offsets())]
        parts += [[patch.get_window_extent().bounds] for ax in axes for patch in ax.patches]
        yield name, np.concatenate([np.reshape(part, (-1, 2)) for part in parts])
        plt.close("all")


def reports() -> Iterator[tuple[str, Any]]:
    """The numbers on the page, before its settings."""
    for name, threshold in (("gamma", 0.05), ("five_normal", 0.3)):
        items = CASES[name].items(FRAMES[CASES[name].kind]().head(300))
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            soc.report(fit_of(name), items, out=page, threshold=threshold, **QUIET)
            text = page.read_text(encoding="utf-8")
        text = re.sub(r"<(style|head)\b.*?</\1>", " ", text, flags=re.DOTALL)
        text = html.unescape(re.sub(r"<[^>]*>", " ", text)).rpartition("Settings and versions")[0]
        assert text, "the page has lost its last section"
        found = re.findall(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", text)
        yield name, np.array([float(x.replace(",", "").replace("−", "-")) for x in found])


def estimators() -> Iterator[tuple[str, Any]]:
    rows, other = counts().head(40), values().head(40)
    told = soc.SecondOrderCalibrator(method=soc.FiveSteps(), bins=30)
    told.fit(counts()["t"], counts()["y"], exposure=counts()["N"])
    given = {"exposure": rows["N"]}
    yield "predict", [told.predict(rows["t"]), told.predict_std(rows["t"])]
    yield "interval", told.predict_interval(rows["t"], rows["y"], **given)
    yield "score", told.score(rows["t"], rows["y"], **given)
    told = soc.SecondOrderCalibrator(method=soc.FiveSteps(), bins=30, noise_sd=0.7)
    told.fit(values()["t"], values()["y"])
    yield "values", told.predict_interval(other["t"], other["y"])


OTHERS = {
    "engines": engines,
    "stored": stored,
    "comparisons": comparisons,
    "evaluations": evaluations,
    "simulations": simulations,
    "formulas": formulas,
    "pictures": pictures,
    "reports": reports,
    "estimators": estimators,
}
