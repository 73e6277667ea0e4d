#!/bin/sh
# DuckDB 2.0.1: read_csv looks for the line on which a table begins. Of 601 lines of two values followed
# by 51 lines of three (two files joined, the second with one more column) it reads the last 50 rows and
# drops the others without a warning, even if all lines are sampled.
# Expected of header = true, sample_size = -1: an error, or a column of nulls. Seen: 50 of 650 rows.
# With skip = 0 no line is lost: columns are not found, and each line is one text.
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

with open("joined.csv", "w") as file:
    file.write("t,y\n" + "0.1,1\n" * 600 + "t,y,g\n" + "0.2,2,a\n" * 50)
query = "SELECT * FROM read_csv('joined.csv', header = true, sample_size = -1{})"
found = {}
for option in ("", ", skip = 0"):
    table = duckdb.sql(query.format(option))
    found[option] = table.columns, len(table.fetchall())
    print("read_csv(header = true, sample_size = -1%s):" % option, *found[option], "rows")
assert found[""] == (["t", "y", "g"], 50)
assert found[", skip = 0"] == (["t,y"], 651)
PYTHON
