"""Simulations with known curves: do intervals and bands cover, and is the error near the oracle's?

    python -m tests.studies coverage PART [--simulations 30] [--items NUMBER]

Averages over data sets, with Monte Carlo standard errors.

``s1``: a curved mean and a dispersion that falls almost fivefold over the score's range.
``binomial``: successes in 1 to 500 trials; the mean rises from 0.05 to 0.95, curved, and the
dispersion falls almost fivefold. ``poisson``: the same data, fitted as counts in exposures.
``atoms``: a fifth of the items have the score 0.05 itself, where theta has another mean and five
times the cv2; errors of posterior means there and just below; ``no-atoms`` is without the shift.
``crossed``: items of 12 countries and 3 devices have the curves of S1 plus main effects: of log
mean in level (sd 0.3 and 0.2) and, for countries only, in slope (sd 0.1); of log cv2 in level (sd
0.2 and 0.2). Its items are counted by cell.
``groups``: 200 groups of 100 items have the curves of S1 with deviations: of log mean in level (sd
0.2) and slope (sd 0.1), of log cv2 in level (sd 0.3); in ``many-groups`` 2,000 groups have
log-uniform sizes from 1 to 100,000.
``clusters``: items of one cluster share a normal effect of sd 0.3 on log theta, through a Gaussian
copula. Clusters are spread over all scores, or local: within 0.2 of a centre (sd of log score).
``grouped-clusters``: 12 groups of five clusters each, and bands of the groups' means at one score.
"""

import warnings
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special, stats

import soc_pymc as soc
from tests.oracles import s1_curves
from tests.studies import common
from tests.studies.common import averages, counts, fit, fitted, posteriors, summarize, trials

_POINTS = stats.norm.ppf([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98])
_SPREAD = 1.2  # sd of the logit of scores of successes
DEFAULT, BESIDE = 0.05, 0.0495  # the atom's score, and one beside it
MEAN, CV2, CV2_BESIDE = 0.08, 1.5, 0.3  # at the default score, and cv2 elsewhere
GROUP, SIZES = ("country", "device"), (12, 3)
SCORES = 0.05 * np.exp(0.8 * np.linspace(-1.645, 1.645, 11))
SMALL, SAMPLE = 50, 200_000  # items of a small group, and items of many groups that are scored
SHAPE, EFFECT = 4.0, 0.3  # of theta given the score; sd of the clusters' effect on log theta
_SHARE = EFFECT**2 / special.polygamma(1, SHAPE)  # of the variance of log theta
_CLUSTER_SCORES = np.exp(-2.0 + special.ndtri([0.05, 0.25, 0.5, 0.75, 0.95]))


def judged(
    model: soc.Fit,
    items: object,
    oracle: ArrayLike,
    drawn: dict[str, np.ndarray],
    truth: dict[str, np.ndarray],
) -> dict[str, float]:
    """Coverage of intervals of items and of bands, and the error over the oracle's."""
    scored = posteriors(model, items)
    inside = common.items_covered(scored)
    fifths = inside.groupby(pd.qcut(scored["score"], 5, labels=False)).mean()
    bands = {name: common.covered(draws, truth[name]) for name, draws in drawn.items()}
    squares = [np.mean((x - scored["theta"]) ** 2) for x in (scored["theta_mean"], oracle)]
    return {
        "items, overall": inside.mean(),
        **{f"items, fifth {j + 1} of t": share for j, share in enumerate(fifths)},
        "bands, both curves": np.mean(list(bands.values())),
        **{f"bands, {name}": covers.mean() for name, covers in bands.items()},
        "RMSE over the oracle's": np.sqrt(squares[0] / squares[1]),
        **common.quality(model),
    }


def of_s1(seed: int, items: int = 20_000) -> dict[str, float]:
    frame = soc.simulation.s1(items, seed=seed)
    model = fitted(counts(frame), method=soc.VI(seed=seed))
    shape = 1 / frame["true_cv2"]
    oracle = (shape + frame["count"]) / (shape / frame["true_mean"] + frame["exposure"])
    score = 0.05 * np.exp(0.8 * _POINTS)
    truth = dict(zip(("log mean", "log cv2"), s1_curves(score), strict=True))
    return judged(model, counts(frame), oracle, common.curves(model, score), truth)


def beta_prior(score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """True a and b: a (1 - mean) = b mean = exp(-g)."""
    x = special.logit(score)
    mean = 0.05 + 0.9 * special.expit(1.3 * x + 0.5 * np.sin(1.5 * x))
    g = np.log(0.3) - 0.8 * np.tanh(x)
    return np.exp(-g) / (1 - mean), np.exp(-g) / mean


def successes(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Items: logit t ~ Normal(0, 1.2), trials log-uniform from 1 to 500, theta ~ Beta(a, b)."""
    rng = np.random.default_rng(seed)
    score = special.expit(rng.normal(0.0, _SPREAD, n_items))
    trials = np.floor(np.exp(rng.uniform(0.0, np.log(501.0), n_items))).astype(np.int64)
    theta = rng.beta(*beta_prior(score))
    columns = {"score": score, "successes": rng.binomial(trials, theta), "trials": trials}
    return pd.DataFrame(columns | {"theta": theta})


def of_successes(seed: int, items: int = 20_000, kind: str = "binomial") -> dict[str, float]:
    """One data set of successes, fitted as such or as counts."""
    frame = successes(items, seed)
    as_counts = partial(counts, count="successes", exposure="trials")
    roles = trials(frame) if kind == "binomial" else as_counts(frame)
    with warnings.catch_warnings():  # counts that look like successes in trials
        warnings.simplefilter("ignore", soc.ItemsWarning)
        model = fitted(roles, method=soc.VI(seed=seed))
    a, b = beta_prior(frame["score"])
    oracle = (a + frame["successes"]) / (a + b + frame["trials"])
    score = special.expit(_SPREAD * _POINTS)
    a, b = beta_prior(score)
    truth = {"mean": a / (a + b), "sd": stats.beta.std(a, b)}
    curves = soc.calibration_curves(model, score)
    mean, variance = (curves[k].to_numpy().reshape(-1, len(score)) for k in ("mean", "variance"))
    return judged(model, roles, oracle, {"mean": mean, "sd": np.sqrt(variance)}, truth)


def with_atom(n_items: int, seed: int) -> pd.DataFrame:
    """Items with their theta; ``default`` says which have the default score."""
    rng = np.random.default_rng(seed)
    score = DEFAULT * np.exp(rng.normal(0.0, 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(4.0, 1.0, n_items)))
    default = rng.random(n_items) < 0.2
    score[default] = DEFAULT
    mean, cv2 = np.where(default, MEAN, score), np.where(default, CV2, CV2_BESIDE)
    return common.gamma_counts(rng, score, exposure, mean, cv2).assign(default=default)


def of_atoms(seed: int, items: int = 10_000, atoms: bool = True) -> dict[str, float]:
    """One data set: CPU seconds, coverage, and relative errors of E(theta | t) and cv2."""
    frame = with_atom(items, seed)
    stats = summarize(counts(frame))
    model, seconds = common.timed(lambda: fit(stats, soc.Gamma(atoms=atoms)))
    inside = common.items_covered(posteriors(model, counts(frame)))
    drawn = soc.calibration_curves(model, [BESIDE, DEFAULT])
    mean = drawn["mean"].mean(("chain", "draw")).to_numpy()
    cv2 = (drawn["variance"] / drawn["mean"] ** 2).mean(("chain", "draw")).to_numpy()
    row = {"seconds": seconds, **common.quality(model)}
    truth = {"beside": (BESIDE, CV2_BESIDE), "default": (MEAN, CV2)}
    for k, (where, (true_mean, true_cv2)) in enumerate(truth.items()):
        row[f"covered_{where}"] = inside[frame["default"] == (where == "default")].mean()
        row |= {f"mean_{where}": mean[k] / true_mean - 1, f"cv2_{where}": cv2[k] / true_cv2 - 1}
    return row


def in_cells(
    seed: int, items: int = 400, sizes: tuple[int, int] = SIZES
) -> tuple[pd.DataFrame, np.ndarray]:
    """Items of all cells, and the true curves (countries, devices, 2, scores)."""
    rng = np.random.default_rng(seed)
    level = [sd * rng.normal(size=k) for sd, k in zip((0.3, 0.2), sizes, strict=True)]
    scatter = [0.2 * rng.normal(size=k) for k in sizes]
    slope = 0.1 * rng.normal(size=sizes[0])

    def curves_of(score: np.ndarray, country: np.ndarray, device: np.ndarray) -> np.ndarray:
        log_mean, log_cv2 = s1_curves(score)
        log_mean = log_mean + slope[country] * np.log(score / 0.05)
        log_mean = log_mean + level[0][country] + level[1][device]
        return np.array([log_mean, log_cv2 + scatter[0][country] + scatter[1][device]])

    cell = np.repeat(np.indices(sizes).reshape(2, -1), items, axis=1)
    score = np.exp(rng.normal(np.log(0.05), 0.8, cell.shape[1]))
    exposure = np.ceil(np.exp(rng.normal(np.log(30), 1.5, cell.shape[1])))
    frame = common.gamma_counts(rng, score, exposure, *np.exp(curves_of(score, *cell)))
    pairs = zip(GROUP, cell, strict=True)
    labels = {name: np.char.add(name[0], np.char.mod("%02d", code)) for name, code in pairs}
    truth = [[curves_of(SCORES, i, j) for j in range(sizes[1])] for i in range(sizes[0])]
    return frame.assign(**labels), np.array(truth)


def effects_of(truth: np.ndarray) -> np.ndarray:
    """True factors of levels at equal score, of countries and then of devices, relative to all."""
    log_mean = truth[:, :, 0].mean(axis=-1)  # about that at the middle score, as slopes are even
    country, device = log_mean.mean(axis=1), log_mean.mean(axis=0)
    return np.exp(np.concatenate([country - country.mean(), device - device.mean()]))


def of_crossed(
    seed: int,
    items: int = 400,
    bins: int | None = 100,
    sizes: tuple[int, int] = SIZES,
    prior: soc.Gamma | None = None,
) -> dict[str, float]:
    """Shares covered by 90% intervals: curves of cells, effects of levels, theta of items."""
    frame, truth = in_cells(seed, items, sizes)
    roles = counts(frame, group=GROUP)
    stats = summarize(roles, bins=bins, on_leakage="ignore")
    model = fit(stats, prior, soc.VI(seed=seed))
    inside: dict[str, list[np.ndarray]] = {"log mean": [], "log cv2": []}
    for i, j in np.ndindex(truth.shape[:2]):
        drawn = common.curves(model, SCORES, group=(f"c{i:02d}", f"d{j:02d}"))
        for k, name in enumerate(inside):
            inside[name].append(common.covered(drawn[name], truth[i, j, k]))
    effects = soc.quantities.group_effects(model, stats).table.sort_values(["what", "where"])
    effects = effects[effects["where"] != "all levels"]
    factors = pd.Series(effects_of(truth), effects.index)
    return {
        "mean": float(np.mean(inside["log mean"])),
        "cv2": float(np.mean(inside["log cv2"])),
        "items": float(common.items_covered(posteriors(model, roles)).mean()),
        "effects": float(factors.between(effects["low"], effects["high"]).mean()),
        **common.quality(model),
    }


def in_groups(seed: int, sizes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Items of all groups, and the true curves (groups, 2, scores): log mean and log cv2."""
    rng = np.random.default_rng(seed)
    level, slope = 0.2 * rng.normal(size=len(sizes)), 0.1 * rng.normal(size=len(sizes))
    scatter = 0.3 * rng.normal(size=len(sizes))

    def curves_of(score: np.ndarray, group: np.ndarray | int) -> np.ndarray:
        log_mean, log_cv2 = s1_curves(score)
        x = np.log(score / 0.05)
        return np.array([log_mean + level[group] + slope[group] * x, log_cv2 + scatter[group]])

    group = np.repeat(np.arange(len(sizes)), sizes)
    score = np.exp(rng.normal(np.log(0.05), 0.8, len(group)))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, len(group))))
    frame = common.gamma_counts(rng, score, exposure, *np.exp(curves_of(score, group)))
    labels = np.array([f"g{k:02d}" for k in range(len(sizes))])
    truth = [curves_of(SCORES, k) for k in range(len(sizes))]
    return frame.assign(group=labels[group]), np.array(truth)


def of_groups(
    seed: int, items: int = 100, groups: int = 200, largest: int | None = None
) -> dict[str, float]:
    """CPU seconds, and shares of items in their intervals: of all groups, and of small ones."""
    sizes = np.full(groups, items)
    if largest:
        log_sizes = np.random.default_rng(seed).uniform(0.0, np.log(largest), groups)
        sizes = np.floor(np.exp(log_sizes)).astype(int)
    frame, _ = in_groups(seed, sizes)
    stats = summarize(counts(frame, group="group"))
    model, seconds = common.timed(lambda: fit(stats, method=soc.VI(seed=seed)))
    even = np.arange(len(frame)) % -(-len(frame) // SAMPLE) == 0
    small = np.repeat(sizes, sizes) < SMALL
    scored = posteriors(model, counts(frame[even | small], group="group"))
    inside, even, small = common.items_covered(scored), even[even | small], small[even | small]
    shares = {"items": inside[even].mean(), f"items of groups below {SMALL}": inside[small].mean()}
    return {"seconds": seconds, **shares, **common.quality(model)}


def in_clusters(seed: int, items: int, clusters: int, where: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, clusters, items)
    if where == "local":
        log_t = rng.normal(-2.0, 1.0, clusters)[cluster] + rng.normal(0.0, 0.2, items)
    else:
        log_t = rng.normal(-2.0, 1.0, items)
    shared, alone = rng.normal(size=clusters)[cluster], rng.normal(size=items)
    exposure = rng.lognormal(3.0, 1.0, items)
    z = np.sqrt(_SHARE) * shared + np.sqrt(1.0 - _SHARE) * alone
    theta = np.exp(log_t) * special.gammaincinv(SHAPE, special.ndtr(z)) / SHAPE
    columns = {"score": np.exp(log_t), "count": rng.poisson(theta * exposure)}
    return pd.DataFrame(columns | {"exposure": exposure, "campaign": cluster})


def of_clusters(seed: int, items: int = 10_000) -> dict[str, float]:
    """Shares of scores in 90% bands, which the factor of the clusters widened, and without it."""
    row = {}
    for where, clusters in product(("spread", "local"), (50, 500)):
        roles = counts(in_clusters(seed, items, clusters, where), cluster="campaign")
        model = fitted(roles, method=soc.VI(seed=seed), bins=200)
        drawn = common.curves(model, _CLUSTER_SCORES)
        for name, truth in (("log mean", np.log(_CLUSTER_SCORES)), ("log cv2", -np.log(SHAPE))):
            factors = model.data["clusters"][name.replace(" ", "_")]
            positions = factors[factors.dims[0]].to_numpy()
            factor = np.interp(np.log(_CLUSTER_SCORES), positions, factors.to_numpy())
            narrow = drawn[name].mean(axis=0) + (drawn[name] - drawn[name].mean(axis=0)) / factor
            label = f"{where}, {clusters}, {name}"
            row |= {
                f"{label}: covers": common.covered(drawn[name], truth).mean(),
                f"{label}: without": common.covered(narrow, truth).mean(),
                f"{label}: factor": factor.mean(),
            }
    return row


def of_grouped_clusters(
    seed: int, items: int = 5000, groups: int = 12, clusters: int = 5
) -> dict[str, float]:
    """Shares of groups whose bands hold their log mean, and its error: clusters known, or not."""
    rng = np.random.default_rng(seed)
    t = _CLUSTER_SCORES[2]
    cluster = rng.integers(0, groups * clusters, items)
    group, log_t = cluster // clusters, rng.normal(np.log(t), 0.7, items)
    deviation, shared = 0.2 * rng.normal(size=groups), rng.normal(size=groups * clusters)
    log_mean = log_t + deviation[group] + EFFECT * shared[cluster] - 0.5 * EFFECT**2
    exposure = rng.lognormal(3.0, 1.0, items)
    frame = common.gamma_counts(rng, np.exp(log_t), exposure, np.exp(log_mean), 1.0 / SHAPE)
    labels = np.array([f"g{k:02d}" for k in range(groups)])
    frame = frame.assign(campaign=cluster, group=labels[group])
    row = {}
    for name, column in (("known", "campaign"), ("not known", None)):
        model = fitted(counts(frame, group="group", cluster=column), bins=30)
        drawn = [common.curves(model, [t], group=label)["log mean"][:, 0] for label in labels]
        draws, truth = np.transpose(drawn), np.log(t) + deviation
        error = draws.mean(axis=0) - truth
        row[f"{name}: covers"] = common.covered(draws, truth).mean()
        row[f"{name}: root mean squared error"] = np.sqrt(np.mean(error**2))
    return row


CASES: dict[str, tuple[Callable[[int, int], dict[str, float]], int]] = {
    "s1": (of_s1, 20_000),
    "binomial": (of_successes, 20_000),
    "poisson": (partial(of_successes, kind="poisson"), 20_000),
    "atoms": (of_atoms, 10_000),
    "no-atoms": (partial(of_atoms, atoms=False), 10_000),
    "crossed": (of_crossed, 400),
    "groups": (of_groups, 100),
    "many-groups": (partial(of_groups, groups=2000, largest=100_000), 0),
    "clusters": (of_clusters, 10_000),
    "grouped-clusters": (of_grouped_clusters, 5000),
}
"""Work on one data set by seed and number of items, and the default number of items."""


def main() -> None:
    small = {"simulations": 2, "items": 1000}
    chosen = common.options(__doc__, small, part=CASES, simulations=30, items=int)
    work, items = CASES[chosen.part]
    seeds = range(chosen.simulations)
    common.show(averages([work(seed, chosen.items or items) for seed in seeds]))
