"""Item posteriors: closed form, mixtures over draws, and kinds of tables."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import optimize, special

import soc_pymc as soc
from soc_pymc.families.mixtures import gamma_summaries
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.items import quantile_name
from soc_pymc.posterior.quadrature import representative_nodes

COLUMNS = ["theta_mean", "theta_sd", "theta_var", "theta_q05", "theta_q95"]


@pytest.fixture(scope="module")
def some_items(small_frame):
    frame = small_frame.iloc[:300].reset_index(drop=True)
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


@pytest.fixture(scope="module")
def scored(small_fit, some_items):
    return soc.item_posteriors(small_fit, some_items, progress=False)


@pytest.fixture(scope="module")
def exact(small_fit, some_items):
    return soc.item_posteriors(small_fit, some_items, draws="all", progress=False)


def _gammas(fit, frame):
    log_mean, log_cv2 = curve_draws(fit, frame["score"])
    shape = np.exp(-log_cv2) + frame["count"].to_numpy()
    return shape, np.exp(-log_cv2 - log_mean) + frame["exposure"].to_numpy()


def test_conjugate_arithmetic(small_fit, some_items, exact):
    """Total variance over every draw, recomputed: relative 1e-9."""
    shape, rate = _gammas(small_fit, some_items.source)
    means = shape / rate
    variance = (shape / rate**2).mean(axis=0) + means.var(axis=0)
    np.testing.assert_allclose(exact["theta_mean"], means.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(exact["theta_var"], variance, rtol=1e-9)
    np.testing.assert_allclose(exact["theta_sd"] ** 2, exact["theta_var"], rtol=1e-12)


def test_quantiles_of_the_mixture(small_fit, some_items, exact):
    """The mixture's cdf at the quantiles is the probability; and brute force agrees on ten."""
    shape, rate = _gammas(small_fit, some_items.source)
    for column, prob in (("theta_q05", 0.05), ("theta_q95", 0.95)):
        theta = exact[column].to_numpy()
        np.testing.assert_allclose(special.gammainc(shape, theta * rate).mean(0), prob, atol=1e-6)
        for i in range(10):
            brute = optimize.brentq(
                lambda x, i=i, p=prob: special.gammainc(shape[:, i], x * rate[:, i]).mean() - p,
                1e-12, 10.0, xtol=1e-15,
            )  # fmt: skip
            assert abs(brute - theta[i]) < 1e-6 * exact["theta_sd"].iloc[i]


@pytest.mark.parametrize("cv2", [1e-12, 1e-6, 0.3, 50.0, 1e4])
@pytest.mark.parametrize("exposure", [0.0, 1e-3, 10.0, 1e9])
def test_limits(cv2, exposure):
    """Shapes from 1e-4 to 1e12, no exposure to a billion: finite, ordered, and the right tail."""
    count = np.array([0.0, 0.0 if exposure == 0 else 3.0])
    shape = np.array([1 / cv2, 1 / cv2]) + count
    rate = 1 / (cv2 * 0.05) + exposure
    curves = (np.full((1, 2), np.log(0.05)), np.full((1, 2), np.log(cv2)))
    found = gamma_summaries(*curves, count, np.full(2, exposure), (0.05, 0.5, 0.95))
    np.testing.assert_allclose(found.mean, shape / rate, rtol=1e-12)
    assert (found.variance > 0).all()
    assert (np.diff(found.quantiles, axis=0) >= 0).all()
    want = special.gammaincinv(shape, np.array([[0.05], [0.5], [0.95]])) / rate
    np.testing.assert_allclose(found.quantiles, want, rtol=1e-6, atol=1e-300)


def test_by_simulation(small_fit):
    """Mean, sd and quantiles of 400,000 draws of theta: within 4 Monte Carlo standard errors."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"score": [0.03], "count": [2], "exposure": [25]})
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    found = soc.item_posteriors(small_fit, items, progress=False).iloc[0]
    shape, rate = _gammas(small_fit, frame)
    pick = rng.integers(0, len(shape), 400_000)
    theta = rng.gamma(shape[pick, 0], 1 / rate[pick, 0])
    assert abs(theta.mean() - found["theta_mean"]) < 4 * theta.std() / 632
    assert abs(np.mean(theta < found["theta_q05"]) - 0.05) < 4 * 0.22 / 632
    assert abs(np.mean(theta < found["theta_q95"]) - 0.95) < 4 * 0.22 / 632


def test_auto_is_close(small_fit, some_items, scored, exact):
    """Within a thousandth of a posterior sd, as promised, on the wide curves of 4,000 items."""
    for column in ("theta_mean", "theta_sd", "theta_q05", "theta_q95"):
        off = np.abs(scored[column] - exact[column]) / exact["theta_sd"]
        assert 0 < off.max() < 1e-3


def test_outer_quantiles_are_over_all_draws(small_fit, some_items, exact):
    found = soc.item_posteriors(small_fit, some_items, quantiles=(0.01, 0.5), progress=False)
    np.testing.assert_array_equal(found["theta_mean"], exact["theta_mean"])


def test_the_old_name_of_auto(small_fit, some_items, scored):
    found = soc.item_posteriors(small_fit, some_items, draws="representative", progress=False)
    pd.testing.assert_frame_equal(found, scored)


def test_representative_nodes_keep_moments(small_fit):
    score = np.array([0.01, 0.05, 0.2])
    weight, log_mean, log_cv2 = representative_nodes(small_fit, score)
    draws = curve_draws(small_fit, score)
    assert weight.sum() == pytest.approx(1.0)
    for nodes, all_draws in zip((log_mean, log_cv2), draws, strict=True):
        np.testing.assert_allclose(weight @ nodes, all_draws.mean(0), atol=1e-12)
        spread = weight @ (nodes - weight @ nodes) ** 2
        np.testing.assert_allclose(spread, all_draws.var(0), rtol=1e-8)


def test_plug_in_ignores_the_curves_uncertainty(small_fit, some_items, scored):
    plug_in = soc.item_posteriors(small_fit, some_items, plug_in=True, progress=False)
    log_mean, log_cv2 = (d.mean(0) for d in curve_draws(small_fit, some_items.source["score"]))
    shape = np.exp(-log_cv2) + some_items.source["count"]
    rate = np.exp(-log_cv2 - log_mean) + some_items.source["exposure"]
    np.testing.assert_allclose(plug_in["theta_mean"], shape / rate, rtol=1e-10)
    np.testing.assert_allclose(plug_in["theta_var"], shape / rate**2, rtol=1e-10)
    assert plug_in["theta_sd"].mean() < scored["theta_sd"].mean()


def test_permutation_of_items(small_fit, some_items, scored):
    order = np.random.default_rng(0).permutation(len(scored))
    shuffled = some_items.source.iloc[order]
    items = soc.PoissonItems(shuffled, score="score", count="count", exposure="exposure")
    again = soc.item_posteriors(small_fit, items, progress=False)
    assert list(again.index) == list(order)  # the user's index is kept
    np.testing.assert_allclose(again.sort_index()[COLUMNS], scored[COLUMNS], rtol=1e-9)


def test_kinds_of_tables(small_fit, some_items, scored, tmp_path):
    """pandas, Polars, Arrow, Parquet, CSV, globs and Ibis: the same numbers, the user's columns."""
    import ibis
    import polars as pl

    frame = some_items.source
    path = tmp_path / "a.parquet"
    frame.to_parquet(path)
    frame.to_csv(tmp_path / "a.csv", index=False)
    kinds = {
        "polars": (pl.from_pandas(frame), pl.DataFrame),
        "arrow": (pa.Table.from_pandas(frame), pa.Table),
        "path": (path, pa.Table),
        "glob": (str(tmp_path / "*.parquet"), pa.Table),
        "csv": (str(tmp_path / "a.csv"), pa.Table),
        "ibis": (ibis.memtable(frame), ibis.Table),
    }
    for source, kind in kinds.values():
        items = soc.PoissonItems(source, score="score", count="count", exposure="exposure")
        found = soc.item_posteriors(small_fit, items, progress=False)
        assert isinstance(found, kind)
        table = found if isinstance(found, pd.DataFrame) else found.to_pandas()
        assert list(table.columns)[: frame.shape[1]] == list(frame.columns)
        np.testing.assert_allclose(table[COLUMNS], scored[COLUMNS], rtol=1e-9)


def test_streaming_to_a_file(small_fit, some_items, scored, tmp_path):
    out = tmp_path / "scored.parquet"
    assert soc.item_posteriors(small_fit, some_items, out=out, progress=False) == out
    np.testing.assert_allclose(pq.read_table(out).to_pandas()[COLUMNS], scored[COLUMNS], rtol=1e-9)
    assert [p.name for p in tmp_path.iterdir()] == ["scored.parquet"]


def test_a_failure_leaves_no_file(small_fit, some_items, tmp_path, monkeypatch):
    def broken(*_):
        raise MemoryError

    monkeypatch.setattr("soc_pymc.posterior.quadrature.curves_at", broken)
    with pytest.raises(MemoryError):
        soc.item_posteriors(small_fit, some_items, out=tmp_path / "scored.parquet", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_errors(small_fit, some_items, small_frame):
    taken = soc.PoissonItems(
        small_frame.assign(theta_sd=0.0), score="score", count="count", exposure="exposure"
    )
    with pytest.raises(soc.ItemsError, match="'theta_sd'"):
        soc.item_posteriors(small_fit, taken)
    for bad in ((0.0,), (1.2,), (0.5, 0.5)):
        with pytest.raises(soc.FitError, match="quantiles"):
            soc.item_posteriors(small_fit, some_items, quantiles=bad)
    with pytest.raises(soc.FitError, match="draws"):
        soc.item_posteriors(small_fit, some_items, draws="few")
    with pytest.raises(soc.FitError, match="plug_in"):
        soc.item_posteriors(small_fit, some_items, draws="all", plug_in=True)
    below = small_frame.assign(score=-small_frame["score"])
    with pytest.raises(soc.FitError, match="0 or below"):
        soc.item_posteriors(
            small_fit, soc.PoissonItems(below, score="score", count="count", exposure="exposure")
        )


@pytest.mark.parametrize(
    ("prob", "name"),
    [(0.05, "05"), (0.5, "50"), (0.975, "97_5"), (0.005, "00_5"), (0.025, "02_5"), (0.07, "07")],
)
def testquantile_names(prob, name):
    assert quantile_name(prob) == f"theta_q{name}"
