"""The data: where they come from, their columns and totals."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...data.tables import kind_of
from ...plots.style import BLUE, is_rate, rate_axis, tidy
from ..markup import Html, joined, more, names_and_values, own, table, tag
from ..material import Material, section
from ..pictures import picture
from ..words import band, counted, number, percent, whole

__all__ = ["data", "source_words"]

_FEW = 8  # rows of a table before the rest is folded
_PATHS = 3
_ROLES = {
    "score": "score t: the model's prediction",
    "count": "outcome: number of events",
    "exposure": "exposure: in what the events were counted",
    "value": "outcome: a noisy value of theta",
    "noise_sd": "standard deviation of that noise",
    "group": "group of the item",
    "id": "name of the item",
    "fold": "fold of the item",
}


def data(material: Material) -> Html:
    """The section on the data."""
    by = joined((own(name) for name in material.by), ", ")
    facts = [("Source", source_words(material.items.source)), *_totals(material)]
    if material.by:
        facts.append(("Also sliced by", by))
    return section(
        "data",
        "Data",
        names_and_values(facts),
        tag("p", _same_as_fit(material)),
        *_far(material),
        _columns(material),
        _spread(material),
        *_groups(material),
    )


def source_words(source: Any) -> Html:
    """Where the items come from, in the user's own words."""
    kind = kind_of(source)
    if kind == "files":
        single = isinstance(source, str | os.PathLike)
        paths = [os.fspath(s) for s in ([source] if single else source)]
        shown = joined((own(p) for p in paths[:_PATHS]), ", ")
        rest = len(paths) - _PATHS
        return joined([shown, f" and {rest:,} more files"]) if rest > 0 else shown
    names = {"pandas": "pandas", "polars": "Polars", "arrow": "Arrow", "ibis": "Ibis"}
    where = "" if kind == "ibis" else ", in memory"
    return tag(
        "span", f"a {names[kind]} table{where}".replace("a A", "an A").replace("a I", "an I")
    )


def _totals(material: Material) -> Iterator[tuple[str, object]]:
    glance, stats, roles = material.glance, material.stats, material.roles
    yield "Items", whole(glance.n)
    if material.law.outcome.whole:
        rate = stats.total_count / max(stats.total_exposure, np.finfo(float).tiny)
        yield "Events", joined([whole(stats.total_count), " ", own(roles["count"])])
        yield "Exposure", joined([number(stats.total_exposure, 6), " ", own(roles["exposure"])])
        yield "Events per unit of exposure", number(rate, 4)
        yield "Items without events", f"{whole(glance.zeros)} ({percent(glance.zeros / glance.n)})"
    else:
        sums = stats.data[["sum_y", "sum_s2"]].sum()
        mean, noise = float(sums["sum_y"]) / glance.n, float(sums["sum_s2"]) / glance.n
        yield "Mean value", number(mean, 4)
        yield "Noise sd, root mean square", number(noise**0.5, 4)
    if stats.groups:
        yield "Groups", whole(len(stats.groups))
    bins = material.fit.data["constant_data"].sizes["bin"]
    yield "Bins of the score that the fit read", whole(bins)


def _same_as_fit(material: Material) -> str:
    """Whether these are the items that made the fit, as far as totals tell."""
    bins, seen = (material.fit.data[g] for g in ("constant_data", "observed_data"))
    n = int(bins["n_items"].sum())
    same = n == material.glance.n and material.glance.far is None
    if same and material.law.outcome.whole:
        same = int(seen["count"].sum()) == material.stats.total_count
    elif same:
        total = float((seen["value"] * bins["n_items"]).sum())
        same = bool(np.isclose(total, float(material.stats.data["sum_y"].sum())))
    if same:
        return (
            "The fit was made from as many items with the same totals: these. Checks on the items "
            "that made a fit are somewhat lenient."
        )
    return f"The fit was made from other items: {n:,} of them. These are judged by what it learned."


def _far(material: Material) -> Iterator[Html]:
    """Scores that the fit knows nothing of."""
    if material.glance.far is not None:
        yield tag("p", tag("strong", "Look: "), f"{material.glance.far}.")


def _columns(material: Material) -> Html:
    rows = []
    for role, column in material.roles.items():
        ends = material.glance.ranges.get(role)
        rows.append((own(column), _ROLES[role], "" if ends is None else band(*ends)))
    return table("Columns and their ranges", ("Column", "Role", "Range"), rows)


def _spread(material: Material) -> Html:
    """How scores and sizes are distributed."""
    columns, law = material.glance.sample.columns, material.law
    size = law.outcome.size.replace("_", " ")

    def draw(figure: Figure) -> None:
        for ax, role in zip(figure.subplots(1, 2), ("score", law.outcome.size), strict=True):
            values = columns[role]
            values = (
                values[values > 0] if is_rate(values[values > 0]) and values.min() >= 0 else values
            )
            _histogram(ax, values)
            ax.set_xlabel(role.replace("_", " "))
            ax.set_ylabel("items")
            ax.tick_params(labelsize=8)  # neighbours of a narrow axis would touch

    return picture(
        draw,
        (7.0, 2.5),
        f"Two histograms: the items' scores and their {size}s.",
        f"How scores and {size}s are distributed among {material.sampled}"
        + (", those of 0 left out." if material.glance.ranges[law.outcome.size][0] == 0 else "."),
    )


def _histogram(ax: Any, values: Any) -> None:
    low, high = float(values.min()), float(values.max())
    if is_rate(values):
        edges = np.geomspace(low, high, 41)
        ax.hist(values, bins=edges, color=BLUE, alpha=0.75)
        rate_axis(ax.xaxis, low, high)
    else:
        ax.hist(values, bins=40, color=BLUE, alpha=0.75)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    tidy(ax)


def _groups(material: Material) -> Iterator[Html]:
    """Items and outcomes by group, the largest first."""
    stats = material.stats
    if not stats.groups:
        return
    part = stats.table("part")
    n, total = (np.bincount(part["group"], part[c], len(stats.groups)) for c in ("n", "sum_y"))
    head: tuple[str, ...] = ("Items", "Mean value")
    divisor = n
    if material.law.outcome.whole:
        head = ("Items", "Events", "Exposure", "Events per unit of exposure")
        divisor = np.bincount(part["group"], part["sum_N"], len(stats.groups))
    rows = []
    for k in np.argsort(-n, kind="stable"):
        cells = [own(stats.groups[k]), whole(n[k])]
        if material.law.outcome.whole:
            cells += [whole(total[k]), number(divisor[k], 4)]
        rows.append([*cells, number(total[k] / divisor[k], 4) if divisor[k] else "no exposure"])
    shown, rest = rows[:_FEW], rows[_FEW:100]
    head = ("Group", *head)
    numbers = range(1, len(head))
    yield table(f"The {len(shown)} largest groups" if rest else "Groups", head, shown, numbers)
    if rest:
        cut = f", the next {len(rest)} of {len(rows):,}" if len(rows) > 100 else ""
        yield more(
            f"{counted(len(rest), 'more group')}{cut}", table("Further groups", head, rest, numbers)
        )
