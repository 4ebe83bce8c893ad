"""What a broker that was away finds: the partitions that it led have to be led anew."""

from qbus.metadata import MetadataStore, Set
from qbus.metadata.feed import announce
from qbus.metadata.znodes import BROKERS, NO_LEADER, TOPICS, ChangeNode, PartitionStateNode

from ..metadata_image import read_topics
from .election import elect
from .office import Office

_BATCH = 500  # of a transaction; ZooKeeper takes no more than 1 MiB in one


async def elect_again(store: MetadataStore, node_id: int, office: Office) -> int:
    """Elect leaders for the partitions that ``node_id`` led, or that nobody leads; how many.

    Raises:
        ApiError: NOT_CONTROLLER.
        StoreUnavailable: the store cannot be used.
        NodeError: somebody else elects leaders at the same time.
    """
    live = {int(name) for name in await store.children(BROKERS)}
    topics = read_topics(await store.tree(TOPICS))
    waiting = [
        (topic.name, index, partition)
        for topic in topics
        for index, partition in enumerate(topic.partitions)
        if partition.leader in {node_id, NO_LEADER} and partition.version >= 0
    ]
    for start in range(0, len(waiting), _BATCH):
        batch = waiting[start : start + _BATCH]
        names = tuple(dict.fromkeys(name for name, _, _ in batch))
        states = [
            Set(
                PartitionStateNode.path(name, index),
                elect(partition, live, office.epoch).encode(),
                partition.version,
            )
            for name, index, partition in batch
        ]
        change = announce(ChangeNode(topics=names).encode())
        await store.transaction([office.fence(), *states, change])
    return len(waiting)
