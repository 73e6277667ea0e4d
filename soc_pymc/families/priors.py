"""Priors of theta given the score, as frozen configurations."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from .._lib.arguments import POSITIVE, OneOf, Real, Whole, shown
from .._lib.errors import FitError
from .scales import RANK, SCALES

COMPONENTS = ("weight", "component_place", "component_sd")
"""Names of what five-step mixtures keep of each bin's components, dims bin and component.

Places are relative to the mean: on the scale of log theta, of logit theta, or of theta."""

_SCALES = (*SCALES, RANK)
_MOST_KNOTS = 10_000
_ONE_SWITCH = ": it is one switch, and monotone concerns the mean alone"


@dataclass(frozen=True)
class Spline:
    """A smooth curve over the score: a straight line plus a penalised natural cubic spline.

    Parameters
    ----------
    knots
        Number of knots at quantiles of the score (fewer when there are fewer bins).
    scale
        Axis on which the curve is smooth: ``"log"`` of a positive score, ``"logit"`` of one between
        0 and 1, the score itself (``"linear"``), or its ``"rank"`` among the items.
    level
        Mean and standard deviation of the Normal prior of the curve at the average position; None
        takes the curve's default.
    slope
        The same for the slope of the linear part, per unit of log or logit score, or per standard
        deviation of the position on the other scales. (The variance's default is per standard
        deviation on every scale.)
    wiggle
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
        OneOf(*_SCALES)(self.scale, "scale")
        # as Python numbers, for saved fits
        object.__setattr__(self, "knots", Whole(1, _MOST_KNOTS)(self.knots, "knots"))
        if self.wiggle is not None:
            object.__setattr__(self, "wiggle", POSITIVE(self.wiggle, "wiggle"))
        for name in ("level", "slope"):
            pair = getattr(self, name)
            if pair is None:
                continue
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise FitError(f"{name}={shown(pair)} must be (mean, standard deviation > 0)")
            mean = Real()(pair[0], f"mean of {name}")
            sd = POSITIVE(pair[1], f"standard deviation of {name}")
            object.__setattr__(self, name, (mean, sd))


class Constant(Spline):
    """A curve without slope or wiggle: one level for all scores.

    For few items, or where nothing but the level is of interest. In a prior it is kept as the
    `Spline` of one knot on the other curve's scale.

    Parameters
    ----------
    level
        Mean and standard deviation of the Normal prior of the level; None takes the curve's
        default.

    Raises
    ------
    FitError
        If the level is not a pair of a number and a positive number.

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
    curve_names: ClassVar[tuple[str, str]]  # of the two curves in the posterior
    # of numbers for each bin, where curves are steps (``soc.FiveSteps(smooth=False)``)
    parameter_names: ClassVar[tuple[str, str]]
    mixture: ClassVar[bool] = False

    @property
    def gridded(self) -> bool:
        """True if theta has components on a grid: mixtures, and shares of zeros."""
        return self.mixture or self.zero

    def __post_init__(self) -> None:
        for name in ("mean", "variance"):
            self._check(name, Spline, "soc.Spline(...) or soc.Constant()")
        for name, partner in (("mean", self.variance), ("variance", self.mean)):
            if isinstance(constant := getattr(self, name), Constant):
                level = Spline(knots=1, scale=partner.scale, level=constant.level)
                object.__setattr__(self, name, level)
        self._check("exposure", Spline | None, "soc.Spline(...) or None")
        size = self.exposure
        if size is not None and size != Spline(knots=size.knots, wiggle=size.wiggle):
            raise FitError(
                f"{type(self).__name__}(exposure=soc.Spline(...)) takes knots= and wiggle= alone: "
                "its axis is log exposure, and its level and slope are part of what shrinks to zero"
            )
        for switch in ("monotone", "bin_effects", "groups", "zero", "atoms"):
            hint = "" if switch in ("zero", "atoms") else _ONE_SWITCH
            self._check(switch, bool, "True or False", hint)

    def _check(self, option: str, kind: Any, rule: str, hint: str = "") -> None:
        if not isinstance(value := getattr(self, option), kind):
            name = type(self).__name__
            raise FitError(f"{name}({option}=) must be {rule}, not {shown(value)}{hint}")


@dataclass(frozen=True)
class _Mixture:
    """Further fields and checks of mixtures."""

    functions: int = 9
    knots: int = 4
    shape: float = 0.6
    drift: float = 0.1

    mixture: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        rules = {"functions": Whole(4, _MOST_KNOTS), "knots": Whole(1, _MOST_KNOTS)}
        for option, rule in (rules | {"shape": POSITIVE, "drift": POSITIVE}).items():
            number = rule(getattr(self, option), f"{type(self).__name__}: {option}")
            object.__setattr__(self, option, number)


@dataclass(frozen=True)
class Gamma(_Single):
    """theta given the score t is Gamma with E(theta | t) and Var(theta | t) smooth in t.

    Parameters
    ----------
    mean
        Curve of log E(theta | t).
    variance
        Curve of log cv2(t), where cv2 = Var(theta | t) / E(theta | t)^2. The smoothness penalty
        acts on log cv2, whose information is orthogonal to that of the mean; log Var(theta | t) is
        log cv2 + 2 log E(theta | t) and lies in the same span when both curves share an axis.
    exposure
        A smooth term in log exposure, added to both curves, if exposure is informative about theta
        beyond the score: E(theta | t, N). It needs joint cells, and its straight line is penalised
        too. None: theta depends only on the score.
    monotone
        Make E(theta | t) non-decreasing in every draw.
    bin_effects
        Let the log mean of every bin deviate from the curve by a Normal effect, which all groups
        and exposures share. A posterior of its scale near 0 means that the smooth curve is
        adequate. Neighbouring bins share an effect where there are more than 200.
    groups
        If the items have groups, give each its own deviations from the shared curves, with partial
        pooling; False pools them.
    zero
        Let theta be exactly 0 with probability pi(t), smooth in the score, and as above otherwise.
        The curves `mean` and `variance`, with their terms, are then those of theta that is not 0;
        results (`calibration_curves`, item posteriors, checks) are of all theta. All groups and
        exposures share pi(t). It needs joint cells, and theta is represented on a grid as for
        mixtures.
    atoms
        Give every score that many items share (`Statistics.atoms`), such as the default score of
        items without history, its own shifts of both curves, partially pooled towards 0. Its items
        then do not bend the curves beside it. False treats it as any other score.

    Raises
    ------
    FitError
        If a term is not what it must be.

    Examples
    --------
    >>> Gamma(mean=Spline(knots=10)).variance.knots
    20
    """

    family: ClassVar[str] = "Gamma"
    curve_names: ClassVar[tuple[str, str]] = ("log_mean", "log_cv2")
    parameter_names: ClassVar[tuple[str, str]] = ("shape", "rate")


@dataclass(frozen=True)
class Normal(_Single):
    """theta given the score t is Normal with E(theta | t) and Var(theta | t) smooth in t.

    Parameters
    ----------
    mean
        Curve of E(theta | t), in the unit of the values.
    variance
        Curve of log Var(theta | t).
    exposure, monotone, bin_effects, groups, zero, atoms
        As in `Gamma`, with the noise's sd for the exposure; bins deviate in the mean itself.

    Raises
    ------
    FitError
        If a term is not what it must be.

    Examples
    --------
    >>> Normal().mean.scale
    'linear'
    """

    family: ClassVar[str] = "Normal"
    curve_names: ClassVar[tuple[str, str]] = ("mean", "log_variance")
    parameter_names: ClassVar[tuple[str, str]] = ("mean", "variance")
    mean: Spline = Spline(scale="linear")
    variance: Spline = Spline(scale="linear")


@dataclass(frozen=True)
class Beta(_Single):
    """theta given the score t is Beta(a, b) with E(theta | t) and Var(theta | t) smooth in t.

    Parameters
    ----------
    mean
        Curve of the logit of E(theta | t). Its axis is the logit of the score, for scores between 0
        and 1; ``soc.Spline(scale="rank")`` takes any.
    variance
        Curve of g = log(1/a + 1/b): exp(g) is, to first order, the variance of logit theta and the
        squared coefficient of variation of its odds. With v = E(theta | t) (1 - E(theta | t)),
        Var(theta | t) = v^2 exp(g) / (1 + v exp(g)). For small rates it is the log cv2 of `Gamma`.
    exposure, monotone, bin_effects, groups, zero, atoms
        As in `Gamma`, with trials for the exposure; bins deviate in the logit of the mean.

    Raises
    ------
    FitError
        If a term is not what it must be.

    Examples
    --------
    >>> Beta().mean.scale
    'logit'
    """

    family: ClassVar[str] = "Beta"
    curve_names: ClassVar[tuple[str, str]] = ("logit_mean", "log_odds_cv2")
    parameter_names: ClassVar[tuple[str, str]] = ("a", "b")
    mean: Spline = Spline(scale="logit")
    variance: Spline = Spline(scale="logit")


@dataclass(frozen=True)
class GammaMixture(_Mixture, Gamma):
    """theta given the score t is a mixture of Gammas on a grid, with weights smooth in t.

    E(theta | t) and Var(theta | t) are those of the curves, as in `Gamma`; the data determine how
    far the rest of the shape departs from that Gamma. It needs statistics with joint cells.

    Parameters
    ----------
    mean, variance, exposure, monotone, bin_effects, groups, zero, atoms
        As in `Gamma`, with at most 40 effects of bins; all groups and exposures share the shape.
    functions
        Knots of the splines over components in the log weights.
    knots
        Knots over the score for drift of the log weights.
    shape, drift
        Standard deviations of the Normal priors of coefficients of the log weights: of the shape
        shared by all scores, and of its drift.

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
    mean, variance
        Curves of E(theta | t) and log Var(theta | t), as in `Normal`.
    exposure, monotone, bin_effects, groups, zero, atoms, functions, knots, shape, drift
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

    The grid holds positions of logit theta.

    Parameters
    ----------
    mean, variance
        Curves of the logit of E(theta | t) and of g, as in `Beta`.
    exposure, monotone, bin_effects, groups, zero, atoms, functions, knots, shape, drift
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


PRIORS = Gamma, Normal, Beta, GammaMixture, NormalMixture, BetaMixture
Prior = Gamma | Normal | Beta
"""Priors, mixtures included."""
