"""Section 5.3 of the paper: Normal outcomes of Laplace effects, against the oracle given t.

    python -m tests.studies.normal --items 10000000 --out normal.parquet

The paper's mixture of seven Normals had a mean squared error 11% above the oracle's and was 72%
further from theta than its own standard deviations said.

Rows by bin of score, those of `soc.evaluate.accuracy`, go to ``--out``; rows over all items and the
PIT by bin to files beside it (``_all``, ``_pit_METHOD``); another run makes what is missing.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.evaluate.by_bin import accuracy_by_bin, given_score
from soc_pymc.families.outcomes import OUTCOMES
from tests.studies import grid
from tests.studies.blocks import ratio_with_error

PRIORS = {"five": "NormalMixture", "mixture": "NormalMixture", "normal": "Normal"}
NAMES = {"five": "five steps", "mixture": "Bayes, mixture", "normal": "Bayes, Normal"}
_FIVE_STEPS_ITEMS = 15_000  # in a bin: seven free Normals of fewer items have variances too small
_FILE = 1_000_000  # items in one file


def write_items(folder: Path, n_items: int, seed: int) -> list[Path]:
    """Simulated items in Parquet files of a million."""
    folder.mkdir(parents=True, exist_ok=True)
    table = soc.simulation.laplace_effects(n_items, seed)
    paths = []
    for start in range(0, n_items, _FILE):
        paths.append(folder / f"items{start // _FILE:04d}.parquet")
        table.iloc[start : start + _FILE].to_parquet(paths[-1], index=False)
    return paths


def squared_errors(scored: pd.DataFrame) -> pd.DataFrame:
    """Per item: squared errors, over the variance too, by us and by the oracle; and expected."""
    if "oracle_mean" in scored:
        best, spread = scored["oracle_mean"], scored["oracle_variance"]
    else:
        best, spread = soc.simulation.laplace_oracle(scored)
    error = (scored["theta_mean"] - scored["theta"]) ** 2
    best_error = (best - scored["theta"]) ** 2
    expected = spread + (scored["theta_mean"] - best) ** 2
    return pd.DataFrame(
        {
            "mse_score": (scored["score"] - scored["theta"]) ** 2,
            "mse_value": (scored["value"] - scored["theta"]) ** 2,
            "mse_ours": error,
            "mse_oracle": best_error,
            "expected_ours": expected,
            "expected_oracle": spread,
            "ratio_ours": error / scored["theta_var"],
            "ratio_oracle": best_error / spread,
            "expected_ratio": expected / scored["theta_var"],
        }
    )


def figures(items: pd.DataFrame) -> dict[str, float]:
    """Averages of `squared_errors`, what they make, and standard errors."""

    def of(statistic, *names: str) -> tuple[float, float]:
        return ratio_with_error({n: items[n].to_numpy() for n in names}, statistic)

    made = {
        "mse_over_oracle": of(
            lambda mse_ours, mse_oracle: mse_ours / mse_oracle, "mse_ours", "mse_oracle"
        ),
        "regret_percent": of(
            lambda expected_ours, expected_oracle: 100 * (expected_ours / expected_oracle - 1),
            "expected_ours",
            "expected_oracle",
        ),
        "standardised_rmse": of(lambda ratio_ours: ratio_ours**0.5, "ratio_ours"),
        "standardised_rmse_oracle": of(lambda ratio_oracle: ratio_oracle**0.5, "ratio_oracle"),
        "expected_standardised_rmse": of(
            lambda expected_ratio: expected_ratio**0.5, "expected_ratio"
        ),
    }
    row: dict[str, float] = {}
    for name, (value, error) in made.items():
        row |= {name: value, f"{name}_se": error}
    names = ("mse_score", "mse_value", "mse_ours", "mse_oracle")
    return row | {name: float(items[name].mean()) for name in names}


def pit_by_bin(score: np.ndarray, pit: np.ndarray, bins: int = 20) -> pd.DataFrame:
    """Kolmogorov-Smirnov distance and p-value of the PIT in bins of score, corrected by Holm."""
    from soc_pymc.checks._check import holm
    from soc_pymc.checks.predictive import uniformity

    number = np.argsort(np.argsort(score, kind="stable"), kind="stable") * bins // len(score)
    rows = []
    for k in range(bins):
        own = number == k
        test = uniformity(pit[own])
        rows.append((score[own].mean(), own.sum(), test.distance, test.p_value))
    table = pd.DataFrame(rows, columns=["mean_score", "items", "distance", "p_value"])
    return table.assign(p_holm=holm(table["p_value"].to_numpy()))


def with_truth(scored: pd.DataFrame) -> pd.DataFrame:
    """Scored items beside the truth: E(theta | t) is t, and theta less it a Laplace and a chi2."""
    best, spread = soc.simulation.laplace_oracle(scored)
    kept = scored[["score", "value", "theta", "theta_mean", "theta_var"]]
    return kept.assign(
        true_mean=scored["score"],
        true_variance=2.0 + 2.0 * 0.01**2,
        oracle_mean=best,
        oracle_variance=spread,
    )


def fit_items(items: soc.NormalItems, prior: str, n_items: int) -> soc.Fit:
    """One method's fit: `five` the five steps in up to 1,000 bins, the others variational."""
    made = getattr(soc, PRIORS[prior])()
    if prior == "five":
        bins = min(max(20, n_items // _FIVE_STEPS_ITEMS), 1000)
        stats = soc.summarize(items, bins=bins, joint=True, progress=False)
        return soc.fit(stats, made, soc.FiveSteps(), progress=False)
    return soc.fit(soc.summarize(items, joint=True, progress=False), made, progress=False)


def run_items(
    n_items: int, prior: str, seed: int, pit_items: int = 1_000_000
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, object]]:
    """Simulate, fit and score through files; items with truth, PIT by bin, what the fit was.

    The PIT is that of every so-manieth item, `pit_items` in all.
    """
    from soc_pymc.posterior.predictive import posterior_of

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_items(folder / "items", n_items, seed)
        pattern = str(folder / "items" / "*.parquet")
        start = time.perf_counter()
        items = soc.NormalItems(pattern, score="score", value="value", noise_sd="noise_sd")
        fit = fit_items(items, prior, n_items)
        fitted = time.perf_counter()
        done = folder / "scored"
        done.mkdir()
        draws = "all" if prior == "five" else "auto"
        soc.item_posteriors(fit, items, quantiles=(), draws=draws, out=done, progress=False)
        scored = time.perf_counter()
        parts, pits, scores = [], [], []
        law, every = posterior_of(fit), max(n_items // pit_items, 1)
        for path in sorted(done.glob("*.parquet")):
            table = pd.read_parquet(path)
            parts.append(with_truth(table))
            columns = {c: table[c].to_numpy()[::every] for c in ("score", "value", "noise_sd")}
            pits.append(law.cdf_interval(columns)[1])
            scores.append(columns["score"])
    table = pd.concat(parts, ignore_index=True)
    roles = {"score": table["score"].to_numpy(), "noise_sd": np.ones(len(table))}
    mean, variance = given_score(fit, roles)
    status = {
        "fit_seconds": fitted - start,
        "score_seconds": scored - fitted,
        "converged": fit.status.converged,
        "pareto_k": fit.status.pareto_k,
    }
    pit = pit_by_bin(np.concatenate(scores), np.concatenate(pits))
    return table.assign(mean=mean, variance=variance), pit, status


def run(
    n_items: int, prior: str, seed: int, pit_items: int = 1_000_000
) -> tuple[dict[str, object], pd.DataFrame]:
    """The row of figures, and the PIT by bin of score."""
    items, pit, status = run_items(n_items, prior, seed, pit_items)
    row = {"prior": prior, "items": n_items, **figures(squared_errors(items)), **status}
    return row, pit


def tables(
    items: pd.DataFrame, prior: str, status: dict[str, object], bins: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows by bin of score, and the row over all items with the figures of `figures`."""
    labels = {"method": NAMES[prior], "delta": np.nan, "sigma": np.nan}
    by_bin, whole = (
        grid.label(accuracy_by_bin(items, b, OUTCOMES["normal"]), **labels) for b in (bins, 1)
    )
    more = figures(squared_errors(items))
    return by_bin, whole.assign(**{k: v for k, v in more.items() if k not in whole}, **status)


def main() -> None:
    """Run the methods; print their figures and the PIT by bin, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--prior", choices=PRIORS, nargs="+", default=list(PRIORS))
    parser.add_argument("--bins", type=int, default=20, help="bins of score of the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pit-items", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    results = grid.Results(chosen.out, {"n_items": chosen.items, "seed": chosen.seed})
    rows = []
    for prior in chosen.prior:
        if results.done(method=NAMES[prior]):
            continue
        items, pit, status = run_items(chosen.items, prior, chosen.seed, chosen.pit_items)
        found = tables(items, prior, status, chosen.bins)
        print(found[1].iloc[0].to_string(float_format=lambda x: f"{x:.5g}"))
        print(pit.to_string(float_format=lambda x: f"{x:.4g}"))
        results.add(*found)
        rows.append(found[1])
        if chosen.out:
            grid.write(pit, chosen.out.with_stem(f"{chosen.out.stem}_pit_{prior}"))
    whole = grid.read(results.whole) if results.whole else pd.concat(rows)
    print(grid.brief(whole))


if __name__ == "__main__":
    main()
