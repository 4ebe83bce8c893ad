"""A partition's log in memory, as far as clients can tell it from a real one."""

from collections import deque

from qbus.errors import ErrorCode
from qbus.records import BatchHeader, iter_records, read_header, set_base_offset


class PartitionLog:
    """The batches of a partition, and the last sequences of its producers.

    corrupt: offsets that the broker finds to be corrupt.
    """

    def __init__(self) -> None:
        self.corrupt = range(0)
        self.batches: list[bytes] = []
        self.end = 0
        self.start = 0
        self._known: dict[tuple[int, int], deque[tuple[int, int, int]]] = {}

    def append(self, data: bytes, leader_epoch: int = 0) -> tuple[ErrorCode, int]:
        header = read_header(data)
        if header.has_producer_id:
            code, offset = self._check_sequence(header)
            if code is not ErrorCode.NONE or offset >= 0:
                return code, offset
        stored = bytearray(data)
        set_base_offset(stored, self.end, leader_epoch)
        self.batches.append(bytes(stored))
        self.end += header.records_count
        return ErrorCode.NONE, self.end - header.records_count

    def _check_sequence(self, header: BatchHeader) -> tuple[ErrorCode, int]:
        known = self._known.setdefault((header.producer_id, header.producer_epoch), deque(maxlen=5))
        for first, last, offset in known:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return ErrorCode.NONE, offset
        if known and header.base_sequence != known[-1][1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        known.append((header.base_sequence, header.last_sequence, self.end))
        return ErrorCode.NONE, -1

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in iter_records(batch)]

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches up to ``max_bytes``, but at least one, like a broker (KIP-74)."""
        found = b""
        for batch in self.batches:
            header = read_header(batch)
            if header.last_offset >= offset:
                if header.base_offset in self.corrupt:
                    break
                if found and len(found) + len(batch) > max_bytes:
                    break
                found += batch
        return found

    def truncate(self, end: int) -> None:
        """Lose the batches from ``end`` on, as an unclean election does."""
        self.batches = [batch for batch in self.batches if read_header(batch).last_offset < end]
        self.end = end

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The latest epoch up to ``epoch`` that wrote something, and the offset after its last."""
        found = (-1, -1)
        for header in map(read_header, self.batches):
            if header.partition_leader_epoch <= epoch:
                found = header.partition_leader_epoch, header.last_offset + 1
        return found
