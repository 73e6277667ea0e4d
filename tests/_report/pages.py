"""Reading of a report's page: its elements, its words and its tables."""

import re
from html.parser import HTMLParser

VOID = {"img", "meta"}


class Page(HTMLParser):
    """A page read strictly: every element is closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.rows = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open
        self.words = " ".join(" ".join(self.text).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)
            if "td" in self.open or "th" in self.open:
                self.rows[-1][-1] += data

    def row(self, name):
        """Returns the one row whose first cell is this."""
        (row,) = [row for row in self.rows if row[0] == name]
        return row

    def table(self, column):
        """Returns the rows of the list whose head ends in this column: ten items."""
        heads = [k for k, row in enumerate(self.rows) if row[-1] == column]
        return self.rows[heads[0] + 1 : heads[0] + 11]

    def images(self):
        """Returns the sources of all images."""
        return [attributes["src"] for tag, attributes in self.tags if tag == "img"]


def numbers_in(*cells):
    """Returns the numbers in cells of a table; percentages are shares."""
    numbers = []
    for text in re.findall(r"[−-]?[\d,.]*\d(?:e[−-]?\d+)?%?", " ".join(cells)):
        plain = text.replace(",", "").replace("−", "-")
        numbers.append(float(plain[:-1]) / 100 if plain.endswith("%") else float(plain))
    return numbers


def check_structure(text):
    """Asserts that nothing is run or fetched and that it can be used without eyes."""
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    kinds = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(kinds)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert tag == "td" or "style" not in attributes  # verdicts have colours
        if tag == "img":
            assert attributes["src"].startswith("data:image/png;base64,")
            assert attributes["alt"].strip()
        elif tag == "a":
            assert attributes["href"][0] == "#"
            assert attributes["href"][1:] in ids
        else:
            assert not {"src", "href", "srcset", "background"} & set(attributes)
    policy = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    return page
