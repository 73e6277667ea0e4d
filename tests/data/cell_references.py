"""Plain NumPy references for cells, bins, folds and sums, against which every engine is tested.

Nothing here comes from the package: the numbers are those that saved statistics rely on.
"""

import re
import zlib

import numpy as np
import pandas as pd

from tests.family_records import SHAPE

PRIME = 2**31 - 1
LEAST_VALUE = 1e-35  # values smaller in size count as 0 in powers and cells

# the cells of every table, by the column of its keys
TABLES = {
    "poisson": {
        "part": {}, "exposure": {"cell": "size"}, "count": {"cell": "count"},
        "joint": {"exposure_cell": "size", "count_cell": "count"},
    },
    "normal": {
        "part": {}, "noise": {"cell": "size"},
        "joint": {"noise_cell": "size", "value_cell": "value"},
    },
    "binomial": {
        "part": {}, "trials": {"cell": "size"}, "failures": {"cell": "failures"},
        "successes": {"cell": "count"},
        "joint": {"trials_cell": "size", "failures_cell": "failures", "successes_cell": "count"},
    },
    "amount": {
        "part": {}, "events": {"cell": "size"}, "amounts": {"cell": "amount"},
        "joint": {"events_cell": "size", "amount_cell": "amount"},
    },
}  # fmt: skip


def log_linear(number, steps):
    """Returns the octave of positive numbers times 2^steps, plus the equal step inside it."""
    fraction, exponent = np.frexp(np.asarray(number, dtype=float))
    step = np.floor((2.0 * fraction - 1.0) * 2.0**steps).astype(np.int64)
    return ((exponent.astype(np.int64) - 1) << steps) + step


def count_cell(count):
    """Returns cells of counts: the count itself below 32, then 16 cells per octave."""
    count = np.asarray(count, dtype=np.int64)
    return np.where(count < 32, count, log_linear(np.maximum(count, 32), 4) - 5 * 16 + 32)


def size_cell(size):
    """Returns cells of exposures, trials and noise sds: 16 per octave, and one for 0."""
    size = np.asarray(size, dtype=float)
    return np.where(size > 0, log_linear(np.where(size > 0, size, 1.0), 4), -(1 << 15))


def value_cell(value, noise_sd):
    """Returns cells of values, an eighth of the octave of their noise sd wide."""
    value = np.asarray(value, dtype=float)
    width = np.ldexp(1.0, (log_linear(noise_sd, 4) >> 4) - 3)
    cell = np.floor(np.where(np.abs(value) < LEAST_VALUE, 0.0, value) / width)
    return np.clip(cell, 1 - (1 << 25), (1 << 25) - 1).astype(np.int64)


def score_cell(score):
    """Returns cells of numbers of any sign, 2^20 per octave, as folds of items use them."""
    size = np.abs(np.asarray(score, dtype=float))
    inside = size >= 2.0**-1022
    cell = log_linear(np.where(inside, size, 1.0), 20) + (1022 << 20) + 1
    return np.where(inside, np.where(np.asarray(score) > 0, cell, -cell), 0)


def fold_of_id(identity, folds):
    """Returns the fold of whole-number ids: scrambled modulo a prime, then modulo the folds."""
    number = np.asarray(identity, dtype=np.int64) % PRIME
    number = number * ((number + 1663) % PRIME) % PRIME
    return number * 1_327_217_885 % PRIME % folds


def fold_of_item(score, size, folds):
    """Returns the fold of items without an id, from score and size, never from the outcome."""
    return fold_of_id(score_cell(score) * 1_073_741_789 + score_cell(size), folds)


def block_of_cluster(labels):
    """Returns the block of clusters, of 240, from the CRC-32 of their labels."""
    return fold_of_id([zlib.crc32(label.encode()) for label in labels], 240)


def score_weight(kind, outcome, size):
    """Returns each item's weight in sums of scores: 2^-40 where octaves of sizes are useless."""
    size = np.ldexp(1.0, size_cell(size) >> 4)
    if kind == "normal":
        relative = np.maximum((size.min() / size) ** 2, 1e-100)
        caps = [c for c in np.unique(relative) if (np.minimum(relative / c, 1) ** 2).sum() >= 4]
        capped = np.minimum(relative, max(caps, default=relative.min()))
        information = relative * (capped**2 / relative).sum() / (capped**2).sum()
    elif kind == "amount":
        information = SHAPE * size
    else:
        information = size * (outcome.sum() + 0.5) / max(size.sum(), 1e-300)
    total = np.minimum(information, 1.0).sum()
    useless = np.zeros(len(size), dtype=bool)
    for level in np.unique(information[information < 2.0**-10]):
        useless[information == level] = information[information <= level].sum() <= 0.01 * total
    return np.where(useless, 2.0**-40, 1.0)


def term(column, kind, score, outcome, size):
    """Returns what a column such as "sum_yN2" sums, for every item; NaN outside a log's domain."""
    if column == "sum_weight":
        return score_weight(kind, outcome, size)
    if column == "n":
        return np.ones(len(score), dtype=np.int64)
    if column == "sum_y" and kind in ("poisson", "binomial"):
        return outcome.astype(np.int64)
    if column == "above":
        return (outcome > size).astype(float)
    if column == "sum_y_log_N":
        return outcome * np.log(np.where(outcome > 0, size, 1.0))
    outcome = np.where(np.abs(outcome) < LEAST_VALUE, 0.0, outcome)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(score > 0, np.log(score), np.nan)
        logit = np.where(score < 1, log - np.log1p(-score), np.nan)
    factors = {
        "log_t": log, "logit_t": logit, "t": score, "y": outcome, "N": size, "s": size,
        "w": size**2, "z": size - outcome,
    }  # fmt: skip
    product = score_weight(kind, outcome, size) if "t" in column else np.ones(len(score))
    for name, power in re.findall(r"(logit_t|log_t|[tyNswz])(\d?)", column.removeprefix("sum_")):
        product = product * factors[name] ** int(power or 1)
    return product


def assert_table(found, keys, kind, score, outcome, size):
    """Checks a table: keys, whole numbers and extremes exactly, sums to 1e-12 of their terms."""
    frame = pd.DataFrame(keys)
    row = frame.groupby(list(keys), sort=True).ngroup().to_numpy()
    distinct = frame.drop_duplicates().sort_values(list(keys))
    n = np.bincount(row)
    for name in keys:
        np.testing.assert_array_equal(found[name], distinct[name], err_msg=name)
    for name in found.keys() - keys.keys():
        if name in ("score_min", "score_max"):
            extremes = pd.Series(score).groupby(row).agg(name.removeprefix("score_"))
            np.testing.assert_array_equal(found[name], extremes, err_msg=name)
            continue
        values = term(name, kind, score, outcome, size)
        if values.dtype.kind == "i":
            total = np.zeros(len(distinct), dtype=np.int64)
            np.add.at(total, row, values)
            assert found[name].dtype == np.int64, name
            np.testing.assert_array_equal(found[name], total, err_msg=name)
            continue
        known = np.bincount(row, np.isnan(values)) == 0
        # a logarithm near 0, or a difference of two, has an absolute error
        absolute = np.abs(values) + ("log" in name)
        # pandas sums with compensation, so that these are right to the last bit or so
        total, size_of_terms = (
            pd.Series(each).groupby(row).sum().to_numpy() for each in (values, absolute)
        )
        ends = np.isin(score, [0.0, 1.0] if "logit" in name else [0.0])
        at_end = ~known & (np.bincount(row, ~ends) == 0) & (np.bincount(row, score == 0) % n == 0)
        assert np.isfinite(found[name][at_end]).all(), name  # as of the nearest score
        assert np.isnan(found[name][~known & ~at_end]).all(), name
        close = np.abs(found[name] - total) <= 1e-12 * size_of_terms
        assert close[known].all(), name


def assert_plain(stats, score, outcome, size, group=None, fold=None):
    """Checks every table of statistics against sums of the items, by plain NumPy and pandas."""
    score, outcome, size = (np.asarray(column, dtype=float) for column in (score, outcome, size))
    kind, zeros = stats.kind, np.zeros(len(score), dtype=np.int64)
    part = {
        "group": zeros if group is None else group,
        "fold": zeros if fold is None else fold,
        "bin": np.searchsorted(stats.edges, score, side="right"),
    }
    cells = {"size": size_cell(size)}
    if kind == "normal":
        cells["value"] = value_cell(outcome, size)
    elif kind == "amount":
        cells["amount"] = size_cell(outcome)
    else:
        cells["count"] = count_cell(outcome)
    if kind == "binomial":
        cells["failures"] = count_cell(size - outcome)
    for name, columns in TABLES[kind].items():
        keys = dict(part)
        if name == "joint":
            if not stats.has_joint:
                assert not len(stats.table("joint")["n"])
                continue
            keys = {"group": part["group"], "bin": part["bin"]}
        keys |= {column: cells[quantity] for column, quantity in columns.items()}
        assert_table(stats.table(name), keys, kind, score, outcome, size)
    occupied = np.flatnonzero(stats.data["n"].to_numpy())
    by_bin = {
        name: stats.data[name].to_numpy()[occupied]
        for name in stats.table("part").keys() - part.keys()
    }
    by_bin["bin"] = occupied
    assert_table(by_bin, {"bin": part["bin"]}, kind, score, outcome, size)


def assert_same(one, other):
    """Checks that statistics are equal: whole numbers, edges and extremes bit for bit.

    Sums of real numbers are equal to 1e-12 of the largest of their column, because the order of
    additions rounds differently.
    """
    assert set(one.data.variables) == set(other.data.variables)
    assert one.data.sizes == other.data.sizes
    assert one.data.attrs == other.data.attrs
    for name, variable in one.data.variables.items():
        values, others = variable.to_numpy(), other.data[name].to_numpy()
        assert values.dtype == others.dtype, name
        if values.dtype.kind != "f" or name == "edges" or "score" in name:
            np.testing.assert_array_equal(values, others, err_msg=name)
        else:
            scale = np.nanmax(np.abs(values), initial=0.0)
            np.testing.assert_allclose(values, others, rtol=1e-12, atol=1e-12 * scale, err_msg=name)
