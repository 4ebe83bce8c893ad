"""The one error of the record format."""

from qbus.errors import ApiError, ErrorCode


class CorruptBatch(ApiError):  # noqa: N818 - what it is, as Kafka says "corrupt message"
    """Bytes that are not a whole, valid record batch (error code CORRUPT_MESSAGE)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
