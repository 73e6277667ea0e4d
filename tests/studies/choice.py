"""How well does `prior="auto"` choose?

    python -m tests.studies choice zeros [--kinds counts] [--items 300 1000 4000] [--tables 20]
    python -m tests.studies choice halves [--names flights homeruns] [--tables 20]

`zeros` counts tables in which it finds a share of theta that is 0: 8 events an item. `halves` fits
half of at most 4,000 rows of a real table and predicts the other half. Regret is what a rule loses
in nats an item to the candidate that is best there on average; coverage is that of the choice's
central 90% intervals of outcomes, by fifth of score and of size. Tables are shown as they end.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

import soc_pymc as soc
from soc_pymc._lib.reprs import code_of
from soc_pymc.checks.advice import mixture_of
from soc_pymc.checks.comparison import elpd_table
from soc_pymc.checks.observations import observe
from soc_pymc.checks.pit import cdf_ends
from soc_pymc.checks.selection import Tried
from soc_pymc.posterior.predictive import posterior_of
from tests.studies import common

_ROWS = 4000  # of a real table


def with_zeros(kind: str, n_items: int, share: float, rng: np.random.Generator) -> Any:
    """Items with about 8 events, and theta of 0 for a share of them."""
    score = np.exp(rng.normal(np.log(0.1), 0.5, n_items))
    size = 8.0 / score * np.exp(rng.normal(0.0, 0.5, n_items))
    if kind == "counts":
        theta = score * rng.gamma(4.0, 0.25, n_items)
    else:
        mean = score / (1.0 + score)
        theta = rng.beta(20.0 * mean, 20.0 * (1.0 - mean))
    theta[rng.random(n_items) < share] = 0.0
    if kind == "counts":
        frame = {"score": score, "count": rng.poisson(theta * size), "exposure": size}
        return common.counts(pd.DataFrame(frame))
    trials = np.ceil(size).astype(int)
    frame = {"score": mean, "successes": rng.binomial(trials, theta), "trials": trials}
    return common.trials(pd.DataFrame(frame))


def zeros(kinds: list[str], sizes: list[int], shares: list[float], tables: int) -> None:
    """Print the tables in which a share of zeros was found."""
    for kind, n_items, share in product(kinds, sizes, shares):
        found = 0
        seconds = []
        for seed in range(tables):
            rng = np.random.default_rng([seed, n_items, int(100 * share)])
            stats = common.summarize(with_zeros(kind, n_items, share, rng), joint=True)
            fit, used = common.timed(lambda stats=stats: common.fit(stats, "auto"))
            found += fit.prior.zero
            seconds.append(used)
        row = {"kind": kind, "items": n_items, "share": share, "tables": tables}
        row |= {"found": found, "CPU seconds": np.median(seconds)}
        common.show(pd.DataFrame([row]))


def real(name: str) -> tuple[Any, pd.DataFrame, dict[str, str]]:
    """Kind of items, table and roles of a real data set."""
    kind, roles = TABLES[name]
    file = common.data_folder() / name.split("+")[0]
    frame = pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
    return kind, frame.dropna(subset=list(roles.values())), roles


_COUNTS = {"score": "score", "count": "count", "exposure": "exposure"}
_RUNS = {"score": "score", "count": "home_runs", "exposure": "at_bats"}
_TRIALS = {"score": "score", "successes": "successes", "trials": "trials"}
_ZONES = {"score": "stayer25", "value": "theta25", "noise_sd": "se25"}
_CLICKS = {"score": "score", "count": "clicks", "exposure": "impressions"}
_CLAIMS = {"score": "score", "count": "claims", "exposure": "exposure_years"}
TABLES: Mapping[str, tuple[Any, dict[str, str]]] = {
    "chetty_cz.csv": (soc.NormalItems, _ZONES),
    "flights_items.parquet": (soc.BinomialItems, _TRIALS),
    "flights_items.parquet+carrier": (soc.BinomialItems, {**_TRIALS, "group": "carrier"}),
    "fremtpl2_items.parquet": (soc.PoissonItems, _CLAIMS),
    "upworthy_items.parquet": (soc.PoissonItems, _CLICKS),
    "adwords_items.parquet": (soc.PoissonItems, _CLICKS),
    "homeruns_items.parquet": (soc.PoissonItems, _RUNS),
    "homeruns_items.parquet+position": (soc.PoissonItems, {**_RUNS, "group": "position"}),
    "adcampaign_items.parquet": (soc.PoissonItems, _COUNTS),
}


def candidates(prior: Any, grouped: bool) -> list[Any]:
    """All priors that the choice may end in, the default among them, the simplest first."""
    terms = product((None, soc.Spline()), (False, True) if grouped else (True,))
    plain = [type(prior)(exposure=term, groups=groups) for term, groups in terms]
    return plain + [mixture_of(prior) for prior in plain]


def halves(names: list[str], tables: int) -> None:
    """Print the regret of the choice and of other rules on each real table, and coverage."""
    for name in names:
        kind, frame, roles = real(name)
        halved = [_half(kind, frame, roles, seed) for seed in range(tables)]
        priors = pd.DataFrame([half.priors for half in halved])
        best = priors.mean().idxmax()
        regret = pd.DataFrame([half.rules for half in halved]).rsub(priors[best], axis=0)
        columns = {"mean": regret.mean(), "largest": regret.max()}
        columns["se"] = regret.std() / np.sqrt(tables)
        common.show(pd.DataFrame(columns), f"{name}: {tables} halves, best is {best}")
        auto = pd.DataFrame(
            [(half.chosen, half.seconds) for half in halved], columns=["chose", "s"]
        )
        common.show(auto.groupby("chose")["s"].agg(["count", "median", "max"]))
        coverage = pd.concat([half.coverage for half in halved])
        common.show(coverage.groupby(["of", "fifth"]).mean())


class Half(NamedTuple):
    """What the fits to a half of a table say of the other half, in nats an item."""

    priors: dict[str, float]
    rules: dict[str, float]  # of choice, or of weights
    chosen: str
    seconds: float
    coverage: pd.DataFrame  # of the choice, by fifth of score and size


def _half(kind: Any, frame: pd.DataFrame, roles: Any, seed: int) -> Half:
    sample = frame.sample(min(_ROWS, len(frame)), random_state=seed)
    middle = len(sample) // 2
    train, test = kind(sample[:middle], **roles), kind(sample[middle:], **roles)
    stats = common.summarize(train, joint=True, on_leakage="ignore")
    auto, seconds = common.timed(lambda: common.fit(stats, "auto"))
    chosen = code_of(auto.prior)
    fits = {}
    for prior in candidates(stats.family.prior(), "group" in roles):
        code = code_of(prior)
        try:
            fits[code] = auto if code == chosen else common.fit(stats, prior)
        except soc.FitError:  # too many groups for a grid of theta in each
            continue
    densities = pd.DataFrame({code: _log_density(fit, test) for code, fit in fits.items()})
    rules = {rule: _mixed(densities, weight) for rule, weight in _rules(fits, stats).items()}
    rules["auto"] = float(_log_density(auto, test).mean())
    priors = densities.mean().to_dict()
    rules["default"] = priors[code_of(stats.family.prior())]
    return Half(priors, rules, chosen, seconds, _coverage(auto, test))


def _rules(fits: dict[str, soc.Fit], stats: soc.Statistics) -> dict[str, pd.Series]:
    """Weights of fits by other rules, from leave-one-out on the items that made them."""
    tried = {code: Tried.of(fit, stats).loo for code, fit in fits.items()}
    table = elpd_table({code: loo for code, loo in tried.items() if loo})
    elpd = table["elpd"]
    alike = table["elpd_diff"] >= -2.0 * table["dse"]
    simplest = next(code for code in fits if alike.get(code, False))
    relative = np.exp(elpd - elpd.max())
    return {
        "simplest within 2 dse": pd.Series({simplest: 1.0}),
        "best elpd": pd.Series({elpd.idxmax(): 1.0}),
        "stacking": table["weight"],
        "pseudo-BMA": relative / relative.sum(),
    }


def _mixed(densities: pd.DataFrame, weight: pd.Series) -> float:
    """Mean log density of items under a mixture of fits with these weights."""
    weight = weight[weight > 0.0]
    log_density = densities[weight.index] + np.log(weight)
    return float(special.logsumexp(log_density, axis=1).mean())


def _log_density(fit: soc.Fit, items: Any) -> np.ndarray:
    columns = observe(fit.curves, items).columns
    return posterior_of(fit).log_mean_density(columns)


def _coverage(fit: soc.Fit, items: Any) -> pd.DataFrame:
    observed = observe(fit.curves, items)
    below, upto = cdf_ends(posterior_of(fit), observed.columns)
    inside = np.minimum(upto, 0.95) - np.maximum(below, 0.05)
    width = upto - below  # 0 of values
    by_width = np.clip(inside / np.maximum(width, 1e-12), 0.0, 1.0)
    share = np.where(width > 1e-12, by_width, inside >= 0.0)
    parts = []
    for of in ("score", fit.curves.outcome.size):
        fifth = pd.qcut(pd.Series(observed.columns[of]).rank(method="first"), 5, labels=False)
        parts.append(pd.DataFrame({"of": of, "fifth": fifth, "coverage": share}))
    return pd.concat(parts)


def main() -> None:
    small = {"tables": 1, "items": [300], "shares": [0.5], "names": ["chetty_cz.csv"]}
    chosen = common.options(
        __doc__,
        small,
        part=("zeros", "halves"),
        kinds=common.Choice(("counts", "successes")),
        items=(300, 1000, 4000),
        shares=(0.0, 0.2, 0.5),
        names=common.Choice(TABLES),
        tables=20,
    )
    if chosen.part == "zeros":
        zeros(chosen.kinds, chosen.items, chosen.shares, chosen.tables)
    else:
        halves(chosen.names, chosen.tables)
