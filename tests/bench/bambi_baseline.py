"""Bambi's negative binomial distributional model on the same items; needs `pip install bambi`."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["bambi_fit", "unavailable"]

Floats = NDArray[np.float64]


def unavailable() -> str:
    """Why Bambi cannot be used ("" if it can)."""
    try:
        import bambi  # noqa: F401
    except ModuleNotFoundError as error:
        return f"not installed ({error.name})"
    except Exception as error:
        return f"installed but does not import: {error!r}"
    return ""


def _columns(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "count": frame["count"],
            "log_score": np.log(frame["score"]),
            "log_exposure": np.log(frame["exposure"]),
        }
    )


def bambi_fit(frame: pd.DataFrame, scores: Floats, **options: Any) -> tuple[Floats, Floats]:
    """The 90% pointwise bands of log mean and log cv2 at scores, shape (2, scores).

    Parameters
    ----------
    frame
        Items with score, exposure and count.
    scores
        Where the bands are wanted.
    **options
        Of ``bambi.Model.fit``.
    """
    import bambi

    formula = bambi.Formula(
        "count ~ bs(log_score, df=8) + offset(log_exposure)", "alpha ~ bs(log_score, df=8)"
    )
    model = bambi.Model(formula, _columns(frame), family="negativebinomial")
    draws = model.fit(**options)
    if not hasattr(draws, "posterior"):  # an approximation, from variational inference
        draws = draws.sample(1000)
    at = pd.DataFrame({"log_score": np.log(scores), "log_exposure": 0.0})
    predicted = model.predict(draws, kind="response_params", data=at, inplace=False)["posterior"]
    mean, shape = (predicted[name].to_numpy().reshape(-1, len(scores)) for name in ("mu", "alpha"))
    low, high = np.quantile([np.log(mean), -np.log(shape)], [0.05, 0.95], axis=1)
    return low, high
