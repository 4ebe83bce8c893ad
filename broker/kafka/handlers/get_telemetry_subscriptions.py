"""GetTelemetrySubscriptions (key 71): which of its metrics a client is to push (KIP-714).

All clients are told the same: the metrics that ``telemetry.metrics`` names, and how often, which is
``telemetry.push.interval.ms``.
"""

from typing import TYPE_CHECKING

from qbus.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

from ...telemetry.clients import ACCEPTED
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Tell what is wanted; a client without an instance id gets one."""
    subscription = broker.telemetry.subscription
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=broker.telemetry.subscribe(
            request.client_instance_id, context.client_id or "", context.client_software
        ),
        subscription_id=subscription.id,
        accepted_compression_types=list(ACCEPTED),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=subscription.max_bytes,
        # The values themselves, which are shown as they are.
        delta_temporality=False,
        requested_metrics=list(subscription.metrics),
    )
