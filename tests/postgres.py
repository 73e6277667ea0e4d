"""A PostgreSQL server of its own for tests: a cluster in a temporary folder, on loopback."""

import contextlib
import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

__all__ = ["Absent", "copied", "server"]

TYPES = {
    pa.int32(): "integer", pa.int64(): "bigint", pa.float32(): "real", pa.string(): "text",
    pa.float64(): "double precision", pa.bool_(): "boolean", pa.date32(): "date",
    pa.large_string(): "text",
}  # fmt: skip


class Absent(Exception):
    """There is no PostgreSQL server to start here; the text says why."""


@contextlib.contextmanager
def server() -> Iterator[dict[str, object]]:
    """Start a server and give the arguments of a connection to it; stop it at the end."""
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    user = _unprivileged()
    # not below pytest's own folder, which an unprivileged user may not enter
    folder = tempfile.mkdtemp(prefix="soc_pymc_postgres_")
    try:
        if user:
            shutil.chown(folder, user)
        cluster, port = os.path.join(folder, "data"), _free_port()
        _run(user, initdb, "-D", cluster, "-A", "trust", "-U", "soc", "-E", "UTF8", "--no-sync")
        options = f"-h 127.0.0.1 -p {port} -k {folder} -F"
        log = os.path.join(folder, "log")
        _run(user, pg_ctl, "start", "-w", "-D", cluster, "-l", log, "-o", options)
        try:
            yield {"host": "127.0.0.1", "port": port, "user": "soc", "database": "postgres"}
        finally:
            _run(user, pg_ctl, "stop", "-w", "-m", "immediate", "-D", cluster)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    """A program of the server, which Debian keeps off the PATH."""
    paths = [shutil.which(name), *sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))[::-1]]
    if not any(paths):
        raise Absent(f"PostgreSQL's {name} is not installed")
    return next(filter(None, paths))


def _unprivileged() -> str | None:
    """Who runs the server, which refuses root; None for whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    users = {user.pw_name for user in pwd.getpwall()} & {"postgres", "nobody"}
    if not users or shutil.which("runuser") is None:
        raise Absent("PostgreSQL refuses to run as root: no runuser, or no user to run it as")
    return max(users)


def _run(user: str | None, *words: str) -> None:
    command = ["runuser", "-u", user, "--", *words] if user else list(words)
    # the server would inherit a pipe and keep it open, so its output goes to a file
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, stdout=output, stderr=output, cwd="/", timeout=120)
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{words[0]}: {output.read().decode(errors='replace')[-500:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def copied(connection: Any, table: pa.Table, name: str = "items") -> Any:
    """Copies an Arrow table into a temporary table of a PostgreSQL server."""
    columns = ", ".join(
        f'"{field.name}" ' + TYPES.get(field.type, str(field.type).replace("decimal128", "numeric"))
        for field in table.schema
    )
    names = ", ".join(f'"{column}"' for column in table.column_names)
    with connection.con.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {name} ({columns})")
        with cursor.copy(f"COPY {name} ({names}) FROM STDIN") as copy:
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                copy.write_row(row)
    return connection.table(name)
