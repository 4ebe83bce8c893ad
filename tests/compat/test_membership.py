"""Finer points of groups, through librdkafka: static members, cooperative rebalancing, fencing."""

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from qbus.errors import ErrorCode
from tests.support.waiting import wait_until

from .clients import Client, ClientError
from .members.script import HEARTBEAT_MS
from .records import numbered

pytestmark = pytest.mark.compat

PARTITIONS = 4
Join = Callable[..., "Consumer"]


class Consumer:
    """A consumer that keeps what it is told of its assignment."""

    def __init__(self, bootstrap: str, topic: str, **settings: object) -> None:
        self.revoked: list[set[int]] = []
        self.errors: list[int] = []
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._on_revoke)

    def poll(self) -> Any:
        """Serve the consumer for a moment; return a record if there is one."""
        message = self._consumer.poll(0.05)
        error = message and message.error()
        if error:
            self.errors.append(error.code())
            return None
        return message

    def assigned(self) -> set[int]:
        """Return the partitions that are assigned, after serving the consumer."""
        self.poll()
        return {place.partition for place in self._consumer.assignment()}

    def close(self) -> None:
        """Leave, unless the member is static."""
        self._consumer.close()

    def _on_revoke(self, _: object, places: list[Any]) -> None:
        self.revoked.append({place.partition for place in places})


@pytest.fixture
def join(bootstrap: str, name: str, reference: Client) -> Iterator[Join]:
    """Return a function that adds a consumer to the test's group."""
    reference.create_topic(name, PARTITIONS)
    consumers = []

    def join_group(**settings: object) -> Consumer:
        consumers.append(Consumer(bootstrap, name, **settings))
        return consumers[-1]

    yield join_group
    for consumer in consumers:
        consumer.close()


def wait_shared(first: Consumer, second: Consumer) -> None:
    """Wait until both own two partitions."""
    wait_until(lambda: (len(first.assigned()), len(second.assigned())) == (2, 2), "two and two")


def test_a_static_member_comes_back_to_its_partitions(join: Join) -> None:
    first = join()
    static = join(group_instance_id="static")
    wait_shared(first, static)
    before, revoked = static.assigned(), len(first.revoked)
    static.close()
    again = join(group_instance_id="static")
    wait_until(lambda: (first.assigned(), again.assigned())[1] == before, "the same partitions")
    assert len(first.revoked) == revoked


def test_a_static_member_fences_its_double(join: Join) -> None:
    first = join(group_instance_id="static")
    wait_until(lambda: len(first.assigned()) == PARTITIONS, "all partitions")
    second = join(group_instance_id="static")
    wait_until(lambda: (first.poll(), len(second.assigned()))[1] == PARTITIONS, "all partitions")
    wait_until(lambda: first.poll() or first.errors, "an error of the first")
    assert first.errors[0] in {ck.KafkaError._FATAL, ErrorCode.FENCED_INSTANCE_ID}


def test_cooperative_members_keep_what_they_can(join: Join) -> None:
    sticky = {"partition_assignment_strategy": "cooperative-sticky"}
    first = join(**sticky)
    wait_until(lambda: len(first.assigned()) == PARTITIONS, "all partitions")
    second = join(**sticky)
    wait_shared(first, second)
    assert first.revoked == [second.assigned()]


def test_commit_metadata_comes_back(bootstrap: str, topic: str) -> None:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    place = ck.TopicPartition(topic, 0, 7, "what I did: ünicode")
    consumer.commit(offsets=[place], asynchronous=False)
    (found,) = consumer.committed([ck.TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    assert (found.offset, found.metadata) == (7, "what I did: ünicode")


def test_an_active_group_takes_no_commits_from_outside(
    join: Join, name: str, reference: Client
) -> None:
    member = join()
    wait_until(lambda: len(member.assigned()) == PARTITIONS, "all partitions")
    with pytest.raises(ClientError) as refusal:
        reference.commit(name, 0, name, 3)
    assert refusal.value.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_without_a_protocol_in_common_are_refused(join: Join) -> None:
    first = join(partition_assignment_strategy="range")
    wait_until(lambda: len(first.assigned()) == PARTITIONS, "all partitions")
    second = join(partition_assignment_strategy="cooperative-sticky")
    wait_until(lambda: second.poll() or second.errors, "an error")
    assert second.errors[0] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_session_outside_of_the_brokers_bounds_is_refused(join: Join) -> None:
    member = join(session_timeout_ms=500)
    wait_until(lambda: member.poll() or member.errors, "an error")
    assert member.errors[0] == ErrorCode.INVALID_SESSION_TIMEOUT


def test_an_unknown_topic_is_an_error_for_a_consumer(
    bootstrap: str, name: str, reference: Client
) -> None:
    consumer = Consumer(bootstrap, name, allow_auto_create_topics=False)
    wait_until(lambda: consumer.poll() or consumer.errors, "an error")
    consumer.close()
    assert consumer.errors[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert name not in reference.topics()


def test_a_paused_partition_waits(bootstrap: str, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(3))
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    place = ck.TopicPartition(topic, 0, 0)
    consumer.assign([place])
    consumer.pause([place])
    assert consumer.poll(0.5) is None
    consumer.resume([place])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.offset() == 0
