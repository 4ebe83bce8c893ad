"""Clients that take more than they should."""

from .detection import alerts

__all__ = ["alerts"]
