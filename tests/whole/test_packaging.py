"""What is shipped: the sdist and the wheel, and a life outside the source tree.

Built once, in a copy, from the sdist to the wheel, as an installer without a wheel would; without
build isolation, so that no network is needed.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.slow


def _run(*words, cwd):
    """Returns the output of a command, which does not see the source tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, f"{words}\n{process.stdout}\n{process.stderr}"
    return process.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Paths of the sdist, and of the wheel built from it."""
    folder = tmp_path_factory.mktemp("built")
    copy = folder / "copy"
    left_out = shutil.ignore_patterns(".*", "build", "dist", "_build", "demo", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=left_out)
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


def _shipped(folder):
    """Returns the names of modules, the mark of types and the report's templates."""
    paths = [
        *folder.rglob("*.py"),
        *folder.glob("*.pyi"),
        folder / "py.typed",
        *folder.glob("_report/templates/*"),
    ]
    return {str(path.relative_to(folder.parent)) for path in paths}


def test_contents(built):
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == _shipped(ROOT / "soc_pymc")
    with tarfile.open(sdist) as archive:
        held = {"/".join(Path(name).parts[1:]) for name in archive.getnames()} - {""}
    assert _shipped(ROOT / "soc_pymc") | {"pyproject.toml", "README.md", "LICENSE"} <= held
    assert not {name for name in held if name.startswith(("docs/", "notebooks/", "tests/", "."))}


def test_metadata(built):
    with zipfile.ZipFile(built[1]) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(path).decode())
    assert (metadata["Name"], metadata["Version"]) == ("soc_pymc", PROJECT["version"])
    assert metadata["License-Expression"] == "MIT"
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    always = {(r.name, r.specifier) for r in requirements if r.marker is None}
    stated = [Requirement(line) for line in PROJECT["dependencies"]]
    assert always == {(r.name, r.specifier) for r in stated}


# from a file to posteriors of items: every layer but the pictures, without compiling kernels
JOB = """
import os
os.environ["NUMBA_DISABLE_JIT"] = "1"
import soc_pymc as soc
table = soc.simulation.s1(200, seed=0)
table.to_parquet("items.parquet")
items = soc.PoissonItems("items.parquet", score="score", count="count", exposure="exposure")
stats = soc.summarize(items, bins=5, progress=False)
soc.model(stats)
fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
fit.save("fit.nc")
post = soc.item_posteriors(soc.load_fit("fit.nc"), items, progress=False)
print(soc.__file__, post.num_rows)
"""


def test_an_installed_wheel_works(built, tmp_path):
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    commands = tmp_path / "env" / "bin"
    (library,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(commands / "python"), "install"]
    _run(*pip, "--no-deps", "--no-index", "--quiet", str(built[1]), cwd=tmp_path)
    # a folder, not its .pth files, of which one would put the source tree on the path
    (library / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    path, rows = _run(str(commands / "python"), "-c", JOB, cwd=tmp_path).split()
    assert Path(path).is_relative_to(tmp_path / "env")
    assert rows == "200"
    first, *others = _run(str(commands / "soc-pymc"), "--version", cwd=tmp_path).splitlines()
    assert first == f"soc_pymc {PROJECT['version']}"
    named = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert {"Python", *named} == {line.split()[0] for line in others}
