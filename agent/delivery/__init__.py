"""Records from files to the cluster: in order, bounded, acknowledged."""

from .shipper import Shipper

__all__ = ["Shipper"]
