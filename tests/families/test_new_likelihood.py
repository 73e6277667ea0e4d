"""A new likelihood is one record: waiting times y ~ Exponential(theta), theta ~ Gamma(a, b).

Averaged over theta a waiting time is Lomax, and theta given it is Gamma(a + 1, b + y).
"""

import ast
import importlib
import inspect
import pkgutil
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import soc_pymc as soc
from soc_pymc._model.rows import rows_of
from soc_pymc.families import FAMILIES, GAMMA, OUTCOMES, Outcome, family, poisson, scales
from soc_pymc.families.rows import Ragged, RowSums, by_row, columns, two_points
from tests.examples import OVER

COUNTS = OUTCOMES["poisson"]
EVENTS = poisson.EXPOSURE_CELLS._replace(name="events_cell")
TIME = EVENTS._replace(name="time_cell", role="outcome")
POWERS = "sum_y", "sum_y2", "sum_y3"
ROLES = {"score": "score", "time": "time", "events": "events"}


@dataclass(frozen=True)
class WaitingRows(RowSums):
    """Waiting times of all rows as weighted points."""

    points: Ragged  # times and items
    total: Any
    spread: Any

    widened = staticmethod(GAMMA.rows.widened)
    margins, size_cell = ("time",), "time_cell"

    @staticmethod
    def log_probability(xp, curves, cells):
        location, dispersion = curves
        time, items, _ = cells
        cv2 = xp.exp(dispersion)
        tails = (1.0 + 1.0 / cv2)[..., None] * xp.log1p(time * (xp.exp(location) * cv2)[..., None])
        return (items * (location[..., None] - tails)).sum(axis=-1)

    @staticmethod
    def draw_totals(rng, curves, cells):
        location, dispersion = curves
        items = cells[1]
        number = np.rint(items.sum(axis=-1))
        shape = np.exp(-dispersion)
        totals = np.zeros(location.shape)
        for item in range(int(number.max())):
            theta = rng.standard_gamma(shape) / shape * np.exp(location)
            totals += np.where(item < number, rng.exponential(1.0 / theta), 0.0)
        return totals

    @classmethod
    def of(cls, rows, cells):
        row, *sums = columns(cells["time"], ("n", *POWERS))
        points = by_row(rows, *two_points(row, *sums))
        return cls(points, np.bincount(row, sums[1], rows), np.zeros(rows))

    def information(self, location, dispersion):
        n = np.bincount(self.points.row, self.points.columns[1])
        shape = np.exp(-dispersion)
        return n * shape / (shape + 2.0), 2.0 * n / (shape + 1.0) / (shape + 2.0)

    def level(self):
        return float(np.log(self.points.columns[1].sum() / self.total.sum())), -1.2


@dataclass(frozen=True)
class WaitingPrior(soc.Gamma):
    family: ClassVar[str] = "Waiting"


@dataclass(frozen=True, eq=False, repr=False)
class WaitingItems(soc.PoissonItems):
    _: KW_ONLY
    time: str | None = None
    events: str | None = None
    kind: ClassVar[str] = "waiting"


class WaitingOutcome(Outcome):
    """Times y ~ Gamma(events, theta) until a number of events."""

    kind, observed, size = "waiting", "time", "events"
    whole, theta, words = False, scales.LOG, COUNTS.words
    describe = type(COUNTS).describe
    integers = ("n",)
    validity = family.Validity(
        COUNTS.validity.size, scales.Bounds("events must be 1", largest=1.0, least=1.0)
    )
    tables: ClassVar = {
        "part": family.Table.part("sum_N", "sum_y"),
        "time": family.Table.margin(TIME, *POWERS),
        "joint": family.Table.joint(EVENTS, TIME, reals=POWERS),
    }

    def excess_squares(self, groups, part):
        # in units of the squared mean: Greenwood's statistic, whose variance is known
        known = groups["n"] > 1
        n, total, squares = (groups[name][known] for name in ("n", "sum_y", "sum_y2"))
        excess = (n + 1.0) * (n * squares / total**2 - 1.0) - (n - 1.0)
        return known, excess, 4.0 * n**2 * (n - 1.0) / ((n + 2.0) * (n + 3.0)), n - 1.0

    def log_likelihood(self, y, size, theta):
        return stats.gamma.logpdf(y, size, scale=1.0 / theta)

    def thinned(self, y, size, fraction, rng):
        return y * rng.beta(fraction * size, (1.0 - fraction) * size), fraction * size

    def noise(self, mean, variance=0.0):
        return (1.0 + 3.0 * variance / mean**2) / mean**2

    def contrast(self, y, size, fresh_y, fresh_size):
        # given both, the share of the first is a Beta
        share = stats.beta(size, fresh_size)
        return y - (y + fresh_y) * share.mean(), (y + fresh_y) ** 2 * share.var()


class WaitingFamily(type(GAMMA)):
    name, prior, rows, outcome = "Waiting", WaitingPrior, WaitingRows, WaitingOutcome()

    def update(self, a, b, y, n):
        return a + n, b + y

    def log_marginal(self, y, size, a, b):
        return np.log(a / b) - (a + 1.0) * np.log1p(y / b)


TIMES = WaitingFamily()


@pytest.fixture
def waiting(monkeypatch):
    """Names the family and its kind of outcomes."""
    monkeypatch.setitem(OUTCOMES, "waiting", TIMES.outcome)
    monkeypatch.setitem(FAMILIES, "Waiting", TIMES)


def test_waiting_times_are_fitted_and_scored(waiting):
    """Cells stand for items, true curves lie within 4 sd, items have means in closed form."""
    rng = np.random.default_rng(5)
    score = np.exp(rng.normal(-1.0, 0.6, 6000))
    rate = score * rng.gamma(4.0, 0.25, len(score))
    frame = pd.DataFrame({"score": score, "time": rng.exponential(1.0 / rate), "events": 1})
    statistics = soc.summarize(
        WaitingItems(frame, **ROLES), bins=30, on_leakage="ignore", progress=False
    )
    curves = np.full((1, 30), -1.0), np.full((1, 30), -1.4)
    row = np.searchsorted(statistics.edges, score, side="right")
    exact = np.bincount(row, stats.lomax(np.exp(1.4), scale=np.exp(2.4)).logpdf(frame["time"]))
    values = rows_of(statistics, TIMES)[1].values(*curves)[0]
    np.testing.assert_allclose(values, exact, atol=1e-3)  # nats a bin
    density = np.bincount(row, TIMES.log_density(frame["time"], 1, -1.0, -1.4))
    np.testing.assert_allclose(density, exact, rtol=1e-10)
    fit = soc.fit(statistics, WaitingPrior(), progress=False)
    assert fit.status.pareto_k < 0.7
    points = np.array([0.2, 0.37, 0.8])
    curves = np.log(soc.calibration_curves(fit, points)[["mean", "shape"]])
    for name, truth in (("mean", np.log(points)), ("shape", np.log(4.0))):
        gap = (curves[name].mean(OVER) - truth) / curves[name].std(OVER)
        assert float(np.abs(gap).max()) < 4.0
    few = frame[:20]
    scored = soc.item_posteriors(fit, WaitingItems(few, **ROLES), draws="all")
    drawn = soc.calibration_curves(fit, few["score"])
    shape, rate = (drawn[name].to_numpy().reshape(-1, 20) for name in ("shape", "rate"))
    means = (shape + 1.0) / (rate + few["time"].to_numpy())
    np.testing.assert_allclose(scored["theta_mean"], means.mean(axis=0), rtol=1e-9)


def test_functions_of_waiting_times_are_those_of_draws():
    rng, kind = np.random.default_rng(2), TIMES.outcome
    times = rng.exponential(size=(20_000, 7))
    sums = {"n": np.full(20_000, 7), "sum_y": times.sum(axis=1), "sum_y2": (times**2).sum(axis=1)}
    _, excess, variance, _ = kind.excess_squares(sums, None)
    assert abs(excess.mean()) < 4.0 * np.sqrt(variance[0] / 20_000)
    np.testing.assert_allclose(excess.var(), variance[0], rtol=0.1)
    first, later = times[:, :2].T
    held = kind.thinned(first, np.ones(20_000), 0.3, rng)
    rest = kind.remainder(first, 1.0, held, 0.3)
    for part, size in ((held, 0.3), (rest, 0.7)):
        assert stats.kstest(part[0], stats.gamma(size).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(held[0], rest[0])[0, 1]) < 4.0 / np.sqrt(20_000)
    density = stats.expon.logpdf(first, scale=0.5)
    np.testing.assert_allclose(kind.log_likelihood(first, 1.0, 2.0), density)
    contrast, weight = kind.contrast(first, 1.0, later, 1.0)
    np.testing.assert_allclose((contrast**2).mean(), weight.mean(), rtol=0.1)
    theta = rng.gamma(40.0, 1.0 / 40.0, 20_000)
    np.testing.assert_allclose(kind.noise(1.0, 1.0 / 40.0), (theta**-2).mean(), rtol=0.01)


MODULES = [module.name for module in pkgutil.walk_packages(soc.__path__, "soc_pymc.")]
BASES = sorted(
    {
        value
        for name in MODULES
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and value.__module__ == name and inspect.isabstract(value)
    },
    key=lambda base: base.__qualname__,
)


def test_every_method_without_a_body_is_abstract():
    """Python would call it, return None and go on."""
    trees = (ast.parse(path.read_text()) for path in Path(soc.__file__).parent.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    empty = [node for node in nodes if len(node.body) == 1 and ast.get_docstring(node)]
    callable_as_is = [
        node.name for node in empty if "abstractmethod" not in map(ast.unparse, node.decorator_list)
    ]
    assert callable_as_is == []
    assert {node.name for node in empty} == {n for base in BASES for n in base.__abstractmethods__}
