"""The gallery shows every picture there is."""

import re
from pathlib import Path

import pytest

from soc_pymc import plots

PAGE = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text()
CELLS = "\n".join(re.findall(r"^```\{code-cell\}.*?\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("name", plots.__all__)
def test_gallery_draws_and_explains_every_picture(name):
    assert re.search(rf"\bsoc\.plots\.{name}[(.]", CELLS)
    assert f"### {name}\n" in PAGE
    assert re.search(rf"{{py:(func|class)}}`soc_pymc\.plots\.{name}`", PAGE)


def test_gallery_names_only_what_there_is():
    drawn = set(re.findall(r"soc\.plots\.(\w+)[(.]", CELLS))
    assert drawn == set(plots.__all__)


def test_cells_are_python():
    compile(CELLS, "gallery.md", "exec")
