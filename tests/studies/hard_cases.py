"""Hard cases: each ends in a right answer or a named failure, never in a quiet wrong one.

    python -m tests.studies.hard_cases [--no-reference]

Every case is fitted by default and by NUTS on the same model. Where variational inference says that
it converged, its curves must be those of NUTS.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.studies.common import Choice, against, counts, fit, options, show, summarize

Rng = np.random.Generator


def _case(rng: Rng, score, exposure, cv2: float = 0.25, mean: float = 0.05) -> pd.DataFrame:
    """Counts whose theta has one mean and one cv2 for all scores; cv2 0 is a constant theta."""
    exposure = np.broadcast_to(exposure, np.shape(score))
    theta = mean if cv2 == 0 else rng.gamma(1 / cv2, mean * cv2, len(score))
    return pd.DataFrame(
        {"score": score, "exposure": exposure, "count": rng.poisson(theta * exposure)}
    )


def _outlier(rng: Rng) -> pd.DataFrame:
    frame = _case(rng, rng.lognormal(-3, 0.5, 3000), 50)
    frame.loc[len(frame) - 1, ["exposure", "count"]] = 10**6
    return frame


CASES: dict[str, Callable[[Rng], pd.DataFrame]] = {
    "all counts zero": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 2000), 20, mean=0.0),
    "theta constant": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 5000), 50, cv2=0.0),
    "two scores": lambda rng: _case(rng, rng.choice([0.03, 0.08], 2000), 50),
    "five items": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 5), 20),
    "bins of one item": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 100), 50),
    "one far item": lambda rng: _case(rng, np.r_[rng.lognormal(-3, 0.2, 3000), 50.0], 50),
    "cv2 of 10": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 5000), 50, cv2=10.0),
    "two far clusters": lambda rng: _case(
        rng, np.exp(rng.choice([-9.0, 2.0], 4000) + 0.1 * rng.normal(size=4000)), 50, cv2=0.0
    ),
    "item with a count of a million": _outlier,
    "scores unrelated to theta": lambda rng: _case(rng, rng.lognormal(-3, 2.0, 4000), 50),
    "exposures of 1e9": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 3000), 10**9),
    "exposures of 0.001": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 3000), 0.001, mean=1.0),
}
"""Name of each case and what makes its items from a random generator."""


def summarized(case: str, seed: int = 5) -> soc.Statistics:
    """Statistics of a case; every item has a bin of its own where bins have one item."""
    frame = CASES[case](np.random.default_rng(seed))
    bins = len(frame) if case == "bins of one item" else None
    return summarize(counts(frame), bins=bins, on_leakage="ignore")


def knots(fitted: soc.Fit) -> np.ndarray:
    draws = [fitted.data["posterior"][name].to_numpy() for name in ("log_mean", "log_cv2")]
    return np.hstack([curve.reshape(-1, curve.shape[-1]) for curve in draws])


def main() -> None:
    small = {"cases": ["two scores", "five items"], "draws": 200}
    chosen = options(__doc__, small, cases=Choice(CASES), draws=2000, no_reference=False)
    rows = {}
    for case in chosen.cases:
        stats = summarized(case)
        model = fit(stats, method=soc.VI(draws=4000))
        rows[case] = {"converged": model.status.converged, "Pareto k": model.status.pareto_k}
        if not chosen.no_reference:
            nuts = fit(stats, method=soc.NUTS(draws=chosen.draws, tune=1500, chains=2, seed=1))
            rows[case] |= against(knots(model), knots(nuts)) | {"NUTS": nuts.status.converged}
    show(pd.DataFrame(rows).T, digits=3)


if __name__ == "__main__":
    main()
