"""Statistics of lines by windows of time."""

from .windows import summarized

__all__ = ["summarized"]
