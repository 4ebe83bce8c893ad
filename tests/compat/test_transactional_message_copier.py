"""Kafka's own TransactionalMessageCopier copies exactly once, in order, while all parts die.

As Kafka's system tests have it: copiers with transactional ids of their own, a third of whose
transactions they abort, each with a partition of its own or all of them as one group. A copier ends
by itself once it has copied what was there when it started.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from perf.peers import java, kafka
from tests.cluster.faults.targets import Cluster
from tests.support.cluster_view import View
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until
from tests.transactions.load import positions, read_committed

from .whole_cluster import PATIENCE, Output, create, running

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(900)]

COPIERS = 3
RECORDS = 6_000
"""Records in each partition for each fault."""
_TRANSACTION = 20
_TIMEOUT_MS = 30_000
_GROUP = "copiers"
_TOPICS = ("source", "target")
_MAIN = "org.apache.kafka.tools.TransactionalMessageCopier"
_FORMS: dict[str, tuple[int, tuple[str, ...]]] = {
    "a partition each": (COPIERS, ()),
    "a group": (2 * COPIERS, ("--group-mode", "--use-group-metadata")),
}
"""How many partitions there are, and how copiers are told."""


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers."""
    skip_because_of(kafka.missing())
    with running(request, tmp_path / "cluster") as started:
        yield started


class Source:
    """Sends numbers to each partition of a topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._topic = topic
        self._partitions = partitions
        self.sent: list[str] = []

    def send(self, count: int) -> None:
        """Send so many more, and wait until they are stored."""
        for number in range(len(self.sent), len(self.sent) + count):
            for partition in range(self._partitions):
                self._producer.produce(self._topic, str(number), partition=partition)
            self._producer.poll(0)
            self.sent.append(str(number))
        assert self._producer.flush(PATIENCE) == 0


class Reader:
    """Reads committed records while they are written: each partition has what the source has."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, source: Source) -> None:
        self._source = source
        self.found = [0] * partitions
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        self._consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(partitions)])

    def look(self) -> None:
        """Read what has come since; fail at a record that is not the next one."""
        while messages := self._consumer.consume(10_000, 0.2):
            for message in messages:
                error, index, value = message.error(), message.partition(), message.value()
                if error is not None:
                    assert error.retriable(), str(error)
                    continue
                assert index is not None
                assert value is not None
                expected = self._source.sent[self.found[index]]
                place = f"offset {message.offset()} of {index}"
                assert value.decode() == expected, f"{place}: {value!r} where {expected} comes next"
                self.found[index] += 1

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()


class Copiers:
    """Several of Kafka's copiers; those that are killed are started anew."""

    def __init__(self, bootstrap: str, arguments: Sequence[str], stack: ExitStack) -> None:
        self._common = ("--broker-list", bootstrap, "--consumer-group", _GROUP, *arguments)
        self._stack = stack
        self._running: list[Output | None] = [None] * COPIERS

    def start(self) -> None:
        """Start those that do not run."""
        for number, one in enumerate(self._running):
            if one is None:
                self._start(number)

    def _start(self, number: int) -> None:
        arguments = [
            *("--input-topic", "source", "--input-partition", str(number)),
            *("--output-topic", "target", "--transactional-id", f"copier-{number}"),
            *("--transaction-size", str(_TRANSACTION), "--transaction-timeout", str(_TIMEOUT_MS)),
            *("--enable-random-aborts", *self._common),
        ]
        command = java.command(_MAIN, *arguments, options=java.SHORT_RUN_OPTIONS)
        self._running[number] = self._stack.enter_context(Output(command))

    def wait_busy(self) -> None:
        """Wait until each has copied some, and has more to copy."""
        for number, one in enumerate(self._running):
            assert one is not None
            wait_until(
                lambda one=one: any(said["totalProcessed"] for said in status(one)),  # type: ignore[misc]
                f"copier {number} to copy",
                PATIENCE,
                0.1,
            )
        assert all(status(one)[-1]["remaining"] for one in self._running if one is not None)

    def kill(self, *numbers: int) -> None:
        """End some at once, and start them anew."""
        for number in numbers:
            one = self._running[number]
            assert one is not None
            one.kill()
            one.ended()
        for number in numbers:
            self._start(number)

    def end(self, number: int) -> None:
        """Have one close what it has, in the middle of a transaction maybe; start it anew."""
        one = self._running[number]
        assert one is not None
        one.terminate()
        one.ended()
        assert any(said["stage"] == "ShutdownComplete" for said in status(one)), one.text()
        self._start(number)

    def are_done(self) -> bool:
        """Whether each has ended; fail unless it copied everything."""
        for number, one in enumerate(self._running):
            if one is not None and (code := one.code()) is not None:
                one.ended()
                assert code == 0, f"copier {number} ended with {code}\n{one.text()}"
                said = status(one)[-1]
                assert (said["stage"], said["remaining"] <= 0) == ("ShutdownComplete", True), said
                self._running[number] = None
        return not any(self._running)

    def text(self) -> str:
        """What those that run said last."""
        return "\n".join(one.text() for one in self._running if one is not None)


def status(copier: Output) -> list[dict[str, Any]]:
    """What a copier told of itself."""
    return [json.loads(line) for line in list(copier.lines) if line.startswith('{"transactionalId')]


class Trial:
    """Records in ``source``, which copiers bring to ``target``, and a reader of that."""

    def __init__(
        self, whole: Cluster, partitions: int, arguments: Sequence[str], stack: ExitStack
    ) -> None:
        self._whole = whole
        self._partitions = partitions
        for topic in _TOPICS:
            create(whole, topic, partitions)
        self._source = Source(whole.bootstrap, "source", partitions)
        self._reader = Reader(whole.bootstrap, "target", partitions, self._source)
        stack.callback(self._reader.close)
        self.copiers = Copiers(whole.bootstrap, arguments, stack)

    def copy(self, fault: Callable[[], object]) -> None:
        """Have some more copied, with a fault meanwhile, and wait until all of it is there."""
        self._source.send(RECORDS)
        self.copiers.start()
        self.copiers.wait_busy()
        fault()
        try:
            wait_until(self._is_done, "the copiers to end", 2 * PATIENCE, 0.1)
        except AssertionError as error:
            text = f"{error}\nread: {self._reader.found}\n{self.copiers.text()}"
            raise AssertionError(text) from None
        wait_until(self._is_read, f"{len(self._source.sent)} copies", PATIENCE)
        print(f"{time.monotonic():.1f} copied: {self._reader.found}")

    def _is_done(self) -> bool:
        self._reader.look()
        return self.copiers.are_done()

    def _is_read(self) -> bool:
        self._reader.look()
        return self._reader.found == [len(self._source.sent)] * self._partitions

    def be_without(self, node: int, *, kill: bool) -> None:
        """Kill or stop a broker, and start it anew some time later."""
        broker = self._whole.brokers[node]
        if kill:
            broker.kill()
        else:
            broker.stop()
        time.sleep(6)
        broker.start()
        view = View(self._whole.brokers)
        wait_until(lambda: view.are_whole(_TOPICS, self._partitions), "replicas in sync", PATIENCE)

    def kill_most(self, node: int) -> None:
        """Kill a broker and all copiers, and start them anew."""
        self._whole.brokers[node].kill()
        self.copiers.kill(*range(COPIERS))
        self._whole.brokers[node].start()

    def audit(self) -> None:
        """Fail unless each record was copied once, in order, and is committed as read."""
        bootstrap, sent = self._whole.bootstrap, self._source.sent
        everywhere = range(self._partitions)
        stored = read_committed(bootstrap, "target", everywhere)
        found = {index: [record.value for record in records] for index, records in stored.items()}
        assert found == dict.fromkeys(everywhere, sent)
        (committed,) = positions(bootstrap, [_GROUP], "source").values()
        assert committed == dict.fromkeys(everywhere, len(sent))


@pytest.mark.parametrize("form", _FORMS)
def test_records_are_copied_exactly_once_and_in_order(whole: Cluster, form: str) -> None:
    with ExitStack() as stack:
        trial = Trial(whole, *_FORMS[form], stack)
        copiers = trial.copiers
        trial.copy(lambda: copiers.kill(0))
        trial.copy(lambda: copiers.end(1))
        for node in list(whole.brokers):
            trial.copy(lambda node=node: trial.be_without(node, kill=True))  # type: ignore[misc]
        trial.copy(lambda: trial.be_without(1, kill=False))
        trial.copy(lambda: trial.kill_most(2))
        trial.audit()
