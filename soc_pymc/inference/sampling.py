"""The No-U-Turn sampler on the same model and coordinates: the reference."""

from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr

from .._lib.arrays import Floats
from .._lib.progress import is_shown
from .._lib.threads import raising_interrupt
from .._model.problem import Problem
from .density import kept_variables
from .methods import NUTS


def run_nuts(
    built: Problem, method: NUTS, progress: bool | None
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """Groups for the fit's `DataTree`, and the fields of its `Status` without the seconds."""
    with (
        built.model,
        raising_interrupt(),
        # PyTensor never removes the source of what it compiles
        TemporaryDirectory() as sources,
        pytensor.config.change_flags(generated_src_dir=sources),
    ):
        tree = pm.sample(
            draws=method.draws,
            tune=method.tune,
            chains=method.chains,
            random_seed=method.seed,
            target_accept=method.target_accept,
            var_names=[v.name for v in kept_variables(built.model)],
            progressbar=is_shown(progress),
            quiet=not is_shown(progress),
            compute_convergence_checks=False,
        )
    groups = {name: tree[name].to_dataset() for name in ("posterior", "sample_stats")}
    return groups, _sampling_verdict(groups)


def _effective_samples(posterior: xr.Dataset, method: str) -> Floats:
    """Effective samples of all numbers of all variables."""
    import arviz_stats

    samples = arviz_stats.ess(posterior, method=method)
    return np.concatenate([v.to_numpy().ravel() for v in samples.data_vars.values()])


def _sampling_verdict(groups: dict[str, xr.Dataset]) -> dict[str, Any]:
    import arviz_stats

    posterior = groups["posterior"]
    divergences = int(groups["sample_stats"]["diverging"].sum())
    ess = float(_effective_samples(posterior, "bulk").min())
    problems, knobs = [], ["draws=", "tune=", "chains="]
    if divergences:
        problems.append(f"{divergences} divergent transition" + "s" * (divergences > 1))
        knobs.append("target_accept=")
    rhat = np.nan
    if posterior.sizes["chain"] > 1:
        rhat = max(float(v.max()) for v in arviz_stats.rhat(posterior).data_vars.values())
        if not rhat <= 1.01:
            problems.append(f"R-hat {rhat:.3f} (at most 1.01 allowed)")
    else:
        problems.append("a single chain, so that R-hat is unknown")
    if not ess >= 400:
        problems.append(f"bulk effective sample {ess:.0f} (at least 400 wanted)")
    if problems:
        reason = "NUTS: " + ", ".join(problems) + f": raise NUTS({', '.join(knobs)})"
    else:
        reason = f"R-hat at most {rhat:.3f}, bulk effective sample at least {ess:.0f}"
    error = float(np.max(_effective_samples(posterior, "mean") ** -0.5))
    return {
        "converged": not problems,
        "reason": reason,
        "pareto_k": None,
        "ess_fraction": None,
        "mc_error": error if np.isfinite(error) else None,
    }
