"""`qbus mirror`: run, status, groups, config."""

from pathlib import Path
from typing import Any

import click

from qbus.cli.daemons import log_options, metrics_config_option, metrics_option
from qbus.cli.lazy import OrderedGroup
from qbus.cli.mirror.config import config
from qbus.cli.mirror.options import mirror_options, selected
from qbus.cli.options import json_option, watch_option


@click.group(cls=OrderedGroup)
def mirror() -> None:
    """Copy topics from other datacenters (IDCs): the same batches, at the same offsets.

    Topic `orders` of datacenter a becomes `a.orders` at the target.
    """


@mirror.command()
@mirror_options
@click.option(
    "--name",
    metavar="NAME",
    help="Name of this process among those that share a link. Default: host and pid.",
)
@metrics_option
@metrics_config_option
@log_options
@click.pass_context
def run(
    context: click.Context,
    /,
    *,
    name: str | None,
    metrics_listen: str | None,
    metrics_config: Path | None,
    log_level: str,
    as_json: bool,
    **stated: Any,
) -> None:
    """Mirror until SIGTERM or Ctrl-C; requests in flight are finished first.

    Name --source, --target and --topics; or --config FILE, which SIGHUP reloads; or --zookeeper and
    --link, whose configuration is watched. Processes that run the same link share its partitions.
    The log goes to stderr.
    """
    import os
    import socket

    from qbus.cli.daemons import daemon_metrics, zookeeper_address
    from qbus.cli.mirror.config import to_toml
    from qbus.clients.mirror.daemon import RunOptions
    from qbus.clients.mirror.daemon import run as run_mirror
    from qbus.service.logs import configure

    said = selected(**stated)
    is_central = said.link is not None
    options = RunOptions(
        process=name or f"{socket.gethostname()}-{os.getpid()}",
        text=to_toml(said) if said.target is not None else None,
        file=said.config_file,
        zookeeper=zookeeper_address(said.zookeeper) if is_central else None,
        link=said.link or "",
        metrics=daemon_metrics(metrics_listen, metrics_config),
        command_config=said.command_config,
    )
    configure("json" if as_json else "human", log_level)
    context.exit(run_mirror(options))


@mirror.command()
@mirror_options
@watch_option
@json_option
def status(*, watch: bool | None, as_json: bool, **stated: Any) -> None:
    """Show how far the target is behind its sources, by topic and partition.

    The lag is read from the clusters, so that no mirror needs to run. With --zookeeper and --link,
    the processes that run the link are shown as well.
    """
    from qbus.cli.mirror.status import show_status
    from qbus.cli.running import is_watched, run_to_end

    run_to_end(
        show_status(selected(**stated), watch=is_watched(watch, as_json=as_json), as_json=as_json)
    )


@mirror.command()
@mirror_options
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Only this group; may be repeated. Default: the configured groups.",
)
@click.option(
    "--once/--repeat",
    default=True,
    help="Once, or at every interval of the configuration. Default: once.",
)
@click.option(
    "--backwards",
    is_flag=True,
    help="Also move offsets back that are ahead of those of the source.",
)
@json_option
def groups(
    *, groups: tuple[str, ...], once: bool, backwards: bool, as_json: bool, **stated: Any
) -> None:
    """Copy the committed offsets of groups to the target, now.

    An offset never passes the end of the mirrored data, and moves back only with --backwards.
    Groups that have members at the target are skipped.
    """
    from qbus.cli.mirror.groups import carry_groups
    from qbus.cli.running import run_to_end

    run_to_end(
        carry_groups(selected(**stated), groups, once=once, backwards=backwards, as_json=as_json)
    )


mirror.add_command(config)
