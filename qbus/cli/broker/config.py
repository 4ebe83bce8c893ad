"""`qbus broker-config`."""

import click

from qbus.cli.completing import broker_settings
from qbus.cli.options import client_command, setting_options
from qbus.cli.output import emit
from qbus.cli.parameters import IntRange
from qbus.cli.targets import Target

_EVERY_BROKER = ""  # Kafka's name for it


@click.command("broker-config")
@click.option(
    "--broker",
    "broker_id",
    type=IntRange(0),
    metavar="N",
    help="Broker id. Default: the only broker.",
)
@click.option(
    "--all-brokers",
    is_flag=True,
    help="The settings of all brokers that have none of their own.",
)
@setting_options(broker_settings)
@client_command
async def broker_config(
    *,
    broker_id: int | None,
    all_brokers: bool,
    to_set: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    show_all: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Show or change a broker's settings."""
    from qbus.cli.session import administration
    from qbus.cli.settings import change_and_show, settings
    from qbus.clients.types import ConfigKind

    if all_brokers and broker_id is not None:
        raise click.UsageError("--all-brokers and --broker exclude each other.")
    async with administration(target) as admin:
        if broker_id is None and not all_brokers:
            nodes = (await admin.describe_cluster()).nodes
            if len(nodes) != 1:
                raise click.UsageError(f"There are {len(nodes)} brokers; name one with --broker.")
            broker_id = nodes[0].id
        documents = await change_and_show(
            admin,
            ConfigKind.BROKER,
            _EVERY_BROKER if all_brokers else str(broker_id),
            to_set=to_set,
            unset=unset,
            show_all=show_all,
        )
    emit(documents, settings, as_json=as_json)
