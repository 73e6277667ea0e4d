"""Components of mixtures, their weights and their likelihood, against 30 digits and direct sums."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from soc_pymc.families import components as parts
from soc_pymc.families.beta_mixtures import BETAS, betas_of_logit
from soc_pymc.families.family import FAMILIES
from soc_pymc.families.mixture_rows import (
    FLOOR,
    ROOM,
    UPPER,
    MixtureCells,
    all_rows,
    directions,
    information,
    solved,
)
from tests import extreme_references as references

KINDS = {"Gamma": parts.GAMMAS, "Normal": parts.NORMALS, "Beta": BETAS}
# both curves of the grid at three scores
CURVES = {
    "Gamma": np.array([[-3.0, -0.5], [-2.0, -2.0], [4.0, -4.0]]),
    "Normal": np.array([[1.0, 0.3], [-200.0, 4.0], [0.02, -9.0]]),
    "Beta": np.array([[-3.0, -1.0], [0.4, 0.5], [2.0, -4.0]]),
}


def functions_of(z):
    """Three that are bounded far out, the first in the place of the path where there is one."""
    x = np.tanh(z / 4.0)
    return np.column_stack([x**5, x**3, x**4])


def forms_of(kind):
    """How predictors give weights at three scores, and the base distributions there."""
    base = KINDS[kind].base(*CURVES[kind].T)
    return KINDS[kind].forms(base, functions_of(KINDS[kind].z), CURVES[kind]), base


def drawn(kind, draws, seed, far=1.0):
    """Predictors (draws, 3, 5) around those of the grid, and as far as some spreads from it."""
    forms, base = forms_of(kind)
    away = far * np.random.default_rng(seed).normal(size=(draws, 3, 5))
    away[..., 0] *= 0.7 * forms.handle[:, 1] * (base.spread if kind != "Normal" else 1.0)
    away[..., 1] = 0.25 + 0.5 * away[..., 1]
    at = np.array([0.0, 0.0, float(kind != "Normal"), 0.0, 0.0]) + 0.7 * away
    at[..., :2] += CURVES[kind]
    return at


def test_inverse_trigamma_over_all_magnitudes():
    value = np.geomspace(1e-12, 1e12, 97)
    found = special.polygamma(1, parts.inverse_trigamma(value))
    assert found == pytest.approx(value, rel=2e-7)  # the asymptotic ends; Newton inside


def test_inverse_trigamma_where_series_take_over():
    value = np.array([1e-12, 1e-8, 9e-7, 1.1e-6, 9e6, 1.1e7, 1e12])
    expected = [float(references.inverse_trigamma(v)) for v in value]
    assert parts.inverse_trigamma(value) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [0.1, 0.3, 1.0, 5.0, 200.0])
@pytest.mark.parametrize(
    ("raised", "away"), [(0.0, -0.3), (0.0, 0.0), (0.0, 0.3), (0.35, -0.3), (0.35, 0.0), (1.0, 0.3)]
)
def test_the_path_ends_in_the_familys_own_gamma(shape, raised, away):
    """At the whole path the components make the Gamma of every draw's curves, on any grid."""
    curves = np.array([[np.log(0.05), -np.log(shape)]])
    frame, z = parts.count_frame(curves[:, 0], curves[:, 1] + raised), parts.GAMMAS.z
    forms = parts.GAMMAS.forms(frame, np.zeros((len(z), 1)), curves)
    own, mean = shape * np.exp(-away), 0.05 * np.exp(away * frame.spread[0])
    at = np.array([[[np.log(mean), -np.log(own), 1.0]]])
    weight = solved(at, *forms.arrays)[0][0, 0]
    inner = parts.inverse_trigamma(frame.width())[0]
    rate = np.exp(special.psi(inner) - frame.location[0] - frame.spread[0] * z)
    prob = np.concatenate([[1e-3], np.linspace(0.01, 0.99, 99), [0.999]])
    theta = stats.gamma.ppf(prob, own, scale=mean / own)
    cdf = special.gammainc(inner, rate[:, None] * theta).T @ weight
    # the floor's share is 0.001; components are few where shapes are small, and their steps wide
    error = 0.006 if shape >= 1.0 else 0.02
    seen = theta > 1e-4 * mean if shape < 1.0 else theta > 0.0  # what counts can tell from 0
    assert cdf[seen] == pytest.approx(prob[seen], abs=error)


def test_the_other_end_is_normal():
    curves = np.array([[1.0, np.log(4.0)]])
    frame = parts.value_frame(*curves.T)
    z, functions = parts.NORMALS.z, np.ones((len(parts.NORMALS.z), 1))
    forms = parts.NORMALS.forms(frame, functions, curves)
    assert (forms.basis[:, :, 2:] == functions).all()  # no path in the place of a function
    weight = solved(np.column_stack([curves, [0.0]])[None], *forms.arrays)[0][0]
    sd = np.sqrt(frame.width()[0])
    cdf = weight @ special.ndtr((np.array([-2.0, 1.0, 3.0]) - (1.0 + 2.0 * z)[:, None]) / sd)
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


# --- weights whose mean and variance are those of the curves -------------------------------------


def _bent(x, low, high):
    """Bounds of a curve, at which it is bent over 15% of the range on either side."""
    soft = mpmath.mpf(0.15) * (high - low)
    if x > high - soft:
        return high - soft + soft * mpmath.tanh((x - (high - soft)) / soft)
    if x < low + soft:
        return low + soft + soft * mpmath.tanh((x - (low + soft)) / soft)
    return x


def _wanted(kind, predictors, handle):
    """Both curves, within their bounds."""
    first, unit, taken, _, farthest, low, high = map(mpmath.mpf, map(float, handle))
    one, two = (mpmath.mpf(float(x)) for x in predictors[:2])
    one = first + unit * _bent((one - first) / unit, -farthest, farthest)
    return one, taken + _bent(two - taken, low, high)


def _moments_of_components(kind, base, b):
    """Exact means and variances of theta under the components at a score."""
    place, width = base.places(KINDS[kind].z)[b], float(base.width()[b])
    if kind == "Normal":
        return [mpmath.mpf(x) for x in place], [mpmath.mpf(width)] * len(place)
    if kind == "Gamma":
        shape = references.inverse_trigamma(width)
        means = [
            mpmath.exp(mpmath.mpf(x)) * shape / mpmath.exp(mpmath.digamma(shape)) for x in place
        ]
        return means, [m**2 / shape for m in means]
    pairs = [
        (mpmath.mpf(x), mpmath.mpf(y)) for x, y in zip(*betas_of_logit(place, width), strict=True)
    ]
    means = [x / (x + y) for x, y in pairs]
    return means, [m * (1 - m) / (x + y + 1) for m, (x, y) in zip(means, pairs, strict=True)]


def _curves_of(kind, weight, means, variances):
    """The family's curves of a mixture's mean and variance."""
    total = mpmath.fsum(weight)
    mean = mpmath.fdot(weight, means) / total
    variance = mpmath.fdot(
        weight, [v + (m - mean) ** 2 for m, v in zip(means, variances, strict=True)]
    )
    variance /= total
    if kind == "Normal":
        return mean, mpmath.log(variance)
    if kind == "Gamma":
        return mpmath.log(mean), mpmath.log(variance / mean**2)
    room = mean * (1 - mean)
    return mpmath.log(mean / (1 - mean)), mpmath.log(variance / (room * (room - variance)))


def _log_one_minus_share(log_share):
    """Log(1 - exp(s)), and a straight line where s is above -0.05."""
    end = mpmath.mpf(UPPER)
    if log_share <= -end:
        return mpmath.log(1 - mpmath.exp(log_share))
    share = mpmath.exp(-end)
    return mpmath.log(1 - share) - share / (1 - share) * (log_share + end)


def _floored(logs, floor):
    weight = [mpmath.exp(x) for x in logs]
    total = mpmath.fsum(weight) / (1 - mpmath.mpf(FLOOR))
    return [mpmath.log(w / total + f) for w, f in zip(weight, floor, strict=True)]


class Exact:
    """Weights at one score, by their definition, at 30 digits."""

    def __init__(self, kind, b):
        self.kind, (self.forms, base) = kind, forms_of(kind)
        self.b, self.moments = b, _moments_of_components(kind, base, b)
        self.basis = [[mpmath.mpf(x) for x in row] for row in self.forms.basis[b].tolist()]
        self.given = [[mpmath.mpf(x) for x in row] for row in self.forms.base[b].tolist()]

    def base(self, first, second, path):
        """Log weights before the functions: from a normal law to the family's own."""
        start, unit, taken, own, *_ = map(mpmath.mpf, map(float, self.forms.handle[self.b]))
        inner = mpmath.exp(mpmath.mpf(float(self.forms.handle[self.b, 5])) - mpmath.mpf(ROOM))
        one, wide = (first - start) / unit, mpmath.exp(second - taken)
        x, other, floor, anchor = self.given
        if self.kind == "Normal":
            return [-((y - one) ** 2) / (2 * (wide - inner)) for y in x]
        if self.kind == "Gamma":
            v, a = mpmath.log((1 + wide) / (1 + inner)), 1 / wide
            normal = [-((y - one + v / 2) ** 2) / (2 * v) for y in x]
            log_share = [mpmath.log(a * inner) + y - one for y in x]
            rest = map(_log_one_minus_share, log_share)
            whole = [a * s + (1 / inner - a - 1) * r for s, r in zip(log_share, rest, strict=True)]
            whole[0] += mpmath.log(1 + 1 / (a * (x[1] - x[0])))  # and what is below it
        else:
            m, v = 1 / (1 + mpmath.exp(-first)), wide - inner
            old = mpmath.exp(mpmath.mpf(float(self.forms.centre[self.b, 1]))) - inner
            middle = mpmath.log(m / (1 - m)) + v * (m - mpmath.mpf("0.5"))
            pairs = list(zip(x, other, strict=True))
            normal = [-((p - q - middle) ** 2) / (2 * v) for p, q in pairs]
            a, b = (1 / (v * k) - 1 / (old * j) for k, j in ((1 - m, 1 - own), (m, own)))
            whole = [w + a * p + b * q for w, (p, q) in zip(anchor, pairs, strict=True)]
        normal, whole = (_floored(logs, floor) for logs in (normal, whole))
        return [(1 - path) * n + path * w for n, w in zip(normal, whole, strict=True)]

    def weights(self, predictors, near):
        """Weights at predictors, with a first guess of the two coefficients solved for."""
        handle = self.forms.handle[self.b]
        wanted = _wanted(self.kind, predictors, handle)
        rest = [mpmath.mpf(float(x)) for x in predictors[2:]]
        base = self.base(*wanted, rest[0])
        fixed = [x + mpmath.fdot(row[2:], rest) for x, row in zip(base, self.basis, strict=True)]
        unit = mpmath.mpf(float(handle[1]))

        def tilted(u, v):
            return [
                mpmath.exp(x + u * row[0] + v * row[1])
                for x, row in zip(fixed, self.basis, strict=True)
            ]

        def away(u, v):
            found = _curves_of(self.kind, tilted(u, v), *self.moments)
            return [(found[0] - wanted[0]) / unit, found[1] - wanted[1]]

        found = mpmath.findroot(away, tuple(map(float, near)), tol=1e-40)
        weight = tilted(*found)
        total = mpmath.fsum(weight)
        return [w / total for w in weight]


EXTREME = np.array([6.0, 0.0, 0.0, 0.0, 0.0]), np.array([0.0, 9.0, 0.0, 0.5, 0.0])


def _predictors(kind):
    """At the centre, around it, and beyond the bounds of either curve on either side."""
    middle = drawn(kind, 1, 0, far=0.0)
    unit = np.ones((3, 5))
    forms, base = forms_of(kind)
    unit[:, 0] = forms.handle[:, 1] * (base.spread if kind != "Normal" else 1.0)
    ends = [middle + sign * unit * away for away in EXTREME for sign in (1, -1)]
    return np.concatenate([middle, drawn(kind, 4, 1), *ends])


@pytest.mark.parametrize("kind", KINDS)
def test_weights_have_the_mean_and_variance_of_the_curves(kind):
    """To 1e-7, with curves bent where they leave the bounds."""
    forms, base = forms_of(kind)
    at = _predictors(kind)
    weight, found = solved(at, *forms.arrays)
    assert weight.sum(axis=-1) == pytest.approx(1.0, abs=1e-12)
    assert (found[5:, :, 11:] < 0.1 / forms.handle[:, [1]]).any()  # some of them are bent
    with mpmath.workdps(30):
        for b in range(3):
            moments = _moments_of_components(kind, base, b)
            for d in range(len(at)):
                own = [mpmath.mpf(x) for x in weight[d, b].tolist()]
                got = _curves_of(kind, own, *moments)
                want = _wanted(kind, at[d, b], forms.handle[b])
                assert float((got[0] - want[0]) / forms.handle[b, 1]) == pytest.approx(0, abs=1e-7)
                assert float(got[1] - want[1]) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_families_curves_are_those_of_a_mixture_of_one(kind):
    """The exact definition above is that of the family's record."""
    parameters = {"Gamma": (3.0, 40.0), "Normal": (1.5, 0.4), "Beta": (2.0, 7.0)}[kind]
    family = FAMILIES[kind]
    moments = family.mean(*parameters), family.variance(*parameters)
    found = _curves_of(kind, [mpmath.mpf(1)], *([mpmath.mpf(float(x))] for x in moments))
    assert list(map(float, found)) == pytest.approx(np.ravel(family.to_curves(*parameters)))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_where_newtons_method_fails_at_first(kind):
    """They follow the line from the centre: a first guess far off changes nothing."""
    forms, _ = forms_of(kind)
    at = drawn(kind, 6, 2)
    guess = forms.guess.copy()
    guess[:, :, 1:] = 1e4  # coefficients at which one component has all the weight
    weight = solved(at, *forms.arrays)[0]
    again = solved(at, *replace(forms, guess=guess).arrays)[0]
    assert np.abs(again - weight).sum(axis=-1).max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_many_draws_are_those_of_each_alone(kind):
    """First guesses around the draws' mean, and loops over many draws, change nothing."""
    forms, _ = forms_of(kind)
    at = drawn(kind, 40, 6)
    weight, found = solved(at, *forms.arrays)
    for s in range(len(at)):
        alone, its = solved(at[s : s + 1], *forms.arrays)
        assert np.abs(alone[0] - weight[s]).sum(axis=-1).max() < 1e-7
        assert found[s, :, 9:] == pytest.approx(its[0, :, 9:], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_directions_are_derivatives_of_the_weights(kind):
    forms, _ = forms_of(kind)
    at = drawn(kind, 1, 3)[0]
    at[0, 0] += 2.9 * forms.handle[0, 4] * forms.handle[0, 1] / 4.0  # bent
    weight, along = directions(at, forms)
    along = along - np.einsum("nr,nrp->np", weight, along)[:, None]
    for k in range(5):
        step = 1e-4 * (forms.handle[:, 1] if k == 0 else np.ones(3))
        ends = [at.copy(), at.copy()]
        for end, sign in zip(ends, (1, -1), strict=True):
            end[:, k] += sign * step
        ahead, behind = (solved(end[None], *forms.arrays)[0][0] for end in ends)
        difference = (ahead - behind) / (2.0 * step[:, None])
        scale = np.abs(difference).max(axis=1, keepdims=True)
        assert (scale > 0.0).all()
        assert (weight * along[..., k] - difference) / scale == pytest.approx(0.0, abs=2e-4)


def test_weights_at_absurd_predictors_are_weights():
    """Nothing is NaN or infinite, however far predictors are."""
    for kind in KINDS:
        forms, _ = forms_of(kind)
        for far in (30.0, 1e3, 1e6):
            weight = solved(drawn(kind, 20, 4, far), *forms.arrays)[0]
            assert weight.sum(axis=-1) == pytest.approx(1.0, abs=1e-9)
            assert (weight >= 0.0).all()


# --- the likelihood ------------------------------------------------------------------------------


def cells_of(kind):
    """Three rows of three, five and one cells with densities of a few items each."""
    forms, _ = forms_of(kind)
    rng, z = np.random.default_rng(1), KINDS[kind].z
    density = np.exp(-0.5 * (z - rng.normal(size=(9, 1))) ** 2 / rng.uniform(0.5, 4.0, (9, 1)))
    return MixtureCells(
        forms,
        np.array([0, 3, 8, 9]),
        rng.integers(1, 9, 9).astype(float),
        density.astype(np.float32),
        np.array([0.5, -1.0, 0.0]),
    )


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def cells(kind):
    return cells_of(kind)


def _kernel(predictors, cells):
    value, slope = np.empty(predictors.shape[:2]), np.empty(predictors.shape)
    all_rows(predictors, value, slope, *cells.arrays)
    return value, slope


def _exact(exact, predictors, near, cells):
    """The log marginal of one row."""
    b = exact.b
    weight = exact.weights(predictors, near)
    total = mpmath.mpf(cells.constant[b])
    for c in range(cells.start[b], cells.start[b + 1]):
        p = mpmath.fdot([float(x) for x in cells.density[c]], weight)
        total += cells.items[c] * mpmath.log(p)
    return total


@pytest.mark.slow
def test_kernel_against_many_digits_and_differences(kind, cells):
    """Also where curves are bent, and where Newton's method fails from the first guess."""
    at = _predictors(kind)
    value, slope = _kernel(at, cells)
    guess = cells.forms.guess.copy()
    guess[:, :, 1:] = 1e4
    followed = _kernel(at, replace(cells, forms=replace(cells.forms, guess=guess)))
    near = solved(at, *cells.forms.arrays)[1][..., 9:11]
    with mpmath.workdps(30):
        for b in range(3):
            exact, unit = Exact(kind, b), cells.forms.handle[b, 1]
            for d in range(len(at)):
                # single precision: 1e-7 of each item
                want = float(_exact(exact, at[d, b], near[d, b], cells))
                assert value[d, b] == pytest.approx(want, abs=2e-5)
                assert followed[0][d, b] == pytest.approx(want, abs=2e-5)
                for j in range(5):
                    step = np.where(np.arange(5) == j, 1e-6 * (unit if j == 0 else 1.0), 0.0)
                    ahead, behind = (
                        _exact(exact, at[d, b] + s * step, near[d, b], cells) for s in (1, -1)
                    )
                    # of the numbers that were given, rounding included
                    whole = (at[d, b] + step)[j] - (at[d, b] - step)[j]
                    size = unit if j == 0 else 1.0
                    difference = float((ahead - behind) / mpmath.mpf(whole)) * size
                    for found in (slope, followed[1]):
                        assert found[d, b, j] * size == pytest.approx(difference, abs=1e-4)


def test_cells_may_be_permuted_and_split(kind, cells):
    at = drawn(kind, 2, 3)
    value, slope = _kernel(at, cells)
    order = np.array([2, 0, 1, 7, 5, 6, 4, 3, 8])
    items, density = cells.items[order], cells.density[order]
    twice = replace(
        cells,
        start=2 * cells.start,
        items=np.repeat(items / 2, 2),
        density=np.repeat(density, 2, axis=0),
    )
    again = _kernel(at, twice)
    assert again[0] == pytest.approx(value, abs=1e-5)
    size = np.ones((3, 5))
    size[:, 0] = cells.forms.handle[:, 1]
    assert again[1] * size == pytest.approx(slope * size, abs=1e-4)


def test_observed_information_is_minus_the_second_derivative(kind, cells):
    at = drawn(kind, 1, 4)[0]
    _, observed = information(at, cells)
    size = np.ones((3, 5))
    size[:, 0] = cells.forms.handle[:, 1]
    step = 1e-3
    for j in range(5):
        ahead, behind = at.copy(), at.copy()
        ahead[:, j] += step * size[:, j]
        behind[:, j] -= step * size[:, j]
        slopes = [_kernel(t[None], cells)[1][0] * size for t in (ahead, behind)]
        difference = (slopes[1] - slopes[0]) / (2 * step)
        # single precision over 2e-3
        assert observed[:, j] * size * size[:, [j]] == pytest.approx(difference, abs=5e-3)


def test_expected_information_is_of_the_cells_scores(kind, cells):
    """Each cell's own slope, by the kernel on this cell alone."""
    at = drawn(kind, 1, 5)[0]
    expected, _ = information(at, cells)
    total = np.zeros_like(expected)
    for c in range(len(cells.items)):
        b = np.searchsorted(cells.start, c, side="right") - 1
        one = replace(
            cells,
            start=(np.arange(4) > b).astype(np.int64),
            items=np.ones(1),
            density=cells.density[[c]],
        )
        score = _kernel(at[None], one)[1][0, b]
        total[b] += cells.items[c] * np.outer(score, score)
    size = np.ones((3, 5))
    size[:, 0] = cells.forms.handle[:, 1]
    size = size[:, None] * size[:, :, None]
    assert expected * size == pytest.approx(total * size, abs=1e-3)
