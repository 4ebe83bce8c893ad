"""The producer: records into batches, batches to the leaders of their partitions."""

from ..errors import BufferFull, Spooled
from .delivery import BulkDelivery, Delivery
from .producer import Producer

__all__ = ["BufferFull", "BulkDelivery", "Delivery", "Producer", "Spooled"]
