"""Plain commits, ends of transactions and their batches, read in C.

As the general decoder reads them, or not at all.
"""

from collections.abc import Iterable
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.errors import WireError
from qbus.wire import API, ApiKey, Struct, encode_request, encode_response, lean
from qbus.wire.messages.end_txn import EndTxnRequest
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.lean_requests import general_form, lean_forms, stored

from .strategies import messages

pytestmark = pytest.mark.skipif(not lean.IS_BUILT, reason="nothing was compiled here")

KEYS = {
    "transactional": ApiKey.PRODUCE,
    "commit": ApiKey.OFFSET_COMMIT,
    "end": ApiKey.END_TXN,
}
FIRST_FLEXIBLE = {"transactional": 9, "commit": 8, "end": 3}
FIRST_BY_ID = {"transactional": 13, "commit": 10}
MOST_ITEMS = 100_000
MOST_UNSORTED = 0xFFFF

INT16, INT32, INT64 = (st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (16, 32, 64))
ASCII = st.text(st.characters(max_codepoint=127), max_size=20)
NAMES = st.text(st.characters(max_codepoint=127), min_size=1, max_size=20)
TEXTS = ASCII | st.text(max_size=20)
SHORT = settings(max_examples=20)
UUIDS = st.binary(min_size=16, max_size=16)


def every_version(first: dict[str, int]) -> Iterable[tuple[str, int]]:
    """Each reader with each version from its ``first`` on."""
    for name, version in first.items():
        for each in range(version, API[KEYS[name]].max_version + 1):
            yield name, each


PLAIN = list(every_version(FIRST_FLEXIBLE))
ALL = list(every_version({name: API[key].min_version for name, key in KEYS.items()}))


def naming(name: str, version: int) -> dict[str, st.SearchStrategy[Any]]:
    return {"topic_id": UUIDS} if version >= FIRST_BY_ID[name] else {"name": NAMES}


def positions() -> st.SearchStrategy[list[OffsetCommitRequestPartition]]:
    """Positions of partitions that come once each: in any order if there are not too many of them.

    Those below zero count as the largest, as they are none.
    """

    def of(
        indexes: st.SearchStrategy[int],
    ) -> st.SearchStrategy[list[OffsetCommitRequestPartition]]:
        position = st.builds(
            OffsetCommitRequestPartition,
            partition_index=indexes,
            committed_offset=INT64,
            committed_leader_epoch=INT32,
            committed_metadata=st.none() | ASCII,
        )
        return st.lists(position, min_size=1, max_size=4, unique_by=lambda p: p.partition_index)

    small = of(st.integers(0, MOST_UNSORTED) | st.integers(0, 5))
    return small | of(INT32).map(lambda some: sorted(some, key=unsigned))


def unsigned(position: OffsetCommitRequestPartition) -> int:
    return position.partition_index % 2**32


def is_clear(partitions: list[OffsetCommitRequestPartition]) -> bool:
    """Whether no partition comes twice, as is known of those in order, and of small ones."""
    indexes = list(map(unsigned, partitions))
    found = sorted(set(indexes))
    return indexes == found or (len(found) == len(indexes) and max(found) <= MOST_UNSORTED)


def plain_requests(name: str, version: int) -> st.SearchStrategy[Any]:
    """Requests that the reader takes."""
    if name == "end":
        return st.builds(
            EndTxnRequest,
            transactional_id=ASCII,
            producer_id=INT64,
            producer_epoch=INT16,
            committed=st.booleans(),
        )
    if name == "commit":
        topic = st.builds(OffsetCommitRequestTopic, partitions=positions(), **naming(name, version))
        return st.builds(
            OffsetCommitRequest,
            group_id=ASCII,
            generation_id_or_member_epoch=INT32,
            member_id=ASCII,
            group_instance_id=st.none() | ASCII,
            topics=st.lists(topic, min_size=1, max_size=4),
        )
    data = st.builds(PartitionProduceData, index=INT32, records=st.binary(min_size=1, max_size=300))
    sent = st.builds(
        TopicProduceData,
        partition_data=st.lists(data, min_size=1, max_size=1),
        **naming(name, version),
    )
    return st.builds(
        ProduceRequest,
        transactional_id=ASCII,
        acks=INT16,
        timeout_ms=INT32,
        topic_data=st.lists(sent, min_size=1, max_size=1),
    )


def is_plain(name: str, version: int, request: Any) -> bool:
    """Whether the reader is for a request, which is well-formed."""
    if version < FIRST_FLEXIBLE[name]:
        return False
    if name == "end":
        return bool(request.transactional_id.isascii())
    by_name = version < FIRST_BY_ID[name]
    if name == "commit":
        texts = [request.group_id, request.member_id, request.group_instance_id or ""]
        for topic in request.topics:
            texts += [position.committed_metadata or "" for position in topic.partitions]
            texts += [topic.name] if by_name else []
        topics = request.topics
        return (
            all(map(str.isascii, texts))
            and bool(topics)
            and all(topic.partitions and is_clear(topic.partitions) for topic in topics)
            and (not by_name or all(topic.name for topic in topics))
        )
    if request.transactional_id is None or not request.transactional_id.isascii():
        return False
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return False
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    is_ours = topic.mirror_source or topic.mirror_topic_id
    is_ours = is_ours or (data.mirror_follows, data.mirror_log_start_offset) != (-1, -1)
    return (
        bool(data.records)
        and not is_ours
        and (not by_name or (bool(topic.name) and topic.name.isascii()))
    )


def framed(
    name: str, version: int, request: Struct, correlation_id: int = 7, client: str | None = "c"
) -> bytes:
    parts = encode_request(KEYS[name], version, correlation_id, client, request)
    return b"".join(map(bytes, parts))[4:]


def alike(name: str, frame: bytes) -> None:
    """The reader of that name takes a frame, and no other; the general way reads the same in it."""
    assert lean_forms(frame) == {name: general_form(name, frame)}


def alike_if_taken(frame: bytes) -> None:
    """Whichever reader takes a frame, the general way reads the same in it."""
    for name, form in lean_forms(frame).items():
        try:
            assert form == general_form(name, frame)
        except WireError as error:
            pytest.fail(f"the general way refuses it: {error}")


@pytest.mark.parametrize(("name", "version"), PLAIN)
class TestWhatIsPlain:
    @SHORT
    @given(data=st.data(), correlation_id=INT32, client=st.none() | ASCII)
    def test_any_of_that_form(
        self,
        name: str,
        version: int,
        data: st.DataObject,
        correlation_id: int,
        client: str | None,
    ) -> None:
        request = data.draw(plain_requests(name, version))
        assert is_plain(name, version, request)
        alike(name, framed(name, version, request, correlation_id, client))

    @SHORT
    @given(data=st.data())
    def test_no_byte_may_be_missing_and_none_may_follow(
        self, name: str, version: int, data: st.DataObject
    ) -> None:
        frame = framed(name, version, data.draw(plain_requests(name, version)))
        for size in range(len(frame)):
            assert lean_forms(frame[:size]) == {}
        more = data.draw(st.binary(min_size=1, max_size=20))
        assert lean_forms(frame + more) == {}

    @SHORT
    @given(data=st.data())
    def test_what_was_changed_is_read_as_ever_or_not_at_all(
        self, name: str, version: int, data: st.DataObject
    ) -> None:
        frame = bytearray(framed(name, version, data.draw(plain_requests(name, version))))
        for _ in range(data.draw(st.integers(1, 3))):
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        alike_if_taken(bytes(frame))

    @SHORT
    @given(data=st.data())
    def test_what_was_cut_out_or_repeated_as_well(
        self, name: str, version: int, data: st.DataObject
    ) -> None:
        frame = framed(name, version, data.draw(plain_requests(name, version)))
        begin, end = sorted(data.draw(st.integers(0, len(frame))) for _ in range(2))
        part = frame[begin:end]
        alike_if_taken(frame[:begin] + part * data.draw(st.sampled_from([0, 2, 3])) + frame[end:])

    @SHORT
    @given(noise=st.binary(max_size=100))
    def test_noise_behind_a_header(self, name: str, version: int, noise: bytes) -> None:
        alike_if_taken(pack(">hhihB", KEYS[name], version, 1, -1, 0) + noise)

    @pytest.mark.parametrize("client", ["ë", "a" * 200 + "\x80"])
    def test_a_client_id_that_is_not_ascii_is_not(
        self, name: str, version: int, client: str
    ) -> None:
        request = whole(name, version, "name")
        assert name in lean_forms(framed(name, version, request))
        assert lean_forms(framed(name, version, request, client=client)) == {}

    @pytest.mark.parametrize("length", [127, 128, 16_382, 16_383, 16_384, 32_767])
    def test_texts_may_have_any_length(self, name: str, version: int, length: int) -> None:
        alike(name, framed(name, version, whole(name, version, "n" * length)))

    @pytest.mark.parametrize("length", [32_768, 65_536])
    def test_but_none_that_the_general_way_refuses(
        self, name: str, version: int, length: int
    ) -> None:
        frame = framed(name, version, whole(name, version, "n" * 32_767))
        shorter, longer = (b"n" * 32_767, b"n" * length)
        prefix = compact(32_767 + 1)
        assert prefix + shorter in frame
        parts = frame.split(prefix + shorter)
        for number in range(1, len(parts)):  # each of the texts in turn
            head, tail = prefix + shorter, compact(length + 1) + longer
            made = head.join(parts[:number]) + tail + head.join(parts[number:])
            assert lean_forms(made) == {}


@pytest.mark.parametrize(("name", "version"), ALL)
@SHORT
@given(data=st.data())
def test_of_any_well_formed_request_that_is_read_which_is_plain(
    name: str, version: int, data: st.DataObject
) -> None:
    cls = API[KEYS[name]].request
    request = data.draw(messages(cls, version, string=TEXTS, records=st.binary(max_size=30)))
    frame = framed(name, version, request)
    if is_plain(name, version, request):
        alike(name, frame)
    else:
        assert name not in lean_forms(frame)
        alike_if_taken(frame)


@pytest.mark.parametrize("name", KEYS)
def test_a_version_that_is_not_known_is_not_plain(name: str) -> None:
    newest = API[KEYS[name]].max_version
    frame = bytearray(framed(name, newest, whole(name, newest, "name")))
    assert name in lean_forms(bytes(frame))
    for version in (newest + 1, 127):
        frame[2:4] = pack(">h", version)
        assert lean_forms(bytes(frame)) == {}


def whole(name: str, version: int, text: str) -> Struct:
    """A plain request all of whose texts are ``text``."""
    named = name != "end" and version < FIRST_BY_ID[name]
    naming: dict[str, Any] = {"name": text} if named else {"topic_id": bytes(range(16))}
    if name == "end":
        return EndTxnRequest(transactional_id=text, producer_id=5, producer_epoch=3, committed=True)
    if name == "commit":
        position = OffsetCommitRequestPartition(
            partition_index=1, committed_offset=2, committed_metadata=text
        )
        return OffsetCommitRequest(
            group_id=text,
            member_id=text,
            group_instance_id=text,
            topics=[OffsetCommitRequestTopic(partitions=[position], **naming)],
        )
    data = PartitionProduceData(index=1, records=b"a batch")
    return ProduceRequest(
        transactional_id=text,
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(partition_data=[data], **naming)],
    )


def compact(number: int) -> bytes:
    """An unsigned varint."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


class TestACommit:
    def frame(self, *partitions: int) -> bytes:
        """Of topics that have so many partitions each."""
        made = pack(">hhihB", ApiKey.OFFSET_COMMIT, 9, 1, -1, 0)
        made += b"\2g" + pack(">i", -1) + b"\1" + b"\0" + compact(len(partitions) + 1)
        for count in partitions:
            made += b"\2t" + compact(count + 1)
            made += b"".join(pack(">iqiBB", index, 5, -1, 1, 0) for index in range(count)) + b"\0"
        return made + b"\0"

    @pytest.mark.parametrize(
        ("partitions", "is_plain"),
        [
            ([3, 1, 2, 0], True),
            ([MOST_UNSORTED, 0], True),
            ([0, 0], False),
            ([3, 1, 2, 0, 3], False),
            ([0, MOST_UNSORTED, MOST_UNSORTED], False),
            ([MOST_UNSORTED + 1, 0], False),  # it may be, but nobody has so many
            ([0, MOST_UNSORTED + 1, -1], True),
        ],
    )
    def test_names_each_partition_once(self, partitions: list[int], is_plain: bool) -> None:
        some = [OffsetCommitRequestPartition(partition_index=one) for one in partitions]
        topics = [OffsetCommitRequestTopic(name="t", partitions=some)]
        frame = framed("commit", 9, OffsetCommitRequest(group_id="g", topics=topics))
        assert ("commit" in lean_forms(frame)) is is_plain

    def test_has_as_many_partitions_as_the_general_way_takes(self) -> None:
        assert lean.read_commit(memoryview(self.frame(MOST_ITEMS - 1))) is not None

    @pytest.mark.parametrize(
        "partitions",
        [(MOST_ITEMS,), (9, MOST_ITEMS - 10)],
        ids=["of one topic", "of two"],
    )
    def test_has_no_more_in_all_its_topics_together(self, partitions: tuple[int, ...]) -> None:
        frame = self.frame(*partitions)
        with pytest.raises(WireError, match="more items"):
            general_form("commit", frame)
        assert lean_forms(frame) == {}

    def test_promises_no_more_partitions_than_it_brings(self) -> None:
        frame = self.frame(1)
        for lying in (3, 127, 128, MOST_ITEMS + 1, 2**31 - 1):
            changed = frame.replace(b"\2t\2", b"\2t" + compact(lying))
            assert changed != frame
            assert lean_forms(changed) == {}

    @pytest.mark.parametrize("version", [8, 9, 10])
    @SHORT
    @given(data=st.data(), correlation_id=INT32)
    def test_brings_its_answer_byte_for_byte(
        self, version: int, data: st.DataObject, correlation_id: int
    ) -> None:
        request = data.draw(plain_requests("commit", version))
        found = lean.read_commit(memoryview(framed("commit", version, request, correlation_id)))
        assert found is not None
        key = ApiKey.OFFSET_COMMIT
        parts = encode_response(key, version, correlation_id, stored(version, request))
        assert found[-1] == b"".join(map(bytes, parts))
