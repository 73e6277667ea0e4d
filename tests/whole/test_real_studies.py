"""Real data are prepared as in the publications: counts and published figures come out again."""

import numpy as np
import pandas as pd
import pytest

from tests.studies import batting, chetty


def test_players_of_brown_2008(real_data):
    """Counts as published; the error of the overall mean to the published digits (1e-3)."""
    table = batting.players(real_data)
    assert (len(table), table["value2"].notna().sum()) == (567, 499)
    fielders = table[table["pitcher"] == 0].reset_index(drop=True)
    for name, players in (("all players", table), ("nonpitchers", fielders)):
        error, published = batting.plain_rules(players), batting.PUBLISHED[name]
        assert error["overall mean"] == pytest.approx(published["overall mean"], abs=1e-3)


def test_normalised_error_by_hand():
    """First player: error .04 less noise .01; second is not validated; naive: .09 less .01."""
    table = pd.DataFrame({"value": [0.8, 3.0], "value2": [0.5, np.nan], "noise_sd2": [0.1, np.nan]})
    assert batting.normalised_error(table, np.array([0.7, 9.0])) == pytest.approx(0.03 / 0.08)


def test_zones_of_chetty(real_data):
    table, dropped = chetty.zones(real_data)
    assert (len(table), dropped) == (595, 146)
    unshrunk = 1.6448536 * table["noise_sd"].mean()
    assert unshrunk == pytest.approx(chetty.PUBLISHED["unshrunk"], abs=5e-5)
