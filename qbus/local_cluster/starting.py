"""Asks the process that runs a cluster to start a node again."""

import time

from qbus.local_cluster.layout import Layout, LocalClusterError, node_name
from qbus.local_cluster.nodes import serves
from qbus.local_cluster.process import log_tail, running_pid
from qbus.local_cluster.settings import ClusterSettings
from qbus.service.lock import is_locked

_TIMEOUT_S = 120.0
_POLL_S = 0.02


def need_settings(layout: Layout) -> ClusterSettings:
    """Load the settings of the cluster in ``layout``. Raises LocalClusterError if there is none."""
    settings = ClusterSettings.read(layout.settings)
    if settings is None:
        raise LocalClusterError(
            f"{layout.directory} holds no cluster: see 'qbus cluster up --help'"
        )
    return settings


def is_running(layout: Layout) -> bool:
    """Whether a process runs the cluster."""
    return is_locked(layout.lock)


def start_node(layout: Layout, kind: str, number: int) -> int:
    """Have a node started that has exited; return its process id once it serves.

    Raises LocalClusterError if there is no such node, it runs already, no process runs the cluster,
    or the node exits again.
    """
    settings = need_settings(layout)
    numbers = settings.numbers(kind)
    name = node_name(kind, number)
    if number not in numbers:
        known = f"the numbers are 1 to {len(numbers)}" if numbers else f"the cluster has no {kind}"
        raise LocalClusterError(f"there is no {name}: {known}")
    if not is_running(layout):
        raise LocalClusterError(
            f"the cluster in {layout.directory} does not run: start it with 'qbus cluster up'"
        )
    pid_file = layout.pid_file(name)
    if (pid := running_pid(pid_file, layout.directory)) is not None:
        raise LocalClusterError(f"{name} runs already, as process {pid}")
    layout.request(name).touch()
    return _wait_served(layout, settings, kind, number)


def _wait_served(layout: Layout, settings: ClusterSettings, kind: str, number: int) -> int:
    name = node_name(kind, number)
    request, pid_file, log = layout.request(name), layout.pid_file(name), layout.log(name)
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        is_taken = not request.exists()
        pid = running_pid(pid_file, layout.directory)
        if pid is not None and serves(settings, kind, number):
            return pid
        if is_taken and pid is None:
            raise LocalClusterError(f"{name} exited again; end of {log}:\n{log_tail(log)}")
        if not is_running(layout):
            break
        time.sleep(_POLL_S)
    request.unlink(missing_ok=True)
    raise LocalClusterError(f"{name} does not serve: see {log}")
