"""Serve metrics of your own to Prometheus, such as the lag of a query."""

from qbus.service.prometheus import Collector, serve

__all__ = ["Collector", "serve"]
