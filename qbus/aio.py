"""The asyncio clients; :mod:`qbus` has the same clients for blocking programs."""

from qbus.clients import Admin, Consumer, Producer, Queue, ShareConsumer, everywhere

__all__ = ["Admin", "Consumer", "Producer", "Queue", "ShareConsumer", "everywhere"]
