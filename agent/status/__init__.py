"""What an agent tells of itself: of each file, and in all."""

from .model import AgentStatus, FileState, FileStatus, SpoolStatus

__all__ = ["AgentStatus", "FileState", "FileStatus", "SpoolStatus"]
