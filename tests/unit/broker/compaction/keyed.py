"""Logs of keyed records, and what must be left of them: the model of compaction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qbus.broker.compaction.cleaning import Buffers, CleaningResult, clean
from qbus.broker.compaction.plan import Dirt, find_dirt
from qbus.broker.log import Log, LogConfig, OsFiles
from qbus.clock import ManualClock
from qbus.records import (
    BatchHeader,
    Compression,
    Record,
    build_batch,
    iter_batches,
    iter_records,
    read_header,
)

NOW = 1_700_000_000_000
BUFFERS = Buffers(1 << 20, 0.9, 4096)

Item = tuple[bytes | None, bytes | None]


class KeyedLog:
    """A log of keyed records, compacted by hand."""

    def __init__(self, directory: Path, files: Any = None, **config: Any) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.files = files or OsFiles()
        settings = {"segment_bytes": 4096, "index_interval_bytes": 200, **config}
        self.config = LogConfig(compacts=True, **settings)
        self.cleaned_before = 0
        self.log = self._open()

    def _open(self, **how: Any) -> Log:
        return Log.open(str(self.directory), self.config, self.clock, self.files, **how)

    def put(
        self,
        *items: Item,
        timestamp: int = NOW,
        compression: Compression = Compression.NONE,
        epoch: int = 0,
        **producer: int,
    ) -> int:
        """Append one batch; its first offset."""
        batch = build_batch(
            [(key, value, (), timestamp) for key, value in items],
            compression=compression,
            **producer,
        )
        return self.log.append(batch, epoch).first_offset

    def roll(self) -> None:
        """Begin a new segment, and make all before it stable."""
        self.log.roll()
        self.log.flush()

    def dirt(self, limit: int | None = None, now_ms: int = NOW) -> Dirt:
        """What there is to be compacted."""
        return find_dirt(
            self.log.rewriter.segments,
            self.config,
            cleaned_before=self.cleaned_before,
            limit=self.log.flushed_offset if limit is None else limit,
            now_ms=now_ms,
        )

    def clean(
        self,
        *,
        limit: int | None = None,
        now_ms: int = NOW,
        buffers: Buffers = BUFFERS,
        pace: Any = lambda _: None,
    ) -> CleaningResult:
        """Compact once, and go on from there the next time."""
        dirt = self.dirt(limit, now_ms)
        result = clean(self.log, dirt, buffers=buffers, now_ms=now_ms, pace=pace)
        self.cleaned_before = result.end_offset
        return result

    def reopen(self, *, clean: bool = False) -> None:
        """Close the log, and open it again; not ``clean``: as after a crash."""
        point = self.log.recovery_point
        if clean:
            self.log.close()
        else:
            self.log.abandon()
        self.log = self._open(clean=clean, recovery_point=0 if not clean else point)
        assert self.log.corruptions == ()

    def opened_at(self, recovery_point: int, *, clean: bool = True) -> Log:
        """The log, opened once more after it was closed, whatever is in its files by now."""
        return self._open(clean=clean, recovery_point=recovery_point)

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        """Every batch, read one after another."""
        found: list[tuple[BatchHeader, bytes]] = []
        offset = self.log.log_start_offset
        while (part := self.log.read(offset, 2000, wait=True)) is not None:
            with part:
                if part.needs_verification:
                    part.verify()
                found += [(header, bytes(batch)) for header, batch in iter_batches(part.read())]
            offset = part.next_offset
        assert offset == self.log.log_end_offset
        return found

    def records(self) -> list[Record]:
        """Every record, hidden ones and markers left out."""
        return [
            record
            for header, batch in self.batches()
            if not header.is_control
            for record in iter_records(batch)
        ]

    def items(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of every record."""
        return [(record.offset, record.key, record.value) for record in self.records()]

    def check(self) -> None:
        """All of it is sound, and found by offset and by time."""
        batches = self.batches()
        while not self.log.scrub(1000):
            pass
        assert self.log.corruptions == ()
        ends = [header.last_offset for header, _ in batches]
        for offset in range(self.log.log_start_offset, self.log.log_end_offset):
            part = self.log.read(offset, 1, wait=True)
            assert part is not None
            with part:
                header = read_header(part.read())
            expected = next(end for end in ends if end >= offset)
            assert header.last_offset == expected
        for segment in self.log.rewriter.segments:
            last = list(segment.batches_from(segment.base_offset))[-1]
            assert last.next_offset == segment.end_offset


def newest(
    items: Sequence[tuple[int, bytes | None, bytes | None]], end: int
) -> list[tuple[int, bytes | None, bytes | None]]:
    """What is left of ``items`` when all before ``end`` is compacted, tombstones included."""
    latest = {key: offset for offset, key, _ in items if offset < end and key is not None}
    return [
        item
        for item in items
        if item[0] >= end or (item[1] is not None and latest[item[1]] <= item[0])
    ]
