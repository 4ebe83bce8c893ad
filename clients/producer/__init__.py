"""The producer: records into batches, batches to the leaders of their partitions."""

from .delivery import BulkDelivery, Delivery
from .errors import BufferFull, Spooled
from .producer import Producer

__all__ = ["BufferFull", "BulkDelivery", "Delivery", "Producer", "Spooled"]
