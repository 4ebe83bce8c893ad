"""Declarations as Python classes, and fields that a version lacks."""

import pytest

from qbus.errors import WireError
from qbus.wire import ZERO_UUID, Struct, decode, encode
from qbus.wire.declare import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int32,
    String,
    UInt16,
    UInt32,
    Uuid,
    field,
    versions,
)
from qbus.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from qbus.wire.messages.join_group import JoinGroupRequest
from qbus.wire.messages.metadata import MetadataRequest
from qbus.wire.messages.produce import PartitionProduceResponse, ProduceRequest


class Point(Struct):
    x: Int32 = field()
    y: Int32 = field("1+", default=-1, ignorable=False)


class Everything(Struct, flexible="2+"):
    flag: Bool = field()
    tiny: Int8 = field()
    port: UInt16 = field()
    mask: UInt32 = field()
    ratio: Float64 = field()
    name: String = field()
    note: String | None = field("1+", default="none", nullable="2+")
    raw: Bytes | None = field()
    id: Uuid = field()
    point: Point = field()
    maybe: Point | None = field(default=None)
    points: list[Point] = field()
    flags: list[Bool] = field()
    ids: list[Uuid] = field()
    blobs: list[Bytes] = field()
    old: Int32 = field("0-1")
    extra: Point = field("2+", tag=0, ignorable=False)


FULL = Everything(
    flag=True,
    tiny=-128,
    port=65535,
    mask=2**32 - 1,
    ratio=0.5,
    name="n",
    note=None,
    raw=b"r",
    id=bytes(range(16)),
    point=Point(x=1, y=2),
    maybe=Point(x=3, y=4),
    points=[Point(x=5, y=6), Point(x=7, y=8)],
    flags=[True, False],
    ids=[ZERO_UUID, b"\1" * 16],
    blobs=[b"", b"blob"],
    extra=Point(x=9),
)


class TestInstances:
    def test_have_the_zero_of_each_type_unless_told(self) -> None:
        thing = Everything()
        assert (thing.flag, thing.tiny, thing.ratio, thing.name) == (False, 0, 0.0, "")
        assert (thing.note, thing.raw, thing.id, thing.maybe) == ("none", b"", ZERO_UUID, None)
        assert thing.point == Point(x=0, y=-1)
        assert thing.points == []

    def test_do_not_share_what_can_change(self) -> None:
        first, second = Everything(), Everything()
        first.points.append(Point())
        first.point.x = 5
        assert second == Everything()

    def test_do_not_share_it_when_decoded_either(self) -> None:
        data = b"".join(encode(FetchResponse(), 4))
        first, second = (decode(FetchResponse, 4, data) for _ in range(2))
        first.node_endpoints.append(None)  # type: ignore[arg-type]
        assert second.node_endpoints == []

    def test_are_compared_by_value(self) -> None:
        assert Point(x=1) == Point(x=1)
        assert Point(x=1) != Point(x=2)
        assert Point() != PartitionProduceResponse()

    def test_are_not_hashable(self) -> None:
        with pytest.raises(TypeError):
            hash(Point())

    def test_have_no_other_attributes(self) -> None:
        with pytest.raises(AttributeError):
            Point().z = 1  # type: ignore[attr-defined]
        with pytest.raises(TypeError):
            Point(z=1)  # type: ignore[call-arg]

    def test_show_their_fields(self) -> None:
        assert repr(Point(x=1)) == "Point(x=1, y=-1)"


class TestVersions:
    @pytest.mark.parametrize(
        ("text", "inside", "outside"),
        [("3+", [3, 99], [2]), ("0-2", [0, 2], [3]), ("4", [4], [3, 5])],
    )
    def test_ranges(self, text: str, inside: list[int], outside: list[int]) -> None:
        assert all(version in versions(text) for version in inside)
        assert not any(version in versions(text) for version in outside)

    @pytest.mark.parametrize("version", [2, 3])
    def test_every_type_round_trips_when_flexible(self, version: int) -> None:
        assert decode(Everything, version, b"".join(encode(FULL, version))) == FULL

    def test_and_when_not(self) -> None:
        message = Everything(name="n", points=[Point(y=3)], ids=[ZERO_UUID], old=4, note="x")
        assert decode(Everything, 1, b"".join(encode(message, 1))) == message

    def test_null_is_refused_where_only_later_versions_take_it(self) -> None:
        with pytest.raises(WireError):
            encode(Everything(note=None), 1)
        encode(Everything(note=None), 2)


class TestFieldsThatAVersionLacks:
    def test_are_at_their_default_when_read(self) -> None:
        data = b"".join(encode(MetadataRequest(allow_auto_topic_creation=True), 0))
        assert decode(MetadataRequest, 0, data).allow_auto_topic_creation is True

    def test_are_dropped_when_ignorable(self) -> None:
        reasoned, plain = JoinGroupRequest(reason="because"), JoinGroupRequest()
        assert encode(reasoned, 7) == encode(plain, 7)

    @pytest.mark.parametrize(
        ("message", "version"),
        [
            (JoinGroupRequest(group_instance_id="static"), 4),
            (MetadataRequest(allow_auto_topic_creation=False), 3),
            (FetchResponse(session_id=1), 6),
            (FetchRequest(replica_id=5), 15),
            (Everything(extra=Point(y=0)), 1),
        ],
    )
    def test_are_refused_otherwise(self, message: Struct, version: int) -> None:
        with pytest.raises(WireError, match="cannot carry"):
            encode(message, version)

    def test_are_refused_within_arrays(self) -> None:
        with pytest.raises(WireError, match="cannot carry y"):
            encode(Everything(points=[Point(), Point(y=0)]), 0)


def test_records_are_empty_unless_told_so_that_no_answer_holds_null() -> None:
    assert PartitionData().records == b""


def test_messages_are_flexible_from_the_version_they_say() -> None:
    assert ProduceRequest.first_flexible == 9
    assert Point.first_flexible > 1000
