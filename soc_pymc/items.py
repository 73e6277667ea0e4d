"""Items: which columns of which table hold the scores and the noisy outcomes.

Nothing is read here; `tables` opens the source and validates it when it is first used.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .errors import ItemsError

__all__ = ["PoissonItems"]


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

    Raises
    ------
    ItemsError
        If a role is not a column name or two roles name the same column. The table itself is read
        and validated when it is first used.

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

    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        _check_roles(self.roles)

    @property
    def roles(self) -> Mapping[str, str]:
        """Column names by role: score, count, exposure."""
        return {"score": self.score, "count": self.count, "exposure": self.exposure}

    def __repr__(self) -> str:
        names = ", ".join(f"{role}={column!r}" for role, column in self.roles.items())
        source = self.source
        shown = repr(source) if isinstance(source, str) else f"<{type(source).__name__}>"
        return f"PoissonItems({shown}, {names})"


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
