"""Progress of long work: a moving line on a terminal, few plain ones elsewhere."""

import io

import pytest

import soc_pymc as soc
from soc_pymc._lib import progress


class Screen(io.StringIO):
    """Standard error that is a terminal, or is not."""

    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def _work(clock, screen, monkeypatch, seconds, **options):
    monkeypatch.setattr(progress.sys, "stderr", screen)
    with progress.phase("reading", **options) as running:
        for _ in range(4):
            clock[0] += seconds
            running.advance(25)
    return screen.getvalue()


def test_a_terminal_shows_one_line_that_moves(clock, monkeypatch):
    text = _work(clock, Screen(True), monkeypatch, 1.0, total=100, unit="items")
    first, *_, last = text.split("\r\x1b[2K")[1:]
    assert first == "reading | 25 of 100 items | 25 items/s | 3 s left | 1.0 s"
    assert last == "reading | 100 of 100 items | 25 items/s | 4.0 s\n"
    assert text.count("\n") == 1


def test_elsewhere_there_are_few_lines(clock, monkeypatch):
    text = _work(clock, Screen(False), monkeypatch, 10.0, total=100, unit="items")
    assert text.splitlines() == [
        "reading | 50 of 100 items | 2 items/s | 20 s left | 20.0 s",
        "reading | 100 of 100 items | 2 items/s | 40.0 s",
        "reading | 100 of 100 items | 2 items/s | 40.0 s",
    ]


def test_short_phases_and_quiet_ones_leave_no_trace(clock, monkeypatch):
    assert _work(clock, Screen(True), monkeypatch, 0.001, total=100) == ""
    assert _work(clock, Screen(True), monkeypatch, 100.0, enabled=False) == ""
    with pytest.raises(soc.FitError, match="progress='yes' must be True or False"):
        _work(clock, Screen(True), monkeypatch, 1.0, enabled="yes")


def test_work_without_a_total_and_notes(clock, monkeypatch):
    screen = Screen(True)
    monkeypatch.setattr(progress.sys, "stderr", screen)
    with progress.phase("fitting", unit="steps") as running:
        clock[0] += 2.0
        running.note("k = 0.31")
        clock[0] += 2.0
        running.advance(8)
    lines = screen.getvalue().split("\r\x1b[2K")[1:]
    assert lines[0] == "fitting | k = 0.31 | 2.0 s"
    assert lines[1] == "fitting | 8 steps | 2 steps/s | k = 0.31 | 4.0 s"
