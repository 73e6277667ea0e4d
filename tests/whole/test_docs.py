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
    *sorted((ROOT / "docs" / "dev").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.md")),
]
SITE = [page for page in PAGES if page.parts[-2] in ("docs", "reference", "notebooks")]
_FENCE = re.compile(r"^(`{3,}|:{3,}).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)


def page_id(path):
    return str(path.relative_to(ROOT))


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_public_name_is_in_the_reference():
    """Each has a page of its own, which `autosummary` makes from these lists."""
    reference = (ROOT / "docs/reference/index.rst").read_text()
    entries = set(re.findall(r"^   ([\w.]+)$", reference, re.M))
    doors = {n: getattr(soc, n) for n in soc.__all__ if isinstance(getattr(soc, n), ModuleType)}
    public = set(soc.__all__) - set(doors)
    public |= {f"{name}.{part}" for name, door in doors.items() for part in door.__all__}
    assert {entry for entry in entries if not entry.startswith("families.")} == public


def test_every_page_is_in_the_contents():
    """Sphinx warns too; this says so without a build. Those in docs/dev have their own list."""
    contents = "\n".join(blocks((ROOT / "docs/index.md").read_text(), "{toctree}"))
    contents = set(re.split(r"[\s<>]+", contents))
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    pages |= {f"reference/{path.stem}" for path in (ROOT / "docs/reference").glob("*.[mr]*")}
    assert pages <= contents, sorted(pages - contents)
    listed = set(links((ROOT / "docs/dev/README.md").read_text()))
    pages = {path.name for path in (ROOT / "docs/dev").glob("*.md")} - {"README.md"}
    assert pages <= listed, sorted(pages - listed)


@pytest.mark.parametrize("page", SITE, ids=page_id)
def test_the_site_links_to_its_own_pages_alone(page):
    """Those in docs/dev are not built."""
    assert [link for link in links(page.read_text()) if "dev/" in link and ".md" in link] == []


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


def test_the_how_to_pages_are_among_the_examples():
    run = {f"docs/{name}.md" for name in ("prepare", "check", "decide", "libraries", "trials")}
    run.add("docs/not-independent.md")
    assert run <= set(map(page_id, EXAMPLES))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_of_pages_are_understood(page):
    lines = [line for block in blocks(page.read_text(), "sh") for line in block.splitlines()]
    for line in lines:
        words = shlex.split(line.split(" > ")[0], comments=True)
        if words[:1] == ["soc-pymc"]:
            assert callable(make_parser().parse_args(words[1:]).run), line


def test_home_shows_the_ten_lines_of_the_readme():
    """Which another test runs."""
    home, readme = (
        blocks((ROOT / name).read_text(), "python") for name in ("docs/index.md", "README.md")
    )
    assert home == readme[:1]


def test_citation_is_of_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{project['version']}}}" in (ROOT / "docs/dev/citing.md").read_text()
    assert project["version"] == soc.__version__
