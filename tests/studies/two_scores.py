"""Coverage of intervals for the difference of two scores of the same items.

Run: python -m tests.studies.two_scores [number of simulations] [items]
"""

import sys

import numpy as np
import pandas as pd

import soc_pymc as soc

LEVELS = (0.5, 0.9)


def simulated(n_items: int, seed: int, apart: float = 0.3) -> tuple[pd.DataFrame, float]:
    """Items whose theta is a product of three factors, of which scores know two, or one.

    theta = m g h with E g = E h = 1, g lognormal with variance `apart` of its logarithm, h
    Gamma; the score ``a`` is m g, ``b`` is m. So E(theta | a) = a and E(theta | b) = b, and theta
    is Gamma given a but not given b.

    Returns
    -------
    tuple
        The items, and the difference b - a of Var E(theta | t) between all items like these.
    """
    rng = np.random.default_rng(seed)
    level, spread = np.log(0.05), 0.6
    m = np.exp(rng.normal(level, spread, n_items))
    g = np.exp(rng.normal(-apart / 2, np.sqrt(apart), n_items))
    h = rng.gamma(4.0, 0.25, n_items)
    exposure = np.ceil(np.exp(rng.normal(np.log(20), 1.5, n_items)))
    frame = pd.DataFrame(
        {"a": m * g, "b": m, "exposure": exposure, "count": rng.poisson(m * g * h * exposure)}
    )
    square = np.exp(2 * level + spread**2)
    return frame, float(square * (np.exp(spread**2) - np.exp(spread**2 + apart)))


def one(n_items: int, seed: int, apart: float = 0.3) -> dict[str, float]:
    """One simulation: truth, posterior mean, sd, and the interval's ends."""
    frame, everywhere = simulated(n_items, seed, apart)
    pairs = {}
    for name in ("a", "b"):
        items = soc.PoissonItems(frame, score=name, count="count", exposure="exposure")
        stats = soc.summarize(items, progress=False)
        pairs[name] = soc.fit(stats, method=soc.VI(seed=seed), progress=False), items
    found = soc.quantities.compare_scores(pairs, seed=seed, progress=False)
    draws = -found["unexplained"].to_numpy().ravel()
    row = {
        "truth": float(frame["b"].var(ddof=0) - frame["a"].var(ddof=0)),
        "everywhere": everywhere,
        "mean": draws.mean(),
        "sd": draws.std(),
        "correlation": float(found["correlation"][0]),
    }
    parts = {k: soc.quantities.variance_parts(fit) for k, (fit, _) in pairs.items()}
    for what in ("explained", "unexplained", "total"):
        both = [parts[k][what].to_numpy().ravel() for k in ("a", "b")]
        row[f"{what}_apart"] = float(both[1].mean() - both[0].mean())
        row[f"{what}_sd"] = float(np.hypot(*(x.std() for x in both)))
    for level in LEVELS:
        low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2])
        row[f"in{level:.0%}"] = float(low <= row["truth"] <= high)
    return row


def study(number: int, n_items: int, apart: float) -> pd.DataFrame:
    """Many of them."""
    return pd.DataFrame([one(n_items, seed, apart) for seed in range(number)])


def main() -> None:
    """Print coverages."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    n_items = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    for apart in (0.1,):
        table = study(number, n_items, apart)
        z = (table["mean"] - table["truth"]) / table["sd"]
        print(f"apart={apart}: z mean {z.mean():.2f}, sd {z.std():.2f}")
        of_all = (table["mean"] - table["everywhere"]) / table["sd"]
        print(f"  about the difference between all items like these: sd of z {of_all.std():.2f}")
        print(table.mean().to_string())
        print("sd of mean - truth", (table["mean"] - table["truth"]).std())
        print(
            "sd of unexplained_apart + truth", (table["unexplained_apart"] + table["truth"]).std()
        )


if __name__ == "__main__":
    main()
