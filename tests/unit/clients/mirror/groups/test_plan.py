"""A group gets its offsets at the target: those of the source, but none beyond the data."""

from uuid import UUID

import pytest

from qbus.clients import OffsetAndMetadata, TopicPartition
from qbus.clients.mirror.groups.plan import counterparts, plan, translate
from qbus.clients.mirror.provenance import Provenance
from qbus.clients.mirror.routes import Topic

HERE = TopicPartition("a.orders", 0)


def offsets(**of: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(name, 0): OffsetAndMetadata(offset) for name, offset in of.items()}


@pytest.mark.parametrize(
    ("committed", "present", "high_watermark", "expected"),
    [
        (50, None, 100, 50),
        (50, None, 30, 30),
        (50, 40, 100, 50),
        (50, 40, 45, 45),
        (50, 50, 100, None),
        (50, 60, 100, None),
        (50, 40, 40, None),
        (50, 40, 30, None),
        (0, None, 0, 0),
        (50, None, 0, 0),
    ],
)
def test_an_offset_goes_forward_and_never_beyond_the_data(
    committed: int, present: int | None, high_watermark: int, expected: int | None
) -> None:
    there = {} if present is None else {HERE: OffsetAndMetadata(present)}
    found = plan({HERE: OffsetAndMetadata(committed)}, there, {HERE: high_watermark})
    assert found == ({} if expected is None else {HERE: OffsetAndMetadata(expected)})


def test_it_goes_backwards_when_asked_and_still_not_beyond_the_data() -> None:
    committed, present = {HERE: OffsetAndMetadata(50)}, {HERE: OffsetAndMetadata(60)}
    back = plan(committed, present, {HERE: 100}, backwards=True)
    assert back == {HERE: OffsetAndMetadata(50)}
    assert plan(committed, present, {HERE: 20}, backwards=True) == {HERE: OffsetAndMetadata(20)}


def test_a_partition_without_a_high_watermark_gets_nothing() -> None:
    assert plan({HERE: OffsetAndMetadata(50)}, {}, {}) == {}


def test_topics_have_their_names_at_the_target_and_others_are_left_out() -> None:
    committed = offsets(orders=5, unknown=6) | offsets(**{"b.stock": 7})
    found = translate(committed, {"orders": "a.orders", "b.stock": "stock"})
    assert found == offsets(**{"a.orders": 5, "stock": 7})


def test_metadata_goes_along_and_the_sources_leader_epochs_do_not() -> None:
    committed = {TopicPartition("orders", 3): OffsetAndMetadata(5, "note", 9)}
    found = translate(committed, {"orders": "a.orders"})
    assert found == {TopicPartition("a.orders", 3): OffsetAndMetadata(5, "note", -1)}


ORDERS, STOCK, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)


def own(name: str, topic_id: UUID) -> Topic:
    return Topic(name, topic_id, 1, {})


def mirrored(name: str, idc: str, of: UUID, *path: str) -> Topic:
    config = Provenance(idc, str(of), path or (idc,)).config()
    return Topic(name, UUID(int=of.int + 100), 1, config)


def test_a_topic_is_its_copy_at_the_target() -> None:
    here, there = [own("orders", ORDERS)], [mirrored("a.orders", "a", ORDERS), own("orders", OTHER)]
    assert counterparts("a", here, "b", there) == {"orders": "a.orders"}


def test_the_counterpart_of_a_mirror_is_the_targets_own_topic() -> None:
    here, there = [mirrored("b.stock", "b", STOCK)], [own("stock", STOCK)]
    assert counterparts("a", here, "b", there) == {"b.stock": "stock"}


def test_mirrors_of_a_third_datacenter_correspond_over_any_path() -> None:
    here, there = [mirrored("c.x", "c", OTHER)], [mirrored("c.x", "c", OTHER, "c", "a")]
    assert counterparts("a", here, "b", there) == {"c.x": "c.x"}


def test_a_topic_created_again_is_another_one() -> None:
    here, there = [own("orders", OTHER)], [mirrored("a.orders", "a", ORDERS)]
    assert counterparts("a", here, "b", there) == {}


def test_a_name_that_only_looks_like_a_copys_is_none() -> None:
    assert counterparts("a", [own("orders", ORDERS)], "b", [own("a.orders", OTHER)]) == {}
