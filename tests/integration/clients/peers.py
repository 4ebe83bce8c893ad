"""Members of a group by other people's clients, beside ours: they poll until they are closed."""

import shutil
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka

from perf.peers import java

HEARTBEAT_MS = 200
SESSION_MS = 6_000
_ROOT = Path(__file__).parents[3]


class Peer(ABC):
    """A member that shares in a topic's partitions, by one assignor."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""


class _Polling(Peer):
    """A client that has to be polled: by a thread of its own."""

    def __init__(self, consumer: Any, poll: Callable[[], Any]) -> None:
        self._consumer = consumer
        self._poll = poll
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            self._poll()
        self._consumer.close()


class Process(Peer):
    """A client in a process that leaves when it is told to end."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=_ROOT
        )

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()


def confluent(bootstrap: str, topic: str, assignor: str) -> Peer:
    """librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": assignor,
        }
    )
    consumer.subscribe([topic])
    return _Polling(consumer, lambda: consumer.poll(0.05))


_KAFKA_PYTHON = {
    "range": ("range", "RangePartitionAssignor"),
    "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
    "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
    "cooperative-sticky": ("cooperative_sticky", "CooperativeStickyAssignor"),
}


def kafka_python(bootstrap: str, topic: str, assignor: str) -> Peer:
    """kafka-python, away from our warnings, which it would trip over."""
    command = [sys.executable, "-m", "tests.compat.members.kafka_python", bootstrap]
    return Process([*command, topic, topic, *_KAFKA_PYTHON[assignor]])


_JAVA = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def java_consumer(bootstrap: str, topic: str, assignor: str) -> Peer:
    """Kafka's own consumer, in its console tool."""
    settings = {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{_JAVA[assignor]}",
    }
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", topic]
    for key, value in settings.items():
        arguments += ["--command-property", f"{key}={value}"]
    tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    return Process(java.command(tool, *arguments, options=java.SHORT_RUN_OPTIONS))


def missing_java() -> str | None:
    """Why Kafka's own consumer cannot run here."""
    if not shutil.which("java"):
        return "java is not installed"
    try:
        java.classpath()
    except java.Unavailable as reason:
        return str(reason)
    return None
