"""Detects clients that use more than they should."""

from .detection import alerts

__all__ = ["alerts"]
