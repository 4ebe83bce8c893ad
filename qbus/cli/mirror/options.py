"""Options that select a mirror: its links, a file, or a link in ZooKeeper."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, ParamSpec

import click

from qbus.cli.daemons import command_config_option, zookeeper_option

P = ParamSpec("P")


class Idc(NamedTuple):
    """A datacenter (IDC) and its brokers, as ``name=host:port,...``."""

    name: str
    bootstrap: str


class Selected(NamedTuple):
    """The values of the options that select a mirror."""

    sources: tuple[Idc, ...]
    target: Idc | None
    topics: tuple[str, ...]
    exclude: tuple[str, ...]
    relay: bool
    config_file: Path | None
    zookeeper: str | None
    link: str | None
    command_config: Path | None = None
    source_command_config: Path | None = None


def idc(text: str) -> Idc:
    """Read ``NAME=HOST:PORT,...``."""
    name, equals, bootstrap = text.partition("=")
    if not equals or not name.strip() or not bootstrap.strip():
        raise click.BadParameter(f"{text!r} is not of the form NAME=HOST:PORT,...")
    return Idc(name.strip(), bootstrap.strip())


ZOOKEEPER_HELP = "Where the mirrors have their configuration and status."

_OPTIONS = (
    click.option(
        "--source",
        "sources",
        type=idc,
        multiple=True,
        metavar="IDC=HOST:PORT,...",
        help="Datacenter to mirror, and its brokers; may be repeated.",
    ),
    click.option(
        "--target", type=idc, metavar="IDC=HOST:PORT,...", help="Datacenter to mirror into."
    ),
    click.option(
        "--topics",
        multiple=True,
        metavar="PATTERN",
        help="Topics of the sources: a name, or a regular expression for whole names; may be"
        " repeated.",
    ),
    click.option(
        "--exclude", multiple=True, metavar="PATTERN", help="Skip these topics; may be repeated."
    ),
    click.option(
        "--relay/--no-relay",
        default=True,
        help="Whether to mirror the mirrored topics of the sources as well. Default: yes.",
    ),
    click.option(
        "--config",
        "config_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Configuration in TOML, instead of the options above.",
    ),
    zookeeper_option(ZOOKEEPER_HELP),
    click.option(
        "--link",
        metavar="NAME",
        help="Link whose configuration is in ZooKeeper, instead of a file.",
    ),
    command_config_option(
        "Properties that say how to connect to --target, and to --source if there is no other file"
        " for it. Configurations have tables [security] of their own.",
    ),
    click.option(
        "--source-command-config",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Properties that say how to connect to every --source.",
    ),
)


def mirror_options(function: Callable[P, None]) -> Callable[P, None]:
    """Give a command the options that select a mirror."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def selected(
    *,
    sources: tuple[Idc, ...],
    target: Idc | None,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    relay: bool,
    config_file: Path | None,
    zookeeper: str | None,
    link: str | None,
    command_config: Path | None,
    source_command_config: Path | None,
) -> Selected:
    """The options as one value; raises a usage error for an invalid combination."""
    stated = bool(sources or target or topics or exclude)
    if sum([stated, config_file is not None, link is not None]) != 1:
        raise click.UsageError(
            "Name --source, --target and --topics, or --config, or --zookeeper and --link: one of"
            " them."
        )
    if stated and not (sources and target and topics):
        raise click.UsageError("--source, --target and --topics go together.")
    if link is not None and zookeeper is None:
        raise click.UsageError("--link needs --zookeeper.")
    if source_command_config is not None and not stated:
        raise click.UsageError("--source-command-config goes with --source.")
    return Selected(
        sources,
        target,
        topics,
        exclude,
        relay,
        config_file,
        zookeeper,
        link,
        command_config,
        source_command_config or command_config,
    )
