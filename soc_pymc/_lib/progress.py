"""Progress of long work on standard error: a moving bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .arguments import switch

_QUIET_SECONDS = 0.1  # shorter phases print nothing
_LINE_SECONDS = 15.0  # without a terminal, at most one line in this time


class Phase:
    """One named phase of work; `advance` and `note` report its progress."""

    def __init__(self, title: str, total: float | None, unit: str, enabled: bool) -> None:
        self._title, self._total, self._unit, self._enabled = title, total, unit, enabled
        self._done, self._note = 0.0, ""
        self._start = time.monotonic()
        self._last_shown = self._start
        self._shown = False

    def advance(self, amount: float = 1) -> None:
        """Add `amount` finished units."""
        self._done += amount
        self._show()

    def note(self, text: str) -> None:
        """Replace the text shown behind the title."""
        self._note = text
        self._show()

    def _line(self, now: float) -> str:
        seconds = now - self._start
        parts = [self._title]
        if self._done:
            of = f" of {self._total:,.0f}" if self._total else ""
            parts.append(f"{self._done:,.0f}{of} {self._unit}".rstrip())
            if self._unit and seconds > 0:
                parts.append(f"{self._done / seconds:,.0f} {self._unit}/s")
            if self._total and 0 < self._done < self._total:
                parts.append(f"{seconds * (self._total / self._done - 1):.0f} s left")
        if self._note:
            parts.append(self._note)
        parts.append(f"{seconds:.1f} s")
        return " | ".join(parts)

    def _show(self) -> None:
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        pause = 0.1 if terminal else _LINE_SECONDS
        if not self._enabled or now - self._last_shown < pause:
            return
        self._last_shown, self._shown = now, True
        if terminal:
            sys.stderr.write("\r\x1b[2K" + self._line(now))
        else:
            sys.stderr.write(self._line(now) + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        """End the phase; keep its last line on the screen if the phase was long."""
        now = time.monotonic()
        if self._enabled and (self._shown or now - self._start >= _QUIET_SECONDS):
            prefix = "\r\x1b[2K" if sys.stderr.isatty() else ""
            sys.stderr.write(prefix + self._line(now) + "\n")
            sys.stderr.flush()


@contextmanager
def phase(
    title: str, *, total: float | None = None, unit: str = "", enabled: bool = True
) -> Iterator[Phase]:
    """Run a block as a phase that shows its progress on standard error."""
    current = Phase(title, total, unit, switch(enabled, "progress"))
    try:
        yield current
    finally:
        current.close()
