"""The data sets that are real where their files are found."""

import pandas as pd

from . import _stand_ins
from ._lookup import Dataset

__all__ = ["batting", "keywords", "motor_policies", "neighbourhoods"]


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


def _complete_zones(raw: pd.DataFrame) -> pd.DataFrame:
    return raw[raw[["stayer25", "theta25", "se25"]].notna().all(axis=1)]


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


def _as_it_is(raw: pd.DataFrame) -> pd.DataFrame:
    return raw


_KEYWORDS = Dataset(
    "adwords_items.parquet",
    {
        "keyword_id": "int64",
        "week": "int64",
        "score": "float64",
        "clicks": "int64",
        "impressions": "int64",
    },
    "Search-ad keywords by week",
    "Crealytics GmbH, 2012-04 to 2013-03, from the R package FunRegPoI (GPL-3)",
    _as_it_is,
    _stand_ins.keywords,
)
_POLICIES = Dataset(
    "fremtpl2_items.parquet",
    {
        "policy_id": "int64",
        "area": "str",
        "region": "str",
        "score": "float64",
        "claims": "int64",
        "exposure_years": "float64",
    },
    "French motor policies",
    "freMTPL2freq from the R package CASdatasets (GPL >= 2), scored out of fold",
    _as_it_is,
    _stand_ins.motor_policies,
)
_ZONES = Dataset(
    "chetty_cz.csv",
    {
        "cz": "int64",
        "czname": "str",
        "state": "str",
        "pop": "float64",
        "stayer25": "float64",
        "theta25": "float64",
        "se25": "float64",
    },
    "Neighbourhood effects of commuting zones",
    "Chetty and Hendren (2018), from the R package ebci (MIT)",
    _complete_zones,
    _stand_ins.neighbourhoods,
)
_BATTING = Dataset(
    "brown2008_batting.csv",
    {
        "player": "str",
        "pitcher": "bool",
        "at_bats": "int64",
        "hits": "int64",
        "later_at_bats": "int64",
        "later_hits": "int64",
    },
    "Batting in the season of 2005",
    "Brown (2008), Annals of Applied Statistics 2, 113-152",
    _halves,
    _stand_ins.batting,
)
