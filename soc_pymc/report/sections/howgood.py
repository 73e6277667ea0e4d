"""How good the score is, and how much the items' own outcomes add to it."""

from matplotlib.figure import Figure

from ...plots import plot_variance_gain
from ..markup import Html, table, tag
from ..material import Material, section
from ..pictures import picture
from ..words import BANDS, percent

__all__ = ["quantities"]


def quantities(material: Material) -> Html:
    """The section on the quantities."""
    one_draw = material.fit.one_draw
    interval = () if one_draw else ("90% interval",)
    rows = []
    for measure in material.measures:
        ends = () if one_draw else (f"{percent(measure.low)} to {percent(measure.high)}",)
        rows.append(
            (measure.name, percent(measure.middle), *ends, measure.sentence(interval=False))
        )
    note = (
        "This fit has a single draw: these are points without intervals."
        if one_draw
        else "Each is a posterior: its median and its central 90% interval."
    )

    def draw(figure: Figure) -> None:
        plot_variance_gain(material.left, BANDS, ax=figure.subplots())

    outcome = "count" if material.law.outcome.whole else "value"
    return section(
        "quantities",
        "How good is the score, and what do outcomes add?",
        tag("p", f"Three numbers about these items, in which each item counts once. {note}"),
        table(
            "Quantities",
            ("Quantity", "Estimate", *interval, "What it says"),
            rows,
            range(1, 2 + len(interval)),
            (2 + len(interval),),
        ),
        picture(
            draw,
            (7.0, 3.8),
            "Share of the variance of theta that is left when the outcome is known, by score.",
            f"Share of the variance of theta given the score that is left once an item's own "
            f"{outcome} is known: near 1 outcomes say little, near 0 they say all.",
        ),
    )
