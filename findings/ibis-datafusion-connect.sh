#!/bin/sh
# Ibis 12.0.0 asks for datafusion>=0.6 in its extra of that name, so pip installs DataFusion 55.0.0,
# whose udf() no longer takes input_types=: ibis.datafusion.connect() fails before any query. The
# good guess is that an extra installs what its backend can talk to.
# Expected: a connection with either version. Seen: TypeError with 52.0.0 and later; 51.0.0 connects.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
for version in 51.0.0 55.0.0; do
    "$folder/venv/bin/python" -m pip install --quiet "ibis-framework[datafusion]==12.0.0" \
        "sqlglot<30.18" "datafusion==$version"
    (cd "$folder" && venv/bin/python - "$version") <<'PYTHON'
import sys

import ibis

try:
    found = ibis.datafusion.connect().version
except TypeError as error:
    found = str(error)
print(sys.argv[1], found)
assert (found == "51.0.0") if sys.argv[1] == "51.0.0" else ("input_types" in found)
PYTHON
done
