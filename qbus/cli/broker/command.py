"""`qbus broker`."""

from pathlib import Path

import click

from qbus.cli.completing import broker_settings
from qbus.cli.daemons import log_options, metrics_option, zookeeper
from qbus.cli.failures import Failure
from qbus.cli.parameters import IntRange


def workers(text: str) -> int:
    """Read a number of workers: a click type."""
    from qbus.broker.workers.plan import worker_count

    try:
        return worker_count(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@click.command()
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory for all data; may be repeated, to spread partitions over disks.",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="Where to listen, as SASL_SSL://0.0.0.0:9093; may be repeated, with a NAME each. Without a"
    " NAME: PLAINTEXT, which is refused beyond this machine. Default: 127.0.0.1:9092.",
)
@click.option(
    "--advertise",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="Address that clients connect to; may be repeated. Default: the one of --listen.",
)
@click.option(
    "--disque-listen",
    metavar="HOST:PORT",
    help="Serve jobs there by Disque's protocol, usually on port 7711. Default: do not.",
)
@click.option("--node-id", type=IntRange(0), metavar="N", help="Default: 1.")
@click.option(
    "--workers",
    type=workers,
    default="1",
    metavar="N|auto",
    help="Run N brokers on this machine, or one for each core; each takes the node id and the port"
    " after the one before. Default: 1.",
)
@click.option(
    "--zookeeper",
    type=zookeeper,
    metavar="HOST:PORT,.../CHROOT",
    help="ZooKeeper that holds the metadata. Default: a file in DIR holds it.",
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
    shell_complete=broker_settings,
    help="A setting, such as num.partitions=3; may be repeated. Overrides FILE.",
)
@log_options
@click.pass_context
def broker(
    context: click.Context,
    /,
    *,
    data_dirs: tuple[Path, ...],
    listen: tuple[str, ...],
    advertise: tuple[str, ...],
    disque_listen: str | None,
    node_id: int | None,
    workers: int,
    zookeeper: str | None,
    metrics_listen: str | None,
    config_file: Path | None,
    options: tuple[str, ...],
    log_level: str,
    as_json: bool,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C, which shut it down in order.

    Settings have Kafka's names. Flags override -o, and -o overrides FILE. The log goes to stderr.
    """
    import gc
    import logging

    gc.disable()  # imports make no garbage; the server enables it again

    from qbus.broker.workers import run
    from qbus.config import load_broker_config
    from qbus.errors import QbusError
    from qbus.service.logs import configure

    config = load_broker_config(
        config_file,
        options,
        {
            "log.dirs": tuple(map(str, data_dirs)) or None,
            "listeners": listen or None,
            "advertised.listeners": advertise or None,
            "disque.listen": disque_listen,
            "node.id": node_id,
            "zookeeper.connect": zookeeper,
            "metrics.listen": metrics_listen,
        },
    )
    if not config.log_dirs:
        raise click.UsageError("Missing option '--data-dir'.", context)
    log_form = "json" if as_json else "human"
    configure(log_form, log_level)
    for warning in config.without_effect:
        logging.getLogger(__name__).warning(warning)
    try:
        code = run(config, workers, log_form, log_level)
    except (QbusError, OSError):
        raise
    except Exception as error:
        from qbus.service.threads import CANNOT_START, HOW_TO_RAISE

        if CANNOT_START in str(error):
            raise Failure(f"{error}: {HOW_TO_RAISE}") from error
        # A defect: the log needs the traceback.
        logging.getLogger(__name__).exception("the broker has failed")
        code = 1
    context.exit(code)
