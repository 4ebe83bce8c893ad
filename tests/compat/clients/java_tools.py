"""Kafka's own tools, in Java."""

import itertools
import re

from perf.peers import java, kafka
from tests.compat.members import Event, Member, Partitions
from tests.compat.members.script import HEARTBEAT_MS, SESSION_TIMEOUT_MS

from .base import ClientError
from .confluent import Confluent

_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_CONSUMED = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t")
_numbers = itertools.count()


class JavaTools:
    """Lends the console consumer as a group member; ``test_java_tools`` has all the other tools."""

    name = "java"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here. Fetches Kafka's jars at first use."""
        return kafka.missing()

    def close(self) -> None:
        """Nothing outlives an operation."""

    def member(self, topic: str, group: str) -> Member:
        client_id = f"java-{next(_numbers)}"
        settings = {
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "50",
            "session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "heartbeat.interval.ms": str(HEARTBEAT_MS),
        }
        arguments = ["--bootstrap-server", self._bootstrap, "--topic", topic, "--group", group]
        for key, value in settings.items():
            arguments += ["--command-property", f"{key}={value}"]
        for column in ("partition", "offset"):
            arguments += ["--formatter-property", f"print.{column}=true"]
        command = java.command(_CONSUMER, *arguments, options=java.SHORT_RUN_OPTIONS)
        return _ObservedMember(command, self._bootstrap, group, client_id)


class _ObservedMember(Member):
    """The console consumer does not tell its assignment: the coordinator is asked for it."""

    def __init__(self, command: list[str], bootstrap: str, group: str, client_id: str) -> None:
        super().__init__(command, _parse)
        self._observer = Confluent(bootstrap)
        self._group = group
        self._client_id = client_id

    @property
    def assigned(self) -> Partitions:
        """What the coordinator says that the member owns."""
        try:
            members = dict(self._observer.describe_group(self._group).members)
        except ClientError as error:
            if not error.code.retriable:
                raise
            return frozenset()
        return members.get(self._client_id, frozenset())


def _parse(line: str) -> Event | None:
    consumed = _CONSUMED.match(line)
    return consumed and Event(consumed=(int(consumed[1]), int(consumed[2])))
