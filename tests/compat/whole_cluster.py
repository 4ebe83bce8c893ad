"""Three brokers for the platforms that stand on Kafka: Streams, Connect, schema registries."""

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from perf.peers import kafka
from perf.peers.maven import Artifact, Unavailable, fetched
from tests.cluster.faults.targets import Cluster, cluster
from tests.support import zookeeper_process
from tests.support.cluster_view import View
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

PATIENCE = 120.0


def jars_or_skip(folder: str, artifacts: Sequence[Artifact]) -> Path:
    """The directory of jars of that name; skip the test where they cannot be had."""
    try:
        return fetched(folder, artifacts)
    except Unavailable as reason:
        pytest.skip(str(reason))


@contextmanager
def running(
    request: pytest.FixtureRequest, directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Run three brokers of the target that ``--target`` names, with settings of their own."""
    target = request.config.getoption("--target")
    skip_because_of(kafka.missing() if target == "kafka" else zookeeper_process.missing())
    with cluster(target, directory, settings=settings) as whole:
        view = View(whole.brokers)
        wait_until(view.are_all_there, "all brokers", PATIENCE)
        yield whole


def create(whole: Cluster, topic: str, partitions: int = 2) -> None:
    """Create a topic that stays available without one of its replicas."""
    admin = AdminClient({"bootstrap.servers": whole.bootstrap})
    new = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(60)
    view = View(whole.brokers)
    wait_until(lambda: view.are_whole([topic], partitions), f"replicas of {topic}", PATIENCE)


def kill_leader(whole: Cluster, topic: str) -> int:
    """Kill the leader of a topic's first partition, and return who that was."""
    leader = View(whole.brokers).leader(topic)
    whole.brokers[leader].kill()
    return leader


class Output:
    """A process that is started on entry and killed on exit, and the lines that it prints."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._env = env
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self._env,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        """Let it die before its time."""
        self._process.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def code(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.poll()

    def ended(self, timeout: float = PATIENCE) -> int:
        """Wait until it ends by itself and has told everything; its exit code."""
        code = self._process.wait(timeout)
        self._reader.join()
        return code

    def wait_for(self, line: str, timeout: float = PATIENCE, *, anywhere: bool = False) -> None:
        """Wait until it has printed a line that begins so, or has that ``anywhere``."""

        def is_there() -> bool:
            assert self._process.poll() is None, self.text()
            return any(one.startswith(line) or (anywhere and line in one) for one in self.lines)

        try:
            wait_until(is_there, line, timeout, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def text(self) -> str:
        """The end of what it printed."""
        return "\n".join(self.lines[-60:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
