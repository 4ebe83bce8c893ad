"""Asking the process that runs a cluster to start a node again."""

import fcntl
import time

from qbus.local_cluster.errors import LocalClusterError
from qbus.local_cluster.layout import Layout, node_name
from qbus.local_cluster.nodes import serves
from qbus.local_cluster.process import log_tail, running_pid
from qbus.local_cluster.settings import ClusterSettings

_TIMEOUT_S = 120.0
_POLL_S = 0.02


def need_settings(layout: Layout) -> ClusterSettings:
    """The settings of the cluster in ``layout``; LocalClusterError if there is none."""
    settings = ClusterSettings.read(layout.settings)
    if settings is None:
        raise LocalClusterError(
            f"{layout.directory} holds no cluster: see 'qbus cluster up --help'"
        )
    return settings


def is_run(layout: Layout) -> bool:
    """Whether a process runs the cluster."""
    try:
        with layout.lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def start_node(layout: Layout, kind: str, number: int) -> int:
    """Have a node started that has ended; its process id once it serves.

    Raises LocalClusterError if there is no such node, it runs, nobody runs the cluster, or it ends
    again.
    """
    settings = need_settings(layout)
    numbers = settings.numbers(kind)
    name = node_name(kind, number)
    if number not in numbers:
        known = f"they are numbered 1 to {len(numbers)}" if numbers else f"nor any other {kind}"
        raise LocalClusterError(f"there is no {name}: {known}")
    if not is_run(layout):
        raise LocalClusterError(
            f"nobody runs the cluster in {layout.directory}: 'qbus cluster up' starts all of it"
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
            raise LocalClusterError(f"{name} has ended again; {log} ends:\n{log_tail(log)}")
        if not is_run(layout):
            break
        time.sleep(_POLL_S)
    request.unlink(missing_ok=True)
    raise LocalClusterError(f"{name} does not serve: see {log}")
