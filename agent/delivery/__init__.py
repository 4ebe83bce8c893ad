"""Delivery of the records of files: in order, within bounds, acknowledged."""

from .dispatcher import Dispatcher

__all__ = ["Dispatcher"]
