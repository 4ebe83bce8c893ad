"""The clients for programs that use asyncio; :mod:`qbus` has the same ones for those that block."""

from qbus.clients import Admin, Consumer, Producer, everywhere

__all__ = ["Admin", "Consumer", "Producer", "everywhere"]
