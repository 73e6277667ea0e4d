"""Items: which columns of which table hold the scores and the noisy outcomes.

Nothing is read here; `tables` opens the source and validates it when it is first used.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .errors import ItemsError

__all__ = ["Items", "PoissonItems"]


@dataclass(frozen=True, eq=False)
class PoissonItems:
    """Items with a score and a count y ~ Poisson(theta N) seen in a known exposure N.

    Parameters
    ----------
    source
        A pandas, Polars or Arrow table; a path, a glob or a list of paths of Parquet or CSV files;
        or an Ibis table on any backend. Files of a glob are read in sorted order.
    score
        Column of the scores: finite numbers of any sign, from a model that never saw the item's own
        count (out of fold, or trained on earlier data).
    count
        Column of the counts: whole numbers >= 0.
    exposure
        Column of the exposures: finite numbers >= 0, 0 only where the count is 0 too.
    group
        Column of labels (text, whole numbers or true/false) of groups of items whose statistics are
        kept apart. Optional.
    id
        Column of whole numbers that identify the items, from which folds are made: the same id is
        in the same fold in every file, on every engine. Optional.
    fold
        Column of fold numbers, whole from 0 to 999, instead of folds made from ids. Optional.

    Raises
    ------
    ItemsError
        If a role is not a column name, two roles name the same column, or both `id` and `fold` are
        given. The table itself is read and validated when it is first used.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"t": [0.1, 0.2], "clicks": [0, 1], "views": [9, 8]})
    >>> PoissonItems(frame, score="t", count="clicks", exposure="views").roles["count"]
    'clicks'
    """

    source: Any
    _: KW_ONLY
    score: str
    count: str
    exposure: str
    group: str | None = None
    id: str | None = None
    fold: str | None = None

    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        _check_roles(self.roles)
        if self.id is not None and self.fold is not None:
            raise ItemsError("give id=, from which folds are made, or fold=, not both")

    @property
    def roles(self) -> Mapping[str, str]:
        """Column names by role: score, count, exposure, and group, id and fold where given."""
        names = {"score": self.score, "count": self.count, "exposure": self.exposure}
        extra = {"group": self.group, "id": self.id, "fold": self.fold}
        return names | {role: column for role, column in extra.items() if column is not None}

    def __repr__(self) -> str:
        names = ", ".join(f"{role}={column!r}" for role, column in self.roles.items())
        source = self.source
        shown = repr(source) if isinstance(source, str) else f"<{type(source).__name__}>"
        return f"PoissonItems({shown}, {names})"


Items = PoissonItems
"""Items of any kind."""


def _check_roles(roles: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for role, column in roles.items():
        if not isinstance(column, str) or not column:
            raise ItemsError(f"{role}={column!r} must be the name of a column")
        if column in seen:
            raise ItemsError(
                f"{seen[column]} and {role} both name the column {column!r}: each needs its own"
            )
        seen[column] = role
