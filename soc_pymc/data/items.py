"""Items: a table, and its columns of scores and noisy outcomes, which are read when first used."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .._lib.arguments import Refusal, shown
from .._lib.errors import ItemsError
from .._lib.reprs import html_table, of_items
from ..families.outcomes import OUTCOMES
from .groups import NO_SCORE, arguments_of, is_group, roles_of_groups


@dataclass(frozen=True, eq=False, repr=False)
class _Roles:
    """Columns by role, for items of every kind."""

    source: Any
    _: KW_ONLY
    score: str | None
    group: str | Sequence[str] | None = None
    id: str | None = None
    fold: str | None = None
    cluster: str | None = None
    date: str | None = None

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if isinstance(self.group, list):
            object.__setattr__(self, "group", tuple(self.group))
        roles, outcome = self.roles, OUTCOMES[self.kind]
        y, size = outcome.observed, outcome.size
        if list(roles.values()) == [NO_SCORE]:
            raise ItemsError(f"items need columns: score=, or without a score {y}= and {size}=")
        if y in roles and size not in roles:
            raise ItemsError(
                f"{y}= needs {size}=, the column of the {outcome.words.sizes}: name both, or for "
                "items without outcomes neither"
            )
        role_of: dict[str, str] = {}
        for role, column in roles.items():
            name = "group" if is_group(role) else role
            if not isinstance(column, str) or not column or "\0" in column:  # engines end it there
                raise ItemsError(f"{name}={shown(column)} must be the name of a column")
            if column in role_of:
                both = f"{role_of[column]} and {name} both name the column {column!r}"
                raise ItemsError(f"{both}: each needs its own")
            role_of[column] = name
        for role in ("id", "cluster"):
            if {role, "fold"} <= roles.keys():
                raise ItemsError(f"give {role}=, from which folds are made, or fold=, not both")

    @property
    def roles(self) -> Mapping[str, str]:
        """Column names by role; several columns of groups have the roles group_1, group_2, ..."""
        columns = {role: getattr(self, role) for role in OUTCOMES[self.kind].bounds}
        columns |= roles_of_groups(self.group)
        columns |= {role: getattr(self, role) for role in ("id", "fold", "cluster", "date")}
        columns["score"] = NO_SCORE if self.score is None else self.score
        return {role: name for role, name in columns.items() if name is not None}

    @property
    def has_outcomes(self) -> bool:
        """True if the items name a column of outcomes."""
        return OUTCOMES[self.kind].observed in self.roles

    def __repr__(self) -> str:
        text = isinstance(self.source, str)
        source = repr(self.source) if text else f"<{type(self.source).__name__}>"
        names = (f"{name}={columns!r}" for name, columns in arguments_of(self.roles).items())
        return f"{type(self).__name__}({', '.join([source, *names])})"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, of_items(self))


@dataclass(frozen=True, eq=False, repr=False)
class PoissonItems(_Roles):
    """Items with a score and a count y ~ Poisson(theta N) in a known exposure N.

    Parameters
    ----------
    source
        A pandas, Polars or Arrow table, or another object with ``__arrow_c_stream__``; a path, a
        glob (read in sorted order) or a list of Parquet or CSV files; or an Ibis table.
    score
        Column of the scores: finite numbers of any sign, from a model that never saw the item's own
        count (out of fold, or trained on earlier data). None fits one level and one spread to all
        items, or to each group.
    count
        Column of the counts: whole numbers >= 0. Items without `count` can only be scored, by
        `soc.item_posteriors`: theta given the score alone.
    exposure
        Column of the exposures: finite numbers >= 0, 0 only where the count is 0 too. Needed with
        `count`; without it only a prior with a term in exposure reads them.
    group
        Column of labels (text, whole numbers or true/false) of groups with separate statistics, or
        several such columns, ``("country", "device")``, whose effects add up.
    id
        Column of whole numbers or text that identify the items; whole numbers make folds, the same
        on every engine. An id of several rows (with `date`, of one day) is refused.
    fold
        Column of fold numbers, whole from 0 to 999, instead of folds made from ids.
    cluster
        Column of labels of clusters, such as campaigns, whose items depend on each other beyond
        their scores: `fit` then widens its bands. Folds never divide a cluster.
    date
        Column of dates, times or text YYYY-MM-DD, for separate statistics of every day: the
        calendar day as stored, without conversion of time zones.

    Raises
    ------
    ItemsError
        If roles are missing, doubled or contradict each other. The table itself is read and
        validated when it is first used.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.PoissonItems("ads/*.parquet", score="t", count="clicks", exposure="views")
    PoissonItems('ads/*.parquet', score='t', count='clicks', exposure='views')
    """

    _: KW_ONLY
    count: str | None = None
    exposure: str | None = None

    kind: ClassVar[str] = "poisson"


@dataclass(frozen=True, eq=False, repr=False)
class NormalItems(_Roles):
    """Items with a score and a value y ~ Normal(theta, s^2) with a known noise sd s.

    Parameters
    ----------
    source, score, group, id, fold, cluster, date
        As for `PoissonItems`.
    value
        Column of the values: finite numbers, up to 1e35 in size. Optional as `count` of
        `PoissonItems`.
    noise_sd
        Column of the standard deviations of the values about their theta, from 1e-35 to 1e35, in
        the unit of the values. Needed with `value`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.NormalItems("studies.csv", score="t", value="effect", noise_sd="se")
    NormalItems('studies.csv', score='t', value='effect', noise_sd='se')
    """

    _: KW_ONLY
    value: str | None = None
    noise_sd: str | None = None

    kind: ClassVar[str] = "normal"


@dataclass(frozen=True, eq=False, repr=False)
class BinomialItems(_Roles):
    """Items with a score and successes y ~ Binomial(n, theta) in a known number of trials n.

    Parameters
    ----------
    source, score, group, id, fold, cluster, date
        As for `PoissonItems`.
    successes
        Column of the numbers of successes: whole numbers from 0 to the item's trials, or labels
        (true and false are 1 and 0). Optional as `count` of `PoissonItems`.
    trials
        Column of the numbers of trials: whole numbers >= 0. Needed with `successes`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.BinomialItems("players.csv", score="p", successes="hits", trials="at_bats")
    BinomialItems('players.csv', score='p', successes='hits', trials='at_bats')
    """

    _: KW_ONLY
    successes: str | None = None
    trials: str | None = None

    kind: ClassVar[str] = "binomial"


Items = PoissonItems | NormalItems | BinomialItems

ITEMS: Mapping[str, type[Items]] = {
    items.kind: items for items in (PoissonItems, NormalItems, BinomialItems)
}
ANY_ITEMS = " or ".join(f"soc.{items.__name__}(...)" for items in ITEMS.values())


def check_items(value: Any, name: str = "items", error: Refusal = ItemsError) -> Items:
    """Refuse arguments that are not items (as a rule of arguments)."""
    if isinstance(value, Items):
        return value
    raise ItemsError(f"{name} must be {ANY_ITEMS} of a table, not {type(value).__name__}")


def check_outcomes(value: Any, name: str = "items", error: Refusal = ItemsError) -> Items:
    """Refuse arguments that are not items with outcomes (as a rule of arguments)."""
    items = check_items(value, name)
    if not items.has_outcomes:
        outcome = OUTCOMES[items.kind]
        raise ItemsError(
            f"{name} name no column of {outcome.words.outcomes}: give them {outcome.observed}= and "
            f"{outcome.size}= (without these they can only be scored, by soc.item_posteriors)"
        )
    return items
