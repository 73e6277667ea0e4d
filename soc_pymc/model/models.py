"""The model of any prior: curves of one conjugate family, or a mixture around them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pymc as pm
import xarray as xr

from .._lib.arguments import instance
from ..data.statistics import Statistics
from ..families.priors import Gamma, GammaMixture, Normal, NormalMixture
from . import hierarchy
from .hierarchy import Hierarchy, Start
from .tilts import Mixture, build_mixture

__all__ = ["Built", "Prior", "begun_at", "build", "frame_of", "model"]

Prior = Gamma | Normal | GammaMixture | NormalMixture
Built = Hierarchy | Mixture


def model(stats: Statistics, prior: Prior | None = None) -> pm.Model:
    """The model itself, to read, draw, sample or extend.

    Parameters
    ----------
    stats
        Sufficient statistics of the items; for mixtures with joint cells.
    prior
        The prior's configuration; None is ``soc.Gamma()``.

    Returns
    -------
    pymc.Model
        For ``soc.Gamma()`` with dims bin, mean_line_term, mean_basis, variance_line_term and
        variance_basis. ``bin_log_mean`` and ``bin_log_cv2`` are the curves at the bins' centres,
        ``log_mean`` and ``log_cv2`` at the knots; ``count`` is the sum of counts in a bin, whose
        log probability is that of all the bin's items. With effects of bins, these are averaged
        over: the curves are without them, and ``log_mean_bin_effect_sd`` is their scale. For
        mixtures ``frame_first`` and ``frame_second`` are the frame's curves at knots, ``tilt``
        what tilts the log weights at its knots and ``bin_tilt`` at the bins, and the log
        probability of all bins is one number.

    Raises
    ------
    FitError
        If the score's axis cannot hold the scores (log of scores at or below 0), or a mixture lacks
        joint cells.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> sorted(soc.model(soc.summarize(items)).coords)[:2]
    ['bin', 'mean_basis']
    """
    instance(stats, "stats", Statistics, "statistics: soc.summarize(items) makes them")
    if prior is not None:
        check_prior(prior)
    if isinstance(prior, GammaMixture | NormalMixture):
        return build_mixture(stats, prior).model
    return hierarchy.model(stats, prior)


def check_prior(prior: object) -> None:
    """Refuse what is no prior."""
    wanted = "soc.Gamma(...), soc.Normal(...), or a mixture of one of them"
    instance(prior, "prior", Gamma | Normal | GammaMixture | NormalMixture, wanted)


def build(stats: Statistics, prior: Prior, start: Start | None = None) -> Built:
    """Model, pilot and data for inference."""
    if isinstance(prior, GammaMixture | NormalMixture):
        return build_mixture(stats, prior, start)
    return hierarchy.build(stats, prior, start)


@contextmanager
def begun_at(built: Built, start: Start | None) -> Iterator[None]:
    """Let unknowns that the user added begin at an earlier fit's means.

    A mixture's coordinates are those of its own pilot, so that another's means say nothing in them.
    """
    if isinstance(built, Mixture):
        yield
        return
    with hierarchy.begun_at(built, start):
        yield


def frame_of(built: Built) -> xr.Dataset:
    """What scoring a mixture needs beside its draws: the frame at knots, and the tilt's functions.

    Empty for other priors.
    """
    if not isinstance(built, Mixture):
        return xr.Dataset()
    design, (mean, variance) = built.design, built.curves
    return xr.Dataset(
        {
            "pilot_first": ("mean_knot", built.frame[0]),
            "pilot_second": ("variance_knot", built.frame[1]),
            "component_z": ("component", design.z),
            "component_function": (("component", "tilt_function"), design.functions),
        },
        {
            "mean_knot": mean.basis.knots,
            "variance_knot": variance.basis.knots,
            "tilt_function": list(design.labels),
        },
    )
