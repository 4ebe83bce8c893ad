"""Copying partitions from their leaders."""

from .fetchers import ReplicaFetchers

__all__ = ["ReplicaFetchers"]
