"""Manifests: which staged batches a micro-batch publishes, where, and with which sequences. Pure.

A manifest is a JSON document in the staging topic's first partition. A large one is split over
several records, with the same attempt in their headers. Drivers that publish the same manifest send
the same bytes with the same sequences, so that the broker stores each batch once.
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

from ...prepared import PreparedTransaction
from ...types import TopicPartition

NO_BATCH = -1
_VERSION = 1
_WITH_TRANSACTIONS = 2
"""The version of a manifest that earlier sinks cannot carry out."""

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
    """The producer id and epoch that batches are published with (KIP-98)."""

    id: int
    epoch: int


NOBODY = ProducerIdentity(-1, -1)
"""The identity of a query that has only written in transactions."""


class Numbered(NamedTuple):
    """A staged batch and the sequence of its first record."""

    staged: StagedBatch
    sequence: int

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record."""
        return self.sequence + self.staged.records - 1


class UnreadableManifest(QbusError):  # noqa: N818 - what was found
    """A record that should be a manifest is not one, or has an unknown version."""


@dataclass(frozen=True)
class Manifest:
    """The batches that a micro-batch publishes.

    attempt: a unique id; several drivers may write manifests of the same batch.
    previous: the query's batch before this one, as the writer knew it; NO_BATCH: none.
    staged: the batches by target, in the order of publishing.
    sequences: the next sequence of each partition that the query has written to.
    ends: the end offset of each target partition before anything was published.
    topic_ids: the ids of the target topics; a topic that was created again has another id.
    transactions: what holds the rows in place of staged batches.
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
    transactions: tuple[PreparedTransaction, ...] = ()

    @property
    def targets(self) -> list[TopicPartition]:
        """The target partitions."""
        return list(self.ends)

    def numbered(self) -> Iterator[Numbered]:
        """The staged batches, each with its sequence."""
        after = dict(self.sequences)
        for staged in self.staged:
            sequence = after.get(staged.target, 0)
            yield Numbered(staged, sequence)
            after[staged.target] = (sequence + staged.records) & MAX_SEQUENCE

    def sequences_after(self) -> dict[TopicPartition, int]:
        """The next sequence of each partition after this batch."""
        after = dict(self.sequences)
        for staged, sequence in self.numbered():
            after[staged.target] = (sequence + staged.records) & MAX_SEQUENCE
        return after


def in_order(staged: Sequence[StagedBatch]) -> tuple[StagedBatch, ...]:
    """``staged`` in the order of publishing, which is the order of reading."""
    return tuple(sorted(staged))


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON."""
    more = {"transactions": manifest.transactions} if manifest.transactions else {}
    return json.dumps(
        {
            "version": _WITH_TRANSACTIONS if more else _VERSION,
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
            **more,
        },
        separators=(",", ":"),
    ).encode()


def decode(document: bytes) -> Manifest:
    """Parse a manifest; raises :class:`UnreadableManifest`."""
    try:
        found: dict[str, Any] = json.loads(document)
        if found["version"] not in {_VERSION, _WITH_TRANSACTIONS}:
            raise UnreadableManifest(
                f"a manifest has version {found['version']}: a later version of Qbus has run this"
                " query and must continue it"
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
            transactions=tuple(
                PreparedTransaction(*each) for each in found.get("transactions", ())
            ),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableManifest(f"a record is not a manifest: {error!r}") from error


PART_BYTES = 500_000
"""The size of a part in bytes, which every broker accepts in one record."""

Headers = Sequence[tuple[str, bytes]]


def split(manifest: Manifest, part_bytes: int = PART_BYTES) -> list[tuple[bytes, Headers]]:
    """The values and headers of the records of ``manifest``; their key is the query."""
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
    """Joins the parts of one query's manifests, from records in the order of the log."""

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
                f"the record at offset {record.offset} has the key of a manifest but is not one"
            ) from error
        found = self._unfinished.setdefault(attempt, _Unfinished(record.offset))
        found.pieces[number] = bytes(record.value or b"")
        if len(found.pieces) < count:
            return None
        del self._unfinished[attempt]
        return decode(b"".join(found.pieces[number] for number in sorted(found.pieces))), (
            found.offset
        )
