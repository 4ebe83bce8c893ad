"""Both stores give the same answers to random transactions."""

from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from qbus.metadata import Check, Create, Delete, EmbeddedStore, MetadataStore, NodeError, Op, Set
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.metadata.zookeeper.store import ZooKeeperStore
from tests.support.zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.integration

NAMES = ("a", "b", "n-", "ä")


def any_path(random: Random) -> str:
    depth = random.choice((1, 2, 2, 3, 3, 4))
    return "".join(f"/{random.choice(NAMES)}" for _ in range(depth))


def any_operation(random: Random) -> Op:
    """Of those whose outcome is certain: the numbers of sequential nodes are the store's own."""
    path, data = any_path(random), random.randbytes(random.randrange(4))
    version = random.choice((-1, -1, 0, 1, 2))
    match random.randrange(8):
        case 0 | 1 | 2:
            return Create(path, data, ephemeral=random.random() < 0.1)
        case 3 | 4:
            return Set(path, data, version)
        case 5 | 6:
            return Delete(path, version)
        case _:
            return Check(path, version)


async def outcome(store: MetadataStore, operations: list[Op]) -> object:
    try:
        return await store.transaction(operations)
    except NodeError as error:
        return type(error).__name__, error.path


@pytest.mark.parametrize("seed", range(3))
async def test_both_stores_agree_on_random_transactions(
    zookeeper: ZooKeeperProcess, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    address = ZooKeeperAddress.parse(f"{zookeeper.bootstrap}/{uuid4()}")
    async with ZooKeeperStore(address) as theirs, EmbeddedStore(tmp_path / "m.db") as ours:
        applied = 0
        for turn in range(300):
            operations = [any_operation(random) for _ in range(random.choice((1, 1, 2, 3, 6)))]
            expected = await outcome(ours, operations)
            assert await outcome(theirs, operations) == expected, (turn, operations)
            applied += isinstance(expected, list)
            if turn % 10 == 0:
                assert await theirs.tree("/") == await ours.tree("/"), turn
                path = any_path(random)
                assert await theirs.tree(path) == await ours.tree(path)
                assert await theirs.children(path) == await ours.children(path)
        assert 30 < applied < 270, "seeds that try neither success nor failure try nothing"
