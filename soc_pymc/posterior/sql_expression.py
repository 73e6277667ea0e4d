"""The posterior of items as an expression: the prior table, joined by the number of a cell.

The formulas are those of `soc_pymc.prior_table`, on columns of an engine. Comparisons find the cell
of distinct items; they are joined to its nodes, and sums over the nodes give their posteriors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import mul
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import prior_table
from .._lib.arrays import Floats
from ..data.columns import exact, lookup_rows, numbers, with_bins
from ..data.groups import CROSS, group_roles
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.scales import LINEAR, MIDDLE, RANK, SCALES, Scale
from ..families.validity import LARGEST, Bounds
from ..inference.results import Fit
from ..prior_table import FARTHEST, LARGEST_LOG, quantile_name
from .prior_export import described

PRIOR, _PLACES, _BINS = "soc_prior", "soc_places", "soc_bins"
_GROUPS, _LEVELS = "soc_groups", "soc_levels"
# engines that inline every use of a column, unless there is a LIMIT
_FENCED = ("postgres",)
_ALL = 2**62
_FAINT, _LEAST_LOG = 1e-30, -300.0  # places and log shares that count as 0: engines fail on 1e-310
_STEPS, _MIXTURE_STEPS = 3, 4  # of Newton's method for quantiles on the nodes


# --- the prior and its small tables --------------------------------------------------------------


@dataclass(frozen=True)
class Prior:
    """A prior table, and what an expression needs to use it."""

    meta: Mapping[str, Any]
    family: Any  # of `prior_table`
    outcome: Outcome
    scale: Scale  # on which places are straight lines
    inner: Floats  # scores where an item's place follows another line
    quantiles: tuple[str, ...]  # their columns
    tables: Mapping[str, Mapping[str, NDArray[Any]]]

    @property
    def names(self) -> tuple[str, ...]:
        """New columns."""
        zero = ("p_zero",) * self.meta["zero"]
        return ("theta_mean", "theta_sd", "theta_var", *self.quantiles, *zero, "flagged")

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


def prior_of(fit: Fit, levels: Sequence[float]) -> Prior:
    """The fit's prior table, if it is accurate enough."""
    meta, columns = described(fit)
    axis, inner = fit.axis("mean"), np.array(meta["score_edges"])[1:-1]
    if axis.scale == RANK:  # ranks are known at these scores, and straight between them
        inner = np.union1d(inner, axis.score)
    tables = {
        PRIOR: {name: columns[name] for name, _ in meta["columns"]},
        _BINS: lookup_rows(inner, "soc_"),
        _PLACES: _places(meta, inner),
        _GROUPS: {
            "soc_label": np.array(meta["groups"], dtype=object),
            "soc_code": np.arange(len(meta["groups"])),
        },
        _LEVELS: {"soc_number": np.arange(len(levels)), "soc_level": np.array(levels)},
    }
    return Prior(
        meta,
        prior_table.FAMILIES[meta["family"]],
        family_of(fit.prior).outcome,
        SCALES.get(axis.scale, LINEAR),
        inner,
        tuple(map(quantile_name, levels)),
        {
            name: columns
            for name, columns in tables.items()
            if len(next(iter(columns.values()), ()))
        },
    )


def _places(meta: Mapping[str, Any], inner: Floats) -> dict[str, NDArray[Any]]:
    """By bin of the inner edges: the cell, and the line that gives the place from 0 to 1 in it."""
    edges, axis = np.array(meta["edges"]), meta["axis"]
    if axis["scale"] == RANK:
        start, end = np.append(inner[0] - 1.0, inner), np.append(inner, inner[-1] + 1.0)
        low, high = (np.interp(t, axis["score"], axis["rank"]) for t in (start, end))
        cell = np.searchsorted(meta["score_edges"][1:-1], start, side="right")
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
    # bad items have harmless keys; no item is left where the prior's table is of another fit
    joined = rows.rows.inner_join(_with_quantiles(nodes, scorer), keys)
    null = ibis.null("float64")
    new = {name: joined.soc_good.ifelse(joined[f"soc_{name}"], null) for name in prior.names[:-1]}
    new["flagged"] = joined.soc_good.ifelse(joined.soc_flagged > 0, ibis.null("boolean"))
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
    placed = low & high
    if prior.meta["atoms"]:  # these need no position
        placed |= t.isin([exact(atom) for atom in prior.meta["atoms"]])
    good = placed & _within(y, rule.outcome) & _within(n, rule.size)
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
        if bounds.whole:
            known = sheet["good"].ifelse(value, 0.0)  # floors of NaN differ by engine
            good &= known == known.floor()
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
    cells = len(meta["edges"]) - 1
    binned = with_bins(items, prior.inner, "soc_", scorer.lookups.get(_BINS), score="soc_t")
    sheet = scorer.sheet(binned.inner_join(scorer.lookups[_PLACES], "soc_bin"))
    xp = sheet.functions
    t = sheet["t"]
    if meta["atoms"]:
        t = t.isin([exact(atom) for atom in meta["atoms"]]).ifelse(MIDDLE, t)
    x = sheet["start"] + (prior.scale.formula(t, xp.log) - sheet["from"]) * sheet["slope"]
    sheet.add(x=xp.low(xp.high(x, -FARTHEST), FARTHEST))
    x, cell = (sheet["x"].abs() < _FAINT).ifelse(0.0, sheet["x"]), sheet["column"].cast("int64")
    for k, atom in enumerate(meta["atoms"]):
        is_atom = sheet["t"] == exact(atom)
        cell, x = (
            is_atom.ifelse(ibis.literal(cells + k, type="int64"), cell),
            is_atom.ifelse(0.0, x),
        )
    if meta["groups"]:
        cell = cell + sheet["code"] * (cells + len(meta["atoms"]))
    sheet.add(at=cell, x=x)
    kept = [name.removeprefix("soc_") for name in items.columns] + ["at", "x"]
    if not meta["sizes"]:
        return sheet.only(*kept)
    edges = meta["sizes"]
    inner = [exact(edge) for edge in meta["size_edges"][1:-1]]
    column = sheet.keep(_total((sheet["n"] >= edge).cast("int64") for edge in inner))
    v = xp.low(xp.high(xp.log(xp.high(sheet["n"], 1e-300)), edges[0]), edges[-1])
    parts = [(v - low) / (high - low) for low, high in pairwise(edges)]
    w = ibis.cases(*((column == k, part) for k, part in enumerate(parts)), else_=0.0)
    sheet.add(w=w, at=sheet["at"] * (len(edges) - 1) + column)
    return sheet.only(*kept, "w")


def _nodes(items: Any, scorer: _Scorer) -> Any:
    """Nodes of items given their outcomes: weights u, up to a factor of an item, a, b and norm.

    The weight `zero` is that of theta = 0, and `doubt` is more than 0 where an item is flagged.
    """
    prior, long = scorer.prior, scorer.lookups[PRIOR]
    family, keys, meta = prior.family, scorer.keys, scorer.prior.meta
    if "fit" in long.columns:
        long = long.filter(long.fit == meta["fit"])
    typed = {f"soc_{c}": long[c].cast("float64") for c in prior.columns if c != "cell"}
    long = long.select(soc_cell=long.cell.cast("int64"), **typed)
    sheet = scorer.sheet(items.inner_join(long, items.soc_at == long.soc_cell))
    kept = [*keys, "soc_node", *(f"soc_way_{k}" for k in prior.ways)]
    beyond = (sheet["x"] < 0.0) | (sheet["x"] > 1.0)
    doubt = sheet["wide"] if "score" in meta["axis"] else beyond.ifelse(1.0, sheet["wide"])
    rows = {name: _polynomial(sheet, name, meta["terms"]) for name in ("first", "second")}
    sheet.add(*kept, doubt=doubt, u=_polynomial(sheet, "weight", meta["terms"]), **rows)
    xp = sheet.functions
    first, second = (
        xp.low(xp.high(sheet[c], -LARGEST_LOG), LARGEST_LOG) for c in ("first", "second")
    )
    first = first if family.positive else sheet["first"]
    sheet.add(*kept, "soc_u", "soc_doubt", first=first, second=second)
    a, b = family.parameters(sheet["first"], sheet["second"], xp)
    sheet.add(*kept, "soc_u", "soc_doubt", a=a, b=b)
    if meta["mixture"]:
        sheet = _weighted(sheet, scorer)
    a, b = family.update(sheet["a"], sheet["b"], sheet["y"], sheet["n"])
    more = ["soc_apart"] * meta["mixture"] + ["soc_zero"] * meta["zero"]
    sheet.add(*keys, "soc_u", "soc_doubt", *more, a=a, b=b)
    return sheet.add(norm=family.norm(sheet["a"], sheet["b"], xp)).rows


def _polynomial(sheet: _Sheet, name: str, powers: Sequence[Sequence[int]]) -> Any:
    terms = []
    for i, j in powers:
        power = [sheet["x"]] * i + ([sheet["w"]] * j if j else [])
        terms.append(reduce(mul, power, sheet[f"{name}_{i}{j}"]))
    return _total(terms)


def _weighted(nodes: _Sheet, scorer: _Scorer) -> _Sheet:
    """Nodes with weights given the outcome, as in `prior_table`."""
    import ibis

    prior, xp, ways = scorer.prior, nodes.functions, scorer.prior.ways
    y, n = nodes["y"], nodes["n"]
    nodes.add(u=xp.high(nodes["u"], 0.0))
    log_p = prior.family.log_density(nodes["a"], nodes["b"], y, n, xp)
    if prior.meta["zero"]:
        last = nodes["node"] == prior.last
        log_p = ibis.ifelse(last, prior.family.at_zero(y, n, xp), log_p)
    nodes.add(log_p=log_p)
    tops = scorer.summed(nodes, top=nodes["log_p"].max()).rows
    nodes = scorer.joined(nodes.rows, tops)
    # an exponential of less is 0, which some engines refuse
    nodes.add(p=xp.exp(xp.high(nodes["log_p"] - nodes["top"], _LEAST_LOG)))
    moves = {f"move_{k}": (nodes["p"] * nodes[f"way_{k}"]).sum() for k in ways}
    items = scorer.summed(nodes, total=(nodes["u"] * nodes["p"]).sum(), **moves)
    items.add(**{f"move_{k}": items[f"move_{k}"] / items["total"] for k in ways})
    items.add(moved=_total(items[f"move_{k}"] * items[f"move_{k}"] for k in ways))
    nodes = scorer.joined(nodes.rows, items.rows)
    change = _total(nodes[f"way_{k}"] * nodes[f"move_{k}"] for k in ways)
    change = nodes.keep(change / xp.high(nodes["u"], 1e-100))
    apart = nodes["u"] * nodes["p"] / nodes["total"] * change * change
    u = nodes["u"] * nodes["p"] * (1.0 + nodes["moved"]) / xp.high(1.0 + change, 0.1)
    u = nodes.add(u=u, apart=apart)["u"]
    if prior.meta["zero"]:
        last = nodes["node"] == prior.last
        nodes.add(zero=last.ifelse(u, 0.0), u=last.ifelse(0.0, u))
    return nodes


def _with_moments(nodes: Any, scorer: _Scorer) -> Any:
    """Mean and variance over the nodes given the outcome, where theta is not 0; p_zero."""
    family, zero = scorer.prior.family, scorer.prior.meta["zero"]
    sheet = scorer.sheet(nodes)
    doubt = sheet["doubt"].max()
    if scorer.prior.meta["mixture"]:
        doubt = (sheet["apart"].sum() <= prior_table.MOST_MOVED).ifelse(doubt, 1.0)
    sums = {"mean": _average(sheet, family.mean(sheet["a"], sheet["b"])), "flag": doubt}
    if zero:
        none = sheet["zero"].sum()
        sums["p_zero"] = none / (none + sheet["u"].sum())
    items = scorer.summed(sheet, **sums).rows
    kept = [name for name in items.columns if name not in scorer.keys]
    sheet = scorer.joined(nodes, items)
    mean, variance = family.mean(sheet["a"], sheet["b"]), family.variance(sheet["a"], sheet["b"])
    variance, away = sheet.keep(variance), sheet.keep(mean - sheet["mean"])
    sums = {"within": _average(sheet, variance), "between": _average(sheet, away * away)}
    if zero:  # the share of theta below 0, of which quantiles are functions
        sums["below"] = _average(sheet, _law(sheet, family, 0.0)[0]) if not family.positive else 0.0
    items = scorer.summed(sheet, *kept, **sums)
    flag = items["flag"]
    if not scorer.prior.meta["mixture"]:
        known = items["between"] <= prior_table.MOST_APART * items["within"]
        flag = known.ifelse(flag, 1.0)
    items.add(middle=items["within"] + items["between"], flagged=flag)
    return items.rows.drop("soc_within", "soc_between", "soc_flag")


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
    xp = sheet.functions
    share, at_zero = sheet["level"], ibis.literal(False)
    if prior.meta["zero"]:
        share, at_zero = prior_table.split_level(share, sheet["p_zero"], sheet["below"], xp)
    sheet.add(share=share, at_zero=at_zero)
    a, b = family.matched(sheet["mean"], sheet["middle"])
    sheet.add(a=a, b=b)
    a, b = sheet["a"], sheet["b"]
    start, unit = prior_table.start(family.cumulants(a, b, xp), sheet["share"], xp)
    goal = xp.log(sheet["share"] / (1.0 - sheet["share"]))
    norm = family.norm(a, b, xp)
    sheet.add(q=start, unit=unit, low=-1e300, high=1e300, goal=goal, norm=norm)
    # a step towards the quantile of the member with these moments
    p, density = family.law(a, b, sheet["norm"], sheet["q"], xp)
    sheet.add(p=p, density=density)
    _step(sheet, sheet["p"], sheet["density"])
    sheet.add(low=-1e300, high=1e300)
    known = [name for name in items.columns if name not in scorer.keys]
    known += ["soc_number", "soc_goal", "soc_at_zero", "soc_unit"]
    placed = [*known, "soc_q", "soc_low", "soc_high"]
    for _ in range(_MIXTURE_STEPS if prior.meta["mixture"] else _STEPS):
        pairs = scorer.joined(nodes, sheet.rows.select(*scorer.keys, *placed))
        p, density = _law(pairs, family, pairs["q"])
        sums = {"p": _average(pairs, p), "density": _average(pairs, density)}
        sheet = scorer.summed(pairs, *placed, **sums)
        away = _step(sheet, sheet["p"], sheet["density"])
    close = sheet["at_zero"] | (away.abs() < prior_table.CLOSE)
    sheet.add(flagged=close.ifelse(sheet["flagged"], 1.0))
    theta = close.ifelse(family.theta(sheet["q"], sheet.functions), ibis.null("float64"))
    sheet.add(theta=sheet["at_zero"].ifelse(0.0, theta))
    quantiles = {
        name: sheet["theta"].max(where=sheet["number"] == k)
        for k, name in enumerate(prior.quantiles)
    }
    moments = ["soc_mean", "soc_middle", *(["soc_p_zero"] if prior.meta["zero"] else [])]
    summary = scorer.summed(sheet, *moments, **quantiles, flagged=sheet["flagged"].max())
    mean, middle = summary["mean"], summary["middle"]
    if prior.meta["zero"]:
        rest = 1.0 - summary["p_zero"]
        mean, middle = rest * mean, rest * (middle + summary["p_zero"] * mean * mean)
    return summary.add(theta_mean=mean, theta_var=middle, theta_sd=middle.sqrt()).rows


def _step(sheet: _Sheet, p: Any, density: Any) -> Any:
    """A step of Newton's method, into q, low and high; the difference of the logits before it."""
    names = ("q", "low", "high", "unit")
    q, low, high, unit = (sheet[name] for name in names)
    away, q, low, high = prior_table.newton(
        sheet["goal"], p, density, q, low, high, unit, sheet.functions
    )
    sheet.add(away=away, q=q, low=low, high=high)
    return sheet["away"]


def _total(terms: Iterable[Any]) -> Any:
    """Sum as a tree, for engines that limit an expression's depth."""
    left = list(terms)
    while len(left) > 1:
        left = [sum(left[i + 1 : i + 2], left[i]) for i in range(0, len(left), 2)]
    return left[0]
