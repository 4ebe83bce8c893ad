"""The admin client."""

from .admin import Admin

__all__ = ["Admin"]
