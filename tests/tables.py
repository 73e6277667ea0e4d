"""Small tables, hard ones that trouble engines, and a table from every kind of source."""

import decimal
import functools
import os
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import soc_pymc as soc
from tests.family_records import SHAPE

BACKENDS = ("pandas", "polars", "arrow", "stream", "duckdb", "parquet", "csv")
ROLES = {"score": "t", "count": "y", "exposure": "N"}
VALUE_ROLES = {"score": "t", "value": "v", "noise_sd": "s"}
TRIAL_ROLES = {"score": "t", "successes": "y", "trials": "N"}
AMOUNT_ROLES = {"score": "t", "amount": "x", "events": "N"}
KINDS = {
    "counts": (soc.PoissonItems, ROLES),
    "values": (soc.NormalItems, VALUE_ROLES),
    "successes": (soc.BinomialItems, TRIAL_ROLES),
    "amounts": (functools.partial(soc.AmountItems, shape=SHAPE), AMOUNT_ROLES),
}
COLUMNS: dict[str, Any] = {
    "t": [0.1, 0.2, 0.3, 0.4],
    "y": [0, 1, 2, 1],
    "N": [1.0, 2.0, 3.0, 4.0],
    "v": [0.1, -0.3, 0.2, 0.6],
    "s": [0.5, 0.5, 0.25, 1.0],
    "x": [0.3, 0.5, 2.5, 1.5],
}


def simulated(kind, seed=0, spread=0.0, size=None, n=5000):
    """Returns items whose theta is the score, or scatters about it."""
    rng = np.random.default_rng(seed)
    if kind == "values":
        t = rng.normal(size=n)
        s = rng.lognormal(0, 0.6, n) if size is None else np.full(n, size)
        return pd.DataFrame({"t": t, "v": rng.normal(t, np.hypot(spread, s)), "s": s})
    if kind == "counts":
        t = rng.lognormal(-2, 0.7, n)
        theta = t * rng.gamma(1 / spread, spread, n) if spread else t
        exposure = rng.lognormal(3, 1.2, n) if size is None else np.full(n, size)
        return pd.DataFrame({"t": t, "y": rng.poisson(theta * exposure), "N": exposure})
    if kind == "amounts":
        t = rng.lognormal(-2, 0.7, n)
        theta = t * (1 + 1 / spread) / rng.gamma(2 + 1 / spread, size=n) if spread else t
        events = rng.integers(1, 200, n) if size is None else np.full(n, size)
        return pd.DataFrame({"t": t, "x": theta * rng.gamma(SHAPE * events) / SHAPE, "N": events})
    t = rng.uniform(0.05, 0.95, n)
    theta = rng.beta(t / spread, (1 - t) / spread) if spread else t
    trials = rng.integers(1, 200, n) if size is None else np.full(n, size)
    return pd.DataFrame({"t": t, "y": rng.binomial(trials, theta), "N": trials})


def source_of(backend: str, table: pa.Table, folder: str | os.PathLike[str] = ".") -> Any:
    """Returns an Arrow table as a source of items: a frame, a relation, or a file in a folder."""
    if backend == "pandas":
        return table.to_pandas()
    if backend == "polars":
        return pl.from_arrow(table)
    if backend == "arrow":
        return table
    if backend == "stream":  # any object that gives Arrow's C stream
        return duckdb.connect().from_arrow(table)
    if backend == "duckdb":
        return on_duckdb(table)
    if backend == "remote":
        return remote(table)
    path = os.path.join(folder, f"items.{backend}")
    if backend == "parquet":
        pq.write_table(table, path)
    else:
        pl.from_arrow(table).write_csv(path)
    return path


def on_duckdb(table: pa.Table | pd.DataFrame) -> Any:
    """Returns an Ibis table on a DuckDB of its own."""
    connection = ibis.duckdb.connect()
    connection.con.register("mine", pa.table(table))
    return connection.table("mine")


def remote(table: pa.Table | pd.DataFrame) -> Any:
    """Returns an Ibis table on a DuckDB that passes for one of MotherDuck, which sums in SQL."""
    source = on_duckdb(table)
    own = "SELECT * REPLACE ('motherduck' AS type) FROM system.main.duckdb_databases()"
    source.get_backend().raw_sql(f"CREATE MACRO duckdb_databases() AS TABLE {own}")
    return source


HARD_COLUMNS = {name: tuple(roles.values()) for name, (_, roles) in KINDS.items()}
LIMITS = {"counts": (-265, 265), "values": (-104, 104), "successes": (0, 40), "amounts": (0, 40)}


def neighbours(numbers):
    """Returns numbers with the next ones below and above."""
    numbers = np.asarray(numbers, dtype=float)
    return np.concatenate([np.nextafter(numbers, 0), numbers, np.nextafter(numbers, np.inf)])


def hard_frame(kind, n=1500, seed=0):
    """Returns items of a kind with further columns of groups, ids, folds and clusters."""
    rng = np.random.default_rng(seed)
    step = 1 + rng.integers(0, 16, n) / 16
    score = np.concatenate(
        [neighbours(2.0 ** np.arange(-39, 10)), 10 ** rng.uniform(-12, 3, n), np.full(n, 0.125)]
    )
    exponents = np.arange(*LIMITS[kind])
    ordinary = neighbours(2.0 ** rng.integers(-9, 29, n) * step)
    size = np.resize(np.concatenate([neighbours(2.0**exponents), ordinary]), len(score))
    size = rng.permutation(size)
    columns = {"t": score}
    if kind == "values":
        # values at the borders of cells, an eighth of the octave of the noise sd wide
        width = np.ldexp(1.0, np.frexp(size)[1] - 4)
        value = width * rng.integers(-3000, 3000, len(score))
        value[::3] = np.nextafter(value[::3], rng.choice([-np.inf, np.inf], len(value[::3])))
        value[1::3] = size[1::3] * rng.normal(size=len(size[1::3]))
        columns |= {"v": value, "s": size}
    else:
        size[: n // 8] = 1.0
        if kind != "counts":
            size = np.ceil(np.minimum(size, 2.0**40))
        mean = np.minimum(score * size * rng.gamma(2, 0.5, len(score)), 1e6)
        count = np.minimum(rng.poisson(mean), 1_000_000)
        count[-400:] = np.repeat([31, 32, 33, 47, 48, 2**19 - 1, 2**19, 999_999], 50)
        count[n : n + 200] = size[n : n + 200] = 0
        if kind == "successes":
            size[-400:] += 2**20
            count = np.minimum(count, size).astype(int)
            size = size.astype(int)
        columns |= {"y": count, "N": size}
        if kind == "amounts":
            amount = 2.0 ** rng.integers(-40, 60, len(score)) * rng.choice(step, len(score))
            amount = rng.choice(neighbours(amount), len(score))
            columns["x"] = np.where(size > 0, amount, 0.0)
    n = len(score)
    identity = rng.integers(-(2**40), 2**40, n)
    identity[:4] = [-(2**63), 2**63 - 1, -1, 0]
    further = {
        "label": np.array(["Zürich", "a", "b", "", "A b"])[rng.integers(0, 5, n)],
        "size": rng.integers(-1, 11, n).astype(np.int32),
        "seen": rng.integers(0, 2, n).astype(bool),
        "id": identity,
        "name": [f"user {k} é" for k in rng.integers(0, 900, n)],
        "fold": rng.integers(0, 4, n).astype(np.int32),
        "campaign": [f"Zürich {k}" for k in rng.integers(0, 300, n)],
    }
    return pd.DataFrame(columns | further).sample(frac=1, random_state=0)


def as_decimal(values, places, kind=None):
    """Returns numbers as an Arrow column of decimals, of 18 digits unless a type is given."""
    exact = [decimal.Decimal(repr(round(float(value), places))) for value in values]
    return pa.array(exact, kind or pa.decimal128(18, places))


@functools.cache
def hard_table(kind, form="double"):
    """Returns the items as an Arrow table whose numbers have another type."""
    frame = hard_frame(kind)
    score, outcome, size = HARD_COLUMNS[kind]
    if form == "extreme":  # values up to the limits, and so small that their powers vanish
        rng = np.random.default_rng(1)
        value = rng.choice([-1.0, 1.0], len(frame)) * 10.0 ** rng.uniform(-300, 35, len(frame))
        value[:7] = [1e35, -1e35, 5e-324, 1e-35, np.nextafter(1e-35, 0), 0.0, -0.0]
        noise = 10.0 ** rng.uniform(-35, 35, len(frame))
        noise[:2] = noise[-2:] = [1e-35, 1e35]
        frame = frame.assign(v=value, s=np.clip(noise, 1e-35, 1e35))
    if form == "small":
        whole = np.ceil(frame[size].clip(upper=2e9)).astype(np.int32)
        small = frame[outcome].round().clip(-9e8, 9e8).astype(np.int32)
        frame = frame.assign(
            **{score: frame[score].astype(np.float32), outcome: small, size: whole}
        )
    if form == "float":
        frame = frame.assign(**{outcome: frame[outcome].astype(float)})
    columns = {name: pa.array(frame[name].to_numpy()) for name in frame}
    if form == "decimal":
        places, least = {"values": (3, -1e9), "amounts": (3, 0.01)}.get(kind, (0, 0.0))
        outcomes = frame[outcome].clip(least, 1e9).where(frame[size] > 0, 0.0)
        columns |= {
            score: as_decimal(np.log(frame[score]), 6),  # of any sign
            outcome: as_decimal(outcomes, places),
            size: as_decimal(frame[size].clip(0.01, 1e9).where(frame[size] > 0, 0.0), 4),
        }
    return pa.table(columns)


def decoded(table):
    """Returns an Arrow table with texts in place of dictionaries, which not every engine has."""
    columns = zip(table.column_names, table.columns, strict=True)
    return pa.table(
        {name: x.cast("string") if pa.types.is_dictionary(x.type) else x for name, x in columns}
    )
