"""Every command x what may be wrong: within seconds a line on stderr names the thing and why."""

import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest

from qbus.cli.root import qbus as root
from tests.support.ports import free_port

from .conftest import Qbus

pytestmark = pytest.mark.integration

SOON_S = 5.0
START_S = 3.0
"""What starting a command may take here beside that."""

ARGUMENTS = {
    "topic create": ["t"],
    "topic list": [],
    "topic describe": ["t"],
    "topic alter": ["t", "--partitions", "5"],
    "topic config": ["t"],
    "topic delete": ["t"],
    "group list": [],
    "group describe": ["g"],
    "group reset-offsets": ["g", "--topic", "t", "--to", "earliest"],
    "group delete": ["g"],
    "produce": ["t"],
    "consume": ["t"],
    "reassign generate": ["t"],
    "reassign execute": ["PLAN"],
    "reassign verify": ["PLAN"],
    "reassign cancel": ["PLAN"],
    "reassign list": [],
    "delay list": ["t"],
    "delay show": ["t", "0", "0"],
    "delay cancel": ["t", "0", "0"],
    "delay reschedule": ["t", "0", "0", "--delay", "1m"],
    "queue create": ["t"],
    "queue add": ["t", "body"],
    "queue work": ["t", "--", "true"],
    "queue peek": ["t"],
    "queue stat": [],
    "queue describe": ["t"],
    "queue set": ["t", "--delivery-limit", "3"],
    "queue redrive": ["t"],
    "queue pause": ["t", "in"],
    "trace": ["t", "0", "0"],
    "log-dirs list": [],
    "log-dirs move": ["--broker", "1", "--to", "DATA", "t:0"],
    "elect-leaders": ["t"],
    "broker-config": ["--broker", "1"],
    "cluster status": [],
    "cluster wait": ["--timeout", "1s"],
    "agent run": ["--topic", "t", "--data-dir", "DATA", "LOG"],
    "transaction list": [],
    "transaction describe": ["t"],
    "transaction abort": ["--topic", "t", "--partition", "0", "--start-offset", "0"],
    "transaction find-hanging": [],
    "user add": ["u", "--password", "p"],
    "user list": [],
    "user remove": ["u"],
    "acl add": ["--principal", "User:u", "--operation", "read", "--topic", "t"],
    "acl list": [],
    "acl remove": ["--principal", "User:u"],
    "acl check": ["--principal", "User:u", "--operation", "read", "--topic", "t"],
    "quota show": [],
    "quota set": ["--user", "u", "producer_byte_rate=1000"],
    "quota remove": ["--user", "u"],
    "pipeline archive": ["--topic", "t", "--path", "DATA"],
    "pipeline stats": ["--topic", "t", "--to-path", "DATA"],
    "pipeline abuse": ["--topic", "t", "--to-path", "DATA", "--max-requests", "5"],
    "pipeline audit": ["--topic", "t", "--archive", "DATA"],
}
KEEP_ON = {"agent run", "cluster wait"}
"""Commands that go on until somebody stops them, and tell of trouble meanwhile."""
ON_SPARK = {name for name in ARGUMENTS if name.startswith("pipeline")}
"""They look for the brokers first, and start Spark then."""
OFFLINE = {"context use"}
"""They take a bootstrap, and do not go there."""
NAME_NO_TOPIC = {
    "topic create",
    "topic list",
    "group list",
    "group describe",
    "group delete",
    "produce",
    "queue create",  # as those to add to and to work on are when they are missing
    "queue add",
    "queue work",
    "queue stat",
    "transaction list",
    "transaction describe",
    "transaction find-hanging",
    "reassign list",
    "log-dirs list",
    "log-dirs move",  # which looks for the directory first
    "broker-config",
    "cluster status",
    "cluster wait",
    "user add",
    "user list",
    "user remove",
    "acl add",  # rules are about names, be there something or not
    "acl list",
    "acl remove",
    "acl check",
    "quota show",
    "quota set",
    "quota remove",
    "agent run",
    *ON_SPARK,
}


def with_bootstrap(command: click.Command, *path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from with_bootstrap(found, *path, name)
    elif any("--bootstrap" in parameter.opts for parameter in command.params):
        yield " ".join(path)


def test_the_table_has_every_command_that_talks_to_brokers() -> None:
    assert set(with_bootstrap(root)) - OFFLINE == set(ARGUMENTS)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """What stands for the words of the table that are written large."""
    plan = tmp_path / "plan.json"
    partition = '{"topic": "t", "partition": 0, "replicas": [1]}'
    plan.write_text(f'{{"version": 1, "partitions": [{partition}]}}')
    log = tmp_path / "a.log"
    log.write_text("line\n")
    return {"PLAN": str(plan), "LOG": str(log), "DATA": str(tmp_path / "data")}


def command_line(name: str, bootstrap: str, files: dict[str, str]) -> list[str]:
    words = [files.get(word, word) for word in ARGUMENTS[name]]
    return [*name.split(), "--bootstrap", bootstrap, *words]


class Refuses(BaseHTTPRequestHandler):
    """A web server that understands no word."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def web_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def first_line(qbus: Qbus, arguments: Sequence[str], pattern: str) -> None:
    """Fail unless a line on stderr with ``pattern`` comes soon."""
    with qbus.start(
        *arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        said: list[str] = []
        assert process.stderr is not None
        stderr = process.stderr

        def read() -> None:
            said.extend(iter(lambda: stderr.readline().decode(), ""))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        if process.stdin is not None and arguments[0] == "produce":
            process.stdin.write(b"line\n")
            process.stdin.flush()
        deadline = time.monotonic() + SOON_S + START_S
        while not any(re.search(pattern, line) for line in said):
            assert time.monotonic() < deadline, said or "not a word"
            time.sleep(0.05)


@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() - KEEP_ON))
def test_no_broker(qbus: Qbus, name: str, files: dict[str, str]) -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    error = qbus.failure(*command_line(name, bootstrap, files))
    assert error.startswith(f"cannot reach a broker at {bootstrap}: Connection refused.")


@pytest.mark.parametrize("name", sorted(KEEP_ON))
def test_no_broker_for_those_that_keep_on(qbus: Qbus, name: str, files: dict[str, str]) -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    pattern = rf"broker (at )?{bootstrap}: Connection refused(; trying again|\.)"
    first_line(qbus, command_line(name, bootstrap, files), pattern)


@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() - ON_SPARK))
def test_a_web_server(qbus: Qbus, web_server: str, name: str, files: dict[str, str]) -> None:
    # A web server may wait for more of what it takes for a long line.
    pattern = rf"{web_server}.*(speaks HTTP, not Kafka's protocol|does not answer)"
    first_line(qbus, command_line(name, web_server, files), pattern)


@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() - NAME_NO_TOPIC))
def test_a_topic_that_does_not_exist(qbus: Qbus, name: str, files: dict[str, str]) -> None:
    bootstrap = qbus.environment["QBUS_BOOTSTRAP"]
    first_line(qbus, command_line(name, bootstrap, files), r"\bt\b.*(not exist|UNKNOWN_TOPIC)")
