"""False alarms and power of soc.evaluate.leakage, and what a leak does to posteriors.

Run: python -m tests.studies.leakage [number of simulations] [items]
"""

import sys
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

import soc_pymc as soc

ROLES = {"count": "count", "exposure": "exposure"}
HONEST = ("s1", "informative", "coarse", "sure", "trials", "values", "others")
MIXES = ("mix .05", "mix .1", "mix .2", "mix .5")
MODELS = ("tree", "leaves of 20", "leaves of 5", "boosting", "linear")


def items_of(frame: pd.DataFrame) -> soc.PoissonItems | soc.NormalItems:
    """Items of a frame of counts or values."""
    if "value" in frame:
        return soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    return soc.PoissonItems(frame, score="score", **ROLES)


def world(n: int, seed: int, kind: str = "s1") -> pd.DataFrame:
    """Items with honest scores, their theta, and fresh counts (``fresh``, in the same exposure)."""
    rng = np.random.default_rng([seed, 1])
    frame = soc.simulation.s1(n, seed=seed)
    theta, exposure = frame["theta"].to_numpy(), frame["exposure"].to_numpy()
    if kind == "informative":  # items with more exposure have a higher theta, and vary less
        cv2 = frame["true_cv2"].to_numpy() / (1 + exposure / 30)
        theta = rng.gamma(1 / cv2, frame["true_mean"] * cv2 * (exposure / 6) ** 0.25)
    if kind == "coarse":
        frame["score"] = np.exp(np.round(2 * np.log(frame["score"])) / 2)
    if kind == "sure":
        theta = frame["true_mean"].to_numpy()
    if kind == "values":
        noise = rng.choice([0.5, 1.0, 3.0], n)
        effect = np.log(frame["score"]) + rng.normal(0, 0.5, n)
        y, fresh = (effect + noise * rng.normal(size=n) for _ in range(2))
        return pd.DataFrame(
            {"score": np.log(frame["score"]), "value": y, "noise_sd": noise, "fresh": fresh}
        )
    draw: Callable[[], np.ndarray] = lambda: rng.poisson(theta * exposure)  # noqa: E731
    if kind == "trials":
        theta = np.minimum(3 * theta, 0.95)
        draw = lambda: rng.binomial(exposure, theta)  # noqa: E731
    return frame.assign(theta=theta, count=draw(), fresh=draw())


def fresh_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The same items with their fresh outcomes."""
    return frame.assign(**{"value" if "value" in frame else "count": frame["fresh"]})


def features(frame: pd.DataFrame, seed: int) -> np.ndarray:
    """A noisy view of the score, and three of nothing."""
    rng = np.random.default_rng([seed, 2])
    n = len(frame)
    return np.column_stack(
        [np.log(frame["score"]) + rng.normal(0, 0.3, n), rng.normal(size=(n, 3))]
    )


def regressor(kind: str):  # type: ignore[no-untyped-def]
    """Models that learn their items' outcomes by heart, more and less."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import PoissonRegressor
    from sklearn.tree import DecisionTreeRegressor

    return {
        "tree": lambda: DecisionTreeRegressor(random_state=0),
        "leaves of 20": lambda: DecisionTreeRegressor(min_samples_leaf=20, random_state=0),
        "leaves of 5": lambda: DecisionTreeRegressor(min_samples_leaf=5, random_state=0),
        "boosting": lambda: HistGradientBoostingRegressor(
            loss="poisson", max_iter=80, random_state=0
        ),
        "linear": lambda: PoissonRegressor(alpha=1e-6, max_iter=300),
    }[kind]()


def one(kind: str, n: int, seed: int) -> dict[str, bool]:
    """Which evidence raises an alarm."""
    frame = world(n, seed, kind if kind in HONEST else "s1")
    other = None
    if kind.startswith("mix"):
        w = float(kind[3:])
        frame["score"] = w * frame["count"] / frame["exposure"] + (1 - w) * frame["score"]
    elif kind in MODELS or kind == "others":
        X, y, size = features(frame, seed), frame["count"], frame["exposure"]
        model = regressor("boosting" if kind == "others" else kind)
        # an honest model has seen as many other items
        seen = world(n, seed + 10_000) if kind == "others" else frame
        rate = seen["count"] / seen["exposure"]
        own = features(seen, seed + 10_000) if kind == "others" else X
        model.fit(own, rate, sample_weight=seen["exposure"])
        folds, _ = soc.evaluate.cross_fit(model, X, y, exposure=size, least=1e-5, seed=seed)
        frame["score"] = np.maximum(model.predict(X), 1e-5)
        other = items_of(frame.assign(score=folds))
    fresh = items_of(fresh_of(frame))
    found = soc.evaluate.leakage(items_of(frame), fresh=fresh, out_of_fold=other).table
    # each as if it were alone
    alone = found["p_value"] < 0.05
    if "out-of-fold scores" in found.index:
        alone["out-of-fold scores"] &= found.loc["out-of-fold scores", "effect"] > 0.05
    alone["any of them"] = found["leaks"].any()
    return alone.to_dict() | {"slope": found["effect"].get("fresh outcomes", np.nan)}


def alarms(number: int, n: int, kinds: tuple[str, ...] = HONEST + MIXES + MODELS) -> pd.DataFrame:
    """Share of simulations with an alarm, by kind of scores and evidence."""
    rows = {}
    for kind in kinds:
        rows[kind] = (
            pd.DataFrame([one(kind, n, seed) for seed in range(number)]).astype(float).mean()
        )
        print(kind, rows[kind].round(2).to_dict(), flush=True)
    return pd.DataFrame(rows).T


def damage(n: int, w: float, seed: int = 0) -> dict[str, float]:
    """What a leak of weight w does to posteriors of five steps, against the truth.

    The default bins hold 20 items, of which moments of log theta would be noise.
    """
    frame = soc.simulation.s1(n, seed=seed)
    rate = frame["count"] / frame["exposure"]
    frame["score"] = w * rate + (1 - w) * frame["score"]
    stats = soc.summarize(items_of(frame), on_leakage="ignore", progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(moments="plain"), progress=False)
    scored = soc.item_posteriors(fit, items_of(frame), progress=False)
    theta, off = frame["theta"], scored["theta_mean"] - frame["theta"]
    inside = (theta >= scored["theta_q05"]) & (theta <= scored["theta_q95"])
    return {
        "w": w,
        "squared error": float((off**2).mean()),
        "posterior variance": float(scored["theta_var"].mean()),
        "standardised": float((off**2 / scored["theta_var"]).mean()),
        "within 90%": float(inside.mean()),
    }


def main() -> None:
    """Print both tables."""
    warnings.simplefilter("ignore")
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    print(pd.DataFrame([damage(20_000, w) for w in (0, 0.02, 0.05, 0.1, 0.2, 0.5)]).round(5))
    print(alarms(number, n).round(2).to_string())


if __name__ == "__main__":
    main()
