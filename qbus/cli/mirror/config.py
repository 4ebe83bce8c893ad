"""`qbus mirror config`: get, set, delete, check."""

import asyncio
from pathlib import Path
from typing import Any, BinaryIO

import click

from qbus.cli.lazy import OrderedGroup
from qbus.cli.mirror.options import zookeeper_option
from qbus.cli.options import json_option
from qbus.cli.output import emit


@click.group(cls=OrderedGroup)
def config() -> None:
    """Show, change and check what mirrors are told.

    LINK is the name that `qbus mirror run --link` takes.
    """


@config.command("get")
@click.argument("link")
@zookeeper_option
@json_option
def get(*, link: str, zookeeper: str | None, as_json: bool) -> None:
    """Print the configuration of LINK, as it was written."""
    from qbus.cli.central import administration, read_config
    from qbus.clients.mirror.control import config_path

    async def command() -> dict[str, Any]:
        async with administration(zookeeper) as store:
            return await read_config(store, config_path(link), link)

    document = asyncio.run(command())
    emit(document, lambda found: found["text"].rstrip("\n"), as_json=as_json)


@config.command("set")
@click.argument("link")
@click.argument("file", type=click.File("rb"))
@zookeeper_option
@click.option(
    "--if-version", type=click.IntRange(-1), metavar="N", help="Only in place of this version."
)
@json_option
def set_(
    *, link: str, file: BinaryIO, zookeeper: str | None, if_version: int | None, as_json: bool
) -> None:
    """Give LINK the configuration in FILE (- for stdin), which is checked first.

    Mirrors that run take it over at once.
    """
    from qbus.cli.central import administration, write_config
    from qbus.cli.mirror.start import check
    from qbus.clients.mirror.control import config_path

    text = file.read()

    async def command() -> dict[str, Any]:
        async with administration(zookeeper) as store:
            return await write_config(store, config_path(link), link, text, if_version)

    check(text, file.name, "zk://of-the-mirror")
    document = asyncio.run(command())
    emit(
        document,
        lambda found: f"{link} has the configuration of {file.name} (version {found['version']}).",
        as_json=as_json,
    )


@config.command("delete")
@click.argument("link")
@zookeeper_option
@json_option
def delete(*, link: str, zookeeper: str | None, as_json: bool) -> None:
    """Remove the configuration of LINK.

    Mirrors that run go on with the last they had.
    """
    from qbus.cli.central import administration, delete_config
    from qbus.clients.mirror.control import config_path

    async def command() -> None:
        async with administration(zookeeper) as store:
            await delete_config(store, config_path(link), link)

    asyncio.run(command())
    document = {"name": link, "deleted": True}
    emit(document, lambda _: f"Removed the configuration of {link}.", as_json=as_json)


@config.command("check")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--central",
    "is_central",
    is_flag=True,
    help="As ZooKeeper may hold it: the target's bootstrap need not be stated.",
)
@json_option
def check_(*, file: Path, is_central: bool, as_json: bool) -> None:
    """Check FILE, and show it with every default."""
    from qbus.cli.mirror.start import check
    from qbus.clients.mirror.config import to_document, to_toml

    found = check(file.read_bytes(), str(file), "zk://of-the-mirror" if is_central else None)
    emit(to_document(found), lambda _: to_toml(found).rstrip("\n"), as_json=as_json)
