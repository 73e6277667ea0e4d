"""Decisions name their answers by the items' ids, whatever these are."""

import numpy as np

import soc_pymc as soc


def test_text_ids_name_the_answers():
    """Ids of text name the answers; no folds are made of them."""
    frame = soc.simulation.s1(400, seed=0)
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    items = soc.PoissonItems(frame, **roles)
    stats = soc.summarize(items, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    few = frame.head(6).assign(ad=[f"ad {k}" for k in "fabedc"])

    named = soc.PoissonItems(few, **roles, id="ad")
    by_name = soc.decisions.probability_above(fit, named, 0.05, progress=False)
    plain = soc.PoissonItems(few, **roles)
    by_row = soc.decisions.probability_above(fit, plain, 0.05, progress=False)
    assert list(by_name.index) == list(few["ad"])
    assert by_name.index.name == "ad"
    np.testing.assert_array_equal(by_name, by_row)  # the same numbers, in the items' order

    theta = soc.decisions.thompson_draws(fit, named, 2, progress=False)
    assert list(theta["item"].to_numpy()) == list(few["ad"])
