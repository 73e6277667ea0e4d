"""The posterior of items as an expression: the prior table, joined by the number of a cell.

The formulas are those of `prior_table`, on columns of an engine. Arithmetic finds the cell of
distinct items; they are joined to its nodes, and sums over the nodes give their posteriors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats
from ..data.groups import CROSS, group_roles
from ..data.tables.expressions import exact, lookup_rows, with_bins
from ..data.tables.validation import numbers
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.scales import LINEAR, MIDDLE, RANK, SCALES, Scale
from ..families.validity import LARGEST, Bounds
from ..inference.results import Fit
from . import prior_table
from .items import quantile_name
from .prior_export import checked_table

PRIOR, _PLACES, _BINS = "soc_prior", "soc_places", "soc_bins"
_GROUPS, _LEVELS = "soc_groups", "soc_levels"
# engines that inline every use of a column, unless there is a LIMIT
_FENCED = ("postgres",)
_ALL = 2**62
_FAINT, _LEAST_LOG = 1e-30, -300.0  # places and log shares that count as 0: engines fail on 1e-310
_STEPS, _MIXTURE_STEPS = 2, 3  # of Newton's method for quantiles
_CLOSE = 0.1  # error of the last one, as a logit, beyond which a quantile is not known
_LOGISTIC = 1.702  # a normal quantile is nearly the logit over it


# --- the prior and its small tables --------------------------------------------------------------


@dataclass(frozen=True)
class Prior:
    """A prior table, and what an expression needs to use it."""

    meta: Mapping[str, Any]
    family: Any  # of `prior_table`
    outcome: Outcome
    scale: Scale  # on which places are straight lines
    uneven: Floats  # scores where an item's place follows another line; none if cells are even
    quantiles: tuple[str, ...]  # their columns
    tables: Mapping[str, Mapping[str, NDArray[Any]]]

    @property
    def names(self) -> tuple[str, ...]:
        """New columns."""
        zero = ("p_zero",) * self.meta["zero"]
        return ("theta_mean", "theta_sd", "theta_var", *self.quantiles, *zero)

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Columns of the nodes."""
        return self.tables[PRIOR]

    @property
    def last(self) -> int:
        """Number of the last node of the fullest cell, that of theta = 0 if there is one."""
        return int(self.columns["node"].max())

    @property
    def ways(self) -> range:
        """Numbers of the ways in which weights vary."""
        return range(sum(name.startswith("way_") for name in self.columns))


def prior_of(fit: Fit, quantiles: Sequence[float]) -> Prior:
    """The fit's prior table, if it is accurate enough."""
    meta, columns = checked_table(fit, quantiles)
    axis, edges = fit.axis("mean"), np.array(meta["edges"])
    inner = axis.inverse(edges[1:-1])
    if axis.scale == RANK:  # ranks are known at these scores, and straight between them
        inner = np.union1d(inner, axis.score)
    elif np.allclose(np.diff(edges), edges[1] - edges[0], rtol=1e-9, atol=0.0):
        inner = np.empty(0)
    tables = {
        PRIOR: columns,
        _BINS: lookup_rows(inner, "soc_") if len(inner) else {},
        _PLACES: _places(meta, inner) if len(inner) else {},
        _GROUPS: {
            "soc_label": np.array(meta["groups"], dtype=object),
            "soc_code": np.arange(len(meta["groups"])),
        },
        _LEVELS: {"soc_number": np.arange(2), "soc_level": np.array(meta["levels"])},
    }
    return Prior(
        meta,
        prior_table._FAMILIES[meta["family"]],
        family_of(fit.prior).outcome,
        SCALES.get(axis.scale, LINEAR),
        inner,
        tuple(map(quantile_name, meta["levels"])),
        {name: own for name, own in tables.items() if len(next(iter(own.values()), ()))},
    )


def _places(meta: Mapping[str, Any], inner: Floats) -> dict[str, NDArray[Any]]:
    """By bin of the inner edges: the cell, and the line that gives the place from 0 to 1 in it."""
    edges, axis = np.array(meta["edges"]), meta["axis"]
    if axis["scale"] == RANK:
        start, end = np.append(inner[0] - 1.0, inner), np.append(inner, inner[-1] + 1.0)
        low, high = (np.interp(t, axis["score"], axis["rank"]) for t in (start, end))
        cell = np.searchsorted(edges, 0.5 * (low + high), side="right") - 1
        cell, slope = cell.clip(0, len(edges) - 2), (high - low) / (end - start)
    else:
        cell = np.arange(len(edges) - 1)
        start, low, slope = edges[:-1], edges[:-1], np.ones(len(cell))
    width = np.diff(edges)[cell]
    return {
        "soc_bin": np.arange(len(cell)),
        "soc_column": cell,
        "soc_from": start,
        "soc_start": (low - edges[cell]) / width,
        "soc_slope": slope / width,
    }


# --- the expression ------------------------------------------------------------------------------


class _Sheet:
    """Rows of an engine, to which columns are added one after the other.

    `functions` serves the formulas of `prior_table`.
    """

    def __init__(self, rows: Any, fenced: bool) -> None:
        import ibis

        self.rows, self._fenced, self._number = rows, fenced, 0
        self.functions = SimpleNamespace(
            log=lambda v: v.ln(), exp=lambda v: v.exp(), sqrt=lambda v: v.sqrt(), low=ibis.least,
            high=ibis.greatest, where=ibis.ifelse, never=-1e300, keep=self.keep)  # fmt: skip

    def __getitem__(self, name: str) -> Any:
        return self.rows[f"soc_{name}"]

    def add(self, *kept: str, **values: Any) -> "_Sheet":
        """Columns soc_..., computed once each; with `kept` all others are left behind."""
        new = {f"soc_{name}": value for name, value in values.items()}
        made = self.rows.select(*kept, **new) if kept else self.rows.mutate(**new)
        self.rows = made.limit(_ALL) if self._fenced else made
        return self

    def keep(self, value: Any) -> Any:
        """A value as a column, for expressions that use it often."""
        self._number += 1
        return self.add(**{f"v{self._number}": value})[f"v{self._number}"]

    def only(self, *names: str) -> Any:
        """The rows with these columns soc_..."""
        return self.rows.select([f"soc_{name}" for name in names])


@dataclass(frozen=True)
class _Scorer:
    """How distinct items are scored on an engine."""

    prior: Prior
    lookups: Mapping[str, Any]  # Ibis tables by name
    keys: Sequence[str]  # columns that tell items apart
    fenced: bool  # whether layers must be kept from being inlined

    def sheet(self, rows: Any) -> _Sheet:
        return _Sheet(rows, self.fenced)

    def joined(self, nodes: Any, items: Any) -> _Sheet:
        """Nodes with columns of their items."""
        return self.sheet(nodes.inner_join(items, list(self.keys)))

    def summed(self, nodes: _Sheet, *kept: str, **sums: Any) -> _Sheet:
        """Items, with sums over their nodes."""
        named = {f"soc_{name}": value for name, value in sums.items()}
        return self.sheet(nodes.rows.group_by([*self.keys, *kept]).aggregate(**named))


def expression(
    table: Any, roles: Mapping[str, str], prior: Prior, lookups: Mapping[str, Any], engine: str
) -> Any:
    """The user's columns and the new ones."""
    import ibis

    keys = [f"soc_{key}" for key in ("t", "y", "n", *(["code"] if prior.meta["groups"] else []))]
    scorer = _Scorer(prior, lookups, keys, engine in _FENCED)
    rows = _inputs(table, roles, scorer)
    nodes = _nodes(_with_cells(rows.rows.select(keys).distinct(), scorer), scorer)
    joined = rows.rows.left_join(_with_quantiles(nodes, scorer), keys)
    null = ibis.null("float64")
    new = {name: joined.soc_good.ifelse(joined[f"soc_{name}"], null) for name in prior.names}
    return joined.select(*table.columns, **new)


def _inputs(table: Any, roles: Mapping[str, str], scorer: _Scorer) -> _Sheet:
    """Score, outcome and size as floats, replaced by harmless ones if any is bad; the group's code.

    Comparisons detect NaN and infinities: engines order NaN above all numbers or not at all, and
    both fail one of two bounds.
    """
    prior, scale = scorer.prior, scorer.prior.scale
    names = ("score", prior.outcome.observed, prior.outcome.size)
    t, y, n = numbers({role: table[roles[role]] for role in names}).values()
    rule = prior.outcome.validity
    low = t > scale.low if scale.low > -LARGEST else t >= -LARGEST
    high = t < scale.high if scale.high < LARGEST else t <= LARGEST
    good = low & high & _within(y, rule.outcome) & _within(n, rule.size)
    if rule.conflict is not None:
        good &= ~rule.conflict(y, n)
    rows = table
    if prior.meta["groups"]:
        labels = [table[column].cast("string") for column in group_roles(roles).values()]
        codes = scorer.lookups[_GROUPS]
        label = reduce(lambda left, right: left + CROSS + right, labels)
        rows = table.left_join(codes, label == codes.soc_label)
        good &= rows.soc_code.notnull()
    sheet = scorer.sheet(rows).add(good=good.fill_null(False))
    good = sheet["good"]
    for value, bounds in ((y, rule.outcome), (n, rule.size)):
        good &= bounds.is_whole(sheet["good"].ifelse(value, 0.0))  # floors of NaN differ by engine
    good = sheet.add(good=good)["good"]
    # adding 0 makes one key of 0 and -0
    usual = {"t": (t, MIDDLE), "y": (y, 0.0), "n": (n, 1.0)}
    sheet.add(**{name: good.ifelse(own, other) + 0.0 for name, (own, other) in usual.items()})
    return sheet.add(code=sheet["code"].fill_null(0)) if prior.meta["groups"] else sheet


def _within(value: Any, bounds: Bounds) -> Any:
    least = -bounds.largest if bounds.least is None else bounds.least
    return (value >= least) & (value <= bounds.largest)


def _with_cells(items: Any, scorer: _Scorer) -> Any:
    """The number of an item's cell, and its places x and w along score and size there."""
    import ibis

    prior, meta = scorer.prior, scorer.prior.meta
    cells, sizes = len(meta["edges"]) - 1, np.array(meta["sizes"])
    if len(prior.uneven):
        items_in_bins = with_bins(
            items, prior.uneven, "soc_", scorer.lookups.get(_BINS), score="soc_t"
        )
        sheet = scorer.sheet(items_in_bins.inner_join(scorer.lookups[_PLACES], "soc_bin"))
        x = sheet["start"] + (prior.scale.column(sheet["t"]) - sheet["from"]) * sheet["slope"]
    else:
        sheet, start = scorer.sheet(items), meta["edges"][0]
        u = sheet.keep(
            (prior.scale.column(sheet["t"]) - start) * (1.0 / (meta["edges"][1] - start))
        )
        sheet.add(column=sheet.functions.low(sheet.functions.high(u.floor(), 0.0), cells - 1.0))
        x = u - sheet["column"]
    of, (low, high) = sheet.functions, meta["reach"]
    sheet.add(x=of.low(of.high(x, low), high))
    x, at = (sheet["x"].abs() < _FAINT).ifelse(0.0, sheet["x"]), sheet["column"].cast("int64")
    for k, atom in enumerate(meta["atoms"]):
        own = sheet["t"] == exact(atom)
        at, x = own.ifelse(ibis.literal(cells + k, type="int64"), at), own.ifelse(0.0, x)
    if meta["groups"]:
        at = at + sheet["code"] * (cells + len(meta["atoms"]))
    sheet.add(at=at, x=x)
    kept = [name.removeprefix("soc_") for name in items.columns] + ["at", "x"]
    if not len(sizes):
        return sheet.only(*kept)
    v = (of.log(of.high(sheet["n"], 1e-300)) - float(sizes[0])) * float(1 / (sizes[1] - sizes[0]))
    v = sheet.keep(of.low(of.high(v, 0.0), len(sizes) - 1.0))
    row = sheet.keep(of.low(v.floor(), len(sizes) - 2.0))
    sheet.add(w=v - row, at=sheet["at"] * (len(sizes) - 1) + row.cast("int64"))
    return sheet.only(*kept, "w")


def _nodes(items: Any, scorer: _Scorer) -> Any:
    """Nodes of items given their outcomes: weights u, up to a factor of an item, a, b and norm.

    The weight `zero` is that of theta = 0.
    """
    prior, long = scorer.prior, scorer.lookups[PRIOR]
    family, keys = prior.family, scorer.keys
    typed = {f"soc_{c}": long[c].cast("float64") for c in prior.columns if c != "cell"}
    long = long.select(soc_cell=long.cell.cast("int64"), **typed)
    sheet = scorer.sheet(items.inner_join(long, items.soc_at == long.soc_cell))
    names = {"u": "weight", "first": "first", "second": "second"}
    ways = [f"soc_way_{k}" for k in prior.ways]
    kept = [*keys, "soc_node", *ways]
    sheet.add(
        *kept, **{new: _polynomial(sheet, old, prior.meta["terms"]) for new, old in names.items()}
    )
    a, b = family.parameters(sheet["first"], sheet["second"], sheet.functions)
    sheet.add(*kept, "soc_u", a=a, b=b)
    if prior.meta["mixture"]:
        sheet = _weighted(sheet, scorer)
    a, b = family.update(sheet["a"], sheet["b"], sheet["y"], sheet["n"])
    zero = ["soc_zero"] if prior.meta["zero"] else []
    sheet.add(*keys, "soc_u", *zero, a=a, b=b)
    return sheet.add(norm=family.norm(sheet["a"], sheet["b"], sheet.functions)).rows


def _polynomial(sheet: _Sheet, name: str, powers: Sequence[Sequence[int]]) -> Any:
    terms = []
    for i, j in powers:
        power = [sheet["x"]] * i + ([sheet["w"]] * j if j else [])
        terms.append(reduce(mul, power, sheet[f"{name}_{i}{j}"]))
    return _total(terms)


def _weighted(nodes: _Sheet, scorer: _Scorer) -> _Sheet:
    """Nodes with weights given the outcome, as in `prior_table`."""
    import ibis

    prior, of, ways = scorer.prior, nodes.functions, scorer.prior.ways
    y, n = nodes["y"], nodes["n"]
    log_p = prior.family.log_density(nodes["a"], nodes["b"], y, n, of)
    if prior.meta["zero"]:
        last = nodes["node"] == prior.last
        log_p = ibis.ifelse(last, prior.family.at_zero(y, n, of), log_p)
    nodes.add(log_p=log_p)
    tops = scorer.summed(nodes, top=nodes["log_p"].max()).rows
    nodes = scorer.joined(nodes.rows, tops)
    # an exponential of less is 0, which some engines refuse
    nodes.add(p=of.exp(of.high(nodes["log_p"] - nodes["top"], _LEAST_LOG)))
    moves = {f"move_{k}": (nodes["p"] * nodes[f"way_{k}"]).sum() for k in ways}
    items = scorer.summed(nodes, total=(nodes["u"] * nodes["p"]).sum(), **moves)
    items.add(**{f"move_{k}": items[f"move_{k}"] / items["total"] for k in ways})
    items.add(more=1.0 + _total(items[f"move_{k}"] * items[f"move_{k}"] for k in ways))
    nodes = scorer.joined(nodes.rows, items.rows)
    near = _total(nodes[f"way_{k}"] * nodes[f"move_{k}"] for k in ways)
    near = of.high(1.0 + near / of.high(nodes["u"], 1e-100), 0.1)
    u = nodes.add(u=nodes["u"] * nodes["p"] * nodes["more"] / near)["u"]
    if prior.meta["zero"]:
        last = nodes["node"] == prior.last
        nodes.add(zero=last.ifelse(u, 0.0), u=last.ifelse(0.0, u))
    return nodes


def _with_moments(nodes: Any, scorer: _Scorer) -> Any:
    """Mean and variance over the nodes given the outcome, where theta is not 0; p_zero."""
    family, zero = scorer.prior.family, scorer.prior.meta["zero"]
    sheet = scorer.sheet(nodes)
    sums = {"mean": _average(sheet, family.pearson(sheet["a"], sheet["b"])[0])}
    if zero:
        none = sheet["zero"].sum()
        sums["p_zero"] = none / (none + sheet["u"].sum())
    items = scorer.summed(sheet, **sums).rows
    kept = [name for name in items.columns if name not in scorer.keys]
    sheet = scorer.joined(nodes, items)
    mean, own, _, bend = family.pearson(sheet["a"], sheet["b"])
    away = sheet.keep(mean - sheet["mean"])
    sums = {"middle": _average(sheet, own / (1.0 - bend) + away * away)}
    if zero:  # the share of theta below 0, of which quantiles are functions
        sums["below"] = _average(sheet, _law(sheet, family, 0.0)[0]) if not family.positive else 0.0
    return scorer.summed(sheet, *kept, **sums).rows


def _average(nodes: _Sheet, value: Any) -> Any:
    """Mean over an item's nodes where theta is not 0."""
    return (nodes["u"] * value).sum() / nodes.functions.high(nodes["u"].sum(), 1e-290)


def _law(nodes: _Sheet, family: Any, at: Any) -> tuple[Any, Any]:
    return family.law(nodes["a"], nodes["b"], nodes["norm"], at, nodes.functions)


def _with_quantiles(nodes: Any, scorer: _Scorer) -> Any:
    """Moments and quantiles of items, by steps of Newton's method on the nodes' distribution."""
    import ibis

    prior, family, items = scorer.prior, scorer.prior.family, _with_moments(nodes, scorer)
    sheet = scorer.sheet(items.cross_join(scorer.lookups[_LEVELS]))
    of = sheet.functions
    known = [name for name in items.columns if name not in scorer.keys]
    known += ["soc_number", "soc_share", "soc_covered", "soc_unit"]
    share, covered = sheet["level"], ibis.literal(False)
    if prior.meta["zero"]:
        share, covered = prior_table._share(share, sheet["p_zero"], sheet["below"], of)
    sheet.add(share=share, covered=covered)
    a, b = map(sheet.keep, family.matched(sheet["mean"], sheet["middle"]))
    start, unit = _start(family.depends, a, b, sheet["share"], sheet)
    sheet.add(q=start, unit=unit, low=-1e300, high=1e300)
    placed = [*known, "soc_q", "soc_low", "soc_high"]
    for _ in range(_MIXTURE_STEPS if prior.meta["mixture"] else _STEPS):
        both = scorer.joined(nodes, sheet.rows.select(*scorer.keys, *placed))
        p, density = _law(both, family, both["q"])
        sums = {"p": _average(both, p), "density": _average(both, density)}
        sheet = scorer.summed(both, *placed, **sums)
        names = ("share", "p", "density", "q", "low", "high", "unit")
        given = *(sheet[name] for name in names), sheet.functions
        q, low, high = prior_table._step(*given)
        sheet.add(q=q, low=low, high=high)
    close = prior_table._is_close(sheet["p"], sheet["share"], _CLOSE, sheet.functions)
    theta = close.ifelse(family.theta(sheet["q"], sheet.functions), ibis.null("float64"))
    sheet.add(theta=sheet["covered"].ifelse(0.0, theta))
    quantiles = {
        name: sheet["theta"].max(where=sheet["number"] == k)
        for k, name in enumerate(prior.quantiles)
    }
    moments = ["soc_mean", "soc_middle", *(["soc_p_zero"] if prior.meta["zero"] else [])]
    found = scorer.summed(sheet, *moments, **quantiles)
    mean, middle = found["mean"], found["middle"]
    if prior.meta["zero"]:
        rest = 1.0 - found["p_zero"]
        mean, middle = rest * mean, rest * (middle + found["p_zero"] * mean * mean)
    return found.add(theta_mean=mean, theta_var=middle, theta_sd=middle.sqrt()).rows


def _start(depends: int, a: Any, b: Any, share: Any, sheet: _Sheet) -> tuple[Any, Any]:
    """A place near a member's quantile on the line, and the member's sd there.

    By the first cumulants of logarithms of Gammas, and Cornish and Fisher (1938).
    """
    of = sheet.functions
    z = sheet.keep((of.log(share) - of.log(1.0 - share)) / _LOGISTIC)
    if depends == 0:
        return a + z * of.sqrt(b), of.sqrt(b)
    one, two, three = _log_cumulants(a, of)
    if depends == 1:
        one = one - of.log(b)
    else:
        other = _log_cumulants(b, of)
        one, two, three = one - other[0], two + other[1], three - other[2]
    one, two, three = map(sheet.keep, (one, two, three))
    sd = sheet.keep(of.sqrt(two))
    return one + sd * (z + three / (two * sd) * (z * z - 1.0) / 6.0), sd


def _log_cumulants(a: Any, of: Any) -> tuple[Any, Any, Any]:
    """Mean, variance and third central moment, nearly, of the log of a Gamma of this shape."""
    return (
        of.log(a + 0.5) - 1.0 / a,
        1.0 / (a * a) + 1.0 / (a + 0.5),
        -2.0 / (a * a * a) - 1.0 / ((a + 0.5) * (a + 0.5)),
    )


def _total(terms: Iterable[Any]) -> Any:
    """Sum as a tree, for engines that limit an expression's depth."""
    left = list(terms)
    while len(left) > 1:
        left = [sum(left[i + 1 : i + 2], left[i]) for i in range(0, len(left), 2)]
    return left[0]
