"""Manifests as records, and back: in parts, where one record would be too large. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from qbus.records import ConsumerRecord

from .manifest import Manifest, UnreadableManifest, decode, encode

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
