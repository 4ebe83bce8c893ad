"""One partition with delays: a real log, a clock that tests set, and no network."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from qbus.broker.delay import DelayFold, DelayService
from qbus.broker.delay.delayed_partition import DelayedPartition
from qbus.broker.delay.held import HeldCache
from qbus.broker.delay.schedule import Held
from qbus.broker.log import AppendInfo, Log, LogConfig, OsFiles
from qbus.broker.log.state import SharedState
from qbus.broker.partition.partition import ACKS_ALL, Partition
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, Record, iter_batches, iter_records
from qbus.records.encode import encode_records
from tests.support.waiting import eventually

NOW = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR

Item = tuple[bytes | None, bytes | None, Mapping[str, str]]
"""Key, value, headers."""


class WallClock:
    """A clock that anybody may set, and a monotonic one beside it."""

    def __init__(self) -> None:
        self._now_ms = NOW
        self._monotonic = 0.0

    def time_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._now_ms += ms
        self._monotonic += ms / 1000

    def set(self, ms: int) -> None:
        """Set the clock."""
        self._now_ms = ms


class Line:
    """What delays need of a partition that is led here."""

    def __init__(
        self,
        directory: Path,
        clock: WallClock,
        *,
        cache_bytes: tuple[int, ...] = (),
        **config: Any,
    ) -> None:
        """``cache_bytes``: see :class:`HeldCache`; ``config``: settings of the log."""
        self.cache_bytes = cache_bytes
        self.directory = directory
        self.clock = clock
        self.settings = {"qbus_delay_enable": True, **config}
        self.error = ErrorCode.NONE
        self.topic, self.index = "t", 0
        self.refusal: Exception | None = None
        self.log = self._open(clean=False, recovery_point=0)
        self.lead()

    def __str__(self) -> str:
        return "t-0"

    def _open(self, *, clean: bool, recovery_point: int) -> Log:
        self.directory.mkdir(exist_ok=True)
        files = OsFiles()
        path = str(self.directory)
        shared = SharedState(str(self.directory.parent), files, self.clock, make_fold=DelayFold)
        return Log.open(
            path,
            LogConfig(**self.settings),
            self.clock,
            files,
            recovery_point=recovery_point,
            clean=clean,
            shared=shared,
        )

    def lead(self) -> None:
        """Begin to lead: nothing is known but the log."""
        self.dead_letters: list[tuple[str, Record]] = []
        self.dead_letter_sizes: list[int] = []
        self.dead_letter_error: ApiError | None = None
        self.most_dead_letter_bytes = 1 << 30
        self.cache = HeldCache(*self.cache_bytes)
        self.service = DelayService(self.clock, self, self.cache)
        self.service.leading(cast("Partition", self), 0)
        delayed = self.service.of(cast("Partition", self))
        assert delayed is not None
        self.delayed: DelayedPartition = delayed

    def reopen(self, *, clean: bool = True) -> None:
        """Stop, or be killed, and start again."""
        self.service.stop()
        point = 0
        if clean:
            self.log.close()
        else:
            self.log.flush()
            point = self.log.checkpoint()
        self.log = self._open(clean=clean, recovery_point=point)
        self.lead()

    @property
    def fold(self) -> DelayFold:
        fold = self.log.fold
        assert isinstance(fold, DelayFold)
        return fold

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    def append_own(self, batches: bytearray, records: int, acks: int = ACKS_ALL) -> AppendInfo:
        if self.refusal is not None:
            raise self.refusal
        return self.log.append_own(batches, 0)

    def produce(self, *items: Item, **fields: Any) -> tuple[AppendInfo, list[int]]:
        """Append a batch as a producer's request does, and name late orders. Raises ApiError."""
        batch = encoded(*items, timestamp=self.clock.time_ms(), **fields)
        intake = self.service.intake(cast("Partition", self), memoryview(batch), ACKS_ALL)
        if intake is None:
            return self.log.append(batch, 0), []
        if intake.needs_thread:
            intake.read()
        info, orders = intake.append()
        return info, orders.late

    def send(self, value: bytes = b"v", key: bytes | None = None, **headers: str) -> int:
        """Produce one record with ``headers``, their names with underscores; its offset."""
        named = {f"qbus-{name.replace('_', '-')}": text for name, text in headers.items()}
        return self.produce((key, value, named))[0].first_offset

    async def deliver(self) -> int:
        """Deliver all that is due; how many records."""
        before = self.fold.delivered_count
        while True:
            try:
                if not self.delayed.deliver():
                    return self.fold.delivered_count - before
            except BlockingIOError:
                await self.delayed.deliver_from_disk()

    async def read_ahead(self) -> None:
        """Do what is due, read what soon will be, and wait until that is done."""
        self.delayed.look()
        await eventually(lambda: not self.delayed.read_ahead.is_under_way)

    def configure(self, **config: Any) -> None:
        """Change settings of the log."""
        self.settings.update(config)
        self.log.update_config(LogConfig(**self.settings))

    async def carry(self) -> None:
        """Carry what retention waits for."""
        await self.service.carry()
        await eventually(lambda: not self.delayed.carrying.is_under_way)

    async def write(self, topic: str, batch: bytearray) -> None:
        """Be the dead letter topic. Raises ApiError."""
        if self.dead_letter_error is not None:
            raise self.dead_letter_error
        if len(batch) > self.most_dead_letter_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes")
        self.dead_letter_sizes.append(len(batch))
        self.dead_letters += [(topic, record) for record in iter_records(bytes(batch))]

    def visible(self) -> list[Record]:
        """All records that consumers get."""
        return list(self._visible())

    def _visible(self) -> Iterator[Record]:
        offset = self.log.log_start_offset
        while True:
            end = self.log.log_end_offset
            sent = self.log.read_visible(offset, 1 << 20, end, wait=True)
            if sent is None:
                return
            batches = sent.read()
            offset = sent.next_offset
            sent.close()
            for header, batch in iter_batches(batches):
                assert not header.is_control
                yield from iter_records(batch)


def encoded(
    *items: Item,
    timestamp: int = NOW,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A producer's batch."""
    return encode_records(
        [value for _, value, _ in items],
        [key for key, _, _ in items],
        [[(name, text.encode()) for name, text in headers.items()] for _, _, headers in items],
        base_timestamp=timestamp,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
    )


def state(fold: DelayFold) -> tuple[list[Held], dict[int, int], int | None]:
    """What a fold says, in a form that can be compared."""
    held = sorted(held for slot in fold.schedule.slots() for held in slot)
    return held, fold.rescheduled, fold.needed_from


def copy_log(line: Line, follower: Line) -> None:
    """Let ``follower``, which has nothing, get all that the log of ``line`` has."""
    log, other = line.log, follower.log
    other.restart_at(log.log_start_offset)
    while (records := log.read(other.log_end_offset, 1 << 20, wait=True)) is not None:
        with records:
            other.append_as_follower(memoryview(bytearray(records.read())))
