"""Reading a log's leader epochs when it is opened, and making them anew where they are in doubt."""

import logging
from collections.abc import Iterator

from qbus.records import BatchHeader

from .checkpoints import LEADER_EPOCHS, BadCheckpoint, decode_epochs
from .epochs import EpochStart, LeaderEpochCache
from .files import Files, read_file
from .scan import BadBatch
from .segment import LogSegment

_logger = logging.getLogger(__name__)


def load_epochs(files: Files, directory: str, segments: list[LogSegment]) -> LeaderEpochCache:
    """The epochs of the log in ``directory``; ``dirty`` when they are not those on disk.

    The checkpoint has no sum: it is believed where the batches that epochs begin with agree. If one
    batch is against it, that batch is bad; if several are, it is. Raises OSError.
    """
    path = f"{directory}/{LEADER_EPOCHS}"
    if files.exists(path):
        try:
            epochs = LeaderEpochCache(decode_epochs(read_file(files, path)))
        except BadCheckpoint as bad:
            _logger.warning("%s is made anew from the log: %s", path, bad)
        else:
            if all(_agrees(segments, entry) for entry in epochs.entries):
                return epochs
            if _count_against(segments, epochs) <= 1:
                return epochs
            _logger.warning("%s is made anew from the log, which contradicts it", path)
    return _read_epochs(segments)


def _agrees(segments: list[LogSegment], entry: EpochStart) -> bool:
    holding = [segment for segment in segments if segment.base_offset <= entry.start_offset]
    for header in _headers(holding[-1:], entry.start_offset):
        if header.last_offset >= entry.start_offset:
            return header.partition_leader_epoch == entry.epoch
    return True  # the epoch has no records, or they are gone


def _count_against(segments: list[LogSegment], epochs: LeaderEpochCache) -> int:
    return sum(
        header.partition_leader_epoch != epochs.epoch_at(header.base_offset)
        for header in _headers(segments)
    )


def _read_epochs(segments: list[LogSegment]) -> LeaderEpochCache:
    epochs = LeaderEpochCache()
    reached = segments[0].base_offset if segments else 0
    for header in _headers(segments):
        epochs.assign(header.partition_leader_epoch, reached)
        reached = header.last_offset + 1
    epochs.dirty = True
    return epochs


def _headers(segments: list[LogSegment], from_offset: int = 0) -> Iterator[BatchHeader]:
    """Batches' headers, up to where the log is torn, if it is."""
    try:
        for segment in segments:
            for placed in segment.batches_from(from_offset):
                yield placed.header
    except BadBatch:
        return
