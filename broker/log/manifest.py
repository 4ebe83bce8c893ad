"""What the files beside a log's batches must hold: ``log-manifest``, one in each partition.

Everything but the ``.log`` files can be made anew from them, and is trusted only as far as the
manifest, or the log itself, confirms it. The formats of most of these files are Kafka's and have no
room for a checksum: so their sizes and checksums are kept here.

File format (ours), big-endian, replaced atomically:

===================== ============================================================
version               int16, 1
CRC                   uint32, CRC-32C of the directory's name and all that follows
topic id              16 bytes, all zero: not known
log start offset      int64
recovery point        int64
epochs' CRC           uint32, CRC-32C of ``leader-epoch-checkpoint``; 0: there was none
flags                 int32; 1: offsets may be left out
counts                3 int32: of segments, ``.snapshot`` and ``.control`` files
then for each segment:
base offset           int64
sizes                 4 uint32: of ``.log``, ``.index``, ``.timeindex``, ``.controlindex``
CRC                   uint32, CRC-32C of ``.controlindex``
size and CRC          2 uint32: of ``.txnindex``
then for each snapshot, the ``.snapshot`` files first:
offset                int64
CRC                   uint32, CRC-32C of the whole file
===================== ============================================================

It is written at each checkpoint, behind the files that it describes and before the recovery point
that relies on them. The active segment grows afterwards: after a crash its files begin with what
the manifest describes; after a clean shutdown all files are exactly that. ``.index`` and
``.timeindex`` need no checksum here, because each entry is compared with the batch that it names
before it is believed.

Crash policy: without a manifest, or with a damaged one, what only it can confirm is made anew.
"""

import logging
import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from qbus.records import crc32c

from .files import Data, Files, read_file, replace_file

_logger = logging.getLogger(__name__)

MANIFEST: Final = "log-manifest"

NO_TOPIC_ID: Final = bytes(16)

_VERSION: Final = 1
_GAPS: Final = 1
_HEADER: Final = struct.Struct(">hI")
_FIXED: Final = struct.Struct(">16sqqIi3i")
_SEGMENT: Final = struct.Struct(">q7I")
_SNAPSHOT: Final = struct.Struct(">qI")


class BadManifest(ValueError):  # noqa: N818 - what was found
    """A manifest that is torn, damaged or of an unknown version."""


class SegmentFiles(NamedTuple):
    """Sizes, and CRCs where a file is read as a whole, of one segment's files."""

    base_offset: int
    log_size: int
    offsets_size: int
    times_size: int
    controls_size: int
    controls_crc: int
    aborted_size: int
    aborted_crc: int


@dataclass(slots=True)
class Manifest:
    """One log's files; ``snapshots`` and ``control_snapshots`` are CRCs by offset."""

    topic_id: bytes = NO_TOPIC_ID
    log_start_offset: int = 0
    recovery_point: int = 0
    epochs_crc: int = 0
    gaps: bool = False
    segments: list[SegmentFiles] = field(default_factory=list)
    snapshots: dict[int, int] = field(default_factory=dict)
    control_snapshots: dict[int, int] = field(default_factory=dict)


def encode_manifest(manifest: Manifest, name: str) -> bytes:
    """The content of the file in the directory ``name``, which is the partition's."""
    snapshots, controls = manifest.snapshots, manifest.control_snapshots
    parts = [
        _FIXED.pack(
            manifest.topic_id,
            manifest.log_start_offset,
            manifest.recovery_point,
            manifest.epochs_crc,
            _GAPS if manifest.gaps else 0,
            len(manifest.segments),
            len(snapshots),
            len(controls),
        )
    ]
    parts += [_SEGMENT.pack(*segment) for segment in manifest.segments]
    parts += [_SNAPSHOT.pack(*one) for one in sorted(snapshots.items())]
    parts += [_SNAPSHOT.pack(*one) for one in sorted(controls.items())]
    body = b"".join(parts)
    return _HEADER.pack(_VERSION, _crc(body, name)) + body


def decode_manifest(data: bytes, name: str) -> Manifest:
    """The manifest that a file in the directory ``name`` holds. Raises BadManifest."""
    if len(data) < _HEADER.size + _FIXED.size:
        raise BadManifest(f"{len(data)} bytes are too few")
    version, crc = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise BadManifest(f"unknown version {version}")
    body = memoryview(data)[_HEADER.size :]
    if _crc(body, name) != crc:
        raise BadManifest("the CRC does not match")
    topic_id, start, point, epochs_crc, flags, *counts = _FIXED.unpack_from(body)
    segments_end = _FIXED.size + counts[0] * _SEGMENT.size
    if segments_end + (counts[1] + counts[2]) * _SNAPSHOT.size != len(body):
        raise BadManifest(f"{counts} entries do not fit {len(body)} bytes")
    segments = [
        SegmentFiles(*fields) for fields in _SEGMENT.iter_unpack(body[_FIXED.size : segments_end])
    ]
    snapshots = [(offset, crc) for offset, crc in _SNAPSHOT.iter_unpack(body[segments_end:])]
    return Manifest(
        topic_id,
        start,
        point,
        epochs_crc,
        bool(flags & _GAPS),
        segments,
        dict(snapshots[: counts[1]]),
        dict(snapshots[counts[1] :]),
    )


def _crc(body: Data, name: str) -> int:
    """With the partition's name, so that another partition's manifest does not check."""
    return crc32c(body, crc32c(name.encode()))


def read_manifest(files: Files, directory: str) -> Manifest | None:
    """The manifest of the log in ``directory``; None: there is none, or none to trust.

    Raises OSError.
    """
    path = f"{directory}/{MANIFEST}"
    try:
        return decode_manifest(read_file(files, path), _name(directory))
    except FileNotFoundError:
        return None
    except BadManifest as bad:
        _logger.warning("%s is damaged: %s; it is made anew from the log", path, bad)
        return None


def write_manifest(files: Files, directory: str, manifest: Manifest) -> None:
    """Replace a manifest; stable when its name is, in its directory. Raises OSError."""
    content = encode_manifest(manifest, _name(directory))
    replace_file(files, f"{directory}/{MANIFEST}", content, sync=True)


def _name(directory: str) -> str:
    return directory.rpartition("/")[2]
