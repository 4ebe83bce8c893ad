"""Options that the commands of the daemons share, and how their values are read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from qbus.cli.lazy import COMMAND_CONFIG, COMMAND_CONFIG_VARIABLE

if TYPE_CHECKING:
    from qbus.config.address import Address
    from qbus.metadata.zookeeper import ZooKeeperAddress

P = ParamSpec("P")


def zookeeper(text: str) -> str:
    """Read ``HOST[:PORT],.../CHROOT``, kept as text: a click type."""
    from qbus.metadata.zookeeper import ZooKeeperAddress

    try:
        ZooKeeperAddress.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: expected {error}.") from None
    return text


def zookeeper_option(text: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """The option ``--zookeeper`` with the help ``text``."""
    return click.option(
        "--zookeeper",
        type=zookeeper,
        metavar="HOST:PORT,.../CHROOT",
        envvar="QBUS_ZOOKEEPER",
        show_envvar=True,
        help=text,
    )


def command_config_option(text: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """The option ``--command-config`` of a daemon, with the help ``text``."""
    return click.option(
        COMMAND_CONFIG,
        "command_config",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        envvar=COMMAND_CONFIG_VARIABLE,
        show_envvar=True,
        help=text,
    )


def security_of(file: Path | None) -> dict[str, dict[str, str]]:
    """The table of a daemon's configuration that has a file say how to connect."""
    return {} if file is None else {"security": {"file": str(file.resolve())}}


metrics_option = click.option(
    "--metrics-listen", metavar="HOST:PORT", help="Serve Prometheus metrics at this address."
)

_log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
)
_json_log_option = click.option("--json", "as_json", is_flag=True, help="Log JSON objects.")


def log_options(function: Callable[P, None]) -> Callable[P, None]:
    """Give a command ``--log-level`` and ``--json``."""
    return _log_level_option(_json_log_option(function))


def zookeeper_address(text: str | None) -> "ZooKeeperAddress | None":
    """The ensemble that :func:`zookeeper` has accepted."""
    from qbus.metadata.zookeeper import ZooKeeperAddress

    return None if text is None else ZooKeeperAddress.parse(text)


def metrics_address(text: str | None) -> "Address | None":
    """The address at which metrics are served; raises a usage error for anything else."""
    from qbus.config.address import parse_address

    if text is None:
        return None
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.UsageError(f"--metrics-listen {text!r}: expected {error}.") from None


def toml_value(value: object) -> str:
    """A value in TOML, whose strings and lists are JSON's; inline tables have ``=`` for ``:``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)
