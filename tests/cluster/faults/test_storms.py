"""Long runs of random faults with all clients and a ZooKeeper ensemble, repeatable by seed."""

import os
import random
from pathlib import Path

import pytest

from tests.support import namespaces
from tests.support.namespaces import Network
from tests.support.tools import skip_because_of

from .run import ALL_CLIENTS, Run
from .storm import Storm
from .targets import cluster, names

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("QBUS_STORMS", "10"))
TURNS = 12
ZOOKEEPERS = 3


def rage(run: Run) -> None:
    try:
        run.start()
        Storm(run).rage(TURNS)
        run.conclude()
    finally:
        run.close()
        run.heal()


def seeds() -> list[int]:
    """The seed in QBUS_SEED, or fresh ones."""
    given = os.environ.get("QBUS_SEED")
    return [int(given)] if given else [random.randrange(2**32) for _ in range(ROUNDS)]


def test_brokers_are_killed_and_stopped(target: str, tmp_path: Path) -> None:
    with cluster(target, tmp_path) as whole:
        for number, seed in enumerate(seeds()):
            rage(Run(whole, f"storm-{number}", seed, ALL_CLIENTS))


def test_networks_are_cut_as_well(target: str, tmp_path: Path) -> None:
    skip_because_of(namespaces.missing())
    with (
        Network(names(target, ZOOKEEPERS)) as network,
        cluster(target, tmp_path, network, ZOOKEEPERS) as whole,
    ):
        for number, seed in enumerate(seeds()):
            run = Run(whole, f"storm-{number}", seed, ALL_CLIENTS)
            run.network = network
            rage(run)
