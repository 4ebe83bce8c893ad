"""What the broker decodes of batches: as it takes them in, and as it opens a log."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from qbus.broker.compaction.keys import check_keys
from qbus.broker.delay.contents import Contents, LoopBudget, look, read
from qbus.broker.delay.intake import take_in, to_append
from qbus.broker.log import Log, LogConfig, OsFiles, RecordsRefusedError
from qbus.broker.log.appender import check_batch
from qbus.broker.log.recompression import recompressed
from qbus.broker.log.state import SharedState
from qbus.broker.partition_fold import PartitionFold
from qbus.clock import ManualClock
from qbus.errors import ApiError, CorruptBatch
from qbus.records import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    build_batch,
    check_crc,
    crc32c,
    iter_batches,
)
from qbus.records.header import LENGTH_PREFIX, hide_delayed

NOW_MS = 1_700_000_000_000
CEILING = 1 << 20

_CRC = slice(17, 21)
_LENGTH = slice(8, 12)
_CONFIG = LogConfig(qbus_delay_enable=True, message_timestamp_after_max_ms=2**63 - 1)
_PLAIN = LogConfig(compression_type="uncompressed")


def sound(data: bytes) -> bytearray:
    """``data`` as a batch whose length and sum are right, so that its records are looked at."""
    made = bytearray(data.ljust(HEADER_SIZE, b"\0"))
    made[_LENGTH] = (len(made) - LENGTH_PREFIX).to_bytes(4)
    made[16] = 2
    made[_CRC] = crc32c(made[_CRC.stop :]).to_bytes(4)
    return made


def intake(data: bytes) -> None:
    """A produced batch: it is refused, or taken apart into batches that hold all its records."""
    batch = sound(data)
    try:
        header = check_batch(batch, _CONFIG, NOW_MS)
    except ApiError:
        return
    with suppress(CorruptBatch, RecordsRefusedError):
        check_keys(batch, CEILING)
    with suppress(ApiError):
        recompressed(batch, _PLAIN, CEILING)
    looked: Contents | str | None = "nothing"
    with suppress(BlockingIOError, CorruptBatch):
        looked = look(batch, header, _CONFIG, NOW_MS, LoopBudget())
    contents = None
    with suppress(CorruptBatch):
        contents = read(batch, header, _CONFIG, NOW_MS, CEILING)
        assert looked in ("nothing", contents)
    if contents is not None:
        _append(batch, header, contents)


def _append(batch: bytearray, header: BatchHeader, contents: Contents) -> None:
    fold = PartitionFold().delays
    try:
        taken = take_in(batch, contents, _CONFIG, fold)
        if taken is None:
            return
        made, _ = to_append(taken, {}, fold, _CONFIG, 0)
    except RecordsRefusedError:
        return
    count = 0
    for part, raw in iter_batches(made):
        check_crc(raw, part)
        count += part.records_count
    assert count == header.records_count


# A log whose files were changed


class _Template:
    """The files of a log with delayed records, of several segments, as they are closed."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="qbus-fuzz-"))
        made = self.base / "made" / "t-0"
        made.mkdir(parents=True)
        log = open_log(made, clean=False)
        for number in range(12):
            codec = Compression(number % 5)
            value = b"%d" % number * 20
            batch = build_batch([(b"k", value, (), NOW_MS)] * 2, compression=codec)
            log.append(batch, number // 6)
            held = build_batch([(b"k", value, (("qbus-delay", b"1h"),), NOW_MS)], compression=codec)
            hide_delayed(held, NOW_MS)
            log.append_own(held, number // 6)
            if number % 4 == 3:
                log.roll()
        log.flush()
        log.close()
        self.stored = frozenset(
            header.crc
            for path in made.glob("*.log")
            for header, _ in iter_batches(path.read_bytes())
        )
        self.files = [(path.name, path.read_bytes()) for path in sorted(made.iterdir())]
        self.end = 36


def open_log(directory: Path, *, clean: bool, recovery_point: int = 0) -> Log:
    """Open a log as a broker does."""
    clock, files = ManualClock(NOW_MS), OsFiles()
    shared = SharedState(str(directory.parent), files, clock, make_fold=PartitionFold)
    config = LogConfig(qbus_delay_enable=True, segment_bytes=4096, index_interval_bytes=100)
    return Log.open(
        str(directory),
        config,
        clock,
        files,
        recovery_point=recovery_point,
        clean=clean,
        shared=shared,
    )


_template: _Template | None = None


def _not_stable(fd: object) -> None:
    """Nothing here has to be stable."""


def recovery(data: bytes) -> None:
    """Changes of a log's files: it opens, or says why not; what it serves was stored.

    The first byte says how it is opened; then each four are a change: of which file, what, and at
    which place.
    """
    global _template  # noqa: PLW0603 - made once, for all runs
    if _template is None:
        os.fdatasync = os.fsync = _not_stable
        _template = _Template()
    if not data:
        return
    directory = _template.base / "run" / "t-0"
    shutil.rmtree(directory.parent, ignore_errors=True)
    directory.mkdir(parents=True)
    files = dict(_template.files)
    for number in range(1, min(len(data) - 3, 33), 4):
        _change(files, *data[number : number + 4])
    for name, content in files.items():
        (directory / name).write_bytes(content)
    point = _template.end * (data[0] >> 1 & 3) // 3
    try:
        log = open_log(directory, clean=bool(data[0] & 1), recovery_point=point)
    except ApiError:
        return
    try:
        for header, raw in _served(log):
            check_crc(raw, header)
            if header.records_count and not header.is_hidden:
                assert header.crc in _template.stored
    finally:
        log.abandon()


def _change(files: dict[str, bytes], which: int, what: int, high: int, low: int) -> None:
    name = sorted(files)[which % len(files)]
    content = bytearray(files[name])
    place = (high << 8 | low) % max(len(content), 1)
    match what % 6:
        case 0 if content:
            content[place] ^= 1 << (what >> 5)
        case 1:
            del content[place:]
        case 2:
            content[place:place] = bytes(what)
        case 3:
            content[place : place + what] = bytes(min(what, len(content) - place))
        case 4:
            other = sorted(files)[low % len(files)]
            content = bytearray(files[other])
        case 5 if len(files) > 1:
            del files[name]
            return
    files[name] = bytes(content)


def _served(log: Log) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch that readers get, from the start on, and behind each that is refused."""
    offset = log.log_start_offset
    with suppress(ApiError, OSError):
        log.offset_for_timestamp(NOW_MS)
        log.offset_of_max_timestamp()
    while offset < log.log_end_offset:
        try:
            part = log.read(offset, 1 << 16, wait=True)
            if part is None:
                return
            with part:
                part.verify()
                following = part.next_offset
                data = part.read()
        except (ApiError, OSError):
            return
        assert following > offset
        yield from iter_batches(data)
        offset = following


SEEDS: dict[str, list[bytes]] = {
    "intake": [
        bytes(build_batch(records, compression=codec))
        for codec in Compression
        for records in (
            [(b"k", b"v", (("qbus-delay", b"1h"),), NOW_MS), (b"k", b"w", (), NOW_MS)],
            [(b"k", b"v", (("qbus-cancel", b"key"),), NOW_MS)] * 2,
            [(b"k", b"v" * 50, (("h", None),) * 3, NOW_MS)] * 5,
        )
    ],
    "recovery": [
        bytes([how, *change]) for how in range(4) for change in ((0, 0, 0, 9), (3, 1, 0, 40))
    ],
}
