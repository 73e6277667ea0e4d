"""The page as text: one template over tables, pictures and the options of the call."""

import datetime
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .. import __version__, plots, quantities
from .._lib.reprs import short, visible
from ..checks._check import CheckResult
from ..checks.results import PROB
from ..data.items import Items, arguments_of
from ..data.sources import kind_of
from ..data.statistics import Statistics
from ..families.family import reads_joint
from ..inference.results import Fit
from ..plots.style import picture_of
from ..posterior.predictive import posterior_of
from ..quantities.comparisons import ALL_LEVELS
from . import tables
from .overview import Overview

_LEVELS = 20  # in the picture of a column of groups
_PACKAGES = ("pymc", "arviz", "numpy", "scipy", "pandas", "xarray", "duckdb")


def render(
    fit: Fit, items: Items, stats: Statistics, overview: Overview, check: CheckResult,
    options: Mapping[str, Any],
) -> str:  # fmt: skip
    """Return the page; all text in it is escaped, invisible characters too."""
    environment = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0]),
        autoescape=True,
        finalize=lambda text: text if hasattr(text, "__html__") else visible(text),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    outcome, n, threshold = posterior_of(fit).outcome, len(overview.sample), options["threshold"]
    names = {"outcome": items.roles[outcome.observed], "size": items.roles[outcome.size]}
    total, of_outcome = f"{overview.n:,} items", names["outcome"]
    title = f"Calibration of {items.score} against {of_outcome}"
    title = title if items.score else f"Theta of all items from {of_outcome}"
    at_scores = not fit.one_score and fit.prior.exposure is None
    return environment.get_template("page.html").render(
        title=options["title"] or title,
        scored=items.score is not None,
        words=outcome.words,
        unit=outcome.words.unit.format(**names),
        fit=fit,
        n=overview.n,
        sampled=f"all {n:,} items" if n == overview.n else f"a random {n:,} of {total}",
        in_short=tables.in_short(fit, stats, overview, threshold),
        fitted=_fitted(fit, items, stats),
        same=tables.same_items(fit, stats),
        far=overview.far,
        curves=picture_of(plots.plot_curves, fit, PROB, height=5.8, panels=(3, 2)),
        curve_table=tables.curve_table(fit, overview.sample.columns["score"]),
        prior=at_scores and picture_of(plots.plot_prior, fit, height=3.8),
        groups=_groups(fit, stats),
        check=check,
        findings=tables.of_result(check.title, check),
        worst=tables.worst(check.table),
        pit=picture_of(plots.plot_pit, check, height=3.2),
        pit_by_score=picture_of(plots.plot_pit, check, by="score", height=4.0),
        lists=list(tables.item_tables(fit, overview, options["by"], threshold)),
        threshold=threshold,
        code=Markup("{}").format(_code(fit, items, options)),  # with its line breaks
        versions=", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        version=__version__,
        seed=options["seed"],
        made=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
    )


def _fitted(fit: Fit, items: Items, stats: Statistics) -> list[Markup]:
    """Return the items, their statistics and the fit, in the words of their representations."""
    n = fit.data["constant_data"]["n_items"]
    bins = f"{int(n.sum()):,} in {n.size:,} bins"
    rows = [("prior", short(fit.prior)), ("method", short(fit.method)), ("items", bins)]
    rows.append(("status", fit.status.reason))
    statistics = Markup(stats._repr_html_())  # it escapes all text
    roles = arguments_of(items.roles)
    columns = tables.table("Items", [(role, repr(name)) for role, name in roles.items()])
    made = [columns, statistics, tables.table("Fit", rows)]
    if fit.selection is not None:
        priors = fit.selection.drop(columns="chosen")
        made.append(
            tables.table("Choice of the prior", priors.values.tolist(), [*map(str, priors)])
        )
    return made


def _groups(fit: Fit, stats: Statistics) -> dict[str, Any] | None:
    """Return effects of the levels of groups, and how many differ by chance."""
    if not fit.groups or fit.one_draw:
        return None
    effects = quantities.group_effects(fit, stats)
    levels = effects.table[effects.table["where"] != ALL_LEVELS]
    sizes = [min(n, _LEVELS) + 2 for n in levels.groupby("what", sort=False).size()]
    arguments = levels, _LEVELS, effects.data.attrs["neutral"]
    height = 0.5 + 0.25 * sum(sizes)
    picture = picture_of(plots.plot_intervals, *arguments, height=height, panels=sizes)
    table = tables.of_result("Levels at equal score", effects)
    return {"advice": effects.advice, "picture": picture, "table": table}


def _code(fit: Fit, items: Items, options: Mapping[str, Any]) -> str:
    """Return the calls that made the fit and this page, as far as the fit knows them."""
    source = repr(items.source) if kind_of(items.source) == "files" else "table"
    roles = ", ".join(f"{name}={column!r}" for name, column in arguments_of(items.roles).items())
    joint = ", joint=True" if reads_joint(fit.prior) else ""
    words = "".join(f", {k}={v!r}" for k, v in options.items() if v not in (None, ()))
    prior, method = (
        re.sub(r"\b([A-Z]\w*\()", r"soc.\1", short(record)) for record in (fit.prior, fit.method)
    )
    return (
        "import soc_pymc as soc\n\n"
        f"items = soc.{type(items).__name__}({source}, {roles})\n"
        f"stats = soc.summarize(items{joint})  # {fit.data['constant_data'].sizes['bin']:,} bins\n"
        f"fit = soc.fit(stats, {prior}, {method})\n"
        f"soc.report(fit, items{words})\n"
    )
