"""Progress of long work: a moving line on a terminal, few plain ones elsewhere."""

import io

import pytest

from soc_pymc._lib import progress


class Screen(io.StringIO):
    """Standard error that is a terminal, or is not."""

    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


def shown(monkeypatch, terminal, seconds, **options):
    """Returns what four quarters of a work of 100 items show, each of so many seconds."""
    now, screen = [100.0], Screen(terminal)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress.sys, "stderr", screen)
    with progress.phase("reading", total=100, unit="items", **options) as running:
        for _ in range(4):
            now[0] += seconds
            running.advance(25)
    return screen.getvalue()


def test_a_terminal_shows_one_line_that_moves(monkeypatch):
    text = shown(monkeypatch, True, 1.0)
    lines = text.split("\r\x1b[2K")[1:]
    assert len(lines) >= 4
    for words in ("reading", "25 of 100 items", "25 items/s", "3 s left"):
        assert words in lines[0]
    assert "100 of 100" in lines[-1]
    assert text.count("\n") == 1


def test_elsewhere_there_are_few_plain_lines(monkeypatch):
    """At most one in fifteen seconds, and the last."""
    lines = shown(monkeypatch, False, 10.0).splitlines()
    assert 2 <= len(lines) <= 3
    assert "100 of 100" in lines[-1]
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(("seconds", "options"), [(0.001, {}), (100.0, {"enabled": False})])
def test_short_phases_and_quiet_ones_leave_no_trace(monkeypatch, seconds, options):
    assert shown(monkeypatch, True, seconds, **options) == ""
