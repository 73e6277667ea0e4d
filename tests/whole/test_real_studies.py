"""Real data are prepared as in the publications: counts and published figures come out again."""

import numpy as np
import pandas as pd
import pytest

from tests.studies import batting, chetty


def test_players_of_brown_2008(real_data):
    table = batting.players(real_data)
    assert len(table) == 567
    assert table["value2"].notna().sum() == 499
    assert (table["at_bats"] >= 11).all()
    assert (table["at_bats2"][table["value2"].notna()] >= 11).all()


@pytest.mark.parametrize("name", ["all players", "nonpitchers"])
def test_errors_of_brown_2008(real_data, name):
    """The overall mean to the published digits (1e-3); likelihood and James-Stein to 3%: their
    table leaves open which mean and degrees of freedom they took."""
    table = batting.players(real_data)
    if name == "nonpitchers":
        table = table[table["pitcher"] == 0].reset_index(drop=True)
    found, published = batting.plain_rules(table), batting.PUBLISHED[name]
    assert found["naive"] == 1.0
    assert found["overall mean"] == pytest.approx(published["overall mean"], abs=1e-3)
    for rule in ("parametric EB, likelihood", "James-Stein"):
        assert found[rule] == pytest.approx(published[rule], rel=0.035)


def test_normalised_error_by_hand():
    """First player: error .04 less noise .01; second is not validated; naive: .09 less .01."""
    table = pd.DataFrame({"value": [0.8, 3.0], "value2": [0.5, np.nan], "noise_sd2": [0.1, np.nan]})
    assert batting.normalised_error(table, np.array([0.7, 9.0])) == pytest.approx(0.03 / 0.08)


def test_zones_of_chetty(real_data):
    table, dropped = chetty.zones(real_data)
    assert (len(table), dropped) == (595, 146)
    unshrunk = 1.6448536 * table["noise_sd"].mean()
    assert unshrunk == pytest.approx(chetty.PUBLISHED["unshrunk"], abs=5e-5)
    slope, level = np.polyfit(table["score"], table["value"], 1, w=1 / table["noise_sd"])
    assert (slope, level) == pytest.approx((0.03245, -1.4408), rel=1e-3)
