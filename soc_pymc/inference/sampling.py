"""Sampling from the posterior by the No-U-Turn sampler."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import numpy as np

from .._lib.arguments import DRAWS, PROBABILITY, FitError, OneOf, Whole, convert_fields
from .._lib.work import is_shown, raising_interrupt
from .._model.problem import Problem
from ..fits import Status
from .fit_tree import STORED_SEED, Groups, PosteriorMethod

SAMPLERS = ("pymc", "nutpie", "numpyro", "blackjax")
# statistics of samplers that PyMC has under other names
_STATISTICS = {
    "depth": "tree_depth",
    "logp": "lp",
    "mean_tree_accept": "acceptance_rate",
    "maxdepth_reached": "reached_max_treedepth",
}


@dataclass(frozen=True)
class NUTS(PosteriorMethod):
    """The No-U-Turn sampler on the same model and coordinates: the reference.

    Parameters
    ----------
    draws : int
        Draws kept, per chain.
    tune : int
        Tuning steps discarded, per chain.
    chains : int
        Independent chains.
    seed : int
        Seed of the sampler. PyTensor rounds otherwise in the process that compiles a model, whose
        draws differ from those of later ones.
    target_accept : float
        Acceptance probability that tuning aims at: raise it where transitions diverge.
    sampler : str
        Whose code runs: ``"pymc"``, or ``"nutpie"``, ``"numpyro"`` or ``"blackjax"`` where these
        packages are installed. It decides the draws of a seed; statistics have PyMC's names.

    Raises
    ------
    FitError
        If a number is out of range, or the sampler is not installed or does not run here.

    References
    ----------
    .. [1] Hoffman and Gelman (2014), The No-U-Turn sampler, Journal of Machine Learning Research
       15, 1593-1623.

    Examples
    --------
    >>> NUTS(draws=500, chains=2).tune
    1000
    """

    full = True
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    seed: int = 0
    target_accept: float = 0.8
    sampler: str = SAMPLERS[0]

    def __post_init__(self) -> None:
        sizes = {"draws": DRAWS, "tune": DRAWS, "chains": Whole(1, 1000)}
        rules = {"target_accept": PROBABILITY, "sampler": OneOf(*SAMPLERS)}
        convert_fields(self, seed=STORED_SEED, **sizes, **rules)

    def draw(self, built: Problem) -> tuple[Groups, Status]:
        """Return the chains of the sampler."""
        if not find_spec(self.sampler):
            raise FitError(
                f"{self.sampler} is not installed: install it, or leave out sampler="
            )
        import pymc as pm  # which takes a second to load
        import pytensor

        from .._model.pymc_model import kept_variables, model_of

        model = model_of(built)
        with (
            model,
            raising_interrupt(),
            # PyTensor never removes the source of what it compiles
            TemporaryDirectory() as sources,
            pytensor.config.change_flags(generated_src_dir=sources),
            self._failing_clearly(),
        ):
            tree = pm.sample(
                draws=self.draws,
                tune=self.tune,
                chains=self.chains,
                random_seed=self.seed,
                target_accept=self.target_accept,
                # without a name PyMC takes nutpie where it is installed
                nuts_sampler=self.sampler,
                var_names=[v.name for v in kept_variables(model)],
                progressbar=is_shown(),
                quiet=not is_shown(),
                compute_convergence_checks=False,
            )
        names = "posterior", "sample_stats"
        groups = {name: tree[name].to_dataset() for name in names}
        statistics = groups["sample_stats"]
        known = {name: new for name, new in _STATISTICS.items() if name in statistics}
        groups["sample_stats"] = statistics.rename(known)
        return groups, status_of_chains(groups)

    @contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, AttributeError, ImportError) as error:
            if self.sampler == SAMPLERS[0]:
                raise
            # packages that PyMC drives change faster than PyMC
            problem = f"{self.sampler} does not run with this PyMC ({error})"
            raise FitError(f"{problem}: leave out sampler=") from error


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
