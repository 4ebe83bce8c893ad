"""Quotas, set over the wire."""

from qbus.wire import ApiKey
from qbus.wire.messages import alter_client_quotas as alter

from .raw_client import RawClient

Entity = tuple[tuple[str, str | None], ...]

EVERY_USER: Entity = (("user", None),)


def client(name: str) -> Entity:
    """Whoever calls itself so."""
    return (("client-id", name),)


def set_quotas(port: int, entity: Entity, **quotas: float | None) -> None:
    """Set quotas of an entity; None removes one."""
    entry = alter.EntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            alter.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )
    request = alter.AlterClientQuotasRequest(entries=[entry])
    with RawClient(port) as raw:
        (answer,) = raw.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries
    assert answer.error_code == 0, answer.error_message
