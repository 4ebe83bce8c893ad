"""`qbus mirror`: run, status, groups, config."""

from typing import Any

import click

from qbus.cli.daemons import log_options, metrics_option
from qbus.cli.lazy import OrderedGroup
from qbus.cli.mirror.config import config
from qbus.cli.mirror.options import mirror_options, selected
from qbus.cli.options import json_option, watch_option


@click.group(cls=OrderedGroup)
def mirror() -> None:
    """Copy topics from other IDCs: the same batches, at the same offsets.

    Topic `orders` of IDC a becomes `a.orders` at the target.
    """


@mirror.command()
@mirror_options
@click.option(
    "--name",
    metavar="NAME",
    help="What this process is called, of several that share a link. Default: host and pid.",
)
@metrics_option
@log_options
@click.pass_context
def run(
    context: click.Context,
    /,
    *,
    name: str | None,
    metrics_listen: str | None,
    log_level: str,
    as_json: bool,
    **stated: Any,
) -> None:
    """Mirror until SIGTERM or Ctrl-C, which let it finish what is under way.

    Without any configuration: --source, --target and --topics. Else --config FILE, which SIGHUP has
    read again, or --zookeeper and --link, which are followed live. Any number of processes may run
    the same link: they share out its partitions. The log goes to stderr.
    """
    import os
    import socket

    from qbus.cli.daemons import metrics_address, zookeeper_address
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
        metrics=metrics_address(metrics_listen),
    )
    configure("json" if as_json else "human", log_level)
    context.exit(run_mirror(options))


@mirror.command()
@mirror_options
@watch_option
@json_option
def status(*, watch: bool | None, as_json: bool, **stated: Any) -> None:
    """Show how far the target is behind its sources: by topic and partition.

    Asked of the clusters themselves, whether a mirror runs or not; with --zookeeper and --link also
    what the processes that run the link tell of themselves.
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
    help="Only this one; may be repeated. Default: those that the configuration selects.",
)
@click.option(
    "--once/--repeat",
    default=True,
    help="Once, which is the default, or again at each interval of the configuration.",
)
@click.option(
    "--backwards",
    is_flag=True,
    help="Set groups back that are further at the target than at the source.",
)
@json_option
def groups(
    *, groups: tuple[str, ...], once: bool, backwards: bool, as_json: bool, **stated: Any
) -> None:
    """Carry the offsets that groups have committed over to the target, now.

    A group goes on at the target where it was at the source, but never ahead of the data, and never
    backwards unless told to. Groups that have members at the target are left alone.
    """
    from qbus.cli.mirror.groups import carry_groups
    from qbus.cli.running import run_to_end

    run_to_end(
        carry_groups(selected(**stated), groups, once=once, backwards=backwards, as_json=as_json)
    )


mirror.add_command(config)
