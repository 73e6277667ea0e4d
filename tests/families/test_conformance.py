"""Every family keeps every law, and every law catches what it is there for."""

from dataclasses import replace

import numpy as np
import pytest

from soc_pymc.families.conformance import (
    BINOMIAL_BETA,
    LAWS,
    NORMAL_NORMAL,
    POISSON_GAMMA,
    check_family,
)
from tests.family_records import documented

DOCUMENTED = documented()
FAMILIES = [POISSON_GAMMA, NORMAL_NORMAL, BINOMIAL_BETA, DOCUMENTED["BINOMIAL_BETA"]]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name.split(",")[0])
def test_every_family_keeps_every_law(family):
    table = check_family(family)
    assert list(table.index) == list(LAWS)
    assert table["passed"].all(), table.to_string()


def test_laws_without_a_claim_are_left_out():
    table = check_family(replace(NORMAL_NORMAL, pool=None, symmetry=None))
    assert set(LAWS) - set(table.index) == {"pooled", "symmetric"}
    assert table["passed"].all()


def test_documented_mistake_breaks_what_the_page_says():
    table = DOCUMENTED["table"]
    assert (~table["passed"]).sum() == 5, table.to_string()


def _off(function, by=1e-4):
    """The function with a small relative error."""
    return lambda *arguments: function(*arguments) * (1 + by)


PG, NN = POISSON_GAMMA, NORMAL_NORMAL
SABOTAGE = [
    ("order-free", PG, {"update": lambda p, y, n: (p[0] + y, (p[1] + n) * 1.001)}),
    ("order-free", NN, {"update": lambda p, y, sd: NN.update((p[0], p[1] * 0.99), y, sd)}),
    ("pooled", PG, {"pool": lambda y, n: (y.mean(), n.mean())}),
    ("pooled", NN, {"pool": lambda y, sd: (y.mean(), sd.mean())}),
    ("exchangeable", PG, {
        "log_marginal": lambda p, y, n: PG.log_marginal(p, y, n) + 1e-6 * y * p[1]}),
    ("exchangeable", NN, {"log_marginal": lambda p, y, sd: NN.log_marginal((p[0], 1.0), y, sd)}),
    ("total probability", PG, {"log_marginal": lambda p, y, n: PG.log_marginal(p, y, n) + 1e-6}),
    ("total probability", NN, {"log_marginal": _off(NN.log_marginal)}),
    ("predictive moments", PG, {"predictive": lambda m, v, n: (n * m, n * m + n * v)}),
    ("predictive moments", NN, {"predictive": lambda m, v, sd: (m, v + sd)}),
    ("predictive moments", NN, {"log_marginal": lambda p, y, sd: NN.log_marginal(p, y + 1e-6, sd)}),
    ("posterior mean on average", PG, {"update": lambda p, y, n: (p[0] + y + 1e-6, p[1] + n)}),
    ("posterior mean on average", NN, {"moments": lambda p: (_off(np.tanh)(p[0]), p[1])}),
    ("posterior variance on average", PG, {"moments": lambda p: (p[0] / p[1], p[0] / p[1])}),
    ("posterior variance on average", NN, {
        "update": lambda p, y, sd: (NN.update(p, y, sd)[0], NN.update(p, y, sd)[1] * 1.0001)}),
    ("certain prior", PG, {"concentrate": lambda p, share: (p[0] / share, p[1])}),
    ("certain prior", NN, {"update": lambda p, y, sd: (0.5 * (p[0] + y), 0.5 * p[1] + 0 * y)}),
    ("certain outcome", PG, {"update": lambda p, y, n: (p[0] + y, p[1] + 1.001 * n)}),
    ("certain outcome", NN, {"update": lambda p, y, sd: NN.update(p, y, sd + 1.0)}),
    ("symmetric", PG, {"log_marginal": lambda p, y, n: PG.log_marginal(p, y, n + 1e-3)}),
    ("symmetric", PG, {"update": lambda p, y, n: (p[0] + y, p[1] + n + 1e-3)}),
    ("symmetric", NN, {"symmetry": replace(NN.symmetry, stretch=1.0)}),
    ("cumulated", PG, {"cdf": lambda p, y, n: PG.cdf(p, y - 1, n)}),
    ("cumulated", PG, {"cdf": _off(PG.cdf)}),
    ("cumulated", NN, {"cdf": lambda p, y, sd: 1 - NN.cdf(p, y, sd)}),
    ("cumulated", NN, {"cdf": lambda p, y, sd: NN.cdf((p[0], 1.001 * p[1]), y, sd)}),
    ("quantiles inverted", PG, {"theta_cdf": _off(PG.theta_cdf)}),
    ("quantiles inverted", NN, {"quantile": lambda p, q: NN.quantile((p[0], p[1] * 1.001), q)}),
    ("quantiles have the moments", PG, {
        "quantile": lambda p, q: PG.quantile((p[0], p[1] * 1.001), q),
        "theta_cdf": lambda p, t: PG.theta_cdf((p[0], p[1] * 1.001), t)}),
    ("quantiles have the moments", NN, {"moments": lambda p: (p[0], p[1] * 1.0001)}),
]  # fmt: skip


@pytest.mark.parametrize(("law", "family", "slip"), SABOTAGE)
def test_every_law_catches_a_planted_error(law, family, slip):
    row = check_family(replace(family, **slip)).loc[law]
    assert not row["passed"], row.to_string()
    assert row["worst_error"] > row["tolerance"]


def test_every_law_has_its_sabotage():
    assert {law for law, *_ in SABOTAGE} == set(LAWS)


def test_nan_is_no_pass():
    table = check_family(replace(NN, log_marginal=lambda p, y, sd: np.nan * y))
    assert not table.loc["total probability", "passed"]
    assert np.isnan(table.loc["total probability", "worst_error"])
