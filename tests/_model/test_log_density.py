"""The model's log density against a plain one, item by item, for every family and term.

The plain density is a product over items of their marginal probabilities, times the priors that
the configuration names. Scores and sizes take few values, so each row of the likelihood has one of
each, and sums over cells are exact.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytensor
import pytest
from pymc.blocking import DictToArrayBijection
from scipy import stats as laws

import soc_pymc as soc
from tests.checks.hand_made import KINDS, as_items
from tests.examples import thinned
from tests.family_records import SHAPE
from tests.posterior.references import log_probability

SCORES = np.array([0.08, 0.12, 0.2, 0.3, 0.45])
SIZES = np.array([2.0, 9.0, 40.0])
EDGES = 0.5 * (SCORES[1:] + SCORES[:-1])
GROUPS = np.array(["a", "b", "c"])
# scales of the half-normal priors of the terms' standard deviations, in units of the curve
SCALES = {"level": 0.5, "slope": 0.25, "wiggle": 0.25}


@pytest.fixture(scope="module")
def frame():
    """Items of every score, size and group, with an outcome of each kind."""
    rng = np.random.default_rng(0)
    columns = np.meshgrid(SCORES, SIZES, GROUPS, np.arange(6), indexing="ij")
    score, size, group = (column.ravel() for column in columns[:3])
    theta = rng.beta(4.0 * score, 4.0 * (1.0 - score))
    return pd.DataFrame(
        {
            "score": score,
            "exposure": size,
            "noise_sd": size,
            "trials": size.astype(int),
            "level": group,
            "count": rng.poisson(theta * size),
            "successes": rng.binomial(size.astype(int), theta),
            "value": rng.normal(2.0 * score, 0.5 + 0.1 * np.sqrt(size)),
            "events": size.astype(int),
            "amount": theta * rng.standard_gamma(SHAPE * size) / SHAPE,
        }
    )


AXES = {"counts": "log", "values": "linear", "trials": "logit", "amounts": "log"}
CURVES = (
    soc.Spline(knots=4, level=(-1.5, 0.7), slope=(0.6, 0.4), wiggle=0.3),
    soc.Spline(knots=4, level=(-1.0, 0.5), slope=(0.1, 0.3), wiggle=0.4),
)


@dataclass(frozen=True)
class Term:
    """A term of the curves: options of the prior, and how it divides a bin into rows."""

    options: dict = field(default_factory=dict)
    grouped: bool = False
    rows: tuple = ()  # column that divides bins, and its values
    scales: dict = field(default_factory=dict)


TERMS = {
    "plain": Term(),
    "groups": Term(
        grouped=True,
        rows=("level", GROUPS),
        scales={f"group_{name}": scale for name, scale in SCALES.items()},
    ),
    "exposure": Term(
        {"exposure": soc.Spline(knots=3, wiggle=0.35)},
        rows=("exposure", SIZES),
        scales={"exposure": 0.35},
    ),
    "bin_effects": Term({"bin_effects": True}, scales={"bin_effect": 0.2}),
}
CASES = [(kind, "plain") for kind in AXES]
CASES += [("counts", term) for term in ("groups", "exposure", "bin_effects")]
CASES = thinned(CASES, [("counts", "plain")])


def built(kind, term, frame):
    """The PyMC model of a kind with a term, whose curves' priors are all given by `CURVES`."""
    splines = [replace(spline, scale=AXES[kind]) for spline in CURVES]
    items = as_items(frame, kind, group="level" if term.grouped else None)
    options = {"on_leakage": "ignore", "joint": True, "progress": False}
    stats = soc.summarize(items, edges=EDGES, **options)
    return soc.model(stats, type(KINDS[kind].prior)(*splines, atoms=False, **term.options))


class Density:
    """A model's variables and log density at points in its coordinates."""

    def __init__(self, model, curves):
        self.start = DictToArrayBijection.map(model.initial_point())
        # rows of one score follow each other in the order of groups or of sizes
        self.rows = np.argsort(np.searchsorted(EDGES, model.coords["bin"]), kind="stable")
        self.dim = len(self.start.data)
        self.names = [*(variable.name for variable in model.free_RVs), *curves]
        outputs = model.replace_rvs_by_values([model[name] for name in self.names])
        free = outputs[: len(model.free_RVs)]
        self._free, self._curves, self._terms = (
            pytensor.function(
                model.value_vars, wanted, mode="FAST_COMPILE", on_unused_input="ignore"
            )
            for wanted in (free, outputs[len(free) :], model.logp(sum=False))
        )

    def _parts(self, point):
        return DictToArrayBijection.rmap(self.start._replace(data=point)).values()

    def variables(self, point):
        """Free variables and curves by name."""
        parts = self._parts(point)
        values = self._free(*parts) + self._curves(*parts)
        return {
            name: value[self.rows] if name.startswith("bin_") else value
            for name, value in zip(self.names, values, strict=True)
        }

    def log_density(self, point):
        return sum(np.sum(term) for term in self._terms(*self._parts(point)))

    def log_jacobian(self, point):
        """Log determinant of the variables' derivatives, by central differences."""
        steps = 1e-5 * np.eye(self.dim)
        ahead, behind = (
            np.array([np.hstack([np.ravel(x) for x in self._free(*self._parts(p))]) for p in moved])
            for moved in (point + steps, point - steps)
        )
        return np.linalg.slogdet((ahead - behind) / 2e-5)[1]


def log_prior(values, kind, term, frame):
    """The priors written out: half-normal scales, Normal terms, and a Normal line."""
    position = KINDS[kind].position(frame["score"].to_numpy())
    total = 0.0
    for curve, spline in zip(KINDS[kind].curves, CURVES, strict=True):
        # the mean of values is in units of their scatter, other curves in logarithms; items count
        # by their information
        noise = frame["noise_sd"] ** 2
        typical = np.average(noise, weights=noise**-2.0)
        scatter = np.sqrt(frame["score"].var(ddof=0) + typical)
        unit = scatter if curve == "mean" else 1.0
        per = position.std() if kind == "values" else 1.0
        line_mean, line_sd = np.transpose([spline.level, np.divide(spline.slope, per)])
        total += laws.norm.logpdf(values[f"{curve}_line"], line_mean, line_sd).sum()
        scales = {"wiggle": spline.wiggle, **term.scales}
        for name, scale in scales.items():
            if f"{curve}_{name}_sd" not in values:
                continue  # effects of bins are of the mean alone
            sd = values[f"{curve}_{name}_sd"]
            total += laws.halfnorm.logpdf(sd, scale=scale * unit)
            total += laws.norm.logpdf(values[f"{curve}_{name}"], 0.0, sd).sum()
    return total


def log_likelihood(values, kind, term, frame):
    """The sum over items of their log marginal probabilities given the curves of their rows."""
    row = np.searchsorted(EDGES, frame["score"])
    if term.rows:
        column, members = term.rows
        row = row * len(members) + np.searchsorted(members, frame[column])
    case = KINDS[kind]
    _, outcome, size = case.roles
    curves = (values[f"bin_{curve}"][row] for curve in case.curves)
    law = case.marginal(*case.moments(*curves), frame[size])
    return log_probability(law, frame[outcome]).sum()


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_density_is_that_of_priors_and_items(kind, name, frame):
    """At the start and at random points of the coordinates, to 1e-4 of about 1,000 nats."""
    term, curves = TERMS[name], [f"bin_{curve}" for curve in KINDS[kind].curves]
    density = Density(built(kind, term, frame), curves)
    rng = np.random.default_rng(0)
    for scale in (0.0, 1.0, 2.0):
        point = scale * rng.normal(size=density.dim)
        values = density.variables(point)
        plain = sum(part(values, kind, term, frame) for part in (log_prior, log_likelihood))
        expected = plain + density.log_jacobian(point)
        assert density.log_density(point) == pytest.approx(expected, abs=1e-4)
