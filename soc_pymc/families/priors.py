"""Priors of theta given the score, as frozen configurations."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from .._lib.arguments import (
    POSITIVE,
    A,
    FitError,
    OneOf,
    OrNone,
    Real,
    Whole,
    convert_fields,
    shown,
    switch,
)
from .scales import RANK, SCALES

_MOST_KNOTS = 10_000
_SWITCHES = "monotone", "bin_effects", "groups", "zero", "atoms"


@dataclass(frozen=True)
class Spline:
    """A smooth curve over the score: a straight line plus a penalised natural cubic spline.

    Parameters
    ----------
    knots : int
        Number of knots at quantiles of the score (fewer when there are fewer bins).
    scale : {"log", "logit", "linear", "rank"}
        Axis on which the curve is smooth: ``"log"`` of a positive score, ``"logit"`` of one between
        0 and 1, the score itself (``"linear"``), or its ``"rank"`` among the items.
    level : tuple[float, float] or None
        Mean and standard deviation of the Normal prior of the curve at the average position; None
        takes the curve's default.
    slope : tuple[float, float] or None
        Mean and standard deviation of the Normal prior of the slope there, per unit of log or logit
        score, or per standard deviation of the position on the other scales; None takes the curve's
        default.
    wiggle : float or None
        Scale of the half-normal prior of the root mean square departure from the straight line;
        None takes 0.5 for the mean and for a term in exposure, and 0.3 for the variance.

    Raises
    ------
    FitError
        For an unknown scale or a number out of range.

    Examples
    --------
    >>> Spline(knots=12, scale="rank").scale
    'rank'
    """

    knots: int = 20
    scale: str = "log"
    level: tuple[float, float] | None = None
    slope: tuple[float, float] | None = None
    wiggle: float | None = None

    def __post_init__(self) -> None:
        pair = OrNone(_mean_and_sd)
        scale = OneOf(*SCALES, RANK)
        wiggle = OrNone(POSITIVE)
        knots = Whole(1, _MOST_KNOTS)
        convert_fields(
            self, knots=knots, scale=scale, level=pair, slope=pair, wiggle=wiggle
        )


def _mean_and_sd(pair: Any, name: str) -> tuple[float, float]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise FitError(f"{name}={shown(pair)} must be (mean, standard deviation > 0)")
    return Real()(pair[0], f"mean of {name}"), POSITIVE(
        pair[1], f"standard deviation of {name}"
    )


class Constant(Spline):
    """A curve with one level for all scores, for few items: in a prior, a `Spline` of one knot.

    Parameters
    ----------
    level : tuple[float, float] or None
        As in `Spline`.

    Raises
    ------
    FitError
        If a term is not what it must be.

    Examples
    --------
    >>> Gamma(variance=Constant()).variance.knots
    1
    """

    def __init__(self, level: tuple[float, float] | None = None) -> None:
        super().__init__(knots=1, scale="linear", level=level)


@dataclass(frozen=True)
class _Single:
    """Fields and checks of all priors."""

    mean: Spline = Spline()
    variance: Spline = Spline()
    exposure: Spline | None = None
    monotone: bool = False
    bin_effects: bool = False
    groups: bool = True
    zero: bool = field(default=False, kw_only=True)
    atoms: bool = field(default=True, kw_only=True)

    family: ClassVar[str]  # name of its family, or of its components'
    # names of both curves in the posterior
    curve_names: ClassVar[tuple[str, str]]
    mixture: ClassVar[bool] = False

    @property
    def gridded(self) -> bool:
        """True if theta has components on a grid: mixtures, and shares of zeros."""
        return self.mixture or self.zero

    @property
    def reads_joint(self) -> bool:
        """True if a fit reads joint cells of outcome and size."""
        return self.gridded or self.exposure is not None

    def __post_init__(self) -> None:
        curve = A(Spline, "soc.Spline(...) or soc.Constant()")
        term = A(Spline | None, "soc.Spline(...) or None")
        switches = dict.fromkeys(_SWITCHES, switch)
        convert_fields(self, mean=curve, variance=curve, exposure=term, **switches)
        for option, partner in (("mean", self.variance), ("variance", self.mean)):
            if isinstance(constant := getattr(self, option), Constant):
                level = Spline(knots=1, scale=partner.scale, level=constant.level)
                object.__setattr__(self, option, level)
        size = self.exposure
        if size is not None and size != Spline(knots=size.knots, wiggle=size.wiggle):
            raise FitError(
                "exposure=soc.Spline(...) takes knots= and wiggle= alone: its axis is log "
                "exposure, and its level and slope are part of what shrinks to zero"
            )


@dataclass(frozen=True)
class _Mixture:
    """Further fields and checks of mixtures."""

    functions: int = 9
    knots: int = 4
    shape: float = 0.6
    drift: float = 0.1

    mixture = True

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        functions = Whole(4, _MOST_KNOTS)
        knots = Whole(1, _MOST_KNOTS)
        convert_fields(
            self, functions=functions, knots=knots, shape=POSITIVE, drift=POSITIVE
        )


@dataclass(frozen=True)
class Gamma(_Single):
    """theta given the score t is Gamma with E(theta | t) and Var(theta | t) smooth in t.

    Parameters
    ----------
    mean : Spline
        Curve of log E(theta | t).
    variance : Spline
        Curve of log cv2(t), where cv2 = Var(theta | t) / E(theta | t)^2: its information is
        orthogonal to that of the mean.
    exposure : Spline or None
        A smooth term in log exposure, added to both curves: E(theta | t, N). It needs joint cells,
        and its straight line is penalised too. None: theta depends only on the score.
    monotone : bool
        Make E(theta | t) non-decreasing in every draw.
    bin_effects : bool
        Let the log mean of every bin deviate from the curve by a Normal effect. All groups and
        exposures share it (and neighbouring bins, where there are more than 200). A scale near 0
        means that the smooth curve is adequate.
    groups : bool
        If the items have groups, give each its own deviations from the shared curves, with partial
        pooling; False pools them.
    zero : bool
        Let theta be exactly 0 with probability pi(t), smooth in the score and shared by all groups
        and exposures. The curves `mean` and `variance` are then those of theta that is not 0;
        results (`calibration_curves`, item posteriors, checks) are of all theta. It needs joint
        cells, and theta is represented on a grid as for mixtures.
    atoms : bool
        Give every score that many items share (`Statistics.atoms`), such as a default score, its
        own shifts of both curves, partially pooled towards 0, so that its items do not bend the
        curves beside it. False treats it as any other score.

    Raises
    ------
    FitError
        If a term is not what it must be.

    Examples
    --------
    >>> Gamma(mean=Spline(knots=10)).variance.knots
    20
    """

    family = "Gamma"
    curve_names = ("log_mean", "log_cv2")


@dataclass(frozen=True)
class Normal(_Single):
    """theta given the score t is Normal with E(theta | t) and Var(theta | t) smooth in t.

    Parameters
    ----------
    mean : Spline
        Curve of E(theta | t), in the unit of the values.
    variance : Spline
        Curve of log Var(theta | t).
    exposure : Spline or None
        As in `Gamma`, with the noise's sd in place of the exposure.
    monotone : bool
        As in `Gamma`.
    bin_effects : bool
        As in `Gamma`; bins deviate in the mean itself.
    groups : bool
        As in `Gamma`.
    zero : bool
        As in `Gamma`.
    atoms : bool
        As in `Gamma`.

    Raises
    ------
    FitError
        If a term is not what it must be.

    Examples
    --------
    >>> Normal().mean.scale
    'linear'
    """

    family = "Normal"
    curve_names = ("mean", "log_variance")
    mean: Spline = Spline(scale="linear")
    variance: Spline = Spline(scale="linear")


@dataclass(frozen=True)
class Beta(_Single):
    """theta given the score t is Beta(a, b) with E(theta | t) and Var(theta | t) smooth in t.

    Parameters
    ----------
    mean : Spline
        Curve of the logit of E(theta | t). Its axis is the logit of the score, for scores between 0
        and 1; ``soc.Spline(scale="rank")`` takes any.
    variance : Spline
        Curve of g = log(1/a + 1/b): exp(g) is, to first order, the variance of logit theta. With v
        = E(theta | t) (1 - E(theta | t)), Var(theta | t) = v^2 exp(g) / (1 + v exp(g)). For small
        rates it is the log cv2 of `Gamma`.
    exposure : Spline or None
        As in `Gamma`, with trials in place of the exposure.
    monotone : bool
        As in `Gamma`.
    bin_effects : bool
        As in `Gamma`; bins deviate in the logit of the mean.
    groups : bool
        As in `Gamma`.
    zero : bool
        As in `Gamma`.
    atoms : bool
        As in `Gamma`.

    Raises
    ------
    FitError
        If a term is not what it must be.

    Examples
    --------
    >>> Beta().mean.scale
    'logit'
    """

    family = "Beta"
    curve_names = ("logit_mean", "log_odds_cv2")
    mean: Spline = Spline(scale="logit")
    variance: Spline = Spline(scale="logit")


@dataclass(frozen=True)
class InverseGamma(_Single):
    """theta given the score t is inverse Gamma with E(theta | t) and Var(theta | t) smooth in t.

    It is conjugate to amounts. Its shape is 2 + 1 / cv2, so that its variance is finite.

    Parameters
    ----------
    mean : Spline
        Curve of log E(theta | t).
    variance : Spline
        Curve of log cv2(t), as in `Gamma`.
    exposure : Spline or None
        As in `Gamma`, with events in place of the exposure.
    monotone : bool
        As in `Gamma`.
    bin_effects : bool
        As in `Gamma`.
    groups : bool
        As in `Gamma`.
    zero : bool
        As in `Gamma`; fits refuse it, as amounts of events are never 0.
    atoms : bool
        As in `Gamma`.

    Raises
    ------
    FitError
        If a term is not what it must be.

    Examples
    --------
    >>> InverseGamma().variance.scale
    'log'
    """

    family = "InverseGamma"
    curve_names = ("log_mean", "log_cv2")


@dataclass(frozen=True)
class GammaMixture(_Mixture, Gamma):
    """theta given the score t is a mixture of Gammas on a grid, with weights smooth in t.

    E(theta | t) and Var(theta | t) are those of the curves, as in `Gamma`; the data determine how
    far the rest of the shape departs from that Gamma. It needs statistics with joint cells.

    Parameters
    ----------
    mean : Spline
        As in `Gamma`.
    variance : Spline
        As in `Gamma`.
    exposure : Spline or None
        As in `Gamma`; all share the shape.
    monotone : bool
        As in `Gamma`.
    bin_effects : bool
        As in `Gamma`, with at most 40 of them.
    groups : bool
        As in `Gamma`; all share the shape.
    zero : bool
        As in `Gamma`.
    atoms : bool
        As in `Gamma`.
    functions : int
        Knots of the splines over components in the log weights.
    knots : int
        Knots over the score for drift of the log weights.
    shape : float
        Standard deviation of the Normal prior of coefficients of the log weights that all scores
        share.
    drift : float
        Standard deviation of the Normal prior of the coefficients of their drift over the score.

    Raises
    ------
    FitError
        If a term is not what it must be, or a number is out of range.

    Examples
    --------
    >>> GammaMixture(exposure=Spline(), knots=5).functions
    9
    """


@dataclass(frozen=True)
class NormalMixture(_Mixture, Normal):
    """theta given the score t is a mixture of Normals on a grid: `GammaMixture` for values.

    Parameters
    ----------
    mean : Spline
        As in `Normal`.
    variance : Spline
        As in `Normal`.
    exposure : Spline or None
        As in `Normal`; all share the shape.
    monotone : bool
        As in `Normal`.
    bin_effects : bool
        As in `Normal`, with at most 40 of them.
    groups : bool
        As in `Normal`; all share the shape.
    zero : bool
        As in `Normal`.
    atoms : bool
        As in `Normal`.
    functions : int
        As in `GammaMixture`.
    knots : int
        As in `GammaMixture`.
    shape : float
        As in `GammaMixture`.
    drift : float
        As in `GammaMixture`.

    Raises
    ------
    FitError
        If a term is not what it must be, or a number is out of range.

    Examples
    --------
    >>> NormalMixture().mean.scale
    'linear'
    """


@dataclass(frozen=True)
class BetaMixture(_Mixture, Beta):
    """theta given the score t is a mixture of Betas on a grid: `GammaMixture` for successes.

    Parameters
    ----------
    mean : Spline
        As in `Beta`.
    variance : Spline
        As in `Beta`.
    exposure : Spline or None
        As in `Beta`; all share the shape.
    monotone : bool
        As in `Beta`.
    bin_effects : bool
        As in `Beta`, with at most 40 of them.
    groups : bool
        As in `Beta`; all share the shape.
    zero : bool
        As in `Beta`.
    atoms : bool
        As in `Beta`.
    functions : int
        As in `GammaMixture`.
    knots : int
        As in `GammaMixture`.
    shape : float
        As in `GammaMixture`.
    drift : float
        As in `GammaMixture`.

    Raises
    ------
    FitError
        If a term is not what it must be, or a number is out of range.

    Examples
    --------
    >>> BetaMixture().mean.scale
    'logit'
    """


@dataclass(frozen=True)
class InverseGammaMixture(_Mixture, InverseGamma):
    """theta given the score t is a mixture of inverse Gammas: `GammaMixture` for amounts.

    Parameters
    ----------
    mean : Spline
        As in `InverseGamma`.
    variance : Spline
        As in `InverseGamma`.
    exposure : Spline or None
        As in `InverseGamma`; all share the shape.
    monotone : bool
        As in `InverseGamma`.
    bin_effects : bool
        As in `InverseGamma`, with at most 40 of them.
    groups : bool
        As in `InverseGamma`; all share the shape.
    zero : bool
        As in `InverseGamma`.
    atoms : bool
        As in `InverseGamma`.
    functions : int
        As in `GammaMixture`.
    knots : int
        As in `GammaMixture`.
    shape : float
        As in `GammaMixture`.
    drift : float
        As in `GammaMixture`.

    Raises
    ------
    FitError
        If a term is not what it must be, or a number is out of range.

    Examples
    --------
    >>> InverseGammaMixture().mean.scale
    'log'
    """


PRIORS = (
    Gamma, Normal, Beta, InverseGamma,
    GammaMixture, NormalMixture, BetaMixture, InverseGammaMixture,
)  # fmt: skip
MixturePrior = GammaMixture | NormalMixture | BetaMixture | InverseGammaMixture
# priors, mixtures included
Prior = Gamma | Normal | Beta | InverseGamma
