"""Extreme but legal items through the public functions: right numbers, one error, or a warning.

Every number that leaves must be finite. What may be NaN by its documentation is left out by name.
"""

import re
import tokenize
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.thinning import thinned

_N = 150
# exact in the limit: a prior of no variance, an item of no exposure, a value of no noise
_FAR_COUNTS = np.array([1e-300, 1e-90, 1e-12, 1e6, 1e9, 1e90])
_FAR_VALUES = np.array([-1e34, -1e9, -1e3, 1e3, 1e9, 1e34])


def _counts():
    """Frames of counts by name."""
    rng = np.random.default_rng(1)
    score = np.exp(rng.normal(-3.0, 1.0, _N))
    theta = score * rng.gamma(2.0, 0.5, _N)
    exposure = np.exp(rng.normal(3.0, 1.0, _N))
    mixed = np.exp(rng.uniform(np.log(1e-6), np.log(1e12), _N))
    tiny = np.geomspace(1e-12, 1.0, _N)
    columns = {
        "mixed exposures": (1e-9 * score, rng.poisson(1e-9 * theta * mixed), mixed),
        "tiny scores": (tiny, rng.poisson(tiny * exposure), exposure),
        "huge counts": (score, rng.poisson(theta * 1e10), np.full(_N, 1e10)),
        "no variance": (score, np.round(score * 1e6), np.full(_N, 1e6)),
        "two items": (score[:2], np.array([3, 40]), np.array([100.0, 1000.0])),
        "no event": (score, np.zeros(_N), exposure),
        "one item": (score[:1], np.array([3]), exposure[:1]),
        "one score": (np.full(_N, 0.05), np.full(_N, 2), np.full(_N, 30.0)),
    }
    return {
        name: pd.DataFrame({"score": s, "count": np.asarray(y, dtype=float), "exposure": n})
        for name, (s, y, n) in columns.items()
    }


def _values():
    """Frames of values by name."""
    rng = np.random.default_rng(2)
    score, z = rng.normal(0.0, 1.0, (2, _N))
    mixed = 10.0 ** rng.uniform(-6.0, 6.0, _N)
    noise = rng.normal(0.0, 1.0, _N)
    columns = {
        "tiny noise": (score, score + 0.5 * z, np.full(_N, 1e-12)),
        "huge noise": (score, score + 1e12 * noise, np.full(_N, 1e12)),
        "mixed noise": (score, score + 0.1 * z + mixed * noise, mixed),
        "no variance": (score, score + 1e-4 * noise, np.full(_N, 1e-4)),
        "two items": (score[:2], score[:2], np.ones(2)),
        "one score": (np.full(_N, 0.5), np.full(_N, 2.0), np.ones(_N)),
    }
    return {
        name: pd.DataFrame({"score": s, "value": y, "noise_sd": n})
        for name, (s, y, n) in columns.items()
    }


COUNTS, VALUES = _counts(), _values()
CASES = [("counts", name) for name in COUNTS] + [("values", name) for name in VALUES]
QUICK = ("no event", "one item", "mixed exposures", "huge counts", "mixed noise")


def _items(kind, frame):
    if kind == "counts":
        return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    return soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")


def _check(what, found):
    """No NaN and no infinity."""
    if isinstance(found, pd.Series):
        found = found.to_frame()
    if isinstance(found, pd.DataFrame):
        numbers = found.select_dtypes("number").to_dict("series")
    elif hasattr(found, "data_vars"):
        numbers = {k: v.to_numpy() for k, v in found.data_vars.items()}
    else:
        numbers = {"value": np.asarray(found)}
    for name, column in numbers.items():
        bad = ~np.isfinite(np.asarray(column, dtype=float))
        assert not bad.any(), f"{what}: {name} has {int(bad.sum())} of {bad.size} not finite"


def _is_clear(error):
    """One sentence, neither a word nor a page."""
    assert 20 < len(str(error)) < 400


def _far(kind, frame):
    """Scores absurdly far from the fit's, with an outcome of the fit."""
    scores = _FAR_COUNTS if kind == "counts" else _FAR_VALUES
    return frame.iloc[np.arange(len(scores)) % len(frame)].assign(score=scores)


def _public(kind, fit, items, frame):
    """Public functions of a fit, by name."""
    quiet = {"progress": False}
    cut = float(frame["score"].median())
    far = _items(kind, _far(kind, frame))
    decide = soc.decisions
    return {
        "curves": lambda: soc.calibration_curves(fit),
        "curves far": lambda: soc.calibration_curves(fit, far.source["score"].to_numpy()),
        "bands": lambda: soc.bands(soc.calibration_curves(fit)),
        "posteriors": lambda: soc.item_posteriors(fit, items, **quiet),
        "posteriors far": lambda: soc.item_posteriors(fit, far, **quiet),
        "posteriors far, all draws": lambda: soc.item_posteriors(fit, far, draws="all", **quiet),
        "above": lambda: decide.probability_above(fit, items, cut, **quiet),
        "above far": lambda: decide.probability_above(fit, far, cut, **quiet),
        "loss": lambda: decide.expected_loss(fit, items, cut, **quiet),
        "loss far": lambda: decide.expected_loss(fit, far, cut, **quiet),
        "risk": lambda: decide.risk_adjusted(fit, items, **quiet),
        "best": lambda: decide.probability_best(fit, items, 1, draws=64, **quiet),
        "thompson": lambda: decide.thompson_draws(fit, items, 2, **quiet),
        "more, little": lambda: decide.value_of_exposure(fit, items, 1e-6, threshold=cut, **quiet),
        "more, much": lambda: decide.value_of_exposure(fit, items, 1e12, threshold=cut, **quiet),
        "reduction": lambda: soc.quantities.variance_reduction(fit, items, **quiet),
        "shrinkage": lambda: soc.quantities.shrinkage(fit, items, **quiet),
    }


def _answered(name, functions):
    """How many functions answer, all in numbers; errors of one clear sentence are fine."""
    answered = 0
    for label, function in functions.items():
        try:
            found = function()
        except soc.SocError as error:
            _is_clear(error)
            continue
        _check(f"{name}: {label}", found)
        answered += 1
    return answered


def _try_all(kind, name, frame, make):
    """How many of all public functions answer."""
    items = _items(kind, frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # of few bins: what is asked for here
        warnings.simplefilter("ignore", soc.ConvergenceWarning)
        try:
            fit = make(items)
        except soc.SocError as error:
            _is_clear(error)
            return 0
        return _answered(name, _public(kind, fit, items, frame))


def _five(items):
    return soc.fit(soc.summarize(items, progress=False), method=soc.FiveSteps(), progress=False)


@pytest.mark.parametrize(("kind", "name"), thinned(CASES, lambda case: case[1] in QUICK))
def test_no_nan_leaves(kind, name):
    frame = (COUNTS if kind == "counts" else VALUES)[name]
    answered = _try_all(kind, name, frame, _five)
    refused = name in ("no event", "one item", "one score")
    assert answered == 0 if refused else answered > 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [("counts", "no event"), ("counts", "mixed exposures"), ("counts", "huge counts"),
     ("values", "tiny noise"), ("values", "mixed noise")],
)  # fmt: skip
def test_no_nan_leaves_a_bayesian_fit(kind, name):
    frame = (COUNTS if kind == "counts" else VALUES)[name]

    def bayesian(items):
        return soc.fit(soc.summarize(items, progress=False), progress=False)

    assert _try_all(kind, name, frame, bayesian) > 12


def test_every_silence_has_its_reason():
    """A comment stands right before, or on the line of, whatever hides a warning or a NaN."""
    hides = re.compile(
        r"errstate\(|seterr|simplefilter\(\"ignore|filterwarnings\(|action=\"ignore|"
        r"\bnan_to_num\(|showwarning =|\bsuppress\("
    )
    package = Path(soc.__file__).parent
    without = []
    for path in sorted(package.rglob("*.py")):
        with path.open("rb") as file:
            comments = {
                token.start[0]
                for token in tokenize.tokenize(file.readline)
                if token.type == tokenize.COMMENT
            }
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if hides.search(line) and not {number, number - 1} & comments:
                without.append(f"{path.relative_to(package)}:{number}")
    assert not without
