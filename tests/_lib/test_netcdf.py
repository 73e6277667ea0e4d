"""The plain reader of saved files: the same as h5netcdf's, or h5netcdf reads."""

import io
import warnings

import numpy as np
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc._lib import files
from soc_pymc._lib.netcdf import read_plain


def fit():
    frame = soc.simulation.s1(600, seed=0)
    frame["country"] = np.where(frame.index % 3 == 0, "aa", "é")
    items = soc.PoissonItems(
        frame, score="score", count="count", exposure="exposure", group="country"
    )
    stats = soc.summarize(items, bins=8, joint=True, progress=False)
    return soc.fit(stats, method=soc.FiveSteps(), progress=False).data, stats.data


ODD = {
    "types": xr.Dataset(
        {
            "flag": ("a", np.array([True, False])),
            "small": ("a", np.array([1, 2], dtype=np.uint8)),
            "half": ("a", np.array([1.5, np.nan], dtype=np.float32)),
            "text": ("a", np.array(["", "é" * 300], dtype=object)),
            "one": ((), "x"),
            "number": ((), 3),
            "none": ("b", np.empty(0)),
            "day": ("a", np.array(["2024-01-01", "NaT"], dtype="datetime64[us]")),
        },
        {"a": ["x", "y"], "other": ("a", [1.0, 2.0])},
    ),
    "attributes": xr.Dataset(
        {"x": ("a", [1.0, 2.0], {"units": "m", "list": [1, 2], "words": ["a", "b"], "none": ""})},
        attrs={"one": 1, "real": 0.5, "array": np.arange(3), "empty": "", "bytes": np.bytes_("x")},
    ),
    "names": xr.Dataset({"x": (("x", "y"), np.ones((2, 3))), "a b": ("y", [1, 2, 3])}),
}


def as_saved(data, path):
    """What comes back of a saved file."""
    files.save_netcdf(data.assign_attrs(format="f-1"), path, ValueError)
    return files.read_saved(path, xr.open_dataset, "f-1", ValueError, "odd data", "none")


@pytest.mark.parametrize("name", ODD)
def test_odd_data_come_back_as_h5netcdf_reads_them(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = as_saved(ODD[name], tmp_path / "odd.nc")
        expected = xr.load_dataset(tmp_path / "odd.nc", engine="h5netcdf")
    del expected.attrs["digest"]
    assert found.identical(expected)


def test_statistics_and_fits_are_read_alike(tmp_path):
    for data, opener in zip(fit(), (xr.open_datatree, xr.open_dataset), strict=True):
        made = io.BytesIO()
        data.to_netcdf(made, engine="h5netcdf")
        with opener(made, engine="h5netcdf") as opened:
            expected = opened.load()
        assert read_plain(made, isinstance(data, xr.DataTree)).identical(expected)


def test_what_it_misreads_is_read_by_h5netcdf(tmp_path, monkeypatch):
    """The digest tells."""
    plain = as_saved(ODD["types"], tmp_path / "odd.nc")
    for wrong in (lambda *_: xr.Dataset(), lambda *_: 1 / 0):
        monkeypatch.setattr(files, "read_plain", wrong)
        assert as_saved(ODD["types"], tmp_path / "odd.nc").identical(plain)
