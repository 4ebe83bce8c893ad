"""The spool: what is kept comes back, in order, once it must, whoever dies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qbus import Producer
from qbus.clients.spool import QueueName, Spool, SpoolQueue, SpoolWriter, layout, writer
from qbus.errors import ApiError, ConfigError
from qbus.records import CorruptBatch, build_batch, iter_records


def batch(*values: bytes) -> bytearray:
    return build_batch([(None, value, (), 1_700_000_000_000) for value in values])


def kept(queue: SpoolQueue) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for _, data in queue.batches()
        for record in iter_records(memoryview(data))
    ]


def only_queue(directory: Path) -> SpoolQueue:
    (queue,) = Spool(directory).queues()
    return queue


def only_segment(directory: Path) -> Path:
    (segment,) = directory.glob("*/*/*.log")
    return segment


def test_what_is_kept_comes_back_in_order(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool") as spool:
        spool.append("t", 3, batch(b"a", b"b"))
        spool.append("t", 3, batch(b"c"))
        spool.append("t", None, batch(b"anywhere"))
    queues = {queue.name: kept(queue) for queue in Spool(tmp_path / "spool").queues()}
    assert queues == {
        QueueName("t", 3): [(0, b"a"), (1, b"b"), (2, b"c")],
        QueueName("t", None): [(0, b"anywhere")],
    }


def test_nothing_is_made_before_the_first_batch(tmp_path: Path) -> None:
    SpoolWriter(tmp_path / "spool").close()
    assert not (tmp_path / "spool").exists()
    assert Spool(tmp_path / "spool").queues() == []


@pytest.mark.parametrize("exists", [True, False])
def test_trying_a_directory_leaves_no_trace(tmp_path: Path, exists: bool) -> None:
    directory = tmp_path / "spool"
    if exists:
        directory.mkdir()
    SpoolWriter(directory).check()
    assert list(tmp_path.rglob("*")) == [directory] * exists


def test_trying_a_directory_in_one_that_is_missing_leaves_no_trace(tmp_path: Path) -> None:
    SpoolWriter(tmp_path / "missing" / "spool").check()
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_spool(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "spool"):
        with pytest.raises(NotADirectoryError):
            SpoolWriter(path).check()


def test_a_directory_that_cannot_be_written_is_found_before_it_is_needed() -> None:
    with pytest.raises(OSError, match="/sys/"):
        SpoolWriter("/sys/spool").check()
    with pytest.raises(ConfigError, match=r"spool_dir='/sys/spool': "):
        Producer("127.0.0.1:1", spool_dir="/sys/spool")


def test_what_is_acknowledged_does_not_come_back(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as spool:
        spool.append("t", 0, batch(b"a", b"b"))
        spool.append("t", 0, batch(b"c"))
    only_queue(tmp_path).acknowledge(2)
    assert kept(only_queue(tmp_path)) == [(2, b"c")]


def test_files_go_when_all_of_them_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SEGMENT_BYTES", 1)
    with SpoolWriter(tmp_path) as spool:
        for value in (b"a", b"b", b"c"):
            spool.append("t", 0, batch(value))
    queue = only_queue(tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*/*/*.log"))
    assert names == [layout.segment_name(offset) for offset in (0, 1, 2)]
    queue.acknowledge(2)
    assert only_segment(tmp_path).name == layout.segment_name(2)
    assert kept(queue) == [(2, b"c")]


def test_a_queue_goes_when_its_writer_is_gone_and_all_is_delivered(tmp_path: Path) -> None:
    spool = SpoolWriter(tmp_path)
    spool.append("t", 0, batch(b"a"))
    queue = only_queue(tmp_path)
    queue.acknowledge(1)
    assert not queue.remove_if_done()
    spool.close()
    assert queue.remove_if_done()
    Spool(tmp_path).clean()
    assert list(tmp_path.iterdir()) == []


def test_a_queue_stays_while_something_in_it_is_not_delivered(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as spool:
        spool.append("t", 0, batch(b"a"))
    assert not only_queue(tmp_path).remove_if_done()
    Spool(tmp_path).clean()
    assert kept(only_queue(tmp_path)) == [(0, b"a")]


def test_several_writers_keep_out_of_each_others_way(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as first, SpoolWriter(tmp_path) as second:
        first.append("t", 0, batch(b"first"))
        second.append("t", 0, batch(b"second"))
    assert [kept(queue) for queue in Spool(tmp_path).queues()] == [
        [(0, b"first")],
        [(0, b"second")],
    ]


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 68])
def test_a_batch_that_was_never_finished_is_passed_over(tmp_path: Path, cut: int) -> None:
    with SpoolWriter(tmp_path) as spool:
        spool.append("t", 0, batch(b"whole"))
        spool.append("t", 0, batch(b"cut"))
    segment = only_segment(tmp_path)
    os.truncate(segment, len(batch(b"whole")) + cut)
    assert kept(only_queue(tmp_path)) == [(0, b"whole")]


def test_damage_before_the_end_is_reported_and_nothing_is_removed(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as spool:
        for value in (b"good", b"bad", b"good again"):
            spool.append("t", 0, batch(value))
    segment = only_segment(tmp_path)
    data = bytearray(segment.read_bytes())
    data[len(batch(b"good")) + 65] ^= 1
    segment.write_bytes(data)
    queue = only_queue(tmp_path)
    batches = queue.batches()
    assert next(batches)[0].base_offset == 0
    with pytest.raises(CorruptBatch, match=r"\.log, at byte \d+: CRC"):
        next(batches)
    queue.acknowledge(1)
    with pytest.raises(CorruptBatch):
        queue.remove_if_done()
    assert segment.exists()


@pytest.mark.parametrize("at", [3, 8, 16, 17, 23, 57, 64])
@pytest.mark.parametrize("damaged", [0, 1])
def test_what_is_whole_behind_damage_is_found(tmp_path: Path, at: int, damaged: int) -> None:
    size = 0
    with SpoolWriter(tmp_path) as spool:
        for number in range(4):
            spool.append("t", 0, one := batch(b"%d" % number))
            size = len(one)
    segment = only_segment(tmp_path)
    content = bytearray(segment.read_bytes())
    content[damaged * size + at] ^= 0x5A
    segment.write_bytes(content)
    told: list[CorruptBatch] = []
    values = [
        record.value
        for _, data in only_queue(tmp_path).batches(lambda _, damage: told.append(damage))
        for record in iter_records(memoryview(data))
    ]
    is_harmless = at == 3  # the offset, which follows from what is before it
    assert len(told) == (not is_harmless)
    lost = set() if is_harmless else {damaged}
    assert values == [b"%d" % number for number in range(4) if number not in lost]


def test_a_wrong_offset_is_put_right(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as spool:
        for number in range(3):
            spool.append("t", 0, batch(b"%d" % number))
    segment = only_segment(tmp_path)
    segment.write_bytes(b"\0\0\1" + segment.read_bytes()[3:])
    offsets = [header.base_offset for header, _ in only_queue(tmp_path).batches()]
    assert offsets == [0, 1, 2]


def test_bytes_that_all_look_like_headers_are_searched_quickly(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as spool:
        spool.append("t", 0, batch(b"a"))
    segment = only_segment(tmp_path)
    segment.write_bytes(bytes([2]) * 1_000_000 + segment.read_bytes())
    told: list[CorruptBatch] = []
    found = list(only_queue(tmp_path).batches(lambda _, damage: told.append(damage)))
    assert len(found) == len(told) == 1


@pytest.mark.parametrize("topic", ["", "..", "a/b", "../../etc", "a" * 250, "a\0b"])
def test_no_topic_climbs_out_of_the_directory(tmp_path: Path, topic: str) -> None:
    with SpoolWriter(tmp_path) as spool, pytest.raises(ApiError):
        spool.append(topic, 0, batch(b"a"))


@pytest.mark.parametrize("name", ["t", "t-", "-1", "t--1", "t-01", "..-1/", "t-any-", "a b-1"])
def test_other_directories_are_no_queues(name: str) -> None:
    found = layout.parse_queue(name)
    assert found is None or found.to_path() == name
    assert name == "t--1" or found is None


@pytest.mark.parametrize("partition", [None, 0, 7, 2**31 - 1])
@pytest.mark.parametrize("topic", ["t", "t-1", "a.b_c", "any", "t-any"])
def test_a_queues_name_is_read_back(topic: str, partition: int | None) -> None:
    queue = QueueName(topic, partition)
    assert layout.parse_queue(queue.to_path()) == queue


def test_what_is_no_batch_is_refused(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as spool, pytest.raises(CorruptBatch):
        spool.append("t", 0, b"no batch")


def test_a_closed_writer_takes_nothing(tmp_path: Path) -> None:
    spool = SpoolWriter(tmp_path)
    spool.close()
    with pytest.raises(ValueError, match="closed"):
        spool.append("t", 0, batch(b"a"))


def test_a_full_disk_keeps_what_was_kept_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_write(file: int, position: int, data: bytes | bytearray) -> None:
        os.pwrite(file, data[:10], position)
        raise OSError(28, "no space left on device")

    with SpoolWriter(tmp_path) as spool:
        spool.append("t", 0, batch(b"a"))
        with monkeypatch.context() as patch:
            patch.setattr(writer, "write_all", cut_write)
            with pytest.raises(OSError, match="no space"):
                spool.append("t", 0, batch(b"lost"))
        spool.append("t", 0, batch(b"b"))
    assert kept(only_queue(tmp_path)) == [(0, b"a"), (1, b"b")]


_KILLED = """
import sys
from qbus.clients.spool import SpoolWriter
from qbus.records import build_batch
spool = SpoolWriter(sys.argv[1])
for number in range(1_000_000):
    spool.append("t", 0, build_batch([(None, b"%d" % number, (), 0)]))
    print(number, flush=True)
"""


def test_what_was_kept_survives_the_death_of_the_writer(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        told = 20 + len(process.stdout.read().splitlines())
    found = kept(only_queue(tmp_path))
    assert found == [(offset, b"%d" % offset) for offset in range(len(found))]
    assert len(found) >= told
    queue = only_queue(tmp_path)
    queue.acknowledge(len(found))
    assert queue.remove_if_done()
