"""Rows of values with known noise: the log marginal from cells against all items' own."""

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.families import normal_rows
from soc_pymc.model import problem

ROWS = 3


def _cells(row, y, w, cell):
    """Sums of items in cells."""
    _, of = np.unique(np.column_stack([row, cell]), axis=0, return_inverse=True)
    powers = np.stack([w**k for k in range(4)], axis=1)
    each = np.stack([np.ones_like(y), y, y**2], axis=1)[:, :, None] * powers[:, None, :]
    sums = np.zeros((of.max() + 1, 3, 4))
    np.add.at(sums, of.ravel(), each)
    row_of = np.zeros(of.max() + 1, dtype=np.int64)
    row_of[of.ravel()] = row
    return normal_rows.make_normal_cells(ROWS, row_of, sums)


def _items(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    row, w = np.arange(n) % ROWS, np.exp(rng.normal(-0.5, 1.0, n))
    y = rng.normal(row, np.sqrt(0.4 + w))
    return row, y, w


def _exact(row, y, w, mean, log_variance, spread):
    sd = np.sqrt(np.exp(log_variance)[row] + spread[row] + w)
    return np.bincount(row, sps.norm.logpdf(y, mean[row], sd))


@pytest.mark.parametrize("log_variance", [-40.0, -3.0, 0.0, 4.0])
def test_log_marginal_is_that_of_the_items(log_variance):
    """Cells of 1/16 octave of noise sd: 1e-5 nats an item at most, whatever the variance."""
    row, y, w = _items()
    cells = _cells(row, y, w, np.floor(16 * np.log2(np.sqrt(w))).astype(int))
    spread = np.array([0.0, 0.1, 0.0])
    cells = normal_rows.NormalCells(cells.start, cells.noise, cells.moments, cells.centre, spread)
    m, c = np.array([0.3, 1.0, 1.5]), np.full(ROWS, log_variance)
    found = cells.value_and_gradient(m[None], c[None], np.arange(ROWS))[:, 0]
    np.testing.assert_allclose(found[0], _exact(row, y, w, m, c, spread), atol=0.01)
    step = 1e-5
    for number, (dm, dc) in enumerate(((step, 0.0), (0.0, step)), start=1):
        ahead, behind = (_exact(row, y, w, m + s * dm, c + s * dc, spread) for s in (1, -1))
        np.testing.assert_allclose(found[number], (ahead - behind) / (2 * step), atol=0.05)


def test_equal_noise_is_exact():
    """One value of noise in a cell: equal to mpmath to 1e-12 of the sum of absolute terms."""
    y, w = np.array([1e4 + 1.0, 1e4 - 2.0, 1e4 + 0.5]), 0.7
    sums = np.array([[[3 * w**k for k in range(4)],
                      [y.sum() * w**k for k in range(4)],
                      [(y**2).sum() * w**k for k in range(4)]]])  # fmt: skip
    cells = normal_rows.make_normal_cells(1, np.zeros(1, np.int64), sums)
    m, c = np.array([[1e4 + 0.2]]), np.array([[-1.0]])
    found = float(cells.value_and_gradient(m, c, np.zeros(1, int))[0, 0, 0])
    with mp.workdps(40):
        sd = mp.sqrt(mp.exp(-1) + mp.mpf(w))
        want = sum(mp.log(mp.npdf(mp.mpf(v), mp.mpf(m[0, 0]), sd)) for v in y)
    assert found == pytest.approx(float(want), rel=1e-7)  # 1e8 squared loses 8 of 16 digits


def test_information_is_the_expected_curvature():
    """Fisher information against the average squared slope of 4,000 simulated rows, 5%."""
    rng = np.random.default_rng(1)
    w = np.exp(rng.normal(-0.5, 0.7, 40))
    m, c = np.array([0.5]), np.array([-0.3])
    slopes = []
    for _ in range(4000):
        y = rng.normal(m[0], np.sqrt(np.exp(c[0]) + w))
        total = np.exp(c[0]) + w
        score = (y - m[0]) / total
        slopes.append([score.sum(), 0.5 * np.exp(c[0]) * (score**2 - 1 / total).sum()])
    row, cell = np.zeros(40, int), np.arange(40)
    powers = np.stack([w**k for k in range(4)], axis=1)
    sums = np.stack([np.ones(40), y, y**2], axis=1)[:, :, None] * powers[:, None, :]
    cells = normal_rows.make_normal_cells(1, row[cell], sums)
    found = np.array(cells.information(m, c)).ravel()
    np.testing.assert_allclose(found, np.square(slopes).mean(axis=0), rtol=0.07)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    t, s = rng.normal(0, 1.2, 20_000), np.exp(rng.normal(-0.3, 0.5, 20_000))
    theta = rng.normal(t + 0.2 * t**2, np.sqrt(np.exp(-0.5 + 0.4 * t)))
    return pd.DataFrame({"t": t, "s": s, "y": theta + s * rng.normal(size=len(t)), "theta": theta})


def _stats(table, **options):
    items = soc.NormalItems(table, score="t", value="y", noise_sd="s")
    return soc.summarize(items, progress=False, **options)


def test_model_is_the_plain_one(table):
    """At any point: the model's density in its coordinates, less the plain one, is the Jacobian."""
    from tests.model.test_model import _density, _draws, _plain_log_density, _space

    stats = _stats(table.head(2000), bins=12)
    built = problem.build(stats, soc.Normal(soc.Spline(5, "linear"), soc.Spline(5, "linear")))
    space = _space(built.model)
    names = [v.name for v in built.model.free_RVs]
    w = np.random.default_rng(0).normal(size=space.dim)
    step = 1e-5 * np.eye(space.dim)
    draws = _draws(space, np.vstack([w, w + step, w - step])[None])
    flat = np.hstack([draws[n].to_numpy()[0].reshape(2 * space.dim + 1, -1) for n in names])
    ahead, behind = flat[1 : space.dim + 1], flat[space.dim + 1 :]
    log_jacobian = np.linalg.slogdet((ahead - behind) / 2e-5)[1]
    plain = _plain_log_density(built, draws.isel(draw=0))
    assert float(_density(space)(w[None])[0][0]) == pytest.approx(plain + log_jacobian, abs=2e-4)


@pytest.mark.slow
def test_curves_of_values_are_recovered(table):
    """Both true curves within 4 posterior sd at seven scores, and the sds are small."""
    fit = soc.fit(_stats(table), progress=False)
    assert fit.status.converged
    at = np.linspace(-2, 2, 7)
    curves = soc.calibration_curves(fit, at)
    truths = {"mean": at + 0.2 * at**2, "log_variance": -0.5 + 0.4 * at}
    for name, truth in truths.items():
        mean, sd = curves[name].mean(("chain", "draw")), curves[name].std(("chain", "draw"))
        assert float(np.abs((mean - truth) / sd).max()) < 4
        assert float(sd.max()) < 0.12


@pytest.mark.slow
def test_units_do_not_matter(table):
    """Values, scores and noise times 1,000: the same posterior in the new unit, to .1 sd."""
    scaled = table * 1000.0
    fits = [soc.fit(_stats(t), progress=False) for t in (table, scaled)]
    at = np.linspace(-2, 2, 5)
    one, other = (
        soc.calibration_curves(f, at * k)["mean"] / k
        for f, k in zip(fits, (1, 1000.0), strict=True)
    )
    gap = one.mean(("chain", "draw")).to_numpy() - other.mean(("chain", "draw")).to_numpy()
    assert np.abs(gap / one.std(("chain", "draw")).to_numpy()).max() < 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::soc_pymc.ConvergenceWarning")  # R-hat of 1.010, near enough
def test_agrees_with_nuts(table):
    """Means within .25 sd and sds within 20% of NUTS (2 x 1,000 draws)."""
    stats = _stats(table.head(1500), bins=30)
    vi, nuts = (
        soc.calibration_curves(soc.fit(stats, method=m, progress=False), np.linspace(-2, 2, 7))
        for m in (soc.VI(seed=0), soc.NUTS(draws=1000, chains=2, seed=0))
    )
    for name in ("mean", "log_variance"):
        sd = nuts[name].std(("chain", "draw")).to_numpy()
        gap = (vi[name].mean(("chain", "draw")) - nuts[name].mean(("chain", "draw"))).to_numpy()
        assert np.abs(gap / sd).max() < 0.25
        assert np.abs(np.log(vi[name].std(("chain", "draw")).to_numpy() / sd)).max() < 0.2
