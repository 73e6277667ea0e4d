"""Fits with posterior draws written by hand, and items whose theta these curves made."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import special
from scipy.interpolate import CubicSpline

import soc_pymc as soc
from soc_pymc.fits import Fit, Status
from tests.family_records import RECORDS, SHAPE, prior_parameters, updated_parameters

KNOTS = np.log([0.005, 0.02, 0.05, 0.15, 0.5])
LOG_MEAN = KNOTS - 0.1 * np.tanh(KNOTS + 3)
LOG_CV2 = np.log(0.3) - 0.6 * np.tanh(KNOTS + 3)
WIDE_KNOTS = np.array([-2.0, -1.0, -0.3, 0.4, 1.1, 2.0])


@dataclass(frozen=True)
class Kind:
    """A kind of outcomes: its prior, its true curves at knots, and how items are simulated."""

    items: Any
    prior: Any
    roles: tuple[str, str, str]
    curves: tuple[str, str]
    knots: np.ndarray
    values: tuple[np.ndarray, np.ndarray]  # of both curves at the knots
    score: Callable[[Any], Any]  # from positions on the axis of knots to scores
    position: Callable[[Any], Any]  # and back
    positions: Callable[[Any, int], Any]
    sizes: Callable[[Any, int], Any]
    moments: Callable[[Any, Any], tuple[Any, Any]]  # from both curves to mean and variance of theta
    family: str  # of `tests.family_records.RECORDS`
    options: dict[str, Any] = field(default_factory=dict)  # of items

    def _prior(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        return prior_parameters(self.family, mean, variance)

    def theta(self, rng: Any, mean: Any, variance: Any) -> Any:
        law = RECORDS[self.family].theta(*self._prior(mean, variance))
        return law.rvs(np.shape(mean), random_state=rng)

    def likelihood(self, theta: Any, size: Any) -> Any:
        return RECORDS[self.family].outcome(theta, size)

    def outcome(self, rng: Any, theta: Any, size: Any) -> Any:
        return self.likelihood(theta, size).rvs(np.shape(theta), random_state=rng)

    def marginal(self, mean: Any, variance: Any, size: Any) -> Any:
        return RECORDS[self.family].marginal(*self._prior(mean, variance), size)

    def update(self, mean: Any, variance: Any, outcome: Any, size: Any) -> Any:
        prior = self._prior(mean, variance)
        after = updated_parameters(self.family, *prior, outcome, size)
        return RECORDS[self.family].theta(*after).mean()


def _odds_moments(logit_mean: Any, log_odds_cv2: Any) -> tuple[Any, Any]:
    mean = special.expit(logit_mean)
    a, b = np.exp(-log_odds_cv2) / (1 - mean), np.exp(-log_odds_cv2) / mean
    return mean, a * b / ((a + b) ** 2 * (a + b + 1))


KINDS = {
    "counts": Kind(
        items=soc.PoissonItems,
        prior=soc.Gamma(),
        roles=("score", "count", "exposure"),
        curves=("log_mean", "log_cv2"),
        knots=KNOTS,
        values=(LOG_MEAN, LOG_CV2),
        score=np.exp,
        position=np.log,
        positions=lambda rng, n: np.clip(rng.normal(np.log(0.05), 0.8, n), KNOTS[0], KNOTS[-1]),
        sizes=lambda rng, n: np.ceil(np.exp(rng.normal(np.log(6), 1.8, n))),
        moments=lambda log_mean, log_cv2: (np.exp(log_mean), np.exp(2 * log_mean + log_cv2)),
        family="Gamma",
    ),
    "values": Kind(
        items=soc.NormalItems,
        prior=soc.Normal(),
        roles=("score", "value", "noise_sd"),
        curves=("mean", "log_variance"),
        knots=WIDE_KNOTS,
        values=(0.5 + WIDE_KNOTS + 0.3 * np.sin(2 * WIDE_KNOTS), np.log(0.5) + 0.4 * WIDE_KNOTS),
        score=np.asarray,
        position=np.asarray,
        positions=lambda rng, n: rng.uniform(-2, 2, n),
        sizes=lambda rng, n: np.exp(rng.normal(-0.7, 0.7, n)),
        moments=lambda mean, log_variance: (mean, np.exp(log_variance)),
        family="Normal",
    ),
    "trials": Kind(
        items=soc.BinomialItems,
        prior=soc.Beta(),
        roles=("score", "successes", "trials"),
        curves=("logit_mean", "log_odds_cv2"),
        knots=WIDE_KNOTS,
        values=(-1.5 + 0.5 * WIDE_KNOTS, np.log(0.15) - 0.3 * np.tanh(WIDE_KNOTS)),
        score=special.expit,
        position=special.logit,
        positions=lambda rng, n: rng.uniform(-2, 2, n),
        sizes=lambda rng, n: 2 * np.ceil(np.exp(rng.normal(np.log(8), 1.2, n))),
        moments=_odds_moments,
        family="Beta",
    ),
}
KINDS["amounts"] = replace(
    KINDS["counts"],
    items=soc.AmountItems,
    prior=soc.InverseGamma(),
    roles=("score", "amount", "events"),
    sizes=lambda rng, n: np.ceil(np.exp(rng.normal(np.log(5), 1.6, n))),
    family="InverseGamma",
    options={"shape": SHAPE},
)


def hand_made_fit(
    kind: str = "counts",
    *,
    sd: float = 1e-6,
    first: float = 0.0,
    second: float = 0.0,
    draws: int = 50,
    status: Status | None = None,
    seed: int = 0,
) -> Fit:
    """Returns two chains of the true curves, moved by constants, with normal noise at each knot."""
    case, rng = KINDS[kind], np.random.default_rng(seed)
    noise = rng.normal(0, sd, (2, 2, draws, len(case.knots)))
    dims = [("chain", "draw", knot) for knot in ("mean_knot", "variance_knot")]
    curves = {
        name: (dim, values + moved + own_noise)
        for name, dim, values, moved, own_noise in zip(
            case.curves, dims, case.values, (first, second), noise, strict=True
        )
    }
    coords = {"chain": [0, 1], "draw": np.arange(draws)}
    coords |= {"mean_knot": case.knots, "variance_knot": case.knots}
    bins = xr.Dataset({"score": ("bin", case.score(case.knots))})
    groups = {"posterior": xr.Dataset(curves, coords), "constant_data": bins}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs["roles"] = json.dumps({role: role for role in case.roles})
    tree.attrs |= case.options
    status = status or Status(True, "made by hand", 0.3, 0.9, 0.0)
    return Fit(tree, case.prior, soc.VI(), status)


def _moments(kind: str, frame: pd.DataFrame, values: Any) -> tuple[np.ndarray, np.ndarray]:
    case = KINDS[kind]
    position = case.position(frame["score"].to_numpy())
    curves = (CubicSpline(case.knots, v, axis=-1, bc_type="natural")(position) for v in values)
    return case.moments(*curves)


def true_moments(frame: pd.DataFrame, kind: str = "counts") -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and variance of theta at each item's score, (n,)."""
    return _moments(kind, frame, KINDS[kind].values)


def moments_by_draw(
    fit: Fit, frame: pd.DataFrame, kind: str = "counts"
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and variance of theta under each draw of the curves, (draws, n)."""
    values = (fit.data["posterior"][name].to_numpy() for name in KINDS[kind].curves)
    return _moments(kind, frame, [v.reshape(-1, v.shape[-1]) for v in values])


def simulate(n: int, seed: int, kind: str = "counts", theta: Any = None) -> pd.DataFrame:
    """Returns items of the model, or with another law of theta: (generator, mean, variance)."""
    case, rng = KINDS[kind], np.random.default_rng(seed)
    frame = pd.DataFrame({"score": case.score(case.positions(rng, n))})
    frame[case.roles[2]] = case.sizes(rng, n)
    frame["theta"] = (theta or case.theta)(rng, *true_moments(frame, kind))
    frame[case.roles[1]] = case.outcome(rng, frame["theta"], frame[case.roles[2]])
    frame["country"] = rng.choice(["de", "fr", None], n, p=[0.6, 0.3, 0.1])
    return frame


def as_items(frame: pd.DataFrame, kind: str = "counts", **roles: str) -> Any:
    case = KINDS[kind]
    return case.items(frame, **{role: role for role in case.roles}, **case.options, **roles)


def columns_of(frame: pd.DataFrame, kind: str = "counts") -> dict[str, np.ndarray]:
    return {role: frame[role].to_numpy(dtype=float) for role in KINDS[kind].roles}


def lognormal(rng, mean, variance):
    return mean * rng.lognormal(-0.72, 1.2, len(mean))


def faulty_frame(fault):
    """Returns counts with one departure from a Gamma that is smooth in the score."""
    if fault == "shape":
        return simulate(6000, 4, theta=lognormal)
    frame, rng = simulate(4000, 4), np.random.default_rng(1)
    shop = rng.integers(0, 200, 4000)
    frame = frame.assign(kind=rng.choice(list("abc"), 4000), shop=[f"shop {k}" for k in shop])
    effects = {
        "exposure": np.exp(0.2 * np.log(frame["exposure"] / 6)),
        "zeros": rng.random(4000) > 0.3,
        "level": np.where(frame["kind"] == "b", 1.6, 0.75),
        "cluster": np.exp(rng.normal(0.0, 0.7, 200))[shop],
        "wiggle": np.exp(0.8 * np.sin(4.0 * np.log(frame["score"]))),
        "bias": 1.3,
    }
    rate = frame["theta"] * effects[fault] * frame["exposure"]
    return frame.assign(count=np.random.default_rng(0).poisson(rate))
