"""Items with two scores of known quality."""

import numpy as np
import pandas as pd


def simulated(n_items: int, seed: int, apart: float = 0.3) -> tuple[pd.DataFrame, float]:
    """Items whose theta is a product of three factors, of which scores know two, or one.

    theta = m g h with E g = E h = 1, g lognormal with variance `apart` of its logarithm, h
    Gamma; the score ``a`` is m g, ``b`` is m. So E(theta | a) = a and E(theta | b) = b, and theta
    is Gamma given a but not given b.
    Returns the items, and the difference b - a of Var E(theta | t) between all items like these.
    """
    rng = np.random.default_rng(seed)
    level, spread = np.log(0.05), 0.6
    m = np.exp(rng.normal(level, spread, n_items))
    g = np.exp(rng.normal(-apart / 2, np.sqrt(apart), n_items))
    h = rng.gamma(4.0, 0.25, n_items)
    exposure = np.ceil(np.exp(rng.normal(np.log(20), 1.5, n_items)))
    count = rng.poisson(m * g * h * exposure)
    square = np.exp(2 * level + spread**2)
    difference = float(square * (np.exp(spread**2) - np.exp(spread**2 + apart)))
    return pd.DataFrame({"a": m * g, "b": m, "exposure": exposure, "count": count}), difference
