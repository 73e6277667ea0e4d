"""What is shipped: contents and metadata of sdist and wheel, and a life outside the source tree.

Built once, in a copy, from the sdist to the wheel, as an installer without a wheel would; without
build isolation, so that no network is needed.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.lowest import declared

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def _run(*words, cwd, **variables):
    """Output of a command in a folder of its own, without the source tree on the path."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Paths of the sdist, and of the wheel built from it."""
    folder = tmp_path_factory.mktemp("built")
    copy = folder / "copy"
    shutil.copytree(
        ROOT,
        copy,
        ignore=shutil.ignore_patterns(".*", "build", "dist", "_build", "demo", "*.egg-info"),
    )
    code = "import sys; from setuptools import build_meta as b; print(b.build_sdist(sys.argv[1]))"
    _run(sys.executable, "-c", code, str(folder), cwd=copy)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    _run(*pip, "--wheel-dir", str(folder), str(source), cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def _files(folder):
    """Modules, the mark of types, and the templates of the report."""
    paths = [*folder.rglob("*.py"), folder / "py.typed", *folder.glob("report/templates/*")]
    return {str(path.relative_to(folder.parent)) for path in paths}


def test_wheel_holds_the_package_and_nothing_else(built):
    _, wheel = built
    version = declared()["version"]
    assert wheel.name == f"soc_pymc-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = {name for name in archive.namelist() if not name.endswith("/")}
        info = f"soc_pymc-{version}.dist-info"
        licence = archive.read(f"{info}/licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()
    ours = {name for name in names if not name.startswith(f"{info}/")}
    assert ours == _files(ROOT / "soc_pymc")


def test_sdist_builds_the_same_package(built):
    sdist, _ = built
    with tarfile.open(sdist) as archive:
        names = {Path(name).relative_to(Path(name).parts[0]) for name in archive.getnames()}
    held = {str(name) for name in names if name.parts}
    assert _files(ROOT / "soc_pymc") <= held
    assert {"pyproject.toml", "README.md", "LICENSE"} <= held
    assert not {name for name in held if name.startswith(("docs/", "notebooks/", "tests/", "."))}


def test_metadata_say_what_pyproject_says(built):
    _, wheel = built
    project = declared()
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(path).decode())
        (path,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        assert "soc-pymc = soc_pymc.front.cli:main" in archive.read(path).decode()
    assert metadata["Name"] == "soc_pymc"
    assert Version(metadata["Version"]) == Version(project["version"])
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Summary"] == project["description"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / "README.md").read_text().strip()
    assert SpecifierSet(metadata["Requires-Python"]) == SpecifierSet(project["requires-python"])
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    always = {(r.name, r.specifier) for r in found if r.marker is None}
    stated = [Requirement(line) for line in project["dependencies"]]
    assert always == {(r.name, r.specifier) for r in stated}
    assert set(metadata.get_all("Provides-Extra")) == set(project["optional-dependencies"])


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A folder elsewhere, and a fresh environment's `bin`: the wheel, and our dependencies."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    commands = folder / "env" / "bin"
    (library,) = (folder / "env" / "lib").glob("python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(commands / "python"), "install"]
    _run(*pip, "--no-deps", "--no-index", "--quiet", str(built[1]), cwd=folder)
    # a folder, not its .pth files, of which one would put the source tree on the path
    (library / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    work = folder / "work"
    work.mkdir()
    return work, commands


def test_installed_copy_is_the_one_imported(installed):
    work, commands = installed
    code = (
        "import soc_pymc, importlib.metadata as m; print(soc_pymc.__file__, m.version('soc_pymc'))"
    )
    path, version = _run(str(commands / "python"), "-c", code, cwd=work).split()
    assert Path(path).is_relative_to(commands.parent)
    assert version == declared()["version"]


# from a file to posteriors of items: every floor but the pictures
_JOB = """
import soc_pymc as soc
table = soc.simulation.s1(3000, seed=0)
table.to_parquet("items.parquet")
items = soc.PoissonItems("items.parquet", score="score", count="count", exposure="exposure")
fit = soc.fit(soc.summarize(items, progress=False), progress=False)
fit.save("fit.nc")
post = soc.item_posteriors(soc.load_fit("fit.nc"), items, progress=False)
assert fit.status.converged
print(post.num_rows)
"""


def test_job_outside_of_the_source_tree(installed):
    work, commands = installed
    assert _run(str(commands / "python"), "-c", _JOB, cwd=work).split()[-1] == "3000"


def test_command_outside_of_the_source_tree(installed):
    work, commands = installed
    command = str(commands / "soc-pymc")
    assert _run(command, "--version", cwd=work).strip() == f"soc_pymc {declared()['version']}"
    assert "usage: soc-pymc" in _run(command, "--help", cwd=work)
    table = "score,count,exposure\n" + "".join(f"{i / 50},{i % 3},{2 + i % 5}\n" for i in range(50))
    (work / "items.csv").write_text(table)
    words = (
        "summarize items.csv --score score --count count --exposure exposure --bins 5 --out s.nc"
    )
    _run(command, *words.split(), cwd=work)
    assert (work / "s.nc").stat().st_size > 0


_MODULES = """
import sys, json
before = set(sys.modules)
import {names}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


def test_import_loads_no_more_than_numpy_pandas_and_xarray(installed):
    """Packages beyond the three's own and the standard library's: soc_pymc alone."""
    work, commands = installed

    def loaded(names):
        code = _MODULES.format(names=names)
        return set(json.loads(_run(str(commands / "python"), "-c", code, cwd=work)))

    ours = loaded("soc_pymc") - set(sys.stdlib_module_names)
    assert ours <= loaded("numpy, pandas, xarray") | {"soc_pymc"}


_SECONDS = """
import time
start = time.process_time()
import {names}
print(time.process_time() - start)
"""


def test_import_costs_no_more_than_numpy_pandas_and_xarray(installed):
    """The least of three runs each, in seconds of the processor, which a busy machine leaves alone.

    A ratio within one run: 1.3 allows for our own modules' share.
    """
    work, commands = installed

    def seconds(names):
        code = _SECONDS.format(names=names)
        return min(float(_run(str(commands / "python"), "-c", code, cwd=work)) for _ in range(3))

    assert seconds("soc_pymc") <= 1.3 * seconds("numpy, pandas, xarray")
