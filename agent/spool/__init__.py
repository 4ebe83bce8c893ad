"""Delivering what applications could not: the batches in their spools."""

from .sending import SpoolSender
from .shipper import SpoolShipper

__all__ = ["SpoolSender", "SpoolShipper"]
