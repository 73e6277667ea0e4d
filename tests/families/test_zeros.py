"""Theta that is exactly 0 with some probability: its likelihood, moments and quantiles."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, special, stats

from soc_pymc.families import zeros
from soc_pymc.families.family import FAMILIES
from soc_pymc.families.mixture_rows import all_rows, information, solved
from soc_pymc.posterior.predictive import ThetaMixture
from tests.families.test_mixture_parts import KINDS, cells_of, drawn


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def _with_atoms(kind):
    """Cells of which some may be of theta = 0, whose share is the last of five predictors."""
    cells = cells_of(kind)
    basis = cells.forms.basis.copy()
    basis[:, :, -1] = 0.0  # the share is no function of z
    atom = np.array([1.0, 0.0, 0.3, 0.0, 0.7, 1e-3, 0.0, 1.0, 0.2], dtype=np.float32)
    return replace(cells, forms=replace(cells.forms, basis=basis), atom=atom)


def _kernel(at, cells):
    value, slope = np.empty(at.shape[:2]), np.empty(at.shape)
    all_rows(at, value, slope, *cells.arrays)
    return value, slope


def _definition(at, cells):
    """Sum of n log(pi atom + (1 - pi) sum w p) by row, from the solver's weights."""
    weight = solved(at, *cells.forms.arrays)[0]
    share = special.expit(at[..., -1])
    found = np.tile(cells.constant, (len(at), 1))
    row_of = np.repeat(np.arange(3), np.diff(cells.start))
    for c, b in enumerate(row_of):
        rest = weight[:, b] @ cells.density[c].astype(float)
        whole = share[:, b] * float(cells.atom[c]) + (1.0 - share[:, b]) * rest
        found[:, b] += cells.items[c] * np.log(whole)
    return found


def test_likelihood_by_its_definition(kind):
    cells, at = _with_atoms(kind), drawn(kind, 4, 0)
    # single precision: 1e-7 of each item
    assert _kernel(at, cells)[0] == pytest.approx(_definition(at, cells), abs=1e-5)


def test_slopes_are_those_of_the_definition(kind):
    cells, at = _with_atoms(kind), drawn(kind, 2, 1)
    _, slope = _kernel(at, cells)
    for j in range(5):
        size = cells.forms.handle[:, 1] if j == 0 else np.ones(3)
        ahead, behind = at.copy(), at.copy()
        ahead[..., j] += 1e-5 * size
        behind[..., j] -= 1e-5 * size
        wanted = (_definition(ahead, cells) - _definition(behind, cells)) / 2e-5
        assert slope[..., j] * size == pytest.approx(wanted, abs=2e-3)


def test_information_of_the_share(kind):
    """Observed by differences of slopes; expected from the cells' own slopes."""
    cells, at = _with_atoms(kind), drawn(kind, 1, 2)[0]
    expected, observed = information(at, cells)
    ahead, behind = at.copy(), at.copy()
    ahead[:, -1] += 1e-3
    behind[:, -1] -= 1e-3
    slopes = [_kernel(x[None], cells)[1][0] for x in (ahead, behind)]
    size = np.ones((3, 5))
    size[:, 0] = cells.forms.handle[:, 1]
    difference = (slopes[1] - slopes[0]) / 2e-3 * size
    assert observed[:, -1] * size == pytest.approx(difference, abs=5e-3)
    share = special.expit(at[:, -1])
    weight = solved(at[None], *cells.forms.arrays)[0][0]
    row_of = np.repeat(np.arange(3), np.diff(cells.start))
    rest = (cells.density * weight[row_of]).sum(axis=1) * (1.0 - share[row_of])
    own = cells.atom * share[row_of]
    score = own / (own + rest) - share[row_of]
    assert expected[:, -1, -1] == pytest.approx(
        np.bincount(row_of, cells.items * score**2), abs=1e-4
    )


def test_no_share_is_the_same_as_none(kind):
    """At a share of 0 the likelihood is bit for bit that without it."""
    cells, at = _with_atoms(kind), drawn(kind, 3, 3)
    at[..., -1] = -800.0
    value, slope = _kernel(at, cells)
    plain = _kernel(at, replace(cells, atom=np.empty(0, dtype=np.float32)))
    assert (value == plain[0]).all()
    assert (slope[..., :-1] == plain[1][..., :-1]).all()
    assert (slope[..., -1] == 0.0).all()


# --- theta ---------------------------------------------------------------------------------------

# conjugate parameters of three components of two items, whose mixtures are told by a search
PARAMETERS = {
    "Gamma": (np.array([[2.5], [0.7]]), np.array([[3.0, 5.0, 9.0], [0.1, 1.0, 40.0]])),
    "Normal": (np.array([[-1.0, 0.2, 2.0], [0.5, 0.6, 0.7]]), np.array([[0.3], [1.1]])),
    "Beta": (
        np.array([[2.0, 4.0, 1.0], [0.5, 8.0, 3.0]]),
        np.array([[9.0, 2.0, 5.0], [6.0, 6.0, 0.8]]),
    ),
}
WEIGHT = np.array([[0.2, 0.3, 0.1, 0.4], [0.25, 0.35, 0.38, 0.02]])
PROBS = (0.01, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999)


def test_summaries_by_the_cdf(kind):
    """Moments by sums; a quantile is where the whole cdf, with its step at 0, reaches it."""
    family, (a, b) = FAMILIES[kind], PARAMETERS[kind]
    found = zeros.summaries(family, WEIGHT, a, b, PROBS)
    means, variances = (np.broadcast_to(f(a, b), (2, 3)) for f in (family.mean, family.variance))
    mean = (WEIGHT[:, :3] * means).sum(axis=1)
    square = (WEIGHT[:, :3] * (variances + means**2)).sum(axis=1)
    assert found[0] == pytest.approx(mean, rel=1e-12)
    assert found[2] == pytest.approx(square - mean**2, rel=1e-12)
    assert found[1] == pytest.approx(np.sqrt(found[2]), rel=1e-14)
    for i in range(2):

        def cdf(x, i=i):
            one = a[[i]], b[[i]]
            below = 1.0 - np.ravel(family.above(np.array([[x]]), *one))
            return float(WEIGHT[i, :3] @ np.broadcast_to(below, 3)) + WEIGHT[i, 3] * (x >= 0.0)

        low, high = (0.0, 1.0) if kind == "Beta" else (0.0 if kind == "Gamma" else -9.0, 500.0)
        for prob, theta in zip(PROBS, found[3:, i], strict=True):
            upto, below = cdf(0.0), cdf(-1e-12) if kind == "Normal" else 0.0
            if below <= prob <= upto:
                assert theta == 0.0
                continue
            wanted = optimize.brentq(lambda x, p=prob: cdf(x) - p, low, high, xtol=1e-13)
            assert theta == pytest.approx(wanted, abs=5e-4 * found[1, i])


def test_the_component_that_stands_for_0(kind):
    """Its outcomes are those of theta = 0, before and after conjugate updates."""
    family = FAMILIES[kind]
    a, b = zeros.with_zero(family, *PARAMETERS[kind])
    y, size = np.array([0.0, 3.0]), np.array([7.0, 20.0])
    own = tuple(x[None, :, -1] for x in (a, b))
    found = family.log_density(y, size, *family.to_curves(*own))[0]
    wanted = family.outcome.forms.log_likelihood(y, size, np.zeros(2))
    assert found[np.isfinite(wanted)] == pytest.approx(wanted[np.isfinite(wanted)], abs=1e-12)
    assert (found[np.isneginf(wanted)] < -200.0).all()
    after = family.update(*own, y, size)
    for moment in (family.mean(*after), family.variance(*after)):
        assert np.abs(moment).max() < zeros.NEAR_ZERO
    rngs = [np.random.default_rng(s) for s in (0, 1)]
    assert np.abs(family.natural(family.draw(*after, rngs))).max() < zeros.NEAR_ZERO


def test_averages_with_zero(kind):
    family, (a, b) = FAMILIES[kind], PARAMETERS[kind]
    a, b = np.broadcast_arrays(a, b)
    rest = WEIGHT[:, :3] / WEIGHT[:, :3].sum(axis=1, keepdims=True)
    theta = ThetaMixture(a.T, b.T, rest.T, WEIGHT[:, 3])
    listed = theta.listed(family)
    assert listed.weight == pytest.approx(WEIGHT.T)
    assert listed.average(family.mean(listed.first, listed.second)) == pytest.approx(
        theta.average(family.mean(a.T, b.T))
    )
    cut = np.array([0.1, 0.4])
    over = theta.average(family.excess(cut, a.T, b.T), 0.0)
    short = theta.average(family.shortfall(cut, a.T, b.T), cut)
    # E(theta) - cut = E(theta - cut)+ - E(cut - theta)+
    assert over - short == pytest.approx(theta.average(family.mean(a.T, b.T)) - cut)


def test_whole_moments():
    mean, variance = zeros.whole_moments(np.array([0.0, 0.25]), np.array([2.0, 2.0]), np.ones(2))
    assert mean == pytest.approx([2.0, 1.5])
    draws = np.array([0.0, 1.0, 2.0, 3.0])  # of mean 2 and variance 2/3 without the 0
    found = zeros.whole_moments(np.array([0.25]), np.array([2.0]), np.array([2.0 / 3.0]))
    assert found[1] == pytest.approx(draws.var())
    assert variance[0] == 1.0


def test_quantiles_of_one_component_are_the_familys(kind):
    family = FAMILIES[kind]
    a, b = (np.broadcast_to(x, (2, 3))[:, :1] for x in PARAMETERS[kind])
    probs = (0.003, 0.2, 0.9)
    found = zeros.summaries(family, np.array([[1.0, 0.0]] * 2), a, b, probs)[3:]
    law = {
        "Gamma": lambda p: stats.gamma.ppf(p, a[:, 0], scale=1.0 / b[:, 0]),
        "Normal": lambda p: stats.norm.ppf(p, a[:, 0], np.sqrt(b[:, 0])),
        "Beta": lambda p: stats.beta.ppf(p, a[:, 0], b[:, 0]),
    }[kind]
    for prob, own in zip(probs, found, strict=True):
        assert own == pytest.approx(law(prob), rel=1e-4)
