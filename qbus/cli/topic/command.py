"""`qbus topic`: create, list, describe, alter, delete, config."""

from typing import TYPE_CHECKING

import click

from qbus.cli.completing import topic_settings, topics
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command, config_option, setting_options
from qbus.cli.output import emit
from qbus.cli.parameters import IntRange
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from qbus.cli.output import Document
    from qbus.clients import Admin


@click.group(cls=OrderedGroup)
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=IntRange(1),
    metavar="N",
    help="Default: the broker's num.partitions.",
)
@click.option("--replication-factor", type=IntRange(1), metavar="N", help="Default: the broker's.")
@config_option
@click.option(
    "--delay", is_flag=True, help="Hold back records until they are due: qbus.delay.enable."
)
@click.option("--if-not-exists", is_flag=True, help="An existing topic is no error.")
@click.option("--dry-run", is_flag=True, help="Only check whether it could be created.")
@client_command
async def create(
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[tuple[str, str], ...],
    delay: bool,
    if_not_exists: bool,
    dry_run: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Create the topic NAME."""
    from qbus.cli.session import administration
    from qbus.errors import ApiError, ErrorCode

    created = not dry_run
    async with administration(target) as admin:
        try:
            await admin.create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                config=dict(config) | ({"qbus.delay.enable": "true"} if delay else {}),
                validate_only=dry_run,
            )
        except ApiError as error:
            if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            created = False
        if dry_run:
            emit({"name": name, "created": False}, _would_create, as_json=as_json)
            return
        document = {**await _summary(admin, name), "created": created}
    emit(document, _created, as_json=as_json)


@topic.command("list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@client_command
async def list_topics(*, internal: bool, target: Target, as_json: bool) -> None:
    """List the topics."""
    from qbus.cli.documents import topic_summary
    from qbus.cli.session import administration
    from qbus.cli.topic.tables import topic_list

    async with administration(target) as admin:
        topics = await admin.list_topics(internal=internal)
    emit([topic_summary(found) for found in topics], topic_list, as_json=as_json)


@topic.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=topics)
@click.option(
    "--under-replicated", is_flag=True, help="Only partitions with a replica out of sync."
)
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@click.option(
    "--under-min-isr",
    is_flag=True,
    help="Only partitions with fewer in-sync replicas than min.insync.replicas.",
)
@client_command
async def describe(
    *,
    names: tuple[str, ...],
    under_replicated: bool,
    unavailable: bool,
    under_min_isr: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Show topics: settings, partitions, replicas, offsets and sizes.

    Without a NAME: every topic. A partition is shown if any of the given filters selects it. The
    exit code is 1 where a partition cannot be read.
    """
    from qbus.cli.failures import Failure
    from qbus.cli.session import administration
    from qbus.cli.topic.details import describe_topics
    from qbus.cli.topic.health import Filters
    from qbus.cli.topic.tables import incomplete, topic_descriptions

    filters = Filters(under_replicated, unavailable, under_min_isr)
    async with administration(target) as admin:
        documents = await describe_topics(admin, names, filters)
    emit(documents, topic_descriptions, as_json=as_json)
    if reason := incomplete(documents):
        raise Failure(f"not everything is known: {reason}")


@topic.command()
@click.argument("name", shell_complete=topics)
@click.option(
    "--partitions", type=IntRange(1), metavar="N", help="Increase the number of partitions to N."
)
@config_option
@click.option(
    "--delete-config",
    metavar="KEY",
    multiple=True,
    shell_complete=topic_settings,
    help="Return a setting to its default.",
)
@client_command
async def alter(
    *,
    name: str,
    partitions: int | None,
    config: tuple[tuple[str, str], ...],
    delete_config: tuple[str, ...],
    target: Target,
    as_json: bool,
) -> None:
    """Change the settings of the topic NAME, or add partitions."""
    from qbus.cli.session import administration
    from qbus.cli.topic.details import describe_topics
    from qbus.cli.topic.tables import topic_descriptions
    from qbus.clients.types import ConfigKind

    if partitions is None and not config and not delete_config:
        raise click.UsageError("Nothing to alter: name --partitions, --config or --delete-config.")
    async with administration(target) as admin:
        if config or delete_config:
            await admin.alter_config(ConfigKind.TOPIC, name, set=dict(config), unset=delete_config)
        if partitions is not None:
            await admin.create_partitions(name, partitions)
        documents = await describe_topics(admin, [name])
    emit(documents, topic_descriptions, as_json=as_json)


@topic.command("config")
@click.argument("name", shell_complete=topics)
@setting_options(topic_settings)
@client_command
async def topic_config(
    *,
    name: str,
    to_set: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    show_all: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Show or change the settings of the topic NAME."""
    from qbus.cli.session import administration
    from qbus.cli.settings import change_and_show, settings
    from qbus.clients.types import ConfigKind

    async with administration(target) as admin:
        documents = await change_and_show(
            admin, ConfigKind.TOPIC, name, to_set=to_set, unset=unset, show_all=show_all
        )
    emit(documents, settings, as_json=as_json)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=topics)
@click.option("--if-exists", is_flag=True, help="A missing topic is no error.")
@client_command
async def delete(*, names: tuple[str, ...], if_exists: bool, target: Target, as_json: bool) -> None:
    """Delete each NAME with all its records."""
    from qbus.cli.failures import Failure
    from qbus.cli.failures import describe as describe_error
    from qbus.cli.session import administration
    from qbus.errors import ApiError, ErrorCode

    documents = []
    async with administration(target) as admin:
        for name in names:
            try:
                await admin.delete_topic(name)
            except ApiError as error:
                if not (if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise Failure(f"cannot delete topic {name}: {describe_error(error)}") from error
                documents.append({"name": name, "deleted": False})
            else:
                documents.append({"name": name, "deleted": True})
    emit(documents, _deleted, as_json=as_json)


async def _summary(admin: "Admin", name: str) -> "Document":
    from qbus.cli.documents import topic_summary

    return topic_summary(await admin.describe_topic(name))


def _would_create(document: "Document") -> str:
    return f"Topic {document['name']} could be created."


def _created(document: "Document") -> str:
    from qbus.cli.units import counted

    how = "Created topic" if document["created"] else "There already is a topic"
    return f"{how} {document['name']} with {counted(document['partitions'], 'partition')}."


def _deleted(documents: "list[Document]") -> str:
    return "\n".join(
        f"Deleted topic {document['name']}."
        if document["deleted"]
        else f"There is no topic {document['name']}."
        for document in documents
    )
