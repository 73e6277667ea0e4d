"""Inference on the model: variational by default, NUTS as the reference."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm

from .._lib.arguments import A, OrNone
from .._lib.errors import ConvergenceWarning, FitError, warn_user
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from .._model import problem
from ..data.statistics import Statistics
from ..families.family import family_of_kind
from ..families.priors import Prior
from .clusters import for_clusters
from .fit_tree import conventional, fit_tree
from .five_steps import run_five_steps
from .methods import NUTS, VI, FiveSteps, Method
from .results import Fit, Status
from .sampling import run_nuts
from .variational import run_variational

_log = logging.getLogger(__name__)
_METHOD = A(Method, "soc.VI(...), soc.NUTS(...) or soc.FiveSteps(...)")
_MODEL = A(pm.Model, "soc.model(stats, prior), to which you added terms")


@one_blas_thread
def fit(
    stats: Statistics,
    prior: Prior | None = None,
    method: Method | None = None,
    *,
    model: pm.Model | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit one prior to statistics: `soc.fit` describes the arguments."""
    method, model = OrNone(_METHOD)(method, "method"), OrNone(_MODEL)(model, "model")
    if not isinstance(stats, Statistics):
        raise FitError(
            f"soc.fit takes statistics, not {type(stats).__name__}: call soc.summarize(items) first"
        )
    if not stats.n_items:
        raise FitError("the statistics hold no items: there is nothing to fit")
    prior = family_of_kind(stats.kind).prior() if prior is None else prior
    method = VI() if method is None else method
    problem.check_prior(prior, stats)
    _log.info("fitting %r by %r to %s items in %s bins", prior, method, stats.n_items, stats.bins)
    began = time.perf_counter()
    if isinstance(method, FiveSteps):
        if model is not None:
            raise FitError(
                "soc.FiveSteps() fits each bin by itself: leave model= out, or use soc.VI()"
            )
        with phase("fit: five steps", enabled=progress):
            tree, verdict = run_five_steps(stats, prior, method)
        return Fit(conventional(tree), prior, method, _status(verdict, began))
    with _usable_units():
        with phase("fit: pilot and model", enabled=progress):
            if model is None:
                built = problem.build(stats, prior, full=isinstance(method, NUTS))
            else:  # recomputes the Laplace start of soc.model, which defined its coordinates
                built = problem.extended(problem.build(stats, prior, full=True), model)
        run: Any = run_nuts if isinstance(method, NUTS) else run_variational
        groups, verdict = run(built, method, progress)
        if stats.blocks:
            drawn = groups["posterior"]
            wider, words = for_clusters(built, stats, prior, drawn, method.seed)
            groups, verdict["reason"] = {**groups, **wider}, verdict["reason"] + words
    status = _status(verdict, began)
    tree = fit_tree(built, stats, groups, prior.monotone, method.seed)
    return Fit(conventional(tree), prior, method, status)


@contextmanager
def _usable_units() -> Iterator[None]:
    """Turn errors of linear algebra on numbers that overflow or vanish into one sentence."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise FitError(
            f"the model cannot be computed with numbers of this size ({error}): bring scores, "
            "outcomes and noise sds or exposures into units in which they are nearer to 1"
        ) from error


def _status(verdict: dict[str, Any], began: float) -> Status:
    """The fit's status; warns if it did not converge."""
    status = Status(**verdict, seconds=time.perf_counter() - began)
    state = "converged" if status.converged else "did NOT converge"
    _log.info("the fit %s after %.1f s: %s", state, status.seconds, status.reason)
    if not status.converged:
        warn_user(status.reason, ConvergenceWarning)
    return status
