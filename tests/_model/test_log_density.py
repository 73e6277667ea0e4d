"""The model's log density against a plain one, item by item, for every family and term.

The plain density is a product over items of their marginal probabilities, times the priors that
the configuration names. Scores and sizes take few values, so each row of the likelihood has one of
each, and sums over cells are exact.
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytensor
import pytest
from scipy import special
from scipy import stats as laws

import soc_pymc as soc

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
            "size": size,
            "kind": group,
            "count": rng.poisson(theta * size),
            "successes": rng.binomial(size.astype(int), theta),
            "trials": size.astype(int),
            "value": rng.normal(2.0 * score, 0.5 + 0.1 * np.sqrt(size)),
        }
    )


def gamma_marginal(items, log_mean, log_cv2):
    shape = np.exp(-log_cv2)
    probability = 1.0 / (1.0 + items["size"] * np.exp(log_mean + log_cv2))
    return laws.nbinom.logpmf(items["count"], shape, probability)


def normal_marginal(items, mean, log_variance):
    return laws.norm.logpdf(
        items["value"], mean, np.sqrt(np.exp(log_variance) + items["size"] ** 2)
    )


def beta_marginal(items, logit_mean, log_odds_cv2):
    mean = special.expit(logit_mean)
    total = np.exp(-log_odds_cv2) / (mean * (1.0 - mean))
    a, b = mean * total, (1.0 - mean) * total
    return laws.betabinom.logpmf(items["successes"], items["trials"], a, b)


@dataclass(frozen=True)
class Model:
    """One family: its items, prior, marginal of an item, and names of its curves."""

    items: type
    roles: dict
    prior: type
    marginal: object
    curves: tuple
    scale: str

    def position(self, score):
        return {"log": np.log, "logit": special.logit, "linear": np.asarray}[self.scale](score)


MODELS = {
    "gamma": Model(
        soc.PoissonItems,
        {"count": "count", "exposure": "size"},
        soc.Gamma,
        gamma_marginal,
        ("log_mean", "log_cv2"),
        "log",
    ),
    "normal": Model(
        soc.NormalItems,
        {"value": "value", "noise_sd": "size"},
        soc.Normal,
        normal_marginal,
        ("mean", "log_variance"),
        "linear",
    ),
    "beta": Model(
        soc.BinomialItems,
        {"successes": "successes", "trials": "trials"},
        soc.Beta,
        beta_marginal,
        ("logit_mean", "log_odds_cv2"),
        "logit",
    ),
}
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
        rows=("kind", GROUPS),
        scales={f"group_{name}": scale for name, scale in SCALES.items()},
    ),
    "exposure": Term(
        {"exposure": soc.Spline(knots=3, wiggle=0.35)},
        rows=("size", SIZES),
        scales={"exposure": 0.35},
    ),
    "bin_effects": Term({"bin_effects": True}, scales={"bin_effect": 0.2}),
}
CASES = [("gamma", "plain"), ("normal", "plain"), ("beta", "plain")]
CASES += [
    pytest.param("gamma", term, marks=pytest.mark.slow)
    for term in ("groups", "exposure", "bin_effects")
]


def built(model, term, frame):
    """The PyMC model of a family with a term, whose curves' priors are all given by `CURVES`."""
    splines = [soc.Spline(s.knots, model.scale, s.level, s.slope, s.wiggle) for s in CURVES]
    group = "kind" if term.grouped else None
    items = model.items(frame, score="score", group=group, **model.roles)
    options = {"on_leakage": "ignore", "joint": True, "progress": False}
    stats = soc.summarize(items, edges=EDGES, **options)
    return stats, soc.model(stats, model.prior(*splines, atoms=False, **term.options))


class Density:
    """A model's variables and log density at points in its coordinates."""

    def __init__(self, model, curves):
        point = model.initial_point()
        # rows of one score follow each other in the order of groups or of sizes
        self.rows = np.argsort(np.searchsorted(EDGES, model.coords["bin"]), kind="stable")
        self.start = [point[variable.name] for variable in model.value_vars]
        self.dim = sum(np.size(x) for x in self.start)
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
        ends = np.cumsum([np.size(x) for x in self.start])[:-1]
        parts = zip(np.split(point, ends), self.start, strict=True)
        return [values.reshape(np.shape(start)) for values, start in parts]

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


def log_prior(values, model, term, frame):
    """The priors written out: half-normal scales, Normal terms, and a Normal line."""
    position = model.position(frame["score"].to_numpy())
    total = 0.0
    for curve, spline in zip(model.curves, CURVES, strict=True):
        # the mean of values is in units of their scatter, other curves in logarithms
        scatter = np.sqrt(frame["score"].var(ddof=0) + (frame["size"] ** 2).mean())
        unit = scatter if curve == "mean" else 1.0
        per = position.std() if model.scale == "linear" else 1.0
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


def log_likelihood(values, model, term, frame):
    """The sum over items of their log marginal probabilities given the curves of their rows."""
    row = np.searchsorted(EDGES, frame["score"])
    if term.rows:
        column, members = term.rows
        row = row * len(members) + np.searchsorted(members, frame[column])
    first, second = (values[f"bin_{curve}"][row] for curve in model.curves)
    return model.marginal(frame, first, second).sum()


@pytest.mark.parametrize(("family", "name"), CASES)
def test_density_is_that_of_priors_and_items(family, name, frame):
    """At the start and at random points of the coordinates, to 1e-4 of about 1,000 nats."""
    model, term = MODELS[family], TERMS[name]
    density = Density(built(model, term, frame)[1], [f"bin_{curve}" for curve in model.curves])
    rng = np.random.default_rng(0)
    for scale in (0.0, 1.0, 2.0):
        point = scale * rng.normal(size=density.dim)
        values = density.variables(point)
        plain = log_prior(values, model, term, frame) + log_likelihood(values, model, term, frame)
        expected = plain + density.log_jacobian(point)
        assert density.log_density(point) == pytest.approx(expected, abs=1e-4)
