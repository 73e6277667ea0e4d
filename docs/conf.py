"""Sphinx: the pages of docs/, the notebooks of notebooks/, the reference from docstrings.

Nothing is fetched: no inventories of other projects, and formulas become MathML, which browsers
set themselves. `make docs` builds with warnings as errors.
"""

import os
import re
import shutil
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import soc_pymc

HERE = Path(__file__).parent
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["SOC_PYMC_PROGRESS"] = "0"
# notebooks run where the package may be a checkout that is not installed
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)

project = "soc_pymc"
author = "the soc_pymc developers"
copyright = "the soc_pymc developers, MIT license"
release = version = soc_pymc.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
]
# pages for developers stay in the repository
templates_path = ["_templates"]
exclude_patterns = ["_build", "dev", "**/.ipynb_checkpoints"]
highlight_language = "none"
default_role = "py:obj"  # `names` in docstrings lead to the reference

# pages and notebooks
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
nb_execution_mode = "force"
# notebooks have their outputs, from `make notebooks`
nb_execution_excludepatterns = ["notebooks/*"]
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_ipywidgets_js = {}

# reference
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 78
add_module_names = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "soc_pymc"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False


def copy_notebooks(app):
    """Put ../notebooks/*.ipynb beside the pages, afresh, so that none outlives its source.

    Their links to ../docs/, right where the sources are read, lead to the same pages from here.
    """
    folder = HERE / "notebooks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for source in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        text = source.read_text(encoding="utf-8").replace("](../docs/", "](../")
        (folder / source.name).write_text(text, encoding="utf-8")


def link_notebooks(app, name, source):
    """Let links of pages to ../notebooks/, right in the repository, lead to the copies."""
    source[0] = source[0].replace("](../notebooks/", "](notebooks/")


def words_before(picture, section):
    """The heading of a section, and its last paragraph before a picture, without TeX."""
    words = ""
    for child in section.children:
        if picture in child.findall(nodes.image):
            break
        if isinstance(child, nodes.paragraph):
            words = child.astext()
    words = f"{section[0].astext()}. {words}".replace("\\mid", "|").replace("\\", "")
    return " ".join(words.split())


def describe_pictures(app, doctree, docname):
    """Describe pictures of notebooks by the words before them; thumbnails in the gallery."""
    last = {}
    for picture in doctree.findall(nodes.image):
        section = picture
        while not isinstance(section, nodes.section):
            section = section.parent
        if not picture.get("alt"):
            picture["alt"] = words_before(picture, section)
        last[section["ids"][0]] = (section[0].astext(), picture)
    if docname != "gallery" or not last:
        return
    shown = nodes.container(classes=["thumbnails"])
    for anchor, (name, picture) in last.items():
        link = nodes.reference("", "", refid=anchor, internal=True)
        link += nodes.image(uri=picture["uri"], alt="", candidates=picture["candidates"])
        link += nodes.inline("", name)
        shown += nodes.paragraph("", "", link)
    doctree.next_node(nodes.section).insert(2, shown)


# rows of a display are found by the converter itself
_ENVIRONMENT = re.compile(r"\\(begin|end)\{(align|aligned|equation|gather|split)\*?\}")

_BIG = re.compile(r"\\(Big|bigg|Bigg)(?=[lr]?\b|[^a-zA-Z])")

# of \\frac12 it would make 12 over what follows
_FRACTION = re.compile(r"\\([td]?frac)\s*(\d)\s*(\d)")
# TeX sets thin spaces around names of functions, but for brackets
_NAME = r"\\(?:log|exp|max|min|det|sinh|cosh)(?![a-zA-Z])"
_AFTER = re.compile(rf"({_NAME}) *(?=\\(?!left|big|,|;)|[a-zA-Z0-9])")
_BEFORE = re.compile(rf"(?<=[\w)}}\]']) *(?={_NAME})")


def _plain_tex(tex):
    """TeX that the converter reads as TeX does."""
    tex = _ENVIRONMENT.sub("", tex).replace(r"\dots", r"\ldots")
    tex = _FRACTION.sub(r"\\\1{\2}{\3}", _BIG.sub(r"\\big", tex))
    return _BEFORE.sub(r"\\, ", _AFTER.sub(r"\1\\, ", tex)).strip()


def _formula(writer, node, *, block):
    tex = _plain_tex(node.astext())
    writer.body.append(tex2mathml(tex, as_block=block))
    raise nodes.SkipNode


def inline_formula(writer, node):
    """One formula in a line of text."""
    _formula(writer, node, block=False)


def display_formula(writer, node):
    """A formula on lines of its own, which scrolls where the screen is narrower."""
    writer.body.append('<div class="math-display">')
    try:
        _formula(writer, node, block=True)
    finally:
        writer.body.append("</div>")


def setup(app):
    """Register what the pages need beyond the extensions."""
    app.connect("builder-inited", copy_notebooks)
    app.connect("source-read", link_notebooks)
    app.connect("doctree-resolved", describe_pictures)
    app.add_html_math_renderer("mathml", (inline_formula, None), (display_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
