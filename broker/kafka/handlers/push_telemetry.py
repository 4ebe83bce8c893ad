"""PushTelemetry (key 72): a client's metrics, which the broker shows among its own (KIP-714)."""

from typing import TYPE_CHECKING

from qbus.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Keep the values until the client pushes again.

    Raises:
        ApiError: as of ``ClientTelemetry.push``.
    """
    await broker.telemetry.push(
        request.client_instance_id,
        request.subscription_id,
        request.compression_type,
        bytes(request.metrics),
        client_id=context.client_id or "",
        software=context.client_software,
        is_last=request.terminating,
    )
    return PushTelemetryResponse()
