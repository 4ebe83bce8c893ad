"""Files are recognized through rotations and restarts, although inodes are reused.

A listing is scripted: it may tell of a file at a path that something else has taken since.
"""

import gzip
import logging
import zlib
from pathlib import Path

import pytest

from qbus.agent.config import Source, Tailing
from qbus.agent.positions import Position, Positions
from qbus.agent.positions.position import Fingerprint, Identity
from qbus.agent.positions.positions import EXPIRY_MS
from qbus.agent.tailing.discovery import FoundFile, ScanResult
from qbus.agent.tailing.file import TailedFile
from qbus.agent.tailing.registry import Registry
from qbus.agent.tailing.source import SourceReader
from qbus.clock import ManualClock

LOG = b"".join(b"old %05d\n" % number for number in range(200))
OTHER = b"".join(b"new %05d\n" % number for number in range(200))


class World:
    """A directory of logs, and a registry that is shown what it holds."""

    def __init__(self, directory: Path) -> None:
        self.logs = directory
        self.clock = ManualClock()
        self.positions = Positions(directory / "data", self.clock)
        paths = (f"{directory}/app.log*",)
        config = Source(paths=paths, topic="lines", from_beginning=True, gzip=True)
        self.source = SourceReader(config, Tailing(), self.positions, "host")
        self.registry = Registry([self.source], self.positions, self.clock)

    def put(self, name: str, data: bytes) -> Identity:
        path = self.logs / name
        path.write_bytes(data)
        return Identity.of(path.stat())

    def known(self, identity: Identity, data: bytes, offset: int) -> Position:
        """What an agent remembers that delivered ``data`` up to ``offset``, and was killed."""
        position = Position(identity, "lines", f"{self.logs}/app.log")
        position.fingerprint = Fingerprint.of(data[: self.source.fingerprint_bytes])
        tail = data[offset - 256 : offset]
        position.offset, position.tail = offset, (len(tail), zlib.crc32(tail))
        self.positions.add(position)
        return position

    def see(self, **listing: Identity) -> list[TailedFile]:
        """One look; names are written with ``_`` for a dot."""
        return self.take_in(self.paths(), **listing)

    def paths(self) -> dict[TailedFile, str]:
        return {file: file.path for file in self.registry.files.values()}

    def take_in(self, paths: dict[TailedFile, str], **listing: Identity) -> list[TailedFile]:
        """The end of a look that began when files had those paths."""
        files = []
        for name, identity in listing.items():
            path = f"{self.logs}/{name.replace('_', '.')}"
            files.append(FoundFile(path, self.source, identity, 1, 1))
        self.registry.update(ScanResult(files, [], set(), {}, []), paths)
        return [self.registry.files[identity, "lines"] for identity in listing.values()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def read(world: World, file: TailedFile) -> bytes:
    """Everything that is shipped of a file that need not wait."""
    file.refresh(0.0)
    assert not world.registry.is_waiting(file)
    found = []
    while (chunk := file.read_chunk(4096)) is not None:
        found += [value + b"\n" for value in chunk.values]
    return b"".join(found)


def test_a_file_being_packed_is_not_the_former_file_of_its_inode(world: World) -> None:
    inode = world.put("pack.tmp", gzip.compress(OTHER))
    (file,) = world.see(app_log_1=inode)
    assert not world.registry.find(file)


def test_an_empty_file_is_not_the_former_file_of_its_inode(world: World) -> None:
    inode = world.put("pack.tmp", b"")
    (file,) = world.see(app_log_1=inode)
    assert not world.registry.find(file)


def test_a_file_that_was_renamed_before_it_was_opened_is_found(world: World) -> None:
    inode = world.put("away.1", LOG)
    (file,) = world.see(app_log=inode)
    assert world.registry.find(file)
    assert read(world, file) == LOG


def test_a_file_with_another_head_is_not_the_one_that_was_renamed(world: World) -> None:
    inode = world.put("away.1", OTHER)
    world.known(inode, LOG, 1000)
    (file,) = world.see(app_log=inode)
    assert not world.registry.find(file)


def test_a_file_that_turns_out_to_be_packed_is_unpacked(world: World) -> None:
    inode = world.put("app.log.3", gzip.compress(OTHER))
    (file,) = world.see(app_log_3=inode)
    file.refresh(0.0)
    (world.logs / "app.log.3").rename(world.logs / "app.log.3.gz")
    (file,) = world.see(app_log_3_gz=inode)
    assert read(world, file) == OTHER


def test_the_rest_of_a_file_deleted_while_no_agent_ran_is_read_from_its_copy(
    world: World,
) -> None:
    reused = world.put("pack.tmp", gzip.compress(OTHER))
    world.known(reused, LOG, 1000).partition = 5
    copy_inode = world.put("app.log.2.gz", gzip.compress(LOG))
    original, copy = world.see(app_log_1=reused, app_log_2_gz=copy_inode)
    copy.refresh(0.0)
    assert world.registry.is_waiting(copy), "its original may go on"
    original.is_gone = not world.registry.find(original)
    assert original.is_gone
    assert read(world, copy) == LOG[1000:]
    assert copy.position.partition == 5, "where the lines before went, so that they stay in order"


def pack_in_steps(world: World) -> tuple[TailedFile, TailedFile, bytes]:
    """A file of which all was shipped, and its gzip file, which is still empty."""
    inode = world.put("app.log.1", LOG)
    world.known(inode, LOG, len(LOG)).path = f"{world.logs}/app.log.1"
    original, copy = world.see(app_log_1=inode, app_log_1_gz=world.put("app.log.1.gz", b""))
    original.refresh(0.0)
    return original, copy, gzip.compress(LOG)


@pytest.mark.parametrize("written", [0, 5, 60, 150])
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_gzip_file_is_judged_when_it_is_whole(
    world: World, written: int, has_ended: bool
) -> None:
    original, copy, packed = pack_in_steps(world)
    original.is_gone = has_ended
    for size in (0, written, len(packed) // 2):
        world.put("app.log.1.gz", packed[:size])
        copy.refresh(0.0)
        assert world.registry.is_waiting(copy), f"{size} bytes of it are written"
    world.put("app.log.1.gz", packed)
    original.is_gone = True
    assert read(world, copy) == b"", "all of it was shipped"


def test_a_gzip_file_that_is_never_finished_is_read_in_the_end(world: World) -> None:
    original, copy, _ = pack_in_steps(world)
    original.is_gone = True
    world.put("app.log.1.gz", gzip.compress(OTHER)[:60])
    copy.refresh(0.0)
    assert world.registry.is_waiting(copy)
    world.clock.advance(61)
    copy.refresh(0.0)
    assert not world.registry.is_waiting(copy)


def test_a_gzip_file_that_is_found_after_its_original_was_left_is_known(world: World) -> None:
    inode = world.put("app.log.1", LOG)
    world.known(inode, LOG, len(LOG)).path = f"{world.logs}/app.log.1"
    (original,) = world.see(app_log_1=inode)
    copy_inode = world.put("app.log.1.gz", gzip.compress(LOG))
    original.is_gone = True
    world.registry.remove(original)
    (copy,) = world.see(app_log_1_gz=copy_inode)
    assert read(world, copy) == b""


def test_a_deleted_file_is_remembered_for_a_while(world: World) -> None:
    inode = world.put("app.log.1", LOG)
    world.known(inode, LOG, len(LOG)).path = f"{world.logs}/app.log.1"
    (original,) = world.see(app_log_1=inode)
    original.is_gone = True
    world.registry.remove(original)
    world.see()
    world.clock.advance(601)
    world.see()
    (copy,) = world.see(app_log_1_gz=world.put("app.log.1.gz", gzip.compress(LOG)))
    assert read(world, copy) == LOG


def test_a_gzip_file_that_no_agent_judged_is_judged_by_the_next_one(world: World) -> None:
    _, copy, packed = pack_in_steps(world)
    world.put("app.log.1.gz", packed)
    (world.logs / "app.log.1").unlink()
    world.registry = Registry([world.source], world.positions, world.clock)
    (copy,) = world.see(app_log_1_gz=copy.identity)
    assert read(world, copy) == b""


def test_a_copy_does_not_wait_for_another_file_with_its_originals_inode(world: World) -> None:
    reused = world.put("app.log.3.gz", gzip.compress(OTHER))
    world.known(reused, LOG, 1000)
    copy_inode = world.put("app.log.2.gz", gzip.compress(LOG))
    original, copy = world.see(app_log_1=reused, app_log_2_gz=copy_inode)
    copy.refresh(0.0)
    assert world.registry.is_waiting(copy)
    original.is_gone = True
    world.registry.remove(original)
    later, copy = world.see(app_log_3_gz=reused, app_log_2_gz=copy_inode)
    assert read(world, later) == OTHER
    assert read(world, copy) == LOG[1000:]


def test_a_new_file_that_was_renamed_before_it_was_read_does_not_wait_for_itself(
    world: World,
) -> None:
    (file,) = world.see(app_log=world.put("app.log", LOG))
    file.refresh(0.0)  # its head is known now, and nothing of it is delivered
    file.close()
    (world.logs / "app.log").rename(world.logs / "app.log.1")
    assert world.registry.find(file)
    assert file.position.path == file.path == f"{world.logs}/app.log.1"
    assert read(world, file) == LOG


def test_no_file_waits_for_itself_under_an_earlier_name(world: World) -> None:
    (file,) = world.see(app_log=world.put("app.log", LOG))
    file.refresh(0.0)
    file.path = f"{world.logs}/app.log.1"
    assert read(world, file) == LOG


def test_a_listing_from_before_a_rename_does_not_move_a_file_back(world: World) -> None:
    inode = world.put("app.log", LOG)
    (file,) = world.see(app_log=inode)
    before = world.paths()
    (world.logs / "app.log").rename(world.logs / "app.log.1")
    assert world.registry.find(file)
    world.take_in(before, app_log=inode)
    assert file.position.path == file.path == f"{world.logs}/app.log.1"
    assert world.registry.at(file.path) == [file]
    (world.logs / "app.log.1").rename(world.logs / "app.log.2")
    world.see(app_log_2=inode)
    assert file.position.path == file.path == f"{world.logs}/app.log.2"


def test_a_file_that_was_left_is_at_no_path_any_more(world: World) -> None:
    inode = world.put("app.log", LOG)
    (file,) = world.see(app_log=inode)
    (world.logs / "app.log").rename(world.logs / "away")
    paths = [f"{world.logs}/{name}" for name in ("app.log", "away")]
    assert [world.registry.at(path) for path in paths] == [[file], [file]]
    world.registry.remove(file)
    assert [world.registry.at(path) for path in paths] == [[], []]


def test_a_file_keeps_its_position_however_long_it_is_read_after_no_path_matches_it(
    world: World,
) -> None:
    renamed, other = world.put("away", LOG), world.put("app.log", OTHER)
    (file,) = world.see(app_log=renamed)
    world.see(app_log=other)
    world.clock.advance(2 * EXPIRY_MS / 1000)
    world.see(app_log=other)
    world.positions.compact()
    assert world.positions.find(renamed, "lines") is file.position


def test_a_file_that_no_path_matches_keeps_its_position_from_the_start_of_an_agent_on(
    world: World,
) -> None:
    renamed, other = world.put("away", LOG), world.put("app.log", OTHER)
    position = world.known(renamed, LOG, 1000)
    world.clock.advance(2 * EXPIRY_MS / 1000)
    world.see(app_log=other)
    assert world.registry.files[renamed, "lines"].position is position
    world.positions.compact()
    assert world.positions.find(renamed, "lines") is position


def test_files_that_are_found_and_left_are_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    inode = world.put("app.log", LOG)
    for _ in range(2):
        (file,) = world.see(app_log=inode)
    world.registry.remove(file)
    assert caplog.messages == [
        f"{world.logs}/app.log is found: its lines go to topic lines, from byte 0 on",
        f"{world.logs}/app.log is left: it was rotated, and all of it is shipped",
    ]


def test_of_many_files_only_some_are_named(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world.see(**{f"app_log_{number}": world.put(f"app.log.{number}", LOG) for number in range(30)})
    assert len(caplog.messages) == 21
    assert caplog.messages[-1] == "10 more files are found"


def test_of_many_paths_that_cannot_be_read_the_others_are_counted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [(f"/var/log/{number}", world.source, "it is a FIFO") for number in range(30)]
    world.registry.update(ScanResult([], refused, set(), {}, []), {})
    assert len(caplog.messages) == 21
    assert caplog.messages[-1] == "10 more paths match, and are not read"


def test_a_pattern_without_a_file_and_a_path_that_cannot_be_read_are_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [("/var/log/dir", world.source, "it is a directory")]
    for _ in range(2):
        world.registry.update(ScanResult([], refused, set(), {}, ["/var/log/*.nothing"]), {})
    assert caplog.messages == [
        "/var/log/dir matches, and is not read: it is a directory",
        "no file matches /var/log/*.nothing yet",
    ]
