"""What all sections of a report are made from."""

from collections.abc import Mapping
from dataclasses import dataclass

import xarray as xr

from ..checks._check import CheckResult
from ..data.items import Items
from ..data.statistics import Statistics
from ..inference.results import Fit
from ..posterior.predictive import Posterior
from .markup import Html, tag
from .measures import Measure
from .reading import Glance

__all__ = ["Material", "section"]


@dataclass(frozen=True)
class Material:
    """What a report is about.

    Attributes
    ----------
    fit, law
        The fit and its law.
    items
        The items, of which `stats` are the statistics and `glance` what one pass found.
    result
        What the checks found, on the sample of the pass.
    measures, left
        Numbers about all items, and the variance that outcomes leave by bin.
    above
        Items whose probability to lie above the threshold is more than 0.5 and more than 0.9.
    call
        How the report was asked for: ``out``, ``by``, ``title``, ``threshold`` and ``seed``.
    by
        Columns to slice on.
    threshold
        Of theta; None where there is none.
    seed
        Of all that is random.
    progress
        Whether to show progress on standard error.
    """

    fit: Fit
    law: Posterior
    items: Items
    stats: Statistics
    glance: Glance
    result: CheckResult
    measures: tuple[Measure, ...]
    left: xr.Dataset
    above: Mapping[float, int]
    call: Mapping[str, object]
    by: tuple[str, ...]
    threshold: float | None
    seed: int
    progress: bool

    @property
    def roles(self) -> Mapping[str, str]:
        """Columns of the items by role."""
        return self.items.roles

    @property
    def sampled(self) -> str:
        """Words for the items that the sample stands for, to put after what was done on them."""
        n, few = self.glance.n, len(self.glance.sample)
        return f"all {n:,} items" if self.glance.whole else f"a random {few:,} of {n:,} items"


def section(name: str, heading: str, *content: Html | str) -> Html:
    """A section with its heading, to which ``#name`` leads."""
    head = tag("h2", heading, id=f"{name}-heading")
    return tag("section", head, *content, id=name, aria_labelledby=f"{name}-heading")
