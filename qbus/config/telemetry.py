"""Broker configuration: the metrics that clients push (KIP-714)."""

from qbus.config.settings import Settings, integer, strings


class TelemetryKeys(Settings):
    """The settings of clients' telemetry."""

    __slots__ = ()

    telemetry_metrics = strings(
        (),
        "Clients push the metrics whose names begin with one of these, such as "
        "org.apache.kafka.consumer. for all of consumers; none: they push nothing.",
    )
    telemetry_push_interval_ms = integer(
        300_000,
        "How often clients push their metrics.",
        unit="ms",
        at_least=100,
        at_most=3_600_000,
    )
    telemetry_max_bytes = integer(
        1024 * 1024,
        "Maximum size of what a client pushes at once, compressed. Decompressed it may be four "
        "times as large.",
        unit="bytes",
        at_least=1,
    )
