#!/bin/sh
# DuckDB 2.0.1: the median and quantile_cont of a DECIMAL column are DECIMALs of the same scale, with
# the digits beyond it cut off. Edges of bins, or a median premium, from prices of two decimals are
# too low; avg of the same column is a DOUBLE.
# Expected of 0.01 and 0.02: 0.015. Seen: 0.01; of the same numbers as DOUBLE 0.015.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "duckdb==2.0.1"
cd "$folder"
venv/bin/python - <<'PYTHON'
import duckdb

query = "SELECT median(x::{0}), quantile_cont(x::{0}, 0.5), avg(x::{0}) FROM (VALUES (0.01), (0.02)) t(x)"
found = {kind: duckdb.sql(query.format(kind)).fetchall()[0] for kind in ("DECIMAL(4, 2)", "DOUBLE")}
for kind, row in found.items():
    print(kind, *row)
assert [float(x) for x in found["DECIMAL(4, 2)"]] == [0.01, 0.01, 0.015]
assert [round(x, 12) for x in found["DOUBLE"]] == [0.015, 0.015, 0.015]
PYTHON
