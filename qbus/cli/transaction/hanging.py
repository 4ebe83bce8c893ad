"""Transactions that hang: where to look for them, and which one to abort."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbus.cli.failures import Failure

if TYPE_CHECKING:
    from qbus.clients import Admin, HangingTransaction, TopicPartition


async def partitions_of(admin: "Admin", topics: Sequence[str]) -> "list[TopicPartition]":
    """Return the partitions of ``topics``, of all topics if there are none."""
    from qbus.clients import TopicPartition

    if topics:
        described = [(await admin.describe_topic(name)) for name in topics]
    else:
        described = await admin.list_topics(internal=True)
    return [
        TopicPartition(topic.name, part.index) for topic in described for part in topic.partitions
    ]


async def abort_at(
    admin: "Admin", topic: str, partition: int, start_offset: int
) -> "HangingTransaction":
    """Abort the transaction of a partition that begins at ``start_offset``; return it.

    Raises Failure if there is none, or if its coordinator still knows of it.
    """
    from qbus.clients import HangingTransaction, TopicPartition

    place = TopicPartition(topic, partition)
    producers = (await admin.describe_producers([place]))[place]
    for producer in producers:
        if producer.transaction_start == start_offset:
            break
    else:
        begun = sorted(one.transaction_start for one in producers if one.transaction_start >= 0)
        known = f"open ones begin at {begun}" if begun else "none is open"
        raise Failure(
            f"no transaction of {topic}-{partition} begins at offset {start_offset}: {known}"
        )
    for listing in await admin.list_transactions(producer_ids=[producer.producer_id]):
        described = await admin.describe_transaction(listing.transactional_id)
        if described.producer_epoch == producer.epoch and place in described.partitions:
            raise Failure(
                f"the transaction is open and has a coordinator: abort it by its id,"
                f" 'qbus transaction abort {listing.transactional_id}'"
            )
    found = HangingTransaction(
        topic=topic,
        partition=partition,
        start_offset=start_offset,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        coordinator_epoch=producer.coordinator_epoch,
        last_timestamp=producer.last_timestamp,
    )
    await admin.abort_transaction(found)
    return found
