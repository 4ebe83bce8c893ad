"""What clients of librdkafka are configured with here: they log nothing beside the figures."""

from typing import Any

_CRITICAL = 2
"""The syslog level of what is logged still. Errors reach the load as exceptions and reports."""


def at(bootstrap: str) -> dict[str, Any]:
    """Return the settings of a client of librdkafka of the brokers at ``bootstrap``."""
    return {"bootstrap.servers": bootstrap, "log_level": _CRITICAL}
