"""What went bad on disk is written over with what another replica has, and with nothing else."""

import errno
from pathlib import Path

import pytest

from qbus.broker.log import Corruption, File, Log, repair
from qbus.broker.log.files import Data, write_all
from qbus.broker.log.repair import Damage
from qbus.errors import ApiError
from qbus.records import CorruptBatch
from tests.support.logs import batch

from .conftest import OpenLog

SIZE = len(batch(b"v" * 100))


def spoil(directory: Path, *positions: int) -> None:
    """Flip a bit at each of these positions of the first segment."""
    path = min(directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    for position in positions:
        data[position] ^= 4
    path.write_bytes(data)


def content(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    """Six batches of one record, three in a segment, of two epochs."""
    log = open_log(segment_bytes=SIZE * 3, index_interval_bytes=SIZE)
    for number in range(6):
        log.append(batch(b"%d" % number * 100), number // 4)
    log.flush()
    return log


def scrubbed(log: Log) -> tuple[Corruption, ...]:
    while not log.scrub():
        pass
    return log.corruptions


def found(log: Log) -> Damage:
    damage = log.find_damage(scrubbed(log)[0])
    assert damage is not None
    return damage


@pytest.mark.parametrize(
    "position",
    [
        SIZE + 3,  # base offset
        SIZE + 11,  # length
        SIZE + 15,  # leader epoch
        SIZE + 16,  # magic
        SIZE + 18,  # sum
        SIZE + 100,  # records
        2 * SIZE - 1,
    ],
)
def test_a_flipped_bit_is_repaired_wherever_it_is(log: Log, directory: Path, position: int) -> None:
    good = content(directory)
    spoil(directory, position)
    damage = found(log)
    assert (damage.start.offset, damage.end.offset) == (1, 2)
    assert (damage.start.position, damage.size) == (SIZE, SIZE)
    log.repair(damage, good[SIZE : 3 * SIZE])
    assert content(directory) == good
    assert log.corruptions == scrubbed(log) == ()


def test_where_a_bad_batch_was_said_to_end_is_forgotten(log: Log, directory: Path) -> None:
    good = content(directory)
    spoil(directory, SIZE + 11)  # the length
    for offset in (1, 0):
        log.read(offset, 1, wait=True)
    log.repair(found(log), good[SIZE : 2 * SIZE])
    for offset in (1, 2):
        read = log.read(offset, 1, wait=True)
        assert read is not None
        assert read.read() == good[offset * SIZE : (offset + 1) * SIZE]


def test_that_is_forgotten_also_when_the_repair_fails_half_way(
    log: Log, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = content(directory)
    spoil(directory, SIZE + 11)  # the length
    for offset in (1, 0):
        log.read(offset, 1, wait=True)

    def fail(file: File, position: int, data: Data) -> None:
        write_all(file, position, data)
        raise OSError(errno.ENOSPC, "no space left on device")

    damage = found(log)
    with monkeypatch.context() as full:
        full.setattr(repair, "write_all", fail)
        with pytest.raises(ApiError):
            log.repair(damage, good[SIZE : 2 * SIZE])
    read = log.read(1, 1, wait=True)
    assert read is not None
    assert read.read() == good[SIZE : 2 * SIZE]


@pytest.mark.parametrize(
    ("positions", "offsets"), [((SIZE + 70, 2 * SIZE + 70), (1, 3)), ((9,), (0, 1))]
)
def test_all_that_is_bad_side_by_side_is_one_damage(
    log: Log, directory: Path, positions: tuple[int, ...], offsets: tuple[int, int]
) -> None:
    good = content(directory)
    spoil(directory, *positions)
    damage = found(log)
    assert (damage.start.offset, damage.end.offset) == offsets
    log.repair(damage, good[damage.start.position : damage.end.position])
    assert content(directory) == good
    assert scrubbed(log) == ()


def test_other_records_are_not_taken(log: Log, directory: Path) -> None:
    good = content(directory)
    spoil(directory, SIZE + 80)
    spoiled = content(directory)
    damage = found(log)
    longer = batch(b"1" * 101)
    for wrong in (
        good[:SIZE],  # of another offset
        good[SIZE : 2 * SIZE - 1],
        good[SIZE : 2 * SIZE - 1] + b"!",
        bytes(longer),
        b"",
        good[SIZE : SIZE + 12] + b"\0\0\0\1" + good[SIZE + 16 : 2 * SIZE],  # of another epoch
    ):
        with pytest.raises(CorruptBatch):
            log.repair(damage, wrong)
    assert content(directory) == spoiled


def test_what_is_good_by_now_is_no_damage(log: Log, directory: Path) -> None:
    spoil(directory, SIZE + 80)
    corruption = scrubbed(log)[0]
    spoil(directory, SIZE + 80)
    assert log.find_damage(corruption) is None
    assert log.corruptions == ()


def test_a_log_that_was_cut_meanwhile_is_left_alone(log: Log, directory: Path) -> None:
    good = content(directory)
    spoil(directory, SIZE + 80)
    damage = found(log)
    log._state.segments = log._state.segments[1:]
    with pytest.raises(CorruptBatch, match="another one by now"):
        log.repair(damage, good[SIZE : 2 * SIZE])


def test_a_log_that_is_corrupt_as_a_whole_is_beyond_repair(
    log: Log, directory: Path, open_log: OpenLog
) -> None:
    assert not log.is_beyond_repair
    for path in directory.glob("*.log"):
        path.unlink()
    assert open_log(recovery_point=6).is_beyond_repair
