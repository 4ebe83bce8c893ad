"""A partition's log: records appended at its end, read anywhere, and removed from its front."""

from collections.abc import Callable
from typing import NamedTuple, Self

from qbus.clock import Clock
from qbus.records import BatchHeader
from qbus.records.control import Marker

from .appender import Appender, AppendInfo, RunWriter, check_batch
from .config import LogConfig
from .controls import Fold
from .epochs import LeaderEpochCache
from .files import Files
from .flusher import LogFlusher
from .following import FollowerAppender
from .health import Corruption
from .mirroring import MirrorAppender, Provenance
from .names import TopicPartition, parse_partition
from .opening import LogOpener
from .producers import ProducerState, StoredPart, Verification
from .reader import LogReader, LogSlice, TimestampOffset, first_at_or_after, latest
from .removal import RecordRemover
from .repair import BatchRepair, Damage
from .rewriting import LogRewriter
from .state import DamagedBatches, LogState, SharedState, damage_of
from .transactions import AbortedTransaction
from .verify import LogVerifier, Scrubber
from .visible import (
    VisibleRecords,
    hidden_between,
    hidden_end,
    read_visible,
    visible_end,
)


class FullSegment(NamedTuple):
    """A segment that is full: its first offset, and the one after its last.

    ``is_finished``: a checkpoint has written the last entries of its indexes.
    """

    base_offset: int
    end_offset: int
    is_finished: bool


class Log:
    """One partition's records on disk, in one directory.

    Any thread may call anything. Appending, ``read``, ``delete_records_before`` and the properties
    do not wait for a disk to sync and are for the event loop; the other methods are for threads.
    After a failure to write or sync, other than a full disk, the directory is offline and all
    raise ApiError KAFKA_STORAGE_ERROR.
    """

    def __init__(self, state: LogState, flusher: LogFlusher) -> None:
        """Use :meth:`open`."""
        self._state = state
        self._flusher = flusher
        self._remover = RecordRemover(state, flusher)
        self._repair = BatchRepair(state)
        self.rewriter = LogRewriter(state, flusher)
        """What compaction works with: its segments, and new ones in their place."""
        verifier = LogVerifier(state)
        self._reader = LogReader(state, verifier)
        self._scrubber = Scrubber(state, verifier)
        self._appender = Appender(state, flusher)
        writer = RunWriter(state, self._appender)
        self._follower = FollowerAppender(state, self._appender, writer)
        self._mirror = MirrorAppender(state, self._appender, writer)
        self._writer = writer
        self.checkpointed_high_watermark = 0  # as of the last time somebody wrote it down
        name = parse_partition(state.directory.rpartition("/")[2])
        self.topic_partition = name or TopicPartition(state.directory, 0)

    @classmethod
    def open(  # noqa: PLR0913 - options are keywords
        cls,
        directory: str,
        config: LogConfig,
        clock: Clock,
        files: Files,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        clean: bool = False,
        shared: SharedState | None = None,
    ) -> Self:
        """Open the log in ``directory``, which exists, or begin a new one there.

        ``recovery_point``, ``log_start_offset`` and ``high_watermark`` are as checkpointed;
        ``clean`` says that the last user closed everything. A log that is found corrupt opens,
        refuses everything, and says why in :attr:`corruptions`. May take long. Raises ApiError
        KAFKA_STORAGE_ERROR.
        """
        shared = shared or SharedState(directory.rpartition("/")[0], files, clock)
        try:
            opener = LogOpener(shared.cache, directory, config, clock, shared.make_fold)
            opened = opener.open(recovery_point, log_start_offset, high_watermark, clean=clean)
        except OSError as error:
            raise shared.health.judge(f"open {directory}", error) from error
        state = LogState(directory, opened, config, clock, shared)
        state.take_damage(opened)
        flusher = LogFlusher(state, opened.unsynced, clean=opened.clean, is_listed=opened.is_listed)
        log = cls(state, flusher)
        log.checkpointed_high_watermark = high_watermark
        if opened.unsynced and state.refusal is None:
            log.flush()
        return log

    # What it is

    @property
    def topic_id(self) -> bytes | None:
        """The id of its topic; None when it is not known."""
        return self._state.topic_id

    @topic_id.setter
    def topic_id(self, topic_id: bytes | None) -> None:
        self._state.topic_id = topic_id

    @property
    def directory(self) -> str:
        """The partition's directory."""
        return self._state.directory

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._state.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.log_start_offset

    @property
    def first_segment_offset(self) -> int:
        """The base offset of the oldest segment; the log may start behind it."""
        return self._state.segments[0].base_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._state.end_offset

    @property
    def flushed_offset(self) -> int:
        """Every record below it is on stable storage."""
        return self._flusher.flushed_offset

    @property
    def recovery_point(self) -> int:
        """Below it nothing need be read after a crash: what the checkpoint holds."""
        return self._flusher.recovery_point

    @property
    def size(self) -> int:
        """Bytes of all segments' batches."""
        return sum(segment.size for segment in self._state.segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._state.segments)

    @property
    def active_size(self) -> int:
        """Bytes of the segment that is appended to."""
        return self._state.active.size

    def full_segments(self) -> list[FullSegment]:
        """The segments that nothing is appended to any more."""
        return [
            FullSegment(segment.base_offset, segment.end_offset, self._flusher.is_finished(segment))
            for segment in self._state.segments[:-1]
        ]

    @property
    def rewrites(self) -> int:
        """How often records were cut off at the end, or repaired in place, since it was opened."""
        return self._state.rewrites

    @property
    def epoch_cache(self) -> LeaderEpochCache:
        """Which leader epoch wrote which offsets."""
        return self._state.epochs

    @property
    def producers(self) -> ProducerState:
        """The idempotent producers heard of lately."""
        return self._state.producers

    @property
    def has_transactions(self) -> bool:
        """Whether there are transactions; without, all below the high watermark is stable."""
        return self._state.producers.has_transactions

    def advance_stable(self, high_watermark: int) -> None:
        """The high watermark is here now, and does not go back unless records are cut off."""
        self._state.producers.advance(high_watermark)

    def first_unstable(self, high_watermark: int) -> int:
        """Before which offset every transaction has ended, by a marker below the high watermark.

        At most that, which :meth:`advance_stable` was told.
        """
        return self._state.producers.first_unstable(high_watermark)

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that may have records in these offsets, by their markers."""
        return self._state.aborted.between(offset, end_offset)

    def encode_aborted(self, base_offset: int, end_offset: int) -> bytes:
        """The ``.txnindex`` of a segment of these offsets: of aborted transactions that end there.

        Empty if there are none, and no file is needed.
        """
        return self._state.aborted.encode(base_offset, end_offset)

    @property
    def fold(self) -> Fold:
        """What its hidden batches add up to; another one after a truncation."""
        return self._state.controls.fold

    @property
    def has_hidden(self) -> bool:
        """Whether there are batches that consumers are not sent."""
        return self._state.has_hidden

    @property
    def is_retention_blocked(self) -> bool:
        """Whether a timestamp in the future keeps ``retention.ms`` from removing segments."""
        return self._state.retention_blocked_ms > 0

    @property
    def corruptions(self) -> tuple[Corruption, ...]:
        """All that was found corrupt since the log was opened."""
        return tuple(self._state.corruptions)

    @property
    def damage(self) -> list[DamagedBatches]:
        """The batches that cannot be read, as far as they are known."""
        return damage_of(self._state)

    @property
    def can_serve_around_damage(self) -> bool:
        """Whether it is refused for damaged batches, and everything around them is known."""
        return self._state.is_refused_for_damage

    def serve_around_damage(self) -> None:
        """Use the log all the same, as no other replica has what it lost. Does no IO.

        Damaged batches keep their offsets: reading one raises CORRUPT_MESSAGE.
        """
        self._state.serve_around_damage()

    @property
    def is_usable(self) -> bool:
        """Whether it takes and serves records: not corrupt as a whole, directory not offline."""
        return self._state.refusal is None and not self._state.health.offline

    @property
    def has_full_disk(self) -> bool:
        """Whether its directory had no room for something, and none was found since."""
        return self._state.health.is_full

    # Writing

    def append(
        self,
        batch: bytearray | memoryview,
        leader_epoch: int,
        verification: Verification | None = None,
    ) -> AppendInfo:
        """Append one batch, setting base offset, leader epoch and log append time in place.

        A transaction's first batch needs the ``verification`` that was begun for it. Raises
        ApiError (then nothing was appended): what is wrong with it, KAFKA_STORAGE_ERROR.
        """
        return self._appender.append(batch, leader_epoch, verification)

    def check_transaction(
        self, producer_id: int, epoch: int, sequence: int, verification: Verification | None
    ) -> None:
        """Check that a batch of a transaction may be appended, which :meth:`append_own` does not.

        Raises ApiError INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        self._appender.check_transaction(producer_id, epoch, sequence, verification)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, begins_with_zero: bool
    ) -> Verification | None:
        """What a transaction's first batch is to be appended with, once its coordinator was asked.

        None: the producer's transaction is open here already. ``begins_with_zero``: its producer
        has a new epoch for each transaction.
        """
        state = self._state
        return state.producers.begin_verification(
            producer_id,
            epoch,
            sequence,
            begins_with_zero=begins_with_zero,
            now_ms=state.clock.time_ms(),
        )

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: Marker,
        leader_epoch: int,
        *,
        is_new_epoch: bool,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction, be there records of it or not.

        ``is_new_epoch``: the marker's epoch is the one that the producer has from now on; such a
        marker is a ``duplicate`` when it came before. Raises ApiError (then nothing was appended):
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, FENCED_LEADER_EPOCH,
        KAFKA_STORAGE_ERROR.
        """
        return self._writer.end_transaction(
            producer_id, producer_epoch, marker, leader_epoch, is_new_epoch=is_new_epoch
        )

    def append_own(self, batches: bytearray, leader_epoch: int) -> AppendInfo:
        """Append whole batches, one after another, as the leader of the log itself made them.

        Sets their offsets and leader epochs in place; nothing about them is judged. They are one
        write, unless they fill a segment. Raises ApiError FENCED_LEADER_EPOCH, and
        KAFKA_STORAGE_ERROR: the first of them may have been appended.
        """
        return self._writer.append_own(batches, leader_epoch)

    def check(self, batch: bytearray | memoryview) -> BatchHeader:
        """The header of a producer's batch, which :meth:`append` would take. Raises ApiError."""
        return check_batch(batch, self._state.config, self._state.clock.time_ms())

    def stored_part(self, header: BatchHeader) -> StoredPart | None:
        """How much of an idempotent producer's batch is stored: none of it, its beginning, or all.

        Of a batch that is stored in parts, the last ones may have been lost. Raises ApiError:
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_STORAGE_ERROR.
        """
        return self._appender.stored_part(header)

    def append_mirrored(
        self, batches: memoryview, provenance: Provenance, leader_epoch: int
    ) -> AppendInfo:
        """Append what another cluster's log has, setting nothing but leader epochs, in place.

        Those below the end of the log are there already; it is a ``duplicate`` when all are. Raises
        ApiError: OUT_OF_ORDER_SEQUENCE_NUMBER when something before them is missing, INVALID_RECORD
        when one goes across the end, INVALID_REQUEST when the log is no mirror of that source, and
        as ``append`` does; KAFKA_STORAGE_ERROR: the first of them may have been appended.
        """
        return self._mirror.append(batches, provenance, leader_epoch)

    def append_as_follower(self, records: memoryview) -> AppendInfo:
        """Append batches as the leader has them, offsets, epochs and timestamps as they are.

        The first must begin at the end of this log, each other one where the one before ends, or
        later where the log may have gaps.
        Where one does not, or is damaged, those before it are appended and nothing after it; one
        that is cut short behind whole ones is passed over. Raises ApiError CORRUPT_MESSAGE, or
        KAFKA_STORAGE_ERROR when they cannot be written.
        """
        return self._follower.append(records)

    def flush(self) -> int:
        """Sync what was appended so far; the offset that is stable now. For a thread.

        Appending goes on meanwhile. Raises ApiError KAFKA_STORAGE_ERROR. A failed sync takes the
        directory offline until the broker restarts; a lack of descriptors does not.
        """
        return self._flusher.flush()

    def flush_due(self) -> bool:
        """Whether ``flush.messages``, ``flush.ms`` or a finished segment asks for a flush."""
        return self._flusher.is_due()

    def roll_if_due(self) -> bool:
        """Begin a new segment if the active one is older than ``segment.ms``; whether it did."""
        return self._appender.roll_if_due()

    def roll(self) -> None:
        """Begin a new segment, due or not, unless the active one is empty. Raises ApiError."""
        self._appender.roll_now()

    def update_config(self, config: LogConfig) -> None:
        """Work by other settings from now on."""
        self._state.configure(config)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int | None = None,
        min_one_batch: bool = True,
        *,
        wait: bool = False,
    ) -> LogSlice | None:
        """Whole batches from the one that contains ``offset``, all below ``max_offset``.

        At most ``max_bytes``, but with ``min_one_batch`` at least the first batch. None when there
        is nothing (yet): ``offset`` is the end, or the batch is not whole below ``max_offset``.

        Does not wait for a disk: BlockingIOError says to call it in a thread, with ``wait``. What
        it returns may still have to be verified, see :class:`LogSlice`. Raises ApiError:
        OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE where the log is corrupt; KAFKA_STORAGE_ERROR.
        """
        return self._reader.read(
            offset, max_bytes, max_offset, min_one_batch=min_one_batch, wait=wait
        )

    def read_batch(self, offset: int, *, wait: bool = False) -> LogSlice | None:
        """The batch that contains ``offset``, be it before the log's start, if it is there still.

        Raises as :meth:`read` does.
        """
        return self._reader.read_batch(offset, wait=wait)

    def read_visible(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        min_one_batch: bool = True,
        *,
        wait: bool = False,
    ) -> LogSlice | VisibleRecords | None:
        """What consumers are sent: as :meth:`read`, with empty batches for hidden ones.

        None when nothing visible comes before ``max_offset``. Raises as :meth:`read` does.
        """
        return read_visible(
            self._state,
            self._reader,
            offset,
            max_bytes,
            max_offset,
            min_one_batch=min_one_batch,
            wait=wait,
        )

    def visible_end(self, limit: int) -> int:
        """The offset after the last record before ``limit`` that is visible to consumers."""
        return visible_end(self._state, limit)

    def hidden_end(self, offset: int, *, wait: bool = False) -> int:
        """The offset after the hidden batches that begin with ``offset``, or itself without any.

        Raises BlockingIOError where a disk would be waited for, unless ``wait``.
        """
        return hidden_end(self._state, offset, wait=wait)

    def hidden_between(self, offset: int, end_offset: int) -> int:
        """How many offsets from ``offset`` to before ``end_offset`` are of hidden batches."""
        return hidden_between(self._state, offset, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with ``timestamp`` or a later one. For a thread.

        Raises ApiError CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        return self._reader.find(lambda state: first_at_or_after(state, timestamp))

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp of all. For a thread; raises likewise."""
        return self._reader.find(latest)

    def scrub(self, max_bytes: int = 1 << 20) -> bool:
        """Check about ``max_bytes`` more, and report what is corrupt; whether that was the end.

        For a thread. Raises ApiError.
        """
        return self._scrubber.step(max_bytes)

    @property
    def scrubbed_bytes(self) -> int:
        """How much :meth:`scrub` has gone through, counted again in each round."""
        return self._scrubber.checked_bytes

    def on_corruption(self, listener: Callable[[Corruption], None]) -> None:
        """Have ``listener`` called, in whichever thread finds corrupt data."""
        self._state.on_corruption = listener

    # Removing

    def delete_records_before(self, offset: int) -> int:
        """Let the log start with ``offset``; the log start offset then. Does no IO.

        It survives a crash once the log start offsets are checkpointed. Whole segments before it
        go with the next retention. Raises ApiError OFFSET_OUT_OF_RANGE.
        """
        return self._remover.delete_records_before(offset)

    def apply_retention(self, max_offset: int | None = None) -> int:
        """Remove whole segments as time, size and log start say; how many. For a thread.

        None that has records at ``max_offset``, the high watermark, or later. Raises ApiError.
        """
        limit = self._flusher.flushed_offset if max_offset is None else max_offset
        return self._remover.apply_retention(limit)

    def expired_before(self, max_offset: int, *, by_size: bool = True) -> int:
        """Where the log would start after retention if its fold needed nothing. For a thread.

        ``max_offset`` as in :meth:`apply_retention`; ``by_size``: also for ``retention.bytes``. The
        active segment stays. Raises ApiError.
        """
        return self._remover.expired_before(max_offset, by_size=by_size)

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that have ``offset`` or later ones; the end offset then. For a thread.

        Stable on return. The checkpointed recovery point must be lowered before: see
        :meth:`LogManager.truncate`. Raises ApiError.
        """
        return self._remover.truncate_to(offset)

    def truncation_point(self, offset: int) -> int:
        """Where :meth:`truncate_to` would let the log end: the end of a batch. For a thread."""
        return self._remover.truncation_point(offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything, be it corrupt, and let the log go on with ``offset``. For a thread.

        Stable on return. The checkpoints must be lowered before: see :meth:`LogManager.restart_at`.
        Raises ApiError.
        """
        self._remover.restart_at(offset)

    def drop_snapshots(self) -> None:
        """Remove the snapshots, which no longer hold. For a thread."""
        self._remover.drop_snapshots()

    def expire_producers(self) -> None:
        """Forget the producers that were not heard of for ``producer.id.expiration.ms``."""
        self._remover.expire_producers()

    # Repairing, with what other replicas have

    @property
    def is_beyond_repair(self) -> bool:
        """Whether the log is corrupt as a whole: it refuses everything until it starts anew."""
        return self._repair.is_beyond_repair

    def find_damage(self, corruption: Corruption) -> Damage | None:
        """Find the bad batches that ``corruption`` tells of; None: they are good by now.

        For a thread. Raises ApiError.
        """
        return self._repair.find(corruption)

    def repair(self, damage: Damage, records: bytes) -> None:
        """Write batches of another replica in the place of ``damage``; stable on return.

        For a thread. Raises ApiError CORRUPT_MESSAGE when they are not what was there.
        """
        self._repair.repair(damage, records)

    # Ending

    def checkpoint(self) -> int:
        """Raise the recovery point to the flushed offset; what to write down. For a thread."""
        return self._flusher.checkpoint()

    def close(self) -> None:
        """Flush, and leave all so that the next open may be ``clean``. For a thread."""
        if self._state.refusal is None:
            self._flusher.close()
            self.abandon()

    def abandon(self) -> None:
        """Refuse everything from now on, for the files are someone else's or gone. For a thread.

        A flush, checkpoint, retention or new segment that is under way finishes first: it must not
        find the files gone and take that for a failed disk.
        """
        with self._state.sync_lock, self._state.lock:
            self._state.abandon()
