"""`qbus broker`."""

from pathlib import Path

import click

from qbus.cli.daemons import log_options, metrics_option


@click.command()
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where everything is kept; may be repeated, to spread partitions over disks.",
)
@click.option("--listen", metavar="HOST:PORT", help="Default: 127.0.0.1:9092.")
@click.option(
    "--advertise", metavar="HOST:PORT", help="What clients connect to, if not what is listened on."
)
@click.option("--node-id", type=click.IntRange(0), metavar="N", help="Default: 1.")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    help="Keep the metadata in this ZooKeeper; by default it is in a file in DIR.",
)
@metrics_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings in TOML.",
)
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, such as num.partitions=3; may be repeated, and goes before FILE.",
)
@log_options
@click.pass_context
def broker(
    context: click.Context,
    /,
    *,
    data_dirs: tuple[Path, ...],
    listen: str | None,
    advertise: str | None,
    node_id: int | None,
    zookeeper: str | None,
    metrics_listen: str | None,
    config_file: Path | None,
    options: tuple[str, ...],
    log_level: str,
    as_json: bool,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C, which let it finish what it has begun.

    Settings have Kafka's names. A flag goes before -o, -o before FILE; the log goes to stderr.
    """
    import gc
    import logging

    gc.disable()  # nothing that a start imports is garbage; serving enables it again

    from qbus.broker.server import run
    from qbus.config import load_broker_config
    from qbus.errors import QbusError
    from qbus.service.logs import configure

    config = load_broker_config(
        config_file,
        options,
        {
            "log.dirs": tuple(map(str, data_dirs)) or None,
            "listeners": listen,
            "advertised.listeners": advertise,
            "node.id": node_id,
            "zookeeper.connect": zookeeper,
            "metrics.listen": metrics_listen,
        },
    )
    if not config.log_dirs:
        raise click.UsageError("Missing option '--data-dir'.", context)
    configure("json" if as_json else "human", log_level)
    try:
        code = run(config)
    except (QbusError, OSError):
        raise
    except Exception:
        # A defect: whoever reads the log needs to know where.
        logging.getLogger(__name__).exception("the broker has failed")
        code = 1
    context.exit(code)
