"""Qbus: a partitioned commit-log message bus that every Kafka client can use."""

from ._version import __version__

__all__ = ["__version__"]
