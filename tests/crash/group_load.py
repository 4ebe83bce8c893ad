"""A consumer group that reads and commits through faults, and the audit of what it was given."""

import threading
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.waiting import wait_until

_PATIENCE_S = 90.0


class GroupLoad:
    """Members of one group, from elsewhere, that share a topic and commit what they have read.

    Every record has to reach a member, in the order of its partition and without a gap. What was
    committed, by an answer without an error, must never be given to the group again.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, members: int = 2) -> None:
        self.given: dict[int, dict[int, bytes]] = {index: {} for index in range(partitions)}
        self.committed: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self.faults: list[str] = []
        self.commits = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(members)]

    def start(self) -> None:
        """Let the members join."""
        for thread in self._threads:
            thread.start()

    def finish(self, records: Mapping[int, list[tuple[int, bytes]]]) -> None:
        """Wait until the group has read and committed what the log holds; leave, and audit."""
        ends = {partition: len(found) for partition, found in records.items()}
        try:
            wait_until(
                lambda: self.faults or self.committed == ends,
                f"the group to commit {ends}",
                _PATIENCE_S,
            )
        finally:
            self.leave()
        assert not self.faults, f"{self.faults[:5]} of {len(self.faults)}"
        assert self.given == {partition: dict(found) for partition, found in records.items()}
        assert self._stored() == ends

    def leave(self) -> None:
        """Let the members leave the group."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _stored(self) -> dict[int, int]:
        """What the group has committed, as a newcomer is told."""
        reader = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "load"})
        wanted = [TopicPartition(self._topic, index) for index in self.given]
        stored = {one.partition: one.offset for one in reader.committed(wanted, 30)}
        reader.close()
        return stored

    def _run(self) -> None:
        try:
            _Member(self, self._bootstrap, self._topic).read_until(self._stop)
        except Exception as error:
            self.faults.append(f"a member has failed: {error!r}")

    # What members tell

    def on_assigned(self, partitions: list[int]) -> dict[int, int]:
        """The least offset that each partition may go on with."""
        with self._lock:
            return {partition: self.committed[partition] for partition in partitions}

    def on_given(self, partition: int, offset: int, value: bytes) -> None:
        """Take note of a record; it may have come before, but none is left out."""
        with self._lock:
            known = self.given[partition]
            if offset > len(known):
                self.faults.append(f"partition {partition}: {offset} follows {len(known) - 1}")
            elif known.setdefault(offset, value) != value:
                self.faults.append(f"partition {partition}: {offset} has changed to {value!r}")

    def on_begin(self, partition: int, offset: int, least: int) -> None:
        """Take note of the first record after an assignment."""
        if offset < least:
            self.faults.append(f"partition {partition}: {offset} came again, {least} was committed")

    def on_committed(self, partition: int, offset: int) -> None:
        """Take note of a commit without an error."""
        with self._lock:
            self.committed[partition] = max(offset, self.committed[partition])
            self.commits += 1


class _Member:
    def __init__(self, group: GroupLoad, bootstrap: str, topic: str) -> None:
        self._group = group
        self._topic = topic
        self._owned: set[int] = set()
        self._least: dict[int, int] = {}  # of partitions that have given nothing yet
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "load",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 100,
                "log_level": 2,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def read_until(self, stop: threading.Event) -> None:
        """Read, and commit after every batch; then leave the group."""
        try:
            while not stop.is_set():
                self._read()
        finally:
            self._consumer.close()

    def _read(self) -> None:
        ends: dict[int, int] = {}
        for message in self._consumer.consume(500, 0.2):
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() or partition not in self._owned:
                continue
            assert partition is not None
            assert offset is not None
            assert value is not None
            least = self._least.pop(partition, None)
            if least is not None:
                self._group.on_begin(partition, offset, least)
            self._group.on_given(partition, offset, value)
            ends[partition] = offset + 1
        if ends:
            self._commit(ends)

    def _commit(self, ends: Mapping[int, int]) -> None:
        positions = [TopicPartition(self._topic, index, end) for index, end in ends.items()]
        with suppress(KafkaException):  # no coordinator for now, or another generation
            for one in self._consumer.commit(offsets=positions, asynchronous=False) or ():
                if one.error is None:
                    self._group.on_committed(one.partition, one.offset)

    def _on_assign(self, _: Consumer, assigned: list[TopicPartition]) -> None:
        self._owned = {one.partition for one in assigned}
        self._least = self._group.on_assigned([*self._owned])

    def _on_revoke(self, _: Consumer, revoked: list[TopicPartition]) -> None:
        self._owned -= {one.partition for one in revoked}
