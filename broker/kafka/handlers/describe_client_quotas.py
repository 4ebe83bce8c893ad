"""DescribeClientQuotas (key 48): the quotas that are set, by filters (KIP-546).

A filter asks for entities that have a user, a client id or an address: of an exact name, the
default, or any. Entities must match all filters, and in a strict request have no other part. The
answer is what this broker has in force.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from qbus.errors import ApiError
from qbus.metadata.client_quotas import QuotaEntity
from qbus.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

from ...authorization import CLUSTER, Operation
from ...quotas.administration import Filter, describe, parts
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Describe what matches."""
    try:
        context.authorize(Operation.DESCRIBE_CONFIGS, CLUSTER)
        filters = [Filter(one.entity_type, one.match_type, one.match) for one in request.components]
        found = describe(broker.metadata.client_quotas, filters, strict=request.strict)
    except ApiError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse(
        error_message=None, entries=[_entry(entity, values) for entity, values in found]
    )


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts(entity)],
        values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
    )
