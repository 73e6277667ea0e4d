"""Files written whole or not at all, and saved results read back."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["read_saved", "replacing"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name in the folder of `path`; rename it to `path` if the block succeeds.

    Whatever stops the block, no half-written file is left, under either name.

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
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
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
