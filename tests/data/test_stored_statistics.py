"""Inconsistent statistics are refused when read, with the name of the bad part."""

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc._lib.files import save_netcdf
from tests.thinning import thinned

QUIET = {"progress": False}


@pytest.fixture(scope="module")
def stats():
    frame = soc.simulation.s1(300, seed=1)
    frame.loc[:20, "score"] = -frame.loc[:20, "score"]
    frame["g"] = np.where(frame.index % 2, "a", "b")
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure", group="g")
    return soc.summarize(items, bins=6, joint=True, on_leakage="ignore", **QUIET)


def _with(name, change):
    def make(data):
        return data.assign({name: (data[name].dims, change(data[name].to_numpy().copy()))})

    return make


CASES = [
    (lambda d: d.assign_coords(bin=np.arange(d.sizes["bin"])), "a variable 'bin' too many"),
    (lambda d: d.drop_vars("part_n"), "no variable 'part_n'"),
    (lambda d: d.set_coords("edges"), "coordinates are not the labels of groups"),
    (lambda d: d.assign_coords(label=["b", "a"]), "labels do not rise"),
    (lambda d: d.assign_attrs(coarse=0), "there are joint cells, and coarse=0"),
    (_with("part_sum_t", lambda x: x.astype(str)), "part_sum_t has type"),
    (_with("part_n", lambda x: -x), "part_n has numbers of items below 1"),
    (_with("part_bin", lambda x: x.astype(float)), "part_bin has type float64"),
    (_with("part_bin", lambda x: x + 100), "part_bin is"),
]


@pytest.mark.parametrize(
    ("change", "words"), thinned(CASES, CASES[-3:].__contains__), ids=[words for _, words in CASES]
)
def test_inconsistent_parts_are_refused(change, words, stats, tmp_path):
    path = tmp_path / "odd.nc"
    save_netcdf(change(stats.data), path, soc.StatisticsError)
    with pytest.raises(soc.StatisticsError, match=r"odd\.nc holds damaged statistics") as caught:
        soc.load_statistics(path)
    assert words in str(caught.value)
