"""Between polls and loops over single records: the position is behind the last one given."""

import pytest

from qbus.clients.consumer.assignment import Assignment
from qbus.clients.consumer.iteration import Iteration
from qbus.clients.types import PartitionRecords, TopicPartition
from qbus.records import ConsumerRecord, TimestampType

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def taken(partition: TopicPartition, *offsets: int) -> PartitionRecords:
    records = [
        ConsumerRecord(*partition, offset, 0, None, b"v", (), TimestampType.CREATE_TIME)
        for offset in offsets
    ]
    return PartitionRecords(*partition, records)


@pytest.fixture
def assignment() -> Assignment:
    """Two partitions, of which 0 to 9 were taken."""
    assignment = Assignment()
    assignment.replace([A, B])
    for state in assignment.states.values():
        state.position = 10
    return assignment


def test_the_position_is_behind_the_record_that_was_given_last(assignment: Assignment) -> None:
    positions = [
        (record.offset, assignment.position(A), assignment.position(B))
        for records in Iteration(assignment).over([taken(A, 3, 4, 8), taken(B, 9)])
        for record in records
    ]
    assert positions == [(3, 4, 9), (4, 5, 9), (8, 9, 9), (9, 10, 10)]
    assert assignment.position(A) == assignment.position(B) == 10


def test_a_loop_that_is_left_gives_back_what_it_had_not_given(assignment: Assignment) -> None:
    assignment.states[A].epoch = 7
    iteration = Iteration(assignment)
    assert next(next(iteration.over([taken(A, 3, 4), taken(B, 5)]))).offset == 3
    iteration.end()
    assert (assignment.states[A].position, assignment.states[B].position) == (4, 5)
    assert assignment.states[A].epoch == 7
    iteration.end()
    assert assignment.states[A].position == 4


def test_a_seek_ends_what_is_given_of_that_partition(assignment: Assignment) -> None:
    iteration = Iteration(assignment)
    given = iteration.over([taken(A, 3, 4), taken(B, 5, 6)])
    first = next(given)
    assert next(first).offset == 3
    assignment.seek(A, 100)
    assert list(first) == []
    assert [record.offset for record in next(given)] == [5, 6]
    iteration.end()
    assert assignment.position(A) == 100


def test_a_partition_that_goes_gives_no_more(assignment: Assignment) -> None:
    iteration = Iteration(assignment)
    given = iteration.over([taken(A, 3), taken(B, 5, 6)])
    assert [record.offset for record in next(given)] == [3]
    assignment.remove([B])
    assert [list(records) for records in given] == [[]]
    iteration.end()
    assert assignment.position(B) is None


def test_what_is_no_longer_assigned_is_not_given(assignment: Assignment) -> None:
    assignment.remove([A])
    assert list(Iteration(assignment).over([taken(A, 3)])) == []


def test_a_partition_that_came_back_is_not_the_one_that_went(assignment: Assignment) -> None:
    iteration = Iteration(assignment)
    next(iteration.over([taken(A, 3, 4)]))
    assignment.replace([A])
    assignment.states[A].position = 50
    iteration.end()
    assert assignment.states[A].position == 50
