"""Queues: the records of a partition, each given to one member of a share group at a time.

Kafka's share groups (KIP-932) and Disque's jobs stand on them. What a group has done is written
into the partition's own log, as hidden batches (:mod:`qbus.records.control`). So replication,
recovery and truncation carry it, as they do delayed records, and there is nothing to reconcile.

- :mod:`.fold`: what the log says that each group has done: the part that is stored.
- :mod:`.state`: who has what until when, and what comes next: the part that is not.
- :mod:`.settlement`: what keeps records from being given out, and what was begun with them.
- :mod:`.ranges`: what all three are made of.
- :mod:`.journal`: what queues do in one turn of the event loop becomes one batch.
  :mod:`.writer`: what one queue has to say there, and who waits for that.
- :mod:`.batches`: reading records. :mod:`.source`: which come next. :mod:`.filters`: which a group
  takes. :mod:`.taking`: what is taken at a time. :mod:`.giving`: taking it. :mod:`.gate`: when
  nothing is given out. :mod:`.waiters`: who waits for that. :mod:`.outcomes`: who waits until
  records are done, and for what came of them.
- :mod:`.dead_lettering`: what is given up goes to another topic.
- :mod:`.idle` and :mod:`.idle_votes`: which queues are idle, and are deleted.
- :mod:`.queue` and :mod:`.service`: all of it, with its timer (:mod:`.alarm`) and with those who
  wait, for the partitions that this broker leads.
"""

from .fold import QueueFold
from .queue import ShareQueue
from .service import QueueService
from .settings import GroupSettings
from .types import (
    AckRange,
    AckType,
    AcquiredRange,
    QueueCounts,
    QueueDescription,
    RecordState,
    RecordStatus,
    TakenBatches,
    Waiter,
)

__all__ = [
    "AckRange",
    "AckType",
    "AcquiredRange",
    "GroupSettings",
    "QueueCounts",
    "QueueDescription",
    "QueueFold",
    "QueueService",
    "RecordState",
    "RecordStatus",
    "ShareQueue",
    "TakenBatches",
    "Waiter",
]
