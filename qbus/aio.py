"""The asyncio clients; :mod:`qbus` has the same ones for programs that block."""

from qbus.clients import Admin, Consumer, Producer, everywhere

__all__ = ["Admin", "Consumer", "Producer", "everywhere"]
