"""`qbus agent config`: get, set, delete, check."""

import asyncio
from pathlib import Path
from typing import Any, BinaryIO

import click

from qbus.cli.agent_options import zookeeper_option
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import json_option
from qbus.cli.output import emit


@click.group(cls=OrderedGroup)
def config() -> None:
    """Show, change and check what agents are told.

    NAME is an agent's or a group's; an agent's own configuration goes before its group's.
    """


@config.command("get")
@click.argument("name")
@zookeeper_option
@json_option
def get(*, name: str, zookeeper: str | None, as_json: bool) -> None:
    """Print the configuration of NAME, as it was written."""
    from qbus.agent.control import config_path
    from qbus.cli.central import administration, read_config

    async def command() -> dict[str, Any]:
        async with administration(zookeeper) as store:
            return await read_config(store, config_path(name), name)

    document = asyncio.run(command())
    emit(document, lambda found: found["text"].rstrip("\n"), as_json=as_json)


@config.command("set")
@click.argument("name")
@click.argument("file", type=click.File("rb"))
@zookeeper_option
@click.option(
    "--if-version", type=click.IntRange(-1), metavar="N", help="Only in place of this version."
)
@json_option
def set_(
    *, name: str, file: BinaryIO, zookeeper: str | None, if_version: int | None, as_json: bool
) -> None:
    """Give NAME the configuration in FILE (- for stdin), which is checked first.

    Agents that run take it over at once.
    """
    from qbus.agent.control import config_path
    from qbus.cli.agent_control import check
    from qbus.cli.central import administration, write_config

    text = file.read()

    async def command() -> dict[str, Any]:
        async with administration(zookeeper) as store:
            return await write_config(store, config_path(name), name, text, if_version)

    check(text, file.name, is_central=True)
    document = asyncio.run(command())
    emit(
        document,
        lambda found: f"{name} has the configuration of {file.name} (version {found['version']}).",
        as_json=as_json,
    )


@config.command("delete")
@click.argument("name")
@zookeeper_option
@json_option
def delete(*, name: str, zookeeper: str | None, as_json: bool) -> None:
    """Remove the configuration of NAME.

    Agents without another one go on with the last they had.
    """
    from qbus.agent.control import config_path
    from qbus.cli.central import administration, delete_config

    async def command() -> None:
        async with administration(zookeeper) as store:
            await delete_config(store, config_path(name), name)

    asyncio.run(command())
    document = {"name": name, "deleted": True}
    emit(document, lambda _: f"Removed the configuration of {name}.", as_json=as_json)


@config.command("check")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--central",
    "is_central",
    is_flag=True,
    help="As ZooKeeper may hold it: bootstrap need not be stated.",
)
@json_option
def check_(*, file: Path, is_central: bool, as_json: bool) -> None:
    """Check FILE, and show it with every default."""
    from qbus.agent.config import to_document, to_toml
    from qbus.cli.agent_control import check

    found = check(file.read_bytes(), str(file), is_central=is_central)
    emit(to_document(found), lambda _: to_toml(found).rstrip("\n"), as_json=as_json)
