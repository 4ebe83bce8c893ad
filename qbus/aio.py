"""The asyncio clients; :mod:`qbus` has the same clients for blocking programs."""

from typing import TYPE_CHECKING

from qbus.lazy import lazily

if TYPE_CHECKING:
    from qbus.clients import Admin, Consumer, Producer, Queue, ShareConsumer, everywhere

__all__ = ["Admin", "Consumer", "Producer", "Queue", "ShareConsumer", "everywhere"]

if not TYPE_CHECKING:  # which knows the names from above, and no others
    __getattr__, __dir__ = lazily(__name__, __all__, {}, ("qbus.clients",))
