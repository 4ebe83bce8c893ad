"""Options that many commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .parameters import endpoint, key_value

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on stdout, and nothing else there."
)

_bootstrap_option = click.option(
    "--bootstrap",
    type=endpoint,
    metavar="HOST:PORT",
    envvar="QBUS_BOOTSTRAP",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    show_envvar=True,
    help="A broker to start from.",
)

config_option = click.option(
    "--config",
    "config",
    type=key_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic setting, such as retention.ms=3600000; may be repeated.",
)


def client_command(function: F) -> F:
    """Give a command that talks to a broker ``--bootstrap`` and ``--json``."""
    return _bootstrap_option(json_option(function))
