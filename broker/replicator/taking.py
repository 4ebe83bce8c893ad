"""Taking what a leader answered about one partition."""

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.fetch import PartitionData

from .partition_fetch_state import PartitionFetchState, error_of

_NO_EPOCH = -1


class PartedError(ApiError):
    """The leader says that our log and its own part somewhere: settle that first."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, why)


def take(one: PartitionFetchState, data: PartitionData) -> int:
    """Append the records, learn the high watermark and where the log starts; how many bytes came.

    Raises PartedError, or ApiError with what the leader answered or the log refused: then only
    whole batches before the one that is refused were appended, if any.
    """
    code = error_of(data.error_code)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        one.is_out_of_range = True
        raise PartedError("the leader's log does not have the end of ours")
    if code:
        raise ApiError(code)
    if data.diverging_epoch.epoch != _NO_EPOCH:
        raise PartedError("the leader's log took another course")
    size = 0
    if data.records:
        one.replica.append_from_leader(data.records)
        size = len(data.records)
    one.replica.learn_high_watermark(data.high_watermark, data.log_start_offset)
    one.learned(data.high_watermark)
    return size
