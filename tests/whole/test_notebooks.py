"""Notebooks are text in one form, without outputs; the documentation's build executes them."""

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.md"))
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def parts(path):
    """Text of the YAML header, and the body."""
    text = path.read_text(encoding="utf-8")
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert match, f"{path.name} does not begin with a YAML header"
    return match[1], text[match.end() :]


def sources(path):
    """Code of the cells, without their options and IPython's own lines."""
    for code in CELL.findall(parts(path)[1]):
        lines = [line for line in code.splitlines() if not re.match(r":[a-z-]+:|[%!]", line)]
        yield "\n".join(lines)


def test_there_are_notebooks():
    assert len(PATHS) >= 4
    assert len({path.name.split("_")[0] for path in PATHS}) == len(PATHS), "numbers are there twice"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_header_is_that_of_a_text_notebook(path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    written, body = parts(path)
    header = yaml.safe_load(written)
    text = header["jupytext"]["text_representation"]
    assert (text["extension"], text["format_name"]) == (".md", "myst")
    assert header["kernelspec"]["name"] == "python3"
    title = next(line for line in body.splitlines() if line.strip())
    assert title.startswith(f"# {path.name.split('_')[0]}. "), "the title has the notebook's number"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_cells_are_python_and_words_stand_between(path):
    cells = list(sources(path))
    assert len(cells) >= 4
    assert parts(path)[1].count("```{code-cell}") == len(cells), "a code cell is not closed"
    for code in cells:
        ast.parse(code)


def test_the_first_shows_a_band_a_check_and_a_decision_at_once():
    begin = "\n".join(list(sources(PATHS[0]))[:10])
    for call in ("soc.plots.plot_curves(", "soc.check(", "soc.decisions."):
        assert call in begin


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_nothing_of_one_machine_and_no_outputs(path):
    """No absolute paths of a file system, no stored outputs or embedded pictures."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.:/*-])/(?:home|work|tmp|root|usr|var|mnt|Users)/", text)
    assert not re.search(r"\b[A-Z]:\\", text)
    assert "{code-cell-output}" not in text
    assert "data:image" not in text
    assert path.stat().st_size < 60_000


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_jupytext_reads_it(path):
    jupytext = pytest.importorskip("jupytext", reason="jupytext is not installed")
    notebook = jupytext.read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) == len(list(sources(path)))
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_bad_notebooks_are_found(tmp_path):
    """The tests above would fail: an absolute path, an unclosed cell, code that is no Python."""
    good = PATHS[0].read_text(encoding="utf-8")
    path = tmp_path / PATHS[0].name
    path.write_text(good + "\n```{code-cell} ipython3\nopen('/home/me/x.csv')\n```\n")
    with pytest.raises(AssertionError):
        test_nothing_of_one_machine_and_no_outputs(path)
    path.write_text(good + "\n```{code-cell} ipython3\nx = 1\n")
    with pytest.raises(AssertionError, match="not closed"):
        test_cells_are_python_and_words_stand_between(path)
    path.write_text(good + "\n```{code-cell} ipython3\nx = = 1\n```\n")
    with pytest.raises(SyntaxError):
        test_cells_are_python_and_words_stand_between(path)
