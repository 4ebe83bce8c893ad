"""Clients of two makes behind one face, imported when they are first used."""

from collections.abc import Sequence
from importlib import import_module

from .base import Client, Failed, Place

__all__ = ["NAMES", "Client", "Failed", "Place", "open_client"]

_MODULES = {"qbus": ("sdk", "QbusClient"), "confluent": ("confluent", "ConfluentClient")}
NAMES = tuple(_MODULES)


def open_client(
    kind: str, bootstrap: str, name: str, places: Sequence[Place], timeout_ms: int
) -> Client:
    """One of NAMES, not yet opened; ``name`` is its transactional id and its group."""
    module, made = _MODULES[kind]
    client: Client = getattr(import_module(f".{module}", __name__), made)(
        bootstrap, name, places, timeout_ms
    )
    return client
