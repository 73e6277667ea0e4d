"""What libraries that people compare with do with the same simulated tables, ours beside them.

    uv pip install betacal catboost crepes glum lightgbm mapie netcal statsmodels venn-abers xgboost
    python -m tests.studies neighbours labels|rates|outcomes

`labels`: calibrated probabilities of labels, by case. `rates`: predicted over observed events of
models of counts with exposures, and the error of log rates. `outcomes`: coverage of 90% intervals
by fifth of exposure. A library that is not installed is left out.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

import soc_pymc as soc
from tests.studies.common import options, show

Calibrator = Callable[..., np.ndarray]
CASES = ("default scores", "float32", "ties", "no event", "weights", "20 labels")


class Given:
    """A fitted model whose prediction is the score itself."""

    classes_ = np.array([0, 1])
    _estimator_type = "classifier"

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None) -> "Given":
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(X)[:, 0]

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.stack([1 - self.predict(X), self.predict(X)], axis=1)


def isotonic(t: Any, y: Any, at: Any, w: Any = None) -> np.ndarray:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(out_of_bounds="clip").fit(t, y, sample_weight=w).predict(at)


def platt(t: Any, y: Any, at: Any, w: Any = None) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=np.inf).fit(t[:, None], y, sample_weight=w)
    return model.predict_proba(at[:, None])[:, 1]


def temperature(t: Any, y: Any, at: Any, w: Any = None) -> np.ndarray:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    scores = type("Scores", (ClassifierMixin, Given, BaseEstimator), {})()
    model = CalibratedClassifierCV(FrozenEstimator(scores), method="temperature")
    return model.fit(t[:, None], y, sample_weight=w).predict_proba(at[:, None])[:, 1]


def beta(t: Any, y: Any, at: Any, w: Any = None) -> np.ndarray:
    from betacal import BetaCalibration

    return BetaCalibration("abm").fit(t[:, None], y, w).predict(at[:, None])


def venn_abers(t: Any, y: Any, at: Any, w: Any = None) -> np.ndarray:
    from venn_abers import VennAbers

    if w is not None:
        raise TypeError("it takes no weights")
    model = VennAbers()
    model.fit(np.stack([1 - t, t], axis=1), y)
    return model.predict_proba(np.stack([1 - at, at], axis=1))[0][:, 1]


def netcal(module: str, name: str, **settings: Any) -> Calibrator:
    def run(t: Any, y: Any, at: Any, w: Any = None) -> np.ndarray:
        from importlib import import_module

        if w is not None:
            raise TypeError("it takes no weights")
        model = getattr(import_module(f"netcal.{module}"), name)(**settings)
        model.fit(t, y)
        return model.transform(at)

    return run


def our_labels(t: Any, y: Any, at: Any, w: Any = None) -> np.ndarray:
    weights = {} if w is None else {"sample_weight": w}
    return soc.SecondOrderCalibrator().fit(t, y, **weights).predict(at)


CALIBRATORS = {
    "isotonic": isotonic,
    "Platt": platt,
    "temperature": temperature,
    "beta": beta,
    "Venn-Abers": venn_abers,
    "histogram (netcal)": netcal("binning", "HistogramBinning", bins=20),
    "beta (netcal)": netcal("scaling", "BetaCalibration"),
    "soc_pymc": our_labels,
}
"""Functions of scores, labels, new scores and any weights that return new probabilities."""


def labels_of_case(case: str, calibrate: Calibrator, seed: int) -> Any:
    """What a calibrator makes of a case: probabilities, a difference, or a loss in nats."""
    rng = np.random.default_rng(seed)
    number = 20 if case == "20 labels" else 5000
    t = special.expit(rng.normal(0.0, 1.5, number))
    y = rng.binomial(1, special.expit(0.6 * special.logit(t)))
    at = np.array([0.05, 0.5, 0.95])  # the truth is 0.146, 0.5, 0.854
    match case:
        case "default scores":  # 2% of scores say nothing
            t[:50], t[50:100], y[:100] = 0.0, 1.0, rng.binomial(1, 0.5, 100)
            return calibrate(t, y, at)
        case "float32":
            return calibrate(t.astype("f4"), y, at.astype("f4")) - calibrate(t, y, at)
        case "ties":  # a score's own share of labels is 0.3, 0.1, 0.7
            t = np.repeat([0.1, 0.2, 0.5], 2000)
            y = np.tile(np.arange(2000), 3) < np.repeat([600, 200, 1400], 2000)
            return calibrate(t, y.astype(int), np.array([0.1, 0.2, 0.5]))
        case "no event":
            return calibrate(t[:500], np.zeros(500, dtype=int), at)
        case "weights":
            w = rng.integers(1, 4, 500)
            repeated = calibrate(np.repeat(t[:500], w), np.repeat(y[:500], w), at)
            return calibrate(t[:500], y[:500], at, w.astype(float)) - repeated
    at = special.expit(rng.normal(0.0, 1.5, 2000))
    truth, p = special.expit(0.6 * special.logit(at)), calibrate(t, y, at)
    return np.mean(special.rel_entr(truth, p) + special.rel_entr(1 - truth, 1 - p))


def labels(seeds: int) -> pd.DataFrame:
    """One row a calibrator, one column a case; of 20 labels the mean loss over seeds."""
    rows: dict[str, dict[str, str]] = {}
    for name, calibrate in CALIBRATORS.items():
        for case in CASES:
            try:
                repeats = range(seeds if case == "20 labels" else 1)
                found = np.mean([labels_of_case(case, calibrate, s) for s in repeats], axis=0)
                text = " ".join(f"{x:.2g}" for x in np.atleast_1d(found))
            except ImportError:
                break
            except Exception as error:  # a refusal is a result
                text = type(error).__name__
            rows.setdefault(name, {})[case] = text
    return pd.DataFrame(rows).T


def sklearn_rates(x: Any, y: Any, n: Any) -> np.ndarray:
    from sklearn.linear_model import PoissonRegressor

    return PoissonRegressor(alpha=0).fit(x, y / n, sample_weight=n).predict(x)


def statsmodels_rates(x: Any, y: Any, n: Any) -> np.ndarray:
    import statsmodels.api as sm

    design = sm.add_constant(x)
    model = sm.GLM(y, design, family=sm.families.Poisson(), exposure=n).fit()
    return np.exp(design @ model.params)


def glum_rates(x: Any, y: Any, n: Any) -> np.ndarray:
    from glum import GeneralizedLinearRegressor

    model = GeneralizedLinearRegressor(family="poisson", alpha=0)
    return model.fit(x, y, offset=np.log(n)).predict(x)


def lightgbm_rates(x: Any, y: Any, n: Any, weigh: bool = False) -> np.ndarray:
    import lightgbm as lgb

    size = {"weight": n} if weigh else {"init_score": np.log(n)}
    data = lgb.Dataset(x, y / n if weigh else y, **size)
    settings = {"objective": "poisson", "verbose": -1, "num_threads": 1}
    return lgb.train(settings, data, 100).predict(x)


def xgboost_rates(x: Any, y: Any, n: Any) -> np.ndarray:
    import xgboost as xgb

    data = xgb.DMatrix(x, y, base_margin=np.log(n))
    model = xgb.train({"objective": "count:poisson", "nthread": 1}, data, 100)
    return model.predict(xgb.DMatrix(x, base_margin=np.zeros(len(x))))


def catboost_rates(x: Any, y: Any, n: Any) -> np.ndarray:
    from catboost import CatBoostRegressor, Pool

    model = CatBoostRegressor(loss_function="Poisson", iterations=100, verbose=0)
    model.fit(Pool(x, y / n, weight=n))
    return model.predict(Pool(x), prediction_type="Exponent")


def our_rates(x: Any, y: Any, n: Any) -> np.ndarray:
    score = 0.01 * np.exp(x[:, 0])  # the right order, wrong in size
    return soc.SecondOrderCalibrator().fit(score, y, exposure=n).predict(score)


MODELS = {
    "PoissonRegressor": sklearn_rates,
    "statsmodels, exposure": statsmodels_rates,
    "glum, offset": glum_rates,
    "LightGBM, init_score": lightgbm_rates,
    "LightGBM, weight": lambda x, y, n: lightgbm_rates(x, y, n, weigh=True),
    "XGBoost, base_margin": xgboost_rates,
    "CatBoost, weight": catboost_rates,
    "soc_pymc": our_rates,
}
"""Functions of a feature, counts and exposures that return rates."""


def rates(number: int) -> pd.DataFrame:
    """One row a model; predicted over observed events and rms error of log rates, by true rate."""
    rng = np.random.default_rng(0)
    x, n = rng.normal(size=(number, 1)), rng.gamma(2.0, 0.5, number)
    rows: dict[str, dict[str, float]] = {}
    for rate in (0.1, 0.001):
        theta = rate * np.exp(0.3 * x[:, 0])
        y = rng.poisson(theta * n)
        for name, model in MODELS.items():
            try:
                found = model(x, y, n)
            except ImportError:
                continue
            row = rows.setdefault(name, {})
            row[f"ratio at {rate}"] = float(found @ n / y.sum())
            row[f"error at {rate}"] = float(np.sqrt(np.mean(np.log(found / theta) ** 2)))
    return pd.DataFrame(rows).T


def outcomes(number: int) -> pd.DataFrame:
    """Coverage of observed rates (conformal) or of theta (ours) by fifth of exposure."""
    rng = np.random.default_rng(0)
    t, n = rng.gamma(4.0, 0.025, 2 * number), np.exp(rng.normal(3.5, 1.2, 2 * number))
    theta = t * rng.gamma(5.0, 0.2, 2 * number)
    y = rng.poisson(theta * n)
    rate, sigma = y / n, np.sqrt(t / n)
    fifth = pd.qcut(n, 5, labels=False)
    old, new = slice(None, number), slice(number, None)

    def mapie() -> Any:
        from mapie.regression import SplitConformalRegressor
        from sklearn.base import BaseEstimator, RegressorMixin

        scores = type("Scores", (RegressorMixin, Given, BaseEstimator), {})()
        model = SplitConformalRegressor(scores, confidence_level=0.9, prefit=True)
        model.conformalize(t[old, None], rate[old])
        return model.predict_interval(t[new, None])[1][:, :, 0].T

    def crepes(**by: np.ndarray) -> Any:
        from crepes import ConformalRegressor

        model = ConformalRegressor().fit(rate[old] - t[old], **{k: v[old] for k, v in by.items()})
        return model.predict_int(t[new], confidence=0.9, **{k: v[new] for k, v in by.items()}).T

    def ours() -> Any:
        model = soc.SecondOrderCalibrator().fit(t[old], y[old], exposure=n[old])
        return model.predict_interval(t[new]).T

    rows = {}
    for name, work, truth in (
        ("MAPIE, split conformal", mapie, rate),
        ("crepes, sigmas sqrt(t / N)", lambda: crepes(sigmas=sigma), rate),
        ("crepes, bins by exposure", lambda: crepes(bins=fifth), rate),
        ("the same, of theta", lambda: crepes(bins=fifth), theta),
        ("soc_pymc, of theta", ours, theta),
    ):
        try:
            low, high = work()
        except ImportError:
            continue
        inside = (low <= truth[new]) & (truth[new] <= high)
        rows[name] = pd.Series(inside).groupby(fifth[new]).mean().add_prefix("fifth ")
    return pd.DataFrame(rows).T


def main() -> None:
    parts = {"labels": (labels, 60), "rates": (rates, 100_000), "outcomes": (outcomes, 4000)}
    chosen = options(__doc__, {"number": 1}, part=parts, number=0)
    run, usual = parts[chosen.part]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one class, of ties, of scores beyond others
        show(run(chosen.number or usual))
