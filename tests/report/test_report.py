"""The page of `soc.report`: its structure, its escapes, its numbers, and every kind of fit."""

import base64
import json
import re
import shutil
import subprocess
import warnings
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import soc_pymc as soc
from soc_pymc.posterior.calibration import curves_of
from soc_pymc.report import overview, sections
from soc_pymc.report.formats import band, exact, number, percent
from soc_pymc.report.pictures import drawable

VOID = {"img", "meta"}
SCRIPT = "<script>alert('x')</script>"
HOSTILE = {
    "score": f"sc{SCRIPT}\"'&amp; $x_{{$",
    "count": "ok</td></table><img src=x onerror=alert(1)>",
    "exposure": "\u05d0\u05d1 \u202eevil \U0001f600 $\\frac{$",
    "group": "--><style>*{}</style>" + "long " * 60,
    "by": "</bdi>\u6771\u4eac`&copy;`",
}
LABELS = [f"g{SCRIPT}", "$a_$b$", "\u0645\u0631\u062d\u0628\u0627 & co", "x" * 300]


class Page(HTMLParser):
    """A page read strictly: every element is closed in order, and void ones are known."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.cells = [], [], [], []
        self.ids, self.rows = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text.append(data)
        if "tr" in self.open and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())

    def row(self, *first):
        """The one row that begins with these cells."""
        (found,) = [row for row in self.rows if tuple(row[: len(first)]) == first]
        return found


def check_structure(text):
    """What holds of every page: nothing is run or fetched, and it can be used without eyes."""
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert len(text.encode()) < 3e6
    kinds = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(kinds)
    assert kinds.count("h1") == kinds.count("title") == kinds.count("main") == 1
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        if tag == "img":
            assert attributes["src"].startswith(("data:image/png;base64,", "data:image/svg+xml;"))
            assert len(base64.b64decode(attributes["src"].partition(",")[2], validate=True)) > 500
            assert attributes["alt"].strip()
        elif tag == "a":
            assert attributes["href"][1:] in page.ids
            assert attributes["href"][0] == "#"
        else:
            assert not {"src", "href", "srcset", "background"} & set(attributes)
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
    assert len(page.ids) == len(set(page.ids))
    assert ("html", {"lang": "en"}) in page.tags
    policy = [a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    levels = [int(kind[1]) for kind in kinds if re.fullmatch("h[1-6]", kind)]
    assert levels[0] == 1
    assert max(np.diff(levels)) <= 1
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    return page


def without_date(text):
    return re.sub("<time>.*?</time>", "", text)


def counts(n=1500, seed=4):
    frame = soc.simulation.s1(n, seed=seed)
    frame["kind"] = np.random.default_rng(seed).choice(["a", "b", "c"], n)
    return frame


def values(n=900, seed=5):
    rng = np.random.default_rng(seed)
    t = rng.normal(size=n)
    theta = 0.7 * t + rng.normal(0, 0.5, n)
    s = rng.uniform(0.3, 1.0, n)
    return pd.DataFrame({"t": t, "effect": theta + s * rng.normal(size=n), "se": s})


def poisson(source, **more):
    return soc.PoissonItems(source, score="score", count="count", exposure="exposure", **more)


FEW = soc.VI(draws=60)


@pytest.fixture(scope="module")
def frame():
    return counts()


@pytest.fixture(scope="module")
def fit(frame):
    return soc.fit(soc.summarize(poisson(frame), progress=False), method=FEW, progress=False)


def make(fit, items, folder, **options):
    path = soc.report(fit, items, out=folder / "report.html", progress=False, **options)
    assert path == folder / "report.html"
    assert [p.name for p in folder.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(fit, frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return make(fit, poisson(frame), folder, by="kind", threshold=0.05, seed=3)


@pytest.mark.slow
def test_structure(text):
    page = check_structure(text)
    for name in ("data", "curves", "checks", "quantities", "decisions", "settings"):
        assert name in page.ids


def test_data_numbers(text, frame):
    words = Page(text).words
    assert "Items 1,500" in words
    assert f"Events {frame['count'].sum():,} count" in words
    zeros = int((frame["count"] == 0).sum())
    assert f"Items without events {zeros:,} ({percent(zeros / 1500)})" in words
    low, high = frame["exposure"].min(), frame["exposure"].max()
    assert Page(text).row("exposure")[2] == band(low, high)
    assert "with the same totals: these" in words


def test_curve_numbers(text, fit, frame):
    t = float(np.quantile(frame["score"], 0.5, method="inverted_cdf"))
    curves = soc.calibration_curves(fit, [t])
    low, middle, high = soc.bands(curves)["mean"].to_numpy()[:, 0]
    sds = np.sqrt(soc.bands(curves)["variance"].to_numpy()[:, 0])
    row = Page(text).row(number(t))
    assert row[2:4] == [number(middle), band(low, high)]
    # quantiles of a root are roots of quantiles but for interpolation between 60 draws
    shown = [float(x) for x in re.findall(r"[\d.]+", " ".join(row[4:]))]
    np.testing.assert_allclose(shown, sds[[1, 0, 2]], rtol=0.02)


def test_table_and_picture_weigh_items_alike(exposure_fit, small_frame):
    """With a term in exposure both are averages over units of exposure, and not over items."""
    columns = {"score": small_frame["score"].to_numpy()}
    sample = SimpleNamespace(columns=columns)
    results = SimpleNamespace(fit=exposure_fit, overview=SimpleNamespace(sample=sample))
    at = np.quantile(columns["score"], 0.5, method="inverted_cdf")
    (shown,) = (row[2] for row in sections._curve_table(results).rows if row[0] == number(at))
    curves = curves_of(exposure_fit, np.array([at]), by_size=True)
    assert shown == number(float(soc.bands(curves)["mean"].sel(bound="median").item()))
    assert shown != number(float(soc.calibration_curves(exposure_fit, [at])["mean"].median()))


def test_check_numbers(text, fit, frame):
    result = soc.check(fit, poisson(frame), by="kind", seed=3, progress=False)
    page = Page(text)
    assert all(sentence in page.words for sentence in result.advice)
    rows = {row[0]: row for row in page.rows if len(row) == 6}
    for place, found in enumerate(result.table.to_dict("records"), start=1):
        row = rows[str(place)]
        assert row[1].split()[1] == found["verdict"]
        assert row[3] == found["slice"]
        if not np.isnan(found["p_value"]):
            assert row[5] == number(found["p_value"], 2)
            assert number(found["statistic"], 2 if "PIT" in found["check"] else 3) in row[4]


def test_quantity_numbers(text, fit, frame):
    page, items = Page(text), poisson(frame)
    stats = soc.summarize(items, folds=0, progress=False)
    reduction = soc.quantities.variance_reduction(fit, items, weight="items", progress=False)
    shares = {
        "R-squared of the score": soc.quantities.r_squared(fit, stats),
        "Error that outcomes take away": 1 - reduction["ratio"],
        "Share of the score in estimates": soc.quantities.shrinkage(fit, items, progress=False)[
            "share"
        ],
    }
    for name, draws in shares.items():
        low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95])
        assert page.row(name)[1:3] == [percent(middle), f"{percent(low)} to {percent(high)}"]


def test_decision_numbers(text, fit, frame):
    page, items = Page(text), poisson(frame)
    chance = soc.decisions.probability_above(fit, items, 0.05, progress=False)
    for p in (0.5, 0.9):
        row = page.row(f"Above 0.05 with a probability of more than {p:.0%}")
        assert row[1] == f"{int((chance > p).sum()):,}"
    loss = soc.decisions.expected_loss(fit, items, 0.05, progress=False)
    least = loss[["loss_if_chosen", "loss_if_not"]].min(axis=1).sum()
    row = page.row("Choose where the posterior mean is above it")
    assert row[1:] == [f"{int(loss['choose'].sum()):,}", number(least, 4)]
    assert page.row("Choose none")[2] == number(loss["loss_if_not"].sum(), 4)


def test_top_items(text, fit, frame):
    """Lists hold the items that all items' posteriors put first, with their numbers."""
    page = Page(text)
    scored = soc.item_posteriors(fit, poisson(frame), progress=False)
    cautious = soc.decisions.risk_adjusted(fit, poisson(frame), progress=False)
    heads = [k for k, row in enumerate(page.rows) if row[0] == "Rank"]
    best = page.rows[heads[0] + 1 : heads[0] + 11]
    top = scored.nlargest(10, "theta_mean")
    assert [row[1] for row in best] == [str(k) for k in top.index]
    assert [row[2] for row in best] == list(top["kind"])
    assert [row[-2] for row in best] == [number(x) for x in top["theta_mean"]]
    ends = zip(top["theta_q05"], top["theta_q95"], strict=True)
    assert [row[-1] for row in best] == [band(*pair) for pair in ends]
    (place,) = [k for k in heads if page.rows[k][-1] == "10% quantile"][:1]
    sure = page.rows[place + 1 : place + 11]
    assert [row[1] for row in sure] == [str(k) for k in cautious.nlargest(10).index]


def test_items_that_deserve_more(text, fit, frame):
    page, items = Page(text), poisson(frame)
    more = float(f"{frame['exposure'].median():.3g}")
    gain = soc.decisions.value_of_exposure(fit, items, more, threshold=0.05, progress=False)
    (place,) = [k for k, row in enumerate(page.rows) if row[-1] == "Value"][:1]
    rows = page.rows[place + 1 : place + 11]
    assert f"{exact(more)} more units of exposure" in page.words
    assert [row[1] for row in rows] == [str(k) for k in gain["value"].nlargest(10).index]
    assert rows[0][-1] == number(gain["value"].max())


def test_settings(text, fit):
    page = Page(text)
    assert page.row("soc_pymc")[1] == soc.__version__
    assert page.row("numpy")[1] == np.__version__
    assert page.row("Prior")[1] == "Gamma"
    assert fit.status.reason in page.words
    assert "fit = soc.fit(stats, soc.Gamma(), soc.VI(draws=60))" in page.words
    assert "out='" in page.words
    assert "threshold=0.05, seed=3)" in page.words


@pytest.mark.slow
def test_same_seed_same_page(text, fit, frame, tmp_path):
    """From a file, in batches of another size, with another date: the same page but for those."""
    path = tmp_path / "items.parquet"
    frame.to_parquet(path)
    folder = tmp_path / "out"
    folder.mkdir()
    again = make(fit, poisson(str(path)), folder, by="kind", threshold=0.05, seed=3)
    page, before = Page(again), Page(text)
    assert str(path) in page.words
    images = [[a["src"] for t, a in p.tags if t == "img"] for p in (page, before)]
    assert images[0] == images[1]
    tables = [[row for row in p.rows if row[0] != "Rank"] for p in (page, before)]
    assert tables[0] == tables[1]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    n = 1200
    made = counts(n, seed=8)
    rng = np.random.default_rng(8)
    table = pd.DataFrame(
        {
            HOSTILE["score"]: made["score"].to_numpy(),
            HOSTILE["count"]: made["count"].to_numpy(),
            HOSTILE["exposure"]: made["exposure"].to_numpy(),
            HOSTILE["group"]: rng.choice(LABELS, n),
            HOSTILE["by"]: rng.choice(["</td>", "$x_{$ $", None], n),
        },
        index=pd.Index([f"<b>{k}</b>" for k in range(n)], name="<i>&name"),
    )
    roles = {role: HOSTILE[role] for role in ("score", "count", "exposure", "group")}
    items = soc.PoissonItems(table, **roles)
    fit = soc.fit(soc.summarize(items, progress=False), method=FEW, progress=False)
    options = {"by": HOSTILE["by"], "title": f"{SCRIPT} & \u202e\x00 title", "threshold": 0.05}
    return make(fit, items, tmp_path_factory.mktemp("hostile"), **options)


@pytest.mark.slow
def test_hostile_names(hostile):
    """Names and labels appear as text, whatever they hold, and never as markup."""
    page = check_structure(hostile)
    kinds = {tag for tag, _ in page.tags}
    assert not {"i", "script"} & kinds
    assert SCRIPT not in hostile
    assert "onerror=alert(1)&gt;" in hostile
    assert "\u202e" not in hostile
    assert "\x00" not in hostile
    words = page.words
    assert HOSTILE["count"] in words
    assert HOSTILE["score"] in words
    assert f"{SCRIPT} & \ufffd\ufffd title" in words
    assert any(cell.startswith("<b>") for row in page.rows for cell in row)
    groups = {row[0] for row in page.rows}
    assert LABELS[0] in groups
    assert any(cell.startswith("x" * 100) for cell in groups)
    assert hostile.count("<style>") == 1


def test_labels_in_pictures():
    assert drawable("$x_{$ $", "slice 1") == "$x_{$ $"
    assert drawable("\u0645\u0631", "slice 1") == "slice 1"
    assert drawable("\U0001f9ff", "slice 1") == "slice 1"
    assert len(drawable("x" * 300, "slice 1")) < 30


@pytest.mark.slow
def test_many_items_are_sampled(fit, frame, tmp_path, monkeypatch):
    """With more items than a sample holds, lists stay those of all items, and the page says so."""
    whole = make(fit, poisson(frame), tmp_path, threshold=0.05)
    (tmp_path / "report.html").unlink()
    monkeypatch.setattr(overview, "_SAMPLE", 400)
    monkeypatch.setattr(overview, "_LIST", 60)
    monkeypatch.setattr(overview, "_BATCH", 170)
    text = make(fit, poisson(pa.Table.from_pandas(frame)), tmp_path, threshold=0.05)
    page, before = check_structure(text), Page(whole)
    assert "a random 400 of 1,500 items" in page.words
    assert "random" not in before.words.replace("randomis", "")
    for p in ("50%", "90%"):
        name = f"Above 0.05 with a probability of more than {p}"
        # representative draws stand for all: an item at the threshold may fall on its other side
        near = [int(x.row(name)[1].replace(",", "")) for x in (page, before)]
        assert abs(near[0] - near[1]) <= 2
    ranks = set(map(str, range(1, 11)))  # of lists, whose rows are longer than those of findings
    tops = [[r[1:] for r in p.rows if r[0] in ranks and len(r) >= 8] for p in (page, before)]
    assert len(tops[1]) == 30
    assert tops[0][:20] == tops[1][:20]


KINDS = {
    "normal": (soc.Normal(), FEW),
    "by bin": (soc.Gamma(), soc.FiveSteps(smooth=False)),
    "five steps": (soc.Gamma(), soc.FiveSteps()),
    "five-step mixture": (soc.GammaMixture(), soc.FiveSteps(components=12)),
    "normal five-step mixture": (soc.NormalMixture(), soc.FiveSteps(components=5)),
    "exposure term": (soc.Gamma(exposure=soc.Spline()), FEW),
    "bin effects": (soc.Gamma(bin_effects=True), FEW),
}


OFTEN = ("normal", "five steps")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.slow) for n in KINDS]
)
@pytest.mark.slow
def test_kinds_of_fits(name, tmp_path):
    prior, method = KINDS[name]
    if isinstance(prior, soc.Normal | soc.NormalMixture):
        items = soc.NormalItems(values(), score="t", value="effect", noise_sd="se")
    else:
        items = poisson(counts(900))
    stats = soc.summarize(items, bins=12, joint=True, progress=False)
    fit = soc.fit(stats, prior, method=method, progress=False)
    page = check_structure(make(fit, items, tmp_path, threshold=0.1))
    single = isinstance(method, soc.FiveSteps)
    assert ("single draw" in page.words) == single
    assert any("90% band" in row for row in page.rows) != single
    assert sum(tag == "img" for tag, _ in page.tags) >= 8
    assert "nan" not in page.words.lower().split()


@pytest.mark.slow
@pytest.mark.parametrize("prior", [soc.GammaMixture(), soc.NormalMixture()])
def test_mixtures(prior, tmp_path):
    if isinstance(prior, soc.NormalMixture):
        items = soc.NormalItems(values(), score="t", value="effect", noise_sd="se")
    else:
        items = poisson(counts(900))
    stats = soc.summarize(items, joint=True, progress=False)
    fit = soc.fit(stats, prior, method=FEW, progress=False)
    page = check_structure(make(fit, items, tmp_path, threshold=0.1))
    assert page.row("Prior")[1] == type(prior).__name__


def clustered(n=1500, clusters=40):
    """Counts whose rates are alike within clusters."""
    frame = counts(n)
    rng = np.random.default_rng(8)
    frame["c"] = rng.integers(0, clusters, n)
    rate = frame["score"] * np.exp(rng.normal(0, 0.5, clusters))[frame["c"]]
    return frame.assign(count=rng.poisson(rate * frame["exposure"]))


@pytest.mark.parametrize("sampled", [False, True])
def test_clusters_that_a_fit_lacks_are_found(sampled, tmp_path, monkeypatch):
    """By all items: a sample has few of a cluster."""
    frame = clustered()
    fit = soc.fit(soc.summarize(poisson(frame), progress=False), method=FEW, progress=False)
    items = poisson(frame, cluster="c")
    if sampled:
        monkeypatch.setattr(overview, "_SAMPLE", 300)
    page = check_structure(make(fit, items, tmp_path))
    told = soc.check(fit, items, progress=False)
    assert told.advice[0] in page.words
    assert told.advice[0].startswith("Clusters matter: bands of the curves should be")
    assert "Nothing speaks against the model" not in page.words
    (row,) = [row for row in page.rows if "Dependence within clusters" in row]
    assert "fail" in " ".join(row)


@pytest.mark.slow
def test_scores_of_many_items_are_told_without_a_second_warning(tmp_path):
    frame = counts(1200)
    frame.loc[::6, "score"] = 0.05
    items = poisson(frame)
    with pytest.warns(soc.ItemsWarning, match="scores shared by many items"):
        stats = soc.summarize(items, progress=False)
    fit = soc.fit(stats, method=FEW, progress=False)
    told = "200 of 1,200 items have the score 0.05, which has a mean and variance of its own."
    with warnings.catch_warnings():
        warnings.simplefilter("error", soc.ItemsWarning)
        page = Page(make(fit, items, tmp_path))
        assert told in page.words
        plain = soc.fit(stats, soc.Gamma(atoms=False), method=FEW, progress=False)
        (tmp_path / "report.html").unlink()
        assert (
            "the score 0.05, which the fit treats as any"
            in Page(make(plain, items, tmp_path)).words
        )
        (tmp_path / "report.html").unlink()
        others = make(fit, poisson(counts(900, seed=9)), tmp_path)
        assert "Few of these items have it." in Page(others).words
        soc.quantities.shrinkage(fit, items, progress=False)
    with pytest.warns(soc.ItemsWarning, match="scores shared by many items"):
        soc.SecondOrderCalibrator(method=FEW, progress=False).fit(
            frame["score"], frame["count"], frame["exposure"]
        )


@pytest.mark.slow
def test_other_items(fit, tmp_path):
    frame = counts(300, seed=77).rename(columns={"score": "t", "count": "y", "exposure": "N"})
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    page = check_structure(make(fit, items, tmp_path))
    assert "The fit was made from other items: 1,500 of them" in page.words
    assert "With a threshold" in page.words


@pytest.mark.slow
def test_not_converged_is_said(fit, frame, tmp_path):
    from dataclasses import replace

    bad = replace(fit, status=soc.Status(False, "it stopped <early>", 0.9, 0.1, 1.0))
    page = Page(make(bad, poisson(frame.head(300)), tmp_path))
    assert "Not converged" in page.words
    assert "It stopped <early>." in page.words
    assert "do not rely on any number below" in page.words


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"out": "no/such/folder/r.html"}, soc.FitError, "there is no folder 'no/such/folder'"),
        ({"out": "fit.nc"}, soc.FitError, r"out='fit.nc' must be named \*.html"),
        ({"by": "kinds"}, soc.ItemsError, "column 'kinds' is missing.*did you mean 'kind'"),
        ({"threshold": float("nan")}, soc.FitError, "threshold=nan must be a finite number"),
        ({"threshold": "0.1"}, soc.FitError, "threshold='0.1' must be a finite number"),
        ({"seed": -1}, soc.FitError, "seed=-1 must be a whole number"),
    ],
)
def test_refused_options(options, error, words, fit, frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        soc.report(fit, poisson(frame), progress=False, **options)
    assert not list(tmp_path.iterdir())


def test_refused_items(fit, frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    others = soc.NormalItems(values(), score="t", value="effect", noise_sd="se")
    with pytest.raises(soc.ItemsError, match="these items have value= and noise_sd="):
        soc.report(fit, others, progress=False)
    with pytest.raises(soc.FitError, match=r"items must be soc\.PoissonItems.*, not DataFrame"):
        soc.report(fit, frame, progress=False)
    with pytest.raises(soc.FitError, match=r"fit must be a fit: .*, not dict"):
        soc.report({}, poisson(frame), progress=False)
    bad = frame.assign(exposure=-1.0)
    with pytest.raises(soc.ItemsError, match="1,500 of 1,500 rows are"):
        soc.report(fit, poisson(bad), progress=False)
    assert not list(tmp_path.iterdir())


PROBE = """<body><iframe id="f" src="report.html" style="width:{width}px;height:900px;border:0">
</iframe><script>document.getElementById("f").onload = () => {{
const page = document.getElementById("f").contentDocument.documentElement;
document.title = JSON.stringify([page.scrollWidth, page.clientWidth]);}}</script>"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_no_sideways_scroll(width, hostile, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no Chromium, which measures the page as it is laid out")
    (tmp_path / "report.html").write_text(hostile, encoding="utf-8")
    (tmp_path / "probe.html").write_text(PROBE.format(width=width))
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    words += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'browser'}"]
    words += ["--virtual-time-budget=5000", "--dump-dom", (tmp_path / "probe.html").as_uri()]
    seen = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout
    across, room = json.loads(re.search("<title>(.*?)</title>", seen)[1])
    assert 0 < across <= room
