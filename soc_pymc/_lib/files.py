"""Files written whole or not at all."""

import errno
import hashlib
import os
import platform
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_target", "remove_stale", "replacing"]


_STALE_SECONDS = 86_400.0
_LONGEST = 150  # bytes of a name that is part of the temporary one


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name in the folder of `path`; rename it to `path` if the block succeeds.

    Whatever stops the block, no half-written file is left, under either name. What was written is
    on the disk before the file gets its name, so that this holds after a loss of power too. A
    process that is killed leaves a temporary file, which the next one to write `path` removes. A
    symbolic link stays, and the file that it names is replaced; the new file has the permissions of
    the old one.

    Parameters
    ----------
    path
        Name of the file to write.

    Yields
    ------
    pathlib.Path
        The temporary name.

    Raises
    ------
    OSError
        As `check_target` does, before anything is written, or if the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "out.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = check_target(path)
    remove_stale(target)
    temporary = _stem(target, f"{_host()}-{os.getpid()}.{secrets.token_hex(4)}.part")
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if os.name == "posix":
            _hold(handle)
            if target.exists():
                os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
        yield temporary
        os.fsync(handle)
        if os.name != "posix":  # where a file that is open cannot be renamed
            os.close(handle)
            handle = -1
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        if handle >= 0:
            os.close(handle)
        temporary.unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str]) -> Path:
    """Refuse a name that no file can be written to, so that long work is not done in vain.

    Parameters
    ----------
    path
        Name of the file that is to be written.

    Returns
    -------
    pathlib.Path
        The file itself, where `path` is a symbolic link.

    Raises
    ------
    OSError
        If it is a folder or a device, is write-protected, or its folder is not there or cannot be
        written to.

    Examples
    --------
    >>> import tempfile
    >>> check_target(Path(tempfile.mkdtemp()) / "new.nc").name
    'new.nc'
    """
    name, target = os.fspath(path), Path(os.path.realpath(path))
    folder = target.parent
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder is there: give the name of a file", name)
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "no ordinary file, so that it cannot be replaced", name)
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder}, make it first", name)
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file there is write-protected", name)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"the folder {folder} cannot be written to", name)
    return target


def remove_stale(target: Path) -> None:
    """Remove what killed processes left of a file: of those that are gone, or a day old.

    A process holds a lock on what it writes, which ends with the process: what is locked stays,
    whatever the clock says and wherever the process runs.

    Parameters
    ----------
    target
        Name of the file that was to be written.
    """
    target = Path(os.path.realpath(target))
    form = re.compile(re.escape(_stem(target, "").name) + r"(\w+)-(\d+)\.\w+\.part")
    for left in list(target.parent.glob(".*.part")):
        match = form.fullmatch(left.name)
        if not match:
            continue
        try:
            old = time.time() - left.stat().st_mtime > _STALE_SECONDS
            gone = match[1] == _host() and not _is_running(int(match[2]))
            if (old or gone) and not _is_held(left):
                left.unlink(missing_ok=True)
        except FileNotFoundError:  # its own process has just finished it
            continue


def _stem(target: Path, end: str) -> Path:
    """A hidden name beside the target, no longer than file systems allow."""
    name = target.name
    if len(os.fsencode(name)) > _LONGEST:
        name = name[:20] + hashlib.sha256(os.fsencode(name)).hexdigest()[:20]
    return target.parent / f".{name}.{end}"


def _hold(handle: int) -> bool:
    """Lock an open file for this process; whether no other holds it."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that knows no locks
        pass
    return True


def _is_held(path: Path) -> bool:
    """Whether a process that is alive writes this file."""
    if os.name != "posix":
        return False
    try:
        handle = os.open(path, os.O_RDWR)
    except PermissionError:  # another user's
        return True
    try:
        return not _hold(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Put a folder's names on the disk, where the system lets one open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot
            raise
    finally:
        os.close(handle)


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
