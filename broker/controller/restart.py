"""What a broker gives up before it says that it is there again.

It does not know any more what it did as a leader, so it leads nothing of before. And where some of
what it held may be gone, it is not in sync until it has caught up (see
:mod:`qbus.broker.metadata.partition_states`). Its epoch was bumped before: else a change under way
could still take it for what it was (KIP-903).
"""

from collections.abc import Callable, Sequence

from qbus.metadata import MetadataStore
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

from ..metadata.cache import MetadataCache
from ..metadata.image import PartitionInfo, Topic
from ..metadata.partition_states import Policy, elect, forgetting, resigning
from .elections import StateChange, TopicRules, rules_of
from .state_writes import StateWriter

HasLost = Callable[[Topic, int], bool]
"""Whether this broker may have lost records of a partition."""


async def give_up(
    store: MetadataStore,
    metadata: MetadataCache,
    node_id: int,
    has_lost: HasLost,
    *,
    is_alone: bool = False,
) -> int:
    """Write the states in which ``node_id`` claims nothing that it does not know; how many.

    ``is_alone``: there can be no other broker, so that this one is elected again at once.

    Raises:
        StoreUnavailable: the store cannot be used.
    """
    at_first = {
        (topic.id, index): partition.leader_epoch
        for topic in metadata.topics.values()
        for index, partition in enumerate(topic.partitions)
    }
    epoch = metadata.cluster.controller_epoch

    def due() -> list[StateChange]:
        changes = []
        for topic in metadata.topics.values():
            rules = rules_of(metadata.topic_config(topic))
            for index, partition in enumerate(topic.partitions):
                is_led_anew = partition.leader_epoch != at_first.get((topic.id, index))
                if partition.version < 0 or (is_alone and is_led_anew):
                    continue
                lost = _holds(partition, node_id) and has_lost(topic, index)
                before = partition.state(epoch)
                state = given_up(before, node_id, rules.wanted(len(partition.replicas)), lost)
                if is_alone and state.leader == NO_LEADER:
                    state = _led_again(state, partition.replicas, node_id, rules)
                if state != before:
                    changes.append(StateChange(topic, index, state, partition.version))
        return changes

    return await StateWriter(store, metadata).settle(due, lambda: [metadata.fence()])


def given_up(
    state: PartitionStateNode, node_id: int, wanted: Policy, has_lost: bool
) -> PartitionStateNode:
    """The state in which ``node_id`` does not lead and, if it has lost some, is not in sync."""
    resigned = resigning(state, node_id)
    return forgetting(resigned, node_id, wanted) if has_lost else resigned


def _led_again(
    state: PartitionStateNode, replicas: Sequence[int], node_id: int, rules: TopicRules
) -> PartitionStateNode:
    wanted = rules.wanted(len(replicas))
    return elect(state, replicas, {node_id}, state.controller_epoch, wanted=wanted)


def _holds(partition: PartitionInfo, node_id: int) -> bool:
    return node_id in partition.isr or node_id in partition.elr
