"""The pages: names are in the reference, links lead somewhere, examples and commands hold."""

import ast
import base64
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from PIL import Image

import soc_pymc as soc
from soc_pymc.families import family_of
from soc_pymc.front.commands import make_parser
from tests.examples import FAMILIES
from tests.whole.test_public_names import PUBLIC

mpl.use("agg")
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *sorted((ROOT / "docs" / "dev").glob("*.md")),
]
MOST_WORDS = 40_000
FENCE = re.compile(r"^(`{3,}|:{3,}).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)


def page_name(path):
    return str(path.relative_to(ROOT))


def cells(notebook, kind):
    """Returns the cells of a notebook, of one kind."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def text_of(page):
    """Returns the text of a page, or of a notebook's cells of text."""
    if page.suffix == ".ipynb":
        return "\n".join("".join(cell["source"]) for cell in cells(page, "markdown"))
    return page.read_text(encoding="utf-8")


def blocks(page, language):
    """Returns the fenced blocks of a language."""
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```", page.read_text(), re.DOTALL | re.M)


def links(page):
    """Returns the relative links of a page, and its pictures."""
    targets = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text_of(page)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page):
    """Returns the anchors of a page's headings, as forges and MyST make them."""
    headings = re.findall(r"^#+ +(.*?) *$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_every_public_name_is_in_the_reference():
    reference = (ROOT / "docs/reference/index.rst").read_text()
    entries = set(re.findall(r"^   ([\w.]+)$", reference, re.M))
    entries = {entry for entry in entries if not entry.startswith("families.")}
    assert entries == {path.removeprefix("soc.") for path in PUBLIC}


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=page_name)
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists() or target.with_name(target.name + ".rst").is_file(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_pages_for_developers_are_listed():
    """Sphinx warns of the other pages that are in no contents."""
    pages = {path.name for path in (ROOT / "docs/dev").glob("*.md")} - {"README.md"}
    assert pages <= set(links(ROOT / "docs/dev/README.md"))


def test_the_pages_stay_short():
    reference = (ROOT / "docs/reference/index.rst").read_text()
    words = sum(len(text_of(page).split()) for page in [*PAGES, *NOTEBOOKS])
    assert words + len(reference.split()) <= MOST_WORDS


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert project["version"] == soc.__version__


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_are_understood(page):
    for line in "".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line.split(" > ")[0], comments=True)
        if words[:1] == ["soc-pymc"]:
            assert callable(make_parser().parse_args(words[1:]).run), line


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```pycon" in page.read_text()], ids=page_name
)
def test_sessions_hold(page, tmp_path, monkeypatch):
    """The interactive blocks of a page in turn, as one session in an empty folder."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(page, "pycon"))
    session = doctest.DocTestParser().get_doctest(code, {}, page.name, str(page), 0)
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(session, out=report.append).failed == 0, "".join(report)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder with the files that the pages read."""
    ads = soc.simulation.s1(3000, seed=1)
    ads = ads.rename(columns={"score": "t", "count": "clicks", "exposure": "impressions"})
    country = np.where(np.arange(3000) % 3 > 0, "DE", "FR")
    ads = ads.assign(country=country, device=np.where(np.arange(3000) % 5 > 1, "phone", "desk"))
    ads.to_parquet(tmp_path / "ads.parquet")
    rng = np.random.default_rng(0)
    effects = pd.DataFrame({"t": rng.normal(size=2000), "se": rng.uniform(0.3, 1.0, 2000)})
    sd = np.sqrt(0.25 + effects["se"] ** 2)
    effects.assign(effect=rng.normal(effects["t"], sd)).to_parquet(tmp_path / "effects.parquet")
    players = pd.DataFrame({"p": rng.uniform(0.2, 0.35, 500), "at_bats": rng.integers(9, 600, 500)})
    players["hits"] = rng.binomial(players["at_bats"], players["p"])
    players.to_parquet(tmp_path / "players.parquet")
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_readme_runs_where_warnings_are_errors(tables):
    code = blocks(ROOT / "README.md", "python")[0]
    code += "print(fit.status.converged, post.num_rows, type(result).__name__)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    words = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.endswith("True 5000 CheckResult\n"), run.stderr


def test_the_first_page_shows_the_code_of_the_readme():
    assert blocks(ROOT / "docs/index.md", "python")[0] == blocks(ROOT / "README.md", "python")[0]


@pytest.mark.slow
def test_the_page_on_choices_runs(tables):
    roles = {"score": "t", "count": "clicks", "exposure": "impressions"}
    names = {"soc": soc, "items": soc.PoissonItems("ads.parquet", **roles)}
    for code in blocks(ROOT / "docs/choose.md", "python"):
        exec(code, names)
    assert any(isinstance(value, soc.Fit) for value in names.values())


@pytest.mark.slow
def test_days_of_the_page_on_scale():
    [code] = [code for code in blocks(ROOT / "docs/scale.md", "python") if "soc.drift(" in code]
    names = {}
    exec(code, names)
    assert names["drift"].alarms[0] == "2026-03-21"  # the day on which counts rise by 30%
    assert names["month"].n_items == 112_000


LIBRARIES = ROOT / "docs/libraries.md"
CALLS = re.findall(r"^\| `(az\..*?)` \| \w+ \|", LIBRARIES.read_text(), re.MULTILINE)


@pytest.mark.slow
def test_the_page_on_libraries_runs_without_warnings():
    """Its blocks in order, then each call of its table."""
    assert len(CALLS) >= 15
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # of an engine's own libraries
        for code in blocks(LIBRARIES, "python"):
            exec(code, names)
        for call in CALLS:
            assert eval(call, names) is not None, call
            mpl.pyplot.close("all")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, "groups", "exposure", "zeros"])
def test_calls_of_arviz_run_on_fits_of_every_kind(example, name):
    """With the variables that the page names, and without the calls that it excepts."""
    import arviz as az  # which takes seconds

    fit = example(name).fit
    family = family_of(fit.prior)
    result = soc.check(fit, example(name).items, subset=200, progress=False)
    [*_, rows] = sorted(fit.data["observed_data"].data_vars, key=len)
    for call in CALLS:
        continuous = "rootogram" in call and not family.outcome.whole
        if continuous or ("prior_posterior" in call and fit.groups):
            continue
        for written, variable in zip(("log_mean", "log_cv2"), family.curve_names, strict=True):
            call = call.replace(f'"{written}', f'"{variable}')
        if fit.prior.gridded:
            call = re.sub(r'"\w+_line"\]', '"line"], coords={"line_term": [0, 1]}', call)
        if rows.endswith("_by_row"):
            named = rf"\1(fit.data, var_names='{rows}'"
            call = re.sub(r"(loo_pit|ppc_\w+)\(fit.data", named, call)
        assert eval(call, {"az": az, "fit": fit, "result": result}) is not None, call
        mpl.pyplot.close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=page_name)
def test_notebooks_show_their_results(notebook):
    """`make notebooks` runs them; here their outputs are whole, of one run, and small."""
    assert notebook.stat().st_size <= 300_000
    code = cells(notebook, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        ast.parse("".join(cell["source"]))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    pictures = [
        output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})
    ]
    assert len(pictures) >= 3
    for picture in pictures:
        image = Image.open(io.BytesIO(base64.b64decode(picture)))
        assert min(image.size) > 150
        assert len(image.convert("L").getcolors()) > 8  # something is drawn
    words = json.dumps(outputs)
    assert not re.search(
        r"ipykernel_|Traceback|/tmp/|/home/|\\u2501", words
    )  # nor bars of progress
