"""The offsets of one partition of the log: what counts, and what is pending."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.group.committing import PackedCommit
from qbus.broker.group.offset_machine import OffsetsMachine, change, commit, read
from qbus.broker.group.offset_records import encode_key, encode_value
from qbus.broker.group.offset_table import IS_BUILT, Position
from qbus.broker.group.offsets import NO_TOPIC_ID, Offset, Offsets, TopicPartition
from qbus.broker.internal_logs.machine import Producer
from qbus.broker.metadata.image import Topic
from qbus.records import iter_records
from qbus.records.header import HEADER_SIZE, write_new_header
from tests.support.positions import packed

TOPIC_ID = bytes(range(16))
P = (7, 0)
Q = (8, 0)


class Scene:
    """A machine and the log that it stands for; ``replayed`` is one that knows the log alone."""

    def __init__(self) -> None:
        self.machine = OffsetsMachine()
        self.replayed = OffsetsMachine()
        self.log: list[tuple[bytes, bytes | None, int, Producer | None]] = []
        self.ends: dict[int, tuple[int, bool]] = {}
        self._positions = count()

    def commit(
        self, group: str, at: dict[TopicPartition, int | None], producer: Producer | None = None
    ) -> None:
        offsets = {
            place: None if offset is None else Offset(offset, committed_at=1)
            for place, offset in at.items()
        }
        outcome = change(self.machine, 5, group, offsets, producer)
        positions = [next(self._positions) for _ in outcome.records]
        if outcome.apply is not None:
            outcome.apply(positions[0] if positions else -1)
        for position, (key, value) in zip(positions, outcome.records, strict=True):
            self.log.append((key, value, position, outcome.producer))
            self.replayed.replay(key, value, position, 5, outcome.producer)
            if outcome.apply is None:
                self.machine.replay(key, value, position, 5, outcome.producer)
        self.check(group)

    def commit_packed(self, group: str, *topics: tuple[str, list[Position]]) -> None:
        known = [(name, TOPIC_ID, packed(some), len(some)) for name, some in topics]
        outcome = commit(PackedCommit(group, known, 7), self.machine, 5)
        assert outcome.packed is not None
        assert outcome.apply is not None
        written = [next(self._positions) for _ in range(outcome.packed.count)]
        outcome.apply(written[0])
        batch = bytearray(HEADER_SIZE)
        outcome.packed.add_to(batch, 0)
        write_new_header(batch, 0, len(written), 5)
        for position, record in zip(written, iter_records(batch), strict=True):
            assert record.key is not None
            self.log.append((record.key, record.value, position, None))
            self.replayed.replay(record.key, record.value, position, 5, None)
        self.check(group)

    def end(self, producer: Producer, *, committed: bool) -> None:
        self.ends[next(self._positions)] = (producer[0], committed)
        self.machine.marker(*producer, committed=committed)
        self.replayed.marker(*producer, committed=committed)

    def check(self, group: str) -> None:
        """What was applied is what the log says."""
        assert dict(self.machine.committed()) == dict(self.replayed.committed())
        assert self.machine.unstable(group) == self.replayed.unstable(group)
        assert self.machine.has(group) is self.replayed.has(group)

    def at(self, group: str) -> dict[TopicPartition, int]:
        offsets = read(self.machine, group).answer.offsets
        return {
            (topic, partition): offset.offset
            for topic, some in offsets.items()
            for partition, offset in some.items()
        }

    def unstable(self, group: str) -> set[TopicPartition]:
        return set(read(self.machine, group).answer.unstable)


class TestCommits:
    def test_count_at_once(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5, ("t", 1): 6, ("u", 0): 7})
        scene.commit("g", {("t", 0): 8})

        assert scene.at("g") == {("t", 0): 8, ("t", 1): 6, ("u", 0): 7}
        assert scene.at("other") == {}

    def test_are_deleted_by_tombstones_and_a_group_without_any_is_forgotten(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5, ("t", 1): 6})
        scene.commit("g", {("t", 0): None})
        assert scene.at("g") == {("t", 1): 6}

        scene.commit("g", {("t", 1): None})

        assert not scene.machine.has("g")
        assert scene.machine.group_ids() == []

    def test_without_a_time_get_that_of_the_append(self) -> None:
        (record,) = change(OffsetsMachine(), 77, "g", {("t", 0): Offset(1)}).records

        assert record == (encode_key("g", "t", 0), encode_value(Offset(1, committed_at=77)))

    def test_that_were_read_do_not_change_afterwards(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5})
        before = read(scene.machine, "g").answer

        scene.commit("g", {("t", 0): 6})

        assert before.offsets["t"][0].offset == 5

    def test_that_are_lost_before_they_are_replayed_are_not_remembered_for_ever(self) -> None:
        """The log may refuse what was about to be written."""
        scene = Scene()
        value = encode_value(Offset(7, committed_at=5))
        scene.machine.expect(value, Offset(7, committed_at=5))

        scene.commit("g", {("t", 0): 5})
        scene.machine.replay(encode_key("g", "t", 1), value, 9, 5, None)
        scene.machine.replay(encode_key("g", "t", 2), value, 10, 5, None)

        assert scene.at("g") == {("t", 0): 5, ("t", 1): 7, ("t", 2): 7}


OLD, NEW = b"1" * 16, b"2" * 16
"""The ids of a deleted topic, and of one of the same name."""
IDS = st.sampled_from([OLD, NEW, NO_TOPIC_ID])


@given(
    st.lists(
        st.tuples(st.sampled_from(["commit", "packed", "delete", "read"]), st.integers(0, 2), IDS),
        max_size=20,
    )
)
def test_offsets_of_other_topics_of_the_same_name_are_left_out(
    steps: list[tuple[str, int, bytes]],
) -> None:
    """However often it was looked at before, and whatever came since."""
    machine = OffsetsMachine()
    topics: dict[str, Topic] = {}
    committed: dict[int, Offset] = {}
    copies: list[tuple[Offsets, dict[int, Offset]]] = []
    for at, (kind, index, topic_id) in enumerate(steps):
        if kind == "read":
            topics["t"] = Topic("t", NEW if topic_id == NO_TOPIC_ID else topic_id, ())
            ids = {topics["t"].id, NO_TOPIC_ID}
            expected = {i: one for i, one in committed.items() if one.topic_id in ids}
            present = machine.present("g", topics)
            assert dict(present) == ({"t": expected} if expected else {})
            stale = {("t", i) for i in committed.keys() - expected.keys()}
            assert set(present.stale()) == stale
            copies.append((read(machine, "g", dict(topics)).answer.offsets, expected))
            continue
        offset = Offset(at, committed_at=1, topic_id=topic_id)
        if kind == "packed" and IS_BUILT:
            known = [("t", topic_id, packed([(index, at, -1, "")]), 1)]
            outcome = commit(PackedCommit("g", known, 1), machine, 5)
        else:
            changed = None if kind == "delete" else offset
            outcome = change(machine, 5, "g", {("t", index): changed})
        assert outcome.apply is not None
        outcome.apply(at)
        if kind == "delete":
            committed.pop(index, None)
        else:
            committed[index] = offset
    for copy, expected in copies:
        assert dict(copy) == ({"t": expected} if expected else {})


@pytest.mark.skipif(not IS_BUILT, reason="nothing was compiled here")
class TestPackedCommits:
    def test_count_as_any_other(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5, ("u", 3): 6})
        scene.commit_packed("g", ("t", [(1, 7, -1, "note"), (0, 8, 2, "")]), ("v", [(9, 1, 0, "")]))
        scene.commit("g", {("t", 1): 9})

        assert scene.at("g") == {("t", 0): 8, ("t", 1): 9, ("u", 3): 6, ("v", 9): 1}
        assert scene.machine.offsets("g")["t"][0] == Offset(8, 2, "", 7, None, TOPIC_ID)

    def test_of_one_partition_twice_leave_the_later(self) -> None:
        scene = Scene()
        scene.commit_packed("g", ("t", [(0, 7, -1, ""), (0, 8, -1, "")]), ("t", [(0, 9, -1, "")]))

        assert scene.at("g") == {("t", 0): 9}

    def test_that_were_read_do_not_change_afterwards(self) -> None:
        scene = Scene()
        scene.commit_packed("g", ("t", [(0, 5, -1, "")]))
        before = read(scene.machine, "g").answer

        scene.commit_packed("g", ("t", [(1, 5, -1, ""), (0, 6, -1, "")]))

        assert before.offsets == {"t": {0: Offset(5, -1, "", 7, None, TOPIC_ID)}}

    def test_are_not_undone_by_transactions_that_committed_before(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5, ("t", 1): 5}, P)
        scene.commit_packed("g", ("t", [(0, 7, -1, "")]))
        assert scene.unstable("g") == {("t", 0), ("t", 1)}

        scene.end(P, committed=True)

        assert scene.at("g") == {("t", 0): 7, ("t", 1): 5}


class TestTransactions:
    def test_bring_offsets_that_count_when_they_are_committed(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5, ("t", 1): 5})
        scene.commit("g", {("t", 0): 9}, P)
        assert scene.at("g") == {("t", 0): 5, ("t", 1): 5}
        assert scene.unstable("g") == {("t", 0)}
        assert scene.machine.transactions == 1

        scene.end(P, committed=True)

        assert scene.at("g") == {("t", 0): 9, ("t", 1): 5}
        assert scene.unstable("g") == set()
        assert scene.machine.transactions == 0

    def test_that_are_aborted_leave_nothing(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 9}, P)
        assert scene.machine.has("g")

        scene.end(P, committed=False)

        assert scene.at("g") == {}
        assert not scene.machine.has("g")

    def test_are_those_of_one_producer_each(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 9}, P)
        scene.commit("g", {("t", 1): 9}, Q)

        scene.end(P, committed=False)
        scene.end(Q, committed=True)

        assert scene.at("g") == {("t", 1): 9}

    def test_may_bring_offsets_of_several_groups(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 1}, P)
        scene.commit("h", {("t", 0): 2}, P)

        scene.end(P, committed=True)

        assert (scene.at("g"), scene.at("h")) == ({("t", 0): 1}, {("t", 0): 2})

    def test_do_not_undo_a_commit_that_came_later(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5}, P)
        scene.commit("g", {("t", 0): 7})
        assert scene.unstable("g") == {("t", 0)}

        scene.end(P, committed=True)

        assert scene.at("g") == {("t", 0): 7}

    @pytest.mark.parametrize("first", [P, Q])
    def test_of_two_the_later_commit_counts_whichever_ends_first(self, first: Producer) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5}, P)
        scene.commit("g", {("t", 0): 7}, Q)

        scene.end(first, committed=True)
        scene.end(Q if first == P else P, committed=True)

        assert scene.at("g") == {("t", 0): 7}

    def test_may_commit_again(self) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5}, P)
        scene.commit("g", {("t", 0): 3})
        scene.commit("g", {("t", 0): 6}, P)

        scene.end(P, committed=True)

        assert scene.at("g") == {("t", 0): 6}

    def test_that_brought_nothing_may_end(self) -> None:
        scene = Scene()
        scene.end(P, committed=True)

        assert scene.machine.group_ids() == []


class TestForeignRecords:
    def test_of_other_kinds_are_skipped(self) -> None:
        scene = Scene()
        scene.machine.replay(b"\0\2\0\1g", b"a member", 0, 0, None)

        assert scene.machine.group_ids() == []

    @pytest.mark.parametrize(
        ("key", "value"), [(b"", b""), (encode_key("g", "t", 0), b"\0\7"), (b"\0\1\0\x09g", None)]
    )
    def test_that_are_malformed_are_told_and_skipped(
        self, key: bytes, value: bytes | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        scene = Scene()
        scene.commit("g", {("t", 0): 5})

        scene.machine.replay(key, value, 17, 0, None)

        assert scene.at("g") == {("t", 0): 5}
        assert "__consumer_offsets-0 at offset 17" in caplog.text


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["commit", "packed", "delete", "end", "abort"]),
            st.sampled_from([None, P, Q]),
            st.sampled_from([("t", 0), ("t", 1)]),
            st.integers(0, 9),
        ),
        max_size=20,
    )
)
def test_what_counts_is_the_last_record_that_is_committed(
    steps: list[tuple[str, Producer | None, TopicPartition, int]],
) -> None:
    """As compaction sees it, which keeps the last record of each key."""
    scene = Scene()
    written: list[tuple[TopicPartition, int | None, Producer | None]] = []
    is_open = {P: False, Q: False}
    outcome: dict[int, bool] = {}  # of each record in a transaction
    waiting: dict[Producer, list[int]] = {P: [], Q: []}
    for kind, producer, place, offset in steps:
        if kind in {"end", "abort"}:
            if producer is not None and is_open[producer]:
                scene.end(producer, committed=kind == "end")
                outcome |= dict.fromkeys(waiting.pop(producer), kind == "end")
                waiting[producer], is_open[producer] = [], False
            continue
        value = None if kind == "delete" else offset
        if value is None or kind == "packed":
            producer = None  # nobody deletes in a transaction
        if value is not None and kind == "packed" and IS_BUILT:
            scene.commit_packed("g", (place[0], [(place[1], value, -1, "")]))
        else:
            scene.commit("g", {place: value}, producer)
        if producer is not None:
            waiting[producer].append(len(written))
            is_open[producer] = True
        written.append((place, value, producer))
    expected: dict[TopicPartition, int] = {}
    for number, (place, value, producer) in enumerate(written):
        if producer is not None and not outcome.get(number, False):
            continue
        expected.pop(place, None)
        if value is not None:
            expected[place] = value
    assert scene.at("g") == expected
    open_places = {written[number][0] for some in waiting.values() for number in some}
    assert scene.unstable("g") == open_places
