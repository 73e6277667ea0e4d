"""How close are items scored by a prior table to all draws, and do its forms agree?

    python -m tests.studies prior_tables [--items 5000]

Priors are fitted to 6,000 simulated items. Other items, half of which have sizes multiplied by
exp(N(0, 4^2)), are scored over all draws, by `item_posteriors`, by the exported Parquet and JSON
files, and by SQL on DuckDB. Errors against all draws are in posterior sd: the 99% point and the
largest among items that are not flagged. `apart` is the largest difference between the four forms
among these items, relative to the larger of the number and the posterior sd, of moments and of
quantiles.
"""

import tempfile
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.examples import FAMILIES, ROLES
from tests.posterior.references import FORMS, KINDS, hostile_sizes, scored_in_every_form
from tests.studies.common import Choice, fitted, options, show

COLUMNS = {"mean": "theta_mean", "sd": "theta_sd", "lower": "theta_q05", "upper": "theta_q95"}
BY_SIZE = {"exposure": soc.Spline(knots=4)}
PRIORS: dict[str, tuple[Any, dict[str, Any]]] = {
    f"{family.__name__}-{term}": (family(**(BY_SIZE if term == "exposure" else {})), roles)
    for family in (soc.Gamma, soc.Normal, soc.Beta)
    for term, roles in (("plain", {}), ("exposure", {}), ("groups", {"group": "kind"}))
}
PRIORS |= {
    "Gamma-crossed": (soc.Gamma(), {"group": ("kind", "area")}),
    "Gamma-bins": (soc.Gamma(bin_effects=True), {}),
    "Gamma-atoms": (soc.Gamma(), {}),
    "Gamma-zero": (soc.Gamma(zero=True), {}),
    "Normal-zero": (soc.Normal(zero=True), {}),
    "GammaMixture-plain": (soc.GammaMixture(), {}),
    "NormalMixture-plain": (soc.NormalMixture(), {}),
    "BetaMixture-plain": (soc.BetaMixture(), {}),
    "GammaMixture-groups": (soc.GammaMixture(), {"group": "kind"}),
}


def frame_of(case: str, number: int, seed: int) -> tuple[Any, pd.DataFrame]:
    """Returns the class of items that a case is fitted to, and simulated items."""
    name = next(name for name in KINDS.values() if case.lower().startswith(name))
    example = FAMILIES[name]
    frame = example.frame(number, seed)
    frame["area"] = np.resize(list("xyzwxxyz"), number)
    if case == "Gamma-atoms":
        frame.loc[::5, "score"] = 0.05
    return example.kind, frame


def errors(case: str, number: int, n_fitted: int) -> dict[str, Any]:
    prior, roles = PRIORS[case]
    kind, frame = frame_of(case, n_fitted, 0)
    roles = ROLES[kind] | roles
    by_size = {"joint": True} if "exposure" in case else {}
    fit = fitted(kind(frame, **roles), prior, **by_size)
    frame = hostile_sizes(frame_of(case, number, 1)[1], kind)
    items = kind(frame.assign(id=np.arange(number)), **roles)
    with tempfile.TemporaryDirectory() as folder:
        forms, files = scored_in_every_form(fit, items, folder)
        row: dict[str, Any] = {f"kB {f}": path.stat().st_size // 1000 for f, path in files.items()}
    exact, batch = forms["exact"], forms["batch"]
    clear = ~forms["parquet"]["flagged"].to_numpy()
    row["flagged"] = 1.0 - clear.mean()
    row["flags differ"] = int((forms["sql"]["flagged"].to_numpy() != ~clear).sum())
    sd = exact["theta_sd"].to_numpy()[clear]
    apart = dict.fromkeys(COLUMNS, 0.0)
    for name, column in COLUMNS.items():
        expected = batch[column].to_numpy()[clear]
        error = np.abs(expected - exact[column].to_numpy()[clear]) / sd
        row |= {name: np.quantile(error, 0.99), f"{name} most": error.max()}
        for form in FORMS:
            other = forms[form][column].to_numpy(dtype=float)[clear]
            unit = np.maximum(np.abs(expected), sd)
            apart[name] = np.fmax(apart[name], np.nanmax(np.abs(other - expected) / unit))
        row[f"null {name}"] = int(np.isnan(other).sum())  # of SQL, the last form
    row["apart moments"] = max(apart["mean"], apart["sd"])
    row["apart quantiles"] = max(apart["lower"], apart["upper"])
    return row


def main() -> None:
    small = {"items": 100, "fitted": 2000, "cases": ["Gamma-plain", "Normal-groups"]}
    chosen = options(__doc__, small, items=5000, fitted=6000, cases=Choice(PRIORS))
    table = {case: errors(case, chosen.items, chosen.fitted) for case in chosen.cases}
    show(pd.DataFrame(table).T, digits=2)
