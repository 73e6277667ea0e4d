"""Readers of saved files under damage: refused, or what was saved comes back.

Scored files are no input: damaged ones are made again.
"""

import json
import subprocess
import sys

import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc._lib.errors import SocError
from soc_pymc._lib.files import content_digest, save_netcdf, seal
from soc_pymc.data.statistics import _read as read_statistics
from soc_pymc.inference.results import _read as read_fit
from soc_pymc.posterior import scored_files

# xarray makes indexes of changed coordinates, and pandas has none of half precision
pytestmark = pytest.mark.filterwarnings("ignore:.*does not support the `float16` dtype")

# ---------------------------------------------------------------- what is saved


def _frames():
    frame = soc.simulation.s1(1500, seed=4)
    frame["country"] = np.where(np.arange(len(frame)) % 3 == 0, "aa", "b")
    frame["fold"] = np.arange(len(frame)) % 4
    rng = np.random.default_rng(4)
    values = pd.DataFrame({"t": rng.normal(size=1500), "sd": rng.uniform(0.5, 3.0, 1500)})
    values["y"] = values["t"] + np.hypot(1.0, values["sd"]) * rng.normal(size=1500)
    values["country"] = frame["country"]
    return frame, values


FRAME, VALUES = _frames()


def counts(**roles):
    return soc.PoissonItems(FRAME, score="score", count="count", exposure="exposure", **roles)


def values(**roles):
    return soc.NormalItems(VALUES, score="t", value="y", noise_sd="sd", **roles)


STATISTICS = {
    "counts": lambda: soc.summarize(counts(), bins=6, progress=False),
    "counts, groups and folds": lambda: soc.summarize(
        counts(group="country", fold="fold"), bins=5, joint=True, progress=False
    ),
    "counts, merged joint cells": lambda: soc.summarize(
        counts(group="country"), bins=16, joint=1000, folds=2, progress=False
    ),
    "values": lambda: soc.summarize(values(), bins=6, progress=False),
    "values, groups and folds": lambda: soc.summarize(
        values(group="country"), bins=5, joint=True, folds=3, progress=False
    ),
}


def _fit(items, prior=None, method=None, **options):
    stats = soc.summarize(items, bins=8, progress=False, **options)
    return soc.fit(stats, prior, method=method or soc.VI(draws=7), progress=False)


FITS = {
    "five steps": lambda: _fit(counts(), method=soc.FiveSteps()),
    "five steps, groups": lambda: _fit(counts(group="country"), method=soc.FiveSteps()),
    "five steps, by bin": lambda: _fit(counts(), method=soc.FiveSteps(smooth=False)),
    "five steps, mixture": lambda: _fit(
        counts(), soc.GammaMixture(), soc.FiveSteps(components=20), joint=True
    ),
    "five steps, values": lambda: _fit(values(), method=soc.FiveSteps(smooth=False)),
    "gamma": lambda: _fit(counts(), soc.Gamma(soc.Spline(knots=4), soc.Spline(knots=3))),
}
RANK = soc.Spline(knots=4, scale="rank")
SLOW_FITS = {
    "groups, ranks": lambda: _fit(counts(group="country"), soc.Gamma(RANK, RANK)),
    "exposure": lambda: _fit(counts(), soc.Gamma(exposure=soc.Spline(knots=3)), joint=True),
    "bin effects": lambda: _fit(counts(), soc.Gamma(bin_effects=True)),
    "mixture": lambda: _fit(counts(), soc.GammaMixture(), joint=True),
    "normal": lambda: _fit(values(group="country")),
    "normal mixture": lambda: _fit(values(), soc.NormalMixture(), joint=True),
    "nuts": lambda: _fit(counts(), method=soc.NUTS(draws=20, tune=50, chains=2)),
}
QUICK = ("five steps, groups", "five steps, by bin")
ALL_FITS = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in FITS | SLOW_FITS
]
_made = {}


def statistics(name):
    if name not in _made:
        _made[name] = STATISTICS[name]()
    return _made[name]


@pytest.fixture
def fit(request):
    if request.param not in _made:
        with np.errstate(all="ignore"), pytest.warns() if "nuts" in request.param else _quiet():
            _made[request.param] = (FITS | SLOW_FITS)[request.param]()
    return _made[request.param]


def _quiet():
    import warnings

    return warnings.catch_warnings(action="ignore")


# ---------------------------------------------------------------- bytes


def damages(content, rng):
    """Name and bytes of files that differ from `content`."""
    size = len(content)
    for _ in range(150):
        flipped = bytearray(content)
        flipped[rng.integers(size)] ^= 1 << rng.integers(8)
        yield "flip", bytes(flipped)
    for _ in range(40):
        yield "cut", content[: rng.integers(size)]
    for _ in range(60):
        at, long = rng.integers(size), int(rng.integers(1, 4096))
        zeroed = content[:at] + bytes(len(content[at : at + long])) + content[at + long :]
        if zeroed != content:
            yield "zeros", zeroed
    for _ in range(60):
        at = rng.integers(size)
        yield "inserted", content[:at] + rng.bytes(int(rng.integers(1, 64))) + content[at:]
    for _ in range(60):
        a, b = sorted(int(x) for x in rng.integers(0, size - 512, 2))
        if a + 512 <= b and content[a : a + 512] != content[b : b + 512]:
            yield (
                "swapped",
                content[:a]
                + content[b : b + 512]
                + content[a + 512 : b]
                + content[a : a + 512]
                + content[b + 512 :],
            )
    yield "twice", content + content
    yield "longer", content + b"\0"
    yield "empty", b""


@pytest.mark.parametrize("kind", ["statistics", "fit"])
def test_damaged_bytes_are_refused(kind, tmp_path):
    """Whatever byte is wrong, HDF5 never sees the file, and the error says what to do."""
    path = tmp_path / "saved.nc"
    load = soc.load_statistics if kind == "statistics" else soc.load_fit
    saved = statistics("values") if kind == "statistics" else FITS["five steps"]()
    saved.save(path)
    content = path.read_bytes()
    assert load(path).data.identical(saved.data)
    seen = set()
    for what, changed in damages(content, np.random.default_rng(0)):
        assert changed != content
        path.write_bytes(changed)
        with pytest.raises(SocError, match=r"checksum|does not begin as a netCDF4 file") as caught:
            load(path)
        assert "write it again" in str(caught.value)
        assert "\n" not in str(caught.value)
        seen.add(what)
    assert seen >= {"flip", "cut", "zeros", "inserted", "swapped"}
    path.write_bytes(content)
    assert load(path).data.identical(saved.data)


def test_other_readers_ignore_the_seal(tmp_path):
    fit = FITS["five steps"]()
    fit.save(tmp_path / "fit.nc")
    content = (tmp_path / "fit.nc").read_bytes()
    assert content.endswith(seal(content[:-82]))
    assert xr.open_datatree(tmp_path / "fit.nc", engine="h5netcdf").load().equals(fit.data)
    with h5py.File(tmp_path / "fit.nc") as opened:
        np.testing.assert_array_equal(opened["posterior/log_mean"], fit.data["posterior/log_mean"])


@pytest.mark.slow
def test_files_of_other_programs_and_formats(tmp_path):
    stats, path = statistics("counts"), tmp_path / "s.nc"
    stats.data.to_netcdf(path, engine="h5netcdf")
    with pytest.raises(soc.StatisticsError, match=r"another program or an earlier version"):
        soc.load_statistics(path)
    save_netcdf(stats.data.assign_attrs(format="soc_pymc-statistics-3"), path, ValueError)
    with pytest.raises(
        soc.StatisticsError, match=r"'soc_pymc-statistics-3' of a newer version.*-statistics-2'"
    ):
        soc.load_statistics(path)
    stats.save(path)
    with pytest.raises(soc.FitError, match=r"'soc_pymc-statistics-2', this version reads"):
        soc.load_fit(path)
    with pytest.raises(soc.FitError, match="cannot be read"):
        soc.load_fit(tmp_path)


# Reads damaged files whose seal was made anew, and says of each what came of it. It runs apart, as
# the HDF5 library is C and may end its process.
_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
import numpy as np
import soc_pymc as soc
from soc_pymc._lib.files import seal
path, out, seed, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[5]),) * 2)
content = open(path, "rb").read()[:-82]
whole = soc.load_statistics(path).data
rng = np.random.default_rng(seed)
for k in range(number):
    changed = bytearray(content)
    # half of all flips in the first kilobytes, where the library keeps its structure
    top = len(content) if k % 2 else min(len(content), 8192)
    changed[rng.integers(top)] ^= 1 << rng.integers(8)
    with open(out, "wb") as file:
        file.write(bytes(changed) + seal(bytes(changed)))
    try:
        found = "same" if soc.load_statistics(out).data.identical(whole) else "DIFFERENT"
    except soc.SocError as error:
        found = "refused"
    except BaseException as error:
        found = f"{type(error).__name__}: {error}"
    print(k, found, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_malicious_bytes_stay_in_the_child(seed, tmp_path):
    """A seal made anew lets damage through to HDF5: what it reads is refused or is what was saved.

    The library itself may crash on such a file (docs/dev/security.md): a crash is counted, and must
    not be the rule.
    """
    soc.summarize(values(), bins=3, progress=False).save(tmp_path / "s.nc")
    number = 60
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, tmp_path / "s.nc", tmp_path / "bad.nc", str(seed),
         str(number), str(4 << 30)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    found = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
    assert set(found) <= {"same", "refused"}
    assert "refused" in found
    print(done.returncode, len(found), {name: found.count(name) for name in set(found)})
    assert len(found) == number or done.returncode < 0


# ---------------------------------------------------------------- structure


def bad_values(values, rng):
    """Arrays of the same shape with one value, or all, out of order."""
    at = tuple(int(rng.integers(n)) for n in values.shape)
    if values.dtype.kind in "OU":
        for text in ("", "other", "\0", "a" * 10_000):
            changed = values.astype(object)
            changed[at] = text
            yield changed
        yield np.zeros(values.shape)
        return
    for value in (np.nan, np.inf, -np.inf, -1.0, 1e300, -1e300):
        changed = values.astype(float)
        changed[at] = value
        yield changed
    for value in (-1, 1 << 62, -(1 << 62)):
        with np.errstate(invalid="ignore"):
            changed = values.astype(np.int64)
        changed[at] = value
        yield changed
    yield values.astype("U")
    with np.errstate(all="ignore"):
        yield values.astype(np.float16)
        yield values.astype(np.uint8)
    yield values.astype(complex)
    yield np.zeros_like(values)
    yield values[tuple(slice(None, None, -1) for _ in values.shape)].copy()


def changed_variables(data, rng):
    """Datasets in which a variable is deleted, renamed, swapped, turned or filled otherwise."""
    names = list(data.variables)
    for name in names:
        values = data[name]
        yield f"no {name}", data.drop_vars(name)
        yield f"renamed {name}", data.rename({name: f"{name}_"})
        yield f"turned {name}", _with(data, name, values.transpose(*values.dims[::-1]))
        for other in names:
            if other > name and data[other].shape == values.shape and rng.random() < 0.1:
                one, two = values.to_numpy(), data[other].to_numpy()
                swapped = _with(data, name, (values.dims, two))
                yield f"{name} and {other}", _with(swapped, other, (data[other].dims, one))
        if values.size:
            for k, filled in enumerate(bad_values(values.to_numpy(), rng)):
                if rng.random() < 0.75:
                    continue
                yield f"values {k} of {name}", _with(data, name, (values.dims, filled))
        yield (
            f"longer {name}",
            _with(
                data.drop_dims(values.dims[:1]) if values.dims else data,
                name,
                (values.dims, np.zeros([n + 1 for n in values.shape])),
            ),
        )
        yield f"scalar {name}", _with(data, name, ((), 1.0))
    yield "one more", data.assign(more=("edge", np.zeros(data.sizes.get("edge", 1))))


def _with(data, name, values):
    """The dataset with other values of a variable; as it is where xarray itself refuses them."""
    try:
        changed = data.drop_vars(name)
        new = {name: values}
        return changed.assign_coords(new) if name in data.coords else changed.assign(new)
    except (ValueError, TypeError):
        return data


def changed_attrs(attrs):
    for name, value in attrs.items():
        yield f"no {name}", {k: v for k, v in attrs.items() if k != name}
        for k, other in enumerate(
            ["", "x", "null", "[]", "[" * 100_000, "{}", 1, -1, 3.5, True, np.array([1, 2]), b"x",
             "__import__('os').system('false')", "9" * 10_000]
        ):  # fmt: skip
            yield f"{name} {k}", {**attrs, name: other}
        if isinstance(value, str) and value.startswith("{"):
            for key in json.loads(value):
                for k, part in enumerate([None, "x", -1, 1e400, [], {}, True, [1, "a"]]):
                    changed = {**json.loads(value), key: part}
                    yield f"{name}.{key} {k}", {**attrs, name: json.dumps(changed)}
                fewer = {k: v for k, v in json.loads(value).items() if k != key}
                yield f"{name} without {key}", {**attrs, name: json.dumps(fewer)}
            yield f"{name} with more", {**attrs, name: json.dumps({**json.loads(value), "z": 1})}
    yield "one more", {**attrs, "more": "x"}


REFUSED = (KeyError, TypeError, ValueError)  # which loading turns into one SocError


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.slow
def test_statistics_of_another_form_are_refused(name):
    """Whatever is read although it was changed, the digest betrays."""
    data = statistics(name).data
    whole, refused, tried = content_digest(data), 0, 0
    changes = [*changed_variables(data, np.random.default_rng(1))]
    changes += [
        (what, xr.Dataset(data.variables, attrs=attrs).set_coords("label"))
        for what, attrs in changed_attrs(data.attrs)
    ]
    for what, changed in changes:
        tried += 1
        try:
            found = read_statistics(changed)
        except REFUSED:
            refused += 1
            continue
        if not found.data.identical(data):
            assert content_digest(changed) != whole, what
    assert refused > tried / 3
    assert tried > 500


def use(fit):
    """What users do with a fit."""
    frame = FRAME if fit.data.attrs["kind"] == "poisson" else VALUES
    items = (counts if fit.data.attrs["kind"] == "poisson" else values)(
        **({"group": "country"} if fit.groups else {})
    )
    repr(fit), fit._repr_html_()
    soc.calibration_curves(fit)
    found = soc.item_posteriors(fit, items, progress=False)
    assert len(found) == len(frame)


@pytest.mark.parametrize("fit", ALL_FITS, indirect=True)
@pytest.mark.slow
def test_fits_that_do_not_fit_are_refused(fit):
    tree = fit.data.copy()
    tree.attrs |= _configuration(fit)
    whole, accepted, tried = content_digest(tree), [], 0
    assert read_fit(tree).data.identical(fit.data)
    rng = np.random.default_rng(2)
    for what, changed in changed_trees(tree, rng):
        if rng.random() < 0.5:  # a fit has a thousand changes, at 20 ms each
            continue
        tried += 1
        try:
            found = read_fit(changed)
        except REFUSED:
            continue
        assert _is_as_read(found.data, changed)
        if content_digest(changed) != whole:
            accepted.append(what)
            if what.startswith(("posterior", "constant_data", "attrs")) and tried % 12 == 0:
                try:
                    with np.errstate(all="ignore"), _quiet():
                        use(found)
                except SocError:
                    pass
    print(f"{tried} changes, {len(accepted)} pass: {accepted}")
    assert tried > 200


CONFIGURATION = ("format", "prior", "method", "status")


def _configuration(fit):
    from soc_pymc.inference.stored_fits import as_json

    return {"format": "soc_pymc-fit-1"} | {
        name: as_json(getattr(fit, name)) for name in CONFIGURATION[1:]
    }


def _is_as_read(found, tree):
    """Whether groups and attributes are the tree's; copies of whole trees would take most time."""
    own = {k: v for k, v in tree.attrs.items() if k not in CONFIGURATION}
    groups = tree.children
    return (
        xr.Dataset(attrs=found.attrs).identical(xr.Dataset(attrs=own))
        and found.children.keys() == groups.keys()
        and all(
            found[name].to_dataset(inherit=False).identical(groups[name].to_dataset(inherit=False))
            for name in groups
        )
    )


def changed_trees(tree, rng):
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    for name in groups:
        yield f"no {name}", _tree({k: v for k, v in groups.items() if k != name}, tree.attrs)
        for what, changed in changed_variables(groups[name], rng):
            yield f"{name}: {what}", _tree({**groups, name: changed}, tree.attrs)
    for name, other in (("posterior", "constant_data"), ("observed_data", "constant_data")):
        swapped = {**groups, name: groups[other], other: groups[name]}
        yield f"{name} and {other}", _tree(swapped, tree.attrs)
    for what, attrs in changed_attrs(tree.attrs):
        yield f"attrs: {what}", _tree(groups, attrs)


def _tree(groups, attrs):
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = dict(attrs)
    return tree


# ---------------------------------------------------------------- scored folders


@pytest.fixture
def scored(tmp_path):
    """A folder of scored files, the call that makes it, and the fit."""
    if "scored" not in _made:
        _made["scored"] = FITS["five steps"]()
    for k, name in enumerate("ab"):
        part = FRAME.iloc[300 * k : 300 * (k + 1)][["score", "count", "exposure"]]
        part.to_parquet(tmp_path / f"{name}.parquet")

    def score():
        items = soc.PoissonItems(
            str(tmp_path / "?.parquet"), score="score", count="count", exposure="exposure"
        )
        return soc.item_posteriors(
            _made["scored"], items, out=f"{tmp_path}/scored/",
            progress=False,
        )  # fmt: skip

    return score(), score


def recorded(path):
    """The record of a scored file."""
    return pq.read_metadata(path).metadata[b"soc_pymc_scored"].decode()


def test_damaged_bytes_of_scored_files_are_not_kept(scored):
    """Whichever byte is wrong, of the data too, the file does not count as finished."""
    folder, _ = scored
    path = folder / "a.parquet"
    content, record, seen = path.read_bytes(), recorded(path), set()
    assert scored_files.is_finished(path, record)
    tried = list(damages(content, np.random.default_rng(3)))
    tried += [("bit", _flipped(content, k)) for k in range(0, len(content), 97)]
    for what, changed in tried:
        path.write_bytes(changed)
        assert not scored_files.is_finished(path, record), what
        seen.add(what)
    assert seen >= {"flip", "cut", "zeros", "inserted", "swapped", "empty", "bit"}
    path.write_bytes(content)
    assert scored_files.is_finished(path, record)


def _flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _records(record, other):
    """Records of a stranger, by what is odd in them."""
    yield "another file's", other
    yield "none", ""
    yield "cut", record[:-1]
    yield "longer", record + "0"
    yield "other case", record.upper()
    yield "JSON", json.dumps({"version": 3, "fit": record, "input": ["a.parquet", 1, 2]})
    yield "JSON of the record", json.dumps(record)
    yield "nested", "[" * 200_000 + "]" * 200_000
    yield "code", "__import__('pathlib').Path('evaluated').touch()"
    yield "NUL", record[:10] + "\0" + record[11:]
    yield "not ASCII", "\u00df" * 32
    yield "another key", None


def _resealed(path, record):
    """The file's rows under another record, sealed as if it had been written so."""
    table = pq.read_table(path).replace_schema_metadata(None)
    key = "soc_pymc_scored" if record is not None else "soc_pymc_scored_"
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({key: record or "", "soc_pymc_seal": "0" * 64})
    scored_files._seal(path)


def test_scored_files_with_other_records_are_made_again(scored, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, score = scored
    path, other = folder / "a.parquet", folder / "b.parquet"
    right, kept = pq.read_table(path), other.stat().st_mtime_ns
    record = recorded(path)
    _resealed(path, record)
    assert scored_files.is_finished(path, record)  # the forger's work is good: records decide
    for what, odd in _records(record, recorded(other)):
        _resealed(path, odd)
        assert not scored_files.is_finished(path, record), what
        if what in ("another file's", "nested", "code"):
            score()
            assert pq.read_table(path).equals(right), what
            assert recorded(path) == record, what
    path.write_bytes(other.read_bytes())  # one scored file in the other's place
    score()
    assert pq.read_table(path).equals(right)
    assert other.stat().st_mtime_ns == kept
    assert not (tmp_path / "evaluated").exists()


def test_damaged_scored_files_are_made_again(scored):
    folder, score = scored
    path = folder / "a.parquet"
    content, right = path.read_bytes(), pq.read_table(path)
    for changed in (content[:-20], content[:100] + b"x" + content[101:], content[::-1], b"{}"):
        path.write_bytes(changed)
        score()
        assert pq.read_table(path).equals(right)
    assert path.read_bytes() == content  # nothing of the damage is left
