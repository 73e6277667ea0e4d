"""Data sets for examples: small published tables, and real ones where they are found.

Real files are not part of the package. Each function looks for its file in the folder that the
environment variable ``SOC_PYMC_DATA`` names, then in `cache_folder`, and else simulates a stand-in
of the same columns and of like size and shape. ``frame.attrs["source"]`` says in a sentence what
the table is, ``frame.attrs["simulated"]`` whether it is a stand-in.

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

from .._lib.arguments import SEED
from .._lib.errors import ItemsError
from . import stand_ins

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
    frame.attrs["source"] = (
        "Batting averages of 18 players in 1970, real: Efron and Morris (1975), Table 1."
    )
    frame.attrs["simulated"] = False
    return frame


def keywords(seed: int = 0) -> pd.DataFrame:
    """Clicks on search advertisements, by keyword and week.

    The score is the keyword's click rate over the four weeks before, shrunk to the mean with 25
    pseudo-impressions, so it has not seen the clicks of its week.

    Parameters
    ----------
    seed
        Seed of the stand-in, which plays the same game: keywords whose click rates vary by week,
        observed for 52 weeks and scored by the four weeks before. Of no effect on real data.

    Returns
    -------
    pandas.DataFrame
        43,344 rows, 903 keywords in 48 weeks; columns keyword_id, week, score (clicks per
        impression), clicks and impressions (whole, at least 2). ``attrs["source"]`` says whether
        they are real.

    Raises
    ------
    ItemsError
        If there is a file ``adwords_items.parquet`` that cannot be read.

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
    on other policies. A policy makes few claims in less than a year, so that single outcomes say
    little: it is the variance over policies of one score that these data tell of. Short exposures
    claim more by the year than others of their score.

    Parameters
    ----------
    seed
        Seed of the stand-in. Of no effect on real data.

    Returns
    -------
    pandas.DataFrame
        678,007 rows (the stand-in has 100,000); columns policy_id, area, region, score (claims a
        year), claims (at most 5) and exposure_years. ``attrs["source"]`` says whether they are
        real.

    Raises
    ------
    ItemsError
        If there is a file ``fremtpl2_items.parquet`` that cannot be read.

    References
    ----------
    R package CASdatasets, data set ``freMTPL2freq``; claims recounted from the severity table.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.datasets.motor_policies()
    >>> list(frame.columns)
    ['policy_id', 'area', 'region', 'score', 'claims', 'exposure_years']
    >>> bool(frame["exposure_years"].between(0.002, 2.02).all())
    True
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
        Seed of the stand-in. Of no effect on real data.

    Returns
    -------
    pandas.DataFrame
        595 rows, the zones with a score, an effect and a standard error; columns cz (the zone's
        number), czname, state, pop (people), stayer25 (percentile), theta25 and se25.
        ``attrs["source"]`` says whether they are real.

    Raises
    ------
    ItemsError
        If there is a file ``chetty_cz.csv`` that cannot be read.

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
        Seed of the stand-in. Of no effect on real data.

    Returns
    -------
    pandas.DataFrame
        929 rows; columns player, pitcher (whether), at_bats and hits (April to June), later_at_bats
        and later_hits (July to October). Some have no at-bats in a half. ``attrs["source"]`` says
        whether they are real.

    Raises
    ------
    ItemsError
        If there is a file ``brown2008_batting.csv`` that cannot be read.

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
    folders = [Path(named)] if named else []
    paths = [folder / file for folder in (*folders, cache_folder())]
    return next((path for path in paths if path.is_file()), None)


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


_KEYWORDS = _Dataset(
    "adwords_items.parquet",
    "keyword_id int64, week int64, score float64, clicks int64, impressions int64",
    "Search-ad keywords by week",
    "Crealytics GmbH, 2012-04 to 2013-03, from the R package FunRegPoI (GPL-3)",
    stand_ins.keywords,
)
_POLICIES = _Dataset(
    "fremtpl2_items.parquet",
    "policy_id int64, area str, region str, score float64, claims int64, exposure_years float64",
    "French motor policies",
    "freMTPL2freq from the R package CASdatasets (GPL >= 2), scored out of fold",
    stand_ins.motor_policies,
)
_ZONES = _Dataset(
    "chetty_cz.csv",
    "cz int64, czname str, state str, pop float64, stayer25 float64, theta25 float64, se25 float64",
    "Neighbourhood effects of commuting zones",
    "Chetty and Hendren (2018), from the R package ebci (MIT)",
    stand_ins.neighbourhoods,
    _complete,
)
_BATTING = _Dataset(
    "brown2008_batting.csv",
    "player str, pitcher bool, at_bats int64, hits int64, later_at_bats int64, later_hits int64",
    "Batting in the season of 2005",
    "Brown (2008), Annals of Applied Statistics 2, 113-152",
    stand_ins.batting,
    _halves,
)
