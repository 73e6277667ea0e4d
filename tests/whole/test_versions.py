"""The bounds on dependencies: read in one form, kept here, and written down."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.lowest import EXTRAS, FILES, declared, requirements

ROOT = Path(__file__).parents[2]


def test_dependencies_here_are_within_the_bounds():
    """Of the environment that the tests run in: what the suite passes on is what is allowed."""
    project = declared()
    lines = [*project["dependencies"]]
    lines += [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    wrong = []
    for requirement in map(Requirement, lines):
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            assert requirement.name in {"polars", "pyspark", "psycopg"}, requirement.name
            continue
        if not requirement.specifier.contains(version):
            wrong.append(f"{requirement} has {version}")
    assert not wrong


def test_page_of_versions_names_every_bound():
    """docs/dev/versions.md has a row of each dependency, with its bounds in pyproject.toml."""
    rows = {}
    for line in (ROOT / "docs" / "dev" / "versions.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("| `") and len(cells) > 4:
            rows[cells[1].strip("`")] = cells
    for name, low, high in requirements(declared()):
        assert rows[name][3] == low, name
        assert rows[name][5].startswith("none" if high is None else f"<{high}"), name


def test_lower_bounds_are_read_in_one_form():
    table = {"dependencies": ["numpy>=2.1", "a-b[x]>=1.2.3,<2"]}
    extras = {"optional-dependencies": {extra: [] for extra in EXTRAS}}
    assert requirements(table | extras) == [("numpy", "2.1", None), ("a-b", "1.2.3", "2")]
    with pytest.raises(ValueError, match=r"'numpy' in pyproject\.toml is not of the form"):
        requirements({"dependencies": ["numpy"]} | extras)


def test_python_versions_agree():
    """requires-python, the linters' target and the classifiers start at the same version."""
    everything = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = everything["project"]
    assert project["requires-python"] == ">=3.12"
    assert everything["tool"]["ruff"]["target-version"] == "py312"
    assert everything["tool"]["mypy"]["python_version"] == "3.12"
    versions = {c.rpartition(" ")[2] for c in project["classifiers"] if ":: 3." in c}
    assert versions == {"3.12", "3.13"}


def test_files_for_the_lowest_versions_exist():
    assert len(set(FILES)) == len(FILES)
    for name in FILES:
        assert (ROOT / name).is_file(), name
