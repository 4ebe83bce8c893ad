"""The consumer: fetching, positions, and its share of a group's partitions."""

from .consumer import Consumer

__all__ = ["Consumer"]
