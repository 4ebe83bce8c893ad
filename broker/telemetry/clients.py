"""Clients that push their metrics, and the latest values of these (KIP-714).

A client first asks which metrics are wanted, and how often; then it pushes them, each time to
whichever broker it is connected to. Values are kept for as long as a client goes on pushing them,
and only of so many clients: whoever pushed longest ago is forgotten first.

A push is decompressed and read in a thread, one at a time, and the thread rests in between: whoever
pushes a lot, or what is costly to read, delays other pushes, and no other requests.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple
from uuid import uuid4
from zlib import crc32

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import ApiError, CorruptBatch, ErrorCode
from qbus.records import Compression
from qbus.records.compression import decompress

from ..metrics import Metrics
from .otlp import Malformed, Point, read_points

ACCEPTED: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""How metrics may be compressed, what is best first."""

NOBODY: Final = bytes(16)
"""The id of a client instance that has none yet."""

_MOST_INSTANCES: Final = 1_000
_MOST_POINTS: Final = 500
_MOST_EXPANSION: Final = 4
"""How many times the largest push may be as large when decompressed."""
_MOST_WAITING: Final = 8
"""How many pushes may wait until those before them are read; more are refused."""
_REST_S: Final = 0.001
"""How long the thread rests between two pieces, each of which takes less than that."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = 16
_BLOCK_LENGTH: Final = 4
_SMALL_BLOCK: Final = 4096  # of the frames of snappy: writers make blocks of 32 KiB
_SILENT_INTERVALS: Final = 3
"""A client that has pushed nothing for so many intervals is gone."""
_EARLY: Final = 0.5
"""A push that comes after less of an interval than this is refused."""


class Subscription(NamedTuple):
    """What clients are to push: metrics by the prefixes of their names, every so many ms."""

    id: int
    metrics: tuple[str, ...]
    interval_ms: int
    max_bytes: int


class Instance:
    """One client: what it is called, and what it pushed last. Times in ms since the Unix epoch."""

    __slots__ = ("client_id", "is_terminating", "last_seen", "points", "pushed_at", "software")

    def __init__(self, client_id: str, software: str, now_ms: int) -> None:
        self.client_id = client_id
        self.software = software
        self.last_seen = now_ms
        self.pushed_at = 0
        self.is_terminating = False
        self.points: list[Point] = []


class ClientTelemetry:
    """Answers clients that ask what to push, and takes what they push."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0
        self.pushes = 0
        """Number of pushes that were taken."""
        self.refusals = 0
        """Number of pushes that were refused."""

    @property
    def subscription(self) -> Subscription:
        """What clients are to push at present."""
        metrics = tuple(self._config.telemetry_metrics)
        interval = self._config.telemetry_push_interval_ms
        digest = crc32(f"{','.join(metrics)}|{interval}".encode())
        most = self._config.telemetry_max_bytes
        return Subscription(digest - (1 << 32) if digest >> 31 else digest, metrics, interval, most)

    def subscribe(self, instance_id: bytes, client_id: str, software: str) -> bytes:
        """Note a client that asks what to push; return its instance id, a new one if it has none.

        Whoever is to push nothing is not remembered.
        """
        if instance_id == NOBODY:
            instance_id = uuid4().bytes
        if self.subscription.metrics:
            self._instance(instance_id, client_id, software)
        return instance_id

    async def push(
        self,
        instance_id: bytes,
        subscription_id: int,
        codec: int,
        data: bytes,
        *,
        client_id: str,
        software: str,
        is_last: bool,
    ) -> None:
        """Take what a client pushes; ``is_last``: it is being closed, and what it pushes of no use.

        What is refused without being read does not count: the client may push again at once.

        Raises:
            ApiError: INVALID_REQUEST (no instance id, or a push after the last),
                UNKNOWN_SUBSCRIPTION_ID, THROTTLING_QUOTA_EXCEEDED (a push too early, or too many
                wait), UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE or INVALID_RECORD.
        """
        try:
            await self._push(
                instance_id, subscription_id, codec, data, (client_id, software), is_last=is_last
            )
        except ApiError:
            self.refusals += 1
            raise
        self.pushes += 1

    async def _push(
        self,
        instance_id: bytes,
        subscription_id: int,
        codec: int,
        data: bytes,
        sender: tuple[str, str],
        *,
        is_last: bool,
    ) -> None:
        if instance_id == NOBODY:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a client instance id is not 0")
        subscription = self.subscription
        now = self._clock.time_ms()
        instance = self._instance(instance_id, *sender)
        if instance.is_terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the client has pushed for the last time")
        if subscription_id != subscription.id:
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if not is_last and now - instance.pushed_at < _EARLY * subscription.interval_ms:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        is_read = bool(subscription.metrics) and not is_last  # of what nobody asked for, nothing is
        self._check(codec, len(data), subscription, is_read=is_read)
        # From here on it costs something: what is refused now may not come again at once.
        instance.pushed_at = now
        instance.is_terminating = is_last
        if is_last:
            instance.points = []
        elif is_read:
            most = _MOST_EXPANSION * subscription.max_bytes
            points = await self._in_turn(Compression(codec), data, most)
            if not instance.is_terminating:  # nor has it become so meanwhile
                instance.points = points

    def _check(self, codec: int, size: int, subscription: Subscription, *, is_read: bool) -> None:
        """Refuse what can be refused by a look. Raises ApiError."""
        if size > subscription.max_bytes:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE)
        if codec != Compression.NONE and codec not in ACCEPTED:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if is_read and self._waiting >= _MOST_WAITING:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    async def _in_turn(self, codec: Compression, data: bytes, most_bytes: int) -> list[Point]:
        """Read a push when those before it are read. Raises ApiError."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="telemetry")
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._thread, _read, codec, data, most_bytes)
        self._waiting += 1
        reading.add_done_callback(self._on_read)
        return await asyncio.shield(reading)  # it goes on when the client is gone, and counts

    def _on_read(self, reading: asyncio.Future[list[Point]]) -> None:
        self._waiting -= 1
        if not reading.cancelled():
            reading.exception()  # the client may be gone, to whom it is told

    def samples(self) -> Iterator[tuple[Sequence[str], float]]:
        """Yield the latest values: by client id, instance, metric and the metric's attributes."""
        self._forget_silent()
        for instance_id, instance in list(self._instances.items()):
            for name, attributes, value in list(instance.points):
                of = ",".join(f"{key}={text}" for key, text in attributes)
                yield (instance.client_id, instance_id.hex(), name, of), value

    def instances(self) -> int:
        """Return the number of clients that push."""
        self._forget_silent()
        return sum(bool(instance.points) for instance in self._instances.values())

    def register(self, metrics: Metrics) -> None:
        """Show what clients push, and how much."""
        metrics.gauges_by(
            ["client_id", "instance", "metric", "of"],
            "client_metric",
            "Latest value of a metric that a client pushed, by client, metric and attributes.",
            self.samples,
        )
        metrics.gauge(
            "client_telemetry_clients", "Number of clients that push metrics.", self.instances
        )
        metrics.counter(
            "client_telemetry_pushes",
            "Number of times that clients pushed metrics.",
            lambda: self.pushes,
        )
        metrics.counter(
            "client_telemetry_refusals",
            "Number of pushes of clients that were refused.",
            lambda: self.refusals,
        )

    def _instance(self, instance_id: bytes, client_id: str, software: str) -> Instance:
        now = self._clock.time_ms()
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = Instance(client_id, software, now)
            if len(self._instances) > _MOST_INSTANCES:
                self._instances.popitem(last=False)
        self._instances.move_to_end(instance_id)
        instance.last_seen = now
        return instance

    def _forget_silent(self) -> None:
        silent_ms = _SILENT_INTERVALS * self._config.telemetry_push_interval_ms
        oldest = self._clock.time_ms() - silent_ms
        for instance_id, instance in list(self._instances.items()):
            if instance.last_seen > oldest:
                break  # they are in the order in which they were seen
            self._instances.pop(instance_id, None)


def _read(codec: Compression, data: bytes, most_bytes: int) -> list[Point]:
    """The values of a push; for a thread of its own. Raises ApiError: it cannot be read."""
    try:
        if codec is Compression.SNAPPY:
            _check_blocks(data, most_bytes // _SMALL_BLOCK + 1)
        whole = decompress(codec, data, most_bytes)
        return read_points(memoryview(whole), _MOST_POINTS, pause=partial(time.sleep, _REST_S))
    except (CorruptBatch, Malformed) as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error


def _check_blocks(data: bytes, most: int) -> None:
    """Refuse a frame of snappy with more than ``most`` blocks: each takes a turn of Python's.

    Raises Malformed.
    """
    if not data.startswith(_XERIAL_MAGIC):
        return
    position = _XERIAL_HEADER
    for _ in range(most):
        if position >= len(data):
            return
        length = int.from_bytes(data[position : position + _BLOCK_LENGTH], "big")
        position += _BLOCK_LENGTH + length
    if position < len(data):
        raise Malformed(f"it has more than {most} blocks of snappy")
