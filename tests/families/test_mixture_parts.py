"""Components of mixtures and the likelihood of their tilted weights, against direct sums."""

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from soc_pymc.families import components as parts
from soc_pymc.families.components import all_bins, information, tilted_weights
from tests import extreme_references as references


def test_inverse_trigamma_over_all_magnitudes():
    value = np.geomspace(1e-12, 1e12, 97)
    found = special.polygamma(1, parts.inverse_trigamma(value))
    assert found == pytest.approx(value, rel=2e-7)  # the asymptotic ends; Newton inside


def test_inverse_trigamma_where_series_take_over():
    value = np.array([1e-12, 1e-8, 9e-7, 1.1e-6, 9e6, 1.1e7, 1e12])
    expected = [float(references.inverse_trigamma(v)) for v in value]
    assert parts.inverse_trigamma(value) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [0.3, 1.0, 5.0, 200.0])
def test_the_path_ends_in_the_frames_own_gamma(shape):
    """At the whole path, the components make Gamma(shape) but for the floor and the grid."""
    frame = parts.count_frame(np.array([np.log(0.05)]), np.array([-np.log(shape)]))
    z = parts.GAMMAS.z
    base, basis = parts.GAMMAS.weights_basis(frame, np.zeros((len(z), 1)))
    weight = special.softmax(base + basis[:, :, 2], axis=1)
    inner = parts.inverse_trigamma(frame.width())[0]
    rate = np.exp(special.psi(inner) - frame.location[0] - frame.spread[0] * z)
    prob = np.array([0.01, 0.1, 0.5, 0.9, 0.99])
    theta = stats.gamma.ppf(prob, shape, scale=0.05 / shape)
    cdf = weight @ special.gammainc(inner, rate[:, None] * theta)
    # mass between components goes to the nearest one, which blurs the upper end of small shapes
    assert cdf[0] == pytest.approx(prob, abs=0.012)


def test_the_other_end_is_normal():
    frame = parts.value_frame(np.array([1.0]), np.array([np.log(4.0)]))
    z, functions = parts.NORMALS.z, np.ones((len(parts.NORMALS.z), 1))
    base, basis = parts.NORMALS.weights_basis(frame, functions)
    assert (basis[:, :, 2:] == functions).all()  # no path in the place of a function
    sd = np.sqrt(frame.width()[0])
    cdf = special.softmax(base) @ special.ndtr(
        (np.array([-2.0, 1.0, 3.0]) - (1.0 + 2.0 * z)[:, None]) / sd
    )
    assert cdf.ravel() == pytest.approx(special.ndtr([-1.5, 0.0, 1.0]), abs=1e-6)


def test_count_log_density_against_the_integral():
    location, variance = np.array([[-3.0, -2.0]]), np.array([0.3])
    shape = parts.inverse_trigamma(variance)[0]
    found = parts.count_log_density(np.array([4.0]), np.array([70.0]), location, variance)[0]
    for r in range(2):
        rate = np.exp(special.psi(shape) - location[0, r])

        def integrand(theta, rate=rate):
            return stats.poisson.pmf(4, 70 * theta) * stats.gamma.pdf(theta, shape, scale=1 / rate)

        assert found[r] == pytest.approx(np.log(integrate.quad(integrand, 0, 5)[0]), abs=1e-8)


def test_value_log_density_is_normal():
    found = parts.value_log_density(
        np.array([1.5]), np.array([0.5]), np.array([[0.0, 2.0]]), np.array([0.25])
    )
    assert found[0] == pytest.approx(stats.norm.logpdf(1.5, [0.0, 2.0], np.sqrt(0.75)))


@pytest.fixture
def cells():
    """Two bins of three and five cells, seven components, three functions."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=(2, 7))
    return parts.MixtureCells(
        base,
        rng.normal(size=(2, 7, 3)),
        np.array([0, 3, 8]),
        rng.integers(1, 9, 8).astype(float),
        rng.random((8, 7)).astype(np.float32),
        np.array([0.5, -1.0]),
    )


def _kernel(tilt, cells):
    value, slope = np.empty(tilt.shape[:2]), np.empty(tilt.shape)
    all_bins(tilt, value, slope, *cells.arrays)
    return value, slope


def _exact(tilt, cells):
    """The same in mpmath, at 40 digits."""
    out = []
    with mpmath.workdps(40):
        for b in range(2):
            log_w = [
                mpmath.mpf(cells.base[b, r]) + mpmath.fdot(cells.basis[b, r], tilt[b])
                for r in range(7)
            ]
            w = [mpmath.exp(x) for x in log_w]
            total = mpmath.mpf(cells.constant[b])
            for c in range(cells.start[b], cells.start[b + 1]):
                p = mpmath.fdot([float(x) for x in cells.density[c]], w) / mpmath.fsum(w)
                total += cells.items[c] * mpmath.log(p)
            out.append(float(total))
    return np.array(out)


def test_kernel_against_many_digits_and_differences(cells):
    tilt = np.random.default_rng(2).normal(size=(5, 2, 3))
    value, slope = _kernel(tilt, cells)
    for d in range(5):
        # single precision: 1e-7 of each item
        assert value[d] == pytest.approx(_exact(tilt[d], cells), abs=2e-5)
    step = 1e-4
    for j in range(3):
        moved = tilt.copy()
        moved[..., j] += step
        back = tilt.copy()
        back[..., j] -= step
        for d in range(5):
            difference = (_exact(moved[d], cells) - _exact(back[d], cells)) / (2 * step)
            assert slope[d, :, j] == pytest.approx(difference, abs=1e-4)


def test_cells_may_be_permuted_and_split(cells):
    tilt = np.random.default_rng(3).normal(size=(2, 2, 3))
    value, slope = _kernel(tilt, cells)
    order = np.array([2, 0, 1, 7, 5, 6, 4, 3])
    items, density = cells.items[order], cells.density[order]
    twice = parts.MixtureCells(
        cells.base,
        cells.basis,
        2 * cells.start,
        np.repeat(items / 2, 2),
        np.repeat(density, 2, axis=0),
        cells.constant,
    )
    again = _kernel(tilt, twice)
    assert again[0] == pytest.approx(value, abs=1e-5)
    assert again[1] == pytest.approx(slope, abs=1e-4)


def test_observed_information_is_minus_the_second_derivative(cells):
    tilt = np.random.default_rng(4).normal(size=(2, 3))
    _, observed = information(tilt, cells)
    step = 1e-3
    for j in range(3):
        ahead, behind = tilt.copy(), tilt.copy()
        ahead[:, j] += step
        behind[:, j] -= step
        slopes = [_kernel(t[None], cells)[1][0] for t in (ahead, behind)]
        difference = (slopes[1] - slopes[0]) / (2 * step)
        assert observed[:, j] == pytest.approx(difference, abs=5e-3)  # single precision over 2e-3


def test_weights_add_up_to_one(cells):
    tilt = 50.0 * np.random.default_rng(5).normal(size=(4, 2, 3))
    assert tilted_weights(tilt, cells.base, cells.basis).sum(axis=-1) == pytest.approx(1.0)
