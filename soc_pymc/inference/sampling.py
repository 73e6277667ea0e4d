"""Sampling from the posterior by the No-U-Turn sampler."""

from tempfile import TemporaryDirectory

import numpy as np
import pymc as pm
import pytensor

from .._lib.progress import is_shown
from .._lib.threads import raising_interrupt
from .._model.interpreter import kept_variables
from .._model.problem import Problem
from ..fits.methods import Status
from .methods import NUTS, Groups


def run_nuts(
    built: Problem, method: NUTS, progress: bool | None
) -> tuple[Groups, Status]:
    """Groups for the fit's `DataTree`, and its status."""
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
    return groups, status_of_chains(groups)


def status_of_chains(groups: Groups) -> Status:
    """The status of draws by their diagnostics."""
    import arviz_stats

    posterior = groups["posterior"]

    def least_sample(method: str) -> float:
        samples = arviz_stats.ess(posterior, method=method).min(skipna=False)
        return float(samples.to_array().min(skipna=False))

    divergences = int(groups["sample_stats"]["diverging"].sum())
    chains = posterior.sizes["chain"]
    ess = least_sample("bulk")
    rhat = np.nan
    if chains > 1:
        rhat = float(arviz_stats.rhat(posterior).max().to_array().max())
    checks = {
        f"{divergences} divergent transition" + "s" * (divergences > 1): divergences,
        f"R-hat {rhat:.3f} (at most 1.01 allowed)": chains > 1 and not rhat <= 1.01,
        "a single chain, so that R-hat is unknown": chains == 1,
        f"bulk effective sample {ess:.0f} (at least 400 wanted)": not ess >= 400,
    }
    problems = [problem for problem, present in checks.items() if present]
    reason = f"R-hat at most {rhat:.3f}, bulk effective sample at least {ess:.0f}"
    if problems:
        accept = ", target_accept=" if divergences else ""
        reason = (
            f"NUTS: {', '.join(problems)}: raise NUTS(draws=, tune=, chains={accept})"
        )
    error = least_sample("mean") ** -0.5
    mc_error = error if np.isfinite(error) else None
    return Status(not problems, reason, mc_error=mc_error)
