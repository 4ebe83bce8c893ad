"""Headers of records in dead letter topics, with the names that KIP-1191 gives them.

All values are text. Which of them a record has depends on who gave it up.
"""

from typing import Final

TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERIES: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"

ALL: Final = frozenset((TOPIC, PARTITION, OFFSET, GROUP, DELIVERIES, MESSAGE))
