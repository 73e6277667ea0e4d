"""Data sets: facts as published."""

import numpy as np
import pytest

import soc_pymc as soc


def test_batters_are_those_of_efron_and_morris():
    """Their transformed sums: S = 18.96, shrinkage .791, squared errors 17.56 and 5.01.

    Averages have three digits, which leaves .02 of rounding; later hits are whole.
    """
    frame = soc.datasets.batters()
    assert len(frame) == frame["player"].nunique() == 18
    assert frame["hits"].sum() == 215
    x, truth = (
        np.sqrt(45) * np.arcsin(2 * rate - 1)
        for rate in (frame["hits"] / frame["at_bats"], frame["later_average"])
    )
    spread = ((x - x.mean()) ** 2).sum()
    assert spread == pytest.approx(18.96, abs=5e-3)
    assert 15 / spread == pytest.approx(0.791, abs=5e-4)
    shrunk = x.mean() + (1 - 15 / spread) * (x - x.mean())
    errors = [((estimate - truth) ** 2).sum() for estimate in (x, shrunk)]
    assert errors == pytest.approx([17.56, 5.01], abs=0.02)
    hits = (frame["later_average"] * frame["later_at_bats"]).round()
    assert ((hits / frame["later_at_bats"] - frame["later_average"]).abs() <= 5e-4).all()
