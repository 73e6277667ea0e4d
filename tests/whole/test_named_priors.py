"""Every prior that a page names goes through every verb, every picture and the report."""

import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import soc_pymc as soc
from tests.examples import FAMILIES, QUIET, ROLES, thinned
from tests.plots.test_pictures import draw

ROOT = Path(__file__).parents[2]
PRIOR = re.compile(r"soc\.(?:Gamma|Normal|Beta)(?:Mixture)?\((?:[^()]|\([^()]*\))*\)")
TERM = re.compile(
    r"`((?:mean|variance|exposure|monotone|bin_effects|groups|zero|atoms)=(?!\d)[^`]+)`"
)
IN_OTHER_WORDS = {
    "soc.Gamma(mean=soc.Constant(), variance=soc.Constant())",
    "soc.GammaMixture(mean=soc.Constant())",
    "soc.Normal(mean=soc.Constant())",
    "soc.Beta(mean=soc.Constant(), exposure=soc.Spline())",
    'soc.Beta(mean=soc.Spline(scale="linear"), variance=soc.Spline(scale="linear"))',
}


def named_priors():
    """Returns the priors in the pages as code; a term by itself is one of a Gamma prior.

    A number, as in `exposure=1`, is no term.
    """
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    terms = (f"soc.Gamma({term})" for term in TERM.findall(text))
    return sorted({*PRIOR.findall(text), *terms, *IN_OTHER_WORDS})


# those whose pictures and pages differ
SHOWN = [
    "soc.Beta()",
    "soc.Gamma(exposure=soc.Spline())",
    "soc.Gamma(mean=soc.Constant(), variance=soc.Constant())",
    "soc.Gamma(zero=True)",
    "soc.GammaMixture(mean=soc.Constant())",
    "soc.NormalMixture()",
]


@pytest.fixture(scope="module", params=thinned(named_priors(), []))
def named(request):
    """Returns a fit of a prior to 80% of every outcome of 300 items, and what verbs make of it."""
    prior = eval(request.param, {"soc": soc})
    case = FAMILIES[prior.family.lower()]
    frame = case.frame().head(300)[list(ROLES[case.kind])]
    split = soc.evaluate.split_items(case.items(frame), 0.2)
    items, stats = split.train, soc.summarize(split.train, **QUIET)
    fit = soc.fit(stats, prior, soc.VI(draws=200, seed=1), **QUIET)
    scored = soc.item_posteriors(fit, items, quantiles=(0.05, 0.95), **QUIET)
    check = soc.check(fit, items, **QUIET)
    return SimpleNamespace(
        split=split, items=items, stats=stats, fit=fit, scored=scored, check=check
    )


def test_curves_and_summary(named):
    assert named.fit.status.converged
    assert not named.fit.curves.one_score
    curves = soc.calibration_curves(named.fit)
    assert curves.sizes["score"] == 200
    assert (curves["variance"] > 0).all()
    low, middle, high = soc.bands(curves)["mean"].to_numpy()
    assert ((low < middle) & (middle < high)).all()
    if named.fit.prior.mean.knots == 1 and named.fit.prior.exposure is None:
        np.testing.assert_allclose(middle, middle[0])
    assert np.isfinite(named.fit.summary()["median"]).all()


def test_posteriors_and_table(named, tmp_path):
    scored = named.scored
    assert scored["theta_mean"].between(scored["theta_q05"], scored["theta_q95"]).all()
    words, file = "", tmp_path / "prior.parquet"
    try:
        soc.export_prior(named.fit, file)
    except soc.FitError as refusal:  # of mixtures that few items hardly determine
        words = str(refusal)
    if words:
        assert "Mixture" in type(named.fit.prior).__name__
        assert "a table cannot follow this prior" in words
        return
    columns = (scored[role] for role in ROLES[type(named.items)])
    by_table = soc.prior_table.score(file, *columns)
    error = np.abs(by_table["theta_mean"] - scored["theta_mean"]) / scored["theta_sd"]
    assert error[~by_table["flagged"]].max() < 0.02


def test_checks_and_comparison(named):
    assert {"PIT", "dispersion"} <= set(named.check.table["what"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ConvergenceWarning)  # of single items
        compared = soc.compare({"one": named.fit, "again": named.fit}, named.stats, **QUIET)
    assert np.isfinite(compared["elpd"]).all()
    held = soc.evaluate.held_out(named.fit, named.split, bins=3, **QUIET)
    assert "% gain of E(theta | t, y)" in set(held.table["what"])


def test_decisions(named):
    mean = named.scored["theta_mean"]
    above = soc.decisions.probability_above(named.fit, named.items, mean.median(), **QUIET)
    assert np.corrcoef(above, mean)[0, 1] > 0.5
    best = soc.decisions.probability_best(named.fit, named.items, 20, **QUIET)
    assert best["probability"].sum() == pytest.approx(20.0)
    total = soc.decisions.total(named.fit, named.items, **QUIET)
    assert total["mean"].item() == pytest.approx(mean.sum(), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("named", SHOWN, indirect=True)
def test_pictures(named):
    columns = {role: role for role in ROLES[type(named.items)]}
    size = {} if named.fit.prior.exposure is None else {"exposure": 5.0}
    draw("plot_curves", named.fit)
    draw("plot_prior", named.fit, **size)
    draw("plot_pit", named.check)
    draw("plot_intervals", named.check)
    draw("plot_shrinkage", named.scored, **columns)
    prior = soc.prior_predictive(named.fit.prior, named.stats, 30, items=50)
    draw("plot_prior_predictive", prior)


@pytest.mark.slow
@pytest.mark.parametrize("named", SHOWN, indirect=True)
def test_report(named, tmp_path):
    page = soc.report(named.fit, named.items, out=tmp_path / "report.html", **QUIET).read_text()
    assert "Theta given the score" in page
    assert "The curves at some scores" in page
