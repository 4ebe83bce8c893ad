"""`qbus agent config` and `qbus mirror config`: get, set, delete, check."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click

from qbus.cli.daemons import zookeeper_option
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import json_option
from qbus.cli.output import emit
from qbus.cli.parameters import IntRange


@dataclass(frozen=True)
class DaemonConfig:
    """How one kind of daemon is configured.

    path: the znode that holds the configuration of an agent, a group or a link.
    check: the parsed configuration; takes the text, its origin for error messages, and whether the
        text comes from ZooKeeper, where the cluster's address may be left out. Raises Failure.
    to_document, to_toml: a parsed configuration with every default, for ``--json`` and for people.
    """

    path: Callable[[str], str]
    check: Callable[[bytes, str, bool], Any]
    to_document: Callable[[Any], Any]
    to_toml: Callable[[Any], str]


@dataclass(frozen=True)
class Help:
    """The words in which the commands of one kind of daemon differ."""

    group: str
    zookeeper: str
    after_set: str
    after_delete: str
    central: str


def config_group(name: str, load: Callable[[], DaemonConfig], words: Help) -> click.Group:
    """The commands of one kind of daemon.

    name: the metavariable for what has a configuration. load: called when a command runs.
    """

    @click.group("config", cls=OrderedGroup, help=words.group)
    def config() -> None:
        pass

    named = click.argument("name", metavar=name)
    zookeeper = zookeeper_option(words.zookeeper)

    @config.command("get", help=f"Print the configuration of {name} as it was written.")
    @named
    @zookeeper
    @json_option
    def get(*, name: str, zookeeper: str | None, as_json: bool) -> None:
        from qbus.cli.daemon_store import administration, read_config

        kind = load()

        async def command() -> dict[str, Any]:
            async with administration(zookeeper) as store:
                return await read_config(store, kind.path(name), name)

        document = asyncio.run(command())
        emit(document, lambda found: found["text"].rstrip("\n"), as_json=as_json)

    @config.command(
        "set",
        help=f"Check the configuration in FILE (- for stdin) and store it as that of {name}.\n\n"
        f"{words.after_set}",
    )
    @named
    @click.argument("file", type=click.File("rb"))
    @zookeeper
    @click.option("--if-version", type=IntRange(-1), metavar="N", help="Replace only this version.")
    @json_option
    def set_(
        *, name: str, file: BinaryIO, zookeeper: str | None, if_version: int | None, as_json: bool
    ) -> None:
        from qbus.cli.daemon_store import administration, write_config

        kind = load()
        text = file.read()

        async def command() -> dict[str, Any]:
            async with administration(zookeeper) as store:
                return await write_config(store, kind.path(name), name, text, if_version)

        kind.check(text, file.name, True)
        document = asyncio.run(command())
        emit(
            document,
            lambda d: f"{name} has the configuration of {file.name} (version {d['version']}).",
            as_json=as_json,
        )

    @config.command("delete", help=f"Remove the configuration of {name}.\n\n{words.after_delete}")
    @named
    @zookeeper
    @json_option
    def delete(*, name: str, zookeeper: str | None, as_json: bool) -> None:
        from qbus.cli.daemon_store import administration, delete_config

        kind = load()

        async def command() -> None:
            async with administration(zookeeper) as store:
                await delete_config(store, kind.path(name), name)

        asyncio.run(command())
        document = {"name": name, "deleted": True}
        emit(document, lambda _: f"Removed the configuration of {name}.", as_json=as_json)

    @config.command("check", help="Check FILE, and show it with every default.")
    @click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
    @click.option("--central", "is_central", is_flag=True, help=words.central)
    @json_option
    def check(*, file: Path, is_central: bool, as_json: bool) -> None:
        kind = load()
        found = kind.check(file.read_bytes(), str(file), is_central)
        emit(kind.to_document(found), lambda _: kind.to_toml(found).rstrip("\n"), as_json=as_json)

    return config
