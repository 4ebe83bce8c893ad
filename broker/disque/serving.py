"""The listener for RESP, put together with what answers the commands."""

import socket

from qbus.config import Address

from ..net.memory_budget import MemoryBudget
from .admin import AdminCommands
from .dispatch import Dispatcher
from .listener import DisqueListener, Limits
from .service import DisqueService


def make_listener(
    sock: socket.socket,
    address: Address,
    service: DisqueService,
    limits: Limits,
    budget: MemoryBudget,
) -> DisqueListener:
    """A listener for jobs; ``sock`` listens on ``address``. Make it in a running event loop."""
    admin = AdminCommands(service)
    dispatcher = Dispatcher(service, admin)
    listener = DisqueListener(sock, address, dispatcher, limits, budget)
    admin.listener = listener
    admin.processed = lambda: dispatcher.processed
    service.clients = listener
    return listener
