"""The pages: every public name is in the reference, links lead somewhere, examples hold."""

import doctest
import re
import shlex
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import soc_pymc as soc
from soc_pymc.front.commands import make_parser

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.md")),
]
_FENCE = re.compile(r"^(`{3,}|:{3,}).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)


def page_id(path):
    return str(path.relative_to(ROOT))


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_public_name_is_in_the_reference():
    reference = "\n".join(p.read_text() for p in (ROOT / "docs/reference").glob("*.rst"))
    entries = set(re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)", reference, re.M))
    modules = re.findall(
        r"^\.\. automodule:: soc_pymc\.(\w+)\n   :members:\n   :imported-members:", reference, re.M
    )
    for name in soc.__all__:
        if isinstance(getattr(soc, name), ModuleType):
            assert name in modules, f"docs/reference lacks the module soc_pymc.{name}"
            # Sphinx takes the members of an automodule from its __all__
            assert getattr(soc, name).__all__
        else:
            assert name in entries, f"docs/reference lacks {name}"
    assert {name for name in entries if hasattr(soc, name)} <= set(soc.__all__)


def test_every_page_of_the_reference_is_listed():
    index = (ROOT / "docs/reference/index.rst").read_text()
    for path in (ROOT / "docs/reference").iterdir():
        if path.suffix in (".rst", ".md") and path.stem != "index":
            assert re.search(rf"^   {path.stem}$", index, re.MULTILINE), path.name


def test_every_page_is_in_the_contents():
    """Sphinx warns too; this says so without a build."""
    contents = "\n".join(
        block
        for page in ("index.md", "mathematics.md")
        for block in blocks((ROOT / "docs" / page).read_text(), "{toctree}")
    )
    listed = set(contents.split())
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= listed, sorted(pages - listed)


def slugs(text):
    """Anchors of a page's headings, as forges and MyST make them."""
    heads = re.findall(r"^#+ +(.*?) *$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def links(text):
    """Relative links of a page, and its pictures."""
    found = re.findall(r"\]\(([^)\s]+)\)", _FENCE.sub("", text))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page):
    for link in links(page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.is_file() or target.with_name(target.name + ".rst").is_file(), link
        if anchor and target.suffix == ".md":
            assert anchor in slugs(target.read_text()), link


def test_links_are_found_at_all():
    text = "[a](b.md#c) ![d](e.png) [f](https://g.h)\n```\n[i](j.md)\n```\n## The *End*, at last\n"
    assert links(text) == ["b.md#c", "e.png"]
    assert slugs(text) == {"the-end-at-last"}


EXAMPLES = [page for page in PAGES if blocks(page.read_text(), "pycon")]


@pytest.mark.slow  # half a minute each; the documentation's build runs them too
@pytest.mark.parametrize("page", EXAMPLES, ids=page_id)
def test_examples_of_pages_hold(page, tmp_path, monkeypatch):
    """The blocks of a page in turn, as one session in an empty folder."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(page.read_text(), "pycon"))
    test = doctest.DocTestParser().get_doctest(code, {}, page.name, str(page), 0)
    assert test.examples
    said = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert result.failed == 0, "".join(said)


def test_quickstart_is_among_the_examples():
    assert "docs/quickstart.md" in map(page_id, EXAMPLES)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_of_pages_are_understood(page):
    lines = [line for block in blocks(page.read_text(), "sh") for line in block.splitlines()]
    for line in lines:
        words = shlex.split(line.split(" > ")[0], comments=True)
        if words[:1] == ["soc-pymc"]:
            assert callable(make_parser().parse_args(words[1:]).run), line


def test_home_shows_the_six_lines_of_the_readme():
    """Which another test runs."""
    home, readme = (
        blocks((ROOT / name).read_text(), "python") for name in ("docs/index.md", "README.md")
    )
    assert home == readme[:1]


def test_citation_is_of_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{project['version']}}}" in (ROOT / "docs/citing.md").read_text()
    assert project["version"] == soc.__version__
