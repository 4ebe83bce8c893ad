"""Jobs: their ids, their options in headers, and the names of queues; what broker and SDK share.

A queue of jobs is a topic, and a job is a record that the share group ``disque`` takes. An id is
Disque's, 40 characters in five parts::

    D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1
    |     |                |              |
    |     |                |              time to live in minutes: odd: at least once, even: at most
    |     |                144 bits in base64: where the job is, see below
    |     the first 32 bits of the id of the node that took it
    all ids begin like that

The 144 bits, high ones first: the first 32 of the topic's id; 15 of the partition; one that says
whether the job is delayed; 48 of the offset, which for a delayed job is the one that its producer
was told; 32 of the time, in seconds since the Unix epoch, when it was added or, if delayed, is due;
16 of a check over all of it and the topic's whole id. So any node finds any job without asking.

The headers of a job's record:

============ ===================================================================================
header       value, in ASCII
============ ===================================================================================
qbus-job     ``ttl,retry,delay,replicate,node``: seconds three times, a number of nodes, and the
             first eight digits of the id of the node that took it
qbus-ttl     how long after its time the record is worth giving out (:mod:`qbus.delay`)
============ ===================================================================================

A record without them, which some Kafka client added, has no end, the group's lock duration, and a
node of zeros.
"""

import hashlib
import re
import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from qbus.delay import TTL

GROUP: Final = "disque"
"""The share group that takes jobs; it begins at the earliest record."""

JOB: Final = "qbus-job"
ID_LENGTH: Final = 40
NO_NODE: Final = "00000000"

MAX_PARTITION: Final = (1 << 15) - 1
MAX_OFFSET: Final = (1 << 48) - 1
MAX_SECONDS: Final = (1 << 32) - 1

_OPTIONS: Final = re.compile(rb"(\d{1,18}),(\d{1,18}),(\d{1,18}),(\d{1,9}),([0-9a-f]{8})")
_PLACE: Final = struct.Struct(">4sHHII")
_PACK: Final = _PLACE.pack
_PACK_CHECK: Final = struct.Struct(">H").pack
_CHECK_BYTES: Final = 2
_KEY_BYTES: Final = 6  # the topic's tag, the partition, and whether it is delayed
_LONGEST_MINUTES: Final = 0xFFFF
_LONGEST_NAME: Final = 249
_ESCAPED: Final = "disque-x."
_INTERNAL: Final = b"__"  # how topics begin that Kafka's clients take for internal ones
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._")
_DASH: Final = ord("-")

Headers = Sequence[tuple[str, bytes | None]]


class JobId:
    """Where a job is, as its id says; ``seconds``: when it was added, or is due if ``is_delayed``.

    ``topic_tag``: the first four bytes of the topic's id; :meth:`is_in` knows whether it is that.
    """

    __slots__ = (
        "_checked",
        "_place",
        "check",
        "is_delayed",
        "offset",
        "partition",
        "seconds",
        "text",
    )

    def __init__(self, text: str, place: bytes, checked: bytes) -> None:
        """``place``: the 144 bits. ``checked``: what else of the text the check is over."""
        _, where, high, low, seconds = _PLACE.unpack_from(place)
        self.text = text
        self.partition: int = where >> 1
        self.offset: int = high << 32 | low
        self.is_delayed = where & 1 == 1
        self.seconds: int = seconds
        self.check = int.from_bytes(place[-_CHECK_BYTES:], "big")
        self._place = place
        self._checked = checked

    @property
    def topic_tag(self) -> bytes:
        """The first four bytes of the topic's id."""
        return self._place[:4]

    @property
    def node(self) -> str:
        """The beginning of the id of the node that took the job: 8 hexadecimal digits."""
        return self.text[2:10]

    @property
    def is_at_most_once(self) -> bool:
        """Whether the job is never given out again."""
        return int(self.text[36:], 16) & 1 == 0

    def is_in(self, topic_id: bytes) -> bool:
        """Whether the job is one of the topic with that id."""
        place = self._place[:-_CHECK_BYTES]
        return self.check == crc32(place, crc32(self._checked, crc32(topic_id))) & 0xFFFF


class JobOptions(NamedTuple):
    """What a job was added with. Times in seconds; ``retry`` 0: at most once.

    ``ttl`` None: it has no end. ``replicate``: on how many nodes it was to be. ``node``: the first
    eight digits of the id of the node that took it.
    """

    ttl: int | None
    retry: int
    delay: int = 0
    replicate: int = 1
    node: str = NO_NODE

    def headers(self) -> Sequence[tuple[str, bytes]]:
        """The headers that say so. A job that never ends needs none."""
        return () if self.ttl is None else _headers(self)


@lru_cache(maxsize=1024)
def _headers(options: JobOptions) -> Sequence[tuple[str, bytes]]:
    """The headers of a job that ends."""
    ttl, retry, delay, replicate, node = options
    left = (ttl or 0) - delay
    value = f"{ttl},{retry},{delay},{replicate},{node}"
    return ((JOB, value.encode()), (TTL, b"%ds" % left))


def read_options(headers: Headers, retry: int) -> JobOptions:
    """What the headers of a record say; ``retry``, in seconds, counts where they say nothing."""
    for name, value in headers:
        if name == JOB and value is not None:
            options = _parse(value)
            if options is not None:
                return options
    return JobOptions(None, retry)


@lru_cache(maxsize=1024)
def _parse(value: bytes) -> JobOptions | None:
    match = _OPTIONS.fullmatch(value)
    if match is None:
        return None
    ttl, retry, delay, replicate = map(int, match.groups()[:4])
    return JobOptions(ttl, retry, delay, replicate, match[5].decode())


def node_name(cluster_id: str, node_id: int) -> str:
    """The id of a node as Disque's clients know it: 40 hexadecimal digits, always the same."""
    return hashlib.sha1(f"{cluster_id}/{node_id}".encode(), usedforsecurity=False).hexdigest()


class JobIds:
    """Makes the ids of the jobs of one partition."""

    __slots__ = ("_beginning", "_end", "_options", "_partition", "_sum", "_tag", "_topic_id")

    def __init__(self, topic_id: bytes, partition: int) -> None:
        self._topic_id = topic_id
        self._tag = topic_id[:4]
        self._partition = partition
        # What jobs with the same options have in common: mostly those that come one after another.
        self._options: JobOptions | None = None
        self._beginning = self._end = b""
        self._sum = 0

    def encode(
        self, offset: int, options: JobOptions, seconds: int, *, is_delayed: bool = False
    ) -> bytes:
        """The id of a job; ``seconds``: when it was added or, with a delay, is due.

        Raises ValueError for numbers that no id has room for.
        """
        partition = self._partition
        if not (0 <= partition <= MAX_PARTITION and 0 <= offset <= MAX_OFFSET):
            raise ValueError(f"no job id has room for partition {partition}, offset {offset}")
        if options is not self._options:
            self._beginning = f"D-{options.node}-".encode()
            self._end = _minutes(options).encode()
            self._sum = crc32(self._beginning + self._end, crc32(self._topic_id))
            self._options = options
        seconds = min(max(seconds, 0), MAX_SECONDS)
        where = partition << 1 | is_delayed
        place = _PACK(self._tag, where, offset >> 32, offset & 0xFFFFFFFF, seconds)
        check = _PACK_CHECK(crc32(place, self._sum) & 0xFFFF)
        return self._beginning + b2a_base64(place + check, newline=False) + self._end


def encode_id(
    topic_id: bytes, partition: int, offset: int, options: JobOptions, seconds: int
) -> str:
    """The id of a job.

    ``offset`` is the one that the producer was told, ``seconds`` when it was added or, with a
    delay, is due. Raises ValueError for numbers that no id has room for.
    """
    ids = JobIds(topic_id, partition)
    return ids.encode(offset, options, seconds, is_delayed=options.delay > 0).decode()


def has_form(text: bytes) -> bool:
    """Whether a text is formed like an id, as far as Disque looks: length and punctuation."""
    return len(text) == ID_LENGTH and text[:2] == b"D-" and text[10] == text[35] == _DASH


def place_in(text: bytes) -> bytes:
    """The 144 bits of an id, unchecked; empty: the text has none. It must have an id's form."""
    try:
        place = a2b_base64(text[11:35], strict_mode=True)
    except ValueError:
        return b""
    return place if len(place) == _PLACE.size + _CHECK_BYTES else b""


def partition_key(place: bytes) -> bytes:
    """What of those bits the ids of a partition have in common, those of delayed jobs apart."""
    return place[:_KEY_BYTES]


def offset_in(place: bytes) -> int:
    """The offset that those bits say."""
    return int.from_bytes(place[_KEY_BYTES:12], "big")


def is_delayed_in(place: bytes) -> bool:
    """Whether they say that the job is delayed."""
    return place[5] & 1 == 1


class JobIdCheck:
    """Checks ids of one topic: whether they are what :meth:`JobIds.encode` made."""

    __slots__ = ("_ends", "_ends_sum", "_topic_sum")

    def __init__(self, topic_id: bytes) -> None:
        self._topic_sum = crc32(topic_id)
        # Most ids have the same node and time to live as the last one.
        self._ends = b""
        self._ends_sum = 0

    def holds(self, text: bytes, place: bytes) -> bool:
        """Whether an id is one of the topic; ``place``: its 144 bits."""
        ends = text[:11] + text[35:]
        if ends != self._ends:
            try:
                int(text[36:], 16)
            except ValueError:
                return False
            self._ends, self._ends_sum = ends, crc32(ends, self._topic_sum)
        check = place[16] << 8 | place[17]
        return check == crc32(place[:16], self._ends_sum) & 0xFFFF


def parse_id(text: str | bytes) -> JobId | None:
    """Where an id says that its job is; None: it is none that :func:`encode_id` made."""
    try:
        data = text if isinstance(text, bytes) else text.encode("ascii")
        if not has_form(data):
            return None
        place = a2b_base64(data[11:35], strict_mode=True)
        int(data[36:], 16)
        return JobId(data.decode("ascii"), place, data[:11] + data[35:])
    except (ValueError, struct.error):
        return None


def _minutes(options: JobOptions) -> str:
    minutes = _LONGEST_MINUTES if options.ttl is None else options.ttl // 60
    minutes = min(minutes, _LONGEST_MINUTES)
    minutes = minutes | 1 if options.retry else minutes & ~1
    return f"-{minutes:04x}"


# Names of queues: Disque takes any bytes, a topic has letters, digits, dots, dashes, underscores.


def topic_of(queue: bytes) -> str:
    """The topic that a queue is.

    Names that are no topic's, or an internal one's, are escaped: ``disque-x.a-3ab``.

    Raises ValueError: the name is empty, or too long.
    """
    if not queue:
        raise ValueError("a queue's name is not empty")
    is_escaped = queue.startswith((_ESCAPED.encode(), _INTERNAL)) or queue in {b".", b".."}
    if not is_escaped and all(byte in _PLAIN or byte == _DASH for byte in queue):
        return _checked(queue.decode())
    return _checked(
        _ESCAPED + "".join(chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in queue)
    )


def queue_of(topic: str) -> bytes:
    """The name of the queue that a topic is."""
    if not topic.startswith(_ESCAPED):
        return topic.encode()
    first, *others = topic[len(_ESCAPED) :].split("-")
    try:
        rest = b"".join(bytes.fromhex(other[:2]) + other[2:].encode() for other in others)
    except ValueError:
        return topic.encode()  # somebody else's topic
    return first.encode() + rest


def _checked(topic: str) -> str:
    if len(topic) > _LONGEST_NAME:
        raise ValueError(f"a queue's name is too long: its topic would have {len(topic)} letters")
    return topic
