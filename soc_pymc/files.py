"""Files written whole or not at all, and saved results read back."""

import io
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["read_saved", "remove_stale", "replacing", "save_netcdf"]


_STALE_SECONDS = 86_400.0


def save_netcdf(data: Any, path: str | os.PathLike[str]) -> None:
    """Write an xarray Dataset or DataTree to one netCDF file, whole or not at all.

    It is made in memory first: on a full disk the HDF5 library would take the process with it.
    """
    made = io.BytesIO()
    data.to_netcdf(made, engine="h5netcdf")
    with replacing(path) as temporary:
        temporary.write_bytes(made.getbuffer())


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name in the folder of `path`; rename it to `path` if the block succeeds.

    Whatever stops the block, no half-written file is left, under either name. A process that is
    killed leaves a temporary file, which the next one to write `path` removes.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "out.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = Path(path)
    remove_stale(target)
    prefix = f".{target.name}.{_host()}-{os.getpid()}."
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp's own mode would hide the file from others
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def remove_stale(target: Path) -> None:
    """Remove what killed processes left of a file: of those that are gone, or a day old.

    Parameters
    ----------
    target
        Name of the file that was to be written.
    """
    form = re.compile(rf"\.{re.escape(target.name)}\.(\w+)-(\d+)\.\w+\.part")
    for left in list(target.parent.glob(".*.part")):
        match = form.fullmatch(left.name)
        if not match:
            continue
        try:
            old = time.time() - left.stat().st_mtime > _STALE_SECONDS
            if old or (match[1] == _host() and not _is_running(int(match[2]))):
                left.unlink(missing_ok=True)
        except FileNotFoundError:  # its own process has just finished it
            continue


def _host() -> str:
    return re.sub(r"\W", "_", platform.node())[:40] or "host"


def _is_running(pid: int) -> bool:
    """Whether a process of this machine is there; unknown counts as yes."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def read_saved(
    path: str | os.PathLike[str],
    opener: Callable[..., Any],
    form: str,
    error_type: type[Exception],
    what: str,
    command: str,
) -> Any:
    """Contents of a netCDF file that says which format it has; nothing in it is executed.

    Parameters
    ----------
    path
        Name of the file.
    opener
        ``xarray.open_dataset`` or ``xarray.open_datatree``.
    form
        The format expected in the attribute ``format``.
    error_type, what, command
        The error to raise, what the file should hold, and the command that writes it.
    """
    if not os.path.exists(path):
        raise error_type(f"{path}: there is no such file")
    try:
        with opener(path, engine="h5netcdf") as opened:
            data = opened.load()
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise error_type(
            f"{path} does not hold {what} ({type(error).__name__}: {error}); "
            f"write it with .save(path) or '{command}'"
        ) from error
    found = data.attrs.get("format")
    if found != form:
        raise error_type(
            f"{path} has format {found!r}, this version reads {form!r}: "
            f"write it again with .save(path) or '{command}'"
        )
    return data
