"""The commands, each a thin layer over one function; what they need is imported when they run."""

import argparse
import os
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._lib.errors import FitError, StatisticsError
from ._priors import check_statistics, needs_joint, prior_of
from ._roles import OUTCOMES, columns, items_of, roles_of, source_of, word

if TYPE_CHECKING:
    from ...inference.results import Method

__all__ = [
    "check",
    "compare",
    "curves",
    "demo",
    "fit",
    "posteriors",
    "report",
    "run",
    "sql",
    "summarize",
]

_SQL_ROLES = ("score", *OUTCOMES[0])


def summarize(chosen: argparse.Namespace) -> None:
    """Items to statistics."""
    from ...data.statistics import load_statistics
    from ...data.summaries import summarize
    from ...data.tables.engines import on_engine

    options: dict[str, Any] = {
        "bins": chosen.bins,
        "equal": chosen.equal,
        "edges": load_statistics(chosen.edges).edges if chosen.edges else None,
        "folds": chosen.folds,
        "joint": chosen.joint,
        "progress": not chosen.quiet,
    }
    names = list(columns(chosen).values())
    _check_out(chosen.out, chosen.items)
    with on_engine(chosen.engine, source_of(chosen), names) as source:
        stats = summarize(items_of(chosen, source=source), **options)
    stats.save(chosen.out)
    print(f"{stats!r} -> {chosen.out}")


def _check_out(out: str, read: Sequence[str]) -> None:
    """Refuse a file that cannot be written or that is being read, before the work is done."""
    from ..._lib.files import check_target

    own = {os.path.realpath(path) for given in read for path in (given, *glob(given))}
    if os.path.realpath(out) in own:
        raise StatisticsError(f"--out {out} is a file that is read: give another name")
    check_target(out)


def run(chosen: argparse.Namespace) -> None:
    """Items to their posteriors."""
    from ...data.summaries import summarize
    from ...inference.fitting import fit
    from ...inference.methods import VI
    from ...posterior.items import item_posteriors
    from ...posterior.scored_files import is_folder

    items, progress = items_of(chosen), not chosen.quiet
    if not is_folder(chosen.out):
        _check_out(chosen.out, chosen.items)
    prior = prior_of(chosen, items.kind, items.group is not None)
    stats = summarize(items, bins=chosen.bins, joint=needs_joint(prior), progress=progress)
    result = fit(stats, prior, VI(seed=chosen.seed), progress=progress)
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


def fit(chosen: argparse.Namespace) -> None:
    """Statistics to a fit."""
    from ...data.statistics import load_statistics
    from ...inference.fitting import fit
    from ...inference.results import load_fit

    method = method_of(chosen)
    _check_out(chosen.out, [chosen.statistics])
    start = load_fit(chosen.start) if chosen.start else None
    stats = load_statistics(chosen.statistics)
    prior = prior_of(chosen, stats.kind, bool(stats.groups))
    check_statistics(prior, stats, chosen.statistics)
    result = fit(stats, prior, method, start=start, progress=not chosen.quiet)
    result.save(chosen.out)
    print(f"{result!r} -> {chosen.out}")


def method_of(chosen: argparse.Namespace) -> "Method":
    """The method that was asked for; words of other methods are refused."""
    from ...inference.methods import NUTS, VI, FiveSteps

    draws: dict[str, Any] = {"seed": chosen.seed, "draws": chosen.draws}
    steps: dict[str, Any] = {k: getattr(chosen, k) for k in ("every", "components", "moments")}
    steps["smooth"] = False if chosen.no_smooth else None
    five = chosen.method == "five-steps"
    wrong = [name for name, value in (draws if five else steps).items() if value is not None]
    if wrong:
        words = ", ".join("--no-smooth" if name == "smooth" else f"--{name}" for name in wrong)
        raise FitError(f"--method {chosen.method} does not know {words}: leave it out")
    given = {k: v for k, v in (steps if five else draws).items() if v is not None}
    if five:
        return FiveSteps(**given)
    return NUTS(**given) if chosen.method == "nuts" else VI(**given)


def curves(chosen: argparse.Namespace) -> None:
    """A fit to curves with bands, as CSV."""
    from ..._lib.files import replacing
    from ...inference.results import load_fit
    from ...posterior.calibration import bands, calibration_curves

    _check_out(chosen.out, [chosen.fit])
    draws = calibration_curves(load_fit(chosen.fit), group=chosen.group, exposure=chosen.exposure)
    found = {}
    for simultaneous, label in ((False, ""), (True, "_simultaneous")):
        banded = bands(draws, prob=chosen.prob, simultaneous=simultaneous)
        for name in banded.data_vars:
            for bound in banded["bound"].to_numpy():
                if not (simultaneous and bound == "median"):
                    found[f"{name}_{bound}{label}"] = banded[name].sel(bound=bound).to_series()
    import pandas as pd

    table = pd.DataFrame(found).rename_axis("score").reset_index()
    with replacing(chosen.out) as temporary:
        table.to_csv(temporary, index=False)
    print(f"{len(table)} points of the curves with {chosen.prob:.0%} bands -> {chosen.out}")


def posteriors(chosen: argparse.Namespace) -> None:
    """A fit and items to their posteriors."""
    from ...inference.results import load_fit
    from ...posterior.items import item_posteriors

    fit = load_fit(chosen.fit)
    if chosen.group and not fit.groups:
        raise FitError(f"--group {chosen.group}: {chosen.fit} has no groups, leave it out")
    written = item_posteriors(
        fit,
        items_of(chosen, roles_of(fit)),
        quantiles=tuple(chosen.quantiles),
        draws=chosen.draws,
        out=chosen.out,
        progress=not chosen.quiet,
    )
    print(f"item posteriors -> {written}")


def sql(chosen: argparse.Namespace) -> None:
    """A fit to the text of a SELECT."""
    from ...inference.results import load_fit
    from ...posterior.warehouse import posterior_sql

    fit = load_fit(chosen.fit)
    names = {role: getattr(chosen, role) for role in _SQL_ROLES if getattr(chosen, role)}
    print(posterior_sql(fit, chosen.table, **names, columns=chosen.columns, dialect=chosen.dialect))


def check(chosen: argparse.Namespace) -> None:
    """A fit against items or statistics."""
    from ...checks._check import check
    from ...inference.results import load_fit

    fit = load_fit(chosen.fit)
    data = _statistics(chosen) or items_of(chosen, roles_of(fit))
    print(check(fit, data, by=tuple(chosen.by), progress=not chosen.quiet))


def _statistics(chosen: argparse.Namespace) -> Any:
    """The statistics that stand in the place of items; None where these are items."""
    from ...data.statistics import load_statistics

    if not chosen.items[0].endswith(".nc"):
        return None
    if len(chosen.items) > 1:
        raise StatisticsError("give one file of statistics, or files of items")
    words = ("score", *OUTCOMES[0], *OUTCOMES[1], "group", "by")
    given = [word(role) for role in words if getattr(chosen, role)]
    if given:
        raise StatisticsError(
            f"{', '.join(given)}: statistics have no columns, leave out the words or give the items"
        )
    return load_statistics(chosen.items[0])


def report(chosen: argparse.Namespace) -> None:
    """A fit and items to a page."""
    from ...inference.results import load_fit
    from ...report import report

    fit = load_fit(chosen.fit)
    written = report(
        fit,
        items_of(chosen, roles_of(fit)),
        out=chosen.out,
        by=tuple(chosen.by),
        title=chosen.title,
        threshold=chosen.threshold,
        seed=chosen.seed,
        progress=not chosen.quiet,
    )
    print(f"report -> {written}")


def compare(chosen: argparse.Namespace) -> None:
    """Fits of the same items, by leave-one-out."""
    from ...checks.comparison import compare
    from ...data.statistics import load_statistics
    from ...inference.results import load_fit

    pairs = [given.partition("=") for given in chosen.fits]
    odd = [name for name, equals, path in pairs if not (name and equals and path)]
    if odd:
        raise FitError(f"give fits as NAME=fit.nc, not {odd[0]!r}")
    names = [name for name, _, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise FitError(f"two fits are named {twice[0]!r}: each needs its own name")
    stats = load_statistics(chosen.statistics)
    fits = {name: load_fit(path) for name, _, path in pairs}
    table = compare(fits, stats, progress=not chosen.quiet)
    print(table.to_string(float_format="{:.4g}".format))


def demo(chosen: argparse.Namespace) -> None:
    """The main job on simulated click rates."""
    from ..demo import run

    if chosen.items < 1000:
        raise FitError(f"--items {chosen.items}: the demo wants at least 1000")
    run(Path(chosen.out), items=chosen.items, seed=chosen.seed)
