"""The items at the top and, against a threshold, what to choose and where to look further."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ...evaluate import decisions as deciding
from ...plots import plot_shrinkage
from ..markup import Html, joined, more, own, table, tag
from ..material import Material, section
from ..pictures import picture
from ..reading import MEAN, PROMISE, SURE, Rows
from ..words import band, counted, exact, number, percent, unit_of, whole

__all__ = ["decisions"]

Floats = NDArray[np.float64]

_TOP, _MORE = 10, 40  # items of a list that are seen at once, and that unfold
_POINTS = 2000
_LOSSES = 10_000  # items on which losses are summed, which use all draws of the curves
_PROBS = (0.05, 0.1, 0.95)
_SURE = 0.1


def decisions(material: Material) -> Html:
    """The section on the items at the top and on what to choose."""
    asked = material.threshold is not None
    parts = [*_against(material)] if asked else [tag("p", *_no_threshold())]
    return section(
        "decisions",
        "Which items?",
        *parts,
        *_tops(material),
        *(_deserving(material) if asked else ()),
        _shrinkage(material),
    )


def _no_threshold() -> tuple[object, ...]:
    return (
        "Items are ranked by what score and outcome together say of theta. With a threshold, ",
        tag("code", "soc.report(..., threshold=)"),
        ", this section also says which items lie above it and what wrong choices cost.",
    )


def _against(material: Material) -> Iterator[Html]:
    """How many items lie above the threshold, and what choosing them costs."""
    glance, threshold = material.glance, material.threshold
    assert threshold is not None
    sample = glance.sample
    n = glance.n
    rows: list[Sequence[object]] = [
        (
            f"Above {exact(threshold)} with a probability of more than {p:.0%}",
            whole(k),
            percent(k / n),
        )
        for p, k in sorted(material.above.items())
    ]
    yield tag(
        "p",
        f"An item is worth choosing here if its theta is above {exact(threshold)}, ",
        own(unit_of(material.law, material.roles)),
        ".",
    )
    yield table("Items above the threshold", ("Items", "Number", "Share"), rows, (1, 2))
    yield _losses(material, sample, threshold)


def _losses(material: Material, sample: Rows, threshold: float) -> Html:
    """What rules of choice lose, as the fit judges."""
    sample = _part(sample, _LOSSES, material.seed)
    loss = deciding.expected_loss(material.fit, sample.items, threshold, progress=material.progress)
    chosen, missed = (loss[c].to_numpy() for c in ("loss_if_chosen", "loss_if_not"))
    own_rate = _own(material, sample)
    scale = material.glance.n / len(sample)
    rules = [
        ("Choose where the posterior mean is above it", loss["choose"].to_numpy(dtype=bool)),
        ("Choose where the item's own outcome is above it", own_rate > threshold),
        ("Choose all", np.ones(len(sample), dtype=bool)),
        ("Choose none", np.zeros(len(sample), dtype=bool)),
    ]
    n, few = material.glance.n, len(sample)
    about = "" if few == n else "about "
    rows = []
    for name, rule in rules:
        lost = np.where(rule, chosen, missed)
        total, error = scale * float(lost.sum()), scale * few**0.5 * float(lost.std())
        shown = number(total, 4) if few == n else f"{number(total)} ± {number(error, 2)}"
        rows.append((name, f"{about}{whole(scale * rule.sum())}", shown))
    note = (
        "The expected loss adds up over items by how much theta lies below the threshold where one "
        "is chosen, and above it where one is not, as the fit judges"
    )
    note += (
        "."
        if few == n
        else f". Scaled up from a random {few:,} of {n:,} items, with its standard error."
    )
    head = ("Rule", "Items chosen", "Expected loss, in units of theta")
    return joined([table("What rules of choice lose", head, rows, (1, 2)), tag("p", note)])


def _part(rows: Rows, most: int, seed: int) -> Rows:
    """A random part of the items, or all of them where they are few."""
    if len(rows) <= most:
        return rows
    at = np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))
    columns = {name: values[at] for name, values in rows.columns.items()}
    names = tuple(rows.name[k] for k in at)
    return Rows(
        replace(rows.items, source=rows.items.source.take(at)), columns, names, rows.named_by
    )


def _own(material: Material, rows: Rows) -> Floats:
    """Own rates, 0 where nothing was seen, or own values."""
    columns = rows.columns
    if not material.law.outcome.whole:
        return np.asarray(columns["value"], dtype=float)
    exposure = columns["exposure"]
    return np.asarray(columns["count"] / np.where(exposure > 0, exposure, 1.0))


def _tops(material: Material) -> Iterator[Html]:
    """Lists of items by posterior mean and by a low quantile."""
    for name, at, heading, words in (
        (MEAN, 0, "Top items by posterior mean", "The best guesses, whatever their uncertainty."),
        (
            SURE,
            4,
            "Top items by a cautious score",
            "Ranked by the 10% quantile: theta is above it with a probability of 90%, so that "
            "items of which little is known stand lower.",
        ),
    ):
        rows = material.glance.lists[name]
        found = material.law.scorer(_PROBS, "all", False)(rows.columns)
        order = np.argsort(-found[at], kind="stable")[: _TOP + _MORE]
        cells = _cells(material, rows, order, found)
        head = [*_head(material, rows), "Posterior mean", "90% interval"]
        columns: list[tuple[str, ...]]
        columns = [(number(found[0, k]), band(found[3, k], found[5, k])) for k in order]
        if name == SURE:
            head.append("10% quantile")
            columns = [(*c, number(found[4, k])) for c, k in zip(columns, order, strict=True)]
        yield tag("h3", heading)
        yield tag("p", words)
        yield from _folded(heading, head, [[*a, *b] for a, b in zip(cells, columns, strict=True)])


def _folded(heading: str, head: Sequence[object], rows: list[list[object]]) -> Iterator[Html]:
    numbers = [k for k, cell in enumerate(rows[0]) if not isinstance(cell, Html)]
    yield table(heading, head, rows[:_TOP], numbers)
    rest = rows[_TOP:]
    if rest:
        inside = table(f"{heading}, continued", head, rest, numbers)
        yield more(counted(len(rest), "further item"), inside)


def _head(material: Material, rows: Rows) -> list[object]:
    """Heads of the columns that tell an item and what was seen of it."""
    roles, law = material.roles, material.law
    named: list[object] = ["Rank", *([own(rows.named_by)] if rows.named_by else [])]
    labels = [own(name) for name in _labels(material)]
    seen: list[object] = [own(roles[r]) for r in ("score", law.outcome.observed, law.outcome.size)]
    return [*named, *labels, *seen, *(["Own rate"] if law.outcome.whole else [])]


def _labels(material: Material) -> list[str]:
    """Columns of labels, the group's first."""
    group = material.roles.get("group")
    given = [*([group] if group else []), *material.by]
    return [c for c in dict.fromkeys(given) if c not in _numbers_of(material)]


def _numbers_of(material: Material) -> list[str]:
    return [c for r, c in material.roles.items() if r not in ("group", "fold")]


def _cells(
    material: Material, rows: Rows, order: NDArray[np.intp], found: Floats
) -> list[list[object]]:
    """Cells that tell an item and what was seen of it."""
    law, columns = material.law, rows.columns
    named_by = rows.named_by
    source: Any = rows.items.source
    labels = [source[name].to_pylist() for name in _labels(material)]
    cells = []
    for rank, k in enumerate(order, start=1):
        name: list[object] = [own(rows.name[k])] if named_by else []
        seen: list[object] = [number(columns["score"][k], 4)]
        if law.outcome.whole:
            count, exposure = columns["count"][k], columns["exposure"][k]
            own_rate = number(count / exposure) if exposure > 0 else "none"
            seen += [whole(count), number(exposure, 4), own_rate]
        else:
            seen += [number(columns["value"][k]), number(columns["noise_sd"][k])]
        cells.append([rank, *name, *(own(label[k]) for label in labels), *seen])
    return cells


def _deserving(material: Material) -> Iterator[Html]:
    """Items of which more exposure is worth most to the choice."""
    rows, law, threshold = material.glance.lists[PROMISE], material.law, material.threshold
    assert threshold is not None
    sizes = material.glance.sample.columns[law.outcome.size]
    more_of = float(f"{float(np.median(sizes[sizes > 0])):.3g}")
    gain = deciding.value_of_exposure(
        material.fit, rows.items, more_of, threshold=threshold, progress=material.progress
    )
    chance = deciding.probability_above(
        material.fit, rows.items, threshold, progress=False
    ).to_numpy()
    value = gain["value"].to_numpy()
    order = np.argsort(-value, kind="stable")[: _TOP + _MORE]
    found = material.law.scorer(_PROBS, "all", False)(rows.columns)
    # the own rate is left out, for the table to fit a page
    told = slice(-1 if law.outcome.whole else None)
    cells = [row[told] for row in _cells(material, rows, order, found)]
    head = [
        *_head(material, rows)[told], "Posterior mean", "P(above)", "sd, now and after", "Value",
    ]  # fmt: skip
    columns = [
        (
            number(found[0, k]),
            percent(chance[k]),
            f"{number(gain['sd_now'].iloc[k])} → {number(gain['sd_after'].iloc[k])}",
            number(value[k]),
        )
        for k in order
    ]
    what = (
        joined([f"{exact(more_of)} more units of ", own(material.roles[law.outcome.size])])
        if law.outcome.whole
        else joined([f"one further value with a noise sd of {exact(more_of)}"])
    )
    heading = (
        "Items that deserve more exposure" if law.outcome.whole else "Items worth another look"
    )
    yield tag("h3", heading)
    yield tag(
        "p",
        "Value: by how much ",
        what,
        " (the median of the items) would improve the choice on average, in units of theta. It is "
        "large where an item lies near the threshold and little is known of it.",
    )
    yield from _folded(heading, head, [[*a, *b] for a, b in zip(cells, columns, strict=True)])


def _shrinkage(material: Material) -> Html:
    """How far posteriors are from own outcomes."""
    law, sample = material.law, material.glance.sample
    roles = ("score", law.outcome.observed, law.outcome.size)
    sample = _part(sample, _POINTS, material.seed)
    columns = sample.columns
    mean = law.scorer((), "all", False)(columns)[0]
    frame = pd.DataFrame({role: columns[role] for role in roles} | {"theta_mean": mean})
    names = {role: role for role in roles}
    what = "rates" if law.outcome.whole else "values"
    kind = "item" if len(sample) == material.glance.n else "random item"
    if law.outcome.whole and not (frame["exposure"] > 0).any():
        return tag("p", "There is no picture of shrinkage, as no item has any exposure.")

    def draw(figure: Figure) -> None:
        plot_shrinkage(frame, **names, ax=figure.subplots(), seed=material.seed)

    return joined(
        [
            tag("h3", "From own outcomes to estimates"),
            picture(
                draw,
                (7.0, 5.4),
                f"Posterior means of items against their own {what}: most are pulled towards what "
                "their score says.",
                f"Posterior mean against own {what[:-1]} of "
                f"{counted(len(sample), kind)}. On "
                "the dashed line an item keeps its own; the less was seen of it (small dots), the "
                "further it is pulled to what its score says.",
            ),
        ]
    )
