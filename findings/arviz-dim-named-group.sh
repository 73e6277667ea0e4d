#!/bin/sh
# arviz-plots 1.3.2: plot_prior_posterior joins prior and posterior along a new dimension "group", so
# it refuses every fit with a dimension of that name, also where only other variables are drawn.
# Expected: the picture, as for a dimension of any other name. A fit of groups needs another name.
#
# The script fails if this changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet "arviz-plots[matplotlib]==1.3.2" \
    "arviz-base==1.3.1" "arviz-stats[xarray]==1.3.3" "xarray==2026.9.0" "numpy==2.5.5"
cd "$folder"
MPLBACKEND=agg venv/bin/python - <<'PYTHON'
import arviz_plots
import numpy as np
import xarray as xr

rng = np.random.default_rng(0)
over = ["chain", "draw"]


def tree(dim):
    def part():
        effects = rng.normal(size=(4, 100, 3))
        return xr.Dataset({"mu": (over, effects[..., 0]), "effect": ([*over, dim], effects)})

    return xr.DataTree.from_dict({"prior": part(), "posterior": part()})


arviz_plots.plot_prior_posterior(tree("level"), var_names=["mu"])
try:
    arviz_plots.plot_prior_posterior(tree("group"), var_names=["mu"])
except ValueError as error:
    print(error)
    assert "conflicting sizes for dimension 'group'" in str(error)
else:
    raise AssertionError("it draws fits with a dimension named group")
PYTHON
