"""What a share consumer returns and raises."""

from collections.abc import Sequence
from typing import NamedTuple

from qbus.errors import ApiError
from qbus.records import TimestampType
from qbus.records.record import Headers


class RecordPlace(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class ShareRecord(NamedTuple):
    """A record that this member has until it says what came of it, or its lock runs out.

    ``timestamp`` is in milliseconds since the Unix epoch. ``deliveries``: how often the group was
    given the record, this time included.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_type: TimestampType
    deliveries: int

    @property
    def place(self) -> RecordPlace:
        """Where the record is."""
        return RecordPlace(self.topic, self.partition, self.offset)


class AcknowledgementLost(ApiError):  # noqa: N818 - what happened
    """The broker did not take what a consumer said of some records; others may get them again.

    ``records`` says which. Most often their lock had run out, or their partition's leader moved.
    The broker may have stored it all the same if the connection broke before it answered.
    """

    def __init__(self, records: Sequence[RecordPlace], cause: ApiError) -> None:
        topic, partition, offset = records[0]
        more = f" and {len(records) - 1} more" if len(records) > 1 else ""
        super().__init__(
            cause.code,
            f"the acknowledgement of offset {offset} of {topic}-{partition}{more} is lost: {cause}",
        )
        self.records = tuple(records)
