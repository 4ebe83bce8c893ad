"""A tailed file on a real file system."""

import gzip
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from qbus.agent.config import Source, Tailing
from qbus.agent.positions import Position, Positions
from qbus.agent.positions.position import NOTHING, Fingerprint, Identity
from qbus.agent.tailing.descriptors import Descriptors
from qbus.agent.tailing.file import Change, TailedFile, compare
from qbus.agent.tailing.framing import Flush
from qbus.agent.tailing.source import SourceReader
from qbus.clock import ManualClock

Follow = Callable[..., TailedFile]
MOST = 64


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    positions = Positions(tmp_path / "data", ManualClock())

    def follow(path: Path, **settings: object) -> TailedFile:
        config = Source(paths=(str(path),), topic="lines", **settings)  # type: ignore[arg-type]
        source = SourceReader(config, Tailing(), positions, "host")
        position = Position(Identity.of(path.stat()), "lines", str(path))
        positions.add(position)
        return TailedFile(str(path), position, source)

    return follow


def read(file: TailedFile) -> list[bytes]:
    """All records that there are now."""
    file.refresh(0.0)
    found: list[bytes] = []
    while (chunk := file.read_chunk(MOST)) is not None:
        found += chunk.values
        file.acknowledge(chunk)
    return found


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_an_unfinished_line_is_read_when_it_is_finished(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntw")
    file = follow(path)
    assert read(file) == [b"one"]
    assert (file.rest, file.position.offset) == (2, 4)
    append(path, b"o\n")
    assert read(file) == [b"two"]
    assert file.is_read


def test_the_last_chunk_of_a_file_is_known_by_a_read_that_reaches_its_end(
    tmp_path: Path, follow: Follow
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 40 + b"\n" + b"y" * 40 + b"\n")
    file = follow(path)
    file.refresh(0.0)
    first, second = file.read_chunk(MOST), file.read_chunk(MOST)
    assert first is not None
    assert second is not None
    assert (first.is_last, second.is_last) == (False, True)
    append(path, b"whole\nunfin")
    third = file.read_chunk(MOST)
    assert third is not None
    assert not third.is_last, "what is unfinished is looked at again"


def test_more_is_read_than_a_file_was_known_to_have(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    file = follow(path)
    file.refresh(0.0)
    lines = [b"%0100d" % number for number in range(5000)]
    append(path, b"".join(line + b"\n" for line in lines))
    found: list[bytes] = []
    while (chunk := file.read_chunk(1 << 20)) is not None:
        found += chunk.values
    assert found == [b"one", *lines]
    assert file.is_read


def test_a_closed_file_is_reopened_where_it_was(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    file = follow(path)
    read(file)
    file.close()
    append(path, b"two\n")
    assert read(file) == [b"two"]


def test_a_truncated_file_is_read_from_its_start(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    file = follow(path)
    read(file)
    path.write_bytes(b"three\n")
    assert file.refresh(0.0) is Change.RESTARTED
    assert read(file) == [b"three"]
    (former,) = file.position.formers
    assert (former.offset, former.tail) == (8, (8, zlib.crc32(b"one\ntwo\n")))


def test_a_truncated_file_that_grew_larger_is_noticed(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    file = follow(path)
    read(file)
    path.write_bytes(b"another one\nanother two\n")
    assert read(file) == [b"another one", b"another two"]


def test_a_file_truncated_and_refilled_between_reads_is_read_from_its_start(
    tmp_path: Path, follow: Follow
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    file = follow(path)
    read(file)
    append(path, b"three\n")
    file.refresh(0.0)
    path.write_bytes(b"another one\nanother two\n")
    chunk = file.read_chunk(MOST)
    assert chunk is not None
    assert not chunk.values
    assert read(file) == [b"another one", b"another two"]


@pytest.mark.parametrize("behind", [b"new lines\n" * 300, b"an unfinished one" * 200])
def test_a_long_file_that_was_emptied_and_refilled_is_read_from_its_start(
    tmp_path: Path, follow: Follow, behind: bytes
) -> None:
    """Also where nothing behind the place that was reached is a whole line."""
    path = tmp_path / "a.log"
    old = [b"%05d of the old lines" % number for number in range(100)]
    path.write_bytes(b"\n".join(old) + b"\n")
    file = follow(path)
    assert read(file) == old
    append(path, b"one more\n")
    assert read(file) == [b"one more"]
    path.write_bytes(b"first\n" + behind)
    assert path.stat().st_size > file.read
    assert read(file) == [b"first", *behind.split(b"\n")[:-1]]


def test_of_a_file_that_grows_the_first_bytes_are_read_once_for_each_read(
    tmp_path: Path, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a line\n" * 1000)
    file = follow(path)
    read(file)
    append(path, b"more\n")
    reads: list[int] = []
    pread = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        reads.append(offset)
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counting)
    assert read(file) == [b"more"]
    assert reads.count(0) == 1


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the size of a file was asked for: its descriptor, each time."""
    found: list[int] = []
    fstat = os.fstat

    def counting(descriptor: int) -> os.stat_result:
        found.append(descriptor)
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", counting)
    return found


def begun(path: Path, follow: Follow, content: bytes) -> TailedFile:
    """A file that was read to its end, and whose head is known."""
    path.write_bytes(content)
    file = follow(path)
    file.has_begun = True
    assert read(file) == content.splitlines()
    return file


LONG = b"a line of a log\n" * 20


def test_a_file_that_is_said_to_be_written_to_is_read_on_without_another_look(
    tmp_path: Path, follow: Follow, looks: list[int]
) -> None:
    path = tmp_path / "a.log"
    file = begun(path, follow, LONG)
    looks.clear()
    append(path, b"more\nand m")
    assert file.note_write(5.0)
    chunk = file.read_chunk(1 << 20)
    assert chunk is not None
    assert [*chunk.values] == [b"more"]
    assert not file.is_written
    assert (file.is_read, file.size, file.rest) == (True, len(LONG) + 10, 5)
    assert not looks


def test_more_than_is_read_at_first_is_known_to_be_there(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    file = begun(path, follow, LONG)
    lines = [b"%0100d" % number for number in range(500)]
    append(path, b"".join(line + b"\n" for line in lines))
    assert file.note_write(5.0)
    found: list[bytes] = []
    while (chunk := file.read_chunk(1 << 20)) is not None and chunk.values:
        found += chunk.values
        assert file.size == path.stat().st_size
        assert file.is_read or not chunk.is_last
    assert found == lines


@pytest.mark.parametrize("content", [b"", b"new\n", LONG])
def test_what_was_truncated_is_still_to_be_looked_at(
    tmp_path: Path, follow: Follow, content: bytes
) -> None:
    path = tmp_path / "a.log"
    file = begun(path, follow, LONG)
    path.write_bytes(content)
    assert file.note_write(5.0)
    assert file.read_chunk(1 << 20) is None
    assert file.is_written
    assert file.refresh(5.0) is (Change.NONE if content == LONG else Change.RESTARTED)
    assert not file.is_written


def test_when_a_change_was_noticed_is_when_it_was_said(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    file = begun(path, follow, LONG)
    append(path, b"more\n")
    assert file.note_write(5.0)
    assert file.read_chunk(1 << 20) is not None
    file.refresh(9.0)
    assert file.changed_at == 5.0
    append(path, b"more\n")
    file.refresh(10.0)
    assert file.changed_at == 10.0


def test_a_file_with_something_to_be_read_stays_open(tmp_path: Path, follow: Follow) -> None:
    """It may take hours until there is room, and the file be deleted meanwhile."""
    path = tmp_path / "a.log"
    file = begun(path, follow, LONG)
    descriptors = Descriptors(16)
    descriptors.used(file)
    append(path, b"more\n")
    assert file.note_write(5.0)
    descriptors.close_idle(1e6)
    path.unlink()
    chunk = file.read_chunk(1 << 20)
    assert chunk is not None
    assert [*chunk.values] == [b"more"]
    descriptors.close_idle(1e6)
    assert not len(descriptors)


@pytest.mark.parametrize("state", ["is_new", "is_rotated"])
def test_a_file_that_may_be_another_one_is_looked_at(
    tmp_path: Path, follow: Follow, state: str
) -> None:
    path = tmp_path / "a.log"
    file = begun(path, follow, LONG)
    setattr(file, state, True)
    assert not file.note_write(5.0)
    setattr(file, state, False)
    assert file.note_write(5.0)
    file.close()
    assert not file.note_write(5.0)


def test_how_long_the_oldest_byte_has_been_waiting(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    file = begun(path, follow, LONG)
    chunks = []
    for now in (5.0, 7.0):
        append(path, b"more\n")
        assert file.note_write(now)
        chunks.append(file.read_chunk(1 << 20))
    for chunk, since in zip(chunks, (5.0, 7.0), strict=True):
        assert chunk is not None
        assert file.acks.since == since
        file.acknowledge(chunk)
    assert file.acks.since is None
    assert file.behind_since is None


def test_another_file_with_the_same_inode_and_head_is_read_from_its_start(
    tmp_path: Path, follow: Follow
) -> None:
    """The head of a log may be the same for all of its files, such as names of columns."""
    path = tmp_path / "a.log"
    file = begun(path, follow, LONG + b"one\ntwo\n")
    file.close()
    path.write_bytes(LONG + b"six\nten\nand more\n")
    assert read(file) == (LONG + b"six\nten\nand more\n").splitlines()


def test_chunks_in_flight_at_a_truncation_do_not_advance_the_position(
    tmp_path: Path, follow: Follow
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    file = follow(path)
    file.refresh(0.0)
    chunk = file.read_chunk(MOST)
    assert chunk is not None
    path.write_bytes(b"three\n")
    file.refresh(0.0)
    file.acknowledge(chunk)
    assert file.position.offset == 0
    assert file.position.formers[0].offset == 8, "its copy is read from there"


def test_acknowledgements_out_of_order_wait_for_the_first(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 60 + b"\n" + b"y" * 60 + b"\n")
    file = follow(path)
    file.refresh(0.0)
    first, second = file.read_chunk(MOST), file.read_chunk(MOST)
    assert first is not None
    assert second is not None
    file.acknowledge(second)
    assert file.position.offset == 0
    file.acknowledge(first)
    assert file.position.offset == 122


def test_another_file_at_the_path_is_not_read(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    file = follow(path)
    path.rename(tmp_path / "a.log.1")
    path.write_bytes(b"two\n")
    with pytest.raises(FileNotFoundError):
        file.refresh(0.0)


def test_a_deleted_file_is_read_to_its_end(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    file = follow(path)
    file.refresh(0.0)
    append(path, b"two\nthr")
    path.unlink()
    assert read(file) == [b"one", b"two"]
    assert file.is_gone
    file.flush = Flush.ALL
    assert read(file) == [b"thr"]


def test_a_fifo_does_not_block(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    os.mkfifo(path)
    with pytest.raises(FileNotFoundError):
        follow(path).refresh(0.0)


@pytest.mark.parametrize("size", [100, 5000, 100_000])
def test_a_long_line_is_cut_in_bounded_steps(tmp_path: Path, follow: Follow, size: int) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a" * size)
    file = follow(path, line_limit_bytes=32, line_too_long="truncate", truncation_marker="..")
    assert read(file) == []
    append(path, b"\nnext\n")
    assert read(file) == [b"a" * 30 + b"..", b"next"]
    assert file.position.offset == size + 6


@pytest.mark.parametrize("size", [100, 5000])
def test_a_character_in_a_long_line_that_is_written_in_parts(
    tmp_path: Path, follow: Follow, size: int
) -> None:
    """Else the end of the line is looked for where no character begins, and is never found."""
    path = tmp_path / "a.log"
    path.write_bytes(("a" * size).encode("utf-16-le") + b"b")
    truncating = {"line_too_long": "truncate", "truncation_marker": ".."}
    file = follow(path, encoding="utf-16-le", line_limit_bytes=64, **truncating)
    assert read(file) == []
    append(path, b"\0c")
    assert read(file) == []
    assert file.is_read
    append(path, b"\0\n")
    assert read(file) == []
    append(path, b"\0" + "next\n".encode("utf-16-le"))
    assert read(file) == [b"a" * 30 + b"..", b"next"]


@pytest.mark.parametrize("size", [40, 200, 5000])
def test_a_file_that_was_left_behind_a_long_line_is_known_again(
    tmp_path: Path, follow: Follow, size: int
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a" * size)
    file = follow(path, line_limit_bytes=32, line_too_long="truncate", truncation_marker="..")
    assert read(file) == []
    append(path, b"\n")
    assert read(file) == [b"a" * 30 + b".."]
    file.close()
    append(path, b"next\n")
    assert read(file) == [b"next"]
    assert file.incarnation == 0


def test_a_long_line_is_split_in_bounded_steps(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a" * 1000 + b"\nnext\n")
    values = read(follow(path, line_limit_bytes=32))
    assert max(map(len, values)) == 32
    assert b"".join(values) == b"a" * 1000 + b"next"


def test_a_hole_is_skipped(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"before\n")
    file = follow(path)
    read(file)
    with path.open("r+b") as sparse:
        sparse.seek(100_000_000)
        sparse.write(b"after\n")
    if path.stat().st_blocks * 512 > 10_000_000:
        pytest.skip("a file system without holes")
    values = read(file)
    assert values[-1].endswith(b"after")
    assert sum(map(len, values)) < 100_000


def test_packed_lines_are_read_once(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log.gz"
    lines = [b"line %d" % number for number in range(500)]
    path.write_bytes(
        gzip.compress(b"\n".join(lines[:250]) + b"\n") + gzip.compress(b"\n".join(lines[250:]))
    )
    file = follow(path, gzip=True)
    assert read(file) == lines
    assert file.is_read
    file.note_if_done()
    assert file.position.is_done


def test_an_unfinished_packed_file_is_waited_for(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log.gz"
    packed = gzip.compress(b"".join(b"%d\n" % number for number in range(1000)))
    path.write_bytes(packed[:800])
    file = follow(path, gzip=True)
    values = read(file)
    assert not file.is_read
    append(path, packed[800:])
    assert values + read(file) == [b"%d" % number for number in range(1000)]
    assert file.is_read


def test_a_damaged_gzip_file_is_an_error(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(b"plain text")
    with pytest.raises(OSError, match="damaged gzip"):
        read(follow(path, gzip=True))


def test_a_file_grows() -> None:
    assert compare(23, 30, begins_alike=True) is Change.GROWN
    assert compare(23, 23, begins_alike=True) is Change.NONE


def test_a_file_smaller_than_its_read_offset_was_truncated() -> None:
    assert compare(100, 23, begins_alike=True) is Change.RESTARTED
    assert compare(100, 0, begins_alike=True) is Change.RESTARTED


def test_another_head_is_another_file_even_if_it_is_larger() -> None:
    assert compare(23, 500, begins_alike=False) is Change.RESTARTED


def test_a_head_is_compared_as_far_as_it_is_known() -> None:
    assert Fingerprint.of(b"first").matches(b"first line")
    assert not Fingerprint.of(b"first").matches(b"firs")
    assert NOTHING.matches(b"any other!")


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_another_head_is_noticed_however_often_it_was_looked_at(
    tmp_path: Path, follow: Follow, looks: int
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    file = follow(path)
    for _ in range(looks):
        assert file.refresh(0.0) is not Change.RESTARTED
    read(file)
    with path.open("r+b") as changed:
        changed.write(b"One")
    append(path, b"three\n")
    assert file.refresh(0.0) is Change.RESTARTED
    assert read(file) == [b"One", b"two", b"three"]
    with path.open("r+b") as changed:
        changed.write(b"one")
    assert file.refresh(0.0) is Change.RESTARTED
    assert read(file) == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("utf-16", "utf-16-be"),
        ("utf-16", "utf-16-le"),
        ("utf-32-le", "utf-32-le"),
        ("utf-32-be", "utf-32-be"),
        ("utf-32", "utf-32-be"),
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_byte_order_mark_belongs_to_no_record(
    tmp_path: Path, follow: Follow, encoding: str, written: str, suffix: str
) -> None:
    path = tmp_path / f"a.log{suffix}"
    lines = [f"line {number}" for number in range(100)]
    for mark in ("\ufeff", ""):
        if encoding == "utf-16" and written == "utf-16-be" and not mark:
            continue  # without a mark it is taken for little-endian
        if encoding == "utf-32" and not mark:
            continue
        content = (mark + "\n".join([*lines, ""])).encode(written)
        path.write_bytes(gzip.compress(content) if suffix else content)
        file = follow(path, encoding=encoding, gzip=True)
        assert read(file) == [line.encode() for line in lines]
        assert file.position.offset == len(content)


def test_a_mark_is_told_by_its_bytes_however_few_are_there_at_first(
    tmp_path: Path, follow: Follow
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\xfe")
    file = follow(path, encoding="utf-16")
    assert read(file) == []
    append(path, b"\xff" + "one\n".encode("utf-16-be"))
    assert read(file) == [b"one"]
    path.write_bytes("\ufefftwo\n".encode("utf-16-le"))
    assert read(file) == [b"two"], "the content after a truncation has a mark as well"


def test_a_truncation_is_said_and_counted(
    tmp_path: Path, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "a.log"
    path.write_bytes(b"first line\n")
    file = follow(path)
    read(file)
    path.write_bytes(b"second\n")
    assert read(file) == [b"second"]
    assert (file.truncations, file.source.truncations) == (1, 1)
    (said,) = caplog.records
    assert said.levelno == logging.INFO
    assert said.getMessage().startswith(f"{path} was truncated or written over")
    assert "11 bytes were read" in said.getMessage()


def test_bytes_that_were_not_read_before_a_truncation_are_a_warning(
    tmp_path: Path, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"first line\n")
    file = follow(path)
    read(file)
    append(path, b"the second line\n")
    file.refresh(0.0)
    path.write_bytes(b"third\n")
    assert read(file) == [b"third"]
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    assert "16 bytes were not: they are in a copy of it, or lost" in said.getMessage()


def test_a_file_that_was_read_and_replaced_between_reads_is_counted_once(
    tmp_path: Path, follow: Follow
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 300 + b"\n")
    file = follow(path)
    read(file)
    append(path, b"more\n")
    file.refresh(0.0)
    path.write_bytes(b"y" * 400 + b"\n")
    while file.read_chunk(1000) is not None:
        pass
    assert file.truncations == 1


def test_another_file_with_the_inode_is_no_truncation(
    tmp_path: Path, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "a.log"
    path.write_bytes(b"first line\n")
    file = follow(path)
    read(file)
    path.write_bytes(b"another\n")
    later = TailedFile(str(path), file.position, file.source)
    assert read(later) == [b"another"]
    assert later.truncations == 0
    assert f"{path} is another file than before, or was truncated" in caplog.text
    assert "it is read from its start, not from byte 11" in caplog.text
