"""Options of several `qbus agent` commands."""

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import click

P = ParamSpec("P")


def zookeeper(text: str) -> str:
    """Read ``HOST[:PORT],.../CHROOT``, kept as text."""
    from qbus.metadata.zookeeper import ZooKeeperAddress

    try:
        ZooKeeperAddress.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: expected {error}.") from None
    return text


zookeeper_option = click.option(
    "--zookeeper",
    type=zookeeper,
    metavar="HOST:PORT,.../CHROOT",
    envvar="QBUS_ZOOKEEPER",
    show_envvar=True,
    help="Where the agents have their configuration and status.",
)

_data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Ask the agent of this machine that has this directory, instead of ZooKeeper.",
)

name_option = click.option(
    "--name", metavar="NAME", help="What the agent is called. Default: the machine's host name."
)

group_option = click.option(
    "--group", metavar="GROUP", help="Whose configuration it has, unless it has one of its own."
)


def control_options(function: Callable[P, None]) -> Callable[P, None]:
    """Give a command ``--zookeeper`` and ``--data-dir``."""
    return zookeeper_option(_data_dir_option(function))
