"""`qbus agent`: run, status, files, config."""

from pathlib import Path

import click

from qbus.cli.agent.config import ZOOKEEPER_HELP, config
from qbus.cli.daemons import (
    command_config_option,
    log_options,
    metrics_config_option,
    metrics_option,
    zookeeper,
    zookeeper_option,
)
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import json_option, watch_option
from qbus.cli.parameters import bootstrap, key_value

DEFAULT_DATA_DIR = Path("/var/lib/qbus-agent")

_data_dir = click.Path(path_type=Path, file_okay=False)

_local_option = click.option(
    "--data-dir",
    type=_data_dir,
    metavar="DIR",
    help="Read the status of the agent with this directory, instead of ZooKeeper.",
)


@click.group(cls=OrderedGroup)
def agent() -> None:
    """Ship log files to topics; show and configure agents."""


@agent.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--bootstrap", type=bootstrap, metavar="HOST:PORT,...", help="Brokers to ship PATHs to."
)
@command_config_option(
    "Properties that say how to connect, as security.protocol and sasl.username; and where, without"
    " --bootstrap. The configuration's own table [security] counts before."
)
@click.option("--topic", metavar="TOPIC", help="Topic for the lines of PATHs.")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Ship the lines that files already have, not just new ones.",
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Skip these files; may be repeated.")
@click.option("--key", metavar="TEMPLATE", help="Key of each record, such as '{host}:{path}'.")
@click.option(
    "--header",
    "headers",
    type=key_value,
    multiple=True,
    metavar="NAME=TEMPLATE",
    help="A header of each record; may be repeated.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Configuration in TOML, instead of PATHs; SIGHUP reloads it.",
)
@click.option(
    "--zookeeper",
    type=zookeeper,
    metavar="HOST:PORT,.../CHROOT",
    help="ZooKeeper that holds the configuration, instead, and receives the status.",
)
@click.option("--name", metavar="NAME", help="Name of the agent. Default: the machine's host name.")
@click.option(
    "--group",
    metavar="GROUP",
    help="Group whose configuration applies if the agent has none of its own.",
)
@click.option(
    "--data-dir",
    type=_data_dir,
    default=DEFAULT_DATA_DIR,
    show_default=True,
    metavar="DIR",
    help="Directory for the positions; each agent needs its own.",
)
@metrics_option
@metrics_config_option
@log_options
@click.pass_context
def run(
    context: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    bootstrap: str | None,
    command_config: Path | None,
    topic: str | None,
    from_beginning: bool,
    exclude: tuple[str, ...],
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    config_file: Path | None,
    zookeeper: str | None,
    name: str | None,
    group: str | None,
    data_dir: Path,
    metrics_listen: str | None,
    metrics_config: Path | None,
    log_level: str,
    as_json: bool,
) -> None:
    """Ship files until SIGTERM or Ctrl-C; lines that were read are delivered first.

    PATHs are files or quoted globs, and need only --bootstrap and --topic. The log goes to stderr.
    """
    import socket

    from qbus.agent.daemon import RunOptions
    from qbus.agent.daemon import run as run_agent
    from qbus.cli.agent.config import from_paths
    from qbus.cli.command_config import read_command_config
    from qbus.cli.daemons import daemon_metrics, zookeeper_address
    from qbus.service.logs import configure

    stated = {"PATH": bool(paths), "--config": config_file, "--zookeeper": zookeeper}
    if sum(map(bool, stated.values())) != 1:
        raise click.UsageError("Name PATHs, or --config, or --zookeeper: one of them.")
    if not paths and (bootstrap or topic or from_beginning or exclude or key or headers):
        raise click.UsageError("These options go with PATHs; the configuration has them otherwise.")
    text = None
    if paths:
        if bootstrap is None and command_config is not None:
            bootstrap = read_command_config(command_config).bootstrap
        if bootstrap is None or topic is None:
            raise click.UsageError("PATHs need --bootstrap and --topic.")
        text = from_paths(
            paths, bootstrap, topic, from_beginning, exclude, key, dict(headers), command_config
        )
    options = RunOptions(
        data_dir=data_dir,
        name=name or socket.gethostname(),
        group=group,
        text=text,
        file=config_file,
        zookeeper=zookeeper_address(zookeeper),
        metrics=daemon_metrics(metrics_listen, metrics_config),
        command_config=command_config,
    )
    configure("json" if as_json else "human", log_level)
    context.exit(run_agent(options))


@agent.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@zookeeper_option(ZOOKEEPER_HELP)
@_local_option
@watch_option
@json_option
def status(
    *, names: tuple[str, ...], zookeeper: str | None, data_dir: Path | None, watch: bool | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show the status of agents: all that run, or those with these NAMEs."""
    from qbus.cli.agent.status import show_status
    from qbus.cli.running import is_watched, run_to_end

    watch = is_watched(watch, as_json=as_json)
    run_to_end(show_status(names, zookeeper, data_dir, watch=watch, as_json=as_json))


@agent.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@zookeeper_option(ZOOKEEPER_HELP)
@_local_option
@json_option
def files(
    *, names: tuple[str, ...], zookeeper: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """Show the files of agents: how far they are delivered, and their errors.

    The worst come first. ZooKeeper has the worst few hundred files of each agent. On the agent's
    own machine, --data-dir has all of them.
    """
    from qbus.cli.agent.status import show_files
    from qbus.cli.running import run_to_end

    run_to_end(show_files(names, zookeeper, data_dir, as_json=as_json))


agent.add_command(config)
