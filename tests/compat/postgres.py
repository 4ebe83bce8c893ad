"""A PostgreSQL server of a test's own, with logical replication."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import wait_until

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "fsync": "off",  # only processes die here
    "shared_buffers": "16MB",
}


_PROGRAMS = ("initdb", "postgres", "psql", "pg_isready")


def _bin() -> Path | None:
    """The directory with all of the server's programs; of Debian's the newest."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep)]
    return next(
        (place for place in [*debian, *path] if all((place / one).exists() for one in _PROGRAMS)),
        None,
    )


def missing() -> str | None:
    """Why no server can run here, or None."""
    return None if _bin() else "PostgreSQL is not installed"


class Postgres:
    """A running server; its user is ``postgres``, without a password."""

    def __init__(self, programs: Path, port: int) -> None:
        self.port = port
        self._programs = programs

    def run(self, statements: str) -> list[str]:
        """Carry out statements, each in a transaction of its own; the rows that they return."""
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", "postgres")
        done = subprocess.run(
            [str(self._programs / "psql"), *where, "-qtAX", "-v", "ON_ERROR_STOP=1"],
            input=statements,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@contextmanager
def running() -> Iterator[Postgres]:
    """Run a server over a new directory, and remove that at the end."""
    programs = _bin()
    assert programs is not None
    owner = _owner()
    directory = Path(tempfile.mkdtemp(prefix="qbus-postgres-"))
    try:
        if owner is not None:
            shutil.chown(directory, owner)
        data, port = directory / "data", free_port()
        _run(programs / "initdb", "-D", str(data), "-U", "postgres", "-A", "trust", user=owner)
        options = [word for pair in _SETTINGS.items() for word in ("-c", "=".join(pair))]
        where = ("-D", str(data), "-p", str(port), "-k", str(directory))
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen(
                [str(programs / "postgres"), *where, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                user=owner,
            )
        try:
            ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]

            def answers() -> bool:
                assert server.poll() is None, (directory / "log").read_text(errors="replace")
                return subprocess.run(ready, check=False).returncode == 0

            wait_until(answers, "PostgreSQL", 60)
            yield Postgres(programs, port)
        finally:
            server.send_signal(signal.SIGQUIT)  # which waits for no client
            server.wait(30)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _owner() -> str | None:
    """The user that the server runs as: it refuses to be root's."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _run(*command: str | Path, user: str | None) -> None:
    words: Sequence[str] = [str(word) for word in command]
    subprocess.run(words, check=True, capture_output=True, timeout=120, user=user, cwd="/")
