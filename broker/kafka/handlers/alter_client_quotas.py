"""AlterClientQuotas (key 49): quotas set and removed, of each entity for itself (KIP-546).

An entity that comes twice is INVALID_REQUEST. The answer comes once this broker has the new quotas
in force; the others follow within moments.
"""

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.client_quotas import QuotaEntity
from qbus.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryData,
    EntryData,
)

from ...authorization import CLUSTER, Operation
from ...controller import ConfigChange
from ...quotas.administration import Change, edit, make_entity
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_log = logging.getLogger(__name__)


async def handle(
    broker: "Broker", context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Alter each entity's quotas for itself."""
    answers = [AlterEntryData(error_message=None, entity=one.entity) for one in request.entries]
    try:
        context.authorize(Operation.ALTER_CONFIGS, CLUSTER)
    except ApiError as error:
        for answer in answers:
            _refuse(answer, error)
        return AlterClientQuotasResponse(entries=answers)
    changes: dict[int, ConfigChange] = {}
    times = Counter(_key(one) for one in request.entries)
    for place, (entry, answer) in enumerate(zip(request.entries, answers, strict=True)):
        try:
            entity = _entity(entry)
            if times[_key(entry)] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{entity} comes twice")
            edits = [Change(op.key, op.value, op.remove) for op in entry.ops]
            changes[place] = ConfigChange(entity.place, partial(_edited, entity, edits))
        except ApiError as error:
            _refuse(answer, error)
    outcomes = await broker.controller.alter_client_quotas(
        list(changes.values()), validate_only=request.validate_only
    )
    for (place, change), refusal in zip(changes.items(), outcomes, strict=True):
        if refusal is not None:
            _refuse(answers[place], refusal)
        elif not request.validate_only:
            context.changed("alter quotas", change.name)
            _log.info("the quotas of %s are altered by %s", change.name, context.sender)
    return AlterClientQuotasResponse(entries=answers)


def _edited(entity: QuotaEntity, edits: list[Change], current: dict[str, str]) -> dict[str, str]:
    return edit(entity, current, edits)


def _entity(entry: EntryData) -> QuotaEntity:
    return make_entity([(one.entity_type, one.entity_name) for one in entry.entity])


def _key(entry: EntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset((one.entity_type, one.entity_name) for one in entry.entity)


def _refuse(answer: AlterEntryData, error: ApiError) -> None:
    answer.error_code, answer.error_message = error.code, error.message
