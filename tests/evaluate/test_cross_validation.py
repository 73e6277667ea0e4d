"""Cross-validation from statistics, against fits to the other folds' items."""

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import COUNT_ROLES, QUIET, count_frame


@pytest.mark.slow
def test_cross_validation_is_that_of_the_items():
    """Fold by fold: the density of its items at the mean curves of a fit to the others."""
    frame = count_frame(6000, 4).assign(half=np.arange(6000) % 2)
    items = soc.PoissonItems(frame, **COUNT_ROLES, fold="half")
    stats = soc.summarize(items, bins=100, **QUIET)
    table = soc.evaluate.cross_validate(stats, method=soc.FiveSteps(), **QUIET)
    assert list(table["items"]) == [3000, 3000]
    for fold in (0, 1):
        train, test = frame[frame["half"] != fold], frame[frame["half"] == fold]
        others = soc.summarize(soc.PoissonItems(train, **COUNT_ROLES), edges=stats.edges, **QUIET)
        fit = soc.fit(others, method=soc.FiveSteps(), **QUIET)
        columns = {name: test[name].to_numpy(dtype=float) for name in COUNT_ROLES}
        direct = posterior_of(fit).log_density(columns).sum()
        assert table.loc[fold, "elpd"] == pytest.approx(direct, abs=5.0)
    few, vi = soc.Spline(knots=4), soc.VI(draws=100)
    priors = soc.Gamma(few, few), soc.Gamma(few, soc.Spline(knots=1, level=(-4.0, 0.01)))
    sums = [soc.evaluate.cross_validate(stats, p, vi, **QUIET)["elpd"].sum() for p in priors]
    assert sums[0] > sums[1] + 10
