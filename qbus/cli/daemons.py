"""Options that the commands of the daemons share, and how their values are read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from qbus.cli.lazy import COMMAND_CONFIG, COMMAND_CONFIG_VARIABLE

if TYPE_CHECKING:
    from qbus.metadata.zookeeper import ZooKeeperAddress
    from qbus.service.metrics_page import MetricsPage

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
    "--metrics-listen",
    metavar="HOST:PORT",
    help="Serve Prometheus metrics at this address; with https:// before it, over TLS.",
)

metrics_config_option = click.option(
    "--metrics-config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Properties that say who may read metrics, and with which certificate they are served.",
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


def daemon_metrics(listen: str | None, config: Path | None) -> "MetricsPage | None":
    """Where metrics are served, and to whom; raises a usage error for what makes no sense."""
    from qbus.service.metrics_page import metrics_page

    if listen is None:
        if config is not None:
            raise click.UsageError("--metrics-config goes with --metrics-listen.")
        return None
    try:
        return metrics_page(listen, config)
    except ValueError as error:
        raise click.UsageError(f"--metrics-listen {listen!r}: expected {error}.") from None


def toml_value(value: object) -> str:
    """A value in TOML, whose strings and lists are JSON's; inline tables have ``=`` for ``:``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)
