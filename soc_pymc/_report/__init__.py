"""Reports: what a fit says of items, as one self-contained HTML page."""

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from .._lib.arguments import PROGRESS, SEED, A, OrNone, Real, checked, names_of, path_of
from .._lib.errors import FitError, ItemsWarning
from .._lib.files import replacing
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..checks._check import CheckResult, Finding, check, cluster_finding, title_of
from ..checks.findings import advise
from ..checks.results import result_table
from ..data.groups import group_roles, roles_of
from ..data.items import ANY_ITEMS, Items
from ..data.statistics import Statistics
from ..data.tables import open_table
from ..families.validity import LARGEST
from ..inference.results import Fit, outcome_roles
from ..posterior.extrapolation import extrapolation_reported
from ..posterior.item_columns import posterior_roles
from ..posterior.predictive import posterior_of
from ..quantities.support import statistics_of
from . import formats
from .choices import choices
from .formats import Label
from .overview import Overview, read_overview
from .sections import Options, Results, checks, curves, data, head, score_quality, settings

__all__ = ["report"]

_REPLICATED = 2_000  # items of the sample whose outcomes are replicated for a picture
_FILTERS = ("band", "counted", "exact", "number", "percent", "whole")
_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}
_SECTIONS = {
    "head": head, "data": data, "curves": curves, "checks": checks, "quantities": score_quality,
    "choices": choices, "settings": settings,
}  # fmt: skip


@checked(
    fit=A(Fit, "a fit: give what soc.fit or soc.load_fit returned"),
    items=A(Items, f"{ANY_ITEMS}: a report reads items"),
    out=path_of,
    by=names_of,
    title=OrNone(A(str, "text, or None for one that says what was fitted")),
    threshold=OrNone(Real()),
    seed=SEED,
    progress=PROGRESS,
)
@one_blas_thread
def report(
    fit: Fit,
    items: Items,
    *,
    out: str | os.PathLike[str] = "report.html",
    by: str | Sequence[str] = (),
    title: str | None = None,
    threshold: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Path:
    """Write what a fit says of items as one HTML page to show to a colleague.

    The page holds everything: pictures are part of it, it asks no network and runs no script. Its
    sections: the data; the curves with 90% bands; `soc.check` in words; how good the score is and
    what outcomes add (`soc.quantities`); the items at the top and, given a threshold, what to
    choose (`soc.decisions`); settings and versions.

    Items are read twice, in batches, so that memory does not grow with them. Of more than 20,000
    items (10,000 for a mixture) checks, expected losses and pictures use a random sample of so
    many, and the page says so; all else is of all items, as is whether clusters matter, for items
    with ``cluster=``.

    Parameters
    ----------
    fit, items
        The fit, and items to report on: those that made it, or better others of the same kind.
    out
        File to write, named ``*.html``; it appears under its name when it is whole.
    by
        Further columns of the items' table on which checks are sliced; shown with top items.
    title
        Title of the page; None makes one from the columns.
    threshold
        Of theta, in its unit (events per unit of exposure, or the unit of the values): adds which
        items lie above it, what wrong choices cost, and which items deserve more exposure.
    seed, progress
        Seed of the sample and of the checks, with which, except for the date, the page is the same
        every time; and whether to show progress.

    Returns
    -------
    pathlib.Path
        The page.

    Raises
    ------
    FitError
        If `out` is not named ``*.html`` or its folder is not there, the threshold is not a finite
        number, or a score has no place on the fit's axis.
    ItemsError
        If the items are not valid or not of the fit's kind, lack groups that the fit has, or lack a
        column of `by`.

    Warns
    -----
    ItemsWarning
        If scores lie far outside of those that the fit saw; the page says so too.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import soc_pymc as soc
    >>> fit = soc.fit(stats, soc.Gamma())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = soc.report(fit, items, out=pathlib.Path(folder) / "r.html")
    ...     path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    True
    """
    target = _target(out)
    if threshold is not None and abs(threshold) > LARGEST:
        raise FitError(
            f"threshold={threshold:g} is in the unit of theta, and is beyond all of them: give one "
            f"up to {LARGEST:g} in size"
        )
    names = tuple(by)
    posterior = posterior_of(fit)
    posterior_roles(fit, posterior, items)
    open_table(items.source, list(dict.fromkeys([*items.roles.values(), *names])))
    stats = _statistics(fit, items, progress)
    overview = read_overview(fit, posterior, items, names, threshold, seed, stats.n_items, progress)
    with extrapolation_reported():  # of far scores the overview has warned, for all items
        result = _checked(fit, items, overview, names, seed, progress)
        options = Options(os.fspath(out), names, title, threshold, seed, progress)
        results = Results(fit, posterior, items, stats, overview, result, options)
        with phase("writing the page", enabled=progress):
            text = _page(results)
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


def _checked(
    fit: Fit,
    items: Items,
    overview: Overview,
    names: tuple[str, ...],
    seed: int,
    progress: bool | None,
) -> CheckResult:
    """Checks on the sample; whether clusters matter is found from all items."""
    sample, part = overview.sample.items, not overview.whole
    if part and not fit.widened:  # clusters of a sample may have one item each
        sample = replace(sample, cluster=None)
    with warnings.catch_warnings():
        # clusters are found from statistics that the user did not ask for
        warnings.filterwarnings("ignore", r"[\d,]+ bins instead of", ItemsWarning)
        result = check(fit, sample, by=names, seed=seed, subset=_REPLICATED, progress=progress)
        if part and items.cluster is not None and not (fit.widened or fit.one_draw):
            columns = list(dict.fromkeys([*names, *group_roles(items.roles).values()]))
            found = cluster_finding(fit, items)
            return _with_finding(result, found, fit, len(overview.sample), columns)
    return result


def _with_finding(
    result: CheckResult, finding: Finding, fit: Fit, n: int, columns: list[str]
) -> CheckResult:
    """The checks of `n` items with one more finding, before those on the inference."""
    known, outcome = result.table, posterior_of(fit).outcome
    at = int((known["where"] != "inference").sum())
    row = result_table([finding | {"n": n}])
    table = pd.concat([known[:at], row, known[at:]], ignore_index=True)
    before = len(list(advise(known, fit, outcome, n, columns)))
    advice = (*advise(table, fit, outcome, n, columns), *result.advice[before:])
    return replace(result, table=table, advice=advice, title=title_of(table, n))


def _page(results: Results) -> str:
    """The page as text; every text in it is escaped."""
    environment = Environment(
        loader=PackageLoader(__name__),
        autoescape=True,
        finalize=formats.clean,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update({name: getattr(formats, name) for name in _FILTERS})
    environment.globals["marks"] = _MARKS
    n, few = results.overview.n, len(results.overview.sample)
    context: dict[str, Any] = {
        "n": n,
        "sampled": f"all {n:,} items" if few == n else f"a random {few:,} of {n:,} items",
        "one_draw": results.fit.one_draw,
        "outcome": results.posterior.outcome,
        "words": results.words,
        "by": [Label(name) for name in results.options.by],
    }
    sections = {name: section(results) for name, section in _SECTIONS.items()}
    return environment.get_template("page.html").render(context | sections)


def _target(out: str | os.PathLike[str]) -> Path:
    """The file to write, in a folder that is there."""
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise FitError(f"out={str(path)!r} must be named *.html")
    if not path.parent.is_dir():
        raise FitError(f"out={str(path)!r}: there is no folder {str(path.parent)!r}, make it first")
    return path


def _statistics(fit: Fit, items: Items, progress: bool | None) -> Statistics:
    """Statistics of the items, as quantities read them; this validates all items."""
    stats = statistics_of(fit, items, progress)
    # the items' columns may be called otherwise than those of the fit: roles are what matters
    roles = roles_of(stats.data.attrs) | outcome_roles(fit.data.attrs)
    return Statistics(stats.data.assign_attrs(roles=json.dumps(roles)))
