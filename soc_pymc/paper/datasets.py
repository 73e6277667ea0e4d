"""Data sets for examples: small published tables, and real ones where they are found.

Real files are not part of the package. Each function looks for its file in the folder that the
environment variable ``SOC_PYMC_DATA`` names, then in `cache_folder`, and else simulates a stand-in
of the same columns and of like size and shape. ``frame.attrs["source"]`` says in a sentence what
the table is, ``frame.attrs["simulated"]`` whether it is a stand-in. A file that is there and cannot
be read as that table raises `soc.ItemsError`.

>>> import soc_pymc as soc
>>> soc.datasets.batters().attrs["source"]
'Batting averages of 18 players in 1970, real: Efron and Morris (1975), Table 1.'
"""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arguments import SEED
from .._lib.arrays import Floats
from .._lib.errors import ItemsError

__all__ = ["batters", "batting", "cache_folder", "keywords", "motor_policies", "neighbourhoods"]

_log = logging.getLogger(__name__)

_FOLDER = "SOC_PYMC_DATA"


def __dir__() -> list[str]:
    return sorted(__all__)


def cache_folder() -> Path:
    r"""Folder of the user's cache in which data files are looked for; it need not exist.

    Returns
    -------
    pathlib.Path
        ``$XDG_CACHE_HOME/soc_pymc`` (by default ``~/.cache/soc_pymc``) on Linux,
        ``~/Library/Caches/soc_pymc`` on macOS, ``%LOCALAPPDATA%\soc_pymc\Cache`` on Windows.

    Examples
    --------
    >>> "soc_pymc" in cache_folder().parts
    True
    """
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
        return base / "soc_pymc" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "soc_pymc"
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "soc_pymc"


_AT_BATS = 45
# Player, hits in the first 45 at-bats of 1970, at-bats and batting average in the rest of it.
_PLAYERS = (
    ("Roberto Clemente", 18, 367, 0.346),
    ("Frank Robinson", 17, 426, 0.298),
    ("Frank Howard", 16, 521, 0.276),
    ("Jay Johnstone", 15, 275, 0.222),
    ("Ken Berry", 14, 418, 0.273),
    ("Jim Spencer", 14, 466, 0.270),
    ("Don Kessinger", 13, 586, 0.263),
    ("Luis Alvarado", 12, 138, 0.210),
    ("Ron Santo", 11, 510, 0.269),
    ("Ron Swoboda", 11, 200, 0.230),
    ("Del Unser", 10, 277, 0.264),
    # of the White Sox; some copies of the table take him for Billy Williams of the Cubs
    ("Walt Williams", 10, 270, 0.256),
    ("George Scott", 10, 435, 0.303),
    ("Rico Petrocelli", 10, 538, 0.264),
    ("Ellie Rodriguez", 10, 186, 0.226),
    ("Bert Campaneris", 9, 558, 0.285),
    ("Thurman Munson", 8, 408, 0.316),
    ("Max Alvis", 7, 70, 0.200),
)


def batters() -> pd.DataFrame:
    """Hits of 18 baseball players in their first 45 at-bats of 1970, and how they batted later.

    The classic example of shrinkage: predict the average of the rest of the season from 45
    at-bats. A player's average y is about Normal around his ability after the transformation
    sqrt(45) arcsin(2y - 1), with variance 1. The table is part of the package.

    Returns
    -------
    pandas.DataFrame
        18 rows; columns player, hits, at_bats (45), later_at_bats and later_average (hits over
        at-bats in the rest of the season, to three digits as published).

    References
    ----------
    Efron and Morris (1975), Data analysis using Stein's estimator and its generalizations, Journal
    of the American Statistical Association 70, 311-319, Table 1.

    Examples
    --------
    >>> frame = batters()
    >>> int(frame["hits"].sum()), int(frame["at_bats"].sum())
    (215, 810)
    """
    frame = pd.DataFrame(_PLAYERS, columns=["player", "hits", "later_at_bats", "later_average"])
    frame.insert(2, "at_bats", _AT_BATS)
    source = "Batting averages of 18 players in 1970, real: Efron and Morris (1975), Table 1."
    frame.attrs = {"source": source, "simulated": False}
    return frame


def keywords(seed: int = 0) -> pd.DataFrame:
    """Clicks on search advertisements, by keyword and week.

    The score is the keyword's click rate over the four weeks before, shrunk to the mean with 25
    pseudo-impressions, so it has not seen the clicks of its week.

    Parameters
    ----------
    seed
        Seed of the stand-in, which scores simulated keywords in the same way.

    Returns
    -------
    pandas.DataFrame
        43,344 rows, 903 keywords in 48 weeks; columns keyword_id, week, score (clicks per
        impression), clicks and impressions (whole, at least 2).

    References
    ----------
    R package FunRegPoI, data set ``adwords``, of Crealytics GmbH.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.datasets.keywords()
    >>> items = soc.PoissonItems(frame, score="score", count="clicks", exposure="impressions")
    >>> len(frame), list(frame.columns)
    (43344, ['keyword_id', 'week', 'score', 'clicks', 'impressions'])
    """
    return _KEYWORDS.load(seed)


def motor_policies(seed: int = 0) -> pd.DataFrame:
    """Third-party claims of motor policies, with out-of-fold scores.

    The score of the real policies is the yearly frequency by a gradient-boosted Poisson regression
    on other policies. A policy makes few claims, so single outcomes say little: what the data show
    is the variance over policies of one score. Short exposures have more claims a year.

    Parameters
    ----------
    seed
        Seed of the stand-in.

    Returns
    -------
    pandas.DataFrame
        678,007 rows (the stand-in has 100,000); columns policy_id, area, region, score (claims a
        year), claims (at most 5) and exposure_years.

    References
    ----------
    R package CASdatasets, data set ``freMTPL2freq``; claims recounted from the severity table.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> list(soc.datasets.motor_policies().columns)
    ['policy_id', 'area', 'region', 'score', 'claims', 'exposure_years']
    """
    return _POLICIES.load(seed)


def neighbourhoods(seed: int = 0) -> pd.DataFrame:
    """Effects of US commuting zones on the income of children who grow up there.

    Values with known noise: `theta25` estimates the effect of a year of childhood on the adult
    income of children at the 25th percentile, in percent, with standard error `se25`; the score
    `stayer25` is the mean income rank of children of permanent residents.

    Parameters
    ----------
    seed
        Seed of the stand-in.

    Returns
    -------
    pandas.DataFrame
        595 rows, the zones with a score, an effect and a standard error; columns cz (the zone's
        number), czname, state, pop (people), stayer25 (percentile), theta25 and se25.

    References
    ----------
    Chetty and Hendren (2018), The impacts of neighborhoods on intergenerational mobility II,
    Quarterly Journal of Economics 133, 1163-1228; R package ebci, data set ``cz``.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.datasets.neighbourhoods()
    >>> items = soc.NormalItems(frame, score="stayer25", value="theta25", noise_sd="se25")
    >>> len(frame), bool((frame["se25"] > 0).all())
    (595, True)
    """
    return _ZONES.load(seed)


def batting(seed: int = 0) -> pd.DataFrame:
    """At-bats and hits of a baseball season in two halves: estimate on one, validate on the other.

    Parameters
    ----------
    seed
        Seed of the stand-in.

    Returns
    -------
    pandas.DataFrame
        929 rows; columns player, pitcher (whether), at_bats and hits (April to June), later_at_bats
        and later_hits (July to October). Some have no at-bats in a half.

    References
    ----------
    Brown (2008), In-season prediction of batting averages, Annals of Applied Statistics 2, 113-152.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.datasets.batting()
    >>> bool((frame["hits"] <= frame["at_bats"]).all()), len(frame)
    (True, 929)
    """
    return _BATTING.load(seed)


@dataclass(frozen=True, eq=False)
class _Dataset:
    """A data set that is read where its file is found, and simulated where it is not."""

    file: str  # Parquet or CSV
    columns: str  # names and types, of the real table and of the stand-in
    title: str  # what the rows are, to begin the sentence on the source
    published: str  # where the real data come from, with the licence stated there
    simulate: Callable[[np.random.Generator], pd.DataFrame]
    tidy: Callable[[pd.DataFrame], pd.DataFrame] = lambda raw: raw  # the file's columns to ours

    def load(self, seed: int) -> pd.DataFrame:
        """The real table if its file is found, else a stand-in from a seed."""
        SEED(seed, "seed")
        path = _find(self.file)
        if path is None:
            frame = self._typed(self.simulate(np.random.default_rng(seed)))
            source = (
                f"{self.title}, a simulated stand-in of {len(frame):,} rows: no {self.file} in "
                f"${_FOLDER} or the user's cache."
            )
            _log.info(source)
        else:
            frame = self._read(path)
            source = f"{self.title}, real: {self.published}."
        frame.attrs = {"source": source, "simulated": path is None}
        return frame

    def _read(self, path: Path) -> pd.DataFrame:
        reader = pd.read_parquet if path.suffix == ".parquet" else pd.read_csv
        try:
            return self._typed(self.tidy(reader(path)))
        except Exception as error:  # whatever a damaged file makes the reader raise
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise ItemsError(
                f"{path} does not hold {self.title} ({why}): put the right file in its place, or "
                "take it away for a simulated stand-in"
            ) from error

    def _typed(self, frame: pd.DataFrame) -> pd.DataFrame:
        types = dict(column.split() for column in self.columns.split(", "))
        return frame[list(types)].astype(types).reset_index(drop=True)


def _find(file: str) -> Path | None:
    """The file in the folder of the environment variable, or in the cache."""
    named = os.environ.get(_FOLDER)
    folders = [*([Path(named)] if named else []), cache_folder()]
    return next((folder / file for folder in folders if (folder / file).is_file()), None)


def _complete(raw: pd.DataFrame) -> pd.DataFrame:
    return raw.dropna(subset=["stayer25", "theta25", "se25"])


def _halves(raw: pd.DataFrame) -> pd.DataFrame:
    """Halves of the season from the file's months."""
    early, late = ("4", "5", "6"), ("7", "8", "9-10")
    return pd.DataFrame(
        {
            "player": raw["First Name"] + " " + raw["Last Name"],
            "pitcher": raw["Pitcher?"],
            "at_bats": raw[[f"AB({m})" for m in early]].sum(axis=1),
            "hits": raw[[f"H({m})" for m in early]].sum(axis=1),
            "later_at_bats": raw[[f"AB({m})" for m in late]].sum(axis=1),
            "later_hits": raw[[f"H({m})" for m in late]].sum(axis=1),
        }
    )


# --- stand-ins: the columns of the real tables, with like sizes and shapes ------------------------

# constants are rounded summaries of the real tables: medians, spreads, slopes, shares
_N_KEYWORDS, _WEEKS, _BEFORE = 903, 52, 4
_PSEUDO = 25  # pseudo-impressions to which a score is shrunk
_N_POLICIES = 100_000
_AREAS = {"A": 0.15, "B": 0.11, "C": 0.28, "D": 0.23, "E": 0.2, "F": 0.03}
_REGIONS = 22
_N_ZONES, _LEAST_POP = 595, 25_000
_STATES = ("AL", "CA", "CO", "FL", "GA", "IL", "MI", "MN", "NC", "NY", "OH", "PA", "TX", "VA", "WA")
_N_PLAYERS, _N_PITCHERS = 929, 301


def _simulate_keywords(rng: np.random.Generator) -> pd.DataFrame:
    """Keywords whose click rates and impressions vary from week to week, scored by four weeks."""
    shape = (_N_KEYWORDS, _WEEKS)
    level = rng.normal(size=_N_KEYWORDS)
    # much seen keywords have lower rates, as in the real table
    size = rng.normal(4.6 - 0.25 * level, 1.15)
    impressions = np.maximum(np.exp(rng.normal(size[:, None], 0.5, shape)), 2).astype(np.int64)
    rate = np.exp(-4.1 + 1.15 * level)[:, None] * rng.gamma(8.0, 1 / 8.0, shape)
    clicks = np.minimum(rng.poisson(rate * impressions), impressions)
    mean = clicks.sum() / impressions.sum()
    score = (_before(clicks) + _PSEUDO * mean) / (_before(impressions) + _PSEUDO)
    later = (slice(None), slice(_BEFORE, None))
    week, keyword = np.meshgrid(np.arange(_BEFORE, _WEEKS), np.arange(_N_KEYWORDS))
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


def _simulate_motor_policies(rng: np.random.Generator) -> pd.DataFrame:
    """Policies of skewed scores, a quarter seen for a year, short ones with higher frequencies."""
    n = _N_POLICIES
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


def _simulate_neighbourhoods(rng: np.random.Generator) -> pd.DataFrame:
    """Zones whose standard errors fall with the population; effects with heavy tails."""
    n = _N_ZONES
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


def _simulate_batting(rng: np.random.Generator) -> pd.DataFrame:
    """Players of whom the better bat more, and pitchers, who bat seldom and worse."""
    pitcher = np.arange(_N_PLAYERS) < _N_PITCHERS
    skill = rng.normal(size=_N_PLAYERS)
    use = 0.6 * skill + 0.8 * rng.normal(size=_N_PLAYERS)
    at_bats, later = (_at_bats(use + 0.5 * rng.normal(size=_N_PLAYERS), pitcher) for _ in range(2))
    odds = np.where(pitcher, -1.75 + 0.2 * skill, -1.07 + 0.12 * skill)
    ability = 1 / (1 + np.exp(-odds))
    order = rng.permutation(_N_PLAYERS)
    return pd.DataFrame(
        {
            "player": [f"Player {k}" for k in range(1, _N_PLAYERS + 1)],
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


# --- the tables, real or simulated ----------------------------------------------------------------

_KEYWORDS = _Dataset(
    "adwords_items.parquet",
    "keyword_id int64, week int64, score float64, clicks int64, impressions int64",
    "Search-ad keywords by week",
    "Crealytics GmbH, 2012-04 to 2013-03, from the R package FunRegPoI (GPL-3)",
    _simulate_keywords,
)
_POLICIES = _Dataset(
    "fremtpl2_items.parquet",
    "policy_id int64, area str, region str, score float64, claims int64, exposure_years float64",
    "French motor policies",
    "freMTPL2freq from the R package CASdatasets (GPL >= 2), scored out of fold",
    _simulate_motor_policies,
)
_ZONES = _Dataset(
    "chetty_cz.csv",
    "cz int64, czname str, state str, pop float64, stayer25 float64, theta25 float64, se25 float64",
    "Neighbourhood effects of commuting zones",
    "Chetty and Hendren (2018), from the R package ebci (MIT)",
    _simulate_neighbourhoods,
    _complete,
)
_BATTING = _Dataset(
    "brown2008_batting.csv",
    "player str, pitcher bool, at_bats int64, hits int64, later_at_bats int64, later_hits int64",
    "Batting in the season of 2005",
    "Brown (2008), Annals of Applied Statistics 2, 113-152",
    _simulate_batting,
    _halves,
)
