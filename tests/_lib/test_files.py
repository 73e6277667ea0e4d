"""Damaged and foreign files are refused, and fits come back exactly, or are not written at all."""

import copy
import json
import os
import re

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc import prior_table
from soc_pymc._lib.files import save_netcdf, seal
from tests.examples import COUNT_ROLES, QUIET, part_of, thinned

five_steps = part_of("five_steps", "fit")


@pytest.fixture(scope="module")
def contents(five_steps, example, tmp_path_factory):
    """The bytes of one saved file of every kind."""
    folder = tmp_path_factory.mktemp("saved")
    items = soc.PoissonItems(example("gamma").frame[:500], **COUNT_ROLES)
    stats = soc.summarize(items, bins=5, joint=False, progress=False)
    stats.save(folder / "stats.nc")
    five_steps.save(folder / "fit.nc")
    soc.export_prior(five_steps, folder / "prior.json")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "flipped at the start": lambda content: flipped(content, 1),
    "flipped inside": lambda content: flipped(content, len(content) // 3),
    "flipped near the end": lambda content: flipped(content, len(content) - 90),
    "longer": lambda content: content + content[-1:],
    "empty": lambda content: b"",
    "another program's": lambda content: b"score,count\n0.1,2\n",
}

READERS = {
    "stats.nc": (soc.load_statistics, soc.StatisticsError),
    "fit.nc": (soc.load_fit, soc.FitError),
    "prior.json": (prior_table.load, ValueError),
}
CASES = [(name, damage) for name in ("stats.nc", "fit.nc") for damage in DAMAGES]
# text has no checksum, and a digit may be changed
CASES += [("prior.json", damage) for damage in ("cut", "empty", "another program's")]


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_damaged_and_foreign_files_are_refused(name, damage, contents, tmp_path):
    """One line that names the file."""
    load, error = READERS[name]
    (tmp_path / name).write_bytes(DAMAGES[damage](contents[name]))
    with pytest.raises(error, match=re.escape(name)) as caught:
        load(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", READERS)
def test_files_of_other_versions_and_kinds_are_refused(name, contents, tmp_path):
    """The format that they have is named."""
    (load, error), path = READERS[name], tmp_path / name
    with pytest.raises((error, OSError), match=re.escape(name)):
        load(path)  # there is no such file
    if name == "prior.json":
        table = json.loads(contents[name])
        table["meta"]["format"] = "of another version"
        path.write_text(json.dumps(table))
    else:
        other = contents["fit.nc" if name == "stats.nc" else "stats.nc"]
        path.write_bytes(other)
        with pytest.raises(error, match=re.escape(name)):
            load(path)
        path.write_bytes(contents[name])
        with h5py.File(path, "r+") as file:
            file.attrs["format"] = "of another version"
        path.write_bytes(path.read_bytes() + seal(path.read_bytes()))
    with pytest.raises(error, match="of another version"):
        load(path)


def test_damaged_scored_files_are_made_again(five_steps, example, tmp_path):
    """They are no input: whichever byte is wrong, the file does not count as finished."""
    frame = example("gamma").frame
    for k, name in enumerate("ab"):
        frame[300 * k : 300 * (k + 1)].to_parquet(tmp_path / f"{name}.parquet")
    items = soc.PoissonItems(str(tmp_path / "?.parquet"), **COUNT_ROLES)

    def score():
        return soc.item_posteriors(five_steps, items, out=f"{tmp_path}/scored/", progress=False)

    path, other = (score() / f"{name}.parquet" for name in "ab")
    content, expected = path.read_bytes(), pq.read_table(path)
    kept = other.stat().st_mtime_ns
    damaged = [damage(content) for damage in DAMAGES.values()]
    for changed in [*damaged, other.read_bytes()]:
        path.write_bytes(changed)
        score()
        assert pq.read_table(path).equals(expected)
    assert other.stat().st_mtime_ns == kept


def test_a_failed_save_leaves_the_old_file_alone(five_steps, tmp_path, monkeypatch):
    path = tmp_path / "fit.nc"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        five_steps.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["fit.nc"]
    assert path.read_text() == "old"


def test_files_are_as_if_written_by_xarray(tmp_path):
    """With text, flags, dates, a scalar, nothing, dims without labels, and attributes."""
    table = xr.Dataset(
        {
            "number": (("row", "kind"), np.arange(6.0).reshape(3, 2), {"unit": "nats", "size": 3}),
            "text": ("row", np.array(["a", "é\n", ""], dtype=object)),
            "flag": ("row", [True, False, True]),
            "small": ("kind", np.array([1, -1], dtype=np.int8)),
            "missing": ("kind", np.array([np.nan, np.inf], dtype=np.float32)),
            "nothing": ("empty", np.empty(0)),
            "scalar": 2.5,
            "beside": (("row", "other"), np.ones((3, 4), dtype=int)),
        },
        {
            "kind": ["x", "y"],
            "day": ("row", np.array(["2026-01-01", "2026-01-02", "NaT"], dtype="datetime64[ns]")),
        },
        {"names": ["chain", "draw"], "one": ["draw"], "sizes": [1, 2], "text": "\u2211", "few": []},
    )
    root = xr.Dataset(attrs={"format": "f"})
    tree = xr.DataTree.from_dict({"/": root, "/a": table, "/a/b": table})
    save_netcdf(tree, tmp_path / "ours.nc", soc.FitError)
    tree.to_netcdf(tmp_path / "theirs.nc", engine="h5netcdf")
    ours, theirs = (
        xr.load_datatree(tmp_path / name, engine="h5netcdf") for name in ("ours.nc", "theirs.nc")
    )
    assert ours.identical(theirs)
    for path, dataset in theirs.to_dict().items():
        assert list(ours[path].attrs) == list(dataset.attrs)
        types = [(name, x.dtype) for name, x in dataset.variables.items()]
        assert [(name, x.dtype) for name, x in ours[path].variables.items()] == types


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
    # a copy, as what a mixture has computed for other items moves the seventh digit
    scored = [soc.item_posteriors(f, items, **QUIET) for f in (copy.copy(fit), again)]
    for column in scored[0].columns:
        np.testing.assert_array_equal(scored[0][column], scored[1][column])
    assert [path.name for path in tmp_path.iterdir()] == ["fit.nc"]
