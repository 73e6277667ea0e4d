#!/bin/sh
# Ibis 12.0.0 on Polars 2.1.0: the sum of an int32 column, which Ibis declares to be int64, is made
# in 32 bits and wraps silently: three counts of 2 billion are 1,705,032,704, in all rows, by group
# and of a table's own sum in Polars. DuckDB gives 6 billion for the same expression. Polars widens
# 8 and 16 bits alone. The mean is right.
# Expected: 6,000,000,000. Cast counts to int64 before they are added up.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "ibis-framework[duckdb,polars]==12.0.0" \
    "polars==2.1.0" "duckdb==1.5.6" "sqlglot==30.17.0"
cd "$folder"
venv/bin/python - <<'PYTHON'
import ibis
import polars as pl

count = pl.Series("count", [2_000_000_000] * 3, dtype=pl.Int32)
frame = pl.DataFrame([count, pl.Series("bin", [1, 1, 1])])
sums = {}
for name in ("polars", "duckdb"):
    connection = getattr(ibis, name).connect()
    table = connection.create_table("items", frame.to_arrow())
    total = table["count"].sum()
    assert str(total.type()) == "int64"
    by_bin = table.group_by("bin").aggregate(sum=total, mean=table["count"].mean())
    line = by_bin.execute().iloc[0]
    sums[name] = int(total.execute()), int(line["sum"]), float(line["mean"])
    print(name, *sums[name])
print("Polars alone:", frame["count"].sum())
assert sums["polars"] == (1_705_032_704, 1_705_032_704, 2e9)
assert sums["duckdb"] == (6_000_000_000, 6_000_000_000, 2e9)
assert frame["count"].sum() == 1_705_032_704
wide = frame.with_columns(pl.col("count").cast(pl.Int64))["count"].sum()
assert wide == 6_000_000_000
PYTHON
