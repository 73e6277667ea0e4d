"""The words of every command."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from ... import __version__
from . import _commands
from ._priors import PRIORS

__all__ = ["make_parser"]

_EXAMPLES = {
    "run": "soc-pymc run 'ads/*.parquet' --score t --count clicks --exposure impressions "
    "--out posteriors.parquet",
    "summarize": "soc-pymc summarize ads.parquet --score t --count clicks "
    "--exposure impressions --bins 200 --out stats.nc",
    "fit": "soc-pymc fit stats.nc --prior gamma-mixture --out fit.nc",
    "curves": "soc-pymc curves fit.nc --group DE --out curves.csv",
    "posteriors": "soc-pymc posteriors fit.nc ads.parquet --out posteriors.parquet",
    "sql": "soc-pymc sql fit.nc --table ads --dialect bigquery > posteriors.sql",
    "check": "soc-pymc check fit.nc ads.parquet --by device",
    "report": "soc-pymc report fit.nc ads.parquet --by device --threshold 0.05 --out report.html",
    "compare": "soc-pymc compare stats.nc plain=fit.nc mixture=mixture.nc",
    "demo": "soc-pymc demo --out demo",
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all errors of the command line are."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and say why."""
        self.exit(2, f"soc-pymc: error: {message}; {self.prog} --help tells all words\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="soc-pymc",
        description="Second order calibration: honest posteriors from any model's point scores.",
    )
    parser.add_argument("--version", action="version", version=f"soc_pymc {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)

    def command(name: str, run: Callable[..., None], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name, help=text, description=text, epilog=f"example: {_EXAMPLES[name]}"
        )
        added.set_defaults(run=run)
        added.add_argument("--quiet", action="store_true", help="show no progress")
        return added

    does = _commands
    _run_words(command("run", does.run, "From items to their posteriors in one command."))
    _summarize_words(command("summarize", does.summarize, "Sufficient statistics of items."))
    _fit_words(command("fit", does.fit, "Fit the hierarchical model to statistics."))
    _curves_words(command("curves", does.curves, "Calibration curves with bands, as CSV."))
    _posteriors_words(command("posteriors", does.posteriors, "Posteriors of items, as Parquet."))
    _sql_words(command("sql", does.sql, "Posterior of every item, as SQL for a warehouse."))
    _check_words(command("check", does.check, "Does the fit describe the items?"))
    _report_words(command("report", does.report, "What a fit says of items, as one HTML page."))
    _compare_words(command("compare", does.compare, "Which fit predicts items left out best?"))
    demo = command("demo", does.demo, "The main job on simulated click rates.")
    demo.add_argument("--out", default="demo", help="folder to write to")
    demo.add_argument("--items", type=int, default=1_000_000, help="number of items")
    demo.add_argument("--seed", type=int, default=0, help="seed of the simulation and the fit")
    return parser


def _role_words(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--score", help=f"column of the scores{default}")
    parser.add_argument("--count", help=f"column of the counts{default}")
    parser.add_argument("--exposure", help=f"column of the exposures{default}")


def _any_role_words(parser: argparse.ArgumentParser, default: str) -> None:
    """Words of counts in exposures, or of values with known noise."""
    _role_words(parser, default)
    parser.add_argument("--value", help=f"column of the values, instead of counts{default}")
    parser.add_argument("--noise-sd", help=f"column of the values' noise sds{default}")


def _prior_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prior", choices=tuple(PRIORS), help="prior of theta (default: gamma, of values normal)"
    )
    parser.add_argument(
        "--exposure-term",
        action="store_true",
        help="theta depends on log exposure (or noise sd) too; reads joint cells",
    )
    parser.add_argument("--monotone", action="store_true", help="the mean curve never falls")
    parser.add_argument("--bin-effects", action="store_true", help="bins deviate from the curve")
    parser.add_argument(
        "--pool-groups", action="store_true", help="one pair of curves for all groups"
    )
    parser.add_argument("--knots", type=int, help="knots of each curve (default: 20)")
    parser.add_argument(
        "--scale",
        choices=("log", "linear", "rank"),
        help="axis on which curves are smooth (default: log, of values linear)",
    )


def _run_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", nargs="+", help="Parquet or CSV files, or a glob")
    _any_role_words(parser, "")
    parser.add_argument("--group", help="column of groups that get curves of their own")
    parser.add_argument("--bins", type=int, help="number of bins (default: grows with the items)")
    _prior_words(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the fit")
    _scoring_words(parser, "representative")
    parser.add_argument("--keep", help="folder for the statistics and the fit")


def _summarize_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", nargs="+", help="Parquet or CSV files, or a glob")
    _any_role_words(parser, "")
    parser.add_argument("--group", help="column of groups whose statistics are kept apart")
    parser.add_argument("--id", help="column of whole numbers that say which fold an item is in")
    parser.add_argument("--fold", help="column of fold numbers")
    parser.add_argument("--folds", type=int, help="number of folds to make from --id")
    parser.add_argument(
        "--joint", action="store_true", help="keep joint cells, for mixtures and exposure terms"
    )
    parser.add_argument(
        "--engine", default="duckdb", choices=("duckdb", "spark", "polars"), help="what reads them"
    )
    parser.add_argument("--bins", type=int, help="number of bins (default: grows with the items)")
    parser.add_argument(
        "--equal", choices=("items", "count", "exposure"), help="equal in what (default: items)"
    )
    parser.add_argument("--edges", help="take the bins of these saved statistics")
    parser.add_argument("--out", required=True, help="statistics file to write (netCDF)")


def _fit_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("statistics", help="statistics, from 'soc-pymc summarize'")
    parser.add_argument("--start", help="a fit to start from, such as yesterday's")
    _prior_words(parser)
    parser.add_argument(
        "--method", default="vi", choices=("vi", "nuts", "five-steps"), help="inference"
    )
    parser.add_argument("--draws", type=int, help="posterior draws kept (default: 1000)")
    parser.add_argument("--seed", type=int, help="seed of the fit (default: 0)")
    steps = parser.add_argument_group("five steps")
    steps.add_argument("--no-smooth", action="store_true", help="keep each bin's own estimate")
    steps.add_argument("--every", type=int, help="fit every so manieth bin (default: 1)")
    steps.add_argument("--components", type=int, help="of a mixture (default: 100; of values 7)")
    steps.add_argument("--moments", choices=("log", "plain"), help="what is smoothed")
    parser.add_argument("--out", required=True, help="fit file to write (netCDF)")


def _curves_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fit", help="a fit, from 'soc-pymc fit'")
    parser.add_argument("--group", help="the group whose curves are wanted (default: shared ones)")
    parser.add_argument(
        "--exposure", type=float, help="exposure (noise sd) to see them at (default: average)"
    )
    parser.add_argument("--prob", type=float, default=0.9, help="probability of the bands")
    parser.add_argument("--out", required=True, help="CSV file to write")


def _fit_and_items(parser: argparse.ArgumentParser, items: str) -> None:
    parser.add_argument("fit", help="a fit, from 'soc-pymc fit'")
    parser.add_argument("items", nargs="+", help=items)
    _any_role_words(parser, " (default: as in the fit)")
    parser.add_argument("--group", help="column of groups (default: as in a fit with groups)")


def _posteriors_words(parser: argparse.ArgumentParser) -> None:
    _fit_and_items(parser, "Parquet or CSV files, or a glob")
    _scoring_words(parser, "all")


def _check_words(parser: argparse.ArgumentParser) -> None:
    _fit_and_items(
        parser, "Parquet or CSV files, or a glob; or statistics with joint cells (stats.nc)"
    )
    parser.add_argument("--by", action="append", default=[], help="also check by this column")


def _report_words(parser: argparse.ArgumentParser) -> None:
    _fit_and_items(parser, "Parquet or CSV files, or a glob")
    parser.add_argument("--id", help="column of whole numbers that name the items in lists")
    parser.add_argument("--by", action="append", default=[], help="also check by this column")
    parser.add_argument("--title", help="title of the page")
    parser.add_argument(
        "--threshold", type=float, help="of theta: which items lie above it, and what choices cost"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample and the checks")
    parser.add_argument("--out", default="report.html", help="HTML file to write")


def _compare_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("statistics", help="statistics of the fits' items, with joint cells")
    parser.add_argument("fits", nargs="+", metavar="NAME=fit.nc", help="two fits or more")


def _sql_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fit", help="a fit, from 'soc-pymc fit'")
    parser.add_argument("--table", required=True, help="name of the table of items")
    _role_words(parser, " (default: as in the fit)")
    parser.add_argument("--columns", nargs="*", default=[], help="other columns to keep")
    parser.add_argument("--dialect", default="duckdb", help="whose SQL, for example bigquery")


def _scoring_words(parser: argparse.ArgumentParser, draws: str) -> None:
    parser.add_argument(
        "--quantiles", type=float, nargs="*", default=[0.05, 0.95], help="posterior quantiles"
    )
    parser.add_argument(
        "--draws",
        default=draws,
        choices=("all", "representative"),
        help="average over all draws of the curves, or over few that stand for them (faster)",
    )
    parser.add_argument("--out", required=True, help="Parquet file to write, or a folder")
