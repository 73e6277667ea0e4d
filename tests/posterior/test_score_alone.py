"""Theta of items without outcomes: the prior predictive of theta at the item's own score."""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import soc_pymc as soc
from soc_pymc._lib.errors import FitError, ItemsError
from soc_pymc.families.binomial_beta import a_b
from soc_pymc.front.cli import main
from soc_pymc.posterior.curves import curve_draws

CLASSES = {"counts": soc.PoissonItems, "values": soc.NormalItems, "successes": soc.BinomialItems}
CDF = {  # of theta given a draw of the curves
    "counts": lambda x, mean, cv2: special.gammainc(np.exp(-cv2), x * np.exp(-cv2 - mean)),
    "values": lambda x, mean, variance: stats.norm.cdf(x, mean, np.exp(0.5 * variance)),
    "successes": lambda x, first, second: special.betainc(*a_b(first, second), x),
}


@pytest.fixture(scope="module", params=CLASSES)
def made(request, kept_fit, small_fit):
    """Kind, fit, and a table of scores alone."""
    kind, rng = request.param, np.random.default_rng(7)
    t = rng.uniform(0.1, 0.5, 1500)
    if kind == "counts":
        return kind, small_fit, pd.DataFrame({"t": t / 5})
    if kind == "values":
        frame = pd.DataFrame({"t": t, "s": 0.2, "y": rng.normal(rng.normal(t, 0.1), 0.2)})
        roles = {"value": "y", "noise_sd": "s"}
    else:
        frame = pd.DataFrame({"t": t, "s": 20, "y": rng.binomial(20, rng.beta(9 * t, 9 * (1 - t)))})
        roles = {"successes": "y", "trials": "s"}

    def make():
        whole = CLASSES[kind](frame, score="t", **roles)
        return soc.fit(
            soc.summarize(whole, bins=20, progress=False), method=soc.VI(draws=300), progress=False
        )

    return kind, kept_fit(f"score_alone_{kind}", make), frame[["t"]]


@pytest.mark.parametrize("draws", ["all", "representative"])
def test_is_theta_given_the_score(made, draws):
    """Total variance and the mixture's cdf over every draw of the curves.

    Representative draws are within 1e-3 posterior sd by contract.
    """
    kind, fit, frame = made
    given = CLASSES[kind](frame.iloc[:200], score="t")
    scored = soc.item_posteriors(fit, given, draws=draws, progress=False)
    exact = soc.calibration_curves(fit, frame["t"].to_numpy()[:200])
    over = ("chain", "draw")
    variance = (exact["variance"].mean(over) + exact["mean"].var(over)).to_numpy()
    few = draws == "representative"
    sd = np.sqrt(variance)
    away = np.abs(scored["theta_mean"] - exact["mean"].mean(over).to_numpy()) / sd
    assert away.max() < (1e-3 if few else 1e-9)
    np.testing.assert_allclose(scored["theta_var"], variance, rtol=2e-3 if few else 1e-8)
    curves = curve_draws(fit, frame["t"].to_numpy()[:200])
    for column, prob in (("theta_q05", 0.05), ("theta_q95", 0.95)):
        cdf = CDF[kind](scored[column].to_numpy(), *curves).mean(axis=0)
        np.testing.assert_allclose(cdf, prob, atol=1e-3 if few else 2e-5)


def test_covers_new_items(small_fit):
    """Of 20,000 new items 90% lie inside; three standard errors are 0.6%, the curves' 1%."""
    new = soc.simulation.s1(20_000, seed=11)
    scored = soc.item_posteriors(
        small_fit, soc.PoissonItems(new, score="score"), draws="representative", progress=False
    )
    inside = (scored["theta_q05"] <= new["theta"]) & (new["theta"] <= scored["theta_q95"])
    assert abs(inside.mean() - 0.9) < 0.016


def test_mixtures_and_zeros():
    """A mixture of five steps: the mean of the bin's own mixture."""
    frame = soc.simulation.s1(3000, seed=2)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats_of = soc.summarize(items, bins=10, joint=True, progress=False)
    fit = soc.fit(stats_of, soc.GammaMixture(), soc.FiveSteps(), progress=False)
    scored = soc.item_posteriors(fit, soc.PoissonItems(frame, score="score"), progress=False)
    curves = soc.calibration_curves(fit, frame["score"].to_numpy()).isel(chain=0, draw=0)
    np.testing.assert_allclose(scored["theta_mean"], curves["mean"], rtol=1e-9)
    np.testing.assert_allclose(scored["theta_var"], curves["variance"], rtol=1e-6)


def test_groups_keep_their_own_curves(grouped_fit, grouped_items):
    scores = grouped_items.source[["score", "kind"]].head(50)
    new = soc.PoissonItems(scores, score="score", group="kind")
    scored = soc.item_posteriors(grouped_fit, new, draws="all", progress=False)
    for kind, part in scored.groupby("kind"):
        curves = soc.calibration_curves(grouped_fit, part["score"].to_numpy(), group=kind)
        mean = curves["mean"].mean(("chain", "draw"))
        np.testing.assert_allclose(part["theta_mean"], mean, rtol=1e-9)
    with pytest.raises(ItemsError, match="give them group="):
        soc.item_posteriors(grouped_fit, soc.PoissonItems(scores, score="score"))


def test_a_term_in_exposure_reads_the_exposure(exposure_fit, small_frame):
    frame = small_frame[["score", "exposure"]].head(50)
    new = soc.PoissonItems(frame, score="score", exposure="exposure")
    scored = soc.item_posteriors(exposure_fit, new, progress=False)
    log_mean, _ = curve_draws(
        exposure_fit, frame["score"], exposure=frame["exposure"].to_numpy(dtype=float)
    )
    np.testing.assert_allclose(scored["theta_mean"], np.exp(log_mean).mean(axis=0), rtol=1e-9)
    with pytest.raises(FitError, match=r"depends on the exposure.*give the items exposure="):
        soc.item_posteriors(exposure_fit, soc.PoissonItems(frame, score="score"))


def test_bad_scores_are_refused(small_fit, small_frame):
    frame = small_frame[["score", "exposure"]].head(5).copy()
    frame.loc[2, "score"] = np.nan
    with pytest.raises(ItemsError, match="column 'score': 1 of 5 rows is missing"):
        soc.item_posteriors(small_fit, soc.PoissonItems(frame, score="score"))
    frame["score"], frame.loc[1, "exposure"] = 0.1, -1.0
    with pytest.raises(ItemsError, match="column 'exposure': 1 of 5 rows is negative"):
        soc.item_posteriors(small_fit, soc.PoissonItems(frame, score="score", exposure="exposure"))


def test_all_else_needs_outcomes(small_fit, small_frame):
    new = soc.PoissonItems(small_frame, score="score")
    uses = [
        soc.summarize,
        lambda items: soc.check(small_fit, items),
        lambda items: soc.report(small_fit, items),
        soc.evaluate.leakage,
        lambda items: soc.decisions.probability_above(small_fit, items, 0.1),
        lambda items: soc.evaluate.split_items(items, 0.5),
    ]
    for use in uses:
        with pytest.raises(ItemsError, match="items name no column of counts: give them count="):
            use(new)


def test_on_the_command_line(small_fit, small_frame, tmp_path, capsys):
    small_fit.save(tmp_path / "fit.nc")
    small_frame[["score"]].head(20).to_parquet(tmp_path / "new.parquet")
    out = tmp_path / "p.parquet"
    words = ["posteriors", str(tmp_path / "fit.nc"), str(tmp_path / "new.parquet"), "--quiet"]
    assert main([*words, "--score-only", "--out", str(out)]) == 0
    new = soc.PoissonItems(small_frame.head(20), score="score")
    expected = soc.item_posteriors(small_fit, new, progress=False)
    np.testing.assert_array_equal(pd.read_parquet(out)["theta_q95"], expected["theta_q95"])
    assert main([*words, "--score-only", "--count", "count", "--out", str(out)]) == 2
    assert "--score-only reads no outcomes: leave out --count" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "named"), [(["score"], True), (["score", "count"], False), (["count"], False)]
)
def test_the_option_is_named(columns, named, small_fit, small_frame, tmp_path, capsys):
    """Where the column of outcomes is missing, and the score is not."""
    small_fit.save(tmp_path / "fit.nc")
    small_frame[columns].head(20).to_parquet(tmp_path / "new.parquet")
    words = ["posteriors", str(tmp_path / "fit.nc"), str(tmp_path / "new.parquet"), "--quiet"]
    assert main([*words, "--out", str(tmp_path / "p.parquet")]) == 2
    said = capsys.readouterr().err
    assert "is missing" in said
    remedy = "; or add --score-only for theta given the score alone\n"
    assert said.endswith(remedy) == named
