"""Reports of a fit and its items, as one self-contained HTML page."""

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from scipy import special

from .. import __version__, decisions, plots, quantities
from .._lib.arguments import SEED, A, FitError, OrNone, Real, names_of, path_of
from .._lib.arrays import Columns, Floats, Ints
from .._lib.files import replacing
from .._lib.reprs import code_of, counted, html_table, number, short, visible
from .._lib.work import long_work, one_blas_thread, phase
from ..checks._check import CheckResult, check_sample
from ..checks.findings import (
    COLUMNS,
    OK,
    PROB,
    VERDICTS,
    Result,
    cells,
    intervals,
    worst_first,
)
from ..data.items import Items
from ..data.sources import arrow_table, kind_of, opened
from ..data.statistics import Statistics
from ..families.scales import LARGEST
from ..fits import FIT, Fit, other_total_of_statistics
from ..plots.curves import fitted_curves
from ..plots.style import picture_of
from ..posterior.averages import scorer
from ..posterior.calibration import bands
from ..posterior.item_columns import (
    Extrapolation,
    arrays_of,
    extrapolation_reported,
    in_chunks,
    posterior_roles,
    refuse_weighted,
    select,
)
from ..posterior.predictive import posterior_of
from ..posterior.scoring import item_posteriors
from ..posterior.weights import P_ZERO
from ..quantities import statistics_of

# candidates of each list, which all draws rank again: more where the loss only bounds their value
_CANDIDATES = {"mean": 200, "low quantile": 200, "loss": 500}
_AT_ONCE = 1 << 18
_PROBS = (0.1, 0.5)  # quantiles of theta of every item, if there is a threshold
_LOW = float(special.ndtri(_PROBS[0]))
_LEVELS = 20  # in the picture of a column of groups
_PACKAGES = ("pymc", "arviz", "numpy", "scipy", "pandas", "xarray", "duckdb")
# quantiles of the scores
_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
# items of a list
_LISTED = 10
_MOST = 200  # rows of a result
_QUANTILES = (0.05, 0.1, 0.95)
_ESTIMATES = {"theta_mean": "mean", "theta_q05": "5%", "theta_q95": "95%"}
_CURVES = {
    "mean": "E(theta | score)",
    "sd": "sd(theta | score)",
    P_ZERO: "P(theta = 0 | score)",
}


@long_work
def report(
    fit: Fit, items: Items, *, out: str | os.PathLike[str] = "report.html",
    by: str | Sequence[str] = (), title: str | None = None, threshold: float | None = None,
    seed: int = 0, check: CheckResult | None = None, progress: bool | None = None,
) -> Path:  # fmt: skip
    """Write a report on a fit and its items as one HTML page; returns its path.

    The page has what was fitted, the curves with 90% bands and the effects of groups, the table of
    `soc.check` with its advice, and the items at the top and, with a threshold, those that deserve
    another observation. It asks no network and runs no script. Of more than 50,000 items the check
    takes so many at random.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
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
    check : CheckResult or None
        What `soc.check` found on these items; None checks them.
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
    posterior_roles(fit.curves, items)
    out = path_of(out, "out")
    by = names_of(by, "by")
    is_title = A(str, "text, or None for one that says what was fitted")
    title = OrNone(is_title)(title, "title")
    threshold = OrNone(Real())(threshold, "threshold")
    seed = SEED(seed, "seed")
    check = OrNone(A(CheckResult, "a result of soc.check"))(check, "check")
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
    refuse_weighted(items)
    opened(items.source, [*items.roles.columns, *by], hold=False)
    # which validates all items
    stats = statistics_of(fit.curves, items)
    options = {"out": out, "by": tuple(by), "title": title}
    options |= {"threshold": threshold, "seed": seed}
    return write_page(fit, items, stats, check, options)


@one_blas_thread
def write_page(
    fit: Fit,
    items: Items,
    stats: Statistics,
    check: CheckResult | None,
    options: Mapping[str, Any],
    scored: Path | None = None,
) -> Path:
    """Write the page of valid items, which are scored unless a file has their posteriors."""
    options = {"by": (), "title": None, "threshold": None, "seed": 0, **options}
    overview = read_overview(fit, items, options, scored)
    # the overview has warned of far scores, for all items
    with extrapolation_reported():
        made_fit = not other_total_of_statistics(fit, stats)
        if check is None:
            choices = {name: options[name] for name in ("by", "seed")}
            check = check_sample(fit, items, made_fit, **choices)
        with phase("writing the page"):
            page = Page(fit, items, stats, overview, check, options, made_fit)
            text = page.text()
    target = Path(options["out"])
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


# --- the page: its items, numbers, tables and pictures -------------------------------------------


@dataclass(frozen=True, eq=False)
class Subset:
    """Some of the items, in their order."""

    items: Items  # with the columns of the roles and those to slice on
    columns: Columns
    # id, index label or row number; none where rows have no order
    names: pd.Index | None


@dataclass(frozen=True, eq=False)
class Overview:
    """Items of the page among all."""

    # of all items, as posteriors read them
    columns: Columns
    # candidates of each list
    lists: Mapping[str, Subset]
    # number of items above the threshold with more than a probability
    above: Mapping[float, int]
    # a sentence on scores far outside those of the fit
    far: str | None


def read_overview(
    fit: Fit,
    items: Items,
    options: Mapping[str, Any],
    scored: Path | None,
) -> Overview:
    """Score all items, which are valid, and choose those at the top of each list."""
    posterior = posterior_of(fit)
    names = list(dict.fromkeys([*items.roles.columns, *options["by"]]))
    moments = ["theta_mean", "theta_sd"] if scored else []
    table = arrow_table(scored or items.source, [*names, *moments])
    summaries = [table[name].to_numpy() for name in moments]
    table = table.select(names)
    columns = arrays_of(table, posterior_roles(posterior.curves, items))
    n = table.num_rows
    far = Extrapolation(posterior.curves).count(columns["score"])
    far.warn()
    index: pd.Index | None = pd.RangeIndex(n, name="row, from 0")
    kind = kind_of(items.source)
    if items.id:
        index = pd.Index(table[items.id].to_pylist(), name=items.id, dtype=object)
    elif kind == "pandas":
        index = items.source.index
    elif kind == "ibis":
        index = None

    def subset(rows: Ints) -> Subset:
        rows = np.sort(rows)
        part = replace(items, source=table.take(rows))
        return Subset(
            part, select(columns, rows), index if index is None else index[rows]
        )

    threshold = options["threshold"]
    probs = () if threshold is None else _PROBS
    if not scored:
        score = scorer(posterior, probs)
        summaries = [*in_chunks(score, _AT_ONCE, columns, "scoring items")]
    mean, sd = summaries[:2]
    low = mean + _LOW * sd
    # of a Gamma, by Wilson and Hilferty (1931)
    if posterior.outcome.positive:
        third = sd / (3.0 * np.maximum(mean, np.finfo(float).tiny))
        low = mean * (1.0 - third**2 + _LOW * third) ** 3
    keys = {"mean": mean, "low quantile": low}
    above = {}
    if threshold is not None:
        # expected loss of choosing by the mean, were theta Normal: no data save more
        z = np.abs(mean - threshold) / np.maximum(sd, np.finfo(float).tiny)
        bell = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        keys["loss"] = sd * (bell - z * special.ndtr(-z))
        counts = [int((theta > threshold).sum()) for theta in summaries[3:5]]
        above = {1 - p: count for p, count in zip(_PROBS, counts, strict=True)}
    lists = {
        name: subset(np.argsort(-key, kind="stable")[: _CANDIDATES[name]])
        for name, key in keys.items()
    }
    return Overview(columns, lists, above, far.message())


@dataclass(frozen=True, eq=False)
class Page:
    """Contents of the page, as the template reads them; `options` are those of the call."""

    fit: Fit
    items: Items
    stats: Statistics
    overview: Overview
    check: CheckResult
    options: Mapping[str, Any]
    made_fit: bool

    def text(self) -> str:
        """Return the page; all text in it is escaped, invisible characters too."""
        environment = Environment(
            loader=PackageLoader(__name__),
            autoescape=True,
            finalize=lambda text: text if hasattr(text, "__html__") else visible(text),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return environment.get_template("page.html").render(
            vars(self),
            page=self,
            outcome=self.fit.curves.outcome,
            scored=self.fit.curves.roles.has_score,
            curves_picture=partial(picture_of, plots.plot_curves, self.fit, PROB),
            prior_picture=partial(picture_of, plots.plot_prior, self.fit),
            pit_picture=partial(picture_of, plots.plot_pit, self.check),
            result_table=_of_result,
            versions=", ".join(f"{name} {version(name)}" for name in _PACKAGES),
            version=__version__,
            made=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        )

    @property
    def worst(self) -> str:
        """The worst verdict of the check."""
        return max(self.check.table["verdict"], key=VERDICTS.index)

    def headline(self) -> str:
        """Return how many of the check's rows have the worst verdict."""
        verdict = self.worst
        total = f"{len(self.check.table):,}"
        number = int((self.check.table["verdict"] == verdict).sum())
        if verdict == OK:
            return f"All {total} checks pass"
        return f"{number:,} of {total} checks {verdict}{'s' * (number == 1)}"

    def fitted(self) -> list[Markup]:
        """Return tables of the items, their statistics and the fit, as these show themselves."""
        fit = self.fit
        roles = self.items.roles.arguments
        n = fit.curves.bins["n_items"]
        rows = [
            ("prior", short(fit.prior)),
            ("method", short(fit.method)),
            ("items", f"{int(n.sum()):,} in {counted(n.size, 'bin')}"),
            ("status", fit.status.reason),
        ]
        tables = [
            _table_of_page("Items", [(x, repr(name)) for x, name in roles.items()]),
            # it escapes all text
            Markup(self.stats._repr_html_()),
            _table_of_page("Fit", rows),
        ]
        if fit.selection is not None:
            priors = fit.selection.drop(columns="chosen")
            values = priors.values.tolist()
            tables.append(_table_of_page("Choice of the prior", values, [*priors]))
        return tables

    def groups(self) -> Result | None:
        """Return effects of the levels of groups, and how many differ by chance."""
        if not self.fit.groups or self.fit.one_draw:
            return None
        return quantities.group_effects(self.fit, self.stats)

    def effects_picture(self, effects: Result) -> dict[str, Any]:
        """Return the picture of effects, as high as there are levels."""
        levels = effects.table[effects.table["p"].notna()]
        sizes = [min(n, _LEVELS) + 2 for n in levels.groupby("what", sort=False).size()]
        arguments = replace(effects, table=levels), _LEVELS
        height = 0.5 + 0.25 * sum(sizes)
        return picture_of(plots.plot_intervals, *arguments, height=height, panels=sizes)

    def code(self) -> Markup:
        """Return the calls that made the fit and this page, as far as the fit knows them."""
        items = self.items
        bins = self.fit.curves.bins.sizes["bin"]
        source = repr(items.source) if kind_of(items.source) == "files" else "table"
        roles = _arguments(items.roles.arguments | items.options)
        joint = ", joint=True" if self.fit.prior.reads_joint else ""
        options = {k: v for k, v in self.options.items() if v not in (None, ())}
        # with its line breaks
        return Markup("{}").format(
            "import soc_pymc as soc\n\n"
            f"items = soc.{type(items).__name__}({source}{roles})\n"
            f"stats = soc.summarize(items{joint})  # {bins:,} bins\n"
            f"fit = soc.fit(stats, {code_of(self.fit.prior)}, {code_of(self.fit.method)})\n"
            f"soc.report(fit, items{_arguments(options)})\n"
        )

    def curve_table(self) -> Markup:
        """Return both curves at quantiles of the scores, and at scores that many items share."""
        score = self.overview.columns["score"]
        quantiles = np.quantile(score, _SHARES, method="inverted_cdf")
        scores = np.unique(np.concatenate([quantiles, self.fit.atoms]))
        drawn = fitted_curves(self.fit, scores)
        drawn["sd"] = (drawn["variance"] ** 0.5).assign_attrs(banded="log")
        names = {curve: name for curve, name in _CURVES.items() if curve in drawn}
        banded = bands(drawn[[*names]], PROB)
        places = scores.tolist() if self.fit.curves.roles.has_score else ["none"]
        head = ["score", "items up to it"]
        columns = [places, [f"{np.mean(score <= t):.0%}" for t in scores]]
        for curve, name in names.items():
            low, middle, high = banded[curve].to_numpy().tolist()
            head.append(name)
            columns.append(middle)
            if not self.fit.one_draw:
                head += ["low", "high"]
                columns += [low, high]
        rows = zip(*columns, strict=True)
        return _table_of_page("The curves at some scores", rows, head)

    def explained(self) -> str:
        """Return the share of the variance of theta that the score explains."""
        return self._percent(quantities.r_squared(self.fit, self.stats))

    def removed(self) -> str:
        """Return the share of the error that the items' own outcomes remove."""
        ratio = quantities.variance_reduction(self.fit, self.stats, weight="items")
        return self._percent(1 - ratio.data["ratio"])

    def _percent(self, draws: Any) -> str:
        """Return the median and interval of a share in words."""
        share = intervals(np.ravel(draws))
        ends = f" (90% interval {share['low']:.1%} to {share['high']:.1%})"
        return f"{share['value']:.1%}" + ("" if self.fit.one_draw else ends)

    @cached_property
    def amount(self) -> float:
        """The median size of items' outcomes, in three digits."""
        sizes = self.overview.columns[self.fit.curves.outcome.size]
        return float(f"{np.median(sizes[sizes > 0]):.3g}")

    def ranked_by_value(self, title: str, rows: Subset) -> Markup:
        """Return the first items by what another outcome of median size would improve."""
        threshold = self.options["threshold"]
        gain = decisions.value_of_exposure(
            self.fit, rows.items, self.amount, threshold=threshold
        )
        return self.ranked(title, rows, "value", gain["value"].to_numpy())

    def ranked(
        self, title: str, rows: Subset, ranked_by: str, value: Floats | None = None
    ) -> Markup:
        """Return the first items by one column: names, what was observed, and their posteriors."""
        items = rows.items
        outcome = self.fit.curves.outcome
        scored = item_posteriors(self.fit, items, quantiles=_QUANTILES, draws="all")
        observed = [outcome.observed, outcome.size]
        observed = ["score", *observed] if items.score else observed
        numbers = {items.roles[role]: rows.columns[role] for role in observed}
        labels = (*items.roles.groups.values(), *self.options["by"])
        columns = {name: scored[name].to_pylist() for name in labels}
        columns |= {name: values.tolist() for name, values in numbers.items()}
        estimates = {name: scored[key].to_numpy() for key, name in _ESTIMATES.items()}
        if value is not None:
            estimates[ranked_by] = value
        elif ranked_by not in estimates:
            estimates[ranked_by] = scored["theta_q10"].to_numpy()
        columns |= {name: values.tolist() for name, values in estimates.items()}
        top = np.argsort(-estimates[ranked_by], kind="stable")[:_LISTED]
        if rows.names is not None:
            columns = {str(rows.names.name or "index"): list(rows.names)} | columns
        values = [[column[k] for column in columns.values()] for k in top]
        return _table_of_page(title, values, [*columns])


def _arguments(values: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in values.items())


def _table_of_page(
    title: str, rows: Iterable[Sequence[Any]], head: Sequence[Any] = ()
) -> Markup:
    """Return a table of the page, with numbers formatted as in a printed result."""
    text = [[number(x) for x in row] for row in rows]
    # it escapes all text
    return Markup(html_table(title, text, head))


def _of_result(title: str, result: Result) -> Markup:
    """Return the table of a result, the worst rows first."""
    return _table_of_page(title, cells(worst_first(result.table)[:_MOST]), COLUMNS)
