"""Batches to append, and files that fail or wait when a test says so."""

import errno
import threading

from qbus.records import Compression, build_batch

from .failing_files import FailingFiles

NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes,
    timestamp: int = NOW_MS,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> memoryview:
    """One batch of ``values``, as a request's records arrive."""
    return memoryview(
        build_batch(
            [(None, value, (), timestamp) for value in values],
            compression=compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            attributes=attributes,
        )
    )


class DiskControl:
    """The disk below :class:`ControlledFiles`."""

    def __init__(self) -> None:
        self.syncs = 0
        self.sync_error: int | None = None
        self.write_error: int | None = None
        self._go_on = threading.Event()
        self._go_on.set()
        self.syncing = threading.Semaphore(0)

    def hold_syncs(self) -> None:
        """Let no sync finish from now on."""
        self.syncing = threading.Semaphore(0)
        self._go_on.clear()

    def release_syncs(self) -> None:
        """Let syncs finish again."""
        self._go_on.set()

    def fill(self) -> None:
        """Fill the disk: writes fail."""
        self.write_error = errno.ENOSPC

    def empty(self) -> None:
        """Make room again."""
        self.write_error = None

    def sync(self) -> None:
        """Hold, count or fail a sync."""
        self.syncs += 1
        self.syncing.release()
        assert self._go_on.wait(30)
        if self.sync_error is not None:
            raise OSError(self.sync_error, "Input/output error")

    def write(self) -> None:
        """Fail a write if the disk is full."""
        if self.write_error is not None:
            raise OSError(self.write_error, "No space left on device")


class ControlledFiles(FailingFiles):
    """The real file system, where segments (``.log``) are under a test's control."""

    def __init__(self, disk: DiskControl, suffixes: tuple[str, ...] = (".log",)) -> None:
        super().__init__()
        operations = {"write": disk.write, "sync": disk.sync}

        def control(operation: str, path: str) -> None:
            if operation in operations and path.endswith(suffixes):
                operations[operation]()

        self.before = control


TRANSACTIONAL = 0x10


def transactional(
    *values: bytes, producer_id: int = 7, epoch: int = 0, sequence: int = 0
) -> memoryview:
    """One batch of a transaction of a producer."""
    return batch(
        *values,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )
