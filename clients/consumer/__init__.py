"""The consumer: positions in partitions, fetched records, and the group that shares them."""

from .consumer import Consumer

__all__ = ["Consumer"]
