"""What polls take: from one partition after the other, and from none if that fails."""

from typing import Any, cast

import pytest

from qbus.clients.consumer.answers import Answers
from qbus.clients.consumer.assignment import Assignment
from qbus.clients.consumer.fetched import Fetched
from qbus.clients.consumer.taking import Taking
from qbus.clients.types import TopicPartition
from qbus.records import build_batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def assignment() -> Assignment:
    """Two partitions with five records each."""
    assignment = Assignment()
    assignment.replace([A, B])
    data = memoryview(bytes(build_batch([(None, b"v", (), 0)] * 5)))
    for partition, state in assignment.states.items():
        state.position = 0
        state.fetched.append(Fetched(partition, 0, data, check_crcs=True))
    return assignment


@pytest.fixture
def taking(assignment: Assignment) -> Taking:
    return Taking(assignment, Answers(cast("Any", None), assignment, cast("Any", None)))


def taken(taking: Taking, limit: int) -> list[tuple[int, list[int]]]:
    polled = taking.records(limit)
    return [(each.partition, [record.offset for record in each]) for each in polled]


def test_partitions_take_turns(taking: Taking) -> None:
    assert taken(taking, 3) == [(0, [0, 1, 2])]
    assert taken(taking, 4) == [(1, [0, 1, 2, 3])]
    assert taken(taking, 100) == [(0, [3, 4]), (1, [4])]
    assert taken(taking, 100) == []


def test_a_poll_that_fails_takes_nothing(
    taking: Taking, assignment: Assignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_limit: int) -> None:
        raise MemoryError

    monkeypatch.setattr(assignment.states[B].fetched[0], "take", fail)
    with pytest.raises(MemoryError):
        taking.records(100)
    for state in assignment.states.values():
        assert (state.position, state.epoch, list(state.fetched)) == (0, -1, [])
