"""GetTelemetrySubscriptions (API 71): which of its metrics a client is to push (KIP-714)."""

from qbus.wire.declare import Bool, Int8, Int16, Int32, String, Struct, Uuid, field


class GetTelemetrySubscriptionsRequest(Struct, flexible="0+"):
    client_instance_id: Uuid = field()


class GetTelemetrySubscriptionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    client_instance_id: Uuid = field()
    subscription_id: Int32 = field()
    accepted_compression_types: list[Int8] = field()
    push_interval_ms: Int32 = field()
    telemetry_max_bytes: Int32 = field()
    delta_temporality: Bool = field()
    # Prefixes of names; none: no metrics, "": all.
    requested_metrics: list[String] = field()
