"""The fit of one prior: variational by default, NUTS as the reference."""

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .._lib.arguments import A, OrNone
from .._lib.errors import ConvergenceWarning, FitError, ItemsWarning, warn_user
from .._lib.reprs import code_of
from .._lib.work import long_work
from .._model.problem import build, prior_for
from ..data.statistics import Statistics
from ..families.priors import Prior
from ..fits.curves import Curves
from ..fits.fit import Fit, Method
from .fit_tree import conventional, in_chains, scored_draws, tree_of_draws
from .variational import VI, densities_of

_log = logging.getLogger(__name__)
_FLAT = 1e-6  # rise of the mean's curve below which it is flat
_ROUGH_DRAWS = 100
_METHOD = A(Method, "soc.VI(...), soc.NUTS(...) or soc.FiveSteps(...)")

if TYPE_CHECKING:
    import pymc as pm


@long_work
def fit_prior(
    stats: Statistics,
    prior: Prior | None = None,
    method: Method | None = None,
    *,
    model: "pm.Model | None" = None,
    progress: bool | None = None,
) -> Fit:
    """Fit one prior to statistics: `soc.fit` describes the arguments."""
    method = OrNone(_METHOD)(method, "method")
    if model is not None:
        import pymc as pm  # which takes a second to load

        A(pm.Model, "soc.model(stats, prior), to which you added terms")(model, "model")
    if not stats.n_items:
        raise FitError("the statistics hold no items: there is nothing to fit")
    prior = prior_for(prior, stats)
    method = VI() if method is None else method
    _log.info("fitting %s by %s", code_of(prior), code_of(method))
    began = time.perf_counter()
    try:
        tree, status = method.run(stats, prior, model)
    except np.linalg.LinAlgError as error:
        raise FitError(
            f"the model cannot be computed with numbers of this size ({error}): bring scores, "
            "outcomes and noise sds or exposures into units in which they are nearer to 1"
        ) from error
    status = replace(status, seconds=time.perf_counter() - began)
    state = "converged" if status.converged else "did NOT converge"
    _log.info("the fit %s after %.1f s: %s", state, status.seconds, status.reason)
    if not status.converged:
        warn_user(status.reason, ConvergenceWarning)
    fit = Fit(conventional(tree), prior, method, status)
    if prior.monotone and _is_flat(fit):
        warn_user(
            f"E(theta | t) does not rise with {stats.roles['score']!r}, and monotone=True makes it "
            "flat: if theta falls as the score rises, reverse the score, such as -score or "
            "1 - score, or leave out monotone=True",
            ItemsWarning,
        )
    return fit


def rough_curves(stats: Statistics, prior: Prior) -> Curves:
    """Return curves drawn from Laplace's approximation, where fits begin, in little time."""
    prior = prior_for(prior, stats)
    rng = np.random.default_rng(0)
    built = build(stats, prior, full=False)
    start = built.space.start
    points = start + rng.normal(size=(_ROUGH_DRAWS, len(start)))
    densities = densities_of(built, rng, _ROUGH_DRAWS)
    draws = densities.draws(points, densities.weighed(points)[1])
    groups = {"posterior": in_chains(scored_draws(built, draws, prior.monotone))}
    tree = tree_of_draws(built, stats, groups, prior.monotone)
    return Curves.of(tree, prior)


def _is_flat(fit: Fit) -> bool:
    """Return True if the mean, which nowhere falls, ends where it begins in most draws."""
    knots = fit.curves.knots("mean_knot")
    ends = fit.curves.axis("mean").inverse(knots[[0, -1]])
    location, _ = fit.curves.at(ends)
    rise = np.median(location[:, 1] - location[:, 0])
    return len(knots) > 1 and bool(rise < _FLAT)
