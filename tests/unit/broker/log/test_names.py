import pytest

from qbus.broker.log.names import (
    LOG_SUFFIX,
    TopicPartition,
    numbered,
    parse_numbered,
    parse_partition,
)


def test_files_are_named_for_their_first_offset_in_twenty_digits() -> None:
    assert numbered(1234, LOG_SUFFIX) == "00000000000000001234.log"
    assert parse_numbered("00000000000000001234.log") == (1234, ".log")
    assert parse_numbered("00000000000000000007.timeindex") == (7, ".timeindex")


@pytest.mark.parametrize(
    "name",
    ["1234.log", "00000000000000001234.log.deleted", "partition.metadata", "x" * 20 + ".log", ""],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert parse_numbered(name) is None


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("events-0", TopicPartition("events", 0)),
        ("a.b_c-d-17", TopicPartition("a.b_c-d", 17)),
        ("x-delete-3", TopicPartition("x-delete", 3)),
    ],
)
def test_a_directory_is_named_for_its_partition(name: str, partition: TopicPartition) -> None:
    assert parse_partition(name) == partition
    assert str(partition) == name


@pytest.mark.parametrize(
    "name",
    ["events", "events-", "events-01", "events-1x", "-3", "a/b-0", "..-x", "events-0.9f-delete"],
)
def test_other_directories_are_no_partitions(name: str) -> None:
    assert parse_partition(name) is None
