"""The lowest allowed version of every dependency, as constraints for pip; and what is tested on it.

`python -m tests.lowest` prints `name==lower bound` for each requirement of the package and of its
extras for engines, read from pyproject.toml: what is tested is what is declared.
`python -m tests.lowest files` prints the files of tests. It needs the standard library alone, since
it runs before anything is installed.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
# other extras hold tools of development, of which the newest serve every version
EXTRAS = ("polars", "spark", "postgres")
# Those that reach every library: tables and engines, saved files, compiled models, checks,
# pictures, scikit-learn, the command line; and each module is imported. What is left out is
# mathematics of our own, on numbers alone.
FILES = (
    "tests/_lib/test_netcdf.py",
    "tests/data/test_engines.py",
    "tests/inference/test_inference.py",
    "tests/data/test_statistics.py",
    "tests/data/test_items.py",
    "tests/checks/test_arviz_checks.py",
    "tests/plots/test_plots.py",
    "tests/front/test_estimator.py",
    "tests/front/test_cli.py",
    "tests/report/test_report.py",
    "tests/posterior/test_sql.py",
    "tests/whole/test_front_door.py",
    "tests/whole/test_versions.py",
)
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(\[[\w,-]+\])?>=(?P<low>\d+(\.\d+)*)(,<(?P<high>\d+(\.\d+)*))?"
)


def requirements(project):
    """Name, lower and upper bound (or None) of what the package and its engines need."""
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    found = []
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        if match is None:
            raise ValueError(
                f"{line!r} in pyproject.toml is not of the form name>=low or with ,<high"
            )
        found.append((match["name"], match["low"], match["high"]))
    return found


def declared():
    """The `[project]` table of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def main(words):
    if words not in ([], ["files"]):
        raise SystemExit("usage: python -m tests.lowest [files]")
    lines = FILES if words else [f"{name}=={low}" for name, low, _ in requirements(declared())]
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
