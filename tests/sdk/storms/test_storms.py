"""Rebalance storms: members join, leave and die, connections are cut, and records keep coming.

Each partition has one owner in a generation, no committed offset goes back, every record is seen.
"""

import pytest

from tests.sdk.conftest import create_topic
from tests.support.fault_proxy import FaultProxy
from tests.support.seeds import new_seed

from .storm import Storm

PARTITIONS = 6
SEED = new_seed()


ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")


async def weather(proxy: FaultProxy, name: str, seed: int, seconds: float, assignor: str) -> None:
    print("seed", seed)
    await create_topic(proxy.bootstrap, name, PARTITIONS)
    storm = Storm(proxy, name, name, seed, assignors=[assignor])
    await storm.rage(seconds)
    chronicle = storm.chronicle
    print(len(chronicle.generations), "generations,", storm.sent, "records")
    assert chronicle.wrong == []
    # The last one may be stored though its sender was stopped before it was told so.
    assert storm.sent <= chronicle.count() <= storm.sent + 1
    assert len(chronicle.generations) > seconds / 2
    assert sum(chronicle.commits.values()) > 0


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_a_short_rebalance_storm(proxy: FaultProxy, name: str, assignor: str) -> None:
    await weather(proxy, name, SEED, 6, assignor)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_a_storm(proxy: FaultProxy, name: str, assignor: str) -> None:
    await weather(proxy, name, SEED + 1, 180, assignor)
