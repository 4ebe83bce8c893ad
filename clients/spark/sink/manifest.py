"""What one micro-batch publishes: which staged batches, where, and under which sequences. Pure.

A manifest is a JSON document in the staging topic's first partition. One that is too large for a
record is split over several, with the same attempt in their headers. Drivers that publish the same
manifest send the same bytes with the same sequences, so that the broker stores each batch once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from qbus.errors import QbusError
from qbus.records import ConsumerRecord
from qbus.records.header import MAX_SEQUENCE

from ...types import TopicPartition

NO_BATCH = -1
_VERSION = 1

Sequences = Mapping[TopicPartition, int]


class StagedBatch(NamedTuple):
    """A record batch in the staging topic that is to be published to the partition ``target``.

    partition, offset: where in the staging topic it begins. records: how many it holds.
    shift: milliseconds that were added to its timestamps, so that the staging topic's retention
        does not delete it early.
    """

    target: TopicPartition
    partition: int
    offset: int
    records: int
    shift: int


class ProducerIdentity(NamedTuple):
    """Under whose name batches are published (KIP-98)."""

    id: int
    epoch: int


class Numbered(NamedTuple):
    """A staged batch and the sequence of its first record."""

    staged: StagedBatch
    sequence: int


class UnreadableManifest(QbusError):  # noqa: N818 - what was found
    """A record where a manifest should be holds none that this version understands."""


@dataclass(frozen=True)
class Manifest:
    """The decision what a micro-batch publishes.

    attempt: tells apart the manifests of drivers that decide about the same batch.
    previous: the query's batch before, as its writer knew it; NO_BATCH: none.
    staged: in the order of publishing, by target.
    sequences: for each partition the query has written to, where its sequences go on.
    ends: the end of each target partition before anything was published.
    topic_ids: of the targets, so that a topic that was created anew is noticed.
    """

    query: str
    batch: int
    attempt: str
    previous: int
    producer: ProducerIdentity
    staged: tuple[StagedBatch, ...]
    sequences: Sequences
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]

    @property
    def targets(self) -> list[TopicPartition]:
        """The partitions that are published to."""
        return list(self.ends)

    def numbered(self) -> Iterator[Numbered]:
        """What is to be published, with its sequences."""
        after = dict(self.sequences)
        for staged in self.staged:
            sequence = after.get(staged.target, 0)
            yield Numbered(staged, sequence)
            after[staged.target] = (sequence + staged.records) & MAX_SEQUENCE

    def sequences_after(self) -> dict[TopicPartition, int]:
        """Where sequences go on for the batch after this one."""
        after = dict(self.sequences)
        for staged, sequence in self.numbered():
            after[staged.target] = (sequence + staged.records) & MAX_SEQUENCE
        return after


def in_order(staged: Sequence[StagedBatch]) -> tuple[StagedBatch, ...]:
    """``staged`` in the order of publishing: the one they can be read in."""
    return tuple(sorted(staged))


def encode(manifest: Manifest) -> bytes:
    """The document."""
    return json.dumps(
        {
            "version": _VERSION,
            "query": manifest.query,
            "batch": manifest.batch,
            "attempt": manifest.attempt,
            "previous": manifest.previous,
            "producer": manifest.producer,
            "topics": manifest.topic_ids,
            "sequences": [[*where, at] for where, at in manifest.sequences.items()],
            "targets": [
                [*where, manifest.ends[where], [staged[1:] for staged in batches]]
                for where, batches in groupby(manifest.staged, attrgetter("target"))
            ],
        },
        separators=(",", ":"),
    ).encode()


def decode(document: bytes) -> Manifest:
    """The manifest; raises :class:`UnreadableManifest`."""
    try:
        found: dict[str, Any] = json.loads(document)
        if found["version"] != _VERSION:
            raise UnreadableManifest(
                f"a manifest is of version {found['version']}: a later Qbus wrote to this query,"
                " and has to go on with it"
            )
        targets = [
            (TopicPartition(topic, index), end, batches)
            for topic, index, end, batches in found["targets"]
        ]
        return Manifest(
            query=found["query"],
            batch=found["batch"],
            attempt=found["attempt"],
            previous=found["previous"],
            producer=ProducerIdentity(*found["producer"]),
            staged=tuple(
                StagedBatch(where, *numbers) for where, _, batches in targets for numbers in batches
            ),
            sequences={TopicPartition(topic, index): at for topic, index, at in found["sequences"]},
            ends={where: end for where, end, _ in targets},
            topic_ids=found["topics"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableManifest(f"what should be a manifest is none: {error!r}") from error


PART_BYTES = 500_000
"""What every broker takes in one record."""

Headers = Sequence[tuple[str, bytes]]


def split(manifest: Manifest, part_bytes: int = PART_BYTES) -> list[tuple[bytes, Headers]]:
    """The values and headers of the records that hold ``manifest``; the key is its query."""
    document = encode(manifest)
    pieces = [document[at : at + part_bytes] for at in range(0, len(document), part_bytes)]
    return [
        (
            piece,
            [
                ("attempt", manifest.attempt.encode()),
                ("part", b"%d" % number),
                ("parts", b"%d" % len(pieces)),
            ],
        )
        for number, piece in enumerate(pieces)
    ]


@dataclass
class _Unfinished:
    offset: int
    pieces: dict[int, bytes] = field(default_factory=dict)


class Assembler:
    """Puts the manifests of one query together, as its records come in the order of the log."""

    def __init__(self, query: str) -> None:
        self._key = query.encode()
        self._unfinished: dict[str, _Unfinished] = {}

    def take(self, record: ConsumerRecord) -> tuple[Manifest, int] | None:
        """The manifest that ``record`` completes, and the offset at which it begins.

        Raises :class:`~qbus.clients.spark.sink.manifest.UnreadableManifest`.
        """
        if record.key != self._key:
            return None
        headers = dict(record.headers)
        try:
            attempt = bytes(headers["attempt"] or b"").decode()
            number, count = int(headers["part"] or b""), int(headers["parts"] or b"")
        except (KeyError, ValueError) as error:
            raise UnreadableManifest(
                f"the record at offset {record.offset} has the key of a manifest and is none"
            ) from error
        found = self._unfinished.setdefault(attempt, _Unfinished(record.offset))
        found.pieces[number] = bytes(record.value or b"")
        if len(found.pieces) < count:
            return None
        del self._unfinished[attempt]
        return decode(b"".join(found.pieces[number] for number in sorted(found.pieces))), (
            found.offset
        )
