"""Headline tests: clicks as successes in trials beside clicks as counts in exposures.

    SOC_PYMC_DATA=... python -m tests.studies.upworthy [--splits 1]

A tenth of the impressions is kept to fit, drawn trial by trial. Log likelihoods are Binomial, of
the rest at each item's E(theta | t, y), whichever noise was fitted.
"""

import warnings

import pandas as pd
from scipy import stats

import soc_pymc as soc
from tests.studies import common

KINDS = {
    "binomial": lambda frame: common.trials(frame, successes="count", trials="exposure"),
    "poisson": common.counts,
}


def one_split(frame: pd.DataFrame, seed: int, kind: str) -> dict[str, float]:
    """Fits a tenth of every item's impressions, and judges by the rest."""
    split = soc.evaluate.split_items(KINDS[kind](frame), 0.9, seed=seed)
    with warnings.catch_warnings():  # items that look like trials
        warnings.simplefilter("ignore", soc.ItemsWarning)
        model = common.fit(common.summarize(split.train, joint=True))
    scored, test = common.posteriors(model, split.train), split.test.source
    width = scored["theta_q95"] - scored["theta_q05"]
    held = soc.evaluate.held_out(model, split, progress=False)
    pit = held.table[held.table["what"] == "PIT"].iloc[0]
    checked = soc.check(model, split.train, progress=False)
    rest = (test[role] for role in split.test.roles if role not in ("score", "group"))
    likelihood = stats.binom.logpmf(*rest, scored["theta_mean"])
    return {
        "log likelihood of the rest": likelihood.sum(),
        "median width of 90% intervals": width.median(),
        "largest difference of the PIT": float(pit["value"]),
        "its p": float(pit["p"]),
        "checks that fail": float((checked.table["verdict"] == "fail").sum()),
        "converged": model.status.converged,
    }


def main() -> None:
    """Prints a table for each split."""
    chosen = common.options(__doc__, {"items": 3000}, splits=1, items=int)
    frame = common.real_counts("upworthy").iloc[: chosen.items]
    for seed in range(chosen.splits):
        columns = {kind: one_split(frame, seed, kind) for kind in KINDS}
        common.show(pd.DataFrame(columns), f"split {seed}", digits=6)


if __name__ == "__main__":
    main()
