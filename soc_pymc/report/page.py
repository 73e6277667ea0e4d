"""The page: its frame, its style, and its sections in order."""

from .markup import Html, joined, tag
from .material import Material
from .sections import checks, curves, data, decisions, head, quantities, settings
from .sections.head import title_of
from .style import CSS

__all__ = ["page"]

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_CONTENTS = (
    ("data", "Data", data),
    ("curves", "Curves", curves),
    ("checks", "Checks", checks),
    ("quantities", "Quantities", quantities),
    ("decisions", "Decisions", decisions),
    ("settings", "Settings", settings),
)


def page(material: Material, title: str | None) -> str:
    """The whole page as text.

    Parameters
    ----------
    material
        What it is about.
    title
        The user's title; None makes one.
    """
    links = [tag("a", words, href=f"#{name}") for name, words, _ in _CONTENTS]
    sections = [make(material) for _, _, make in _CONTENTS]
    inside = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="soc_pymc"),
        tag("title", title_of(material, title)),
        tag("style", Html(CSS)),
    )
    body = tag(
        "body",
        tag("a", "To the contents", href="#data", class_="skip"),
        tag(
            "main",
            head(material, title),
            tag("nav", *links, aria_label="Sections"),
            *sections,
            tag("footer", tag("p", "Made by soc_pymc: ", _foot(material))),
        ),
    )
    return "<!DOCTYPE html>\n" + tag("html", inside, body, lang="en") + "\n"


def _foot(material: Material) -> Html:
    prior, method = type(material.fit.prior).__name__, type(material.fit.method).__name__
    return joined([f"prior {prior}, method {method}, {material.glance.n:,} items."])
