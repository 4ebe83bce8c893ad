"""Another checkout of Qbus as the peer: what a change did to the speed, in pairs of one run.

``python -m perf --against DIR CLAIM ...``. Brokers and SDK of DIR take the place of Kafka's.
"""

import os
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.qbus_cluster import QbusCluster

checkout: Path | None = None
"""The checkout to compare with, if that is asked for."""


def environment(directory: Path) -> dict[str, str]:
    """What makes a Python process import Qbus from ``directory``, wherever it runs."""
    return {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": ""}


class BrokerBefore(BrokerProcess):
    """A broker of the other checkout."""

    name = "before"

    def __init__(self, directory: Path, data_dir: Path, *options: str) -> None:
        super().__init__(data_dir, *options, env=environment(directory))


class ClusterBefore(QbusCluster):
    """A cluster of the other checkout."""

    name = "before"

    def __init__(self, directory: Path, data_dir: Path, *options: str) -> None:
        kept = dict(os.environ)
        os.environ.update(environment(directory))  # which each process takes over when it is made
        try:
            super().__init__(data_dir, *options)
        finally:
            os.environ.clear()
            os.environ.update(kept)
