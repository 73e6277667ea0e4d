"""Reports of a fit and its items, as one self-contained HTML page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._lib.arguments import SEED, A, OrNone, Real, names_of, path_of
from .._lib.errors import FitError
from .._lib.files import replacing
from .._lib.progress import phase, with_progress
from .._lib.threads import one_blas_thread
from ..checks._check import Checks
from ..data.items import Items, check_items
from ..data.sources import open_table
from ..families.scales import LARGEST
from ..fits.fit import FIT, Fit, other_total_of_statistics
from ..posterior.item_columns import (
    extrapolation_reported,
    posterior_roles,
    refuse_weighted,
)
from ..quantities.curves import statistics_of
from .page import Page, read_overview

__all__ = ["report"]

_REPLICATED = 2_000  # items of the sample whose outcomes are replicated


@with_progress
@one_blas_thread
def report(
    fit: Fit, items: Items, *, out: str | os.PathLike[str] = "report.html",
    by: str | Sequence[str] = (), title: str | None = None, threshold: float | None = None,
    seed: int = 0, progress: bool | None = None,
) -> Path:  # fmt: skip
    """Write a report on a fit and its items as one HTML page; returns its path.

    The page has what was fitted, the curves with 90% bands and the effects of groups, the table of
    `soc.check` with its advice, and the items at the top and, with a threshold, those that deserve
    another observation. It asks no network and runs no script. Of more than 20,000 items (10,000
    for a mixture) the check uses a random sample of that size.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems or BinomialItems
        Items to report on: those that made it, or better others of the same kind.
    out : str or Path
        File to write, named ``*.html``; it appears under its name when it is complete.
    by : str or Sequence[str]
        Further columns on which checks are sliced and which are shown with top items.
    title : str or None
        Title of the page; None makes one from the columns.
    threshold : float or None
        Theta, in its unit, above which items are counted. It also adds which of them deserve more
        exposure before a choice.
    seed : int
        Seed of the sample and of the check.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    FitError, ItemsError
        If `out` is not named ``*.html`` or its folder does not exist, or the items are not valid or
        not of the fit's kind, or lack groups that the fit has or a column of `by`.

    Examples
    --------
    >>> import tempfile
    >>> import soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     soc.report(fit, items, out=f"{folder}/report.html").name
    'report.html'
    """
    fit = FIT(fit, "fit")
    items = check_items(items)
    out = path_of(out, "out")
    by = names_of(by, "by")
    title = OrNone(A(str, "text, or None for one that says what was fitted"))(
        title, "title"
    )
    threshold = OrNone(Real())(threshold, "threshold")
    seed = SEED(seed, "seed")
    target = Path(out)
    if target.suffix.lower() not in (".html", ".htm"):
        raise FitError(f"out={str(target)!r} must be named *.html")
    if not target.parent.is_dir():
        raise FitError(
            f"out={str(target)!r}: there is no folder {str(target.parent)!r}"
        )
    if threshold is not None and abs(threshold) > LARGEST:
        raise FitError(
            f"threshold={threshold:g} is beyond all theta: at most {LARGEST:g} in size"
        )
    columns = list(dict.fromkeys([*items.roles.columns, *by]))
    posterior_roles(fit.curves, items)
    refuse_weighted(items)
    open_table(items.source, columns)
    # which validates all items
    stats = statistics_of(fit.curves, items)
    options = {"out": out, "by": tuple(by), "title": title}
    options |= {"threshold": threshold, "seed": seed}
    overview = read_overview(fit, items, columns, options)
    # the overview has warned of far scores, for all items
    with extrapolation_reported():
        made_fit = not other_total_of_statistics(fit, stats)
        choices: dict[str, Any] = {"by": tuple(by), "seed": seed}
        # clusters of a sample may have one item each
        choices |= {"subset": _REPLICATED, "all_items": items, "made_fit": made_fit}
        check = Checks(fit, overview.sample.items, **choices).result()
        with phase("writing the page"):
            page = Page(
                fit,
                items,
                stats,
                overview,
                check=check,
                options=options,
                made_fit=made_fit,
            )
            text = page.text()
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target
