"""The command line `soc-pymc`: each command a thin layer over one function."""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .errors import FitError, SocError, StatisticsError

__all__ = ["main"]

_EXAMPLES = {
    "run": "soc-pymc run 'ads/*.parquet' --score t --count clicks --exposure impressions "
    "--out posteriors.parquet",
    "summarize": "soc-pymc summarize ads.parquet --score t --count clicks "
    "--exposure impressions --bins 200 --out stats.nc",
    "fit": "soc-pymc fit stats.nc --seed 1 --out fit.nc",
    "curves": "soc-pymc curves fit.nc --out curves.csv",
    "posteriors": "soc-pymc posteriors fit.nc ads.parquet --out posteriors.parquet",
    "sql": "soc-pymc sql fit.nc --table ads --dialect bigquery > posteriors.sql",
    "check": "soc-pymc check fit.nc ads.parquet",
    "demo": "soc-pymc demo --out demo",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 on success and 2 on an error.

    Parameters
    ----------
    arguments
        Words of the command line; None takes the process's own.
    """
    chosen = _parser().parse_args(arguments)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        chosen.run(chosen)
    except SocError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was left half-written")
    return 0


def _fail(text: str) -> int:
    print("soc-pymc: error: " + "; ".join(text.splitlines()), file=sys.stderr)
    return 2


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if category.__module__.startswith("soc_pymc"):
        print(f"soc-pymc: warning: {message}", file=sys.stderr)


# --- commands ----------------------------------------------------------------------------------


def _items(
    chosen: argparse.Namespace, roles: dict[str, str] | None = None, source: Any = None
) -> Any:
    """The items that the words describe; `roles` are the columns where they say nothing."""
    from .items import NormalItems, PoissonItems

    names = _columns(chosen, roles)
    made = NormalItems if "value" in names else PoissonItems
    return made(_source(chosen) if source is None else source, **names)


def _source(chosen: argparse.Namespace) -> Any:
    return chosen.items[0] if len(chosen.items) == 1 else chosen.items


def _columns(chosen: argparse.Namespace, roles: dict[str, str] | None = None) -> Any:
    """Columns by role, those that are optional only where they are given."""
    known = roles or {}
    outcomes = _outcome_roles(chosen, known)
    names = {role: getattr(chosen, role) or known.get(role, "") for role in ("score", *outcomes)}
    missing = [_word(role) for role, name in names.items() if not name]
    if missing:
        raise StatisticsError(f"say which columns to use: {', '.join(missing)}")
    more = {role: getattr(chosen, role, None) for role in _MORE_ROLES}
    return {**names, **{role: name for role, name in more.items() if name}}


def _outcome_roles(chosen: argparse.Namespace, known: dict[str, str]) -> tuple[str, str]:
    """The roles of the outcome and of its precision, of the kind of items that is meant."""
    given = [roles for roles in _OUTCOMES if any(getattr(chosen, role) for role in roles)]
    given = given or [roles for roles in _OUTCOMES if roles[0] in known]
    if not given:
        kinds = [", ".join(map(_word, ("score", *roles))) for roles in _OUTCOMES]
        raise StatisticsError(f"say which columns to use: {', or '.join(kinds)}")
    if len(given) > 1:
        kinds = [" and ".join(map(_word, roles)) for roles in _OUTCOMES]
        raise StatisticsError(f"give {', or '.join(kinds)}, not both")
    return given[0]


def _word(role: str) -> str:
    return "--" + role.replace("_", "-")


def _summarize(chosen: argparse.Namespace) -> None:
    from .statistics import load_statistics
    from .summaries import summarize
    from .tables.engines import on_engine

    options: dict[str, Any] = {
        "bins": chosen.bins,
        "equal": chosen.equal,
        "edges": load_statistics(chosen.edges).edges if chosen.edges else None,
        "folds": chosen.folds,
        "joint": chosen.joint,
        "progress": not chosen.quiet,
    }
    columns = list(_columns(chosen).values())
    with on_engine(chosen.engine, _source(chosen), columns) as source:
        stats = summarize(_items(chosen, source=source), **options)
    stats.save(chosen.out)
    print(f"{stats!r} -> {chosen.out}")


def _run(chosen: argparse.Namespace) -> None:
    from .inference import fit
    from .methods import VI
    from .posteriors import item_posteriors
    from .summaries import summarize

    items, progress = _items(chosen), not chosen.quiet
    stats = summarize(items, bins=chosen.bins, progress=progress)
    result = fit(stats, method=VI(seed=chosen.seed), progress=progress)
    if chosen.keep:
        folder = Path(chosen.keep)
        folder.mkdir(parents=True, exist_ok=True)
        stats.save(folder / "stats.nc")
        result.save(folder / "fit.nc")
    probs = tuple(chosen.quantiles)
    written = item_posteriors(
        result, items, quantiles=probs, draws=chosen.draws, out=chosen.out, progress=progress
    )
    print(f"{stats!r}\n{result!r}\nitem posteriors -> {written}")


def _fit(chosen: argparse.Namespace) -> None:
    from .inference import fit
    from .methods import NUTS, VI
    from .priors import Gamma, Spline
    from .results import load_fit
    from .statistics import load_statistics

    method: VI | NUTS
    if chosen.method == "vi":
        method = VI(seed=chosen.seed, draws=chosen.draws)
    else:
        method = NUTS(seed=chosen.seed, draws=chosen.draws)
    spline = Spline(knots=chosen.knots, scale=chosen.scale)
    prior = {"gamma": Gamma(mean=spline, variance=spline)}[chosen.prior]
    start = load_fit(chosen.start) if chosen.start else None
    stats = load_statistics(chosen.statistics)
    result = fit(stats, prior, method, start=start, progress=not chosen.quiet)
    result.save(chosen.out)
    print(f"{result!r} -> {chosen.out}")


def _curves(chosen: argparse.Namespace) -> None:
    from .calibration import bands, calibration_curves
    from .files import replacing
    from .results import load_fit

    curves = calibration_curves(load_fit(chosen.fit))
    columns = {}
    for simultaneous, label in ((False, ""), (True, "_simultaneous")):
        banded = bands(curves, prob=chosen.prob, simultaneous=simultaneous)
        for name in banded.data_vars:
            for bound in banded["bound"].to_numpy():
                if not (simultaneous and bound == "median"):
                    columns[f"{name}_{bound}{label}"] = banded[name].sel(bound=bound).to_series()
    import pandas as pd

    table = pd.DataFrame(columns).rename_axis("score").reset_index()
    with replacing(chosen.out) as temporary:
        table.to_csv(temporary, index=False)
    print(f"{len(table)} points of the curves with {chosen.prob:.0%} bands -> {chosen.out}")


def _roles(fit: Any) -> dict[str, str]:
    """The columns that the fit was made from, so that commands need not name them again."""
    roles: dict[str, str] = json.loads(fit.data.attrs.get("roles", "{}"))
    return roles


def _posteriors(chosen: argparse.Namespace) -> None:
    from .posteriors import item_posteriors
    from .results import load_fit

    fit = load_fit(chosen.fit)
    written = item_posteriors(
        fit,
        _items(chosen, _roles(fit)),
        quantiles=tuple(chosen.quantiles),
        draws=chosen.draws,
        out=chosen.out,
        progress=not chosen.quiet,
    )
    print(f"item posteriors -> {written}")


def _sql(chosen: argparse.Namespace) -> None:
    from .results import load_fit
    from .warehouse import posterior_sql

    fit = load_fit(chosen.fit)
    names = {role: getattr(chosen, role) for role in _SQL_ROLES if getattr(chosen, role)}
    print(posterior_sql(fit, chosen.table, **names, columns=chosen.columns, dialect=chosen.dialect))


def _check(chosen: argparse.Namespace) -> None:
    from .checks._check import check
    from .results import load_fit

    fit = load_fit(chosen.fit)
    items = _items(chosen, _roles(fit))
    print(check(fit, items, by=tuple(chosen.by), progress=not chosen.quiet))


def _demo(chosen: argparse.Namespace) -> None:
    from .demo import run

    if chosen.items < 1000:
        raise FitError(f"--items {chosen.items}: the demo wants at least 1000")
    run(Path(chosen.out), items=chosen.items, seed=chosen.seed)


# --- words -------------------------------------------------------------------------------------

_OUTCOMES = (("count", "exposure"), ("value", "noise_sd"))
_SQL_ROLES = ("score", *_OUTCOMES[0])
_MORE_ROLES = ("group", "id", "fold")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
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

    _run_words(command("run", _run, "From items to their posteriors: summarize, fit, posteriors."))
    _summarize_words(command("summarize", _summarize, "Sufficient statistics of items."))
    _fit_words(command("fit", _fit, "Fit the hierarchical model to statistics."))
    curves = command("curves", _curves, "Calibration curves with bands, as CSV.")
    curves.add_argument("fit", help="a fit, from 'soc-pymc fit'")
    curves.add_argument("--prob", type=float, default=0.9, help="probability of the bands")
    curves.add_argument("--out", required=True, help="CSV file to write")
    _posteriors_words(command("posteriors", _posteriors, "Posterior of every item, as Parquet."))
    _sql_words(command("sql", _sql, "Posterior of every item, as SQL for a warehouse."))
    check = command("check", _check, "Does the fit describe the items?")
    _fit_and_items(check)
    check.add_argument("--by", action="append", default=[], help="also check by this column")
    demo = command("demo", _demo, "The main job on simulated click rates.")
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


def _run_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", nargs="+", help="Parquet or CSV files, or a glob")
    _any_role_words(parser, "")
    parser.add_argument("--bins", type=int, help="number of bins (default: grows with the items)")
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
    parser.add_argument("--joint", action="store_true", help="keep joint cells as well")
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
    parser.add_argument("--prior", default="gamma", choices=("gamma",), help="family of the prior")
    parser.add_argument("--method", default="vi", choices=("vi", "nuts"), help="inference")
    parser.add_argument("--scale", default="log", choices=("log", "linear", "rank"))
    parser.add_argument("--knots", type=int, default=20, help="knots of each curve")
    parser.add_argument("--draws", type=int, default=1000, help="posterior draws kept")
    parser.add_argument("--seed", type=int, default=0, help="seed of the fit")
    parser.add_argument("--out", required=True, help="fit file to write (netCDF)")


def _fit_and_items(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fit", help="a fit, from 'soc-pymc fit'")
    parser.add_argument("items", nargs="+", help="Parquet or CSV files, or a glob")
    _any_role_words(parser, " (default: as in the fit)")


def _sql_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fit", help="a fit, from 'soc-pymc fit'")
    parser.add_argument("--table", required=True, help="name of the table of items")
    _role_words(parser, " (default: as in the fit)")
    parser.add_argument("--columns", nargs="*", default=[], help="other columns to keep")
    parser.add_argument("--dialect", default="duckdb", help="whose SQL, for example bigquery")


def _posteriors_words(parser: argparse.ArgumentParser) -> None:
    _fit_and_items(parser)
    _scoring_words(parser, "all")


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


if __name__ == "__main__":
    sys.exit(main())
