"""The first advice of `soc.check`, when it is followed, makes the check pass."""

import re

import numpy as np
import pytest

import soc_pymc as soc
from tests.checks.hand_made import simulate
from tests.examples import COUNT_ROLES, QUIET
from tests.thinning import thinned

CODE = re.compile(r"soc\.Gamma\w*\((?:[^()]|\([^()]*\))*\)")
LABEL = re.compile(r"(group|cluster)='(\w+)'")
STIFF = soc.Gamma(mean=soc.Spline(knots=2))


def with_effect(frame, effect):
    """Returns counts whose rates are multiplied by an effect, which no score knows."""
    rng = np.random.default_rng(0)
    return frame.assign(count=rng.poisson(frame["theta"] * effect * frame["exposure"]))


def lognormal(rng, mean, variance):
    """Returns theta with a tail much longer than a Gamma's."""
    return mean * rng.lognormal(-0.72, 1.2, len(mean))


def faulty_frame(fault):
    """Returns counts with one departure from a Gamma that is smooth in the score."""
    if fault == "shape":
        return simulate(6000, 4, theta=lognormal)
    frame, rng = simulate(4000, 4), np.random.default_rng(1)
    shop = rng.integers(0, 200, 4000)
    frame = frame.assign(kind=rng.choice(list("abc"), 4000), shop=[f"shop {k}" for k in shop])
    effects = {
        "exposure": np.exp(0.2 * np.log(frame["exposure"] / 6)),
        "zeros": rng.random(4000) > 0.3,
        "level": np.where(frame["kind"] == "b", 1.6, 0.75),
        "cluster": np.exp(rng.normal(0.0, 0.7, 200))[shop],
        "wiggle": np.exp(0.8 * np.sin(4.0 * np.log(frame["score"]))),
        "bias": 1.3,
    }
    return with_effect(frame, effects[fault])


REMEDIES = [
    ("exposure", "soc.Gamma(exposure=soc.Spline())"),
    ("shape", "soc.GammaMixture()"),
    ("zeros", "soc.Gamma(zero=True)"),
    ("level", "group='kind'"),
    ("cluster", "cluster='shop'"),
    ("wiggle", "more knots"),
    ("bias", "fit again"),
]


@pytest.mark.parametrize(("fault", "first"), thinned(REMEDIES, REMEDIES[3:4]))
def test_the_first_advice_makes_the_check_pass(fault, first):
    roles, prior = dict(COUNT_ROLES), STIFF if fault == "wiggle" else soc.Gamma()
    frame = faulty_frame(fault)

    def fitted(table):
        items = soc.PoissonItems(table, **roles)
        stats = soc.summarize(items, bins=100, on_leakage="ignore", **QUIET)
        return soc.fit(stats, prior, **QUIET), stats, items

    options = {"by": "kind" if fault == "level" else (), "subset": 500, **QUIET}
    old, stats, _ = fitted(simulate(4000, 5) if fault == "bias" else frame)
    before = soc.check(old, soc.PoissonItems(frame, **roles), **options)
    assert ("fail" in set(before.table["verdict"])) == (fault != "cluster")
    advice = before.advice[0]
    assert first in advice
    if label := LABEL.search(advice):
        roles[label[1]] = label[2]
    elif code := CODE.search(advice):
        prior = eval(code[0], {"soc": soc})
    new, _, items = fitted(frame)
    after = soc.check(new, items, **options)
    assert "fail" not in set(after.table["verdict"]), (advice, after)
    if fault == "shape":
        table = soc.compare({"old": old, "new": new}, stats, **QUIET)
        assert table["elpd_diff"]["old"] < -2 * table["dse"]["old"] < 0
