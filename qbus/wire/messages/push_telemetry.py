"""PushTelemetry (API 72): a client's metrics, in OpenTelemetry's format (KIP-714)."""

from qbus.wire.declare import Bool, Bytes, Int8, Int16, Int32, Struct, Uuid, field


class PushTelemetryRequest(Struct, flexible="0+"):
    client_instance_id: Uuid = field()
    subscription_id: Int32 = field()
    terminating: Bool = field()
    compression_type: Int8 = field()
    metrics: Bytes = field()  # MetricsData, version 1, in protobuf


class PushTelemetryResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
