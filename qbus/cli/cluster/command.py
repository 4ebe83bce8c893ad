"""`qbus cluster`: up, start-node, status."""

from pathlib import Path

import click

from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import json_option
from qbus.cli.output import emit
from qbus.cli.parameters import key_value

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.group(cls=OrderedGroup)
def cluster() -> None:
    """Run a cluster on this machine; show how a cluster is."""


@cluster.command()
@click.option("--nodes", type=click.IntRange(1, 100), metavar="N", help="Brokers. Default: 3.")
@click.option("--zookeepers", type=click.Choice(["1", "3"]), help="ZooKeepers. Default: 1.")
@click.option(
    "--base-port",
    type=click.IntRange(1, 65_535),
    metavar="PORT",
    help="Where broker 1 listens; the others on the ports after it. Default: 9092.",
)
@click.option(
    "--data-dir", type=_DIRECTORY, metavar="DIR", required=True, help="Where everything is kept."
)
@click.option(
    "-o",
    "--option",
    "options",
    type=key_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of each broker, such as num.partitions=3; may be repeated.",
)
@click.option(
    "--spark/--no-spark",
    default=None,
    help="A standalone Spark beside the brokers: a master and two workers. Default: as before.",
)
def up(
    *,
    nodes: int | None,
    zookeepers: str | None,
    base_port: int | None,
    data_dir: Path,
    options: tuple[tuple[str, str], ...],
    spark: bool | None,
) -> None:
    """Run ZooKeepers, brokers and, if asked for, Spark on 127.0.0.1 until SIGTERM or Ctrl-C.

    That is for trials and tests. It needs Java, and pyspark, which brings ZooKeeper and Spark. The
    process ids are in DIR/broker-N.pid, DIR/zookeeper-N.pid, DIR/spark-master-1.pid and
    DIR/spark-worker-N.pid, the logs beside them. What dies stays dead until 'qbus cluster
    start-node'. Of an earlier run, DIR keeps the records and what the cluster was made of. New
    topics have three replicas where there are as many brokers.
    """
    from qbus.cli.cluster.up import run

    run(
        data_dir,
        nodes=nodes,
        zookeepers=int(zookeepers) if zookeepers else None,
        base_port=base_port,
        options=tuple(f"{key}={value}" for key, value in options),
        spark=spark,
    )


@cluster.command("start-node")
@click.argument("number", metavar="N", type=click.IntRange(1))
@click.option(
    "--data-dir", type=_DIRECTORY, metavar="DIR", required=True, help="That of 'qbus cluster up'."
)
@click.option("--zookeeper", "kind", flag_value="zookeeper", help="ZooKeeper N, not broker N.")
@click.option("--spark-master", "kind", flag_value="spark-master", help="Spark's master (N is 1).")
@click.option("--spark-worker", "kind", flag_value="spark-worker", help="Spark's worker N.")
@json_option
def start(*, number: int, data_dir: Path, kind: str | None, as_json: bool) -> None:
    """Start broker N of a local cluster again, after it died."""
    from qbus.local_cluster import BROKER, Layout
    from qbus.local_cluster.starting import start_node

    kind = kind or BROKER
    document = {"kind": kind, "id": number, "pid": start_node(Layout(data_dir), kind, number)}
    emit(document, lambda d: f"{d['kind']}-{d['id']} serves: process {d['pid']}", as_json=as_json)


@cluster.command()
@click.option("--data-dir", type=_DIRECTORY, metavar="DIR", help="That of 'qbus cluster up'.")
@click.option("--zookeeper", metavar="HOST:PORT,.../CHROOT", help="That of the brokers.")
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,...",
    envvar="QBUS_BOOTSTRAP",
    show_envvar=True,
    help="Some of its brokers. Default: 127.0.0.1:9092.",
)
@json_option
def status(
    *, data_dir: Path | None, zookeeper: str | None, bootstrap: str | None, as_json: bool
) -> None:
    """Show which nodes are up, who leads what, and which partitions lack replicas or a leader."""
    from qbus.cli.cluster.status import gather
    from qbus.cli.cluster.tables import cluster_status
    from qbus.cli.running import run_to_end

    async def show() -> None:
        emit(await gather(data_dir, zookeeper, bootstrap), cluster_status, as_json=as_json)

    run_to_end(show())
