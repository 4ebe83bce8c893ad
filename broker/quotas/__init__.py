"""Quotas of clients: how many bytes, how much of the broker's time and how many changes a second.

Everything is pure but the metrics: :mod:`~qbus.broker.quotas.resolution` says which quota holds for
whom, :mod:`~qbus.broker.quotas.meter` what was used of it, and
:mod:`~qbus.broker.quotas.client_quotas` brings them together for the connections. Connections of
new clients are limited by :mod:`~qbus.broker.quotas.connection_rates`. What Kafka's protocol does
with all that is in :mod:`qbus.broker.kafka.throttling`.
"""

from .client_quotas import UNLIMITED, ClientQuotas, ConnectionQuotas, Windows
from .connection_rates import ConnectionRates
from .meter import Meter

__all__ = [
    "UNLIMITED",
    "ClientQuotas",
    "ConnectionQuotas",
    "ConnectionRates",
    "Meter",
    "Windows",
]
