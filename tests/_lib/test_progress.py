"""Progress of long work: when it is shown, and a bar that clears itself."""

import io
import sys

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc._lib.work import PROGRESS, is_shown, ordered_map, phase, with_progress


class Screen(io.StringIO):
    """Standard error that is a terminal, or is not."""

    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.fixture
def screen(monkeypatch):
    """Returns a function that makes standard error a terminal or a file; the setting is unset."""
    monkeypatch.delenv(PROGRESS, raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    soc.progress(None)

    def make(terminal):
        monkeypatch.setattr(sys, "stderr", Screen(terminal))
        return sys.stderr

    yield make
    soc.progress(None)


def test_the_argument_precedes_the_setting_and_that_the_variable(screen, monkeypatch):
    for terminal in (True, False):
        screen(terminal)
        assert is_shown() is terminal
    monkeypatch.setenv(PROGRESS, "1")
    assert is_shown()
    for off in (False, np.False_):
        soc.progress(off)
        assert is_shown() is False
        assert asked(progress=np.True_) is True
    monkeypatch.setenv(PROGRESS, "yes")
    with pytest.raises(soc.SocError, match=PROGRESS):
        is_shown()
    with pytest.raises(soc.FitError, match="show='yes' must be True or False"):
        soc.progress("yes")


@with_progress
def asked(*, progress=None):
    """Tells whether progress is shown, also in a call that says nothing of it, and in threads."""
    shown = {is_shown(), asked_again(), *ordered_map(lambda _: is_shown(), range(4))}
    assert len(shown) == 1
    return shown.pop()


@with_progress
def asked_again(*, progress=None):
    return is_shown()


def test_the_argument_ends_with_its_call(screen):
    screen(True)
    assert asked(progress=False) is False
    assert is_shown()
    with pytest.raises(soc.FitError, match="progress='yes' must be True or False"):
        asked(progress="yes")


@with_progress
def work(*, progress=None):
    """Runs four quarters of a work of 100 items, with another phase inside."""
    with phase("reading [all]", total=100, unit="items") as outer:
        for _ in range(4):
            outer.advance(25)
            with phase("hidden") as inner:
                inner.note("nothing")
        outer.note("at the end")


def test_a_terminal_shows_one_bar_that_clears_itself(screen):
    terminal = screen(True)
    work()
    text = terminal.getvalue()
    assert "reading [all]" in text
    assert "hidden" not in text
    assert text.endswith("\x1b[2K")


def test_a_file_gets_one_line_for_a_phase_that_is_to_be_shown(screen):
    file = screen(False)
    work()
    assert file.getvalue() == ""
    work(progress=True)
    (line,) = file.getvalue().split("\n")[:-1]
    assert "reading [all]" in line
    assert "100 of 100 items" in line
    assert "\x1b" not in line
