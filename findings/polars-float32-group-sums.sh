#!/bin/sh
# Polars 2.1.0 adds up Float32 in Float32 when it sums by group, one number after the other, so that
# 20 million times 0.1 in one group are 2,175,874: 9% too much. The sum of the whole column is right,
# and so is the mean of the group. Exposures or scores in single precision give wrong totals of bins.
# Expected: 2,000,000. Cast to Float64 before group_by.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "polars==2.1.0" "numpy==2.5.5"
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
import polars as pl

number = 20_000_000
frame = pl.DataFrame({"bin": np.zeros(number, np.int8), "exposure": np.full(number, 0.1, np.float32)})
grouped = frame.group_by("bin").agg(sum=pl.col("exposure").sum(), mean=pl.col("exposure").mean())
wide = frame.cast({"exposure": pl.Float64}).group_by("bin").agg(sum=pl.col("exposure").sum())
total = frame["exposure"].sum()
print("by group:", grouped["sum"][0], "mean:", grouped["mean"][0])
print("whole column:", total, "by group, Float64:", wide["sum"][0])
assert grouped["sum"][0] > 1.05 * 2e6
assert abs(total - 2e6) < 10 and abs(wide["sum"][0] - 2e6) < 10
PYTHON
