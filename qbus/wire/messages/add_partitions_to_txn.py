"""AddPartitionsToTxn (API 24): partitions that a transaction is going to write to (KIP-98).

Versions 0 to 3 are for clients and have one transaction; 4 and 5 are for brokers: they have several
transactions, and can ask whether partitions belong to one instead of adding them (KIP-890). Version
2 can return that a producer was fenced (KIP-588); 3 is flexible; 5 can return that a transaction
must be aborted.

Brokers ask in tagged fields of Qbus's own for groups, too, whose offsets are in the metadata store.
"""

from qbus.wire.declare import Bool, Int16, Int32, Int64, String, Struct, field

_GROUPS_TAG = 10_000  # far away from Kafka's own tags, which count from 0


class AddPartitionsToTxnTopic(Struct):
    name: String = field()
    partitions: list[Int32] = field()


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = field("4+")
    producer_id: Int64 = field("4+")
    producer_epoch: Int16 = field("4+")
    verify_only: Bool = field("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field("4+")
    groups: list[String] = field("4+", tag=_GROUPS_TAG)


class AddPartitionsToTxnRequest(Struct, flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field("4+", ignorable=False)
    v3_and_below_transactional_id: String = field("0-3", ignorable=False)
    v3_and_below_producer_id: Int64 = field("0-3", ignorable=False)
    v3_and_below_producer_epoch: Int16 = field("0-3", ignorable=False)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", ignorable=False)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = field()
    partition_error_code: Int16 = field()


class AddPartitionsToTxnTopicResult(Struct):
    name: String = field()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field()


class AddPartitionsToTxnGroupResult(Struct):
    group_id: String = field("4+")
    error_code: Int16 = field("4+")


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = field("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+")
    group_results: list[AddPartitionsToTxnGroupResult] = field("4+", tag=_GROUPS_TAG)


class AddPartitionsToTxnResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", ignorable=False)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        "0-3", ignorable=False
    )
