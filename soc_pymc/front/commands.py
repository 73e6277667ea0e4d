"""The commands of `soc-pymc`: each a table of options and a thin layer over one function.

`soc.fit` and others are imported when a command first uses them.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import soc_pymc as soc

from .._lib.errors import FitError, ItemsError, StatisticsError
from ..data.groups import arguments_of, group_roles, is_group, roles_of, roles_of_groups
from ..families.family import FAMILIES, Family, reads_joint
from ..families.outcomes import OUTCOMES, Outcome
from ..families.priors import Prior, Spline
from ..families.scales import RANK, SCALES
from ..posterior.items import DRAWS

if TYPE_CHECKING:
    from ..data.items import Items
    from ..inference.methods import Method

_Chosen = argparse.Namespace
_Run = Callable[[_Chosen], None]
_Option = tuple[str, dict[str, Any]]  # name, and settings for argparse or its group

PRIORS: dict[str, type[Prior]] = {
    f"{name.lower()}{ending}": getattr(family, field)
    for field, ending in (("prior", ""), ("mixture", "-mixture"))
    for name, family in FAMILIES.items()
}
"""Priors by name, the default of each kind of items first."""


# --- options -------------------------------------------------------------------------------------


def _option(name: str, text: str, **settings: Any) -> _Option:
    """An option with its help and further settings for argparse."""
    return name, {"help": text, **settings}


def _groups(text: str) -> _Option:
    """The option for columns of groups, which may be repeated."""
    more = "; of several: --group country --group device, or --group country,device"
    return _option("--group", text + more, action="append")


def _switch(name: str, text: str, **settings: Any) -> _Option:
    return _option(name, text, action="store_true", **settings)


def flag_of(role: str) -> str:
    """A role as an option of the command line."""
    return "--" + role.replace("_", "-")


def _columns(*kinds: Outcome, default: str = "") -> tuple[_Option, ...]:
    """Options for the columns of score, outcome and size of some kinds."""
    found = [_option("--score", f"column of the scores{default}")]
    for kind in kinds:
        instead = "" if kind is kinds[0] else f", instead of {kinds[0].words.outcomes}"
        observed = f"column of the {kind.words.outcomes}{instead}{default}"
        found.append(_option(flag_of(kind.observed), observed))
        found.append(_option(flag_of(kind.size), f"column of the {kind.words.sizes}{default}"))
    return tuple(found)


def _by_kind(each: Callable[[Family], str]) -> str:
    """A default of every family: "gamma for counts, normal for values"."""
    return ", ".join(f"{each(f)} for {f.outcome.words.outcomes}" for f in FAMILIES.values())


_KINDS = tuple(OUTCOMES.values())
_SIZES = ", ".join(kind.words.size for kind in _KINDS[1:])  # beside the first kind's
_PATHS = "Parquet or CSV files, or a glob"
_ITEMS = _option("items", _PATHS, nargs="+")
_FIT = _option("fit", "a fit, from 'soc-pymc fit'")
_BINS = _option("--bins", "number of bins (default: grows with the items)", type=int)
_TWO_LEVELS = _option(
    "--quantiles", "two levels of quantiles", type=float, nargs=2, default=[0.05, 0.95]
)
_CLUSTER = _option("--cluster", "column of clusters, whose items depend on each other")
_DATE = _option("--date", "column of dates, whose days are kept apart")
_BY = _option("--by", "also check by this column", action="append", default=[])
_PRIOR = (
    _option(
        "--prior",
        f"prior of theta (default: {_by_kind(lambda family: family.name.lower())})",
        choices=tuple(PRIORS),
    ),
    _switch("--exposure-term", f"theta also depends on log exposure ({_SIZES}); needs joint cells"),
    _switch("--monotone", "the mean curve never falls"),
    _switch("--bin-effects", "bins deviate from the curve"),
    _switch("--zero", "a share of theta is exactly 0"),
    _switch("--no-atoms", "scores shared by many items, such as a default, are like any other"),
    _switch("--pool-groups", "one pair of curves for all groups"),
    _option("--knots", "knots of each curve (default: 20)", type=int),
    _option(
        "--scale",
        "axis on which curves are smooth "
        f"(default: {_by_kind(lambda family: str(family.prior().mean.scale))})",
        choices=(*SCALES, RANK),
    ),
)


def _fit_and_items(items: str = _PATHS) -> tuple[_Option, ...]:
    """Options for a fit and items; the default columns are those of the fit."""
    return (
        _FIT,
        _option("items", items, nargs="+"),
        *_columns(*_KINDS, default=" (default: as in the fit)"),
        _groups("column of groups (default: as in a fit with groups)"),
    )


_SCORING = (  # items, and the output
    _option("--quantiles", "posterior quantiles", type=float, nargs="*", default=[0.05, 0.95]),
    _option(
        "--draws",
        "average over all draws of the curves, or over few quadrature points wherever these are "
        "within a thousandth of a posterior sd",
        default="auto",
        choices=DRAWS,
    ),
    _option("--out", "Parquet file to write, or a folder", required=True),
)


class _Command(NamedTuple):
    run: _Run
    example: str  # arguments after its name
    options: tuple[_Option, ...]


COMMANDS: dict[str, _Command] = {}


def _command(example: str, *options: _Option) -> Callable[[_Run], _Run]:
    """Register a function as the command of its name; its docstring is the help text."""

    def enter(run: _Run) -> _Run:
        COMMANDS[run.__name__.replace("_", "-")] = _Command(run, example, options)
        return run

    return enter


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and say why."""
        self.exit(2, f"soc-pymc: error: {message}; {self.prog} --help lists all options\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="soc-pymc",
        description="Second order calibration: honest posteriors from any model's point scores.",
    )
    parser.add_argument("--version", action="version", version=f"soc_pymc {soc.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    for name, (run, example, options) in COMMANDS.items():
        about, epilog = run.__doc__, f"example: soc-pymc {name} {example}"
        command = commands.add_parser(name, help=about, description=about, epilog=epilog)
        command.set_defaults(run=run)
        command.add_argument("--quiet", action="store_true", help="show no progress")
        groups: dict[str | None, Any] = {None: command}
        for flag, settings in options:
            group = settings.get("group")
            if group not in groups:
                groups[group] = command.add_argument_group(group)
            told = {key: value for key, value in settings.items() if key != "group"}
            groups[group].add_argument(flag, **told)
    return parser


# --- commands ------------------------------------------------------------------------------------


@_command(
    "'ads/*.parquet' --score t --count clicks --exposure impressions --out posteriors.parquet",
    _ITEMS,
    *_columns(*_KINDS),
    _groups("column of groups, each with its own curves"),
    _CLUSTER,
    _BINS,
    *_PRIOR,
    _option("--seed", "seed of the fit", type=int, default=0),
    *_SCORING,
    _option("--keep", "folder for the statistics and the fit"),
)
def run(chosen: _Chosen) -> None:
    """From items to their posteriors in one command."""
    from ..posterior.scored_files import is_folder

    items, progress = _items_of(chosen), False if chosen.quiet else None
    if not is_folder(chosen.out):
        _check_out(chosen.out, chosen.items)
    prior = prior_of(chosen, items.kind, items.group is not None)
    stats = soc.summarize(
        items, bins=chosen.bins, joint=reads_joint(prior) or "auto", progress=progress
    )
    result = soc.fit(stats, prior, soc.VI(seed=chosen.seed), progress=progress)
    if chosen.keep:
        folder = Path(chosen.keep)
        folder.mkdir(parents=True, exist_ok=True)
        stats.save(folder / "stats.nc")
        result.save(folder / "fit.nc")
    written = _score(chosen, result, items)
    print(f"{stats!r}\n{result!r}\nitem posteriors -> {written}")


@_command(
    "ads.parquet --score t --count clicks --exposure impressions --bins 200 --out stats.nc",
    _ITEMS,
    *_columns(*_KINDS),
    _groups("column of groups with separate statistics"),
    _option("--id", "column of whole numbers or text that determine an item's fold"),
    _option("--fold", "column of fold numbers"),
    _CLUSTER,
    _DATE,
    _option(
        "--folds",
        "number of folds (default: 10 if --id has whole numbers)",
        type=int,
    ),
    _switch("--joint", "keep joint cells beyond 64 MB too, for mixtures and exposure terms"),
    _option("--engine", "what reads them", default="duckdb", choices=("duckdb", "spark", "polars")),
    _BINS,
    _option(
        "--equal",
        "quantity that bins hold in equal amounts (default: items)",
        choices=("items", *(kind.observed for kind in _KINDS if kind.whole)),
    ),
    _option("--edges", "take the bins of these saved statistics"),
    _option("--out", "statistics file to write (netCDF)", required=True),
)
def summarize(chosen: _Chosen) -> None:
    """Sufficient statistics of items."""
    from ..data.tables.engines import on_engine

    options: dict[str, Any] = {
        "bins": chosen.bins,
        "equal": chosen.equal,
        "edges": soc.load_statistics(chosen.edges).edges if chosen.edges else None,
        "folds": chosen.folds,
        "joint": chosen.joint or "auto",
        "progress": False if chosen.quiet else None,
    }
    names = list(_items_of(chosen).roles.values())
    _check_out(chosen.out, chosen.items)
    with on_engine(chosen.engine, _source_of(chosen), names) as source:
        stats = soc.summarize(_items_of(chosen, source=source), **options)
    stats.save(chosen.out)
    print(f"{stats!r} -> {chosen.out}")


_FIVE_STEPS = "five steps"


@_command(
    "stats.nc --prior gamma-mixture --out fit.nc",
    _option("statistics", "statistics, from 'soc-pymc summarize'"),
    _option("--start", "a fit to start from, such as yesterday's"),
    _option("--window", "fit the last days alone, such as 28d (of statistics with --date)"),
    _option("--half-life", "weigh items by age, such as 14d (of statistics with --date)"),
    *_PRIOR,
    _option("--method", "inference", default="vi", choices=("vi", "nuts", "five-steps")),
    _option("--draws", "posterior draws kept (default: 1000)", type=int),
    _option("--seed", "seed of the fit (default: 0)", type=int),
    _option(
        "--no-smooth",
        "keep each bin's own estimate",
        group=_FIVE_STEPS,
        dest="smooth",
        action="store_false",
        default=None,
    ),
    _option(
        "--components",
        "components of a mixture (default: 100)",
        group=_FIVE_STEPS,
        type=int,
    ),
    _option("--moments", "moments that are smoothed", group=_FIVE_STEPS, choices=("log", "plain")),
    _option("--out", "fit file to write (netCDF)", required=True),
)
def fit(chosen: _Chosen) -> None:
    """Fit the hierarchical model to statistics."""
    method = method_of(chosen)
    _check_out(chosen.out, [chosen.statistics])
    start = soc.load_fit(chosen.start) if chosen.start else None
    stats = soc.load_statistics(chosen.statistics)
    stats = stats.window(chosen.window) if chosen.window else stats
    stats = stats.decay(chosen.half_life) if chosen.half_life else stats
    prior = prior_of(chosen, stats.kind, bool(stats.groups))
    if reads_joint(prior) and not stats.coarse:
        raise FitError(
            f"mixtures and --exposure-term read joint cells, which {chosen.statistics} lacks: make "
            "it with 'soc-pymc summarize ... --joint'"
        )
    result = soc.fit(stats, prior, method, start=start, progress=False if chosen.quiet else None)
    result.save(chosen.out)
    print(f"{result!r} -> {chosen.out}")


@_command(
    "fit.nc --group DE --out curves.csv",
    _FIT,
    _option(
        "--group",
        "group of the curves, of crossed groups a level of each (default: the shared curves)",
        action="append",
    ),
    _option("--exposure", f"exposure ({_SIZES}) of the curves (default: average)", type=float),
    _option("--prob", "probability of the bands", type=float, default=0.9),
    _option("--out", "CSV file to write", required=True),
)
def curves(chosen: _Chosen) -> None:
    """Calibration curves with bands, as CSV."""
    import xarray as xr

    from .._lib.files import replacing

    _check_out(chosen.out, [chosen.fit])
    of = soc.load_fit(chosen.fit)
    at = {"group": _level_of(chosen, of), "exposure": chosen.exposure}
    draws = soc.calibration_curves(of, **at)
    if of.atoms:
        own = soc.calibration_curves(of, of.atoms, **at)
        draws = xr.concat([draws, own], "score").sortby("score")
    found = {}
    for simultaneous, label in ((False, ""), (True, "_simultaneous")):
        banded = soc.bands(draws, prob=chosen.prob, simultaneous=simultaneous)
        for name in banded.data_vars:
            for bound in banded["bound"].to_numpy():
                if not (simultaneous and bound == "median"):
                    found[f"{name}_{bound}{label}"] = banded[name].sel(bound=bound).to_series()
    import pandas as pd

    table = pd.DataFrame(found).rename_axis("score").reset_index()
    with replacing(chosen.out) as temporary:
        table.to_csv(temporary, index=False)
    print(f"{len(table)} points of the curves with {chosen.prob:.0%} bands -> {chosen.out}")


@_command(
    "fit.nc ads.parquet --out posteriors.parquet",
    *_fit_and_items(),
    _switch("--score-only", "theta given the score alone, for items without outcomes"),
    *_SCORING,
)
def posteriors(chosen: _Chosen) -> None:
    """Posteriors of items, as Parquet; with --score-only of items that have no outcomes yet."""
    fit = soc.load_fit(chosen.fit)
    if chosen.group and not fit.groups:
        given = ",".join(chosen.group)
        raise FitError(f"--group {given}: {chosen.fit} has no groups, leave it out")
    try:
        written = _score(chosen, fit, _items_of(chosen, fit))
    except ItemsError as error:
        if chosen.score_only or not _lacks_outcomes(chosen, fit, str(error)):
            raise
        remedy = "or add --score-only for theta given the score alone"
        raise ItemsError(f"{error}\n{remedy}") from error
    print(f"item posteriors -> {written}")


def _lacks_outcomes(chosen: _Chosen, fit: "soc.Fit", text: str) -> bool:
    """Whether an error is of a table that has the score, but not the column of outcomes."""
    kind, names = _columns_of(chosen, fit)
    lacks = {role: f"column {name!r} is missing" in text for role, name in names.items()}
    return lacks[OUTCOMES[kind].observed] and not lacks["score"]


def _score(chosen: _Chosen, fit: "soc.Fit", items: "Items") -> Any:
    """Posteriors of items, written where the options say."""
    probs, progress = tuple(chosen.quantiles), False if chosen.quiet else None
    return soc.item_posteriors(
        fit, items, quantiles=probs, draws=chosen.draws, out=chosen.out, progress=progress
    )


@_command(
    "fit.nc --out prior.parquet",
    _FIT,
    _TWO_LEVELS,
    _option("--out", "file to write, *.parquet or *.json", required=True),
)
def export_prior(chosen: _Chosen) -> None:
    """The prior as a small file, to score items where requests are answered."""
    _check_out(chosen.out, [chosen.fit])
    fit = soc.load_fit(chosen.fit)
    print(f"prior -> {soc.export_prior(fit, chosen.out)}")


@_command(
    "fit.nc --table ads --dialect bigquery > posteriors.sql",
    _FIT,
    _option("--table", "name of the table of items", required=True),
    *_columns(*_KINDS, default=" (default: as in the fit)"),
    _groups("column of groups (default: as in the fit)"),
    _option("--columns", "other columns to keep", nargs="*", default=[]),
    _TWO_LEVELS,
    _option("--prior", "table with the file of 'export-prior' (default: numbers in the text)"),
    _option("--dialect", "SQL dialect, for example bigquery", default="duckdb"),
)
def sql(chosen: _Chosen) -> None:
    """Posterior of every item, as SQL for a warehouse."""
    roles = ("score", *(role for kind in _KINDS for role in (kind.observed, kind.size)))
    names = {role: getattr(chosen, role) for role in roles if getattr(chosen, role)}
    groups = list(_groups_of(chosen).values())
    print(
        soc.posterior_sql(
            soc.load_fit(chosen.fit),
            chosen.table,
            **names,
            group=groups or None,
            columns=chosen.columns,
            quantiles=tuple(chosen.quantiles),
            prior=chosen.prior,
            dialect=chosen.dialect,
        )
    )


@_command(
    "fit.nc ads.parquet --by device",
    *_fit_and_items(f"{_PATHS}; or statistics with joint cells (stats.nc)"),
    _CLUSTER,
    _BY,
)
def check(chosen: _Chosen) -> None:
    """Whether the fit describes the items."""
    fit = soc.load_fit(chosen.fit)
    data = _statistics_of(chosen) or _items_of(chosen, fit)
    print(soc.check(fit, data, by=tuple(chosen.by), progress=False if chosen.quiet else None))


def _statistics_of(chosen: _Chosen) -> Any:
    """The statistics that were given in place of items; None for items."""
    if not chosen.items[0].endswith(".nc"):
        return None
    if len(chosen.items) > 1:
        raise StatisticsError("give one file of statistics, or files of items")
    roles = ("score", *(role for kind in _KINDS for role in (kind.observed, kind.size)))
    given = [flag_of(role) for role in (*roles, "group", "by") if getattr(chosen, role)]
    if given:
        raise StatisticsError(
            f"{', '.join(given)}: statistics have no columns, leave these out or give the items"
        )
    return soc.load_statistics(chosen.items[0])


@_command(
    "fit.nc ads.parquet --by device --threshold 0.05 --out report.html",
    *_fit_and_items(),
    _option("--id", "column that identifies items in lists"),
    _BY,
    _option("--title", "title of the page"),
    _option("--threshold", "threshold of theta for counts and losses", type=float),
    _option("--seed", "seed of the sample and the checks", type=int, default=0),
    _option("--out", "HTML file to write", default="report.html"),
)
def report(chosen: _Chosen) -> None:
    """A report on a fit and its items, as one HTML page."""
    fit = soc.load_fit(chosen.fit)
    written = soc.report(
        fit,
        _items_of(chosen, fit),
        out=chosen.out,
        by=tuple(chosen.by),
        title=chosen.title,
        threshold=chosen.threshold,
        seed=chosen.seed,
        progress=False if chosen.quiet else None,
    )
    print(f"report -> {written}")


@_command(
    "stats.nc plain=fit.nc mixture=mixture.nc",
    _option("statistics", "statistics of the fits' items, with joint cells"),
    _option("fits", "two fits or more", nargs="+", metavar="NAME=fit.nc"),
)
def compare(chosen: _Chosen) -> None:
    """Leave-one-out comparison of fits."""
    pairs = [given.partition("=") for given in chosen.fits]
    odd = [name for name, equals, path in pairs if not (name and equals and path)]
    if odd:
        raise FitError(f"give fits as NAME=fit.nc, not {odd[0]!r}")
    names = [name for name, _, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise FitError(f"two fits are named {twice[0]!r}: each needs its own name")
    stats = soc.load_statistics(chosen.statistics)
    fits = {name: soc.load_fit(path) for name, _, path in pairs}
    table = soc.compare(fits, stats, progress=False if chosen.quiet else None)
    print(table.to_string(float_format="{:.4g}".format))


@_command(
    "stats.nc --out drift.csv",
    _option("statistics", "statistics with days, from 'soc-pymc summarize ... --date'"),
    _option("--fit", "the fit in use, from which days depart (default: one of all days)"),
    _option(
        "--false-alarms",
        "largest probability of any false alarm in 60 days",
        type=float,
        default=0.05,
    ),
    _option("--seed", "seed of the randomised PIT", type=int, default=0),
    _option("--out", "CSV file to write", required=True),
)
def drift(chosen: _Chosen) -> None:
    """What moved from day to day, and the days on which outcomes no longer fitted, as CSV."""
    from .._lib.files import replacing

    read = [chosen.statistics, *([chosen.fit] if chosen.fit else [])]
    _check_out(chosen.out, read)
    found = soc.drift(
        soc.load_statistics(chosen.statistics),
        soc.load_fit(chosen.fit) if chosen.fit else None,
        false_alarms=chosen.false_alarms,
        seed=chosen.seed,
        progress=False if chosen.quiet else None,
    )
    with replacing(chosen.out) as temporary:
        found.table.to_csv(temporary, index=False)
    print(f"{found!r} -> {chosen.out}")


@_command(
    "--out demo",
    _option("--out", "folder to write to", default="demo"),
    _option("--items", "number of items", type=int, default=1_000_000),
    _option("--seed", "seed of the simulation and the fit", type=int, default=0),
)
def demo(chosen: _Chosen) -> None:
    """The whole workflow on simulated click rates."""
    from .demo import run

    if chosen.items < 1000:
        raise FitError(f"--items {chosen.items}: the demo needs at least 1000")
    run(Path(chosen.out), items=chosen.items, seed=chosen.seed)


# --- from options to arguments -------------------------------------------------------------------


def _items_of(chosen: _Chosen, fit: "soc.Fit | None" = None, source: Any = None) -> "Items":
    """The items that the options describe; missing columns are taken from the fit."""
    from ..data.items import ITEMS

    kind, names = _columns_of(chosen, fit)
    items: Items = ITEMS[kind](_source_of(chosen) if source is None else source, **names)
    return items


def _source_of(chosen: _Chosen) -> Any:
    """One path or glob, or a list of them."""
    return chosen.items[0] if len(chosen.items) == 1 else chosen.items


def _columns_of(chosen: _Chosen, fit: "soc.Fit | None" = None) -> tuple[str, dict[str, Any]]:
    """The items' kind, and arguments that name columns; optional ones only if they are given.

    The default column of groups is that of a fit with groups; ids and folds have no default.
    """
    known = roles_of(fit.data.attrs) if fit is not None else {}
    if fit is None or not fit.groups:
        known = {role: column for role, column in known.items() if not is_group(role)}
    kind = _kind_of(chosen, known)
    roles = ["score", kind.observed, kind.size]
    if getattr(chosen, "score_only", False):
        if getattr(chosen, kind.observed):
            raise StatisticsError(f"--score-only reads no outcomes: leave out {flag_of(roles[1])}")
        roles.remove(kind.observed)
        if not (getattr(chosen, kind.size) or (fit and fit.prior.exposure)):
            roles.remove(kind.size)
    names = {role: getattr(chosen, role) or known.get(role, "") for role in roles}
    missing = [flag_of(role) for role, name in names.items() if not name]
    if missing:
        raise StatisticsError(f"say which columns to use: {', '.join(missing)}")
    more = {role: getattr(chosen, role, None) for role in ("id", "fold", "cluster", "date")}
    groups = _groups_of(chosen) or group_roles(known)
    return kind.kind, arguments_of(
        names | groups | {role: name for role, name in more.items() if name}
    )


def _groups_of(chosen: _Chosen) -> dict[str, str]:
    """Columns of groups by role: repeated options, or one with a list, unless it is a column."""
    given: list[str] = getattr(chosen, "group", None) or []
    if len(given) == 1 and "," in given[0]:
        from ..data.tables import column_names

        # SQL is written without a look at the items
        known = column_names(_source_of(chosen)) if hasattr(chosen, "items") else ()
        if given[0] not in known:
            given = [column.strip() for column in given[0].split(",")]
    return roles_of_groups(given) if given else {}


def _level_of(chosen: _Chosen, fit: "soc.Fit") -> Any:
    """A group of a fit: its label, or of crossed groups the tuple of its levels."""
    given: list[str] = chosen.group or []
    if len(fit.groupings) > 1 and len(given) == 1 and given[0] not in fit.groups:
        given = given[0].split(",")
    if not given:
        return None
    return tuple(given) if len(given) > 1 else given[0]


def _kind_of(chosen: _Chosen, known: dict[str, str]) -> Outcome:
    """The kind of items that the options describe."""
    flags = {kind: (flag_of(kind.observed), flag_of(kind.size)) for kind in _KINDS}
    given = [k for k in _KINDS if getattr(chosen, k.observed) or getattr(chosen, k.size)]
    given = given or [kind for kind in _KINDS if kind.observed in known]
    if not given:
        kinds = ["--score, " + ", ".join(both) for both in flags.values()]
        raise StatisticsError(f"say which columns to use: {', or '.join(kinds)}")
    if len(given) > 1:
        kinds = [" and ".join(both) for both in flags.values()]
        raise StatisticsError(f"items are of one kind: give {', or '.join(kinds)}")
    return given[0]


def _check_out(out: str, read: Sequence[str]) -> None:
    """Refuse an output that cannot be written or is an input, before the work starts."""
    from .._lib.files import check_target

    own = {os.path.realpath(path) for given in read for path in (given, *glob(given))}
    if os.path.realpath(out) in own:
        raise StatisticsError(f"--out {out} is a file that is read: give another name")
    check_target(out)


def method_of(chosen: _Chosen) -> "Method":
    """The chosen method; options of other methods are refused."""
    by_name = {"vi": soc.VI, "nuts": soc.NUTS, "five-steps": soc.FiveSteps}
    method: Any = by_name[chosen.method]
    names = ("seed", "draws", "components", "moments", "smooth")
    given = {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
    wrong = given.keys() - {field.name for field in fields(method)}
    if wrong:
        flags = [
            "--no-smooth" if name == "smooth" else f"--{name}" for name in given if name in wrong
        ]
        raise FitError(f"--method {chosen.method} does not take {', '.join(flags)}: leave it out")
    made: Method = method(**given)
    return made


def prior_of(chosen: _Chosen, kind: str, grouped: bool) -> Prior:
    """The prior that the options describe, for a kind of items with groups or without."""
    outcome = OUTCOMES[kind]
    suited = [name for name, p in PRIORS.items() if FAMILIES[p.family].outcome is outcome]
    name = chosen.prior or suited[0]
    if name not in suited:
        raise FitError(
            f"--prior {name} is not for {outcome.words.items}: use --prior "
            f"{' or --prior '.join(suited)}"
        )
    prior = PRIORS[name]()
    if chosen.pool_groups and not grouped:
        raise FitError("--pool-groups: these items have no groups, leave it out")
    curve = {"knots": chosen.knots, "scale": chosen.scale}
    curve = {field: value for field, value in curve.items() if value is not None}
    own: dict[str, Any] = {of: replace(getattr(prior, of), **curve) for of in ("mean", "variance")}
    own["exposure"] = Spline() if chosen.exposure_term else None
    own["monotone"], own["bin_effects"] = chosen.monotone, chosen.bin_effects
    own["groups"], own["zero"] = not chosen.pool_groups, chosen.zero
    own["atoms"] = not chosen.no_atoms
    return replace(prior, **own)
