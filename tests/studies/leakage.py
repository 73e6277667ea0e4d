"""False alarms and power of soc.evaluate.leakage, and what a leak does to posteriors.

python -m tests.studies leakage [--simulations 40] [--items 5000]
"""

import warnings

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict

import soc_pymc as soc
from tests.studies import common

HONEST = ("s1", "informative", "coarse", "sure", "trials", "values", "others")
MIXES = ("mix .05", "mix .1", "mix .2", "mix .5")
MODELS = ("tree", "leaves of 20", "leaves of 5", "boosting", "linear")


def items_of(frame: pd.DataFrame) -> soc.PoissonItems | soc.NormalItems:
    return common.values(frame) if "value" in frame else common.counts(frame)


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
        columns = {"value": y, "noise_sd": noise, "fresh": fresh}
        return pd.DataFrame({"score": np.log(frame["score"]), **columns})
    if kind == "trials":
        theta = np.minimum(3 * theta, 0.95)
        count, fresh = rng.binomial(exposure.astype(int), theta, (2, n))
    else:
        count, fresh = rng.poisson(theta * exposure, (2, n))
    return frame.assign(theta=theta, count=count, fresh=fresh)


def fresh_of(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**{"value" if "value" in frame else "count": frame["fresh"]})


def features(frame: pd.DataFrame, seed: int) -> np.ndarray:
    """A noisy view of the score, and three of nothing."""
    rng = np.random.default_rng([seed, 2])
    noisy = np.log(frame["score"]) + rng.normal(0, 0.3, len(frame))
    return np.column_stack([noisy, rng.normal(size=(len(frame), 3))])


def regressor(kind: str):  # type: ignore[no-untyped-def]
    """Models that learn their items' outcomes by heart, more and less."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import PoissonRegressor
    from sklearn.tree import DecisionTreeRegressor

    if kind == "linear":
        return PoissonRegressor(alpha=1e-6, max_iter=300)
    if kind == "boosting":
        return HistGradientBoostingRegressor(loss="poisson", max_iter=80, random_state=0)
    leaves = {"tree": 1, "leaves of 20": 20, "leaves of 5": 5}
    return DecisionTreeRegressor(min_samples_leaf=leaves[kind], random_state=0)


def one(kind: str, n: int, seed: int) -> dict[str, bool]:
    """Which evidence raises an alarm."""
    frame = world(n, seed, kind if kind in HONEST else "s1")
    other = None
    if kind.startswith("mix"):
        w = float(kind[3:])
        frame["score"] = w * frame["count"] / frame["exposure"] + (1 - w) * frame["score"]
    elif kind in MODELS or kind == "others":
        X, y, size = features(frame, seed), frame["count"], frame["exposure"]
        # an honest model has seen as many other items
        training, X_training, model = frame, X, regressor(kind if kind in MODELS else "boosting")
        if kind == "others":
            training = world(n, seed + 10_000)
            X_training = features(training, seed + 10_000)
        rate = training["count"] / training["exposure"]
        model.fit(X_training, rate, sample_weight=training["exposure"])
        folds = KFold(5, shuffle=True, random_state=seed)
        weights = {"sample_weight": size}
        unseen = cross_val_predict(clone(model), X, y / size, cv=folds, params=weights)
        frame["score"] = np.maximum(model.predict(X), 1e-5)
        other = items_of(frame.assign(score=np.maximum(unseen, 1e-5)))
    fresh = items_of(fresh_of(frame))
    result = soc.evaluate.leakage(items_of(frame), fresh=fresh, out_of_fold=other)
    evidence = result.table.set_index("where")
    # each as if it were alone
    alarm = evidence["p"] < 0.05
    if "out-of-fold scores" in evidence.index:
        alarm["out-of-fold scores"] &= evidence.loc["out-of-fold scores", "value"] > 0.05
    alarm["any of them"] = (evidence["verdict"] == "fail").any()
    return alarm.to_dict() | {"slope": evidence["value"].get("fresh outcomes", np.nan)}


def damage(n: int, w: float, seed: int = 0) -> dict[str, float]:
    """What a leak of weight w does to posteriors of five steps, against the truth.

    The default bins hold 20 items, of which moments of log theta would be noise.
    """
    frame = soc.simulation.s1(n, seed=seed)
    rate = frame["count"] / frame["exposure"]
    frame["score"] = w * rate + (1 - w) * frame["score"]
    method = soc.FiveSteps(moments="plain")
    items = common.counts(frame)
    scored = common.posteriors(common.fitted(items, method=method, on_leakage="ignore"), items)
    squared, variance = (scored["theta_mean"] - frame["theta"]) ** 2, scored["theta_var"]
    row = {"w": w, "squared error": squared.mean(), "posterior variance": variance.mean()}
    row["standardised"] = (squared / variance).mean()
    return row | {"within 90%": common.items_covered(scored).mean()}


def main() -> None:
    warnings.simplefilter("ignore")
    kinds = common.Choice(HONEST + MIXES + MODELS)
    small = {"simulations": 2, "items": 1000, "kinds": ["s1", "mix .5", "leaves of 20", "others"]}
    chosen = common.options(__doc__, small, simulations=40, items=5000, kinds=kinds)
    weights = (0, 0.02, 0.05, 0.1, 0.2, 0.5)
    common.show(pd.DataFrame([damage(4 * chosen.items, w) for w in weights]))
    shares = {}
    for kind in chosen.kinds:
        alarms = [one(kind, chosen.items, seed) for seed in range(chosen.simulations)]
        shares[kind] = pd.DataFrame(alarms).astype(float).mean()
    common.show(pd.DataFrame(shares).T, digits=2)
