"""One broker for all of these tests, and the command as a user runs it: as a process."""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from qbus.cli import root
from tests.support.broker_process import BrokerProcess
from tests.support.child import child

_numbers = itertools.count()

# What librdkafka prints of clients of earlier tests whose brokers are gone.
_FOREIGN = re.compile(rb"^%\d\|\d+\.\d+\|.*\n", re.MULTILINE)


class Done(NamedTuple):
    """The outcome of a command."""

    code: int
    stdout: bytes
    stderr: bytes


class Qbus:
    """Runs `qbus` against one broker: in this process, since starting one takes most of the time.

    `start` gives it a process of its own, where signals and pipes matter.
    """

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "QBUS_BOOTSTRAP": bootstrap, "COLUMNS": "200"}

    def run(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Run a command to its end, whatever that is."""
        with (
            pytest.MonkeyPatch.context() as patch,
            redirected(0, stdin, patch),
            redirected(1, b"", patch) as stdout,
            redirected(2, b"", patch) as stderr,
        ):
            for name, value in self.environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                root.qbus.main(arguments, prog_name="qbus")
            assert isinstance(ended.value.code, int)
            return Done(ended.value.code, stdout(), _FOREIGN.sub(b"", stderr()))

    def __call__(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run a command that must succeed; return what it printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, done.stderr.decode()
        return done.stdout

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        """Run a command that must succeed; return the document that it printed."""
        return json.loads(self(*arguments, "--json", stdin=stdin))

    def failure(self, *arguments: str, stdin: bytes = b"", code: int = 1) -> str:
        """Run a command that must fail, with one line on stderr and nothing on stdout."""
        done = self.run(*arguments, stdin=stdin)
        error = done.stderr.decode()
        assert (done.code, done.stdout) == (code, b""), error
        assert error.startswith("qbus: ")
        assert error.count("\n") == 1, error
        return error.removeprefix("qbus: ").rstrip("\n")

    def start(
        self, *arguments: str, **options: Any
    ) -> "AbstractContextManager[subprocess.Popen[bytes]]":
        """Start a command that goes on; leaving the context ends it."""
        command = [sys.executable, "-m", "qbus", *arguments]
        return child(command, env=self.environment, **options)


@contextmanager
def redirected(
    descriptor: int, content: bytes, patch: pytest.MonkeyPatch
) -> Iterator[Callable[[], bytes]]:
    """Put a file that holds ``content`` in place of a standard stream; yield what reads it."""
    name = ("stdin", "stdout", "stderr")[descriptor]
    saved = os.dup(descriptor)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        os.dup2(file.fileno(), descriptor)
        mode = "r" if descriptor == 0 else "w"
        stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        patch.setattr(sys, name, stream)

        def read() -> bytes:
            stream.flush()
            return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)

        try:
            yield read
        finally:
            stream.close()
            os.dup2(saved, descriptor)
            os.close(saved)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data_dir, "-o", "group.initial.rebalance.delay.ms=0") as running:
        yield running


@pytest.fixture
def qbus(broker: BrokerProcess) -> Qbus:
    return Qbus(broker.bootstrap)


@pytest.fixture
def topic(qbus: Qbus) -> str:
    """An empty topic of three partitions."""
    name = f"topic-{next(_numbers)}"
    qbus("topic", "create", name, "--partitions", "3")
    return name


@pytest.fixture
def group() -> str:
    """A name that no other test uses."""
    return f"group-{next(_numbers)}"
