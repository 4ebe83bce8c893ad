"""`qbus cluster`: up, start-node, status, wait."""

from pathlib import Path

import click

from qbus.cli.daemons import zookeeper
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import bootstrap_options, json_option
from qbus.cli.output import emit
from qbus.cli.parameters import IntRange, duration, key_value
from qbus.cli.targets import Target

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.group(cls=OrderedGroup)
def cluster() -> None:
    """Run a cluster on this machine; show the status of a cluster."""


@cluster.command()
@click.option("--nodes", type=IntRange(1, 100), metavar="N", help="Number of brokers. Default: 3.")
@click.option(
    "--zookeepers", type=click.Choice(["1", "3"]), help="Number of ZooKeeper servers. Default: 1."
)
@click.option(
    "--base-port",
    type=IntRange(1, 65_535),
    metavar="PORT",
    help="Port of broker 1; the other brokers use the ports after it. Default: 9092.",
)
@click.option(
    "--data-dir", type=_DIRECTORY, metavar="DIR", required=True, help="Directory for all files."
)
@click.option(
    "-o",
    "--option",
    "options",
    type=key_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of each broker, such as num.partitions=3; may be repeated. Of metrics.listen"
    " and disque.listen, broker 1 has the port, and the others those after it.",
)
@click.option(
    "--spark/--no-spark",
    default=None,
    help="Also run a standalone Spark with two workers. Default: as in the last run.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Encrypt connections, ask for passwords, and check what each user may do; a cluster that"
    " was secure remains so.",
)
def up(
    *,
    nodes: int | None,
    zookeepers: str | None,
    base_port: int | None,
    data_dir: Path,
    options: tuple[tuple[str, str], ...],
    spark: bool | None,
    secure: bool,
) -> None:
    """Run ZooKeeper, brokers and, with --spark, Spark on 127.0.0.1 until SIGTERM or Ctrl-C.

    The cluster is for trials and tests. It needs Java, and pyspark, which contains ZooKeeper and
    Spark. DIR holds the process ids, in broker-N.pid, zookeeper-N.pid, spark-master-1.pid and
    spark-worker-N.pid, and the logs. A process that dies is not restarted until 'qbus cluster
    start-node'. DIR also keeps the records and the layout for the next run. New topics have three
    replicas if there are three brokers.

    With --secure, DIR/client.properties connects its administrator: give it to any command as
    --command-config. Passwords and keys are in DIR/secrets; they are made once, and kept.
    """
    from qbus.cli.cluster.up import run

    run(
        data_dir,
        nodes=nodes,
        zookeepers=int(zookeepers) if zookeepers else None,
        base_port=base_port,
        options=tuple(f"{key}={value}" for key, value in options),
        spark=spark,
        secure=secure,
    )


@cluster.command("start-node")
@click.argument("number", metavar="N", type=IntRange(1))
@click.option(
    "--data-dir",
    type=_DIRECTORY,
    metavar="DIR",
    required=True,
    help="Directory of 'qbus cluster up'.",
)
@click.option("--zookeeper", "kind", flag_value="zookeeper", help="Start ZooKeeper N instead.")
@click.option(
    "--spark-master", "kind", flag_value="spark-master", help="Start Spark's master (N is 1)."
)
@click.option("--spark-worker", "kind", flag_value="spark-worker", help="Start Spark's worker N.")
@json_option
def start(*, number: int, data_dir: Path, kind: str | None, as_json: bool) -> None:
    """Start broker N, or another node, of a local cluster again after it died."""
    from qbus.local_cluster import BROKER, Layout
    from qbus.local_cluster.starting import start_node

    kind = kind or BROKER
    document = {"kind": kind, "id": number, "pid": start_node(Layout(data_dir), kind, number)}
    emit(document, lambda d: f"{d['kind']}-{d['id']} serves: process {d['pid']}", as_json=as_json)


@cluster.command()
@click.option("--data-dir", type=_DIRECTORY, metavar="DIR", help="Directory of 'qbus cluster up'.")
@click.option(
    "--zookeeper",
    type=zookeeper,
    metavar="HOST:PORT,.../CHROOT",
    help="ZooKeeper of the brokers.",
)
@bootstrap_options
@json_option
def status(*, data_dir: Path | None, zookeeper: str | None, target: Target, as_json: bool) -> None:
    """Show the nodes and their roles, and the partitions that lack replicas or a leader."""
    from qbus.cli.cluster.status import gather
    from qbus.cli.cluster.tables import cluster_status
    from qbus.cli.running import run_to_end

    async def show() -> None:
        emit(await gather(data_dir, zookeeper, target), cluster_status, as_json=as_json)

    run_to_end(show())


@cluster.command()
@click.option("--data-dir", type=_DIRECTORY, metavar="DIR", help="Directory of 'qbus cluster up'.")
@click.option(
    "--zookeeper",
    type=zookeeper,
    metavar="HOST:PORT,.../CHROOT",
    help="ZooKeeper of the brokers.",
)
@click.option(
    "--brokers",
    type=IntRange(1),
    metavar="N",
    help="At least N brokers are up. Default: all that are registered or hold replicas.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=duration,
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="Give up after this time.",
)
@bootstrap_options
@json_option
def wait(
    *,
    data_dir: Path | None,
    zookeeper: str | None,
    brokers: int | None,
    timeout_ms: int,
    target: Target,
    as_json: bool,
) -> None:
    """Wait until all brokers are up and every partition has a leader and all replicas in sync.

    What is missing is printed on stderr while it waits. Exit codes: 0 nothing is missing, 3
    something still is when the time is over.
    """
    from qbus.cli.cluster.status import gather
    from qbus.cli.cluster.tables import cluster_status
    from qbus.cli.cluster.waiting import wait_until_complete
    from qbus.cli.running import run_to_end

    async def show() -> None:
        found = await wait_until_complete(
            lambda: gather(data_dir, zookeeper, target), brokers, timeout_ms
        )
        emit(found, cluster_status, as_json=as_json)

    run_to_end(show())
