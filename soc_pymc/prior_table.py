"""Posteriors of items from a fit's prior table, with NumPy alone: this file can be copied.

A table cuts scores and log sizes into cells with nodes: weighted pairs of conjugate parameters, by
polynomials of two curves. An outcome y of size n updates them; items whose nodes do not follow the
fit's draws closely are flagged. Formulas are in + - * / and functions of `ARRAYS` or an engine.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["load", "score"]

FORMAT = "soc_pymc-prior-6"
# of a node: its weight and both curves
POLYNOMIALS = "weight", "first", "second"
# variance of the nodes' posterior means, relative to the mean of their variances
MOST_APART = 0.5
# mean square of the relative changes of a mixture's weights by their spread
MOST_MOVED = 0.0018
# smallest level of a quantile, and distance of the largest one from 1
OUTER_LEVEL = 0.005
# error of a quantile's last step but one, as a logit: the step cubes it
CLOSE = 3e-3
# relative size of a step that changes no digit
_ROUNDING = 1e-15
# weight that does not move a quantile; logs of shares and densities that are 0; a small theta
# whose powers are 0: some engines fail where a product underflows
FAINT = 1e-13
_LEAST_LOG = -300.0
# weights of a mixture's components below the first are rounding errors, and taken as the second
_FAINT_WEIGHT = 1e-12
_LEAST_WEIGHT = 1e-15
_LEAST_THETA = 1e-40
# numbers in one array of nodes x items
_AT_ONCE = 1 << 15
# members from which quantiles are first found among a share of them
_MANY = 200
_EVERY = 8
# a number, an array, or an expression of an engine
Numbers = Any
Pair = tuple[Numbers, Numbers]
# `ARRAYS`, or functions of the same names of an engine
Functions = Any
Members = Sequence[Numbers]
Triple = tuple[Numbers, Numbers, Numbers]
Law = Callable[[Members, Numbers, Functions], Triple]
ARRAYS = SimpleNamespace(
    log=np.log, exp=np.exp, sqrt=np.sqrt, low=np.minimum, high=np.maximum, where=np.where,
    # for values that are used often
    clip=np.clip, exact=float, keep=lambda value: value,
    scaled=lambda b, t: np.clip(b * np.exp(t), 1e-300, 1e90),
    # over an item's nodes
    total=lambda *values: [value.sum(axis=0) for value in values],
    most=lambda value: value.max(axis=0), interp=np.interp,
    bin=lambda cuts, value: np.searchsorted(cuts, value, side="right"),
    take=lambda index, *columns: [column[index] for column in columns])  # fmt: skip
# items: arrays (n,), or None
Observed = namedtuple("Observed", "score outcome size prior_size group")
# items in their cells: places along score and size, outcomes and their sizes, (n,)
Place = namedtuple("Place", "x w outcome size")
# theta of items: weights and parameters (members, n), their moments, and P(theta = 0) or None; by
# `nodes_given` also flags of items, and how a mixture's weights vary
Mixture = namedtuple(
    "Mixture", "weight a b averages zero flagged loadings", defaults=(None, None, ())
)


@dataclass(frozen=True, eq=False)
class PriorTable:
    """The description of a table, and columns of its nodes, cell by cell.

    They are a function of a group's label and of the cells that will be read.
    """

    meta: Any
    nodes: Any


def _half(n: Numbers) -> Numbers:
    """Remainder of log Gamma(n + 1/2) beyond n log n - n + log(2 pi) / 2."""
    return (7 / 2880 / (n * n) - 1 / 24) / n


def _deviance(ratio: Numbers, xp: Functions) -> Pair:
    """2 (1 - u + u log u) / (1 - u)^2 for a ratio u (Peizer and Pratt 1968), and log u."""
    e = xp.keep(ratio - 1.0)
    log = xp.keep(xp.log(ratio))
    is_small = xp.high(e, -e) < 1e-3
    divisor = xp.where(is_small, 1.0, e)
    series = 1.0 - e * (1 / 3 - e * (1 / 6 - e / 10))
    far = 2.0 * (log + e * log - e) / divisor / divisor
    return xp.where(is_small, series, far), log


def _log_rise(x: Numbers, k: Numbers, xp: Functions) -> Numbers:
    """Log of Gamma(x + k) / Gamma(x), with all digits where x is large."""
    n = x + 7.5
    end = x + k + 7.5
    bend, _ = _deviance(n / end, xp)
    steps = xp.log(math.prod(1.0 + k / (x + i) for i in range(8)))
    return k * xp.log(end) - 0.5 * k * k / end * bend + _half(end) - _half(n) - steps


def _density(log: Numbers, xp: Functions) -> Numbers:
    return xp.exp(xp.high(log, _LEAST_LOG))


def _normal_law(z: Numbers, xp: Functions) -> Pair:
    """Normal distribution function to 1e-7 (Abramowitz and Stegun 1964, 26.2.17), and density."""
    # the density at 40 is 0 as a float64
    z = xp.keep(xp.clip(z, -40.0, 40.0))
    u = xp.keep(1.0 / (1.0 + 0.2316419 * xp.high(z, -z)))
    poly = -0.356563782 + u * (1.781477937 + u * (-1.821255978 + u * 1.330274429))
    density = _density(-0.5 * z * z, xp) / math.sqrt(2.0 * math.pi)
    tail = density * u * (0.31938153 + u * poly)
    return xp.where(z > 0, 1.0 - tail, tail), density


def _raised(a: Numbers, x: Numbers, step: Numbers = 0.0) -> Numbers:
    """Sum of the four terms that raise a distribution function to a shape a + 4."""
    return (
        1 + x / (a + 1) * (1 + (x + step) / (a + 2) * (1 + (x + 2 * step) / (a + 3)))
    ) / a


class Formulas(ABC):
    """Closed forms of a family, of its parameters a, b and outcomes y of size n.

    Places t are theta, its logarithm or its logit; `xp` has functions of arrays or of an engine.
    """

    # of location and dispersion
    bounds: tuple[float, float] = (230.0, 230.0)
    # of places
    end: float = 690.0
    # whether theta is
    positive: bool = True
    # size without information
    no_size: float = 0.0

    def given(self, attrs: Mapping[Any, Any]) -> "Formulas":
        """Return those of a fit with these attributes."""
        return self

    @abstractmethod
    def parameters(self, location: Numbers, dispersion: Numbers, xp: Functions) -> Pair:
        """Return parameters from both curves."""

    @abstractmethod
    def update(self, a: Numbers, b: Numbers, y: Numbers, n: Numbers) -> Pair:
        """Return parameters given an outcome."""

    @abstractmethod
    def mean(self, a: Numbers, b: Numbers) -> Numbers:
        """Return E(theta)."""

    @abstractmethod
    def variance(self, a: Numbers, b: Numbers) -> Numbers:
        """Return Var(theta)."""

    @abstractmethod
    def matched(self, mean: Numbers, variance: Numbers) -> Pair:
        """Return parameters from the mean and variance of theta."""

    @abstractmethod
    def log_factor(
        self, a: Numbers, b: Numbers, y: Numbers, n: Numbers, xp: Functions
    ) -> Numbers:
        """Return log densities of outcomes, up to what is the same for all nodes."""

    @abstractmethod
    def theta(self, t: Numbers, xp: Functions) -> Numbers:
        """Return theta from its place."""

    @abstractmethod
    def scale(self, a: Numbers, b: Numbers, xp: Functions) -> Numbers:
        """Return the factor of the density of the place that is the same at all places."""

    @abstractmethod
    def law(self, members: Members, t: Numbers, xp: Functions) -> Triple:
        """Distribution function of the place, density and its slope, by a, b and `scale`."""

    @abstractmethod
    def middle(self, a: Numbers, b: Numbers, xp: Functions) -> Pair:
        """Return about the mean and variance of the place."""

    @abstractmethod
    def possible(self, y: Numbers, n: Numbers) -> Numbers:
        """Return a mask of outcomes that are possible with their sizes."""


class GammaFormulas(Formulas):
    """Gammas of shape a and rate b, and counts of exposures; places are log theta."""

    def parameters(self, location: Numbers, dispersion: Numbers, xp: Functions) -> Pair:
        return xp.exp(-dispersion), xp.exp(-dispersion - location)

    def update(self, a: Numbers, b: Numbers, y: Numbers, n: Numbers) -> Pair:
        return a + y, b + n

    def mean(self, a: Numbers, b: Numbers) -> Numbers:
        return a / b

    def variance(self, a: Numbers, b: Numbers) -> Numbers:
        return a / b / b

    def matched(self, mean: Numbers, variance: Numbers) -> Pair:
        return mean / variance * mean, mean / variance

    def log_factor(
        self, a: Numbers, b: Numbers, y: Numbers, n: Numbers, xp: Functions
    ) -> Numbers:
        return _log_rise(a, y, xp) - a * xp.log(1.0 + n / b) - y * xp.log(b + n)

    def theta(self, t: Numbers, xp: Functions) -> Numbers:
        return xp.exp(t)

    def scale(self, a: Numbers, b: Numbers, xp: Functions) -> Numbers:
        n = a + 3.5
        rise = math.prod((a + i) / n for i in range(4))
        return rise * xp.sqrt(n / (2.0 * math.pi)) * xp.exp(-_half(n))

    def law(self, members: Members, t: Numbers, xp: Functions) -> Triple:
        # by Peizer and Pratt at a + 4
        a, b, scale = members
        x = xp.keep(xp.scaled(b, t))
        n = a + 3.5
        bend, log = _deviance(n / x, xp)
        deviation = x - n
        slope = xp.keep(bend / x)
        exponent = 3.5 * log - 0.5 * deviation * deviation * slope
        density = xp.keep(scale * _density(exponent, xp))
        z = (deviation - 1 / 6 - 0.02 / (a + 4.0)) * xp.sqrt(slope)
        below = _normal_law(z, xp)[0] + density * _raised(a, x)
        return below, density, density * (a - x)

    def middle(self, a: Numbers, b: Numbers, xp: Functions) -> Pair:
        return xp.log((a + 0.5) / b) - 1.0 / a, 1.0 / (a * a) + 1.0 / (a + 0.5)

    def possible(self, y: Numbers, n: Numbers) -> Numbers:
        is_count = (y >= 0) & (y == np.floor(y)) & (y + n < np.inf)
        return is_count & ((n > 0) | (n == y))


class BetaFormulas(Formulas):
    """Betas, and successes in trials; places are logit theta."""

    def parameters(self, location: Numbers, dispersion: Numbers, xp: Functions) -> Pair:
        total = xp.exp(-dispersion)
        return total * (1.0 + xp.exp(location)), total * (1.0 + xp.exp(-location))

    def update(self, a: Numbers, b: Numbers, y: Numbers, n: Numbers) -> Pair:
        return a + y, b + (n - y)

    def mean(self, a: Numbers, b: Numbers) -> Numbers:
        return a / (a + b)

    def variance(self, a: Numbers, b: Numbers) -> Numbers:
        return a / (a + b) * (b / (a + b)) / (a + b + 1.0)

    def matched(self, mean: Numbers, variance: Numbers) -> Pair:
        total = mean * (1.0 - mean) / variance - 1.0
        return mean * total, (1.0 - mean) * total

    def log_factor(
        self, a: Numbers, b: Numbers, y: Numbers, n: Numbers, xp: Functions
    ) -> Numbers:
        rises = _log_rise(a, y, xp) + _log_rise(b, n - y, xp)
        return rises - _log_rise(a + b, n, xp)

    def theta(self, t: Numbers, xp: Functions) -> Numbers:
        return 1.0 / (1.0 + xp.exp(-t))

    def scale(self, a: Numbers, b: Numbers, xp: Functions) -> Numbers:
        m = a + 3.5
        n = b + 3.5
        s = a + b
        total = s + 7.0
        rise = math.prod((a + i) / m * (b + i) / n for i in range(4))
        rise = rise / math.prod((s + i) / total for i in range(7))
        remainder = (1 / 12 - 1 / 360 / (total * total)) / total - _half(m) - _half(n)
        return rise * xp.sqrt(m * n / total / (2.0 * math.pi)) * xp.exp(remainder)

    def law(self, members: Members, t: Numbers, xp: Functions) -> Triple:
        # by Peizer and Pratt at a + 4 and b + 4
        a, b, scale = members
        m = a + 3.5
        n = b + 3.5
        s = xp.keep(a + b)
        total = s + 7.0
        p = xp.keep(1.0 / (1.0 + xp.exp(-t)))
        q = xp.keep(1.0 / (1.0 + xp.exp(t)))
        bend_p, log_p = _deviance(m / total / p, xp)
        bend_q, log_q = _deviance(n / total / q, xp)
        bend = xp.keep(q * bend_p + p * bend_q)
        deviation = total * p - m
        exponent = 3.5 * (log_p + log_q) - 0.5 * deviation * deviation * bend / (
            total * p * q
        )
        density = xp.keep(scale * _density(exponent, xp))
        least = xp.keep(xp.high(p, _LEAST_THETA))
        upper = math.prod((least * (s + i) / (a + i) for i in range(4)), start=density)
        upper = upper * _raised(b, q * (s + 4), q)
        correction = 0.02 * (q / (a + 4.0) - p / (b + 4.0) + (q - 0.5) / (s + 8.0))
        z = (deviation + p / 3 - 1 / 6 - correction) * xp.sqrt(
            bend / ((total + 1 / 6) * p * q)
        )
        below = _normal_law(z, xp)[0] + density * _raised(a, p * s, p) - upper
        return below, density, density * (a * q - b * p)

    def middle(self, a: Numbers, b: Numbers, xp: Functions) -> Pair:
        mean = xp.log((a + 0.5) / (b + 0.5)) - 1.0 / a + 1.0 / b
        of_a = 1.0 / (a * a) + 1.0 / (a + 0.5)
        return mean, of_a + 1.0 / (b * b) + 1.0 / (b + 0.5)

    def possible(self, y: Numbers, n: Numbers) -> Numbers:
        is_whole = (np.floor([y, n]) == [y, n]).all(0)
        return (y >= 0) & (n >= y) & (n < np.inf) & is_whole


class NormalFormulas(Formulas):
    """Normals of mean a and variance b, and values of noise sd n; places are theta."""

    bounds = (1e300, 230.0)
    end = 1e300
    positive = False
    no_size = 1e150

    def parameters(self, location: Numbers, dispersion: Numbers, xp: Functions) -> Pair:
        return location, xp.exp(dispersion)

    def update(self, a: Numbers, b: Numbers, y: Numbers, n: Numbers) -> Pair:
        share = 1.0 + b / n / n
        return a / share + y * (1.0 - 1.0 / share), b / share

    def mean(self, a: Numbers, b: Numbers) -> Numbers:
        return a

    def variance(self, a: Numbers, b: Numbers) -> Numbers:
        return b

    def matched(self, mean: Numbers, variance: Numbers) -> Pair:
        return mean, variance

    def log_factor(
        self, a: Numbers, b: Numbers, y: Numbers, n: Numbers, xp: Functions
    ) -> Numbers:
        total = b + n * n
        return -0.5 * ((y - a) * (y - a) / total + xp.log(xp.low(total, 1e300)))

    def theta(self, t: Numbers, xp: Functions) -> Numbers:
        return t

    def scale(self, a: Numbers, b: Numbers, xp: Functions) -> Numbers:
        return 1.0 / xp.sqrt(b)

    def law(self, members: Members, t: Numbers, xp: Functions) -> Triple:
        a, _, scale = members
        z = (t - a) * scale
        below, density = _normal_law(z, xp)
        density = xp.keep(scale * density)
        return below, density, -density * scale * z

    def middle(self, a: Numbers, b: Numbers, xp: Functions) -> Pair:
        return a, b

    def possible(self, y: Numbers, n: Numbers) -> Numbers:
        return (abs(y) < math.inf) & (n > 0)


class InverseGammaFormulas(GammaFormulas):
    """Inverse Gammas of shape a and scale b, and amounts of events; places are log theta.

    Then 1 / theta is Gamma, of shape a and rate b.
    """

    def __init__(self, shape: float = 1.0) -> None:
        # of the amount of one event
        self.shape = float(shape)

    def given(self, attrs: Mapping[Any, Any]) -> "InverseGammaFormulas":
        return type(self)(attrs.get("shape", 1.0))

    def parameters(self, location: Numbers, dispersion: Numbers, xp: Functions) -> Pair:
        # beyond, a - 2 would lose its digits
        inverse = xp.exp(-xp.low(dispersion, 14.0))
        return 2.0 + inverse, xp.exp(location) * (1.0 + inverse)

    def update(self, a: Numbers, b: Numbers, y: Numbers, n: Numbers) -> Pair:
        return a + self.shape * n, b + self.shape * y

    def mean(self, a: Numbers, b: Numbers) -> Numbers:
        return b / (a - 1.0)

    def variance(self, a: Numbers, b: Numbers) -> Numbers:
        return b / (a - 1.0) * (b / (a - 1.0)) / (a - 2.0)

    def matched(self, mean: Numbers, variance: Numbers) -> Pair:
        inverse = mean / variance * mean
        return 2.0 + inverse, mean * (1.0 + inverse)

    def log_factor(
        self, a: Numbers, b: Numbers, y: Numbers, n: Numbers, xp: Functions
    ) -> Numbers:
        return super().log_factor(a, b, self.shape * n, self.shape * y, xp)

    def law(self, members: Members, t: Numbers, xp: Functions) -> Triple:
        below, density, slope = super().law(members, -t, xp)
        return 1.0 - below, density, -slope

    def middle(self, a: Numbers, b: Numbers, xp: Functions) -> Pair:
        mean, square = super().middle(a, b, xp)
        return -mean, square

    def possible(self, y: Numbers, n: Numbers) -> Numbers:
        is_known = (y >= 0) & (n >= 0) & (y + n < np.inf)
        return is_known & (n == np.floor(n)) & ((y > 0) == (n > 0))


CONJUGATES: Mapping[str, Formulas] = {
    "Gamma": GammaFormulas(),
    "Beta": BetaFormulas(),
    "Normal": NormalFormulas(),
    "InverseGamma": InverseGammaFormulas(),
}


def formulas_of(meta: Mapping[str, Any]) -> Formulas:
    """Closed forms of the family that a table's description names."""
    return CONJUGATES[meta["family"]].given(meta)


def load(path: str | Path) -> PriorTable:
    """Read the prior table that `soc.export_prior` wrote.

    Parameters
    ----------
    path : str or Path
        The file, ``*.json`` (read with the standard library) or Parquet (with PyArrow).

    Returns
    -------
    PriorTable
        The table, for `score`.

    Raises
    ------
    ValueError
        If the file is not a prior table of this version, or was changed.

    Examples
    --------
    >>> table = load("prior.json")
    """
    try:
        if str(path).endswith(".json"):
            content = json.loads(Path(path).read_text("utf-8"))
            meta = content["meta"]
            columns = content["nodes"]
        else:
            import pyarrow.parquet as pq

            columns = pq.read_table(path)
            meta = json.loads(
                (columns.schema.metadata or {}).get(b"soc_pymc_prior", b"{}")
            )
        if meta["format"] != FORMAT:
            raise ValueError(
                f"its format is {meta['format']!r}, and this reads {FORMAT!r}"
            )
        columns = {c: np.asarray(columns[c], dtype=kind) for c, kind in meta["columns"]}
        if meta.pop("checksum") != checksum(meta, columns):
            raise ValueError("it was changed after it was written")
        return by_group(meta, columns)
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise ValueError(
            f"{path} has no usable prior table: export it again ({error})"
        ) from None


def checksum(meta: Mapping[str, Any], columns: Mapping[str, Any]) -> str:
    """Digest of a table's description and columns."""
    text = json.dumps(meta, sort_keys=True).encode()
    return hashlib.sha256(b"".join([text, *map(bytes, columns.values())])).hexdigest()


def by_group(meta: Mapping[str, Any], columns: Mapping[str, Any]) -> PriorTable:
    """A table from its description and columns of the nodes of all groups, one after the other."""
    labels = meta["groups"] or [""]
    starts = meta["cells"] // len(labels) * np.arange(1, len(labels))
    ends = np.searchsorted(columns["cell"], starts)
    parts = {name: np.split(values, ends) for name, values in columns.items()}
    return PriorTable(
        meta, lambda label, cells: {k: v[labels.index(label)] for k, v in parts.items()}
    )


def quantile_name(prob: float) -> str:
    """theta_q05 for 0.05, theta_q97_5 for 0.975: percent, two digits before the point."""
    integer, _, decimals = f"{100 * prob:.15g}".partition(".")
    return f"theta_q{integer.zfill(2)}" + (f"_{decimals}" if decimals else "")


def summary_names(probs: Sequence[float], zero: bool) -> list[str]:
    """Names of the rows of `mixture_summaries`, with P(theta = 0) or without."""
    quantiles = map(quantile_name, probs)
    return ["theta_mean", "theta_sd", "theta_var", *quantiles, *["p_zero"] * zero]


def score(
    table: PriorTable | str | Path,
    score: ArrayLike | None = None,
    outcome: ArrayLike | None = None,
    size: ArrayLike | None = None,
    group: ArrayLike | None = None,
    quantiles: Sequence[float] = (0.05, 0.95),
) -> dict[str, Any]:
    """Return posterior mean, sd, variance and quantiles of theta, of one item or of arrays.

    Parameters
    ----------
    table : PriorTable, str or Path
        The prior, from `load`, or the path of its file.
    score : float or array_like, shape (n,), or None
        Scores, or None for a fit without.
    outcome : float or array_like, shape (n,), or None
        Counts, values or successes, without which theta is given the score alone.
    size : float or array_like, shape (n,), or None
        Exposures, noise sds or trials.
    group : str or array_like, shape (n,), or None
        Labels of groups.
    quantiles : Sequence[float]
        Levels, from 0.005 to 0.995.

    Returns
    -------
    dict
        ``theta_mean``, ``theta_sd``, ``theta_var``, quantiles such as ``theta_q05``, ``p_zero`` if
        theta may be 0, and ``flagged`` (errors may exceed those stated): numbers, or arrays (n,).

    Raises
    ------
    ValueError
        If scores, outcomes or levels are not possible, or a group or size is missing.

    Examples
    --------
    >>> round(score("prior.json", 0.05, 2, 30.0)["theta_q95"], 2)
    0.1
    """
    table = table if isinstance(table, PriorTable) else load(table)
    meta = table.meta
    family = formulas_of(meta)
    score = meta["score"] if score is None else score
    if score is None:
        raise ValueError("the fit's items have a score: give score= of each")
    if not all(OUTER_LEVEL <= level <= 1.0 - OUTER_LEVEL for level in quantiles):
        raise ValueError(f"quantiles={tuple(quantiles)} must be from 0.005 to 0.995")
    if size is None and (outcome is not None or meta["sizes"]):
        raise ValueError(
            "outcomes, and thetas that depend on the size, need it: give size= too"
        )
    values = (0.0, family.no_size, size) if outcome is None else (outcome, size, size)
    arrays = [np.asarray(v, dtype=float) for v in (score, *values)]
    t, y, n, prior_size = np.broadcast_arrays(*map(np.atleast_1d, arrays))
    if impossible := np.sum(~family.possible(y, n)):
        raise ValueError(
            f"{impossible} of {len(t)} outcomes are not possible with their sizes"
        )
    # an infinite noise sd says nothing
    n = np.where(n < math.inf, n, family.no_size)
    labels = None
    if meta["groups"]:
        labels = np.atleast_1d(np.array(group, dtype=str)).astype(object)
        if len(labels) != len(t):
            raise ValueError(
                f"{len(labels)} groups for {len(t)} scores: give group= of each"
            )
        if unknown := sorted(set(labels) - set(meta["groups"])):
            raise ValueError(f"group {unknown[0]!r} is not one of the table's")
    items = Observed(t, y, n, prior_size, labels)
    nodes = posterior_nodes(table, items)
    rows, flagged = summaries_of(table, nodes, len(t), quantiles)
    names = summary_names(quantiles, meta["zero"])
    columns = dict(zip(names, rows, strict=True)) | {"flagged": flagged}
    if any(values.ndim for values in arrays):
        return columns
    return {name: values[0].item() for name, values in columns.items()}


def summaries_of(
    table: PriorTable,
    nodes: Iterable[tuple[Any, Mixture]],
    number: int,
    probs: Sequence[float],
) -> tuple[Any, Any]:
    """Rows of `mixture_summaries` of so many items from their nodes, and flags of items."""
    out = np.full((3 + len(probs) + table.meta["zero"], number), np.nan)
    flagged = np.ones(number, dtype=bool)
    family = formulas_of(table.meta)
    # what cannot be computed is NaN, and flagged
    with np.errstate(all="ignore"):
        for part, theta in nodes:
            out[:, part] = mixture_summaries(family, theta, probs)
            flagged[part] = theta.flagged
    return out, flagged | ~np.isfinite(out).all(axis=0)


def posterior_nodes(
    table: PriorTable, items: Observed, for_outcomes: bool = False
) -> Iterator[tuple[Any, Mixture]]:
    """Indices of items and their nodes given the outcomes, in parts of any order.

    For moments of theta, or for the laws of further outcomes.
    """
    meta, (t, y, n, *_) = table.meta, items
    scale, low, high = (meta["axis"][name] for name in ("scale", "low", "high"))
    if outside := np.sum(~((t > low) & (t < high) | np.isin(t, meta["atoms"]))):
        place = f"above {low:g} and below {high:g}, as the {scale} scale needs them"
        raise ValueError(f"{outside} of {len(t)} scores are not {place}")
    known = np.ones(len(n)) if for_outcomes else n
    cell, x, w = places(meta, t, items.prior_size, known, ARRAYS)
    labels: Any = [""]
    code = np.zeros(len(t), dtype=np.int64)
    if items.group is not None:
        labels, code = np.unique(items.group, return_inverse=True)
    parts = [table.nodes(label, cell[code == k]) for k, label in enumerate(labels)]
    columns = {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0]
    }
    # of the nodes of a cell
    begin = np.flatnonzero(columns["node"] == 0)
    cell = cell + len(begin) // len(labels) * code
    number = np.diff(begin, append=len(columns["node"]))[cell]
    # a mixture's items of similar outcomes share the components that count
    order = np.lexsort([*[y / np.maximum(n, 1e-300)] * meta["mixture"], cell, number])
    for alike in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        step = max(1, _AT_ONCE // int(number[alike].max(initial=1)))
        for part in (alike[i : i + step] for i in range(0, len(alike), step)):
            rows = begin[cell[part]] + np.arange(number[part[0]])[:, None]
            node = {name: values.take(rows) for name, values in columns.items()}
            is_last = node["node"] == len(rows) - 1
            # under a mixture with zeros
            node["is_zero"] = is_last
            node["wide"] = node["wide"][0]
            given = Place(x[part], w[part], y[part], n[part])
            yield part, nodes_given(meta, node, given, ARRAYS)


def places(
    meta: Mapping[str, Any], t: Numbers, size: Numbers, n: Numbers, xp: Functions
) -> tuple[Numbers, Numbers, Numbers]:
    """Each item's cell in its group, and its places along score and size there, inside 0 to 1.

    By its score, the size that its prior depends on, and that of its outcome.
    """
    axis = meta["axis"]
    atom = 0
    ends = (-1e30, 1e30)
    sizes = meta["sizes"]
    for k, value in enumerate(meta["atoms"], 1):
        atom = xp.where(t == xp.exact(value), k, atom)
    # an atom need not have a position
    u = position = xp.keep(xp.where(atom > 0, 0.5, t))
    # known at some scores, and straight between them
    if axis["scale"] == "rank":
        u = xp.interp(position, axis["score"], axis["rank"])
        ends = (0.0, 1.0)
    elif axis["scale"] != "linear":
        u = xp.log(position)
        if axis["scale"] == "logit":
            u = u - xp.log(1.0 - position)
    cell, x = _within(meta["score_edges"], position, meta["edges"], u, xp)
    cell = xp.where(atom > 0, len(meta["edges"]) - 2 + atom, cell)
    x = xp.where(atom > 0, 0.0, xp.clip(x, *ends))
    # cells for items without information follow those of others
    if meta["unseen"]:
        cell = 2 * cell + xp.where(n == formulas_of(meta).no_size, 1, 0)
    if not sizes:
        return cell, x, 0.0 * x
    log_size = xp.log(xp.high(size, 1e-300))
    column, w = _within(meta["size_edges"], size, sizes, log_size, xp)
    return cell * (len(sizes) - 1) + column, x, xp.clip(w, 0.0, 1.0)


def _within(
    cuts: Sequence[float],
    values: Numbers,
    edges: Sequence[float],
    u: Numbers,
    xp: Functions,
) -> Pair:
    """Cells of values between cuts, the outer ones without end, and places from 0 to 1 there."""
    # at cuts all engines agree to the last digit
    cell = xp.bin(np.array(cuts[1:-1]), values)
    low, width = xp.take(cell, np.array(edges[:-1]), np.diff(edges))
    return cell, xp.keep((u - low) / width)


def nodes_given(
    meta: Mapping[str, Any],
    node: Mapping[str, Numbers],
    place: Place,
    xp: Functions,
) -> Mixture:
    """Weights and parameters (nodes, n) given outcomes; P(theta = 0), moments and flags (n,).

    And the loadings (nodes, n) of the covariance of a mixture's weights before the outcomes.
    """
    x, w, y, n = place
    family = formulas_of(meta)
    sums = list[Any]()
    loadings = [values for name, values in node.items() if name.startswith("way_")]
    powers = {f"{i}{j}": math.prod([x] * i + [w] * j) for i, j in meta["terms"]}
    weight, *curves = (
        xp.keep(sum(node[f"{name}_{term}"] * power for term, power in powers.items()))
        for name in POLYNOMIALS
    )
    curves = [
        xp.keep(xp.clip(v, -m, m)) for v, m in zip(curves, family.bounds, strict=True)
    ]
    a, b = map(xp.keep, family.parameters(curves[0], curves[1], xp))
    if meta["mixture"]:
        weight, *sums = reweighted(
            loadings, weight, family.log_factor(a, b, y, n, xp), xp
        )
    if meta["zero"]:
        sums.append(xp.where(node["is_zero"], weight, 0.0))
        weight = xp.keep(xp.where(node["is_zero"], 0.0, weight))
    a, b = map(xp.keep, family.update(a, b, y, n))
    averages, total, *sums = moments(family, (weight, a, b), xp, *sums)
    _, within, between = averages
    close = sums[0] <= MOST_MOVED if meta["mixture"] else between <= MOST_APART * within
    zero = sums[1] / (sums[1] + total) if meta["zero"] else None
    flagged = ~close | (node["wide"] > 0) | (x < 0.0) | (x > 1.0)
    return Mixture(weight / total, a, b, averages, zero, flagged, loadings)


def reweighted(
    loadings: Sequence[Numbers], weight: Numbers, log_density: Numbers, xp: Functions
) -> Pair:
    """A mixture's weights given log densities of the outcome, and terms of how far they move."""
    # polynomials may be < 0, and below this have no digits
    is_faint = weight < _FAINT_WEIGHT
    prior = xp.keep(xp.where(is_faint, _LEAST_WEIGHT, weight))
    log_p = xp.keep(log_density)
    p = xp.keep(_density(log_p - xp.most(log_p), xp))
    total, *shifts = xp.total(prior * p, *(loading * p for loading in loadings))
    # Bayes' rule, averaged over uncertain weights as if they and their sum were lognormal
    shifts = [xp.keep(shift / total) for shift in shifts]
    change = sum(
        loading * shift for loading, shift in zip(loadings, shifts, strict=True)
    )
    change = xp.keep(change / xp.high(prior, 1e-100))
    share = xp.keep(prior * p / total)
    moved = xp.where(is_faint, 1.0, change * change)
    return xp.keep(share / xp.high(1.0 + change, 0.1)), share * moved


def moments(
    family: Formulas, members: Iterable[Numbers], xp: Functions, *further: Numbers
) -> tuple[Any, ...]:
    """Means and variances within and between members; sums of the weights and further values."""
    weight, a, b = members
    means = xp.keep(family.mean(a, b))
    total, mean, *sums = xp.total(weight, weight * means, *further)
    total = xp.keep(xp.high(total, 1e-290))
    mean = xp.keep(mean / total)
    spreads = weight * family.variance(a, b), weight * (means - mean) * (means - mean)
    within, between = xp.total(*spreads)
    return (mean, within / total, between / total), total, *sums


def with_zeros(mean: Numbers, variance: Numbers, zero: Numbers) -> Pair:
    """Mean and variance with a share of theta = 0 beside others."""
    return (1.0 - zero) * mean, (1.0 - zero) * (variance + zero * mean * mean)


def mixture_summaries(
    family: Formulas,
    theta: Mixture,
    probs: Sequence[float],
    laws: Sequence[Law] = (),
) -> Numbers:
    """Rows of mean, sd, variance and quantiles of mixtures, and P(theta = 0) if given."""
    weight, a, b, averages, zero, *_ = theta
    mean = averages[0]
    variance = averages[1] + averages[2]
    total_mean, total = with_zeros(mean, variance, 0.0 if zero is None else zero)
    out = [total_mean, np.sqrt(total), total]
    below = 0.0
    laws = laws or [family.law]
    # quantiles do not show the others
    counts = (np.abs(weight) > FAINT).any(axis=1)
    # none does where theta is 0
    counts |= ~counts.any()
    weight = weight[counts]
    a = a[counts]
    b = b[counts]
    members = a, b, family.scale(a, b, ARRAYS)
    if zero is not None and not family.positive:
        below = (weight * laws[-1](members, 0.0, ARRAYS)[0]).sum(axis=0)
    stages = [(family.law, _EVERY)] * (len(weight) > _MANY) + [(law, 1) for law in laws]
    for prob in probs:
        levels = prob + 0.0 * mean, 0.0 if zero is None else zero, below
        goal, t, unit, at_zero = start(family, mean, variance, levels, ARRAYS)
        for law, every in stages:
            ends = np.full((2, len(t)), [[-family.end], [family.end]])
            share = weight[::every] / weight[::every].sum(axis=0)
            some = share, *(values[::every] for values in members)
            root = _solved(law, some, (goal, unit, t, *ends))
            t = np.where(np.isnan(root), t, root)
        out.append(np.where(at_zero, 0.0, family.theta(root, ARRAYS)))
    return np.array(out if zero is None else [*out, zero])


def start(
    family: Formulas,
    mean: Numbers,
    variance: Numbers,
    levels: Sequence[Numbers],
    xp: Functions,
) -> tuple[Any, ...]:
    """Logits of levels, places near their quantiles, sds there, and masks of quantiles at 0."""
    # P(theta = 0), and P(theta < 0) if it is not 0
    level, zero, below = levels
    nonzero = xp.high(1.0 - zero, 1e-290)
    under = nonzero * below
    share = xp.where(level < under, level, xp.high(level - zero, under)) / nonzero
    share = xp.keep(xp.clip(share, 1e-300, 1.0 - 1e-16))
    a, b = map(xp.keep, family.matched(mean, variance))
    middle, square = family.middle(a, b, xp)
    goal = xp.keep(xp.log(share / (1.0 - share)))
    sd = xp.keep(xp.sqrt(square))
    t = xp.keep(xp.clip(middle + sd * goal / 1.702, -family.end, family.end))
    law = family.law((a, b, family.scale(a, b, xp)), t, xp)
    t = xp.clip(t + halley(goal, law, sd, xp)[1], -family.end, family.end)
    at_zero = (level >= under) & (level < under + zero)
    return goal, t, xp.low(sd, 0.1 * family.end), at_zero


def _solved(
    law: Law, members: Sequence[Numbers], state: Sequence[Numbers], steps: int = 200
) -> Numbers:
    """Places where mixtures have levels, from `state`: logits, sds, first guesses and bounds."""
    weight, *others = members
    goal, unit, t, low, high = state
    sums = [(weight * values).sum(axis=0) for values in law(others, t, ARRAYS)]
    gap, step = halley(goal, sums, unit, ARRAYS)
    low = np.where(gap > 0, t, low)
    high = np.where(gap > 0, high, t)
    step = np.clip(step, 0.7 * (low - t), 0.7 * (high - t))
    t = t + step
    todo = ~((np.abs(gap) < CLOSE) | (np.abs(step) < _ROUNDING * np.abs(t)))
    if todo.any():
        members = [v[:, todo] for v in members]
        state = [v[todo] for v in (goal, unit, t, low, high)]
        t[todo] = _solved(law, members, state, steps - 1) if steps else np.nan
    return t


def halley(goal: Numbers, law: Sequence[Numbers], unit: Numbers, xp: Functions) -> Pair:
    """Distance of a distribution function from a level, as logits, and Halley's step to it."""
    p, density, slope = law
    p = xp.keep(xp.clip(p, 1e-300, 1.0 - 1e-16))
    gap = xp.keep(goal - xp.log(p / (1.0 - p)))
    # where a distribution function has no digits left, no more is known than its width; nodes with
    # negative weights can take it below 0
    has_digits = (p > 1e-300) & (p < 1.0 - 1e-9)
    spread = xp.where(has_digits, p * (1.0 - p), 1.0)
    rise = xp.keep(xp.high(xp.where(has_digits, density, 0.0) / spread, 1e-3 / unit))
    bend = slope / xp.high(density, 1e-100) - rise * (1.0 - 2.0 * p)
    turn = 1.0 + 0.5 * gap / rise * xp.where(has_digits, bend, 0.0)
    most = (3.0 + xp.high(gap, -gap)) * unit
    return gap, xp.clip(gap / rise / xp.clip(turn, 0.5, 2.0), -most, most)
