"""Metrics that clients push to the broker (KIP-714)."""

from .clients import ClientTelemetry, Instance, Subscription

__all__ = ["ClientTelemetry", "Instance", "Subscription"]
