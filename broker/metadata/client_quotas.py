"""Client quotas as the metadata cache knows them: read whole at first, then what the feed names."""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from qbus.metadata import MetadataStore, Node
from qbus.metadata.client_quotas import CLIENTS, CONFIG, IPS, USERS, QuotaEntity, quotas_of
from qbus.metadata.errors import MalformedNode

_log = logging.getLogger(__name__)

_ROOTS: Final = tuple(f"{CONFIG}/{name}" for name in (USERS, CLIENTS, IPS))

Quotas = Mapping[str, float]
"""Values by the names of quotas, such as ``producer_byte_rate``."""


async def read_client_quotas(
    store: MetadataStore, before: Mapping[QuotaEntity, Quotas]
) -> dict[QuotaEntity, Quotas]:
    """Read all quotas. What cannot be read stays as it was ``before``."""
    found: dict[QuotaEntity, Quotas] = {}
    for root in _ROOTS:
        for path, node in (await store.tree(root)).items():
            entity = QuotaEntity.at(path.removeprefix(f"{CONFIG}/"))
            if entity is not None:
                _put(found, entity, node, before)
    return found


async def read_changed_quotas(
    store: MetadataStore, places: Collection[str], before: Mapping[QuotaEntity, Quotas]
) -> dict[QuotaEntity, Quotas]:
    """Read the quotas at ``places`` anew; return all that there are then."""
    now = dict(before)
    entities = [entity for place in places if (entity := QuotaEntity.at(place)) is not None]
    nodes = await store.get_many([entity.path for entity in entities])
    for entity in entities:
        now.pop(entity, None)
        _put(now, entity, nodes.get(entity.path), before)
    return now


def _put(
    quotas: dict[QuotaEntity, Quotas],
    entity: QuotaEntity,
    node: Node | None,
    before: Mapping[QuotaEntity, Quotas],
) -> None:
    try:
        values: Quotas = quotas_of(node.data) if node is not None else {}
    except MalformedNode as error:
        _log.error("the quotas of %s cannot be read and stay as they were: %s", entity, error)
        values = before.get(entity, {})
    if values:
        quotas[entity] = values


def changed(
    before: Mapping[QuotaEntity, Quotas], now: Mapping[QuotaEntity, Quotas]
) -> Iterable[QuotaEntity]:
    """Whose quotas differ."""
    return [entity for entity in {*before, *now} if before.get(entity) != now.get(entity)]
