"""What keeps a producer from taking or delivering records, beside what brokers say."""

from qbus.errors import QbusError


class BufferFull(QbusError):  # noqa: N818 - what happened
    """There is no room for another record: delivered ones make room."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} bytes wait to be delivered already")

    @property
    def retriable(self) -> bool:
        """Always: room comes as soon as something is delivered."""
        return True


class Spooled(QbusError):  # noqa: N818 - what happened
    """The record was not delivered in time, and is kept on disk to be delivered later."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"not delivered, kept in {directory}")
        self.directory = directory
