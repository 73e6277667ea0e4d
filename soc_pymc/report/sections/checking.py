"""The checks in words, with pictures of each slice."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ... import plots
from ...checks._check import CheckResult
from ..markup import Html, joined, more, table, tag
from ..material import Material, section
from ..pictures import drawable, picture
from ..words import BANDS, counted, number, percent

__all__ = ["checks"]

_PANELS = 24
_SHOWN = 12  # rows of findings before the rest is folded
_WHAT = {
    "PIT": "Distribution of outcomes",
    "LOO-PIT": "The same, each item left out",
    "dispersion": "Scatter of outcomes",
    "zero counts": "Number of zero counts",
    "converged": "Convergence",
    "pareto_k": "Quality of the approximation",
    "ess_fraction": "Quality of the approximation",
    "leave-one-out": "Items left out one by one",
}
_VERDICTS = {"ok": "✓ ok", "look": "! look", "fail": "✗ fail"}
_SEVERITY = {"fail": 0, "look": 1, "ok": 2}


def checks(material: Material) -> Html:
    """The section on the checks."""
    result = material.result
    return section(
        "checks",
        "Does the model describe the outcomes?",
        tag(
            "p",
            f"The outcomes of {material.sampled} are held against their predictive distributions, "
            "in which the uncertainty of the curves is averaged over. A test fails with p below "
            ".01 after all tests are allowed for; one with p below .05 by itself is worth a look.",
        ),
        tag("ul", *(tag("li", sentence) for sentence in result.advice), class_="advice"),
        *_findings(result),
        *_panels(result, material.law.outcome.whole),
        _rootogram(material),
    )


def _findings(result: CheckResult) -> Iterator[Html]:
    """The table of findings, what is worst first; what is well may be unfolded."""
    found = result.table.assign(severity=result.table["verdict"].map(_SEVERITY))
    found = found.sort_values("severity", kind="stable")
    rows = [_finding(row) for row in found.assign(place=found.index + 1).to_dict("records")]
    bad = int((found["verdict"] != "ok").sum())
    first = min(max(bad, 0), _SHOWN)
    head = ("No.", "Verdict", "What", "Where", "Finding", "p-value")
    if first:
        yield table("Findings to look at", head, rows[:first], (0, 5), (4,))
    else:
        yield tag("p", f"All of the {counted(len(rows), 'finding')} are well.")
    if rows[first:]:
        rest = "finding" if first == 0 else "further finding"
        yield more(
            counted(len(rows) - first, rest),
            table("Further findings", head, rows[first:], (0, 5), (4,)),
        )


def _finding(row: Mapping[Any, Any]) -> tuple[object, ...]:
    verdict = tag("span", _VERDICTS[row["verdict"]], class_=f"chip {row['verdict']}")
    p = row["p_value"]
    shown = "" if np.isnan(p) else "less than 1e−12" if p < 1e-12 else number(p, 2)
    what = _WHAT.get(row["check"], row["check"])
    where = tag("bdi", row["slice"])
    return (row["place"], verdict, what, where, _in_words(row["check"], row["statistic"]), shown)


def _in_words(check: str, statistic: float) -> str:
    """What a statistic says."""
    if check in ("PIT", "LOO-PIT"):
        return f"cumulative probabilities are off by at most {number(statistic, 2)}"
    if check in ("dispersion", "zero counts"):
        what = "scatter" if check == "dispersion" else "zeros"
        return f"{number(statistic)} times the {what} that the model expects"
    if check == "converged":
        return "the fit converged" if statistic else "the fit did not converge"
    if check == "ess_fraction":
        return f"{percent(statistic)} of the draws carry the weight (at least 10% is well)"
    return f"Pareto k is {number(statistic, 2)} (at most 0.7 is well)"


def _panels(result: CheckResult, discrete: bool) -> Iterator[Html]:
    """A picture of the PIT of each slice, beside each other as there is room."""
    slices = [str(name) for name in result.data["pit"]["slice"].to_numpy()]
    tests = result.table[result.table["check"] == "PIT"].set_index("slice")
    own = {name: k for k, name in enumerate(result.table["slice"], start=1) if name in tests.index}
    kept = slices
    if len(slices) > _PANELS:  # those by score and size stand first, the worst of the rest follow
        worst = tests["p_value"].reindex(slices[12:]).sort_values(kind="stable").index
        kept = slices[:12] + list(worst[: _PANELS - 12])
    pictures = [_panel(result, name, drawable(name, f"finding {own[name]}")) for name in kept]
    cut = (
        f" The {len(kept)} of {len(slices)} slices that say most are shown."
        if len(kept) < len(slices)
        else ""
    )
    low = "counts" if discrete else "values"
    yield tag("h3", "Slice by slice")
    yield tag(
        "p",
        "Each picture shows, over the predicted probability from 0 to 1 (PIT), how far the share "
        "of outcomes at or below it is from what it should be. A line within the grey band (95%) "
        f"is as it should be. Above 0 at the left: more low {low} than predicted; below 0 at the "
        "right: more high ones. Lines are blue where a test is well, orange to look at, red where "
        "it fails, as the words say." + cut,
    )
    yield tag("div", *pictures, class_="panels")


def _panel(result: CheckResult, name: str, label: str) -> Html:
    """The PIT of one slice."""
    pit = result.data["pit"].to_dataset().sel(slice=[name]).assign_coords(slice=[label])
    rows = result.table[(result.table["check"] == "PIT") & (result.table["slice"] == name)]
    alone = replace(
        result, table=rows.assign(slice=label), data=xr.DataTree.from_dict({"pit": pit})
    )

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        plots.plot_pit(alone, ax=ax)
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
        ax.set(xlabel="", ylabel="")

    row = rows.iloc[0]
    return picture(
        draw, (2.7, 2.0), f"PIT of {name}: {row['verdict']}, off by {number(row['statistic'], 2)}."
    )


def _rootogram(material: Material) -> Html:
    """How often outcomes were seen, beside how often the model says."""
    result = material.result
    outcome = material.law.outcome.observed
    n = result.data["observed_data"].sizes["item"]

    def draw(figure: Figure) -> None:
        plots.plot_rootogram(result, BANDS, ax=figure.subplots())

    return joined(
        [
            tag("h3", f"How often each {outcome} was seen"),
            picture(
                draw,
                (7.0, 3.8),
                f"Hanging rootogram of the {outcome}s of {n:,} items.",
                f"The line is how many of {counted(n, 'item')} the model expects with each "
                f"{outcome}, on the scale of square roots; bars as long as the number seen hang "
                "from it. Feet within the grey band (90%) are as they should be; below 0 more were "
                "seen than expected.",
            ),
        ]
    )
