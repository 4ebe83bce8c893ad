"""What a compaction leaves of a log: the newest record of each key, where it was."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbus.broker.compaction.cleaning import Buffers, CleaningAbandonedError
from qbus.broker.log.file_cache import FileCache
from qbus.broker.log.files import File
from qbus.broker.log.manifest import MANIFEST
from qbus.broker.log.scan import BadBatch
from qbus.errors import ApiError
from qbus.records import Compression, build_batch, iter_records, read_header
from qbus.records.compact import HORIZON
from qbus.records.control import (
    Change,
    ChangeKind,
    ControlType,
    Shared,
    control_batch,
    encode_shared,
)

from .keyed import NOW, Item, KeyedLog, newest

DAY_MS = 86_400_000


@pytest.fixture
def keyed(tmp_path: Path) -> KeyedLog:
    return made(tmp_path)


def made(tmp_path: Path, **config: Any) -> KeyedLog:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    return KeyedLog(directory, **config)


class TestRecords:
    def test_the_newest_record_of_each_key_stays_where_it_was(self, keyed: KeyedLog) -> None:
        keyed.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        keyed.put((b"c", b"1"))
        keyed.roll()
        keyed.put((b"b", b"2"), (b"a", b"3"))
        keyed.roll()
        result = keyed.clean()
        assert keyed.items() == [(3, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3")]
        assert (result.end_offset, result.keys) == (6, 3)
        assert (result.records_read, result.records_kept) == (6, 3)
        assert keyed.log.log_end_offset == 6
        keyed.check()

    def test_what_is_not_rolled_yet_stays(self, keyed: KeyedLog) -> None:
        keyed.put((b"a", b"1"))
        keyed.roll()
        keyed.put((b"a", b"2"))
        keyed.log.flush()
        keyed.clean()
        assert keyed.items() == [(0, b"a", b"1"), (1, b"a", b"2")]

    def test_nothing_at_the_limit_or_behind_it_is_touched(self, keyed: KeyedLog) -> None:
        for value in b"12345":
            keyed.put((b"a", bytes([value])))
            keyed.roll()
        keyed.clean(limit=3)
        assert [offset for offset, _, _ in keyed.items()] == [2, 3, 4]

    def test_a_later_compaction_removes_what_an_earlier_one_left(self, keyed: KeyedLog) -> None:
        for value in b"123":
            keyed.put((b"a", bytes([value])), (bytes([value]), b"v"))
            keyed.roll()
            keyed.clean()
        assert [offset for offset, _, _ in keyed.items()] == [1, 3, 4, 5]
        assert keyed.log.segment_count == 2
        keyed.check()

    def test_segments_are_merged(self, keyed: KeyedLog) -> None:
        for number in range(40):
            keyed.put((b"a", b"v" * 500), (b"%d" % number, b"v"))
        keyed.roll()
        before = keyed.log.segment_count
        result = keyed.clean()
        assert result.segments_before == result.segments_after == before - 1
        keyed.clean()  # by the sizes that the first one left
        assert keyed.log.segment_count == 2
        keyed.check()

    @pytest.mark.parametrize("codec", Compression)
    def test_batches_stay_compressed_as_they_were(
        self, keyed: KeyedLog, codec: Compression
    ) -> None:
        keyed.put((b"a", b"1" * 300), (b"b", b"2" * 300), compression=codec)
        keyed.put((b"a", b"3" * 300), compression=codec)
        keyed.roll()
        keyed.clean()
        assert [item[0] for item in keyed.items()] == [1, 2]
        assert {header.compression for header, _ in keyed.batches()} == {codec}
        keyed.check()

    def test_headers_and_timestamps_stay(self, keyed: KeyedLog) -> None:
        items = [(b"%d" % (n % 3), b"v", (("h", b"%d" % n),), NOW + n) for n in range(7)]
        keyed.log.append(build_batch(items), 0)
        keyed.roll()
        keyed.clean()
        assert [(one.offset, one.timestamp, one.headers) for one in keyed.records()] == [
            (n, NOW + n, (("h", b"%d" % n),)) for n in (4, 5, 6)
        ]
        found = keyed.log.offset_for_timestamp(NOW + 5)
        assert found is not None
        assert (found.offset, found.timestamp) == (5, NOW + 5)
        latest = keyed.log.offset_of_max_timestamp()
        assert latest is not None
        assert latest.offset == 6

    def test_records_without_a_key_go(self, keyed: KeyedLog) -> None:
        keyed.put((None, b"1"), (b"a", b"2"))
        keyed.roll()
        keyed.clean()
        assert keyed.items() == [(1, b"a", b"2")]

    def test_a_segment_of_which_nothing_is_left_keeps_its_end(self, keyed: KeyedLog) -> None:
        keyed.put((b"a", b"1"), (b"a", b"2"))
        keyed.roll()
        keyed.put(*[(b"a", b"v" * 20)] * 100)
        keyed.roll()
        keyed.clean()
        assert [item[0] for item in keyed.items()] == [101]
        keyed.check()
        keyed.reopen()
        keyed.check()

    def test_with_little_memory_it_takes_several_compactions(self, keyed: KeyedLog) -> None:
        for round_number in range(3):
            for key in range(300):
                keyed.put((b"%d" % key, b"%d" % round_number))
        keyed.roll()
        items, ends = keyed.items(), []
        while keyed.cleaned_before < 900:
            ends.append(keyed.clean(buffers=Buffers(24 * 100, 0.9, 4096)).end_offset)
            assert keyed.items() == newest(items, ends[-1])
        assert len(ends) > 3
        assert ends == sorted(set(ends))
        assert keyed.items() == items[600:]
        keyed.check()

    def test_leader_epochs_stay(self, keyed: KeyedLog) -> None:
        for epoch in range(5):
            keyed.put((b"a", b"%d" % epoch), epoch=epoch)
        keyed.roll()
        epochs = keyed.log.epoch_cache.entries
        keyed.clean()
        for clean in (False, True):
            keyed.reopen(clean=clean)
            assert keyed.log.epoch_cache.entries == epochs
            keyed.check()


class TestTombstones:
    def test_they_stay_for_the_time_that_readers_need(self, tmp_path: Path) -> None:
        keyed = made(tmp_path, delete_retention_ms=1000)
        keyed.put((b"a", b"1"), (b"b", b"1"))
        keyed.put((b"a", None))
        keyed.roll()
        keyed.clean(now_ms=NOW)
        assert keyed.items() == [(1, b"b", b"1"), (2, b"a", None)]
        (header,) = [header for header, _ in keyed.batches() if header.attributes & HORIZON]
        assert header.base_timestamp == NOW + 1000
        assert [one.timestamp for one in keyed.records()] == [NOW, NOW]
        keyed.put((b"c", b"1"))
        keyed.roll()
        keyed.clean(now_ms=NOW + 999)
        assert [item[0] for item in keyed.items()] == [1, 2, 3]
        keyed.put((b"c", b"2"))
        keyed.roll()
        keyed.clean(now_ms=NOW + 1000)
        assert [item[0] for item in keyed.items()] == [1, 4]
        keyed.check()

    def test_a_key_that_is_written_again_is_there_again(self, keyed: KeyedLog) -> None:
        for value in (b"1", None, b"2"):
            keyed.put((b"a", value))
        keyed.roll()
        keyed.clean()
        assert keyed.items() == [(2, b"a", b"2")]

    @pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
    def test_they_may_be_compressed(self, keyed: KeyedLog, codec: Compression) -> None:
        keyed.put((b"a", None), (b"b", b"1"), compression=codec, timestamp=NOW - 5)
        keyed.roll()
        keyed.clean()
        assert keyed.items() == [(0, b"a", None), (1, b"b", b"1")]
        assert [one.timestamp for one in keyed.records()] == [NOW - 5] * 2
        keyed.put((b"c", b"1"))
        keyed.roll()
        keyed.clean(now_ms=NOW + DAY_MS)
        assert [item[0] for item in keyed.items()] == [1, 2]


class TestProducers:
    def test_the_newest_batch_of_one_keeps_its_place(self, keyed: KeyedLog) -> None:
        producer: Any = {"producer_id": 7, "producer_epoch": 1}
        keyed.put((b"a", b"1"), base_sequence=0, **producer)
        keyed.put((b"a", b"2"), base_sequence=1, **producer)
        keyed.put((b"a", b"3"))
        keyed.roll()
        keyed.clean()
        empty, last = keyed.batches()
        assert (empty[0].base_offset, empty[0].records_count, empty[0].last_sequence) == (1, 0, 1)
        assert last[0].base_offset == 2
        keyed.log.drop_snapshots()
        keyed.reopen()
        again = keyed.put((b"a", b"2"), base_sequence=1, **producer)
        assert again == 1
        with pytest.raises(ApiError, match="follows 1"):
            keyed.put((b"a", b"x"), base_sequence=5, **producer)
        keyed.check()

    def test_until_it_writes_again(self, keyed: KeyedLog) -> None:
        producer: Any = {"producer_id": 7, "producer_epoch": 1}
        keyed.put((b"a", b"1"), base_sequence=0, **producer)
        keyed.put((b"a", b"2"))
        keyed.roll()
        keyed.clean()
        assert len(keyed.batches()) == 2
        keyed.put((b"b", b"1"), base_sequence=1, **producer)
        keyed.roll()
        keyed.clean()
        assert [header.base_offset for header, _ in keyed.batches()] == [1, 2]


class TestHiddenBatches:
    """Control batches of delayed records and queues."""

    def hide(self, keyed: KeyedLog) -> int:
        change = Shared("g", [Change(ChangeKind.ACKNOWLEDGED, 0, 0)])
        batch = control_batch([(ControlType.SHARED, encode_shared(change))], NOW)
        return keyed.log.append_own(batch, 0).first_offset

    def test_they_stay_as_they_are(self, keyed: KeyedLog) -> None:
        keyed.put((b"a", b"1"))
        first = self.hide(keyed)
        self.hide(keyed)
        keyed.put((b"b", b"1"))
        keyed.put((b"a", b"2"))
        keyed.put((b"b", b"2"))
        keyed.roll()
        before = [batch for header, batch in keyed.batches() if header.is_hidden]
        keyed.clean()
        after = [batch for header, batch in keyed.batches() if header.is_hidden]
        assert (after, len(after)) == (before, 2)
        # What follows one may be what it announced, by its checksum.
        assert [item[0] for item in keyed.items()] == [first + 2, 4, 5]
        keyed.check()

    def test_nor_does_a_batch_change_that_follows_one_in_another_segment(
        self, keyed: KeyedLog
    ) -> None:
        keyed.put((b"b", b"v" * 2500))
        self.hide(keyed)
        keyed.roll()
        follows = keyed.put((b"a", b"1"))
        keyed.put((b"c", b"v" * 2500))
        keyed.put((b"a", b"2"))
        keyed.roll()
        keyed.clean()
        assert keyed.log.segment_count == 3, "they are too large for one segment"
        assert follows in [item[0] for item in keyed.items()]
        keyed.check()

    def test_readers_do_not_get_them_after_it(self, keyed: KeyedLog) -> None:
        keyed.put((b"a", b"1"))
        self.hide(keyed)
        keyed.put((b"b", b"1"))
        keyed.put((b"c", b"1"))
        keyed.roll()
        keyed.clean()
        for clean in (None, False, True):
            if clean is not None:
                keyed.reopen(clean=clean)
            assert keyed.log.has_hidden
            part = keyed.log.read_visible(0, 1 << 20, 4, wait=True)
            assert part is not None
            found = part.read()
            headers, position = [], 0
            while position < len(found):
                headers.append(read_header(found, position))
                position += headers[-1].size
            assert [(one.base_offset, one.is_control) for one in headers] == [
                (0, False),
                (1, False),
                (2, False),
                (3, False),
            ]
            assert keyed.log.hidden_between(0, 4) == 1


class TestMeanwhile:
    def test_who_reads_keeps_the_old_file(self, keyed: KeyedLog) -> None:
        for value in b"1234":
            keyed.put((b"a", bytes([value])))
        keyed.roll()
        old = keyed.log.read(0, 1 << 20, wait=True)
        segment = keyed.log.rewriter.segments[0]
        assert old is not None
        keyed.clean()
        with old:
            assert [one.offset for one in iter_records(old.read()[: read_header(old.read()).size])]
            assert old.next_offset == 4
        # A reader that had found the segment, and now looks where in it an offset is
        placed = [one.header.base_offset for one in segment.batches_from(0)]
        assert placed == [0, 1, 2, 3]
        assert keyed.items() == [(3, b"a", b"4")]

    def test_so_does_who_is_about_to_open_it(
        self, keyed: KeyedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for value in b"1234":
            keyed.put((b"a", bytes([value])))
        keyed.roll()
        segment = keyed.log.rewriter.segments[0]
        size, get = segment.size, FileCache.get

        def late(cache: FileCache, path: str) -> File:
            if path == segment.path:
                monkeypatch.undo()
                keyed.clean()
            return get(cache, path)

        monkeypatch.setattr(FileCache, "get", late)
        assert segment.file.size() == size
        assert keyed.items() == [(3, b"a", b"4")]

    @pytest.mark.parametrize("what", ["truncate", "retention", "close"])
    def test_what_changes_the_log_ends_it(self, keyed: KeyedLog, what: str) -> None:
        for value in b"1234":
            keyed.put((b"a", bytes([value]) * 100))
            keyed.roll()

        def meddle(_: int) -> None:
            if what == "truncate":
                keyed.log.truncate_to(2)
            elif what == "retention":
                keyed.log.delete_records_before(2)
                keyed.log.apply_retention()
            else:
                keyed.log.abandon()

        with pytest.raises((CleaningAbandonedError, ApiError)):
            keyed.clean(pace=meddle)
        names = {path.suffix for path in keyed.directory.iterdir()}
        assert not names & {".cleaned", ".swap"}
        if what != "close":
            keyed.check()

    def test_it_can_be_stopped_at_any_batch(self, keyed: KeyedLog) -> None:
        class Stop(Exception):  # noqa: N818
            pass

        for number in range(20):
            keyed.put((b"a", b"v" * 300), (b"%d" % number, b"v"))
        keyed.roll()
        expected = newest(keyed.items(), 40)
        stops = 0
        while True:
            left = stops

            def pace(_: int) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Stop

            try:
                keyed.clean(pace=pace)
                break
            except Stop:
                stops += 1
            keyed.check()
        assert stops > 3
        assert keyed.items() == expected

    def test_a_damaged_batch_ends_it_and_is_reported(self, keyed: KeyedLog) -> None:
        keyed.put((b"a", b"1"))
        keyed.put((b"a", b"2"))
        keyed.roll()
        path = keyed.directory / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(BadBatch, match="CRC"):
            keyed.clean()
        (found,) = keyed.log.corruptions
        assert found.offset == 1
        assert path.read_bytes() == bytes(data)

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_manifest_from_before_it_finds_nothing_missing(
        self, keyed: KeyedLog, clean: bool
    ) -> None:
        """An earlier version, used for a while, compacts and leaves the manifest as it is."""
        for value in range(4):
            keyed.put((b"a", b"%d" % value), (b"%d" % value, b"x"))
            keyed.roll()
        keyed.log.close()
        path = keyed.directory / MANIFEST
        manifest = path.read_bytes()
        keyed.log = keyed.opened_at(8)
        keyed.clean()
        expected, end = keyed.items(), keyed.log.log_end_offset
        keyed.log.close()
        path.write_bytes(manifest)
        keyed.log = keyed.opened_at(8, clean=clean)
        assert (keyed.log.is_usable, keyed.log.corruptions, keyed.log.damage) == (True, (), [])
        assert (keyed.items(), keyed.log.log_end_offset) == (expected, end)

    @pytest.mark.parametrize("is_learned", [True, False], ids=["dirty", "clean"])
    def test_a_lost_end_of_a_segment_ends_it_and_still_shows(
        self, keyed: KeyedLog, is_learned: bool
    ) -> None:
        keyed.put((b"a", b"1"))
        size = keyed.log.size
        keyed.put((b"b", b"2"))
        keyed.roll()
        keyed.put((b"a", b"3"))
        keyed.roll()
        keyed.log.close()
        path = keyed.directory / "00000000000000000000.log"
        path.write_bytes(path.read_bytes()[:size])
        keyed.log = keyed.opened_at(3)
        keyed.log.serve_around_damage()
        keyed.log.flush()
        keyed.cleaned_before = 0 if is_learned else 2
        with pytest.raises(BadBatch, match="bytes instead of"):
            keyed.clean()
        assert [(one.first_offset, one.last_offset) for one in keyed.log.damage] == [(1, 1)]


_KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"e", b"a long key of its own", None])
_VALUES = st.sampled_from([None, b"", b"1", b"v" * 200])
_BATCH = st.tuples(
    st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=6),
    st.sampled_from([Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4]),
    st.sampled_from([None, 7, 8]),
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _BATCH),
        st.tuples(st.just("put"), _BATCH),
        st.tuples(st.just("put"), _BATCH),
        st.tuples(st.just("roll"), st.none()),
        st.tuples(st.just("clean"), st.sampled_from([24 * 17, 24 * 20, 1 << 20])),
        st.tuples(st.just("pass time"), st.integers(1, 2000)),
        st.tuples(st.just("open"), st.booleans()),
        st.tuples(st.just("cut"), st.integers(0, 10)),
    ),
    min_size=3,
    max_size=16,
)


class Model:
    """What a log must hold: by Kafka's rules, from the outside."""

    def __init__(self, keyed: KeyedLog) -> None:
        self.keyed = keyed
        self.all: list[tuple[int, bytes | None, bytes | None]] = []
        self.now_ms = NOW
        self.sequences = {7: 0, 8: 0}

    def put(self, items: list[Item], codec: Compression, producer: int | None) -> None:
        fields: Any = {}
        if producer is not None:
            fields = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences[producer],
            }
            self.sequences[producer] += len(items)
        first = self.keyed.put(*items, compression=codec, **fields)
        self.all += [(first + n, key, value) for n, (key, value) in enumerate(items)]

    def check(self) -> None:
        """Nothing that is there was never written; nothing that must be there is missing."""
        keyed = self.keyed
        found = keyed.items()
        end = keyed.cleaned_before
        assert set(found) <= set(self.all)
        assert [item for item in found if item[0] >= end] == [
            item for item in self.all if item[0] >= end
        ]
        latest = {key: offset for offset, key, _ in self.all if offset < end and key is not None}
        for offset, key, _ in found:
            assert offset >= end or (key is not None and latest[key] <= offset)
        there = {key: value for _, key, value in found if key is not None}
        for key, value in {key: value for _, key, value in self.all if key is not None}.items():
            assert there.get(key) == value  # a tombstone, or nothing
        keyed.check()


def run(steps: list[tuple[str, Any]], directory: Path) -> None:
    keyed = KeyedLog(
        directory, segment_bytes=1600, delete_retention_ms=1000, index_interval_bytes=50
    )
    model = Model(keyed)
    for what, detail in steps:
        if what == "put":
            model.put(*detail)
        elif what == "roll":
            keyed.roll()
        elif what == "pass time":
            model.now_ms += detail
        elif what == "open":
            keyed.log.flush()
            keyed.reopen(clean=detail)
        elif what == "cut":
            end = max(keyed.log.log_end_offset - detail, 0)
            end = keyed.log.truncate_to(end)
            keyed.cleaned_before = min(keyed.cleaned_before, end)
            if keyed.cleaned_before < end or detail:
                _forget(model, end)
        else:
            keyed.clean(buffers=Buffers(detail, 0.9, 300), now_ms=model.now_ms)
        model.check()


def _forget(model: Model, end: int) -> None:
    """What was cut off may have made older records go: those keys are as what is left says."""
    model.all = [item for item in model.all if item[0] < end]
    found = set(model.keyed.items())
    gone = {key for _, key, _ in model.all} - {key for _, key, _ in found}
    model.all = [item for item in model.all if item in found or item[1] in gone]
    model.all = [item for item in model.all if item in found]
    model.sequences = {
        one: max(
            (p.last_sequence + 1 for p in model.keyed.log.producers if p.producer_id == one),
            default=0,
        )
        for one in model.sequences
    }


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STEPS)
def test_any_life_of_a_log(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    run(steps, tmp_path_factory.mktemp("topic-0"))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STEPS)
def test_twenty_thousand_lives(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    run(steps, tmp_path_factory.mktemp("topic-0"))
