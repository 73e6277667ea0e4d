"""Conjugate families as records of pure functions, the interface of all other subpackages.

At a score a family's prior is given by two curves, on scales where they are smooth and their
information is orthogonal (`Family.curves`), or by the two conjugate parameters of theta
(`Family.parameters`). Functions take either pair as two arrays and broadcast.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from .._lib.arrays import Floats
from . import binomial_beta, normal_normal, poisson_gamma
from .beta_mixtures import BETAS
from .binomial_rows import BetaRows
from .components import GAMMAS, NORMALS, Components
from .further import AFTER_COUNT, AFTER_SUCCESS, AFTER_VALUE, Further
from .normal_rows import NormalCells
from .outcomes import OUTCOMES, Outcome
from .poisson_rows import Histograms
from .priors import (
    CURVES,
    CURVES_BY_BIN,
    Beta,
    BetaMixture,
    Gamma,
    GammaMixture,
    Normal,
    NormalMixture,
)
from .row_sums import RowSums

_Function = Callable[..., Any]
_Pair = Callable[..., tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Family:
    """Theta given the score and outcomes given theta; `a, b` are conjugate parameters of theta."""

    name: str
    outcome: Outcome
    prior: type  # its configuration
    mixture: type  # that of mixtures of it
    rows: type[RowSums]  # sums of rows of items, and the log marginal given them
    components: Components  # of mixtures
    curves: tuple[str, str]  # names of the two curves in the posterior
    parameters: tuple[str, str]  # names of the conjugate parameters

    to_parameters: _Pair  # (first curve, second curve) -> a, b
    to_curves: _Pair  # (a, b) -> both curves
    curve_variables: _Function  # (both curves) -> variables of `soc.calibration_curves` by name
    natural_moments: _Pair  # (first curve, exp of the second, which may be 0) -> E, Var(theta)
    has_log_moments: bool  # whether theta is positive, with moments of log theta to match
    widened: _Pair  # (both curves, variance of the mean's curve) -> curves averaged over it

    # theta
    update: _Pair  # (a, b, outcome, size) -> a, b given the outcome
    mean: _Function  # (a, b) -> E(theta)
    variance: _Function  # (a, b) -> Var(theta)
    third: _Function  # (a, b) -> E[(theta - E(theta))^3]
    above: _Function  # (cut, a, b) -> P(theta > cut)
    excess: _Function  # (cut, a, b) -> E[(theta - cut)+]
    shortfall: _Function  # (cut, a, b) -> E[(cut - theta)+]
    draw: _Function  # (a, b, generators) -> draws on a scale that keeps theta's order, row by row
    natural: _Function  # draws on that scale -> theta
    above_drawn: _Function  # (draws on that scale, a, b) -> P(theta > them)

    # outcomes, averaged over theta
    log_density: _Function  # (outcome, size, both curves) -> log density or probability
    cdf_interval: _Pair  # (outcome, size, both curves) -> P(Y < y) and P(Y <= y)
    simulate: _Function  # (both curves, size, generator) -> outcomes
    further: Further  # what a further outcome of an item brings

    unit: _Function  # second curve -> what an sd of the first is measured in


def _itself(values: Any) -> Any:
    return values


GAMMA = Family(
    name="Gamma",
    outcome=OUTCOMES["poisson"],
    prior=Gamma,
    mixture=GammaMixture,
    rows=Histograms,
    components=GAMMAS,
    curves=CURVES["Gamma"],
    parameters=CURVES_BY_BIN["Gamma"],
    to_parameters=poisson_gamma.shape_rate,
    to_curves=poisson_gamma.log_mean_cv2,
    curve_variables=poisson_gamma.curve_variables,
    natural_moments=poisson_gamma.natural_moments,
    has_log_moments=True,
    widened=poisson_gamma.widened,
    update=poisson_gamma.update,
    mean=poisson_gamma.mean,
    variance=poisson_gamma.variance,
    third=poisson_gamma.third,
    above=poisson_gamma.above,
    excess=poisson_gamma.excess,
    shortfall=poisson_gamma.shortfall,
    draw=poisson_gamma.draw_theta,
    natural=np.exp,
    above_drawn=poisson_gamma.above_drawn,
    log_density=poisson_gamma.log_pmf,
    cdf_interval=poisson_gamma.cdf_interval,
    simulate=poisson_gamma.simulate,
    further=AFTER_COUNT,
    unit=np.ones_like,
)

NORMAL = Family(
    name="Normal",
    outcome=OUTCOMES["normal"],
    prior=Normal,
    mixture=NormalMixture,
    rows=NormalCells,
    components=NORMALS,
    curves=CURVES["Normal"],
    parameters=CURVES_BY_BIN["Normal"],
    to_parameters=normal_normal.mean_variance,
    to_curves=normal_normal.mean_log_variance,
    curve_variables=normal_normal.curve_variables,
    natural_moments=lambda mean, variance: (mean, variance),
    has_log_moments=False,
    widened=normal_normal.widened,
    update=lambda a, b, value, noise_sd: normal_normal.update(a, b, value, noise_sd**2),
    mean=lambda a, b: a,
    variance=lambda a, b: b,
    third=lambda a, b: np.zeros_like(b),
    above=normal_normal.above,
    excess=normal_normal.excess,
    shortfall=normal_normal.shortfall,
    draw=normal_normal.draw_theta,
    natural=_itself,
    above_drawn=normal_normal.above,
    log_density=normal_normal.log_density,
    cdf_interval=normal_normal.cdf_interval,
    simulate=normal_normal.simulate,
    further=AFTER_VALUE,
    unit=lambda log_variance: np.exp(0.5 * log_variance),
)

BETA = Family(
    name="Beta",
    outcome=OUTCOMES["binomial"],
    prior=Beta,
    mixture=BetaMixture,
    rows=BetaRows,
    components=BETAS,
    curves=CURVES["Beta"],
    parameters=CURVES_BY_BIN["Beta"],
    to_parameters=binomial_beta.a_b,
    to_curves=binomial_beta.to_curves,
    curve_variables=binomial_beta.curve_variables,
    natural_moments=binomial_beta.natural_moments,
    has_log_moments=False,
    widened=binomial_beta.widened,
    update=binomial_beta.update,
    mean=binomial_beta.mean,
    variance=binomial_beta.variance,
    third=binomial_beta.third,
    above=binomial_beta.above,
    excess=binomial_beta.excess,
    shortfall=binomial_beta.shortfall,
    draw=binomial_beta.draw_theta,
    natural=special.expit,
    above_drawn=binomial_beta.above_drawn,
    log_density=binomial_beta.log_pmf,
    cdf_interval=binomial_beta.cdf_interval,
    simulate=binomial_beta.simulate,
    further=AFTER_SUCCESS,
    unit=np.ones_like,
)

FAMILIES: Mapping[str, Family] = {family.name: family for family in (GAMMA, NORMAL, BETA)}
"""Families by the name of their prior."""

_BY_KIND: Mapping[str, Family] = {family.outcome.kind: family for family in FAMILIES.values()}


def family_of(prior: Any) -> Family:
    """The family of a prior, or of a mixture's components."""
    return FAMILIES[prior.family]


def family_of_kind(kind: str) -> Family:
    """The family that is conjugate to outcomes of a kind."""
    return _BY_KIND[kind]


def reads_joint(prior: Any) -> bool:
    """Return True if a fit of the prior reads joint cells of outcome and size."""
    return bool(prior.gridded) or prior.exposure is not None


# --- shares of zeros -----------------------------------------------------------------------------
# Theta = 0 is the last of the components: a member of the family so close to 0 that no outcome can
# tell the two apart. Quantiles and moments take it as exactly 0.

ZERO = "zero"
"""Name of the logit of the share of theta that is 0, among the functions of the log weights."""
NEAR_ZERO = 1e-90
"""Size of theta below which it is a draw of the component that stands for 0."""


def with_zero(family: Family, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Conjugate parameters, (n, 1) or (n, R), and those that stand for 0 as the last component."""
    a, b = np.broadcast_arrays(a, b)
    a_of_zero, b_of_zero = family.components.zero(a[:, 0])
    return np.column_stack([a, a_of_zero]), np.column_stack([b, b_of_zero])


def whole_moments(zero: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of theta with a share of zeros, from those of the rest."""
    positive = 1.0 - zero
    return positive * mean, positive * (variance + zero * mean**2)
