"""The deliveries of the blocking producer."""

from functools import partial

from ..producer import Producer
from ..producer.accumulator import Accumulator
from ..producer.delivery import AsyncDelivery, Delivery
from ..types import Duration, Moment, RecordMetadata
from .client import blocking
from .loop import LoopThread


class BlockingDelivery(Delivery):
    """The delivery of one record of the blocking producer."""

    __slots__ = ()

    def _hurried(self, accumulator: Accumulator) -> RecordMetadata:
        """Have it sent without delay, and return as ``result`` does."""
        # The sender is called last: it runs while this thread does nothing but wait.
        self._wait(None, partial(accumulator.hurry, self._batch))
        return self.result()

    def cancel(self) -> bool:
        place = self._place(self.result())
        cancelled: bool = self._batch.orders.cancel(*place)
        return cancelled

    def reschedule(
        self, *, deliver_at: Moment | None = None, delay: Duration | None = None
    ) -> bool:
        place = self._place(self.result())
        moved: bool = self._batch.orders.reschedule(*place, deliver_at=deliver_at, delay=delay)
        return moved

    cancel.__doc__ = AsyncDelivery.cancel.__doc__
    reschedule.__doc__ = AsyncDelivery.reschedule.__doc__


class OrderingProducer(Producer):
    """The asyncio producer behind a blocking one."""

    _delivery = BlockingDelivery


class Orders:
    """Gives orders about delayed records, and waits for the answers."""

    def __init__(self, client: OrderingProducer, thread: LoopThread) -> None:
        self._client = client
        self._thread = thread

    cancel = blocking(Producer.cancel)
    reschedule = blocking(Producer.reschedule)
