"""Is the first advice of a check right, and does following it help?

    python -m tests.studies remedies [--causes zeros groups] [--items 4000] [--seeds 0 1 2]

Each cause makes a table that the default prior, or the one named, does not describe. Half of it is
fitted and checked, the first advice followed, and the other half predicted by both fits: `gained`
nats, `se` their standard error over items. `claimed` is what the advice says of the half that was
checked, `error` its standard error, `compared` what leave-one-out says of both fits to it. `named`
says whether the advice names the cause.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.checks.comparison import leave_one_out
from soc_pymc.checks.observations import observe
from soc_pymc.posterior.predictive import posterior_of
from tests.studies import common

Frame = pd.DataFrame


@dataclass(frozen=True)
class Cause:
    """A table with one fault, and the checks and columns of the advice that name it."""

    items: Callable[..., Any]
    table: Callable[[np.random.Generator, int], Frame]
    named: tuple[tuple[str, str], ...]
    prior: Any = None


def _counts(rng: np.random.Generator, frame: Frame, ratio: Any) -> Frame:
    """Counts at the exposures of a frame, whose theta is its scores times a ratio."""
    return frame.assign(count=rng.poisson(frame["score"] * ratio * frame["exposure"]))


def _scores(rng: np.random.Generator, n: int) -> Frame:
    exposure = rng.lognormal(5.0, 1.0, n)
    return pd.DataFrame({"score": rng.lognormal(-3.0, 0.5, n), "exposure": exposure})


def _by_exposure(rng: np.random.Generator, n: int) -> Frame:
    frame = _scores(rng, n)
    return _counts(rng, frame, (frame["exposure"] / 150) ** -0.3 * rng.gamma(5.0, 0.2, n))


def _zeros(rng: np.random.Generator, n: int) -> Frame:
    present = rng.random(n) > 0.3
    return _counts(rng, _scores(rng, n), present * rng.gamma(5.0, 0.2, n))


def _two_populations(rng: np.random.Generator, n: int) -> Frame:
    centre = np.where(rng.random(n) < 0.25, 2.6, 0.47)
    return _counts(rng, _scores(rng, n), centre * rng.gamma(40.0, 1 / 40, n))


def _wiggle(rng: np.random.Generator, n: int) -> Frame:
    frame = _scores(rng, n)
    place = (np.log(frame["score"]) + 3.0) / 0.5
    return _counts(rng, frame, np.exp(0.6 * np.sin(4.0 * place)) * rng.gamma(20.0, 0.05, n))


def _campaigns(rng: np.random.Generator, n: int) -> Frame:
    campaign = rng.integers(0, 300, n)
    shared = np.exp(rng.normal(0.0, 0.5, 300))[campaign]
    frame = _scores(rng, n).assign(campaign=[f"c{k:03d}" for k in campaign])
    return _counts(rng, frame, shared * rng.gamma(10.0, 0.1, n))


def _default_score(rng: np.random.Generator, n: int) -> Frame:
    frame = _scores(rng, n)
    newcomer = rng.random(n) < 0.3
    frame.loc[newcomer, "score"] = 0.05
    kind = np.where(rng.random(n) < 0.5, 0.2, 1.8)
    return _counts(rng, frame, np.where(newcomer, kind, 1.0) * rng.gamma(10.0, 0.1, n))


def _listed(rng: np.random.Generator, n: int) -> Frame:
    frame = _scores(rng, 2 * n)
    frame["exposure"] /= 10
    frame = _counts(rng, frame, rng.gamma(2.0, 0.5, 2 * n))
    return frame[frame["count"] > 0].head(n).reset_index(drop=True)


def _values(rng: np.random.Generator, frame: Frame, theta: Any) -> Frame:
    return frame.assign(value=rng.normal(theta, frame["noise_sd"]))


def _noisy(rng: np.random.Generator, n: int) -> Frame:
    noise_sd = rng.lognormal(-1.0, 0.5, n)
    return pd.DataFrame({"score": rng.normal(size=n), "noise_sd": noise_sd})


def _heavy_tails(rng: np.random.Generator, n: int) -> Frame:
    frame = _noisy(rng, n)
    spread = np.where(rng.random(n) < 0.1, 2.0, 0.1)
    return _values(rng, frame, frame["score"] + spread * rng.normal(size=n))


def _gross_errors(rng: np.random.Generator, n: int) -> Frame:
    frame = _noisy(rng, n)
    frame = _values(rng, frame, frame["score"] + 0.5 * rng.normal(size=n))
    far = rng.random(n) < 0.004
    return frame.assign(value=frame["value"] + far * rng.choice([-20.0, 20.0], n))


def _estimated_sds(rng: np.random.Generator, n: int) -> Frame:
    frame = _noisy(rng, n)
    frame = _values(rng, frame, frame["score"] + 0.3 * rng.normal(size=n))
    return frame.assign(noise_sd=frame["noise_sd"] * np.sqrt(rng.chisquare(3.0, n) / 3.0))


def _by_noise(rng: np.random.Generator, n: int) -> Frame:
    frame = _noisy(rng, n)
    return _values(rng, frame, frame["score"] + frame["noise_sd"] + 0.3 * rng.normal(size=n))


def _single_noise(rng: np.random.Generator, n: int) -> Frame:
    frame = _noisy(rng, n)
    frame = _values(rng, frame, frame["score"] + 0.1 * rng.normal(size=n))
    return frame.assign(noise_sd=3.0 * frame["noise_sd"])


def _carriers(rng: np.random.Generator, n: int) -> Frame:
    carrier = rng.integers(0, 8, n)
    score = rng.beta(4.0, 8.0, n)
    shift = np.linspace(-0.6, 0.6, 8)[carrier]
    mean = 1.0 / (1.0 + (1.0 - score) / score * np.exp(-shift))
    trials = np.ceil(rng.lognormal(3.0, 1.0, n)).astype(int)
    successes = rng.binomial(trials, rng.beta(30.0 * mean, 30.0 * (1.0 - mean)))
    columns = {"score": score, "trials": trials, "successes": successes}
    return pd.DataFrame(columns | {"carrier": [f"k{k}" for k in carrier]})


def _by_trials(rng: np.random.Generator, n: int) -> Frame:
    frame = _carriers(rng, n).drop(columns="carrier")
    odds = frame["score"] / (1 - frame["score"]) * (frame["trials"] / 20) ** -0.4
    mean = odds / (1.0 + odds)
    theta = rng.beta(30.0 * mean, 30.0 * (1.0 - mean))
    return frame.assign(successes=rng.binomial(frame["trials"], theta))


_STIFF = soc.Gamma(mean=soc.Spline(knots=4))
_POOR = soc.GammaMixture(functions=4, knots=1, shape=0.05, drift=0.05)
CAUSES: Mapping[str, Cause] = {
    "exposure": Cause(common.counts, _by_exposure, (("size", "exposure"),)),
    "zeros": Cause(common.counts, _zeros, (("zeros", ""),)),
    "populations": Cause(common.counts, _two_populations, (("shape", ""),)),
    "poor mixture": Cause(common.counts, _two_populations, (("shape", ""),), _POOR),
    "wiggle": Cause(common.counts, _wiggle, (("knots", "score"),), _STIFF),
    "campaigns": Cause(common.counts, _campaigns, (("levels", "campaign"),)),
    "default score": Cause(common.counts, _default_score, (("atoms", "score"),)),
    "listed": Cause(common.counts, _listed, (("absent zeros", ""),)),
    "heavy tails": Cause(common.values, _heavy_tails, (("shape", ""),)),
    "gross errors": Cause(common.values, _gross_errors, (("outliers", ""),)),
    "estimated sds": Cause(common.values, _estimated_sds, (("noise sds", "noise_sd"),)),
    "noise": Cause(common.values, _by_noise, (("size", "noise_sd"),)),
    "single noise": Cause(common.values, _single_noise, (("noise", ""),)),
    "carriers": Cause(common.trials, _carriers, (("levels", "carrier"),)),
    "trials": Cause(common.trials, _by_trials, (("size", "trials"),)),
}


def followed(cause: Cause, n_items: int, seed: int) -> dict[str, Any]:
    """Fit and check half of a table, follow the first advice, and predict the other half."""
    rng = np.random.default_rng([seed, n_items])
    frame = cause.table(rng, 2 * n_items)
    halves = [cause.items(part) for part in (frame[:n_items], frame[n_items:])]
    train, test = (replace(half, source=half.source.reset_index(drop=True)) for half in halves)
    fit = _fit(train, cause.prior)
    remedies = soc.check(fit, train, progress=False).remedies
    first = remedies[0]
    row = {"advice": f"{first.check} {first.column}".strip(), "claimed": first.nats}
    row |= {"error": first.error}
    row |= dict.fromkeys(("compared", "gained", "se"), np.nan)
    row |= {"named": (first.check, first.column) in cause.named}
    if first.prior is not None or first.roles:
        plain = _left_out(fit, train)
        train, test = (replace(items, **first.roles) for items in (train, test))
        better = _fit(train, first.prior or cause.prior)
        gain = _log_density(better, test) - _log_density(fit, replace(test, **_plain(first)))
        row |= {"gained": gain.sum(), "se": gain.std() * np.sqrt(len(gain))}
        row |= {"compared": _left_out(better, train) - plain}
    return row | {"next": [f"{x.check} {x.column}:{x.nats:.0f}" for x in remedies[1:4]]}


def _plain(remedy: Any) -> dict[str, Any]:
    """The roles before a remedy."""
    return {role: False if value is True else None for role, value in remedy.roles.items()}


def _fit(items: Any, prior: Any) -> soc.Fit:
    return common.fitted(items, prior, joint=True, on_leakage="ignore")


def _log_density(fit: soc.Fit, items: Any) -> np.ndarray:
    return posterior_of(fit).log_mean_density(observe(fit.curves, items).columns)


def _left_out(fit: soc.Fit, items: Any) -> float:
    return leave_one_out(posterior_of(fit), observe(fit.curves, items)).elpd


def main() -> None:
    small = {"causes": ["zeros"], "items": 800, "seeds": [0]}
    chosen = common.options(
        __doc__, small, causes=common.Choice(CAUSES), items=4000, seeds=(0, 1, 2)
    )
    rows = []
    for name in chosen.causes:
        for seed in chosen.seeds:
            row = followed(CAUSES[name], chosen.items, seed)
            rows.append({"cause": name, "seed": seed} | row)
            print(rows[-1], flush=True)
    common.show(pd.DataFrame(rows).drop(columns="next"))
