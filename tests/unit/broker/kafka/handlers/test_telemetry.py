"""GetTelemetrySubscriptions and PushTelemetry, over the wire."""

from types import SimpleNamespace
from typing import Any

import pytest

from qbus.broker.kafka.context import RequestContext
from qbus.broker.kafka.handlers import get_telemetry_subscriptions, push_telemetry
from qbus.broker.net.peer import Peer
from qbus.broker.telemetry import ClientTelemetry
from qbus.clock import ManualClock
from qbus.config import BrokerConfig, ListenerInfo
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from qbus.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tests.support.data_plane import over_the_wire

NOBODY = bytes(16)


@pytest.fixture
def broker() -> Any:
    config = BrokerConfig(
        {"telemetry.metrics": "org.apache.kafka.,x.", "telemetry.push.interval.ms": 5_000}
    )
    return SimpleNamespace(telemetry=ClientTelemetry(config, ManualClock()))


def context(key: ApiKey) -> RequestContext:
    return RequestContext(
        key, 0, "c", Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
    )


def subscribe(broker: Any, instance: bytes = NOBODY) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    key = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    answer = get_telemetry_subscriptions.handle(broker, context(key), request)
    response: GetTelemetrySubscriptionsResponse = over_the_wire(key, 0, answer)
    return response


def test_clients_are_told_what_to_push(broker: Any) -> None:
    response = subscribe(broker)
    assert response.requested_metrics == ["org.apache.kafka.", "x."]
    assert response.push_interval_ms == 5_000
    assert response.accepted_compression_types == [4, 3, 1, 2]
    assert response.telemetry_max_bytes == 1024 * 1024
    assert response.delta_temporality is False
    assert response.client_instance_id != NOBODY
    assert subscribe(broker, b"i" * 16).client_instance_id == b"i" * 16


async def test_what_they_push_is_taken(broker: Any) -> None:
    told = subscribe(broker)
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id, subscription_id=told.subscription_id
    )
    answer = await push_telemetry.handle(broker, context(ApiKey.PUSH_TELEMETRY), request)
    assert over_the_wire(ApiKey.PUSH_TELEMETRY, 0, answer) == PushTelemetryResponse()
    assert broker.telemetry.pushes == 1


async def test_a_push_for_another_subscription_is_refused(broker: Any) -> None:
    request = PushTelemetryRequest(client_instance_id=b"i" * 16, subscription_id=1)
    with pytest.raises(ApiError) as caught:
        await push_telemetry.handle(broker, context(ApiKey.PUSH_TELEMETRY), request)
    assert caught.value.code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
