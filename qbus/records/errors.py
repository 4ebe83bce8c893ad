"""The one error of the record format."""

from qbus.errors import ApiError, ErrorCode


class CorruptBatch(ApiError):  # noqa: N818 - what it is, as Kafka says "corrupt message"
    """Bytes that are not a whole, valid record batch (error code CORRUPT_MESSAGE).

    topic, partition, offset: where a reader met them; None where that is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
