"""A flipped bit, at every byte of a log's files: found and reported, never served."""

import logging
from dataclasses import dataclass

import pytest

from qbus.broker.log import Log, LogConfig
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import build_batch

from .model import open_manager
from .simulated_files import Directory, EverythingKept, Inode, SimulatedFiles

pytestmark = pytest.mark.crash

_CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=150)
_RECORDS = 8


@pytest.fixture(scope="module")
def sound() -> SimulatedFiles:
    """A log of several segments and epochs, closed cleanly."""
    files = SimulatedFiles()
    manager = open_manager(files, _CONFIG, ManualClock())
    log = manager.create("topic", 0, bytes(16), _CONFIG)
    for number in range(_RECORDS):
        now = ManualClock().time_ms() + number
        batch = build_batch(
            [(b"key", b"value %d" % number + b"." * 30, (), now)],
            producer_id=5,
            producer_epoch=1,
            base_sequence=number,
        )
        log.append(batch, 0 if number < 4 else 2)
    manager.close()
    return files


@pytest.fixture(scope="module")
def content(sound: SimulatedFiles) -> dict[int, bytes]:
    """What each batch of the log is, by its base offset."""
    return serve(reopen(sound.after_crash(EverythingKept()))).batches


@dataclass
class Served:
    """What readers got of a log, batch by batch, and the error where there was one."""

    batches: dict[int, bytes]
    errors: dict[int, ErrorCode]


def reopen(files: SimulatedFiles) -> Log:
    log = open_manager(files, _CONFIG, ManualClock()).get("topic", 0)
    assert log is not None
    return log


def serve(log: Log) -> Served:
    """Ask for every offset, one batch at a time, as the broker does."""
    served = Served({}, {})
    for offset in range(_RECORDS):
        try:
            found = log.read(offset, 1, wait=True)
            if found is not None:
                if found.needs_verification:
                    found.verify()
                served.batches[found.first_offset] = found.read()
        except ApiError as error:
            served.errors[offset] = error.code
    return served


def flipped(files: SimulatedFiles, name: str, position: int, *, clean: bool) -> SimulatedFiles:
    """A copy with one bit of a file of the partition flipped, after a clean stop or a crash."""
    copy = files.after_crash(EverythingKept())
    if not clean:
        copy.remove("/data/.kafka_cleanshutdown")
        copy.remove("/data/recovery-point-offset-checkpoint")
    inode = find(copy, name)
    data = bytearray(inode.data)
    data[position] ^= 1 << (position * 5 % 8)
    inode.change(bytes(data))
    return copy


def find(files: SimulatedFiles, name: str) -> Inode:
    directory = files._directory("/data/topic-0")
    assert isinstance(directory, Directory)
    inode = directory.names[name]
    assert isinstance(inode, Inode)
    return inode


def names(files: SimulatedFiles, suffix: str) -> list[str]:
    return sorted(name for name in files.list("/data/topic-0") if name.endswith(suffix))


def places(files: SimulatedFiles, suffix: str) -> list[tuple[str, int]]:
    """Every byte of the files with a suffix."""
    return [
        (name, position)
        for name in names(files, suffix)
        for position in range(files.size(f"/data/topic-0/{name}"))
    ]


def test_after_a_clean_stop_no_damaged_batch_is_served_and_all_others_may_be(
    sound: SimulatedFiles, content: dict[int, bytes]
) -> None:
    assert len(content) == _RECORDS
    for name, position in places(sound, ".log"):
        log = reopen(flipped(sound, name, position, clean=True))
        served = serve(log)
        assert served.batches.items() < content.items(), (name, position)
        assert served.errors, (name, position)
        assert set(served.errors.values()) <= {ErrorCode.CORRUPT_MESSAGE}
        assert log.corruptions, (name, position)


def test_after_a_crash_what_is_damaged_is_refused_or_cut_and_said(
    sound: SimulatedFiles, content: dict[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "qbus.broker.log")
    last_epoch_field = []
    for name, position in places(sound, ".log"):
        caplog.clear()
        log = reopen(flipped(sound, name, position, clean=False))
        served = serve(log)
        if served.batches.items() <= content.items():
            lost = len(served.batches) < _RECORDS
            assert lost, (name, position)
            assert log.corruptions or "cut at" in caplog.text, (name, position)
        else:
            last_epoch_field.append((name, position))
    assert len(last_epoch_field) <= 4, "only the last batch's epoch, of which nothing else speaks"


def test_damage_below_the_recovery_point_is_never_cut(
    sound: SimulatedFiles, content: dict[int, bytes]
) -> None:
    for name, position in places(sound, ".log"):
        files = flipped(sound, name, position, clean=True)
        files.remove("/data/.kafka_cleanshutdown")
        log = reopen(files)
        assert log.log_end_offset == _RECORDS or not log.is_usable, (name, position)
        served = serve(log)
        assert served.batches.items() < content.items(), (name, position)
        assert log.corruptions, (name, position)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_damage_to_what_can_be_made_anew_hides_nothing(
    sound: SimulatedFiles, content: dict[int, bytes], suffix: str, clean: bool
) -> None:
    assert places(sound, suffix)
    for name, position in places(sound, suffix):
        log = reopen(flipped(sound, name, position, clean=clean))
        served = serve(log)
        assert served.batches == content, (name, position)
        assert not served.errors, (name, position)


def test_scrubbing_finds_damage_that_nobody_read(sound: SimulatedFiles) -> None:
    for name, position in places(sound, ".log")[::7]:
        log = reopen(flipped(sound, name, position, clean=True))
        if log.is_usable:
            while not log.scrub(100):
                pass
        assert log.corruptions, (name, position)
