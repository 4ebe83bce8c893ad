"""The producer: records into batches, batches to the leaders of their partitions."""

from .producer import Producer

__all__ = ["Producer"]
