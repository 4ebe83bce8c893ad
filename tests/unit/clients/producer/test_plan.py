"""What is sent together, and when the next turn is due."""

from types import SimpleNamespace
from typing import Any

import pytest

from qbus.clients.net.metadata import ClusterMetadata
from qbus.clients.producer.accumulator import Accumulator
from qbus.clients.producer.options import ProducerOptions
from qbus.clients.producer.plan import Plan, Planner
from qbus.clock import ManualClock
from qbus.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

pytestmark = pytest.mark.sources  # connections that are none

LINGER = 0.010
LEADERS = (1, 1, 1, 2)


class Bench:
    """A planner with connections to its two brokers. Times are in milliseconds from the start."""

    def __init__(self) -> None:
        self.options = ProducerOptions(
            linger=LINGER, batch_bytes=100, is_idempotent=False, acks=1, max_in_flight=5
        )
        self.clock = ManualClock()
        self.start = self.clock.monotonic()
        self.accumulator = Accumulator(self.options, self.clock)
        self.metadata = ClusterMetadata()
        self.metadata.update(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=n, host="b", port=n) for n in (1, 2)],
                topics=[
                    MetadataResponseTopic(
                        name=name,
                        partitions=[
                            MetadataResponsePartition(partition_index=index, leader_id=leader)
                            for index, leader in enumerate(LEADERS)
                        ],
                    )
                    for name in ("t", "u")
                ],
            )
        )
        self.planner = Planner(self.accumulator, self.metadata, self.options)

    def add(self, at: float, partition: int, size: int = 10, topic: str = "t") -> None:
        self.go_to(at)
        self.accumulator.add(self.metadata.topics[topic], bytes(size), partition=partition)

    def go_to(self, at: float) -> None:
        self.clock.advance(self.start + at / 1000 - self.clock.monotonic())

    def plan(self, at: float) -> Plan:
        self.go_to(at)
        return self.planner.plan(self.clock.monotonic())

    def connect(self) -> None:
        for partition in (0, 3):
            self.add(0, partition)
        for node in self.plan(11).to_connect:
            address = self.planner.address(node)
            assert address is not None
            connection: Any = SimpleNamespace(is_open=True)
            node.connected(connection, address)
        assert sorted(map(sorted, sent(self.plan(11)))) == [[0], [3]]


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.connect()
    return made


def sent(plan: Plan) -> list[list[int]]:
    """The partitions in each request."""
    return [[batch.partition.partition for batch in batches] for _, _, batches in plan.requests]


def test_nothing_is_sent_before_it_has_lingered(bench: Bench) -> None:
    bench.add(20, 0)
    bench.add(26, 1)
    plan = bench.plan(29)
    assert sent(plan) == []
    assert plan.pause == pytest.approx(0.001)


def test_what_has_lingered_for_half_its_time_goes_along(bench: Bench) -> None:
    bench.add(20, 0)
    bench.add(24, 1)
    bench.add(26, 2)
    plan = bench.plan(30)
    assert sent(plan) == [[0, 1]]
    assert plan.pause == pytest.approx(0.006), "for the third"
    assert sent(bench.plan(36)) == [[2]]


def test_nothing_goes_along_to_another_broker(bench: Bench) -> None:
    bench.add(20, 0)
    bench.add(21, 3)
    plan = bench.plan(30)
    assert sent(plan) == [[0]]
    assert plan.pause == pytest.approx(0.001)


def test_nothing_goes_along_to_a_leader_that_is_not_trusted(bench: Bench) -> None:
    bench.add(20, 0, topic="u")
    bench.add(21, 1)
    bench.metadata.forget(["t"])
    plan = bench.plan(30)
    assert (sent(plan), plan.unknown_topics) == ([[0]], set())
    plan = bench.plan(31)
    assert (sent(plan), plan.unknown_topics) == ([], {"t"})


def test_a_batch_that_is_begun_behind_a_full_one_is_sent_in_its_time(bench: Bench) -> None:
    bench.add(20, 0, 60)
    bench.add(20, 0, 60)
    plan = bench.plan(20)
    assert sent(plan) == [[0]]
    assert plan.pause == pytest.approx(LINGER)


def test_the_oldest_batches_go_first_where_not_all_fit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.clients.producer.plan.MAX_REQUEST_BYTES", 100)
    for at, partition in ((20, 2), (21, 0), (22, 1), (23, 2)):
        bench.add(at, partition, 60)
    plan = bench.plan(40)
    assert sent(plan) == [[2, 0], [1, 2]]


def test_the_accumulator_knows_when_the_next_turn_is(bench: Bench) -> None:
    bench.add(20, 0)
    bench.plan(24)
    assert bench.accumulator.turn_at - bench.start == pytest.approx(0.030)
    bench.plan(30)
    assert bench.accumulator.turn_at - bench.start == pytest.approx(1.030), "there is nothing"


def test_a_broker_with_all_its_requests_in_flight_is_not_asked_again_and_again(
    bench: Bench,
) -> None:
    for number in range(bench.options.max_in_flight):
        bench.add(20 + 10 * number, 1)
        bench.plan(30 + 10 * number)
    bench.add(100, 0)
    plan = bench.plan(111)
    assert sent(plan) == []
    assert plan.pause > 0.5, "the answers wake the sender"
