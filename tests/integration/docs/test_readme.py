"""The README's commands and programs, one after the other, in a fresh directory."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.readiness import answers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

README = (Path(__file__).parents[3] / "README.md").read_text()
LOG = "/var/log/dpkg.log"
LINES = 50
FOREVER_S = 8.0
"""For how long something runs that never ends by itself."""


def blocks(section: str, language: str) -> str:
    """What a section of the README shows in a language."""
    text = README.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL))


class Reader:
    """Does what the README says, in a directory of its own, with a port of its own."""

    def __init__(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._directory = directory
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "QBUS_BOOTSTRAP": self.address,
        }
        (directory / "dpkg.log").write_text("".join(f"line {n}\n" for n in range(LINES)))

    def adapted(self, text: str) -> str:
        return text.replace("127.0.0.1:9092", self.address).replace(LOG, "dpkg.log")

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.adapted(part) for part in command],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> str:
        """Run to the end, which must be a good one; return what it printed."""
        with self.start(*command) as process:
            printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, printed
        return printed

    def watch(self, *command: str) -> str:
        """Run for a while, then press Ctrl-C; return what it printed."""
        with self.start(*command) as process:
            try:
                process.wait(FOREVER_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=30)
        return printed


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Somebody whose broker runs as the README starts it, but for the port."""
    made = Reader(tmp_path)
    (start,) = re.findall(r"^qbus (broker \S+ \S+)", blocks("Run it", "sh"), re.MULTILINE)
    with made.start("qbus", *start.split(), "--listen", "127.0.0.1:9092") as broker:
        port = int(made.address.rpartition(":")[2])
        wait_until(lambda: broker.poll() is not None or answers(port), "the broker")
        yield made
        broker.terminate()
        broker.communicate(timeout=30)
        assert broker.returncode == 0


@pytest.mark.timeout(120)
def test_the_readme_from_the_top(reader: Reader) -> None:
    produced = reader.run("bash", "-ec", blocks("Producer", "sh"))
    assert "Created topic logs with 3 partitions." in produced
    assert f"Produced {LINES} records" in produced
    reader.run("python", "-u", "-c", blocks("Producer", "python"))
    consume, describe = blocks("Consumer", "sh").splitlines()
    seen = reader.watch(*consume.split("#")[0].split()).splitlines()
    assert {*(f"line {n}" for n in range(1000)), "hello"} <= set(seen)
    described = reader.run("bash", "-ec", describe)
    assert described.startswith("readers  Empty, 0 members, lag 0")
    printed = reader.watch("python", "-u", "-c", blocks("Consumer", "python"))
    assert printed.count("b'") == 1 + LINES + 1000
