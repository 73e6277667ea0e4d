"""What the page says, section by section: numbers, words, tables and pictures for the template."""

import datetime
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from .. import plots, quantities
from .._lib.reprs import short
from ..checks._check import CheckResult
from ..checks.results import cells
from ..data.groups import arguments_of, is_group
from ..data.items import Items
from ..data.statistics import Statistics
from ..data.tables import kind_of
from ..families.family import reads_joint
from ..families.outcomes import Words
from ..inference.results import Fit
from ..plots import fit_data
from ..posterior.calibration import bands, calibration_curves
from ..posterior.curves import P_ZERO
from ..posterior.interface import Posterior
from . import pictures
from .formats import BANDS, Label, band, central, counted, exact, number, percent, whole
from .overview import Overview

_FEW = 8  # groups of the table before the rest is folded
_MOST_GROUPS = 100
_GROUP_CURVES = 20
_FINDINGS = 12  # before the rest is folded
_COLUMNS = (
    ("what", ""), ("where", "slice"), ("n", "n"), ("value", "n"), ("low", "n"), ("high", "n"),
    ("p", "n"), ("verdict", "verdict"),
)  # fmt: skip
_PANELS = 24
_FIRST_PANELS = 12  # slices by score and size, which are always shown
_PATHS = 3
_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)  # quantiles of the scores
_ROLES = {
    "score": "score t: the model's prediction",
    "group": "group of the item",
    "id": "name of the item",
    "fold": "fold of the item",
    "cluster": "cluster of the item: items of one cluster depend on each other",
}
_SEVERITY = {"fail": 0, "warn": 1, "ok": 2}
_PACKAGES = (
    "soc_pymc", "pymc", "pytensor", "arviz", "numpy", "scipy", "pandas", "xarray", "duckdb",
    "matplotlib",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Arguments of `report` beside the fit and the items."""

    out: str
    by: tuple[str, ...]
    title: str | None
    threshold: float | None
    seed: int
    progress: bool | None


@dataclass(frozen=True)
class Results:
    """All that the page shows results of."""

    fit: Fit
    posterior: Posterior
    items: Items
    stats: Statistics
    overview: Overview
    check: CheckResult  # on the sample of the overview
    options: Options

    @property
    def roles(self) -> Mapping[str, str]:
        """Columns of the items by role."""
        return self.items.roles

    @property
    def words(self) -> Words:
        """What the items' outcomes are called."""
        return self.posterior.outcome.words

    @property
    def typical_size(self) -> float:
        """The median size of the sampled items' outcomes, in three digits."""
        sizes = self.overview.sample.columns[self.posterior.outcome.size]
        return float(f"{float(np.median(sizes[sizes > 0])):.3g}")


@dataclass(frozen=True)
class Table:
    """A table: each column is its head and its kind.

    Kinds are "n" for numbers, "w" for sentences, which stay wide enough to be read, "verdict",
    "slice" for names of slices, and "" for other text. The first cell of a row is its heading.
    """

    caption: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[object]]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def folded(
        self, most: int, caption: str, what: str, cut: str = ""
    ) -> tuple["Table", str, "Table"]:
        """The first rows, a count of the further ones, and these under a caption of their own."""
        rest = self.rows[most:]
        first = Table(self.caption, self.columns, self.rows[:most])
        return first, counted(len(rest), what) + cut, Table(caption, self.columns, rest)


def _numbers(*heads: str) -> list[tuple[str, str]]:
    return [(head, "n") for head in heads]


def head(results: Results) -> dict[str, Any]:
    """Title, and verdicts on the fit and its checks."""
    status, table = results.fit.status, results.check.table
    tests = table[table["where"] != "inference"]
    counts = {verdict: int((tests["verdict"] == verdict).sum()) for verdict in ("fail", "warn")}
    verdict = next((name for name, k in counts.items() if k), "ok")
    observed = results.roles[results.posterior.outcome.observed]
    reason = status.reason.strip().rstrip(".")
    title = f"Calibration of {results.roles['score']} against {observed}"
    return {
        "title": results.options.title or title,
        "converged": status.converged,
        "reason": f"{reason[:1].upper()}{reason[1:]}.",
        "tests": {"n": len(tests), "verdict": verdict, **counts},
    }


def data(results: Results) -> dict[str, Any]:
    """Where the items come from, their columns and totals."""
    overview, stats, outcome = results.overview, results.stats, results.posterior.outcome
    _, totals = _totals(results)
    ranges = {role: band(*ends) for role, ends in overview.ranges.items()}
    own = dict(zip((outcome.observed, outcome.size), outcome.words.columns, strict=True))
    known = _ROLES | own
    columns = [
        (Label(c), known["group" if is_group(role) else role], ranges.get(role, ""))
        for role, c in results.roles.items()
    ]
    sample = overview.sample.columns
    return {
        "source": _source(results.items.source),
        "totals": [
            (name, _total(value[0], 6 if role else 4), Label(results.roles.get(role, "")))
            for name, role, value in totals
        ],
        "zeros": overview.zeros,
        "far": overview.far,
        "some_of_no_size": overview.ranges[outcome.size][0] == 0,
        "groups": len(stats.groups),
        "bins": results.fit.data["constant_data"].sizes["bin"],
        "fitted": int(results.fit.data["constant_data"]["n_items"].sum()),
        "same": _same_items(results),
        "columns": Table(
            "Columns and their ranges", [("Column", ""), ("Role", ""), ("Range", "")], columns
        ),
        "spread": pictures.picture_of_spread({r: sample[r] for r in ("score", outcome.size)}),
        "by_group": _groups(results),
        "atoms": list(_atoms(results)),
    }


def _atoms(results: Results) -> Iterator[str]:
    """A sentence on each score that many items share, here or among those that made the fit."""
    here, known = results.stats.atoms, results.fit.atoms
    for score in sorted({*here, *known}):
        if score not in here:
            yield (
                f"The fit gives the score {exact(score)}, which many of its items had, a mean and "
                "variance of its own. Few of these items have it."
            )
            continue
        own = (
            "which has a mean and variance of its own"
            if score in known
            else "which the fit treats as any other score"
        )
        yield f"{whole(here[score])} of {counted(results.overview.n, 'item')} have the score " + (
            f"{exact(score)}, {own}."
        )


def _source(source: Any) -> dict[str, Any]:
    """Where the items come from: files, or the kind of a table."""
    kind = kind_of(source)
    if kind != "files":
        name = {"pandas": "a pandas", "polars": "a Polars", "arrow": "an Arrow", "ibis": "an Ibis"}
        return {"table": name[kind], "in_memory": kind != "ibis"}
    paths = [source] if isinstance(source, str | os.PathLike) else source
    labels = [Label(os.fspath(path)) for path in paths]
    return {"paths": labels[:_PATHS], "more": len(labels[_PATHS:])}


def _totals(results: Results, by_group: bool = False) -> tuple[Any, list[tuple[str, str, Any]]]:
    """Number of items, and name, role and value of every total: of all items, or of each group."""
    part, outcome = results.stats.table("part"), results.posterior.outcome
    group = part["group"] if by_group else np.zeros_like(part["group"])
    sums = {
        name: np.bincount(group, part[name]).astype(part[name].dtype)
        for name in outcome.sums("part")
    }
    # groups without items or exposure have no rate
    with np.errstate(divide="ignore", invalid="ignore"):
        return sums["n"], [(name, role, value(sums)) for name, role, value in outcome.totals]


def _total(value: Any, digits: int) -> str:
    return whole(value) if np.asarray(value).dtype.kind in "iu" else number(value, digits)


def _same_items(results: Results) -> bool:
    """Whether these are the items that made the fit, as far as totals tell."""
    overview, outcome = results.overview, results.posterior.outcome
    bins, seen = (results.fit.data[group] for group in ("constant_data", "observed_data"))
    if int(bins["n_items"].sum()) != overview.n or overview.far is not None:
        return False
    # bins keep the sum of whole outcomes, and the mean of others
    total = seen[outcome.observed] * (1 if outcome.whole else bins["n_items"])
    here = float(results.stats.data["sum_y"].sum())
    return bool(np.isclose(float(total.sum()), here, rtol=1e-9, atol=1e-9 * overview.n))


def _groups(results: Results) -> tuple[Table, str, Table] | None:
    """Items and totals by group, the largest first."""
    stats = results.stats
    if not stats.groups:
        return None
    n, totals = _totals(results, by_group=True)
    rows = [
        [Label(stats.groups[k]), whole(n[k]), *(_total(value[k], 4) for _, _, value in totals)]
        for k in np.argsort(-n, kind="stable")
    ]
    many = len(rows) > _FEW
    table = Table(
        f"The {_FEW} largest groups" if many else "Groups",
        [("Group", ""), *_numbers("Items", *(name for name, _, _ in totals))],
        rows[:_MOST_GROUPS],
    )
    next_ones = f", the next {_MOST_GROUPS - _FEW} of {len(rows):,}"
    cut = next_ones if len(rows) > _MOST_GROUPS else ""
    return table.folded(_FEW, "Further groups", "more group", cut)


def curves(results: Results) -> dict[str, Any]:
    """Theta given the score: with bands, and the spread of the items' own theta."""
    fit, roles, outcome = results.fit, results.roles, results.posterior.outcome
    by_size = fit_data.weighs_by_size(fit)
    columns = {"outcome": roles[outcome.observed], "size": roles[outcome.size]}
    size = None if fit.prior.exposure is None else results.typical_size
    return {
        "unit": Label(results.words.unit.format(**columns)),
        "groups": len(fit.groups),
        "picture": pictures.picture_of_curves(fit),
        "table": _curve_table(results),
        "prior": pictures.picture_of(
            plots.plot_prior, pictures.drawable_fit(fit), exposure=size, height=4.2
        ),
        "prior_size": size,
        "weights": f"with {by_size}" if by_size else "in which each item counts once",
        "by_group": _curves_by_group(results),
        "levels": _levels(results),
    }


def _interval(fit: Fit, head: str) -> list[tuple[str, str]]:
    """Column of an interval, which a single draw does not have."""
    return [] if fit.one_draw else [(head, "n")]


def _curve_table(results: Results) -> Table:
    """Both curves at some quantiles of the scores, and at scores that many items share."""
    fit, score = results.fit, results.overview.sample.columns["score"]
    quantiles = np.quantile(score, _SHARES, method="inverted_cdf")
    at = np.unique(np.concatenate([quantiles, fit.atoms]))
    drawn = fit_data.fitted_curves(fit, at)  # as the picture weighs items
    share = {P_ZERO: drawn[P_ZERO]} if fit.prior.zero else {}
    sd = (drawn["variance"] ** 0.5).assign_attrs(banded="log")
    banded = bands(drawn[["mean"]].assign({"sd": sd, **share}), BANDS)
    rows = []
    for k, t in enumerate(at):
        row = [number(t), f"{100 * float(np.mean(score <= t)):.0f}%"]
        for name in ("mean", "sd", *share):
            low, middle, high = banded[name].to_numpy()[:, k]
            row += [number(middle), *([] if fit.one_draw else [band(low, high)])]
        rows.append(row)
    interval = _interval(fit, "90% band")
    first, second = _numbers("Score", "Items up to it", "E(theta | score)"), "sd(theta | score)"
    columns = [*first, *interval, (second, "n"), *interval]
    if fit.prior.zero:
        columns += [("P(theta = 0 | score)", "n"), *interval]
    return Table("The curves at some scores", columns, rows)


def _curves_by_group(results: Results) -> Table | None:
    """The mean curve of each group at the median score."""
    fit = results.fit
    if not fit.groups:
        return None
    median = float(np.median(results.overview.sample.columns["score"]))
    part, labels = results.stats.table("part"), results.stats.groups
    n = dict(zip(labels, np.bincount(part["group"], part["n"], len(labels)), strict=True))
    known = sorted((g for g in labels if g in fit.groups), key=lambda g: -n[g])[:_GROUP_CURVES]
    rows = []
    for label in known:
        mean = bands(calibration_curves(fit, [median], group=label)[["mean"]], BANDS)["mean"]
        low, middle, high = (float(x) for x in mean.to_numpy()[:, 0])
        interval = [] if fit.one_draw else [band(low, high)]
        rows.append([Label(label), whole(n[label]), number(middle), *interval])
    cut = f", the {len(rows)} largest groups" if len(labels) > len(rows) else ""
    columns = [("Group", ""), *_numbers("Items", "E(theta | score)"), *_interval(fit, "90% band")]
    return Table(f"By group, at the median score {number(median, 4)}{cut}", columns, rows)


def _levels(results: Results) -> dict[str, Any] | None:
    """Effects of the levels of groups, and how many differ by chance."""
    fit = results.fit
    if not fit.groups or fit.one_draw:
        return None
    effects = quantities.group_effects(fit, results.stats)
    rows = [(*map(Label, row[:2]), *row[2:]) for row in cells(effects.table)]
    table = Table("Levels at equal score", _COLUMNS, rows[:_MOST_GROUPS])
    return {
        "sentences": effects.advice,
        "table": table.folded(_FEW, "Further levels", "more level"),
        "picture": pictures.picture_of_levels(effects),
    }


def checks(results: Results) -> dict[str, Any]:
    """The table of the checks and their advice, with a picture of each slice."""
    result = results.check
    table = result.table.sort_values("verdict", key=lambda v: v.map(_SEVERITY), kind="stable")
    rows = cells(table)
    first = min(int((table["verdict"] != "ok").sum()), _FINDINGS)
    return {
        "advice": result.advice,
        "n": len(rows),
        "findings": Table("Findings", _COLUMNS, rows).folded(
            first, "Further findings", "further finding" if first else "finding"
        ),
        "panels": _panels(result),
        "slices": result.data["pit"].sizes["slice"],
        "by_score": pictures.picture_of(plots.plot_pit, result, by="score", height=4.4),
    }


def _panels(result: CheckResult) -> list[dict[str, Any]]:
    """A picture of the PIT of each slice; of very many slices the first and the worst."""
    slices = [str(name) for name in result.data["pit"]["slice"].to_numpy()]
    tests = result.table[result.table["what"] == "PIT"].set_index("where")
    if len(slices) > _PANELS:
        rest = tests["p"].reindex(slices[_FIRST_PANELS:]).sort_values(kind="stable").index
        slices = slices[:_FIRST_PANELS] + list(rest[: _PANELS - _FIRST_PANELS])
    panels = []
    for name in slices:
        label = pictures.drawable(name, f"slice {slices.index(name) + 1}")
        panel = {"slice": name, "picture": pictures.picture_of_pit(result, name, label)}
        panels.append(panel | {c: tests[c][name] for c in ("verdict", "value")})
    return panels


def score_quality(results: Results) -> dict[str, Any]:
    """How good the score is, and how much the items' own outcomes add to it."""
    fit, stats, words = results.fit, results.stats, results.words
    progress = results.options.progress
    explained = quantities.r_squared(fit, stats)
    left = quantities.variance_reduction(fit, stats, weight="items", progress=progress)
    share = quantities.shrinkage(fit, stats, weight="items", progress=progress).data["share"]
    measures = (
        (
            "R-squared of the score",
            explained,
            "The score, once calibrated, explains {} of how theta varies among items; the rest "
            "varies among items of equal scores.",
        ),
        (
            "Error that outcomes take away",
            1 - left.data["ratio"],
            f"The items' own {words.outcomes} take away {{}} of the mean squared error that the "
            "calibrated score has by itself.",
        ),
        (
            "Share of the score in estimates",
            share,
            "On average an item's estimate is {} what its score says and the rest its "
            f"{words.own}.",
        ),
    )
    rows, in_short = [], []
    for name, draws, says in measures:
        low, median, high = map(percent, central(draws))
        interval = [] if fit.one_draw else [f"{low} to {high}"]
        rows.append((name, median, *interval, says.format(median)))
        in_short.append(says.format(" ".join([median, *(f"(90% interval {x})" for x in interval)])))
    columns = [
        ("Quantity", ""), ("Estimate", "n"), *_interval(fit, "90% interval"), ("What it says", "w"),
    ]  # fmt: skip
    return {
        "in_short": in_short,
        "table": Table("Quantities", columns, rows),
        "picture": pictures.picture_of_intervals(left.table),
    }


def settings(results: Results) -> dict[str, Any]:
    """Settings, versions and how to make the page again."""
    fit, status = results.fit, results.fit.status
    sizes = fit.data["posterior"].sizes
    used: dict[str, Any] = {"Prior": fit.prior, "Method": fit.method}
    options: list[tuple[str, str]] = []
    for what, config in used.items():
        named = {f"{what}: {k.replace('_', ' ')}": _shown(v) for k, v in asdict(config).items()}
        options += [(what, type(config).__name__), *named.items()]
    versions = [
        *((name, _version(name)) for name in _PACKAGES),
        ("Python", platform.python_version()),
    ]
    return {
        "made": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "seed": results.options.seed,
        "draws": sizes["chain"] * sizes["draw"],
        "status": status,
        "prior": type(fit.prior).__name__,
        "method": type(fit.method).__name__,
        "options": Table("Prior and method", [("Setting", ""), ("Value", "")], options),
        "code": _code(results),
        "versions": Table("Versions", [("Package", ""), ("Version", "")], versions),
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items() if v is not None)
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), str(value))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # an environment without its records
        return "not known"


def _code(results: Results) -> str:
    """The calls that made the fit and this page, as far as the fit knows them."""
    items, fit = results.items, results.fit
    source = repr(items.source) if kind_of(items.source) == "files" else "table"
    roles = ", ".join(f"{name}={given!r}" for name, given in arguments_of(items.roles).items())
    joint = ", joint=True" if reads_joint(fit.prior) else ""
    bins = fit.data["constant_data"].sizes["bin"]
    options = "".join(
        f", {name}={value!r}"
        for name, value in asdict(results.options).items()
        if name != "progress" and (name == "threshold" or value) and value not in (None, ())
    )
    configurations = map(short, (fit.prior, fit.method))
    prior, method = (re.sub(r"\b([A-Z]\w*\()", r"soc.\1", text) for text in configurations)
    return (
        "import soc_pymc as soc\n\n"
        f"items = soc.{type(items).__name__}({source}, {roles})\n"
        f"stats = soc.summarize(items{joint})  # {bins:,} bins\n"
        f"fit = soc.fit(stats, {prior}, {method})\n"
        f"soc.report(fit, items{options})\n"
    )
