"""DescribeLogDirs (API 35): the log directories of a broker and their contents (KIP-113).

Version 2 is flexible; 3 adds an error for the whole request; 4 the sizes of volumes (KIP-827);
5 whether a directory is cordoned (KIP-1066), which none of Qbus is.
Tagged fields of Qbus say why a replica is not compacted, which of its batches are damaged, and what
is wrong with a directory.
"""

from qbus.wire.declare import Bool, Int16, Int32, Int64, String, Struct, field

# Kafka's own tags count from 0; this is far away from them.
_COMPACTION_TAG = 10_000
_DAMAGE_TAG = 10_001
_PROBLEM_TAG = 10_000


class DescribableLogDirTopic(Struct):
    topic: String = field()
    partitions: list[Int32] = field()


class DescribeLogDirsRequest(Struct, flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field()


class DescribeLogDirsDamage(Struct):
    # The last offset is included; -1: how far the damage reaches is not known.
    path: String = field()
    position: Int64 = field()
    size: Int64 = field()
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    since_ms: Int64 = field()
    problem: String = field()


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = field()
    partition_size: Int64 = field()
    offset_lag: Int64 = field()
    is_future_key: Bool = field()
    # Empty unless compaction has stopped because the replica's log is damaged.
    compaction_problem: String = field("2+", tag=_COMPACTION_TAG)
    damage: list[DescribeLogDirsDamage] = field("2+", tag=_DAMAGE_TAG)


class DescribeLogDirsTopic(Struct):
    name: String = field()
    partitions: list[DescribeLogDirsPartition] = field()


class DescribeLogDirsResult(Struct):
    error_code: Int16 = field()
    log_dir: String = field()
    topics: list[DescribeLogDirsTopic] = field()
    total_bytes: Int64 = field("4+", default=-1)
    usable_bytes: Int64 = field("4+", default=-1)
    is_cordoned: Bool = field("5+")
    # Empty unless the directory is offline or full.
    problem: String = field("2+", tag=_PROBLEM_TAG)


class DescribeLogDirsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field("3+")
    results: list[DescribeLogDirsResult] = field()
