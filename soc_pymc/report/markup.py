"""HTML made of elements in which every text is escaped: only what is `Html` already is not."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["Html", "clean", "joined", "more", "names_and_values", "own", "table", "tag"]

_VOID = ("img", "meta")
# characters that nobody sees: controls, and marks that turn the direction of what follows
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_LONG = 120


class Html(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def tag(name: str, /, *content: object, **attributes: object) -> Html:
    """One element; content and attributes are escaped unless they are `Html`.

    Parameters
    ----------
    name
        Name of the element.
    content
        What is in it, in order: texts, numbers and elements.
    attributes
        Its attributes, ``class_`` for class and ``aria_label`` for aria-label; None leaves one out.

    Examples
    --------
    >>> tag("p", "a < b ", tag("b", "c"), class_='"')
    '<p class="&quot;">a &lt; b <b>c</b></p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    own_attributes = "".join(
        f' {key}="{escape(clean(value))}"' for key, value in given.items() if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{own_attributes}>")
    return Html(f"<{name}{own_attributes}>{joined(content)}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after the other, escaped unless they are `Html`.

    Examples
    --------
    >>> joined(["a", tag("b", "<")], ", ")
    'a, <b>&lt;</b>'
    """
    return Html(escape(between).join(p if isinstance(p, Html) else escape(clean(p)) for p in parts))


def clean(text: object) -> str:
    """Text as a page can hold it: what is unseen or cannot be encoded becomes a replacement mark.

    Examples
    --------
    >>> clean("a" + chr(0x202E) + "b") == "a" + chr(0xFFFD) + "b"
    True
    """
    encoded = str(text).encode("utf-8", "replace").decode("utf-8")
    return _UNSEEN.sub("\ufffd", encoded)


def own(text: object) -> Html:
    """A name or label of the user's: its direction stays its own; very long ones are cut.

    Examples
    --------
    >>> own("a & b")
    '<bdi>a &amp; b</bdi>'
    """
    shown = str(text)
    if len(shown) > _LONG:
        shown = f"{shown[:_LONG]}... ({len(shown):,} characters)"
    return tag("bdi", shown)


def table(
    caption: str,
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    numbers: Sequence[int] = (),
    sentences: Sequence[int] = (),
) -> Html:
    """A table in a box of its own, which scrolls where a page is narrow.

    Parameters
    ----------
    caption
        What it shows.
    head
        Names of its columns.
    rows
        Its rows; the first cell of each is its heading.
    numbers
        Columns of numbers, which are aligned at the right.
    sentences
        Columns of sentences, which stay wide enough to be read.
    """
    kinds = ["n" if k in numbers else "w" if k in sentences else None for k in range(len(head))]
    names = joined(tag("th", h, scope="col", class_=c) for h, c in zip(head, kinds, strict=True))
    body = []
    for row in rows:
        first, *rest = row
        cells = [tag("td", cell, class_=c) for cell, c in zip(rest, kinds[1:], strict=True)]
        body.append(tag("tr", tag("th", first, scope="row", class_=kinds[0]), *cells))
    whole = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", names)),
        tag("tbody", *body),
    )
    return tag("div", whole, class_="scroll", role="region", aria_label=caption, tabindex=0)


def names_and_values(pairs: Iterable[tuple[object, object]]) -> Html:
    """A list of names, each with its value beside it."""
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs]
    return tag("dl", *rows, class_="pairs")


def more(summary: object, *content: Any) -> Html:
    """What is there to unfold."""
    return tag("details", tag("summary", summary), *content)
