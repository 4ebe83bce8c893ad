"""Running a local cluster in the foreground, with a table of its processes."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from qbus.cli.cluster.tables import local_nodes
from qbus.cli.output import note, stderr_console
from qbus.local_cluster import BROKER, ClusterSettings, Layout, LocalCluster
from qbus.local_cluster.cluster import Ended, Started
from qbus.local_cluster.layout import kind_and_number
from qbus.local_cluster.plan import plan

_POLL_S = 0.1


class _Stopped(BaseException):
    """SIGTERM or Ctrl-C has arrived."""


def run(
    data_dir: Path,
    *,
    nodes: int | None,
    zookeepers: int | None,
    base_port: int | None,
    options: tuple[str, ...],
    spark: bool | None,
    secure: bool,
) -> None:
    """Run the cluster in ``data_dir`` until SIGTERM or Ctrl-C."""
    layout = Layout(data_dir)
    with LocalCluster(layout) as cluster:
        settings = plan(
            layout,
            nodes=nodes,
            zookeepers=zookeepers,
            base_port=base_port,
            options=options,
            spark=spark,
            secure=secure,
        )
        with _until_stopped():
            cluster.start(settings, _tell)
            note(f"the cluster is up: {_how_to_connect(layout, settings)}")
            if settings.spark is not None:
                note(f"Spark: --master {settings.spark.master}; its page: {settings.spark.page}")
            note(f"ZooKeeper: {settings.zookeeper}; Ctrl-C stops all")
            _watch(cluster, settings)
        note("stopping: brokers hand over their partitions, ZooKeeper stops last")
    note("stopped")


def _how_to_connect(layout: Layout, settings: ClusterSettings) -> str:
    if settings.secure:
        return f"--command-config {layout.client_properties}"
    return f"--bootstrap {settings.bootstrap}"


def _watch(cluster: LocalCluster, settings: ClusterSettings) -> None:
    with _table(cluster, settings) as refresh:
        while True:
            for event in cluster.poll():
                _tell(event)
            refresh()
            time.sleep(_POLL_S)


def _tell(event: Ended | Started) -> None:
    if isinstance(event, Started):
        note(f"{event.name} started: process {event.pid}")
        return
    code = event.exit_code
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    kind, number = kind_and_number(event.name)
    flag = "" if kind == BROKER else f" --{kind}"
    note(
        f"{event.name} has ended ({how}): 'qbus cluster start-node {number}{flag}' starts it again"
    )


@contextmanager
def _table(cluster: LocalCluster, settings: ClusterSettings) -> Iterator[Callable[[], None]]:
    """On a terminal, a table of the processes; the yielded function refreshes it."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.live import Live

    pids = None
    with Live(console=stderr_console(), auto_refresh=False) as live:

        def refresh() -> None:
            nonlocal pids
            now = {name: node.pid for name, node in cluster.nodes.items()}
            if now != pids:
                pids = now
                live.update(local_nodes(settings, now), refresh=True)

        yield refresh


@contextmanager
def _until_stopped() -> Iterator[None]:
    """Leave the block at the first SIGINT or SIGTERM; a second one interrupts the shutdown."""

    def stop(_number: int, _frame: object) -> NoReturn:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        raise _Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _Stopped:
        pass
    except BaseException:
        for number, handler in before.items():
            signal.signal(number, handler)
        raise
