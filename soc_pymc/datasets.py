"""Published tables for examples, as facts in the source."""

import pandas as pd

__all__ = ["batters"]

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
    """Return the hits of 18 baseball players in 45 at-bats of 1970, and how they batted later.

    The classic example of shrinkage. A player's average y is about Normal around his ability after
    the transformation sqrt(45) arcsin(2y - 1), with variance 1.

    Returns
    -------
    pandas.DataFrame
        18 rows; columns player, hits, at_bats (45), later_at_bats and later_average (hits over
        at-bats in the rest of the season, to three digits as published).

    References
    ----------
    .. [1] Efron and Morris (1975), Data analysis using Stein's estimator, JASA 70, 311-319.

    Examples
    --------
    >>> frame = batters()
    >>> int(frame["hits"].sum()), int(frame["at_bats"].sum())
    (215, 810)
    """
    frame = pd.DataFrame(
        _PLAYERS, columns=["player", "hits", "later_at_bats", "later_average"]
    )
    frame.insert(2, "at_bats", 45)
    return frame
