"""Simulated tables in place of real ones: same columns, like sizes, like shapes.

Constants are rounded summaries of the real tables: medians, spreads, slopes, shares.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arrays import Floats

_KEYWORDS, _WEEKS, _BEFORE = 903, 52, 4
_PSEUDO = 25  # pseudo-impressions to which a score is shrunk

_POLICIES = 100_000
_AREAS = {"A": 0.15, "B": 0.11, "C": 0.28, "D": 0.23, "E": 0.2, "F": 0.03}
_REGIONS = 22

_ZONES, _LEAST_POP = 595, 25_000
_STATES = ("AL", "CA", "CO", "FL", "GA", "IL", "MI", "MN", "NC", "NY", "OH", "PA", "TX", "VA", "WA")

_PLAYERS, _PITCHERS = 929, 301


def keywords(rng: np.random.Generator) -> pd.DataFrame:
    """Keywords whose click rates and impressions vary from week to week, scored by four weeks."""
    shape = (_KEYWORDS, _WEEKS)
    level = rng.normal(size=_KEYWORDS)
    # much seen keywords have lower rates, as in the real table
    size = rng.normal(4.6 - 0.25 * level, 1.15)
    impressions = np.maximum(np.exp(rng.normal(size[:, None], 0.5, shape)), 2).astype(np.int64)
    rate = np.exp(-4.1 + 1.15 * level)[:, None] * rng.gamma(8.0, 1 / 8.0, shape)
    clicks = np.minimum(rng.poisson(rate * impressions), impressions)
    mean = clicks.sum() / impressions.sum()
    score = (_before(clicks) + _PSEUDO * mean) / (_before(impressions) + _PSEUDO)
    later = (slice(None), slice(_BEFORE, None))
    week, keyword = np.meshgrid(np.arange(_BEFORE, _WEEKS), np.arange(_KEYWORDS))
    # the real table is in the order of weeks
    return pd.DataFrame(
        {
            "keyword_id": 1 + keyword.T.ravel(),
            "week": week.T.ravel(),
            "score": score.T.ravel(),
            "clicks": clicks[later].T.ravel(),
            "impressions": impressions[later].T.ravel(),
        }
    )


def _before(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums over the weeks before each, shape (keywords, weeks except for the first ones)."""
    total = np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1)
    return np.asarray(total[:, _BEFORE:-1] - total[:, : -_BEFORE - 1])


def motor_policies(rng: np.random.Generator) -> pd.DataFrame:
    """Policies of skewed scores, a quarter seen for a year, short ones with higher frequencies."""
    n = _POLICIES
    score = np.clip(np.exp(-2.98 + 0.4 * rng.gumbel(size=n)), 0.009, 1.1)
    exposure = np.maximum(np.round(rng.uniform(0, 1, n), 2), 1 / 365)
    exposure[rng.uniform(size=n) < 0.25] = 1.0
    theta = score * (0.85 + 0.05 / exposure) * rng.gamma(1.0, 1.0, n)
    return pd.DataFrame(
        {
            "policy_id": np.arange(1, n + 1),
            "area": rng.choice(list(_AREAS), n, p=list(_AREAS.values())),
            "region": [f"R{k:02d}" for k in rng.geometric(0.2, n) % _REGIONS],
            "score": score,
            "claims": np.minimum(rng.poisson(theta * exposure), 5),
            "exposure_years": exposure,
        }
    )


def neighbourhoods(rng: np.random.Generator) -> pd.DataFrame:
    """Zones whose standard errors fall with the population; effects with heavy tails."""
    n = _ZONES
    log_pop = np.maximum(rng.normal(12.1, 1.2, n), np.log(_LEAST_POP))
    noise_sd = np.exp(5.57 - 0.545 * log_pop + rng.normal(0, 0.3, n))
    score = 46.2 - 1.8 * (log_pop - 12.1) + rng.normal(0, 4.7, n)
    effect = -1.44 + 0.0325 * score + 0.08 * rng.standard_t(4, n)
    return pd.DataFrame(
        {
            "cz": 100 * np.arange(1, n + 1),
            "czname": [f"Zone {k}" for k in range(1, n + 1)],
            "state": rng.choice(_STATES, n),
            "pop": np.round(np.exp(log_pop)),
            "stayer25": score,
            "theta25": effect + rng.normal(0, noise_sd),
            "se25": noise_sd,
        }
    )


def batting(rng: np.random.Generator) -> pd.DataFrame:
    """Players of whom the better bat more, and pitchers, who bat seldom and worse."""
    pitcher = np.arange(_PLAYERS) < _PITCHERS
    skill = rng.normal(size=_PLAYERS)
    use = 0.6 * skill + 0.8 * rng.normal(size=_PLAYERS)
    at_bats, later = (_at_bats(use + 0.5 * rng.normal(size=_PLAYERS), pitcher) for _ in range(2))
    odds = np.where(pitcher, -1.75 + 0.2 * skill, -1.07 + 0.12 * skill)
    ability = 1 / (1 + np.exp(-odds))
    order = rng.permutation(_PLAYERS)
    return pd.DataFrame(
        {
            "player": [f"Player {k}" for k in range(1, _PLAYERS + 1)],
            "pitcher": pitcher[order],
            "at_bats": at_bats[order],
            "hits": rng.binomial(at_bats, ability)[order],
            "later_at_bats": later[order],
            "later_hits": rng.binomial(later, ability)[order],
        }
    )


def _at_bats(use: Floats, pitcher: NDArray[np.bool_]) -> NDArray[np.int64]:
    """At-bats of a half: none for the least used, up to 340 for fielders and 45 for pitchers."""
    most, shift = np.where(pitcher, 45, 340), np.where(pitcher, -0.8, -0.4)
    share = 1.3 / (1 + np.exp(-(1.6 * use + shift))) - 0.2
    return np.asarray(np.round(most * np.clip(share, 0, 1)), dtype=np.int64)
