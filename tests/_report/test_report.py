"""The page of `soc.report`: written whole, with the numbers of the functions, and escaped."""

import dataclasses
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.__main__ import main
from soc_pymc.checks import _check, findings
from tests.examples import COUNT_ROLES, part_of

THRESHOLD = 0.05
OPTIONS = {"by": "kind", "threshold": THRESHOLD, "seed": 3}
SHOWN = {"rtol": 6e-3}  # of three digits
SCRIPT = "<script>alert('x')</script>"
HOSTILE = {
    "score": f"sc{SCRIPT}\"'&amp; $x_{{$",
    "count": "ok</td></table><img src=x onerror=alert(1)>",
    "exposure": "\u05d0\u05d1 \u202eevil \U0001f600 $\\frac{$",
    "kind": "</bdi>\u6771\u4eac`&copy;` --><style>*{}</style>" + "long " * 60,
}


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
        (row,) = [row for row in self.rows if row[0] == name]
        return row

    def table(self, column):
        """Returns the rows of the list whose head ends in this column: ten items."""
        heads = [k for k, row in enumerate(self.rows) if row[-1] == column]
        return self.rows[heads[0] + 1 : heads[0] + 11]

    def images(self):
        return [attributes["src"] for tag, attributes in self.tags if tag == "img"]


def numbers_in(*cells):
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


def write(fit, items, folder, **options):
    path = soc.report(fit, items, out=folder / "report.html", progress=False, **options)
    assert path == folder / "report.html"
    assert [p.name for p in folder.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


fit = part_of("gamma", "fit")
quick_fit = part_of("five_steps", "fit")  # a single draw, whose page takes half of the time


@pytest.fixture(scope="module")
def items(example):
    return example("gamma").case.items(example("gamma").frame.head(800))


@pytest.fixture(scope="module")
def text(fit, items, tmp_path_factory):
    return write(fit, items, tmp_path_factory.mktemp("report"), **OPTIONS)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.mark.slow
def test_structure_and_what_was_fitted(text, items):
    page, frame = check_structure(text), items.source
    assert f"soc_pymc {soc.__version__}" in page.words
    assert page.row("outcomes")[1].startswith(f"{frame['count'].sum():,} counts")
    assert ["exposure", "'exposure'"] in page.rows


@pytest.mark.slow
def test_numbers_of_curves(page, fit, items):
    """At a quantile of the items' scores: median and 90% band of the mean and of the sd."""
    t = float(np.quantile(items.source["score"], 0.5, method="inverted_cdf"))
    (row,) = [row for row in page.rows if len(row) == 8 and row[1] == "50%"]
    np.testing.assert_allclose(numbers_in(row[0]), [t], **SHOWN)
    curves = soc.calibration_curves(fit, [t])
    for cells, draws in ((row[2:5], curves["mean"]), (row[5:], np.sqrt(curves["variance"]))):
        np.testing.assert_allclose(
            numbers_in(*cells), np.quantile(draws, [0.5, 0.05, 0.95]), **SHOWN
        )


@pytest.mark.slow
def test_the_check_is_that_of_print(page, fit, items):
    result = soc.check(fit, items, by="kind", seed=3, progress=False)
    assert all(sentence in page.words for sentence in result.advice)
    assert result.title in page.words
    warnings = (result.table["verdict"] == "warn").sum()
    headline = f"{warnings} of {len(result.table)} checks warn" if warnings else "All"
    assert headline in page.words
    assert result.title.endswith(f"{warnings} warn, 0 fail")
    rows = [tuple(row) for row in page.rows if len(row) == 8]
    assert set(findings.cells(result.table)) <= set(rows)
    first = rows[rows.index(findings.COLUMNS) + 1]
    assert " ".join(first).split() == str(result).splitlines()[2].split()  # the worst row


@pytest.mark.slow
def test_numbers_in_short(page, fit, items):
    left = soc.quantities.variance_reduction(fit, items, weight="items", progress=False)
    statistics = soc.summarize(items, folds=0, progress=False)
    for draws, sentence in (
        (soc.quantities.r_squared(fit, statistics), "The calibrated score explains"),
        (1 - left.data["ratio"], "The items' own counts remove"),
    ):
        shown = numbers_in(re.search(rf"{sentence}.*?\)", page.words)[0])
        expected = np.quantile(draws, [0.5, 0.05, 0.95])
        np.testing.assert_allclose([shown[0], *shown[2:]], expected, atol=6e-4)


def above(page, prob):
    says = rf"([\d,]+) of [\d,]+ items lie above 0.05 with a probability of more than {prob:.0%}"
    return int(re.search(says, page.words)[1].replace(",", ""))


@pytest.mark.slow
def test_items_at_the_top(page, fit, items):
    """Lists hold the items that all items' posteriors put first, with their numbers."""
    chance = soc.decisions.probability_above(fit, items, THRESHOLD, progress=False)
    for prob in (0.5, 0.9):
        assert above(page, prob) == pytest.approx((chance > prob).sum(), abs=1)
    posteriors = soc.item_posteriors(fit, items, progress=False)
    top = posteriors.nlargest(10, "theta_mean")
    rows = page.table("95%")
    assert [row[0] for row in rows] == list(map(str, top.index))
    assert [row[1] for row in rows] == list(top["kind"])
    for row, (_, item) in zip(rows, top.iterrows(), strict=True):
        expected = item[["theta_mean", "theta_q05", "theta_q95"]].astype(float)
        np.testing.assert_allclose(numbers_in(*row[-3:]), expected, **SHOWN)
    low = soc.item_posteriors(fit, items, quantiles=(0.1,), progress=False)["theta_q10"]
    cautious = low.nlargest(10)
    assert [row[0] for row in page.table("10% quantile")] == list(map(str, cautious.index))
    more = float(f"{items.source['exposure'].median():.3g}")
    gain = soc.decisions.value_of_exposure(fit, items, more, threshold=THRESHOLD, progress=False)
    gain = gain["value"].nlargest(10)
    rows = page.table("value")
    assert [row[0] for row in rows] == list(map(str, gain.index))
    np.testing.assert_allclose([numbers_in(row[-1])[0] for row in rows], gain, **SHOWN)


@pytest.mark.slow
def test_the_command_writes_the_same_page(quick_fit, items, tmp_path, capsys):
    """From files, with the same seed: the same pictures and numbers, and the choice of a prior."""
    row = {"prior": "soc.Gamma()", "elpd": -12.5, "chosen": True, "reason": "the only one"}
    chosen = dataclasses.replace(quick_fit, selection=pd.DataFrame([row]))
    page = Page(write(chosen, items, tmp_path, **OPTIONS))
    assert ["soc.Gamma()", "-12.5", "the only one"] in page.rows
    items.source.to_parquet(tmp_path / "items.parquet")
    chosen.save(tmp_path / "fit.nc")
    words = ["report", "fit.nc", "items.parquet", "--out", "page.html"]
    words = [str(tmp_path / word) if "." in word else word for word in words]
    words += ["--by", "kind", "--threshold", str(THRESHOLD), "--seed", "3", "--quiet"]
    assert main(words) == 0
    assert capsys.readouterr().err == ""
    again = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert again.images() == page.images()
    heads = ("index", "row, from 0")  # what items are called without a name
    tables = [
        [row for row in p.rows if len(row) == 8 and row[0] not in heads] for p in (again, page)
    ]
    assert tables[0] == tables[1]


def test_nothing_is_written_where_a_page_is_refused(fit, items, tmp_path):
    negative = dataclasses.replace(items, source=items.source.assign(exposure=-1.0))
    for data, name in ((items, "absent/page.html"), (items, "page.nc"), (negative, "page.html")):
        with pytest.raises(soc.SocError):
            soc.report(fit, data, out=tmp_path / name, progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_many_items_are_sampled_and_clusters_are_found_from_all(fit, tmp_path, monkeypatch):
    """Lists and counts stay those of all 3,000 items, and the page says what was sampled."""
    monkeypatch.setattr(_check, "_MOST_CHECKED", 2000)
    frame = soc.simulation.s1(3000, seed=9)
    rng = np.random.default_rng(8)
    frame["c"] = rng.integers(0, 200, len(frame))
    rate = frame["score"] * np.exp(rng.normal(0, 1.0, 200))[frame["c"]]
    frame["count"] = rng.poisson(rate * frame["exposure"])
    items = soc.PoissonItems(frame, **COUNT_ROLES, cluster="c")
    page = check_structure(write(fit, items, tmp_path, threshold=THRESHOLD))
    assert "check: 2,000 random items" in page.words
    posteriors = soc.item_posteriors(fit, items, progress=False)
    top = posteriors.nlargest(10, "theta_mean")
    assert [row[0] for row in page.table("95%")] == list(map(str, top.index))
    chance = soc.decisions.probability_above(fit, items, THRESHOLD, progress=False)
    assert above(page, 0.9) == (chance > 0.9).sum()
    (row,) = [row for row in page.rows if "clusters" in row]
    assert "ok" not in row[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "five_steps"])
def test_other_fits(name, example, tmp_path):
    """All kinds of fits fill a page; a fit with a single draw has no bands."""
    items = example(name).case.items(example(name).frame.head(400))
    page = check_structure(write(example(name).fit, items, tmp_path, threshold=0.1))
    assert any(row.count("low") == 2 for row in page.rows) == (name != "five_steps")
    assert len(page.images()) == 4
    assert "nan" not in page.words.lower().split()
    posteriors = soc.item_posteriors(example(name).fit, items, progress=False)
    top = posteriors["theta_mean"].nlargest(10)
    assert [row[0] for row in page.table("95%")] == list(map(str, top.index))


@pytest.fixture(scope="module")
def hostile(quick_fit, items, tmp_path_factory):
    """A page whose names, labels, title and status are markup or unseen characters."""
    status = soc.Status(False, "it stopped <early>", 0.9, 0.1, 1.0)
    labels = pd.Index([f"<b>{k}</b>" for k in items.source.index], name="<i>&name")
    table = items.source.rename(columns=HOSTILE).set_index(labels)
    table[HOSTILE["kind"]] = np.resize(np.array(["</td>", "$x_{$ $", None], object), len(table))
    roles = {role: HOSTILE[role] for role in ("score", "count", "exposure")}
    options = {"by": HOSTILE["kind"], "title": f"{SCRIPT} & \u202e\x00 title", "threshold": 0.05}
    folder = tmp_path_factory.mktemp("hostile")
    bad = dataclasses.replace(quick_fit, status=status)
    return write(bad, soc.PoissonItems(table, **roles), folder, **options)


@pytest.mark.slow
def test_names_are_text(hostile):
    """Names and labels appear as text, whatever they hold, and never as markup."""
    page = check_structure(hostile)
    assert not {"i", "b", "script"} & {tag for tag, _ in page.tags}
    assert SCRIPT not in hostile
    assert not {"\u202e", "\x00"} & set(hostile)
    assert "it stopped <early>" in page.words
    assert HOSTILE["count"] in page.words
    assert HOSTILE["score"] in page.words
    assert f"{SCRIPT} & \\u202e\\x00 title" in page.words
    assert all(row[0].startswith("<b>") for row in page.table("95%"))


PROBE = """<body><iframe id="f" src="report.html" style="width:{width}px;height:900px;border:0">
</iframe><script>document.getElementById("f").onload = () => {{
const page = document.getElementById("f").contentDocument.documentElement;
document.title = JSON.stringify([page.scrollWidth, page.clientWidth]);}}</script>"""


@pytest.mark.slow
def test_no_sideways_scroll_on_a_phone(hostile, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no Chromium, which measures the page as it is laid out")
    (tmp_path / "report.html").write_text(hostile, encoding="utf-8")
    (tmp_path / "probe.html").write_text(PROBE.format(width=390))
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    words += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'browser'}"]
    words += ["--virtual-time-budget=5000", "--dump-dom", (tmp_path / "probe.html").as_uri()]
    layout = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout
    needed, available = json.loads(re.search("<title>(.*?)</title>", layout)[1])
    assert 0 < needed <= available
