"""Mixtures: components, their weights and their likelihood, against laws and direct sums."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from soc_pymc._model.mixtures import MixtureCells, cell_points
from soc_pymc.families.mixtures import stretching, weights_of_draws
from tests.family_records import RECORDS

# both curves of the base distributions at three scores
CURVES = {
    "Gamma": np.array([[-3.0, -0.5], [-2.0, -2.0], [4.0, -4.0]]),
    "Normal": np.array([[1.0, 0.3], [-200.0, 4.0], [0.02, -9.0]]),
    "Beta": np.array([[-3.0, -1.0], [0.4, 0.5], [2.0, -4.0]]),
    "InverseGamma": np.array([[-3.0, -0.5], [-2.0, -2.0], [4.0, -4.0]]),
}
ROW_OF = np.repeat(np.arange(3), [3, 5, 1])


def functions_of(z):
    """Three bounded functions of the components' positions; the first makes way for the path."""
    x = np.tanh(z / 4.0)
    return np.column_stack([x**5, x**3, x**4])


def forms_of(name):
    """Base distributions at three scores, and how predictors give the weights there."""
    family = RECORDS[name].family
    base = family.frame(*CURVES[name].T)
    return base, family.weight_forms(base, functions_of(family.component_grid), CURVES[name])


def predictors_of(name, draws, seed, far=0.4):
    """Predictors (draws, scores, 5): both curves, the path or a function, and two functions."""
    base, forms = forms_of(name)
    predictors = far * np.random.default_rng(seed).normal(size=(draws, 3, 5))
    predictors[..., 0] *= forms.bounds.unit * (base.spread if name != "Normal" else 1.0)
    predictors[..., 1] = 0.25 + 0.5 * predictors[..., 1]
    predictors[..., :2] += CURVES[name]
    predictors[..., 2] = np.clip(predictors[..., 2] + 0.5, 0.0, 1.0)
    return predictors


def component_laws(name, base):
    """SciPy's laws of theta under the components, (scores, R)."""
    record = RECORDS[name]
    places, width = base.places(record.family.component_grid), base.variance()[:, None]
    return record.theta(*record.family.component_parameters(places, width))


# --- components ----------------------------------------------------------------------------------


def test_components_have_their_mean_and_variance(name):
    """Of log theta, logit theta or theta, over all magnitudes."""
    variance = np.geomspace(1e-10, 100.0, 41)[:, None]
    if name == "Gamma":
        variance = np.geomspace(1e-12, 1e4, 41)[:, None]
    location = np.linspace(-60.0, 60.0, 13) + np.zeros_like(variance)
    a, b = RECORDS[name].family.component_parameters(location, variance)
    mean, spread = {
        "Gamma": lambda: (special.psi(a) - np.log(b), special.polygamma(1, a)),
        "InverseGamma": lambda: (np.log(b) - special.psi(a), special.polygamma(1, a)),
        "Normal": lambda: (a, b),
        "Beta": lambda: (
            special.psi(a) - special.psi(b),
            special.polygamma(1, a) + special.polygamma(1, b),
        ),
    }[name]()
    np.testing.assert_allclose(spread, np.broadcast_to(variance, spread.shape), rtol=3e-7)
    assert (np.abs(mean - location) / np.sqrt(variance)).max() < 1e-6


def test_points_of_cells_keep_means_and_stay_possible():
    """A cell with nearly only successes becomes two points with its sums, none impossible."""
    rng = np.random.default_rng(0)
    n = rng.integers(5000, 5200, 300)
    y = n - rng.integers(40, 45, 300)
    sums = {"n": 300, "sum_y": y.sum(), "sum_N": n.sum(), "sum_yN": (y * n).sum()}
    sums |= {"sum_y2": (y * y).sum(), "sum_N2": (n * n).sum(), "sum_z": (n - y).sum()}
    cells = {column: np.array([value]) for column, value in sums.items()}
    family = RECORDS["Beta"].family
    cell, (successes, trials), items = cell_points(family, cells, np.array([0.01]))
    assert len(cell) == 2
    assert (successes <= trials).all()
    assert items @ successes == pytest.approx(y.sum())
    assert items @ trials == pytest.approx(n.sum())


# --- weights -------------------------------------------------------------------------------------


def test_functions_tilt_the_weights(name):
    """Log weights move by the functions times their coefficients, less a shift and a stretch."""
    base, forms = forms_of(name)
    z = RECORDS[name].family.component_grid
    predictors = predictors_of(name, 1, 5)
    plain = predictors.copy()
    plain[..., 3:] = 0.0
    logs = (np.log(weights_of_draws(x, forms)[0]) for x in (predictors, plain))
    moved = np.subtract(*logs) - predictors[0, :, 3:] @ functions_of(z)[:, 1:].T
    for score in range(3):
        centre, corner = 0.0, 3.0
        if name != "Normal":  # both tails of the logarithm begin at the scale of theta
            centre = (base.location - base.centre)[score] / base.spread[score]
            corner = min(3.0, 2.0 / base.spread[score])
        tilts = np.column_stack([np.ones(len(z)), z, stretching(z, centre, corner)])
        residual = moved[score] - tilts @ np.linalg.lstsq(tilts, moved[score], rcond=None)[0]
        assert np.abs(residual).max() < 1e-6


@pytest.mark.parametrize("far", [30.0, 1e3, 1e6])
def test_weights_at_absurd_predictors_are_weights(name, far):
    weight = weights_of_draws(predictors_of(name, 20, 4, far), forms_of(name)[1])
    assert weight.sum(axis=-1) == pytest.approx(1.0, abs=1e-9)
    assert (weight >= 0.0).all()


@pytest.mark.parametrize("widened", [0.0, 1.0])
def test_weights_around_absurd_curves_are_weights(name, widened):
    """Also where components are wider than the family's law, as on grids of uncertain curves."""
    family = RECORDS[name].family
    grid = np.meshgrid([-300.0, -36, -10, -6, 0, 7, 20, 60], [-60.0, -4, 0.4, 3, 40])
    curves = np.stack(grid, axis=-1).reshape(-1, 2)
    base = family.frame(curves[:, 0], curves[:, 1] + widened)
    forms = family.weight_forms(base, functions_of(family.component_grid), curves)
    predictors = np.tile(np.pad(curves, ((0, 0), (0, 3))), (3, 1, 1))
    predictors[1:, :, 1] += [[3.0], [-6.0]]
    weight = weights_of_draws(predictors, forms)
    assert weight.sum(axis=-1) == pytest.approx(1.0, abs=1e-9)


ENDS = [  # the family's law, and by how much the mixture's cdf may differ
    *(("Gamma", (shape, shape / 0.05), 0.02 if shape < 1.0 else 0.006) for shape in (0.1, 0.3)),
    *(("Gamma", (shape, shape / 0.05), 0.006) for shape in (1.0, 5.0, 200.0)),
    *(("InverseGamma", (shape, shape / 20.0), 0.006) for shape in (3.0, 7.0, 200.0)),
    ("Normal", (1.0, 4.0), 1e-5),
    ("Beta", (0.3, 0.3), 0.004),
    ("Beta", (0.54, 0.06), 0.004),
    ("Beta", (0.1, 0.1), 0.004),
    ("Beta", (0.5, 5.0), 0.007),
    ("Beta", (1.0, 1.0), 0.001),
    ("Beta", (20.0, 3.0), 0.001),
    ("Beta", (3.0, 1e5), 0.002),
    ("Beta", (1e6, 1e7), 0.001),
]


@pytest.mark.parametrize(("name", "prior", "error"), ENDS)
def test_the_path_ends_in_the_familys_law(name, prior, error):
    record = RECORDS[name]
    family = record.family
    curves = np.array([record.family.to_curves(*np.array(prior))])
    base = family.frame(*curves.T)
    forms = family.weight_forms(base, np.zeros((len(family.component_grid), 1)), curves)
    predictors = np.column_stack([curves, [float(name != "Normal")]])[None]
    weight = weights_of_draws(predictors, forms)[0, 0]
    prob = np.concatenate([[1e-3], np.linspace(0.01, 0.99, 99), [0.999]])
    theta = record.theta(*prior).ppf(prob)
    parts = component_laws(name, base)
    cdf = np.array([weight @ parts.cdf(x)[0] for x in theta])
    # what counts can tell from 0, and successes from all trials
    seen = theta > (1e-4 * record.theta(*prior).mean() if prior[0] < 1.0 else -np.inf)
    seen &= theta < (1.0 - 1e-4 if name == "Beta" and prior[1] < 1.0 else np.inf)
    assert cdf[seen] == pytest.approx(prob[seen], abs=error)
    mean, variance = record.theta(*prior).stats("mv")
    assert weight @ parts.mean()[0] == pytest.approx(mean, rel=1e-6)
    spread = weight @ (parts.var()[0] + (parts.mean()[0] - mean) ** 2)
    assert spread == pytest.approx(variance, rel=1e-5)


# --- likelihood ----------------------------------------------------------------------------------


def cells_of(name, atoms=False):
    """Three rows of three, five and one cells with densities of a few items each.

    With atoms, some cells may be of theta = 0, whose share is the last of five predictors.
    """
    _, forms = forms_of(name)
    rng, z = np.random.default_rng(1), RECORDS[name].family.component_grid
    density = np.exp(-0.5 * (z - rng.normal(size=(9, 1))) ** 2 / rng.uniform(0.5, 4.0, (9, 1)))
    items, constant = rng.integers(1, 9, 9).astype(float), np.array([0.5, -1.0, 0.0])
    start = np.array([0, 3, 8, 9])
    cells = MixtureCells(forms, start, items, density.astype(np.float32), constant)
    if not atoms:
        return cells
    functions = forms.functions * [1.0, 1.0, 0.0]  # the share is no function of z
    atom = np.array([1.0, 0.0, 0.3, 0.0, 0.7, 1e-3, 0.0, 1.0, 0.2], dtype=np.float32)
    return replace(cells, forms=replace(forms, functions=functions), atom=atom)


def by_definition(predictors, cells):
    """Sums of n log(share atom + (1 - share) sum of weight x density), by row."""
    weight = weights_of_draws(predictors, cells.forms)
    share = special.expit(predictors[..., -1]) if len(cells.atom) else np.zeros(weight.shape[:2])
    log = np.tile(cells.constant, (len(predictors), 1))
    for cell, row in enumerate(ROW_OF):
        density = (1.0 - share[:, row]) * (weight[:, row] @ cells.density[cell].astype(float))
        if len(cells.atom):
            density += share[:, row] * float(cells.atom[cell])
        log[:, row] += cells.items[cell] * np.log(density)
    return log


@pytest.mark.parametrize("atoms", [False, True])
def test_likelihood_by_its_definition(name, atoms):
    """To 1e-7 an item, the rounding of single precision; also where curves are bounded."""
    cells = cells_of(name, atoms)
    predictors = np.concatenate([predictors_of(name, 4, 0), predictors_of(name, 4, 1, far=3.0)])
    result = cells.log_marginals(predictors)[0]
    assert result == pytest.approx(by_definition(predictors, cells), abs=2e-5)


@pytest.mark.parametrize("atoms", [False, True])
def test_gradients_are_slopes_of_the_values(name, atoms):
    cells = cells_of(name, atoms)
    predictors = predictors_of(name, 3, 1)
    slope = cells.log_marginals(predictors)[1]
    for k in range(5):
        size = cells.forms.bounds.unit if k == 0 else np.ones(3)
        step = np.zeros(predictors.shape)
        step[..., k] = 1e-4 * size
        ahead, behind = (by_definition(predictors + sign * step, cells) for sign in (1, -1))
        assert slope[..., k] * size == pytest.approx((ahead - behind) / 2e-4, abs=2e-3)


def test_no_share_of_zeros_is_the_same_as_none(name):
    """At a share of 0 the likelihood is bit for bit that without it."""
    cells, predictors = cells_of(name, atoms=True), predictors_of(name, 3, 3)
    predictors[..., -1] = -800.0
    value, slope = cells.log_marginals(predictors)
    plain, plain_slope = replace(cells, atom=np.empty(0, np.float32)).log_marginals(predictors)
    assert (value == plain).all()
    assert (slope[..., :-1] == plain_slope[..., :-1]).all()
    assert (slope[..., -1] == 0.0).all()
