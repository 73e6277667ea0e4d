"""The commands of `soc-pymc`, each a call of the function whose parameters its options name."""

import argparse
import inspect
import logging
import platform
import re
import sys
from argparse import Namespace as Chosen
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import xarray as xr

import soc_pymc as soc

from .._lib.arguments import FitError, ItemsError
from .._lib.files import check_target, replacing
from .._lib.reprs import lines, number, of_statistics
from .._lib.work import showing, with_progress
from .._model.rows import rows_of
from ..checks._check import check_sample
from ..data.sources import column_names
from ..families.scales import RANK, SCALES
from ..fits import fit_rows
from ..posterior.item_columns import refuse_weighted
from ..posterior.scoring import is_folder
from . import arguments
from .arguments import (
    AUTO,
    OUTCOME_ROLES,
    PRIORS,
    Option,
    check_out,
    items_of,
    option,
    options_of,
    options_of_items,
    prior_of,
    word,
)

Run = Callable[[Chosen], None]

_log = logging.getLogger(__name__)

_LISTING = "{} --help-all lists all options"
_COMMAND_LISTING = "soc-pymc --help lists all commands"
# options that --help leaves out, so that it fits a screen
_RARE = {
    "average",
    *("id", "fold", "cluster", "date", "weight", "truncated", "noise_df"),
    *("shape", "squares"),
    *("equal", "folds", "joint", "on_leakage", "bin_effects", "groups", "atoms"),
    *("zero", "knots", "scale", "draws"),
}
_ITEMS = word("items", "Parquet or CSV files, or a glob", nargs="+")
_FIT = word(
    "fit", "A fit, from 'soc-pymc fit', whose columns are used where none are named"
)
_STATISTICS = word("statistics", "Statistics, from 'soc-pymc summarize'")
_COLUMNS = (
    options_of_items(),
    word("--no-score", "Fit one level to items without a score", action="store_true"),
)
_SUMS = options_of("summarize", joint={"action": "store_true"})
_PRIOR = (
    option(
        "fit.prior",
        choices=(AUTO, *PRIORS),
        metavar="PRIOR",
        help=f"One of {', '.join((AUTO, *PRIORS))}",
    ),
    options_of(
        "Gamma",
        exposure={"flag": "--exposure-term", "dest": "term", "action": "store_true"},
        atoms={"help": "Treat scores that many items share as any other"},
        groups={"flag": "--pool-groups", "help": "Fit one pair of curves for all"},
    ),
    "Spline.knots",
    option(
        "Spline.scale",
        choices=(*SCALES, RANK),
        help="Axis on which the curves are smooth",
    ),
    "VI.seed",
)
_SCORING = options_of(
    "item_posteriors", out={"required": True}, quantiles={"metavar": "Q"}
)


_CLICKS: dict[str, Any] = {"score": "score", "count": "count", "exposure": "exposure"}

# functions, arguments of an example, and options
COMMANDS: dict[str, tuple[Run, str, Sequence[Option | str]]] = {}


def _out(text: str) -> Option:
    return word("--out", text, required=True)


def _command(example: str, options: Sequence[Option | str]) -> Callable[[Run], Run]:
    """Register a function as the command of its name; its docstring is the help text."""

    def enter(run: Run) -> Run:
        COMMANDS[run.__name__.replace("_", "-")] = run, example, options
        return run

    return enter


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        """Return the help with a short usage line."""
        needed = [a for a in self._actions if a.required and a.dest != "command"]
        words = [
            " ".join([*a.option_strings[-1:], f"{a.metavar or a.dest.upper()}"])
            + " ..." * (a.nargs == "+")
            for a in sorted(needed, key=lambda a: not a.option_strings)
        ]
        if " " in self.prog:
            self.usage = " ".join([self.prog, "[options]", *words])
        return super().format_help()

    def format_common_help(self) -> str:
        """Return the help without the options that are rarely needed."""
        for action in self._actions:
            if action.dest in _RARE:
                action.help = argparse.SUPPRESS
        return self.format_help()

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and one line that says why, and where all options are listed."""
        of_command = " " in self.prog
        listing = _LISTING.format(self.prog) if of_command else _COMMAND_LISTING
        self.exit(2, f"soc-pymc: error: {message}; {listing}\n")


class _Show(argparse.Action):
    """Prints the text that a function, the action's `const`, makes of the parser."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, **settings: Any
    ) -> None:
        settings |= {"nargs": 0, "default": argparse.SUPPRESS}
        super().__init__(option_strings, dest, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(self.const(parser).rstrip(), flush=True)
        parser.exit()


def _versions(_: argparse.ArgumentParser) -> str:
    """Return what a report of a fault should name: this version, Python and requirements."""
    system = f"Python {platform.python_version()}, {platform.platform()}"
    requirements = metadata.requires("soc_pymc") or []
    names = [re.split(r"[^\w.-]", x)[0] for x in requirements if "extra ==" not in x]
    versions = [f"{name} {metadata.version(name)}" for name in sorted(names)]
    return "\n".join([f"soc_pymc {soc.__version__}", system, *versions])


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; with the options of one alone, it imports no more."""
    about = "Second order calibration: honest posteriors from any model's point scores."
    parser = _Parser(prog="soc-pymc", description=about)
    text = "Show the versions that a report of a fault should name"
    parser.add_argument("--version", action=_Show, const=_versions, help=text)
    commands = parser.add_subparsers(metavar="command", required=True)
    quiet = word(
        "--quiet",
        "Show no progress",
        action="store_const",
        const=False,
        dest="progress",
    )
    for name, (run, example, options) in COMMANDS.items():
        about = str(run.__doc__)
        epilog = f"example: soc-pymc {name} {example}"
        command = commands.add_parser(
            name,
            help=about,
            description=about,
            epilog=epilog,
            add_help=False,
            formatter_class=partial(argparse.HelpFormatter, max_help_position=26),
        )
        listing = _LISTING.format(f"soc-pymc {name}")
        command.set_defaults(run=run, listing=listing, refuse=command.error)
        common = _Parser.format_common_help
        text = "Show the usual options"
        command.add_argument("-h", "--help", action=_Show, const=common, help=text)
        command.add_argument("--help-all", action="help", help="Show all options")
        if only in (None, name):
            _add([quiet, *options], command)
    return parser


def _add(options: Sequence[Option | str], parser: argparse.ArgumentParser) -> None:
    for add in options:
        (option(add) if isinstance(add, str) else add)(parser)


def in_options(text: str, command: str) -> str:
    """A message with options of this command, or else of three others, for Python's arguments."""
    actions: dict[str, argparse.Action] = {}
    # those of all commands would import more than a message is worth
    for name in ("check", "fit", "summarize", command):
        parser = _Parser()
        _add(COMMANDS[name][2], parser)
        actions |= {x.dest: x for x in parser._actions if x.option_strings}
    return arguments.in_options(text, actions, COMMANDS)


def _call(
    function: Callable[..., Any], chosen: Chosen, *values: Any, **options: Any
) -> Any:
    """Call a function with the options that have the names of its parameters."""
    names = list(inspect.signature(function).parameters)[len(values) :]
    selected = {name: getattr(chosen, name, None) for name in names}
    selected = {name: value for name, value in selected.items() if value is not None}
    return function(*values, **(selected | options))


class _Teller(logging.Handler):
    """Prints what is logged as lines on standard error, above a bar that is there."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"soc-pymc: {record.getMessage()}", file=sys.stderr)


def _telling(run: Run) -> Run:
    """Decorate a command that says what it does while it works, unless it is to be quiet."""

    @wraps(run)
    def call(chosen: Chosen) -> None:
        package = logging.getLogger(soc.__name__)
        level = package.level
        teller = _Teller()
        if chosen.progress is not False:
            package.addHandler(teller)
            package.setLevel(logging.INFO)
        try:
            run(chosen)
        finally:
            package.removeHandler(teller)
            package.setLevel(level)

    return call


def _write(result: soc.Statistics | soc.Fit, out: str) -> None:
    result.save(out)
    print(f"{result!r} -> {out}")


def _write_csv(table: pd.DataFrame, out: str) -> None:
    with replacing(out) as temporary:
        table.to_csv(temporary, index=False)


@_command(
    "'ads/*.parquet' --score t --count clicks --exposure impressions --out posteriors.parquet",
    [
        _ITEMS,
        *_COLUMNS,
        _SUMS,
        *_PRIOR,
        _SCORING,
        word(
            "--keep", "Folder for the statistics, the fit and a picture of its curves"
        ),
        word("--page", "HTML file for a report on fit, check and items"),
    ],
)
@_telling
def run(chosen: Chosen) -> None:
    """Fit items, check the fit and write their posteriors in one command."""
    items = items_of(chosen)
    if not is_folder(chosen.out):
        check_out(chosen)
        _check_name("out", chosen.out, ".parquet", ".pq")
    if chosen.page:
        check_target(chosen.page)
        _check_name("page", chosen.page, ".html", ".htm")
        refuse_weighted(items)
    if chosen.keep and Path(chosen.keep).is_file():
        raise FitError(f"--keep {chosen.keep} is a file: name a folder")
    prior = prior_of(chosen, items.kind, items.group is not None, default=AUTO)
    joint = chosen.joint or (prior != AUTO and prior.reads_joint) or "auto"
    _log.info("reading %r", items)
    stats = _call(soc.summarize, chosen, items, joint=joint)
    if not rows_of(stats, stats.family, most_bins=1)[1].informs_variance:
        raise FitError(
            f"every item has one trial (--trials {items.roles['trials']}): such labels show the "
            "mean of theta at a score but not its spread, so items have no posteriors and 'run' "
            "cannot write them; use 'soc-pymc summarize', 'fit' and 'curves' for the calibration "
            "curve"
        )
    fitted = _call(soc.fit, chosen, stats, prior, soc.VI(seed=chosen.seed or 0))
    files = [_call(soc.item_posteriors, chosen, fitted, items)]
    _log.info("checking the fit")
    with showing(chosen.progress):
        result = check_sample(fitted, items, made_fit=True)
    if chosen.keep:
        files += _kept(Path(chosen.keep), stats, fitted)
    if chosen.page:
        # which loads matplotlib
        from .._report import write_page

        _log.info("writing the page")
        scored = None if is_folder(chosen.out) else files[0]
        options = {"out": chosen.page}
        with showing(chosen.progress):
            page = write_page(fitted, items, stats, result, options, scored)
        files.append(page)
    print(_summary(stats, fitted, result, files))


def _check_name(option: str, path: str, *endings: str) -> None:
    """Refuse a file that the work would end in refusing."""
    if not path.lower().endswith(endings):
        raise FitError(f"--{option} {path} must be named *{endings[0]}")


def _kept(folder: Path, stats: soc.Statistics, fitted: soc.Fit) -> list[Path]:
    """Write statistics, fit and a picture to a folder, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / name for name in ("stats.nc", "fit.nc", "curves.png")]
    stats.save(files[0])
    fitted.save(files[1])
    figure = soc.plots.plot_curves(fitted)[0].figure
    with replacing(files[2]) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    return files


def _summary(
    stats: soc.Statistics, fitted: soc.Fit, result: Any, files: Sequence[Any]
) -> str:
    """Return what a run found, its verdict, what to do next and its files, in about ten lines."""
    known = dict([*of_statistics(stats), *fit_rows(fitted)])
    names = (
        "items",
        "outcomes",
        "scores",
        "groups",
        "weights",
        "prior",
        "chosen",
        "spread",
    )
    rows = [(name, known[name]) for name in names if name in known]
    summary = fitted.summary()
    for quantity in summary["quantity"].unique()[:2]:
        points = summary[summary["quantity"] == quantity]
        ends = points.iloc[[0, -1]] if len(points) > 1 else points
        texts = [
            f"{number(row.median)} ({number(row.lower)} to {number(row.upper)})"
            + (f" at the score {number(row.score)}" if len(points) > 1 else "")
            for row in ends.itertuples()
        ]
        rows.append((quantity, ", ".join(texts)))
    state = "converged" if fitted.status.converged else "did NOT converge"
    rows.append(("fit", f"{state}: {fitted.status.reason}"))
    rows.append(("check", result.title.removeprefix("check: ")))
    rows += [("next", in_options(sentence, "run")) for sentence in result.advice[:1]]
    rows.append(("files", ", ".join(map(str, files))))
    return lines("", rows)[1:]


@_command(
    "ads.parquet --score t --count clicks --exposure impressions --bins 200 --out stats.nc",
    [
        _ITEMS,
        *_COLUMNS,
        _SUMS,
        word("--edges", "Take the bins of these saved statistics"),
        _out("Statistics file to write (netCDF)"),
    ],
)
def summarize(chosen: Chosen) -> None:
    """Sufficient statistics of items."""
    joint = chosen.joint or "auto"
    edges = soc.load_statistics(chosen.edges).edges if chosen.edges else None
    check_out(chosen)
    stats = _call(soc.summarize, chosen, items_of(chosen), joint=joint, edges=edges)
    _write(stats, chosen.out)


@_command(
    "stats.nc --prior gamma-mixture --out fit.nc",
    [
        _STATISTICS,
        word(
            "--window",
            "Fit the last days alone, such as 28d (of statistics with --date)",
        ),
        word(
            "--half-life", "Weigh items by age, such as 14d (of statistics with --date)"
        ),
        *_PRIOR,
        option("fit.method", default="vi", choices=arguments.METHODS),
        "VI.draws",
        _out("Fit file to write (netCDF)"),
    ],
)
def fit(chosen: Chosen) -> None:
    """Fit the hierarchical model to statistics."""
    method = arguments.method_of(chosen)
    check_out(chosen)
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
    _write(fitted, chosen.out)


@_command(
    "fit.nc --group DE --out curves.csv",
    [
        _FIT,
        option("calibration_curves.group", action="append"),
        option("calibration_curves.exposure", type=float),
        option("bands.prob", default=0.9),
        _out("CSV file to write"),
    ],
)
def curves(chosen: Chosen) -> None:
    """Calibration curves with bands, as CSV."""
    check_out(chosen)
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
        bounds = ("lower", "upper") if simultaneous else banded["bound"].to_numpy()
        for name, curve in banded.data_vars.items():
            for bound in bounds:
                columns[f"{name}_{bound}{label}"] = curve.sel(bound=bound).to_series()
    table = pd.DataFrame(columns).rename_axis("score").reset_index()
    _write_csv(table, chosen.out)
    print(
        f"{len(table)} points of the curves with {chosen.prob:.0%} bands -> {chosen.out}"
    )


@_command(
    "fit.nc ads.parquet --out posteriors.parquet",
    [
        _FIT,
        _ITEMS,
        *_COLUMNS,
        word(
            "--score-only",
            "Theta given the score alone, for items without outcomes",
            action="store_true",
        ),
        _SCORING,
    ],
)
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
        outcome = items.roles.get(items.outcome.observed)
        if outcome is None or outcome in column_names(items.source):
            raise
        raise ItemsError(
            f"{error}\nor add --score-only for theta given the score alone"
        ) from error


@_command(
    "fit.nc --out prior.parquet",
    [_FIT, _out("File to write, *.parquet or *.json")],
)
def export_prior(chosen: Chosen) -> None:
    """The prior as a small file, to score items where requests are answered."""
    check_out(chosen)
    print(f"prior -> {soc.export_prior(soc.load_fit(chosen.fit), chosen.out)}")


@_command(
    "fit.nc --table ads --dialect bigquery > posteriors.sql",
    [
        _FIT,
        options_of("posterior_sql", quantiles={"nargs": 2}),
        options_of_items(*OUTCOME_ROLES),
    ],
)
def sql(chosen: Chosen) -> None:
    """Posterior of every item, as SQL for a warehouse."""
    groups = list(arguments.groups_of(chosen).values()) or None
    fitted = soc.load_fit(chosen.fit)
    roles = {role: getattr(chosen, role) for role in OUTCOME_ROLES}
    print(_call(soc.posterior_sql, chosen, fitted, chosen.table, group=groups, **roles))


@_command(
    "fit.nc ads.parquet --by device",
    [_FIT, _ITEMS, *_COLUMNS, options_of("check")],
)
def check(chosen: Chosen) -> None:
    """Check whether the fit describes the items."""
    fitted = soc.load_fit(chosen.fit)
    data = arguments.given_statistics(chosen) or items_of(chosen, fitted)
    print(_call(soc.check, chosen, fitted, data))


@_command(
    "fit.nc ads.parquet --by device --threshold 0.05 --out report.html",
    [_FIT, _ITEMS, *_COLUMNS, options_of("report")],
)
def report(chosen: Chosen) -> None:
    """A report on a fit and its items, as one HTML page."""
    fitted = soc.load_fit(chosen.fit)
    print(f"report -> {_call(soc.report, chosen, fitted, items_of(chosen, fitted))}")


@_command(
    "stats.nc plain=fit.nc mixture=mixture.nc",
    [_STATISTICS, word("fits", "Two fits or more", nargs="+", metavar="NAME=fit.nc")],
)
def compare(chosen: Chosen) -> None:
    """Leave-one-out comparison of fits."""
    pairs = [text.partition("=")[::2] for text in chosen.fits]
    if unnamed := [name for name, path in pairs if not (name and path)]:
        raise FitError(f"give fits as NAME=fit.nc, not {unnamed[0]!r}")
    if len(dict(pairs)) < len(pairs):
        names = ", ".join(repr(name) for name, _ in pairs)
        raise FitError(f"two of the fits have one name: {names}")
    fits = {name: soc.load_fit(path) for name, path in pairs}
    table = _call(soc.compare, chosen, fits, soc.load_statistics(chosen.statistics))
    print(table)


@_command(
    "stats.nc --out drift.csv",
    [_STATISTICS, "drift.fit", options_of("drift"), _out("CSV file to write")],
)
def drift(chosen: Chosen) -> None:
    """Print what moved from day to day, and the days that the fit no longer describes, as CSV."""
    check_out(chosen)
    stats = soc.load_statistics(chosen.statistics)
    fitted = soc.load_fit(chosen.fit) if chosen.fit else None
    result = _call(soc.drift, chosen, stats, fitted)
    _write_csv(result.table, chosen.out)
    print(f"{result!r} -> {chosen.out}")


@_command(
    "--out demo",
    [
        word("--out", "Folder to write to", default="demo"),
        word("--items", "Number of items", type=int, default=200_000),
        "VI.seed",
    ],
)
def demo(chosen: Chosen) -> None:
    """The whole workflow on simulated click rates."""
    if chosen.items < 1000:
        raise FitError(f"--items {chosen.items}: the demo needs at least 1000")
    run_demo(Path(chosen.out), chosen.items, chosen.seed or 0, progress=chosen.progress)


@with_progress
def run_demo(folder: Path, items: int, seed: int, *, progress: bool | None) -> None:
    """Simulate items as in the paper's Section 5.2, fit, check, refit as advised, and score."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "items.parquet") as temporary:
        soc.simulation.click_rates(items, seed=seed).to_parquet(temporary)
    clicks = soc.PoissonItems(str(folder / "items.parquet"), **_CLICKS)
    stats = soc.summarize(clicks, joint=True)
    print(f"{stats}\n\nOne Gamma at each score, the default:")
    gamma = soc.fit(stats, method=soc.VI(seed=seed))
    before = soc.check(gamma, clicks, subset=500)
    advised = any(isinstance(x.prior, soc.GammaMixture) for x in before.remedies)
    remedy = "The advice names" if advised else "A remedy is"
    print(f"{before}\n\nThe true rates are lognormal. {remedy} a mixture of Gammas:")
    mixture = soc.fit(stats, soc.GammaMixture(), soc.VI(seed=seed))
    after = soc.check(mixture, clicks, subset=500)
    print(f"{after}\n\nDoes it predict better? Leave-one-out, in nats:")
    table = soc.compare({"Gamma": gamma, "mixture": mixture}, stats)
    print(table[["rank", "elpd", "elpd_diff", "dse", "trust"]].round(1).to_string())
    mixture.save(folder / "fit.nc")
    soc.item_posteriors(mixture, clicks, out=folder / "posteriors.parquet")
    scored = pd.read_parquet(folder / "posteriors.parquet")
    with replacing(folder / "demo.png") as temporary:
        _picture(mixture, scored).savefig(temporary, format="png", dpi=150)
    alone = soc.PoissonItems(scored[["score"]], score="score")
    _print_gains(soc.item_posteriors(mixture, alone), scored)
    files = sorted(path.name for path in folder.iterdir())
    print(f"\n{folder}/ holds {', '.join(files)}")


def _print_gains(alone: pd.DataFrame, scored: pd.DataFrame) -> None:
    """Say in three lines what a user gains, with and without the outcomes."""
    theta = scored["theta"]

    def error(estimate: pd.Series) -> float:
        return float(((estimate - theta) ** 2).mean() ** 0.5)

    base = error(scored["score"])
    inside = theta.between(scored["theta_q05"], scored["theta_q95"]).mean()
    silent = scored[scored["count"] == 0]["theta_mean"]
    print(
        f"\nWhat you gain:"
        f"\n- E(theta | t, y) has {1 - error(scored['theta_mean']) / base:.0%} less error than the "
        f"score; calibration alone, E(theta | t), has {1 - error(alone['theta_mean']) / base:.0%} "
        "less."
        f"\n- 90% intervals hold the true rate of {inside:.1%} of the items."
        f"\n- {len(silent):,} items without a click have estimates from "
        f"{silent.quantile(0.05):.4f} to {silent.quantile(0.95):.4f}, not 0."
    )


def _picture(fit: soc.Fit, scored: pd.DataFrame) -> Any:
    """Draw both curves, and the shrinkage of items."""
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(12, 6), layout="constrained")
    axes = figure.subplot_mosaic(
        [["mean", "items"], ["sd", "items"]], height_ratios=(3, 2)
    )
    soc.plots.plot_curves(fit, axes=[axes["mean"], axes["sd"]])
    soc.plots.plot_shrinkage(scored, **_CLICKS, ax=axes["items"])
    return figure
