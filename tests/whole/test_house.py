"""The house: twelve rooms, doors that show public names, one dispatch, plain English."""

import ast
import re
import tomllib
import types
from pathlib import Path

import pytest

import soc_pymc as soc

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "soc_pymc"
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}

# --- rooms ---------------------------------------------------------------------------------------


def test_twelve_rooms():
    """The rooms that import-linter knows; `python -m soc_pymc` enters by a file of its own."""
    beside = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    shown = {path.name for path in PACKAGE.iterdir()} - beside
    assert len(shown) <= 12
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert len(layers) <= 12
    rooms = {room for layer in layers for room in layer.split(" | ")}
    assert {Path(name).stem for name in shown} == rooms - {"__main__"}


def test_every_room_has_its_tests():
    """But for those that have no statements of their own."""
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert [r for r in rooms if not list((ROOT / "tests" / r).glob("test_*.py"))] == []


DOORS = [name for name in soc.__all__ if isinstance(getattr(soc, name), types.ModuleType)]


@pytest.mark.parametrize("name", DOORS)
def test_doors_show_public_names_alone(name):
    door = getattr(soc, name)
    assert [part for part in dir(door) if not part.startswith("__")] == sorted(door.__all__)


# --- one dispatch --------------------------------------------------------------------------------

KINDS = {"poisson", "normal", "binomial"}
ROLES = {"count", "value", "exposure", "noise_sd", "successes", "trials"}
CLASSES = {"Gamma", "GammaMixture", "Normal", "NormalMixture", "PoissonItems", "NormalItems"}

# where the kind of items or prior is asked outside families/: the file, and what is asked
ALLOWED: set[tuple[str, str]] = {
    ("data/tables/validation.py", "of_outcome.whole"),
    ("evaluate/model_choice.py", "posterior.outcome.whole"),
    ("plots/checks.py", "outcome.whole"),
    ("report/choices.py", "outcome.whole"),
    ("report/choices.py", "overview.whole"),
    ("report/sections.py", "outcome.whole"),
}


def _texts(node):
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}


def _names(node):
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def _traits(test):
    """Whether a condition is a trait of an outcome alone, or the contrary of it."""
    if isinstance(test, ast.UnaryOp):
        test = test.operand
    return isinstance(test, ast.Attribute) and test.attr in ("whole", "discrete")


def _asks_the_kind(node):
    match node:
        case ast.Compare() | ast.MatchValue():
            return bool(_texts(node) & (KINDS | ROLES | CLASSES))
        case ast.Attribute(attr="discrete"):
            return True
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
            return bool(_names(classes) & CLASSES)
        case ast.MatchClass(cls=found):
            return bool(_names(found) & CLASSES)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return _traits(test)
        case ast.Dict(keys=keys):
            named = {key.value for key in keys if isinstance(key, ast.Constant)}
            return bool(named) and named <= KINDS
    return False


def sites(sources):
    """Places that ask for the kind of items or prior: file and expression."""
    found = set()
    for path, text in sources.items():
        if path.startswith("families/"):
            continue
        for node in ast.walk(ast.parse(text)):
            if _asks_the_kind(node):
                asked = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
                found.add((path, ast.unparse(asked)))
    return found


def test_kinds_are_asked_in_families_alone():
    """A third kind of items is one more record: elsewhere nothing needs to know of it."""
    assert sites(SOURCES) - ALLOWED == set()
    assert len(ALLOWED) <= 20


@pytest.mark.parametrize(
    "line",
    [
        "x = items.kind == 'poisson'",
        "x = 'exposure' in roles",
        "x = type(prior).__name__ == 'GammaMixture'",
        "x = isinstance(prior, Gamma | GammaMixture)",
        "x = isinstance(prior, priors.Gamma)",
        "x = outcome.discrete",
        "x = 1 if outcome.whole else 2",
        "if not law.outcome.whole: pass",
        "x = {'poisson': 1, 'normal': 2}[kind]",
    ],
)
def test_a_site_is_seen(line):
    assert len(sites({"model/new.py": line})) == 1
    assert sites({"families/new.py": line}) == set()


# --- English -------------------------------------------------------------------------------------

# the words of docs/dev/style.md; "less" for minus, which follows a bracket, a comma or a cell
STILTED = re.compile(
    r"so manieth|of no matter|said once|\btells of\b|\bbut for\b"
    r"|[)|`,] less (?:that|its|the|plain|E\(|\d)|\bless the diagonal",
    re.IGNORECASE,
)
BARE = re.compile(r"(?<![\w.)\]}`\"'/\\])\.\d")
# on the site: words of the developers' own, and E(theta | t) in words
PRIVATE = re.compile(
    r"\bframes?\b|\btilt|\bfloors?\b|\bS1\b|\bfar scores\b|\b(?:E|Var)\(theta given\b"
)
# everywhere: E(theta | t) or E(theta | t, y) without its spaces
NOTATION = re.compile(r"theta\\?\|\w|theta \\?\| \w,\w")


def _prose(path):
    """Text of a page without code, in blocks or within lines."""
    text = re.sub(r"^(```|~~~).*?^\1", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def _docstrings(text):
    tree = ast.parse(text)
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (doc := ast.get_docstring(node)):
            lines = [line for line in doc.splitlines() if not line.lstrip().startswith(">>>")]
            yield "\n".join(lines)


def _strings(text):
    """Strings of a module: labels and messages, keys of results, docstrings with their examples."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


FOLDERS = ("docs", "docs/reference", "docs/dev", "notebooks")
FILES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "docs/reference/index.rst")),
    *(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md")),
]
PAGES = {path.relative_to(ROOT).as_posix(): _prose(path) for path in FILES}


def test_pages_and_docstrings_are_plain_english():
    texts = PAGES | {path: "\n".join(_docstrings(text)) for path, text in SOURCES.items()}
    found = [(path, m[0]) for path, text in texts.items() for m in STILTED.finditer(text)]
    assert found == []


def test_pages_of_the_site_have_no_private_words():
    site = {path: text for path, text in PAGES.items() if not path.startswith("docs/dev/")}
    found = [(path, m[0]) for path, text in site.items() for m in PRIVATE.finditer(text)]
    assert found == []


def test_one_notation_of_what_is_given():
    """In pages with their code, and in all strings of the package."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in FILES}
    del texts["docs/dev/style.md"]  # which shows the other forms
    texts |= {path: "\n".join(_strings(text)) for path, text in SOURCES.items()}
    found = [(path, m[0]) for path, text in texts.items() for m in NOTATION.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (STILTED, "isotonic, less that"),
        (STILTED, "E(theta | t, y) less E(theta | t)"),
        (STILTED, "all but for one"),
        (BARE, "a width of .95"),
        (BARE, "| **.82** |"),
        (NOTATION, "E(theta|t) is smooth"),
        (NOTATION, "| Var(theta\\|t) |"),
        (NOTATION, "E(theta | t,y)"),
        (PRIVATE, "E(theta given t)"),
        (PRIVATE, "simulation S1 has"),
    ],
)
def test_bad_english_is_found(pattern, text):
    assert pattern.search(text)


def test_decimals_begin_with_a_digit():
    found = [
        (path, text[max(m.start() - 30, 0) : m.end() + 10])
        for path, text in PAGES.items()
        for m in BARE.finditer(text)
    ]
    assert found == []
