"""Options that many commands share, and the decorator for commands that are coroutines."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import click

from qbus.cli.parameters import DEFAULT_BOOTSTRAP, bootstrap, key_value

P = ParamSpec("P")

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on stdout, and nothing else there."
)

watch_option = click.option(
    "--watch/--once",
    default=None,
    help="Refresh until Ctrl-C, or show it once. Default: refresh, on a terminal.",
)

config_option = click.option(
    "--config",
    type=key_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic setting, such as retention.ms=3600000; may be repeated.",
)

_set_option = click.option(
    "--set", "to_set", type=key_value, multiple=True, metavar="KEY=VALUE", help="Change a setting."
)
_unset_option = click.option(
    "--unset", multiple=True, metavar="KEY", help="Return a setting to its default."
)
_all_option = click.option(
    "--all", "show_all", is_flag=True, help="Show settings that have their default value, too."
)

_bootstrap_option = click.option(
    "--bootstrap",
    type=bootstrap,
    metavar="HOST:PORT,...",
    envvar="QBUS_BOOTSTRAP",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    show_envvar=True,
    help="Brokers of the cluster; or zk://HOST:PORT,.../CHROOT, where they are registered.",
)


def setting_options(function: Callable[P, None]) -> Callable[P, None]:
    """Give a command ``--set``, ``--unset`` and ``--all``."""
    return _set_option(_unset_option(_all_option(function)))


def client_command(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a command of a coroutine that talks to brokers: add ``--bootstrap`` and ``--json``."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from qbus.cli.running import run_to_end

        run_to_end(function(*args, **kwargs))

    return _bootstrap_option(json_option(run))
