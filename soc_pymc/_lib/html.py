"""Small HTML pieces for notebooks and reports, in which all text is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table", "visible"]


def visible(text: object) -> str:
    r"""Text in which characters that nobody sees are written out, as they might steer a terminal.

    Examples
    --------
    >>> print(visible("a\x1b[2J"))
    a\x1b[2J
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def html_table(
    title: str, rows: Iterable[Sequence[object]], head: Sequence[object] = (), note: str = ""
) -> str:
    """A titled table; every text in it is escaped.

    Parameters
    ----------
    title
        What stands above the table.
    rows
        Its rows, each a sequence of cells.
    head
        Names of the columns; none for a table of names and values.
    note
        What stands below it.

    Returns
    -------
    str
        A ``div``, in the page's own colours and letters.

    Examples
    --------
    >>> html_table("t", [["a<b", 1]])
    '<div><strong>t</strong><table><tbody><tr><td>a&lt;b</td><td>1</td></tr></tbody></table></div>'
    """
    names = "".join(f"<th>{escape(visible(name))}</th>" for name in head)
    top = f"<thead><tr>{names}</tr></thead>" if names else ""
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(visible(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    table = f"<table>{top}<tbody>{body}</tbody></table>"
    below = f"<p>{escape(visible(note))}</p>" if note else ""
    return f"<div><strong>{escape(visible(title))}</strong>{table}{below}</div>"
