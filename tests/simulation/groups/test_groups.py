"""No sequence of faults makes a group lose a commit or share a partition."""

import json
import logging
from typing import Any

import pytest

from qbus.broker.group.group import GroupImage
from qbus.broker.group.group_metadata import GroupMetadata
from qbus.broker.group.loader import GroupLoader
from qbus.broker.group.registry import GroupRegistry
from qbus.broker.group.znodes import GroupChange, GroupPaths, GroupZnodes
from qbus.errors import ErrorCode
from qbus.metadata import Check, Node, Op

from .checks import Checks, ViolationError
from .cluster import ANYTHING, ONLY_BROKERS, Faults, simulate

SEEDS = 8
NIGHTLY_SEEDS = 3_000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the log: failures are expected here."""
    caplog.set_level(logging.CRITICAL, "qbus.broker.group")


def run(seed: int, faults: Faults = ANYTHING) -> Checks:
    try:
        return simulate(seed, faults)
    except ViolationError as error:
        error.add_note(f"seed {seed}, {faults}")
        raise


def test_no_commit_is_lost_and_no_partition_is_shared() -> None:
    commits = sum(run(seed).commits for seed in range(SEEDS))
    assert commits > 300 * SEEDS  # work is done even during faults


def test_groups_do_not_rebalance_when_brokers_die() -> None:
    for seed in range(SEEDS // 2):
        run(seed, ONLY_BROKERS)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("faults", [ANYTHING, ONLY_BROKERS])
def test_nothing_is_lost_in_thousands_of_storms(faults: Faults) -> None:
    for seed in range(SEEDS, SEEDS + NIGHTLY_SEEDS):
        run(seed, faults)


def test_a_seed_reproduces_a_history() -> None:
    first, second = (simulate(7) for _ in range(2))
    assert first.acknowledged == second.acknowledged
    assert first.owners == second.owners


async def _reads_without_writing(loader: GroupLoader, znodes: GroupZnodes) -> int | None:
    node = await loader._store.get(znodes.paths.group)
    if node is None:
        return None
    znodes.fence = json.loads(node.data)["fence"]
    return node.version


class _Early:
    """A store that returns a tree read earlier."""

    def __init__(self, store: Any, tree: dict[str, Node]) -> None:
        self.get, self.transaction = store.get, store.transaction
        self._tree = tree

    async def tree(self, path: str) -> dict[str, Node]:
        data, version = self._tree[path]
        return self._tree | {path: Node(data, version + 1)}


async def _reads_before_it_writes(
    loader: GroupLoader, group_id: str, now_ms: int
) -> tuple[GroupZnodes, GroupImage, int]:
    tree = await loader._store.tree(GroupPaths(group_id).group)
    store: Any = _Early(loader._store, tree) if tree else loader._store
    return await _real_load(GroupLoader(store, {}), group_id, now_ms)


async def _confirms_nothing(_: GroupRegistry, __: GroupMetadata) -> ErrorCode:
    return ErrorCode.NONE


def _checks_no_fence(znodes: GroupZnodes, change: GroupChange) -> list[Op]:
    ops = _real_plan(znodes, change)
    return [Check(znodes.paths.group), *ops[1:]] if isinstance(ops[0], Check) else ops


_real_load = GroupLoader.load
_real_plan = GroupZnodes._plan_group


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        pytest.param(GroupLoader, "_fence", _reads_without_writing, id="nobody is fenced"),
        pytest.param(GroupLoader, "load", _reads_before_it_writes, id="late commits are not seen"),
        pytest.param(GroupRegistry, "confirm", _confirms_nothing, id="zombies hand out offsets"),
        pytest.param(GroupZnodes, "_plan_group", _checks_no_fence, id="zombies commit"),
    ],
)
def test_a_planted_bug_is_found(
    owner: type, name: str, mistake: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    for seed in range(100):
        try:
            simulate(seed)
        except ViolationError:
            return
    pytest.fail(f"{name} was not found")
