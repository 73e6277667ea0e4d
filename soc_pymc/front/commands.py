"""The commands of `soc-pymc`, each a call of the function whose parameters its options name."""

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import soc_pymc as soc

from .._lib.errors import FitError, ItemsError
from .._lib.files import replacing
from ..families import FAMILIES, OUTCOMES
from ..families.family import Family
from ..families.scales import RANK, SCALES
from ..posterior.items import DRAWS, is_folder
from . import arguments
from .arguments import (
    AUTO,
    KINDS,
    PRIORS,
    Chosen,
    check_out,
    flag_of,
    items_of,
    prior_of,
)

Run = Callable[[Chosen], None]
Option = tuple[str, dict[str, Any]]  # a name, and settings for argparse


def _option(name: str, text: str, **settings: Any) -> Option:
    return name, {"help": text, **settings}


def _switch(name: str, text: str, **settings: Any) -> Option:
    return _option(name, text, **{"action": "store_true", **settings})


def _by_kind(text: Callable[[Family], str]) -> str:
    """A default of every family: "gamma for counts, normal for values"."""
    return ", ".join(
        f"{text(f)} for {f.outcome.words.outcomes}" for f in FAMILIES.values()
    )


_LISTING = "{} --help lists all options"
_PATHS = "Parquet or CSV files, or a glob"
_ITEMS = _option("items", _PATHS, nargs="+")
_FIT = _option("fit", "a fit, from 'soc-pymc fit'")
_NAMES = (
    _option("--score", "column of the scores (default: as in the fit, where one is read)"),
    *(
        _option(flag_of(role), f"column of the {words}")
        for kind in KINDS
        for role, words in ((kind.observed, kind.words.outcomes), (kind.size, kind.words.sizes))
    ),
    _option("--group", "column of groups (default: as in a fit with groups); of several: "
            "--group country --group device", action="append"),
)  # fmt: skip
_NO_SCORE = _switch("--no-score", "items have no score: fit one level and one spread")
_COLUMNS = (*_NAMES, _NO_SCORE)
_BINS = _option("--bins", "number of bins (default: grows with the items)", type=int)
_ID = _option("--id", "column of whole numbers or text that identify an item")
_CLUSTER = _option("--cluster", "column of clusters, whose items depend on each other")
_JOINT = _switch(
    "--joint", "keep joint cells beyond 64 MB too, for mixtures and exposure terms"
)
_BY = _option("--by", "also check by this column", action="append", default=[])
_SEED = _option("--seed", "seed of random numbers (default: 0)", type=int)
_PRIOR = (
    _option("--prior", f"prior of theta (default: {_by_kind(lambda f: f.name.lower())}; of "
            "'soc-pymc run' auto, the simplest that predicts well, unless options of one prior are "
            "used)", choices=(AUTO, *PRIORS)),
    _switch("--exposure-term", "theta also depends on log exposure (noise sd, trials)"),
    _switch("--monotone", "the mean curve never falls"),
    _switch("--bin-effects", "bins deviate from the curve"),
    _switch("--zero", "a share of theta is exactly 0"),
    _switch("--no-atoms", "scores that many items share are like any other", dest="atoms",
            action="store_false"),
    _switch("--pool-groups", "one pair of curves for all groups", dest="groups",
            action="store_false"),
    _option("--knots", "knots of each curve (default: 20)", type=int),
    _option("--scale", "axis on which curves are smooth (default: "
            f"{_by_kind(lambda family: str(family.prior().mean.scale))})", choices=(*SCALES, RANK)),
)  # fmt: skip
_SCORING = (
    _option("--quantiles", "posterior quantiles (default: 0.05 0.95)", type=float, nargs="*"),
    _option("--draws", "average over all draws of the curves, or over few quadrature points "
            "wherever these are accurate", choices=DRAWS),
    _option("--out", "Parquet file to write, or a folder", required=True),
)  # fmt: skip


# functions, arguments of an example, and options by name
COMMANDS: dict[str, tuple[Run, str, tuple[Option, ...]]] = {}


def _command(example: str, *options: Option) -> Callable[[Run], Run]:
    """Register a function as the command of its name; its docstring is the help text."""

    def enter(run: Run) -> Run:
        COMMANDS[run.__name__.replace("_", "-")] = run, example, options
        return run

    return enter


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and one line that says why, and where all options are listed."""
        command = self.prog if " " in self.prog else f"{self.prog} run"
        self.exit(2, f"soc-pymc: error: {message}; {_LISTING.format(command)}\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="soc-pymc",
        description="Second order calibration: honest posteriors from any model's point scores.",
    )
    parser.add_argument(
        "--version", action="version", version=f"soc_pymc {soc.__version__}"
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    for name, (run, example, options) in COMMANDS.items():
        about = run.__doc__
        epilog = f"example: soc-pymc {name} {example}"
        command = commands.add_parser(
            name, help=about, description=about, epilog=epilog
        )
        listing = _LISTING.format(f"soc-pymc {name}")
        command.set_defaults(run=run, listing=listing, refuse=command.error)
        command.add_argument("--quiet", action="store_const", const=False, dest="progress",
                             help="show no progress")  # fmt: skip
        for flag, settings in options:
            command.add_argument(flag, **settings)
    return parser


def _call(
    function: Callable[..., Any], chosen: Chosen, *values: Any, **options: Any
) -> Any:
    """Call a function with the options that have the names of its parameters."""
    names = list(inspect.signature(function).parameters)[len(values) :]
    selected = {name: getattr(chosen, name, None) for name in names}
    selected = {name: value for name, value in selected.items() if value is not None}
    return function(*values, **(selected | options))


def _write_csv(table: Any, out: str) -> None:
    with replacing(out) as temporary:
        table.to_csv(temporary, index=False)


@_command(
    "'ads/*.parquet' --score t --count clicks --exposure impressions --out posteriors.parquet",
    _ITEMS, *_COLUMNS, _ID, _CLUSTER, _BINS, _JOINT, *_PRIOR, _SEED, *_SCORING,
    _option("--keep", "folder for the statistics and the fit"),
)  # fmt: skip
def run(chosen: Chosen) -> None:
    """Fit items, check the fit and write their posteriors in one command."""
    items = items_of(chosen)
    if not is_folder(chosen.out):
        check_out(chosen.out, chosen.items)
    prior = prior_of(chosen, items.kind, items.group is not None, default=AUTO)
    joint = chosen.joint or (prior != AUTO and prior.reads_joint) or "auto"
    stats = _call(soc.summarize, chosen, items, joint=joint)
    fitted = _call(soc.fit, chosen, stats, prior, soc.VI(seed=chosen.seed or 0))
    if chosen.keep:
        folder = Path(chosen.keep)
        folder.mkdir(parents=True, exist_ok=True)
        stats.save(folder / "stats.nc")
        fitted.save(folder / "fit.nc")
    written = _call(soc.item_posteriors, chosen, fitted, items)
    print(f"{stats!r}\n{fitted!r}\nitem posteriors -> {written}")
    if fitted.mean_only:  # labels do not show what a check would test
        return
    result = _call(soc.check, chosen, fitted, stats if stats.has_joint else items)
    print("\n".join([result.title, *result.advice[:1]]))


@_command(
    "ads.parquet --score t --count clicks --exposure impressions --bins 200 --out stats.nc",
    _ITEMS, *_COLUMNS, _ID, _CLUSTER, _BINS,
    _option("--fold", "column of fold numbers"),
    _option("--date", "column of dates, whose days are kept apart"),
    _option("--folds", "number of folds (default: 10 if --id has whole numbers)", type=int),
    _JOINT,
    _option("--edges", "take the bins of these saved statistics"),
    _option("--out", "statistics file to write (netCDF)", required=True),
)  # fmt: skip
def summarize(chosen: Chosen) -> None:
    """Sufficient statistics of items."""
    options: dict[str, Any] = {"joint": chosen.joint or "auto"}
    options["edges"] = soc.load_statistics(chosen.edges).edges if chosen.edges else None
    check_out(chosen.out, chosen.items)
    stats = _call(soc.summarize, chosen, items_of(chosen), **options)
    stats.save(chosen.out)
    print(f"{stats!r} -> {chosen.out}")


@_command(
    "stats.nc --prior gamma-mixture --out fit.nc",
    _option("statistics", "statistics, from 'soc-pymc summarize'"),
    _option(
        "--window", "fit the last days alone, such as 28d (of statistics with --date)"
    ),
    _option(
        "--half-life", "weigh items by age, such as 14d (of statistics with --date)"
    ),
    *_PRIOR,
    _option(
        "--method", "inference", default="vi", choices=("vi", "nuts", "five-steps")
    ),
    _option("--draws", "posterior draws kept (default: 1000)", type=int),
    _SEED,
    _option("--out", "fit file to write (netCDF)", required=True),
)
def fit(chosen: Chosen) -> None:
    """Fit the hierarchical model to statistics."""
    method = arguments.method_of(chosen)
    check_out(chosen.out, [chosen.statistics])
    stats = soc.load_statistics(chosen.statistics)
    stats = stats.window(chosen.window) if chosen.window else stats
    stats = stats.decay(chosen.half_life) if chosen.half_life else stats
    prior = prior_of(chosen, stats.kind, bool(stats.groups))
    if prior != AUTO and prior.reads_joint and not stats.has_joint:
        raise FitError(
            f"mixtures and --exposure-term read joint cells, which {chosen.statistics} lacks: make "
            "it with 'soc-pymc summarize ... --joint'"
        )
    fitted = _call(soc.fit, chosen, stats, prior, method)
    fitted.save(chosen.out)
    print(f"{fitted!r} -> {chosen.out}")


@_command(
    "fit.nc --group DE --out curves.csv",
    _FIT,
    _option("--group", "group of the curves, of crossed groups a level of each (default: shared)",
            action="append"),
    _option("--exposure", "exposure (noise sd, trials) of the curves (default: average)",
            type=float),
    _option("--prob", "probability of the bands", type=float, default=0.9),
    _option("--out", "CSV file to write", required=True),
)  # fmt: skip
def curves(chosen: Chosen) -> None:
    """Calibration curves with bands, as CSV."""
    import pandas as pd
    import xarray as xr

    check_out(chosen.out, [chosen.fit])
    fitted = soc.load_fit(chosen.fit)
    levels = chosen.group or [None]
    group = tuple(levels) if len(levels) > 1 else levels[0]
    options = {"group": group, "exposure": chosen.exposure}
    draws = soc.calibration_curves(fitted, **options)
    if fitted.atoms:
        at_atoms = soc.calibration_curves(fitted, fitted.atoms, **options)
        draws = xr.concat([draws, at_atoms], "score").sortby("score")
    columns = {}
    for simultaneous, label in ((False, ""), (True, "_simultaneous")):
        banded = soc.bands(draws, prob=chosen.prob, simultaneous=simultaneous)
        for name, curve in banded.data_vars.items():
            for bound in (
                ("lower", "upper") if simultaneous else banded["bound"].to_numpy()
            ):
                columns[f"{name}_{bound}{label}"] = curve.sel(bound=bound).to_series()
    table = pd.DataFrame(columns).rename_axis("score").reset_index()
    _write_csv(table, chosen.out)
    print(
        f"{len(table)} points of the curves with {chosen.prob:.0%} bands -> {chosen.out}"
    )


@_command(
    "fit.nc ads.parquet --out posteriors.parquet",
    _FIT, _ITEMS, *_COLUMNS,
    _switch("--score-only", "theta given the score alone, for items without outcomes"),
    *_SCORING,
)  # fmt: skip
def posteriors(chosen: Chosen) -> None:
    """Posteriors of items, as Parquet; with --score-only of items that have no outcomes yet."""
    fitted = soc.load_fit(chosen.fit)
    if chosen.group and not fitted.groups:
        columns = ",".join(chosen.group)
        raise FitError(f"--group {columns}: {chosen.fit} has no groups, leave it out")
    items = items_of(chosen, fitted)
    try:
        print(f"item posteriors -> {_call(soc.item_posteriors, chosen, fitted, items)}")
    except ItemsError as error:
        name = items.roles.get(OUTCOMES[items.kind].observed)
        if f"column {name!r} is missing" not in str(error):
            raise
        raise ItemsError(
            f"{error}\nor add --score-only for theta given the score alone"
        ) from error


@_command(
    "fit.nc --out prior.parquet",
    _FIT,
    _option("--out", "file to write, *.parquet or *.json", required=True),
)
def export_prior(chosen: Chosen) -> None:
    """The prior as a small file, to score items where requests are answered."""
    check_out(chosen.out, [chosen.fit])
    print(f"prior -> {soc.export_prior(soc.load_fit(chosen.fit), chosen.out)}")


@_command(
    "fit.nc --table ads --dialect bigquery > posteriors.sql",
    _FIT,
    _option("--table", "name of the table of items", required=True),
    *_NAMES,
    _option("--columns", "other columns to keep", nargs="*"),
    _option("--quantiles", "two levels (default: 0.05 0.95)", type=float, nargs=2),
    _option(
        "--prior",
        "table with the file of 'export-prior' (default: numbers in the text)",
    ),
    _option("--dialect", "SQL dialect, for example bigquery (default: duckdb)"),
)
def sql(chosen: Chosen) -> None:
    """Posterior of every item, as SQL for a warehouse."""
    groups = list(arguments.groups_of(chosen).values()) or None
    fitted = soc.load_fit(chosen.fit)
    print(_call(soc.posterior_sql, chosen, fitted, chosen.table, group=groups))


@_command(
    "fit.nc ads.parquet --by device",
    _FIT, _option("items", f"{_PATHS}; or statistics with joint cells (stats.nc)", nargs="+"),
    *_COLUMNS, _CLUSTER, _BY,
)  # fmt: skip
def check(chosen: Chosen) -> None:
    """Check whether the fit describes the items."""
    fitted = soc.load_fit(chosen.fit)
    data = arguments.statistics_of(chosen) or items_of(chosen, fitted)
    print(_call(soc.check, chosen, fitted, data))


@_command(
    "fit.nc ads.parquet --by device --threshold 0.05 --out report.html",
    _FIT, _ITEMS, *_COLUMNS, _ID, _BY, _SEED,
    _option("--title", "title of the page"),
    _option("--threshold", "threshold of theta for counts and lists", type=float),
    _option("--out", "HTML file to write", default="report.html"),
)  # fmt: skip
def report(chosen: Chosen) -> None:
    """A report on a fit and its items, as one HTML page."""
    fitted = soc.load_fit(chosen.fit)
    print(f"report -> {_call(soc.report, chosen, fitted, items_of(chosen, fitted))}")


@_command(
    "stats.nc plain=fit.nc mixture=mixture.nc",
    _option("statistics", "statistics of the fits' items, with joint cells"),
    _option("fits", "two fits or more", nargs="+", metavar="NAME=fit.nc"),
)
def compare(chosen: Chosen) -> None:
    """Leave-one-out comparison of fits."""
    pairs = [text.partition("=")[::2] for text in chosen.fits]
    odd = [name for name, path in pairs if not (name and path)]
    if odd:
        raise FitError(f"give fits as NAME=fit.nc, not {odd[0]!r}")
    if len(dict(pairs)) < len(pairs):
        raise FitError(
            f"two of the fits have one name: {', '.join(repr(n) for n, _ in pairs)}"
        )
    fits = {name: soc.load_fit(path) for name, path in pairs}
    table = _call(soc.compare, chosen, fits, soc.load_statistics(chosen.statistics))
    print(table.to_string(float_format="{:.4g}".format))


@_command(
    "stats.nc --out drift.csv",
    _option("statistics", "statistics with days, from 'soc-pymc summarize ... --date'"),
    _option("--fit", "the fit in use, from which days depart (default: one of all days)"),
    _SEED,
    _option("--out", "CSV file to write", required=True),
)  # fmt: skip
def drift(chosen: Chosen) -> None:
    """Print what moved from day to day, and the days that the fit no longer describes, as CSV."""
    check_out(chosen.out, [chosen.statistics, *([chosen.fit] if chosen.fit else [])])
    stats = soc.load_statistics(chosen.statistics)
    result = _call(
        soc.drift, chosen, stats, soc.load_fit(chosen.fit) if chosen.fit else None
    )
    _write_csv(result.table, chosen.out)
    print(f"{result!r} -> {chosen.out}")


@_command(
    "--out demo",
    _option("--out", "folder to write to", default="demo"),
    _option("--items", "number of items", type=int, default=200_000),
    _SEED,
)
def demo(chosen: Chosen) -> None:
    """The whole workflow on simulated click rates."""
    from .demo import run

    if chosen.items < 1000:
        raise FitError(f"--items {chosen.items}: the demo needs at least 1000")
    run(Path(chosen.out), chosen.items, chosen.seed or 0, chosen.progress)
