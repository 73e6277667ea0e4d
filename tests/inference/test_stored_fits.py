"""Fits come back from files exactly; inconsistent ones are refused with the bad part's name."""

import numpy as np
import pytest

import soc_pymc as soc
from tests.examples import QUIET
from tests.thinning import thinned


@pytest.mark.parametrize(
    "name", thinned(["gamma", "five_steps", "groups", "gamma_mixture"], ["gamma", "five_steps"])
)
def test_fits_come_back_exactly(example, name, tmp_path):
    """Every number, prior, method and status; and the items' posteriors are the same."""
    fit = example(name).fit
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.data.equals(fit.data)
    assert again.data.attrs == fit.data.attrs
    assert (again.prior, again.method, again.status) == (fit.prior, fit.method, fit.status)
    assert again.groups == fit.groups
    items = example(name).case.items(example(name).frame.head(20))
    scored = [soc.item_posteriors(f, items, **QUIET) for f in (fit, again)]
    for column in scored[0].columns:
        np.testing.assert_array_equal(scored[0][column], scored[1][column])
    assert [path.name for path in tmp_path.iterdir()] == ["fit.nc"]
