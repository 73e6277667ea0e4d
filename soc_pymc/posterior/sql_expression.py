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
from ..data.groups import CROSS, NO_SCORE, ONE_SCORE, group_roles
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.scales import LARGEST, LINEAR, MIDDLE, RANK, SCALES, Bounds, Scale
from ..inference.results import Fit
from ..prior_table import FARTHEST, LARGEST_LOG, quantile_name
from .prior_export import described

PRIOR, _PLACES, _BINS = "soc_prior", "soc_places", "soc_bins"
_GROUPS, _LEVELS = "soc_groups", "soc_levels"
# engines that inline every use of a column, unless there is a LIMIT
_FENCED = ("postgres",)
_ALL = 2**62
_FAINT, _LEAST_LOG = 1e-30, -300.0  # places and log shares that count as 0: engines fail on 1e-310
_STEPS, _MIXTURE_STEPS = 3, 4  # Newton steps for quantiles on the nodes


# --- the prior and its small tables --------------------------------------------------------------


@dataclass(frozen=True)
class Prior:
    """A prior table, and what an expression needs to use it."""

    meta: Mapping[str, Any]
    outcome: Outcome
    scale: Scale  # on which places are straight lines
    inner: Floats  # scores where an item's place follows another line
    quantiles: tuple[str, ...]  # their columns
    tables: Mapping[str, Mapping[str, NDArray[Any]]]

    @property
    def family(self) -> Any:
        """Formulas of the family."""
        return prior_table.FAMILIES[self.meta["family"]]

    @property
    def names(self) -> tuple[str, ...]:
        """New columns."""
        zero = ("p_zero",) * self.meta["zero"]
        return ("theta_mean", "theta_sd", "theta_var", *self.quantiles, *zero, "flagged")

    @property
    def ways(self) -> list[str]:
        """Columns of the ways in which weights vary."""
        return [name for name in self.tables[PRIOR] if name.startswith("way_")]


def prior_of(fit: Fit, levels: Sequence[float]) -> Prior:
    """The fit's prior table, if it is accurate enough."""
    meta, columns = described(fit)
    axis, inner = fit.axis("mean"), np.array(meta["score_edges"])[1:-1]
    if axis.scale == RANK:  # ranks are known at these scores, and straight between them
        inner = np.union1d(inner, axis.score)
    labels = np.array(meta["groups"], dtype=object)
    tables: dict[str, dict[str, NDArray[Any]]] = {
        PRIOR: {name: columns[name] for name, _ in meta["columns"]},
        _BINS: lookup_rows(inner, "soc_"),
        _PLACES: _places(meta, inner),
        _GROUPS: {"soc_label": labels, "soc_code": np.arange(len(labels))},
        _LEVELS: {"soc_number": np.arange(len(levels)), "soc_level": np.array(levels)},
    }
    return Prior(
        meta,
        family_of(fit.prior).outcome,
        SCALES.get(axis.scale, LINEAR),
        inner,
        tuple(map(quantile_name, levels)),
        {name: table for name, table in tables.items() if any(map(len, table.values()))},
    )


def _places(meta: Mapping[str, Any], inner: Floats) -> dict[str, NDArray[Any]]:
    """Cell of each bin of the inner edges, and the line that gives the place from 0 to 1 in it."""
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
    """Rows of an engine, to which columns soc_... are added one after the other.

    `keys` tell items apart. `functions` serves the formulas of `prior_table`.
    """

    def __init__(self, rows: Any, keys: Sequence[str], fenced: bool) -> None:
        import ibis

        self.rows, self.keys, self._fenced, self._number = rows, keys, fenced, 0
        self.functions = SimpleNamespace(
            log=lambda v: v.ln(), exp=lambda v: v.exp(), sqrt=lambda v: v.sqrt(), low=ibis.least,
            high=ibis.greatest, where=ibis.ifelse, never=-1e300, keep=self.keep)  # fmt: skip

    def __getitem__(self, name: str) -> Any:
        return self.rows[f"soc_{name}"]

    def like(self, rows: Any) -> "_Sheet":
        """Other rows of the same items."""
        return _Sheet(rows, self.keys, self._fenced)

    def add(self, **values: Any) -> "_Sheet":
        """Add columns, computed once each."""
        rows = self.rows.mutate(**{f"soc_{name}": value for name, value in values.items()})
        self.rows = rows.limit(_ALL) if self._fenced else rows
        return self

    def keep(self, value: Any) -> Any:
        """A value as a column, for expressions that use it often."""
        self._number += 1
        return self.add(**{f"v{self._number}": value})[f"v{self._number}"]

    def only(self, *names: str) -> "_Sheet":
        """Leave the keys and these columns."""
        self.rows = self.rows.select(*self.keys, *(f"soc_{name}" for name in names))
        return self

    def sums(self, *names: str, **values: Any) -> "_Sheet":
        """Items, with columns that are the same in their rows, and aggregates."""
        by = [*self.keys, *(f"soc_{name}" for name in names)]
        aggregates = {f"soc_{name}": value for name, value in values.items()}
        return self.like(self.rows.group_by(by).aggregate(**aggregates))

    def join(self, items: "_Sheet") -> "_Sheet":
        """Add columns of the rows' items."""
        self.rows = self.rows.inner_join(items.rows, list(self.keys))
        return self

    def average(self, value: Any) -> Any:
        """Mean over an item's nodes where theta is not 0."""
        return (self["u"] * value).sum() / self.functions.high(self["u"].sum(), 1e-290)


def expression(
    table: Any, roles: Mapping[str, str], prior: Prior, lookups: Mapping[str, Any], engine: str
) -> Any:
    """The user's columns and the new ones."""
    import ibis

    keys = [f"soc_{key}" for key in ("t", "y", "n", *(["code"] if prior.meta["groups"] else []))]
    rows = _inputs(_Sheet(table, keys, engine in _FENCED), roles, prior, lookups)
    items = rows.like(rows.rows.select(keys).distinct())
    nodes = _nodes(_with_cells(items, prior, lookups), prior, lookups[PRIOR])
    scored = _with_quantiles(nodes, prior, lookups[_LEVELS])
    # bad items have harmless keys; no item is left if the prior's table belongs to another fit
    joined = rows.join(scored).rows
    null = ibis.null("float64")
    new = {name: joined.soc_good.ifelse(joined[f"soc_{name}"], null) for name in prior.names[:-1]}
    new["flagged"] = joined.soc_good.ifelse(joined.soc_flagged > 0, ibis.null("boolean"))
    return joined.select(*table.columns, **new)


def _inputs(
    sheet: _Sheet, roles: Mapping[str, str], prior: Prior, lookups: Mapping[str, Any]
) -> _Sheet:
    """Score, outcome and size as floats, replaced by harmless ones if any is bad; the group's code.

    Comparisons detect NaN and infinities: engines order NaN above all numbers or not at all, and
    both fail one of two bounds.
    """
    scale, rule, table = prior.scale, prior.outcome.validity, sheet.rows
    names = ("score", prior.outcome.observed, prior.outcome.size)
    one_score = {"score": exact(ONE_SCORE)} if roles["score"] == NO_SCORE else {}
    columns = {role: table[roles[role]] for role in names if role not in one_score}
    t, y, n = numbers(one_score | columns).values()
    low = t > scale.low if scale.low > -LARGEST else t >= -LARGEST
    high = t < scale.high if scale.high < LARGEST else t <= LARGEST
    placed = (low & high) | _is_atom(t, prior)  # these need no position
    good = placed & _within(y, rule.outcome) & _within(n, rule.size)
    if rule.conflict is not None:
        good &= ~rule.conflict(y, n)
    if prior.meta["groups"]:
        labels = [table[column].cast("string") for column in group_roles(roles).values()]
        label = reduce(lambda left, right: left + CROSS + right, labels)
        sheet.rows = table.left_join(lookups[_GROUPS], label == lookups[_GROUPS].soc_label)
        good &= sheet["code"].notnull()
    good = sheet.add(good=good.fill_null(False))["good"]
    for value, bounds in ((y, rule.outcome), (n, rule.size)):
        if bounds.whole:
            known = sheet["good"].ifelse(value, 0.0)  # floors of NaN differ by engine
            good &= known == known.floor()
    good = sheet.add(good=good)["good"]
    # adding 0 makes one key of 0 and -0
    usual = {"t": (t, MIDDLE), "y": (y, 0.0), "n": (n, 1.0)}
    sheet.add(**{name: good.ifelse(value, other) + 0.0 for name, (value, other) in usual.items()})
    return sheet.add(code=sheet["code"].fill_null(0)) if prior.meta["groups"] else sheet


def _within(value: Any, bounds: Bounds) -> Any:
    least = -bounds.largest if bounds.least is None else bounds.least
    return (value >= least) & (value <= bounds.largest)


def _is_atom(score: Any, prior: Prior) -> Any:
    import ibis

    atoms = [exact(atom) for atom in prior.meta["atoms"]]
    return score.isin(atoms) if atoms else ibis.literal(False)


def _with_cells(items: _Sheet, prior: Prior, lookups: Mapping[str, Any]) -> _Sheet:
    """The number of an item's cell, and its places x and w along score and size there."""
    import ibis

    meta, xp, cells = prior.meta, items.functions, len(prior.meta["edges"]) - 1
    rows = with_bins(items.rows, prior.inner, "soc_", lookups.get(_BINS), score="soc_t")
    sheet = items.like(rows.inner_join(lookups[_PLACES], "soc_bin"))
    is_atom = _is_atom(sheet["t"], prior)
    u = prior.scale.formula(is_atom.ifelse(MIDDLE, sheet["t"]), xp.log)
    x = sheet["start"] + (u - sheet["from"]) * sheet["slope"]
    sheet.add(x=xp.low(xp.high(x, -FARTHEST), FARTHEST))
    x = (is_atom | (sheet["x"].abs() < _FAINT)).ifelse(0.0, sheet["x"])
    cell = sheet["column"].cast("int64")
    for k, atom in enumerate(meta["atoms"]):
        number = ibis.literal(cells + k, type="int64")
        cell = (sheet["t"] == exact(atom)).ifelse(number, cell)
    if meta["groups"]:
        cell = cell + sheet["code"] * (cells + len(meta["atoms"]))
    sheet.add(at=cell, x=x)
    if not meta["sizes"]:
        return sheet.only("at", "x")
    edges, inner = meta["sizes"], map(exact, meta["size_edges"][1:-1])
    column = sheet.keep(_total((sheet["n"] >= edge).cast("int64") for edge in inner))
    v = xp.low(xp.high(xp.log(xp.high(sheet["n"], 1e-300)), edges[0]), edges[-1])
    parts = [(v - low) / (high - low) for low, high in pairwise(edges)]
    w = ibis.cases(*((column == k, part) for k, part in enumerate(parts)), else_=0.0)
    sheet.add(w=w, at=sheet["at"] * (len(edges) - 1) + column)
    return sheet.only("at", "x", "w")


def _nodes(items: _Sheet, prior: Prior, table: Any) -> _Sheet:
    """Nodes of items given their outcomes: weights u, up to a factor of an item, a, b and norm.

    The weight `zero` is that of theta = 0, and `doubt` is more than 0 where an item is flagged.
    """
    family, meta, mixture = prior.family, prior.meta, prior.meta["mixture"]
    if "fit" in table.columns:
        table = table.filter(table.fit == meta["fit"])
    typed = {f"soc_{c}": table[c].cast("float64") for c in prior.tables[PRIOR] if c != "cell"}
    table = table.select(soc_cell=table.cell.cast("int64"), **typed)
    sheet = items.like(items.rows.inner_join(table, items["at"] == table.soc_cell))
    beyond = (sheet["x"] < 0.0) | (sheet["x"] > 1.0)
    doubt = sheet["wide"] if "score" in meta["axis"] else beyond.ifelse(1.0, sheet["wide"])
    values = {name: _polynomial(sheet, name, meta["terms"]) for name in ("first", "second")}
    sheet.add(doubt=doubt, u=_polynomial(sheet, "weight", meta["terms"]), **values)
    xp = sheet.only("node", "doubt", "u", *values, *prior.ways).functions
    location, dispersion = (xp.low(xp.high(sheet[c], -LARGEST_LOG), LARGEST_LOG) for c in values)
    sheet.add(first=location if family.positive else sheet["first"], second=dispersion)
    a, b = family.parameters(sheet["first"], sheet["second"], xp)
    sheet.add(a=a, b=b)
    if mixture:
        _reweight(sheet, prior)
    a, b = family.update(sheet["a"], sheet["b"], sheet["y"], sheet["n"])
    sheet.add(a=a, b=b).only("u", "doubt", "a", "b", *["apart"] * mixture, *["zero"] * meta["zero"])
    return sheet.add(norm=family.norm(sheet["a"], sheet["b"], xp))


def _polynomial(sheet: _Sheet, name: str, powers: Sequence[Sequence[int]]) -> Any:
    terms = []
    for i, j in powers:
        power = [sheet["x"]] * i + ([sheet["w"]] * j if j else [])
        terms.append(reduce(mul, power, sheet[f"{name}_{i}{j}"]))
    return _total(terms)


def _reweight(nodes: _Sheet, prior: Prior) -> None:
    """Weights given the outcome, as in `prior_table`."""
    import ibis

    xp, zero, ways = nodes.functions, prior.meta["zero"], prior.ways
    y, n = nodes["y"], nodes["n"]
    nodes.add(u=xp.high(nodes["u"], 0.0))
    log_p = prior.family.log_density(nodes["a"], nodes["b"], y, n, xp)
    if zero:  # the last node of the fullest cell
        last = nodes["node"] == int(prior.tables[PRIOR]["node"].max())
        log_p = ibis.ifelse(last, prior.family.at_zero(y, n, xp), log_p)
    nodes.add(log_p=log_p)
    nodes.join(nodes.sums(top=nodes["log_p"].max()))
    # smaller exponentials are 0, which some engines refuse
    nodes.add(p=xp.exp(xp.high(nodes["log_p"] - nodes["top"], _LEAST_LOG)))
    moves = {f"sum_{way}": (nodes["p"] * nodes[way]).sum() for way in ways}
    items = nodes.sums(total=(nodes["u"] * nodes["p"]).sum(), **moves)
    items.add(**{name: items[name] / items["total"] for name in moves})
    items.add(moved=_total(items[name] * items[name] for name in moves))
    nodes.join(items)
    change = _total(nodes[way] * nodes[f"sum_{way}"] for way in ways)
    change = nodes.keep(change / xp.high(nodes["u"], 1e-100))
    apart = nodes["u"] * nodes["p"] / nodes["total"] * change * change
    u = nodes["u"] * nodes["p"] * (1.0 + nodes["moved"]) / xp.high(1.0 + change, 0.1)
    u = nodes.add(u=u, apart=apart)["u"]
    if zero:
        last = nodes["node"] == int(prior.tables[PRIOR]["node"].max())
        nodes.add(zero=last.ifelse(u, 0.0), u=last.ifelse(0.0, u))


def _with_moments(nodes: _Sheet, prior: Prior) -> _Sheet:
    """Mean and variance over the nodes given the outcome, where theta is not 0; p_zero."""
    family, meta, doubt = prior.family, prior.meta, nodes["doubt"].max()
    if meta["mixture"]:
        doubt = (nodes["apart"].sum() <= prior_table.MOST_MOVED).ifelse(doubt, 1.0)
    sums = {"mean": nodes.average(family.mean(nodes["a"], nodes["b"])), "flagged": doubt}
    if meta["zero"]:
        none = nodes["zero"].sum()
        sums["p_zero"] = none / (none + nodes["u"].sum())
    sheet = nodes.like(nodes.rows).join(nodes.sums(**sums))
    variance = sheet.keep(family.variance(sheet["a"], sheet["b"]))
    centred = sheet.keep(family.mean(sheet["a"], sheet["b"]) - sheet["mean"])
    spreads = {"within": sheet.average(variance), "between": sheet.average(centred * centred)}
    if meta["zero"]:  # the share of theta below 0, which quantiles depend on
        spreads["below"] = 0.0 if family.positive else sheet.average(_law(sheet, family, 0.0)[0])
    items = sheet.sums(*sums, **spreads)
    flagged = items["flagged"]
    if not meta["mixture"]:
        close = items["between"] <= prior_table.MOST_APART * items["within"]
        flagged = close.ifelse(flagged, 1.0)
    items.add(middle=items["within"] + items["between"], flagged=flagged)
    zero = ["p_zero", "below"] if meta["zero"] else []
    return items.only("mean", "middle", "flagged", *zero)


def _law(nodes: _Sheet, family: Any, t: Any) -> tuple[Any, Any]:
    return family.law(nodes["a"], nodes["b"], nodes["norm"], t, nodes.functions)


def _with_quantiles(nodes: _Sheet, prior: Prior, levels: Any) -> _Sheet:
    """Moments and quantiles of items, by steps of Newton's method on the nodes' distribution."""
    import ibis

    family, zero, items = prior.family, prior.meta["zero"], _with_moments(nodes, prior)
    sheet = items.like(items.rows.cross_join(levels))
    xp, share, at_zero = sheet.functions, sheet["level"], ibis.literal(False)
    if zero:
        share, at_zero = prior_table.split_level(share, sheet["p_zero"], sheet["below"], xp)
    sheet.add(share=share, at_zero=at_zero)
    a, b = family.matched(sheet["mean"], sheet["middle"])
    a, b = sheet.add(a=a, b=b)["a"], sheet["b"]
    start, unit = prior_table.start(family.cumulants(a, b, xp), sheet["share"], xp)
    goal, norm = xp.log(sheet["share"] / (1.0 - sheet["share"])), family.norm(a, b, xp)
    sheet.add(q=start, unit=unit, low=-1e300, high=1e300, goal=goal, norm=norm)
    # a step towards the quantile of the member with these moments
    p, density = _law(sheet, family, sheet["q"])
    _step(sheet.add(p=p, density=density))
    sheet.add(low=-1e300, high=1e300)
    fixed = ["mean", "middle", "flagged", *["p_zero"] * zero, "number", "goal", "at_zero", "unit"]
    for _ in range(_MIXTURE_STEPS if prior.meta["mixture"] else _STEPS):
        state = [*fixed, "q", "low", "high"]
        pairs = nodes.like(nodes.rows).join(sheet.only(*state))
        p, density = map(pairs.average, _law(pairs, family, pairs["q"]))
        sheet = pairs.sums(*state, p=p, density=density)
        _step(sheet)
    close = sheet["at_zero"] | (sheet["gap"].abs() < prior_table.CLOSE)
    sheet.add(flagged=close.ifelse(sheet["flagged"], 1.0))
    theta = close.ifelse(family.theta(sheet["q"], sheet.functions), ibis.null("float64"))
    sheet.add(theta=sheet["at_zero"].ifelse(0.0, theta))
    quantiles = {
        name: sheet["theta"].max(where=sheet["number"] == k)
        for k, name in enumerate(prior.quantiles)
    }
    moments = ["mean", "middle", *["p_zero"] * zero]
    summary = sheet.sums(*moments, **quantiles, flagged=sheet["flagged"].max())
    mean, variance = summary["mean"], summary["middle"]
    if zero:
        nonzero = 1.0 - summary["p_zero"]
        mean, variance = nonzero * mean, nonzero * (variance + summary["p_zero"] * mean * mean)
    return summary.add(theta_mean=mean, theta_var=variance, theta_sd=variance.sqrt())


def _step(sheet: _Sheet) -> None:
    """Take a step of Newton's method from q; `gap` is the difference of the logits before it."""
    names = ("goal", "p", "density", "q", "low", "high", "unit")
    values = [sheet[name] for name in names]
    step = prior_table.newton(*values, sheet.functions)  # type: ignore[call-arg]
    sheet.add(**dict(zip(("gap", "q", "low", "high"), step, strict=True)))


def _total(terms: Iterable[Any]) -> Any:
    """Sum as a tree, for engines that limit an expression's depth."""
    sums = list(terms) or [0.0]
    while len(sums) > 1:
        sums = [sum(sums[i + 1 : i + 2], sums[i]) for i in range(0, len(sums), 2)]
    return sums[0]
