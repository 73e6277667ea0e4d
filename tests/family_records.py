"""Records of families for the conformance tests: plain formulas, and the documentation's own."""

from pathlib import Path

import numpy as np
from scipy import special

from soc_pymc.families.conformance import Family, Symmetry


def _update(params, y, sd):
    mean, variance = params
    share = variance / (variance + sd**2)
    return mean + share * (y - mean), share * sd**2 + 0 * y


def _log_marginal(params, y, sd):
    mean, variance = params
    total = variance + sd**2
    return -0.5 * (y - mean) ** 2 / total - 0.5 * np.log(2 * np.pi * total)


def _values(params, sd):
    mean, variance = params
    total = np.sqrt(variance + sd**2)
    y = np.linspace(mean - 12 * total, mean + 12 * total, 601)
    return y, np.full(601, y[1] - y[0])  # the trapezoid rule, exact where both ends vanish


NORMAL_NORMAL = Family(
    name="values y ~ Normal(theta, sd^2), theta ~ Normal(mean, variance)",
    priors=((0.0, 1.0), (-3.0, 0.01), (100.0, 25.0)),
    sizes=(0.1, 1.0, 30.0),
    moments=lambda p: p,
    update=_update,
    predictive=lambda mean, variance, sd: (mean, variance + sd**2),
    log_marginal=_log_marginal,
    cdf=lambda p, y, sd: special.ndtr((y - p[0]) / np.sqrt(p[1] + sd**2)),
    outcomes=_values,
    discrete=False,
    theta_cdf=lambda p, theta: special.ndtr((theta - p[0]) / np.sqrt(p[1])),
    quantile=lambda p, prob: p[0] + np.sqrt(p[1]) * special.ndtri(prob),
    concentrate=lambda p, share: (p[0], p[1] * share),
    certain=lambda rate: (rate, 1e-8),
    pool=lambda y, sd: ((y / sd**2).sum() / (1 / sd**2).sum(), (1 / sd**2).sum() ** -0.5),
    symmetry=Symmetry(
        lambda p, y, sd: ((2 - 5 * p[0], 25 * p[1]), 2 - 5 * y, 5 * sd),
        factor=-5.0,
        shift=2.0,
        stretch=5.0,
    ),
)


def documented() -> dict[str, object]:
    """Names that the code of docs/own-family.md makes when it runs."""
    text = (Path(__file__).parents[1] / "docs" / "own-family.md").read_text()
    names: dict[str, object] = {}
    for block in text.split("```python\n")[1:]:
        exec(compile(block.split("```")[0], "docs/own-family.md", "exec"), names)
    return names
