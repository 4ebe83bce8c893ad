"""The status as a document: bounded, and the worst first."""

import json

from qbus.clients.mirror.status import (
    GroupsStatus,
    LinkStatus,
    PartitionState,
    PartitionStatus,
    Trouble,
    link_document,
)
from qbus.service.status import encode


def partition(index: int, end: int = 10, **more: object) -> PartitionStatus:
    return PartitionStatus(
        topic="orders",
        target_topic="a.orders",
        partition=index,
        state=PartitionState.COPYING,
        source_start=0,
        source_end=end,
        target_end=5,
        lag_bytes=100,
        lag_seconds=1.23456,
        **more,  # type: ignore[arg-type]
    )


def link(*partitions: PartitionStatus) -> LinkStatus:
    return LinkStatus(name="a->b", source="a", target="b", partitions=partitions)


def test_the_document_of_a_partition() -> None:
    (found,) = link_document(link(partition(3, trouble=Trouble.OVERTAKEN, error="e")))["partitions"]
    assert found == {
        "topic": "orders",
        "target_topic": "a.orders",
        "partition": 3,
        "state": "copying",
        "source_start": 0,
        "source_end": 10,
        "target_end": 5,
        "lag_records": 5,
        "lag_bytes": 100,
        "lag_seconds": 1.235,
        "trouble": "overtaken",
        "error": "e",
    }


def test_the_totals_are_of_all_and_the_worst_come_first() -> None:
    status = link(partition(0), partition(1, end=50), partition(2, trouble=Trouble.OVERTAKEN))
    document = link_document(status)
    assert [one["partition"] for one in document["partitions"]] == [2, 1, 0]
    totals = document["totals"]
    assert (totals["partitions"], totals["copying"], totals["troubled"]) == (3, 3, 1)
    assert (totals["lag_records"], totals["lag_bytes"], totals["lag_seconds"]) == (55, 300, 1.235)


def test_the_document_is_bounded_and_counts_what_is_left_out() -> None:
    status = link(*map(partition, range(1000)))
    document = link_document(status, max_bytes=10_000)
    assert len(encode({"all": document["partitions"]})) < 10_100
    assert len(document["partitions"]) + document["partitions_left_out"] == 1000
    assert document["totals"]["partitions"] == 1000


def test_long_errors_are_cut() -> None:
    status = LinkStatus(
        name="a->b", source="a", target="b", error="x" * 9999, groups=GroupsStatus(error="y" * 9999)
    )
    assert len(json.dumps(link_document(status))) < 2000


def test_unknown_lag_is_null() -> None:
    unknown = PartitionStatus(
        topic="t", target_topic="a.t", partition=0, state=PartitionState.WAITING
    )
    (found,) = link_document(link(unknown))["partitions"]
    assert (found["lag_records"], found["lag_bytes"], found["lag_seconds"]) == (None, None, None)


def test_lag_is_counted_from_what_the_source_still_has() -> None:
    status = PartitionStatus(
        topic="t",
        target_topic="a.t",
        partition=0,
        state=PartitionState.COPYING,
        source_start=30,
        source_end=50,
        target_end=10,
    )
    assert status.lag_records == 20
