"""The command `soc-pymc report`: a page from files, errors in one line."""

import pytest

import soc_pymc as soc
from soc_pymc.front.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    frame = soc.simulation.s1(600, seed=6)
    frame["device"] = ["phone", "desk"] * 300
    frame["ad"] = range(1000, 1600)
    frame.to_parquet(folder / "items.parquet")
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=10, progress=False)
    soc.fit(stats, method=soc.FiveSteps(), progress=False).save(folder / "fit.nc")
    return folder


@pytest.mark.slow
def test_report(files, capsys):
    out = files / "page.html"
    words = ["report", files / "fit.nc", files / "items.parquet", "--out", out, "--by", "device"]
    words += ["--title", "Ads & <co>", "--threshold", "0.05", "--id", "ad", "--quiet"]
    assert main([str(w) for w in words]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"report -> {out}\n"
    assert printed.err == ""
    text = out.read_text(encoding="utf-8")
    assert "<bdi>Ads &amp; &lt;co&gt;</bdi>" in text
    assert "device = phone" in text
    assert "above 0.05" in text
    assert '<th scope="col"><bdi>ad</bdi></th>' in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--out", "nowhere/page.html"], "there is no folder 'nowhere'"),
        (["--out", "page.txt"], "must be named *.html"),
        (["--by", "devices", "--out", "page.html"], "did you mean 'device'"),
        (["--threshold", "nan", "--out", "page.html"], "threshold=nan must be a finite number"),
    ],
)
def test_errors_are_one_line(more, said, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["report", str(files / "fit.nc"), str(files / "items.parquet"), "--quiet", *more]
    assert main(words) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "example: soc-pymc report fit.nc" in printed
    assert "--threshold" in printed
