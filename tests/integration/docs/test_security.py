"""The ten minutes of docs/security.md, as somebody types them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import zookeeper_process
from tests.support.ports import free_port
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()
REFUSED = re.compile(r"#.*(refused|denied)")
SOON_S = 5.0


def steps() -> list[str]:
    """Each command of the first section, comments included."""
    section = PAGE.split("\n## From nothing to a secured cluster in ten minutes\n")[1]
    blocks = re.findall(r"```sh\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


class Reader:
    """Types commands in a directory of its own, with a port and contexts of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("QBUS_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }

    def start(self, line: str) -> subprocess.Popen[str]:
        """Start what goes on."""
        return subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, line: str) -> str:
        """Run a command until it ends as the page says: rules count within a second."""
        is_refused = bool(REFUSED.search(line))
        deadline = time.monotonic() + SOON_S
        while True:
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if (done.returncode != 0) is is_refused:
                return done.stdout + done.stderr
            assert time.monotonic() < deadline, (line, done.stdout, done.stderr)
            time.sleep(0.2)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    skip_because_of(zookeeper_process.missing())
    made = Reader(tmp_path)
    up = steps()[0]
    assert up.startswith("qbus cluster up --secure")
    properties = tmp_path / "secure" / "client.properties"
    with made.start(f"{up} --base-port {made.port}") as cluster:
        wait_until(lambda: cluster.poll() is not None or properties.exists(), "the cluster", 60)
        try:
            assert cluster.poll() is None, cluster.stdout and cluster.stdout.read()
            yield made
        finally:
            cluster.send_signal(signal.SIGINT)
            cluster.communicate(timeout=60)
    assert cluster.returncode == 0


def test_ten_minutes(reader: Reader) -> None:
    said = {line: reader.type(line) for line in steps()[1:]}
    refusal, check = (text for line, text in said.items() if REFUSED.search(line))
    assert "TOPIC_AUTHORIZATION_FAILED" in refusal
    assert check.startswith("Denied: User:bob write topic orders")
    (consumed,) = (text for line, text in said.items() if line.startswith("qbus consume"))
    assert consumed.startswith("hello\n")
    (told,) = (text for line, text in said.items() if line.startswith("tail"))
    assert told.count("\n") == 3
    assert not any("battery" in text or "tr0ub4dor" in text for text in said.values())


def test_the_python_of_the_page_about_clients(reader: Reader) -> None:
    reader.type("qbus context use secure --command-config ./secure/client.properties")
    reader.type("qbus topic create orders")
    reader.type("qbus user add alice --password 'pass word' --save alice.properties")
    reader.type("qbus acl add --principal User:alice --producer --topic orders")
    reader.environment["ALICE_PASSWORD"] = "pass word"
    page = (ROOT / "docs" / "security-clients.md").read_text()
    blocks = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    programs = [block for block in blocks if "Producer" in block]
    assert len(programs) == 4, "two ways of the SDK, and two other clients"
    for number, program in enumerate(programs):
        file = reader.directory / f"program_{number}.py"
        file.write_text(program.replace("127.0.0.1:9092", f"127.0.0.1:{reader.port}"))
        reader.type(f"python {file}")
    assert reader.type("qbus consume orders --exit-at-end").count("hello\n") == len(programs)
