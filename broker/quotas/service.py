"""Quotas of a broker, kept as the metadata store has them."""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Final

from qbus.config import BrokerConfig

from ..metadata.cache import MetadataCache
from ..metadata.image import ClientQuotasChanged, Event
from ..net.peer import Principal
from ..partition.background_tasks import BackgroundTasks
from .client_quotas import ClientQuotas, Windows
from .connection_rates import ConnectionRates

_LET_GO_INTERVAL_S: Final = 30.0


def follow_quotas(
    config: BrokerConfig,
    metadata: MetadataCache,
    tasks: BackgroundTasks,
    is_exempt: Callable[[Principal], bool] | None = None,
) -> tuple[ClientQuotas, ConnectionRates]:
    """Make the quotas of clients and of addresses, which follow the store from now on.

    ``is_exempt``: whose requests are not counted: other brokers'.
    """
    windows = Windows(
        config.quota_window_num,
        float(config.quota_window_size_seconds),
        float(config.controller_quota_window_num * config.controller_quota_window_size_seconds),
    )
    quotas = ClientQuotas(windows, is_exempt=is_exempt)
    rates = ConnectionRates(windows.burst_s, windows.size_s)
    _put(metadata, quotas, rates)
    metadata.subscribe(partial(_on_events, metadata, quotas, rates))
    tasks.add("unused quotas", _LET_GO_INTERVAL_S, partial(_let_go, quotas, rates))
    return quotas, rates


def _on_events(
    metadata: MetadataCache, quotas: ClientQuotas, rates: ConnectionRates, events: Sequence[Event]
) -> None:
    if any(isinstance(event, ClientQuotasChanged) for event in events):
        _put(metadata, quotas, rates)


def _put(metadata: MetadataCache, quotas: ClientQuotas, rates: ConnectionRates) -> None:
    quotas.set_quotas(metadata.client_quotas)
    rates.set_quotas(metadata.client_quotas)


def _let_go(quotas: ClientQuotas, rates: ConnectionRates) -> None:
    now = perf_counter()
    quotas.let_go_rested(now)
    rates.let_go_rested(now)
