"""Further terms of the curves: effects of bins, monotone curves, exposure that tells nothing.

    python -m tests.studies.terms bins --simulations 10
    python -m tests.studies.terms monotone --simulations 10
    python -m tests.studies.terms exposure --simulations 20

`bins`: E(theta | t) of S1 with a 10% step in five neighbouring bins of 100 (1 million items), and
without: whether the true log E(theta | t) of these bins is inside the 90% bands with effects of
bins and without them, and the effects' scale. `monotone`: width of the bands with and without the
constraint where the truth is monotone (S1 is). `exposure`: width of the bands of E(theta | t) with
and without a term in exposure where exposure tells nothing, and the term's sd.
"""

import argparse
from collections.abc import Callable

import numpy as np
import pandas as pd

import soc_pymc as soc

_ITEMS = {"bins": 1_000_000, "monotone": 50_000, "exposure": 50_000}
_STEP, _STEPPED = np.log(1.1), slice(48, 53)


def _items(frame: pd.DataFrame) -> soc.PoissonItems:
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


def bins(seed: int, n_items: int) -> dict[str, float]:
    """Curves with and without effects of bins, with and without a step."""
    frame = soc.simulation.s1(n_items, seed=seed)
    stats = soc.summarize(_items(frame), bins=100, progress=False)
    prior, method = soc.Gamma(bin_effects=True), soc.VI(seed=seed)
    smooth = soc.fit(stats, prior, method, progress=False)
    bin_of = np.searchsorted(stats.edges, frame["score"], side="right")
    stepped = (bin_of >= _STEPPED.start) & (bin_of < _STEPPED.stop)
    rng = np.random.default_rng([seed, 1])
    theta = frame["theta"] * np.where(stepped, np.exp(_STEP), 1.0)
    with_step = frame.assign(count=rng.poisson(theta * frame["exposure"]))
    stats = soc.summarize(_items(with_step), edges=stats.edges, progress=False)
    fits = {
        "effects": soc.fit(stats, prior, method, progress=False),
        "plain": soc.fit(stats, method=method, progress=False),
    }
    found = {f"inside_{name}": _inside(fit) for name, fit in fits.items()}
    scales = [f.data["posterior"]["log_mean_bin_effect_sd"] for f in (smooth, fits["effects"])]
    effects = fits["effects"].data["posterior"]["log_mean_of_bin"].mean(("chain", "draw"))
    return found | {
        "effect": float(effects[_STEPPED].mean()),
        "scale_without": float(scales[0].mean()),
        "scale_without_q95": float(scales[0].quantile(0.95)),
        "scale_with": float(scales[1].mean()),
        "seconds": fits["effects"].status.seconds,
        "k": max(smooth.status.pareto_k or 0.0, fits["effects"].status.pareto_k or 0.0),
    }


def _inside(fit: soc.Fit) -> float:
    """Share of the stepped bins whose true log E(theta | t) is inside its 90% band."""
    score = fit.data["constant_data"]["score"].to_numpy()[_STEPPED]
    band = np.log(soc.bands(soc.calibration_curves(fit, score))["mean"])
    truth = soc.simulation.s1_curves(score)[0] + _STEP
    low, high = band.sel(bound="lower"), band.sel(bound="upper")
    return float(((low <= truth) & (truth <= high)).mean())


def _width(fit: soc.Fit, stats: soc.Statistics) -> float:
    """Mean width of the bands of log E(theta | t), over the items."""
    score = fit.data["constant_data"]["score"].to_numpy()
    n = fit.data["constant_data"]["n_items"].to_numpy()
    band = np.log(soc.bands(soc.calibration_curves(fit, score))["mean"])
    return float(np.average(band.sel(bound="upper") - band.sel(bound="lower"), weights=n))


def monotone(seed: int, n_items: int) -> dict[str, float]:
    """Bands with and without the constraint."""
    stats = soc.summarize(_items(soc.simulation.s1(n_items, seed=seed)), progress=False)
    free, held = (
        soc.fit(stats, soc.Gamma(monotone=on), method=soc.VI(seed=seed), progress=False)
        for on in (False, True)
    )
    moved = held.data["posterior"]["log_mean"] != free.data["posterior"]["log_mean"]
    curves = soc.calibration_curves(held, np.geomspace(1e-4, 10.0, 2000))["mean"]
    return {
        "width_ratio": _width(held, stats) / _width(free, stats),
        "moved": float(moved.any("mean_knot").mean()),
        "steepest_fall": float(np.log(curves).diff("score").min()),
    }


def exposure(seed: int, n_items: int) -> dict[str, float]:
    """Bands with and without a term in exposure."""
    items = _items(soc.simulation.s1(n_items, seed=seed))
    stats = soc.summarize(items, joint=True, progress=False)
    fits = {
        "plain": soc.fit(stats, progress=False),
        "exposure": soc.fit(stats, soc.Gamma(exposure=soc.Spline()), progress=False),
    }
    table = soc.compare(fits, stats, progress=False)
    return {
        "width_ratio": _width(fits["exposure"], stats) / _width(fits["plain"], stats),
        "scale": float(fits["exposure"].data["posterior"]["log_mean_exposure_sd"].mean()),
        "elpd_plain_less_exposure": float(
            table.loc["plain", "elpd"] - table.loc["exposure", "elpd"]
        ),
        "k": fits["exposure"].status.pareto_k or 0.0,
    }


STUDIES: dict[str, Callable[[int, int], dict[str, float]]] = {
    "bins": bins,
    "monotone": monotone,
    "exposure": exposure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=sorted(STUDIES))
    parser.add_argument("--simulations", type=int, default=10)
    parser.add_argument("--items", type=int, default=0)
    chosen = parser.parse_args()
    rows = []
    for seed in range(chosen.simulations):
        rows.append(STUDIES[chosen.study](seed, chosen.items or _ITEMS[chosen.study]))
        print(seed, {k: round(v, 4) for k, v in rows[-1].items()}, flush=True)
    print(pd.DataFrame(rows).describe().loc[["mean", "min", "max"]].round(4).to_string())


if __name__ == "__main__":
    main()
