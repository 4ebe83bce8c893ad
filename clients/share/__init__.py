"""The asyncio consumer of share groups (KIP-932): each record to one of any number of members."""

from .consumer import ShareConsumer
from .types import AcknowledgementLost, ShareRecord

__all__ = ["AcknowledgementLost", "ShareConsumer", "ShareRecord"]
