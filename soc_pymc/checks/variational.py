"""Is the posterior itself to be trusted? What the fit's own status says."""

from dataclasses import dataclass
from typing import Literal

from ..inference.results import PARETO_K, Status

__all__ = ["Quality", "quality"]

_ESS_FRACTION = 0.1


@dataclass(frozen=True)
class Quality:
    """One number on the quality of the inference and its verdict."""

    name: str
    value: float
    verdict: Literal["ok", "look", "fail"]


def quality(status: Status) -> list[Quality]:
    """Convergence, and Pareto k and effective sample of an approximation where there are any.

    Parameters
    ----------
    status
        The fit's status; `pareto_k` and `ess_fraction` are None where nothing was approximated.

    Examples
    --------
    >>> from soc_pymc.results import Status
    >>> [q.verdict for q in quality(Status(True, "done", 0.9, 0.4, 1.0))]
    ['ok', 'fail', 'ok']
    """
    rows = [Quality("converged", float(status.converged), "ok" if status.converged else "fail")]
    if status.pareto_k is not None:
        bad = not status.pareto_k <= PARETO_K
        rows.append(Quality("pareto_k", status.pareto_k, "fail" if bad else "ok"))
    if status.ess_fraction is not None:
        bad = not status.ess_fraction >= _ESS_FRACTION
        rows.append(Quality("ess_fraction", status.ess_fraction, "look" if bad else "ok"))
    return rows
