"""Members of share groups in clients that no one here wrote: Kafka's in Java, and librdkafka's."""

import itertools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import confluent_kafka

from perf.peers import java, kafka

from .clients.base import ClientError

_SOURCE = Path(__file__).parent / "java" / "ShareDriver.java"
_numbers = itertools.count()


class Taken(NamedTuple):
    """A record that a member was given, for the how many-th time."""

    partition: int
    offset: int
    value: str
    deliveries: int


class ShareMember(Protocol):
    """One member of a share group."""

    def poll(self, seconds: float = 0.5) -> list[Taken]:
        """What it is given within a time."""

    def acknowledge(self, kind: str, *offsets: int, partition: int = 0) -> None:
        """Say what became of records, by their offsets: ACCEPT, RELEASE, REJECT or RENEW."""

    def commit(self) -> dict[int, str]:
        """Send acknowledgements; the error of each partition, or NONE."""

    def leave(self) -> None:
        """Acknowledge what is due and leave."""


class ShareDriver:
    """The program that drives Kafka's ``KafkaShareConsumer`` and its admin client."""

    name = "java"

    def __init__(self, bootstrap: str) -> None:
        self._program = subprocess.Popen(
            java.command(str(_SOURCE), bootstrap, options=java.SHORT_RUN_OPTIONS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def missing() -> str | None:
        """Why it cannot run here."""
        return kafka.missing()

    def close(self) -> None:
        """End the program."""
        with self._program:
            self._program.terminate()

    def configure(self, group: str, settings: Mapping[str, str]) -> None:
        """Set a group's configuration."""
        self.ask("configure", group=group, settings=settings)

    def join(self, topic: str, group: str, *, explicit: bool = False, **settings: str) -> Any:
        """A new member. ``settings``: of the client, with underscores for dots."""
        name = f"member-{next(_numbers)}"
        given = {key.replace("_", "."): value for key, value in settings.items()}
        given["share.acknowledgement.mode"] = "explicit" if explicit else "implicit"
        self.ask("join", member=name, topic=topic, group=group, settings=given)
        return JavaMember(self, name)

    def ask(self, operation: str, **arguments: object) -> Any:
        """Have an operation carried out. Raises ClientError."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        question = {"operation": operation, "arguments": arguments}
        print(json.dumps(question), file=self._program.stdin, flush=True)
        line = self._program.stdout.readline()
        answer = json.loads(line)
        if "result" in answer:
            return answer["result"]
        raise ClientError(answer["code"], answer["message"])


class JavaMember:
    """A ``KafkaShareConsumer``."""

    def __init__(self, driver: ShareDriver, name: str) -> None:
        self._driver = driver
        self._name = name

    def poll(self, seconds: float = 0.5) -> list[Taken]:
        found = self._driver.ask("poll", member=self._name, ms=int(seconds * 1000))
        return [Taken(*one) for one in found]

    def acknowledge(self, kind: str, *offsets: int, partition: int = 0) -> None:
        self._driver.ask(
            "acknowledge", member=self._name, type=kind, partition=partition, offsets=offsets
        )

    def commit(self) -> dict[int, str]:
        outcome = self._driver.ask("commit", member=self._name)
        return {int(partition): error for partition, error in outcome.items()}

    def lock_ms(self) -> int:
        """How long records are locked, as the broker says."""
        lock: int = self._driver.ask("lock", member=self._name)
        return lock

    def leave(self) -> None:
        self._driver.ask("leave", member=self._name)


class ConfluentShare:
    """Makes members of librdkafka's, in Python."""

    name = "confluent"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @staticmethod
    def missing() -> str | None:
        """Why it cannot run here."""
        if not hasattr(confluent_kafka, "ShareConsumer"):
            return "this confluent-kafka has no ShareConsumer"
        return None

    def close(self) -> None:
        """Nothing outlives its members."""

    def join(self, topic: str, group: str, *, explicit: bool = False, **settings: str) -> Any:
        """A new member."""
        given = {key.replace("_", "."): value for key, value in settings.items()}
        return ConfluentMember(
            topic,
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit" if explicit else "implicit",
                "log_level": "2",
                **given,
            },
        )


class ConfluentMember:
    """A ``confluent_kafka.ShareConsumer``."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.ShareConsumer(dict(settings))
        self._consumer.subscribe([topic])

    def poll(self, seconds: float = 0.5) -> list[Taken]:
        found = []
        for message in self._consumer.poll(seconds):
            if error := message.error():
                raise ClientError(error.code(), error.str())
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            found.append(Taken(partition, offset, value.decode(), message.delivery_count() or 0))
        return found

    def acknowledge(self, kind: str, *offsets: int, partition: int = 0) -> None:
        known = getattr(confluent_kafka.AcknowledgeType, kind)
        for offset in offsets:
            self._consumer.acknowledge_offset(self._topic, partition, offset, known)

    def commit(self) -> dict[int, str]:
        outcome = self._consumer.commit_sync(30)
        return {
            place.partition: "NONE" if error is None else error.args[0].name()
            for place, error in outcome.items()
        }

    def leave(self) -> None:
        self._consumer.close()


def values(taken: Sequence[Taken]) -> list[str]:
    """The values of records."""
    return [one.value for one in taken]
