"""The small text files beside the segments, in Kafka's formats; all are replaced atomically.

============================ ============================================================
``leader-epoch-checkpoint``   version 0, count, then ``epoch offset`` (in each partition)
``partition.metadata``        ``version: 0`` and ``topic_id:`` (in each partition)
``move.metadata``             ``version: 0``, ``topic:`` and ``partition:`` (in each partition
                              that is being moved; ours, see :mod:`.moving`)
``recovery-point-offset-``    version 0, count, then ``topic partition offset``: all below is
``checkpoint``                stable (one in each data directory)
``log-start-offset-``         likewise: what DeleteRecords removed from the front of a
``checkpoint``                segment (one in each data directory)
``replication-offset-``       likewise: the high watermarks, below which records are
``checkpoint``                acknowledged (one in each data directory)
``cleaner-offset-``           likewise: the first offsets that were not compacted yet (one in
``checkpoint``                each data directory)
``deleted-topics-checkpoint`` version 0, count, then an id: of topics that were deleted, and
                              may have partitions here still (ours; one in each data directory)
============================ ============================================================

Checkpoints of offsets have one entry more, of no topic: ``#crc32c 0`` and the CRC-32C of the file's
name and of what it would be without.
"""

import base64
import binascii
import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from qbus.records import crc32c

from .epochs import EpochStart
from .files import Files, read_file, replace_file, write_atomically
from .health import DirectoryHealth
from .names import TopicPartition

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
DELETED_TOPICS = "deleted-topics-checkpoint"

_VERSION = 0
_ID_BYTES = 16
_SEAL = TopicPartition("#crc32c", 0)  # no topic has such a name


class BadCheckpoint(ValueError):  # noqa: N818 - what was found
    """A file that is not a checkpoint of its kind."""


def encode_epochs(entries: tuple[EpochStart, ...]) -> bytes:
    """The content of ``leader-epoch-checkpoint``."""
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_epochs(data: bytes) -> list[EpochStart]:
    """The entries of ``leader-epoch-checkpoint``. Raises BadCheckpoint."""
    entries = [EpochStart(*_integers(line.split(" "), 2)) for line in _decode(data)]
    if any(a.epoch >= b.epoch or a.start_offset >= b.start_offset for a, b in pairwise(entries)):
        raise BadCheckpoint("epochs or offsets do not ascend")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of a checkpoint of partitions' offsets."""
    return _encode(
        [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    )


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint. Raises BadCheckpoint."""
    offsets: dict[TopicPartition, int] = {}
    for line in _decode(data):
        topic, *numbers = line.split(" ")
        partition, offset = _integers(numbers, 2)
        offsets[TopicPartition(topic, partition)] = offset
    return offsets


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The content of ``partition.metadata``; the id as Kafka writes one: base64, URL-safe."""
    return f"version: {_VERSION}\ntopic_id: {_id_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """The 16 bytes of the topic id. Raises BadCheckpoint."""
    return _id(_fields(data).get("topic_id", ""))


def encode_topic_ids(topic_ids: Iterable[bytes]) -> bytes:
    """The content of ``deleted-topics-checkpoint``."""
    return _encode([_id_text(topic_id) for topic_id in topic_ids])


def decode_topic_ids(data: bytes) -> list[bytes]:
    """The topic ids of ``deleted-topics-checkpoint``. Raises BadCheckpoint."""
    return [_id(line) for line in _decode(data)]


def encode_move(partition: TopicPartition) -> bytes:
    """The content of ``move.metadata``."""
    lines = f"topic: {partition.topic}", f"partition: {partition.partition}"
    return "\n".join((f"version: {_VERSION}", *lines)).encode()


def decode_move(data: bytes) -> TopicPartition:
    """The partition that a ``move.metadata`` names. Raises BadCheckpoint."""
    fields = _fields(data)
    (partition,) = _integers([fields.get("partition", "")], 1)
    return TopicPartition(fields.get("topic", ""), partition)


def seal_offsets(offsets: Mapping[TopicPartition, int], name: str) -> dict[TopicPartition, int]:
    """``offsets`` with an entry of no topic, the CRC-32C of the others and of the file's name.

    Kafka reads it as the offset of a partition that it does not have.
    """
    crc = crc32c(encode_offsets(offsets), crc32c(name.encode()))
    return {**offsets, _SEAL: crc}


def unseal_offsets(offsets: Mapping[TopicPartition, int], name: str) -> dict[TopicPartition, int]:
    """What was sealed, or never was: earlier versions did not. Raises BadCheckpoint."""
    found = {one: offset for one, offset in offsets.items() if one != _SEAL}
    if _SEAL in offsets and seal_offsets(found, name) != offsets:
        raise BadCheckpoint("the CRC does not match")
    return found


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint, none when there is no file. Raises OSError, BadCheckpoint."""
    if not files.exists(path):
        return {}
    return unseal_offsets(decode_offsets(read_file(files, path)), path.rpartition("/")[2])


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint; stable on return. Raises OSError."""
    sealed = seal_offsets(offsets, path.rpartition("/")[2])
    write_atomically(files, path, encode_offsets(sealed))


def read_topic_id(files: Files, path: str) -> bytes | None:
    """The topic id that a ``partition.metadata`` holds. Raises OSError, BadCheckpoint."""
    return decode_partition_metadata(read_file(files, path)) if files.exists(path) else None


def write_topic_id(files: Files, path: str, topic_id: bytes) -> None:
    """Write a ``partition.metadata``; stable when its name is, in its directory. Raises OSError."""
    replace_file(files, path, encode_partition_metadata(topic_id), sync=True)


def _id_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _id(text: str) -> bytes:
    try:
        topic_id = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as error:
        raise BadCheckpoint(f"bad topic id: {error}") from error
    if len(topic_id) != _ID_BYTES:
        raise BadCheckpoint(f"a topic id of {len(topic_id)} bytes")
    return topic_id


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines]).encode()


def _decode(data: bytes) -> list[str]:
    version, *rest = _text(data).split("\n")
    if version != str(_VERSION):
        raise BadCheckpoint(f"unknown version {version!r}")
    if not rest or rest.pop() != "":
        raise BadCheckpoint("the last line is cut")
    (count,) = _integers(rest[:1], 1)
    if count != len(rest) - 1:
        raise BadCheckpoint(f"{len(rest) - 1} lines where {count} are announced")
    return rest[1:]


def _fields(data: bytes) -> dict[str, str]:
    fields = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
    if fields.get("version") != str(_VERSION):
        raise BadCheckpoint(f"unknown version {fields.get('version')}")
    return fields


def _integers(words: list[str], count: int) -> list[int]:
    if len(words) != count or not all(word.isascii() and word.isdigit() for word in words):
        raise BadCheckpoint(f"{' '.join(words)!r} is not {count} numbers")
    return [int(word) for word in words]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadCheckpoint(str(error)) from error


_logger = logging.getLogger(__name__)

_NAMES = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)

Offsets = dict[TopicPartition, int]


# The offset checkpoints of one data directory: what is on disk, and what goes there next.


class DirectoryCheckpoints:
    """Recovery points, log starts, high watermarks and cleaner offsets, each by partition.

    ``lock`` is held from looking at the logs to writing down what they said, so that nobody
    overwrites what is newer. All but :meth:`get` waits for the disk.
    """

    def __init__(self, files: Files, health: DirectoryHealth) -> None:
        self.lock = threading.RLock()
        self._files = files
        self._health = health
        self._known: dict[str, Offsets] = {name: {} for name in _NAMES}
        self._damaged: set[str] = set()

    def load(self) -> bool:
        """Read what is there; whether all of it could be understood. Raises OSError."""
        understood = [self._load(name) for name in _NAMES]
        return all(understood)

    def _load(self, name: str) -> bool:
        path = f"{self._health.path}/{name}"
        try:
            self._known[name] = read_offsets(self._files, path)
        except BadCheckpoint as bad:
            _logger.warning("%s is damaged: %s; it is made anew from the logs", path, bad)
            self._damaged.add(name)
            return False
        return True

    def is_damaged(self, name: str) -> bool:
        """Whether a checkpoint was found damaged and has not been written since."""
        return name in self._damaged

    def get(self, name: str, partition: TopicPartition) -> int:
        """The offset of a partition in a checkpoint, 0 when there is none."""
        return self._known[name].get(partition, 0)

    def has(self, name: str, partition: TopicPartition) -> bool:
        """Whether a checkpoint has an offset of a partition."""
        return partition in self._known[name]

    def of(self, name: str, partitions: Iterable[TopicPartition]) -> Offsets:
        """What a checkpoint holds of ``partitions``."""
        known = self._known[name]
        return {one: known[one] for one in partitions if one in known}

    def save(self, name: str, offsets: Offsets) -> None:
        """Replace a checkpoint, if it changed. Raises ApiError KAFKA_STORAGE_ERROR.

        A full disk keeps the old one, which is as true.
        """
        with self.lock:
            if offsets == self._known[name] and name not in self._damaged:
                return
            self._health.check()
            try:
                write_offsets(self._files, f"{self._health.path}/{name}", offsets)
            except OSError as error:
                raise self._health.judge(f"write {name}", error) from error
            self._known[name] = offsets
            self._damaged.discard(name)

    def set(self, name: str, partition: TopicPartition, offset: int) -> None:
        """Change one partition's offset; stable on return. Raises ApiError."""
        with self.lock:
            self.save(name, self._known[name] | {partition: offset})

    def lower(self, name: str, partition: TopicPartition, offset: int) -> None:
        """Let no more than ``offset`` stand for a partition; stable on return. Raises ApiError."""
        with self.lock:
            if self.get(name, partition) > offset:
                self.set(name, partition, offset)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Leave nothing of some partitions, in any of them. Raises ApiError."""
        with self.lock:
            for name, known in list(self._known.items()):
                if any(one in known for one in partitions):
                    gone = set(partitions)
                    left = {one: offset for one, offset in known.items() if one not in gone}
                    self.save(name, left)
